"""Measured losses of cascades and filters, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from sqlml.catalog.small_models import FilterFacts, TopKFilter
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.training.cascades.last_estimator import CONFIDENCE
from sqlml.training.cascades.learn import measure_filter_loss

KNOWN = {"query": "", "trained": 1, "held_out": 1, "exact_ns": 2.0, "expected_ns": 1.0}


def linear(names: list[str], weights: list[float]) -> Program:
    fitted = LinearRegression().fit(np.eye(len(names)), np.zeros(len(names)))
    fitted.coef_, fitted.intercept_ = np.array(weights), 0.0
    return import_model(fitted, names).program


def top_k(k: int, ratio: float, rows: int) -> TopKFilter:
    """A filter that looks at column a alone."""
    model = linear(["a"], [1.0])
    small = replace(model, outputs={CONFIDENCE: model.outputs["label"]})
    measured = {"trials": 72, "failures": 0, "low": 0.95, "high": 1.0}
    asked = {"output": "label", "column": 0, "chosen": "", "k": k, "precision": 0.8}
    facts = FilterFacts(groups=(), ratio=ratio, rows=rows, **asked, **measured, **KNOWN)
    return TopKFilter(small, facts)


@pytest.mark.parametrize(
    ("ratio", "missed", "agrees"),
    [
        (1.0, 5, False),  # b alone makes the best rows, which are the last by a
        (19.0, 5, False),
        (19.8, 1, True),  # 99 of 100 rows are kept
        (20.0, 0, True),
    ],
)
def test_the_best_rows_that_a_filter_leaves_out(ratio: float, missed: int, agrees: bool) -> None:
    rows = {"a": -np.arange(100.0), "b": np.arange(100.0)}
    loss = measure_filter_loss(linear(["a", "b"], [0.0, 1.0]), top_k(5, ratio, 100), rows)
    assert (loss.rows, loss.differing, loss.agrees) == (100, missed, agrees)
    assert loss.loss == missed / 5


def test_of_larger_tables_a_filter_keeps_as_large_a_share() -> None:
    """10 of 50 rows are 20 of 100; a's best 20 hold all of b's best 5, as ranks of b repeat."""
    rows = {"a": -np.arange(100.0), "b": np.where(np.arange(100) < 20, 1.0, 0.0)}
    full = linear(["a", "b"], [0.0, 1.0])
    assert measure_filter_loss(full, top_k(20, 0.5, 50), rows).differing == 0  # ties are as good
    assert measure_filter_loss(full, top_k(20, 0.5, 100), rows).differing == 10


def test_fewer_rows_than_k() -> None:
    rows = {"a": np.arange(3.0), "b": np.arange(3.0)}
    loss = measure_filter_loss(linear(["a", "b"], [0.0, 1.0]), top_k(5, 1.0, 100), rows)
    assert (loss.rows, loss.loss, loss.agrees) == (3, 0.0, True)
