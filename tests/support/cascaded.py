"""A model that a cascade suits: a number tells most rows, an expensive text the others; and small
models that were not learned."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from sqlml.catalog.model import parse_reference
from sqlml.catalog.small_models import Cascade, CascadeFacts, FilterFacts, TopKFilter
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.session.session import Session
from sqlml.training.cascades.last_estimator import CONFIDENCE
from sqlml.training.cascades.small_model import reject_uncertain_labels

LEARN = (
    "ALTER MODEL m ADD CASCADE USING (SELECT x, t, y FROM train) "
    "OPTIONS (label = 'y', accuracy_loss = 0.01)"
)
CALL = "predict('m', *, approximate := true)"


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers that tell most rows, and a text without which the others cannot be told."""
    random = np.random.default_rng(seed)
    x, told = random.normal(size=n), random.random(n) < 0.5
    labels = np.where(np.abs(x) > 0.5, x > 0, told)
    word = np.where(told, "yes", "no")
    noise = random.choice(["a", "b", "c", "d"], (n, 30))
    text = [f"{w} {' '.join(more)}" for w, more in zip(word, noise, strict=True)]
    return pd.DataFrame({"x": x, "t": text}), labels.astype(int)


def features() -> ColumnTransformer:
    """The number as it is, and the characters of the text."""
    return ColumnTransformer(
        [("x", "passthrough", ["x"]), ("t", TfidfVectorizer(analyzer="char"), "t")]
    )


@cache
def model() -> tuple[Pipeline, Program]:
    """Fitted on such rows: x first, the word where x says nothing."""
    frame, labels = table(4_000, 0)
    fitted = make_pipeline(features(), LogisticRegression(C=100.0, max_iter=500)).fit(frame, labels)
    return fitted, import_model(fitted).program


def labels(con: Session, call: str) -> list[int]:
    """What a call says of the rows of `fresh`."""
    return [p for (p,) in con.execute(f"SELECT {call} FROM fresh ORDER BY id").fetchall()]


def put_before(con: Session, name: str, small: Program, **known: Any) -> None:
    """Let a Program with labels and probabilities be the small model of a model.

    Args:
        known: in place of what `CASCADE` says.
    """
    stored = con._models.catalog.get(parse_reference(name))
    b = Builder(small.nodes)
    sure = b.op("max", b.value(small.outputs["proba"]), axis=1)
    told = b.build({"label": b.value(small.outputs["label"]), CONFIDENCE: sure})
    facts = replace(CASCADE, **known)
    made = Cascade(reject_uncertain_labels(told, 0.8, stored.program.labels), facts)
    con._models.versions.add_small_model(stored, made)


def forest_behind_a_line(con: Session, **known: Any) -> np.ndarray:
    """Make the model m of x and f, before which stands a small one of x alone; the rows (600, 2)
    that they were fitted on.

    Args:
        known: as of `put_before`.
    """
    matrix = np.random.default_rng(0).normal(size=(600, 2))
    labels = (matrix[:, 0] + (np.abs(matrix[:, 0]) < 0.7) * 3 * matrix[:, 1] > 0).astype(int)
    full = RandomForestClassifier(9, max_depth=5, random_state=0).fit(matrix, labels)
    con.create_model("m", full, inputs=["x", "f"])
    small = import_model(LogisticRegression().fit(matrix[:, :1], labels), ["x"]).program
    put_before(con, "m", small, **known)
    return matrix


def put_filter_before(con: Session, name: str, small: Program, **known: Any) -> None:
    """Let a top-K filter rank a model's rows by the number that a Program predicts.

    Args:
        known: in place of what `FILTER` says.
    """
    stored = con._models.catalog.get(parse_reference(name))
    b = Builder(small.nodes)
    program = b.build({"score": b.value(small.outputs["label"])})
    made = TopKFilter(program, replace(FILTER, **known))
    con._models.versions.add_small_model(stored, made)


LEARNED: dict[str, Any] = {
    "query": "FROM t",
    "trained": 300,
    "held_out": 100,
    "exact_ns": 200.0,
    "expected_ns": 100.0,
    "groups": (),
}
CASCADE = CascadeFacts(
    **LEARNED,
    label="y",
    accuracy_loss=0.01,
    threshold=0.8,
    confident=0.4,
    accuracy=0.9,
    loss=0.0,
    most_loss=0.01,
)
FILTER = FilterFacts(
    **LEARNED,
    output="proba",
    column=1,
    chosen="1",
    k=5,
    precision=0.9,
    ratio=2.0,
    rows=100,
    trials=100,
    failures=0,
    low=0.96,
    high=1.0,
)
"""What might be known of small models that were not learned."""
