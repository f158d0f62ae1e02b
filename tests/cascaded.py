"""A model that a cascade suits: a number tells most rows, an expensive text the others."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from sqlml.importers.registry import import_model
from sqlml.ir.program import Program


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
