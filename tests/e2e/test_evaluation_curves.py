"""Curves, calibration, lift and confusion matrices: the numbers of sklearn.metrics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

import sqlml
from tests.support.evaluated_models import (
    CLOSE,
    FITTED,
    ROWS,
    X,
    evaluated_models,
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with evaluated_models() as con:
        yield con


def test_curves(con: sqlml.Session) -> None:
    y, p = ROWS.answer == "yes", FITTED["answers"].predict_proba(X)[:, 1]
    ask = "FROM ml_{}(MODEL answers, TABLE shop, label := 'answer', points := 0)"
    roc = con.sql(ask.format("roc_curve")).df()
    false, true, thresholds = metrics.roc_curve(y, p, drop_intermediate=False)
    assert roc.threshold.tolist() == thresholds.tolist()
    np.testing.assert_allclose(roc.recall, true, **CLOSE)
    np.testing.assert_allclose(roc.false_positive_rate, false, **CLOSE)
    assert (roc.true_positives + roc.false_negatives == y.sum()).all()
    curve = con.sql(ask.format("pr_curve")).df()
    precision, recall, thresholds = metrics.precision_recall_curve(y, p)
    assert curve.threshold[1:].tolist() == thresholds[::-1].tolist()
    np.testing.assert_allclose(curve.precision, precision[::-1], **CLOSE)
    np.testing.assert_allclose(curve.recall, recall[::-1], **CLOSE)
    few = con.sql(
        "FROM ml_roc_curve(MODEL answers, TABLE shop, label := 'answer', points := 5)"
    ).df()
    assert len(few) == 6
    shared = roc.merge(few, on="threshold")
    assert len(shared) == 6 and (shared.recall_x == shared.recall_y).all()


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_calibration(con: sqlml.Session, strategy: str) -> None:
    y, p = ROWS.answer == "yes", FITTED["answers"].predict_proba(X)[:, 1]
    found = con.sql(
        "FROM ml_calibration_curve(MODEL answers, TABLE shop, label := 'answer', bins := 7, "
        f"quantiles := {strategy == 'quantile'})"
    ).df()
    true, predicted = calibration_curve(y, p, n_bins=7, strategy=strategy)
    np.testing.assert_allclose(found.fraction_of_positives, true, **CLOSE)
    np.testing.assert_allclose(found.mean_predicted, predicted, **CLOSE)
    assert found.rows.sum() == len(ROWS)


def test_lift(con: sqlml.Session) -> None:
    y, p = ROWS.answer == "yes", FITTED["answers"].predict_proba(X)[:, 1]
    found = con.sql("FROM ml_lift(MODEL answers, TABLE shop, label := 'answer', bins := 4)").df()
    assert found.rows.sum() == len(ROWS) and found.positives.sum() == y.sum()
    assert found.cumulative_gain.iloc[-1] == found.cumulative_lift.iloc[-1] == 1
    first = p >= found.lowest[0]
    assert found.response_rate[0] == pytest.approx(y[first].mean(), rel=1e-12)
    assert found["lift"][0] == pytest.approx(y[first].mean() / y.mean(), rel=1e-12)


def test_curves_of_several_classes(con: sqlml.Session) -> None:
    p = FITTED["grades"].predict_proba(X)
    all_classes = con.sql(
        "FROM ml_roc_curve(MODEL grades, TABLE shop, label := 'grade', points := 0)"
    ).df()
    one = con.sql(
        "FROM ml_roc_curve(MODEL grades, TABLE shop, label := 'grade', points := 0, class := 5)"
    ).df()
    for k in (4, 5, 6):
        false, true, _ = metrics.roc_curve(ROWS.grade == k, p[:, k - 4], drop_intermediate=False)
        part = all_classes[all_classes["class"] == k]
        np.testing.assert_allclose(part.recall, true, **CLOSE)
        np.testing.assert_allclose(part.false_positive_rate, false, **CLOSE)
    part = all_classes[all_classes["class"] == 5].drop(columns="class").reset_index(drop=True)
    pd.testing.assert_frame_equal(part, one)


def test_confusion_matrices(con: sqlml.Session) -> None:
    hat = FITTED["grades"].predict(X)
    ask = "FROM ml_confusion_matrix(MODEL grades, TABLE shop, label := 'grade'{})"
    found = con.sql(ask.format("")).df()
    assert list(found.columns) == ["expected_label", "4", "5", "6"]
    wanted = metrics.confusion_matrix(ROWS.grade, hat)
    assert found[["4", "5", "6"]].to_numpy().tolist() == wanted.tolist()
    found = con.sql(ask.format(", pairs := true, weight := 'worth'")).df()
    wanted = metrics.confusion_matrix(ROWS.grade, hat, sample_weight=ROWS.worth)
    for row in found.itertuples():
        place = wanted[row.expected_label - 4, row.predicted_label - 4]
        assert row.rows == pytest.approx(place, rel=1e-12)
    found = con.sql(
        "FROM ml_confusion_matrix(MODEL answers, TABLE shop, label := 'answer', threshold := 0.3, "
        "by := 'Shop''s') ORDER BY ALL"
    ).df()
    north = ROWS["Shop's"] == "north"
    hat = np.where(FITTED["answers"].predict_proba(X)[:, 1] >= 0.3, "yes", "no")
    wanted = metrics.confusion_matrix(ROWS.answer[north], hat[north])
    assert found[found["Shop's"] == "north"][["no", "yes"]].to_numpy().tolist() == wanted.tolist()
