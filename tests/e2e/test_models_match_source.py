"""Every model scores in SQL as it does in its own library, on every backend and strategy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sqlml
from sqlml import errors
from sqlml.types import Array
from tests.e2e import model_zoo
from tests.e2e.model_zoo import MODELS, Entry
from tests.support import oracles

RUNS = {
    "native": {"backend": "native"},
    "reference": {"backend": "reference"},
    "torch": {"backend": "torch"},
    "gemm": {"backend": "torch", "strategy": "gemm"},
    "tt": {"backend": "torch", "strategy": "tt"},
    "ptt": {"backend": "torch", "strategy": "ptt"},
}
"""Options of create_model. The strategies are ways to run trees; without a tree, all are one."""


def cases() -> Iterator[Any]:
    """Every model by the native backend, and in turn by one of the other ways by day."""
    for number, (name, entry) in enumerate(MODELS.items()):
        others = ("reference", "gemm", "tt", "ptt") if entry.tree else ("reference", "torch")
        for run in ("native", *others):
            usual = run in ("native", others[number % len(others)])
            yield pytest.param(name, run, marks=[] if usual else [pytest.mark.nightly])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says of n rows: labels (n,), probabilities (n, K), margins (n, K) or None."""

    label: Array
    proba: Array | None
    score: Array | None


@cache
def source(name: str) -> Answer:
    """What the model's own library says."""
    entry, made = MODELS[name], model_zoo.model(name)
    x = entry.view(model_zoo.rows(name)[entry.features])
    library = type(made).__module__.split(".")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = None
        if library == "xgboost":
            score = made.predict(x, output_margin=True)
        elif library == "lightgbm":
            score = made.predict(x, raw_score=True)
        elif hasattr(made, "decision_function"):
            score = made.decision_function(x)
        proba = made.predict_proba(x) if hasattr(made, "predict_proba") else None
        label = np.asarray(made.predict(x))
    return Answer(label, proba, None if score is None else score.reshape(len(x), -1))


@pytest.fixture(scope="module")
def db() -> Iterator[sqlml.Session]:
    with sqlml.connect(config={"threads": 2}) as con:
        yield con


def registered(db: sqlml.Session, name: str, **options: Any) -> None:
    """The model as `m` and its rows as table `t`."""
    db.create_model("m", model_zoo.model(name), or_replace=True, verify=False, **options)
    made = model_zoo.arrow(model_zoo.rows(name))
    db.register("made", made)
    db.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM made")
    db.unregister("made")


def outputs(db: sqlml.Session) -> set[str]:
    described = dict(db.execute("DESCRIBE MODEL m").fetchall())
    return set(described["outputs"].split(", "))


def column(db: sqlml.Session, call: str) -> pa.ChunkedArray:
    relation = db.sql(f"SELECT {call} AS answer FROM t ORDER BY id")
    assert relation is not None
    return relation.arrow()["answer"]


def assert_close(ours: Array, theirs: Array, entry: Entry, exact: bool) -> None:
    """Equal, or for numbers within `entry.digits`; 1 - p has only the digits that p has."""
    assert ours.shape == theirs.shape
    if exact:
        np.testing.assert_array_equal(ours, theirs)
    else:
        smallest = 2.0**-23 if entry.digits > 1e-9 else 1e-14
        np.testing.assert_allclose(ours, theirs, rtol=entry.digits, atol=smallest)


@pytest.mark.by_day(4)
@pytest.mark.parametrize(("name", "run"), list(cases()))
def test_sql_gives_the_numbers_of_the_source(db: sqlml.Session, name: str, run: str) -> None:
    if RUNS[run]["backend"] == "torch":
        pytest.importorskip("torch", reason="the torch backend needs torch")
    entry, want = MODELS[name], source(name)
    if entry.deep and run == "ptt":
        with pytest.raises(errors.BackendError, match="depth.*use strategy='tt'"):
            registered(db, name, **RUNS[run])
        return
    registered(db, name, **RUNS[run])
    offered = {"label", "proba", "score"}
    offered -= {k for k in offered if getattr(want, k) is None}
    assert outputs(db) == offered

    label = column(db, "predict('m', *)").to_pylist()
    if want.proba is None:
        assert_close(np.array(label), want.label.astype(float), entry, entry.exact == "all")
    else:
        assert label == want.label.tolist()
        assert type(label[0]) is type(want.label.tolist()[0])
        classes = model_zoo.model(name).classes_.tolist()
        maps = column(db, "predict_proba('m', *)").to_pylist()
        assert all([k for k, _ in pairs] == classes for pairs in maps)
        proba = np.array([[p for _, p in pairs] for pairs in maps])
        assert_close(proba, want.proba, entry, entry.exact == "all")
        for k in (0, len(classes) - 1):
            literal = f"'{classes[k]}'" if isinstance(classes[k], str) else str(classes[k])
            one = column(db, f"predict_proba('m', *, class := {literal})").to_numpy()
            assert_close(one, proba[:, k], entry, exact=True)
    if want.score is not None:
        score = np.array(column(db, "predict_score('m', *)").to_pylist()).reshape(len(label), -1)
        assert_close(score, want.score, entry, entry.exact == "score")


DIRECT = [n for n, e in MODELS.items() if e.tree and not n.startswith("pipeline")]


@pytest.mark.parametrize("name", DIRECT)
def test_the_rows_meet_the_thresholds_of_each_tree_model(name: str) -> None:
    """The comparison above is only as hard as its rows are."""
    features = MODELS[name].features
    rows = model_zoo.rows(name)
    thresholds = model_zoo.thresholds(model_zoo.model(name), features)
    for feature in thresholds.keys() & {"age", "income"}:  # DOUBLE: any threshold is a value
        met = np.isin(thresholds[feature], rows[feature])
        assert met.mean() >= 0.25
        below = np.nextafter(thresholds[feature], -np.inf)
        above = np.nextafter(thresholds[feature], np.inf)
        assert np.isin(below, rows[feature]).any() and np.isin(above, rows[feature]).any()
    for feature in thresholds.keys() & {"ratio", "share"}:  # FLOAT: only near ones are
        near = rows[feature].isin(oracles.neighbours(thresholds[feature]))
        assert near.sum() >= 5
    assert rows[[f for f in features if f not in model_zoo.WHOLE]].isna().any().all()


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", ["tree, numbers", "xgboost, numbers", "lightgbm, numbers"])
@pytest.mark.parametrize(
    "kind",
    [
        "UTINYINT", "SMALLINT", "USMALLINT", "UINTEGER", "BIGINT", "UBIGINT", "HUGEINT",
        "FLOAT", "DOUBLE", "DECIMAL(4,1)", "DECIMAL(18,4)", "DECIMAL(38,10)",
    ],
)  # fmt: skip
def test_a_whole_number_is_the_same_in_every_column_type(
    db: sqlml.Session, name: str, kind: str
) -> None:
    registered(db, name)
    known = "age, income, share, level, active, zip"
    changed = f"visits := abs(visits)::{kind}, price := abs(visits)::{kind}"
    plain = "visits := abs(visits), price := abs(visits)"
    named = ", ".join(f"{c} := {c}" for c in known.split(", "))
    same = column(db, f"predict('m', {named}, {plain})").to_pylist()
    assert column(db, f"predict('m', {named}, {changed})").to_pylist() == same
    entry, made = MODELS[name], model_zoo.model(name)
    table = model_zoo.rows(name)
    whole = table.visits.abs()
    x = entry.view(table.assign(visits=whole, price=whole)[entry.features])
    np.testing.assert_array_equal(same, made.predict(x))
