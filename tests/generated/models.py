"""The models of the generated queries, and their libraries' answers to every possible row.

A feature takes a few values only, NULL among them, so that the answers to all rows can be computed
beforehand. Each output of a model (`Output`) is a list of them, which a plain connection holds as
a variable; a macro looks it up, and so is a column of predictions for any arguments:
``xgb_predict(a, b, g)`` there is ``predict('xgb', a, b, g)`` here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml

MISSING = "a value is missing"
"""What the macro of a strict model says of a row without an answer."""

VALUES: Mapping[str, tuple[Any, ...]] = {
    "a": (0, 1, 2, 3, 4, 5, None),
    "b": (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, None),
    "g": (0, 1, 2, 3, None),
    "s": ("red", "green", "blue", "violet", None),  # no model was fitted with violet
}
"""Feature -> its values."""

PLACES = {
    "a": "coalesce(a::INTEGER, 6)",
    "b": "coalesce((b * 2)::INTEGER, 6)",
    "g": "coalesce(g::INTEGER, 4)",
    "s": "CASE s WHEN 'red' THEN 0 WHEN 'green' THEN 1 WHEN 'blue' THEN 2 WHEN 'violet' THEN 3 "
    "ELSE 4 END",
}
"""Feature -> the place of a value among VALUES, in SQL."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a model."""

    model: str
    features: tuple[str, ...]
    strict: bool
    function: str
    tail: str
    kind: str
    """number, whole, label, chances (a MAP) or list."""
    sql_type: str
    answers: tuple[Any, ...] = field(repr=False)
    """For every row of the features' values, the last feature fastest; None: it has none."""

    @property
    def macro(self) -> str:
        ending = "".join(c for c in self.tail if c.isalnum()).removeprefix("class")
        return f"{self.model}_{self.function}_{ending}".rstrip("_")

    def cuts(self) -> list[float]:
        """Numbers between the answers, so far from all of them that rounding is no matter."""
        known = np.unique([float(x) for x in self.answers if x is not None])
        gaps = np.argsort(np.diff(known))[-4:]
        return [round(float(known[i] + known[i + 1]) / 2, 6) for i in sorted(gaps)]

    def labels(self) -> list[Any]:
        return sorted({x for x in self.answers if x is not None})


def rows(features: Sequence[str]) -> pd.DataFrame:
    """Every row of the features' values."""
    frame = pd.DataFrame(itertools.product(*(VALUES[f] for f in features)), columns=[*features])
    numbers = {f: frame[f].astype(float) for f in features if f != "s"}
    return frame.assign(**numbers)


def _target(frame: pd.DataFrame) -> Any:
    known = frame.drop(columns=[c for c in frame if c == "s"]).fillna(1.3)
    weights = [1.7, -2.3, 0.9][: known.shape[1]]
    target = known.to_numpy() @ weights + np.sin(3 * known.to_numpy()).sum(axis=1)
    return target + (2.1 * (frame.s == "red") if "s" in frame else 0)


def _classes(frame: pd.DataFrame, labels: Sequence[Any]) -> Any:
    target = np.asarray(_target(frame))
    cuts = np.quantile(target, np.linspace(0, 1, len(labels) + 1)[1:-1])
    return np.array(labels)[np.searchsorted(cuts, target)]


def _words() -> Pipeline:
    words = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore"),
    )
    return make_pipeline(
        make_column_transformer((words, ["s"]), (SimpleImputer(), ["b"])), LogisticRegression()
    )


STRICT = frozenset(("lr", "lrn", "one"))
"""Models that refuse NULL; of lrn a NULL is the answer to it."""

OPTIONS = {"lrn": {"on_null": "null"}}


@cache
def fitted() -> Mapping[str, tuple[Any, tuple[str, ...]]]:
    """Name -> the fitted object and its features."""
    trees = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
    made: tuple[tuple[str, Any, tuple[str, ...], Sequence[Any]], ...] = (
        ("xgb", xgboost.XGBRegressor(**trees), ("a", "b", "g"), ()),
        ("three", xgboost.XGBClassifier(**trees), ("a", "b"), (0, 1, 2)),
        ("words", _words(), ("s", "b"), ("no", "yes")),
        ("tree", DecisionTreeClassifier(max_depth=4), ("a", "g"), ("high", "it's", "low")),
        ("lr", LogisticRegression(), ("a", "b"), (0, 1)),
        ("lrn", LogisticRegression(), ("a", "b"), (0, 1)),
        ("one", LinearRegression(), ("a",), ()),
        ("scale", StandardScaler(), ("a", "b"), ()),
    )
    found = {}
    for name, model, features, labels in made:
        frame = rows(features)
        frame = frame[frame.s != "violet"] if "s" in frame else frame
        frame = frame.dropna() if name in STRICT else frame
        target = _classes(frame, labels) if labels else _target(frame)
        found[name] = model.fit(frame, target), features
    return found


@cache
def every_output() -> tuple[Output, ...]:
    """All outputs of all models."""
    found = []
    for name, (model, features) in fitted().items():
        frame = rows(features)
        taken = frame.notna().all(axis=1) if name in STRICT else np.ones(len(frame), bool)
        for function, tail, kind, sql_type, known in _answers(model, frame[taken]):
            answers: list[Any] = [None] * len(frame)
            for i, answer in zip(np.flatnonzero(taken), known, strict=True):
                answers[i] = answer
            strict = name in STRICT and name not in OPTIONS
            found.append(
                Output(name, features, strict, function, tail, kind, sql_type, tuple(answers))
            )
    return tuple(found)


def _answers(model: Any, X: pd.DataFrame) -> Iterator[tuple[str, str, str, str, list[Any]]]:
    """Function, argument behind the features, kind, type and the answers to the rows of X."""
    if hasattr(model, "transform"):
        yield "transform", "", "list", "DOUBLE[]", model.transform(X).tolist()
        return
    if not hasattr(model, "classes_"):
        yield "predict", "", "number", "DOUBLE", model.predict(X).astype(float).tolist()
        return
    labels = model.classes_.tolist()
    kind, sql_type = ("label", "VARCHAR") if isinstance(labels[0], str) else ("whole", "BIGINT")
    yield "predict", "", kind, sql_type, model.predict(X).tolist()
    chances = model.predict_proba(X).astype(float).tolist()
    for k, label in enumerate(labels):
        of_one = [row[k] for row in chances]
        yield "predict_proba", f", class := {literal(label)}", "number", "DOUBLE", of_one
    maps = [dict(zip(labels, row, strict=True)) for row in chances]
    yield "predict_proba", "", "chances", f"MAP({sql_type}, DOUBLE)", maps
    if hasattr(model, "decision_function"):
        yield "predict_score", "", "number", "DOUBLE", model.decision_function(X).tolist()


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return "NULL" if value is None else str(value)


def make_models(con: sqlml.Session) -> None:
    for name, (model, features) in fitted().items():
        inputs = None if "s" in features else list(features)
        con.create_model(name, model, inputs=inputs, **OPTIONS.get(name, {}))


def make_macros(plain: duckdb.DuckDBPyConnection) -> None:
    """On a plain connection: a variable and a macro for each output."""
    for output in every_output():
        plain.execute(
            f"SET VARIABLE {output.macro} = ?::{output.sql_type}[]", [list(output.answers)]
        )
        place = "0"
        for feature in output.features:
            place = f"({place}) * {len(VALUES[feature])} + {PLACES[feature]}"
        value = f"getvariable('{output.macro}')[1 + {place}]"
        if output.strict:  # a cast that fails, since error(..) is volatile and refused in places
            gone = " OR ".join(f"{f} IS NULL" for f in output.features)
            wrong = f"CAST('{MISSING}' AS {output.sql_type})"
            value = f"CASE WHEN {gone} THEN {wrong} ELSE {value} END"
        plain.execute(f"CREATE MACRO {output.macro}({', '.join(output.features)}) AS {value}")
