"""Intervals and sets beside MAPIE and crepes, on the same calibration rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from crepes import ConformalRegressor
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores.sets.aps import APSConformityScore
from mapie.regression import ConformalizedQuantileRegressor, SplitConformalRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from xgboost import XGBRegressor

import sqlml
from sqlml.session.session import Session

FEATURES = ["a", "b", "c"]
COVERAGES = (0.5, 0.8, 0.9, 0.975)


def make_rows(num_rows: int, seed: int) -> pd.DataFrame:
    """Rows whose noise depends on the region, with a number `y` and a class `k` to predict."""
    random = np.random.default_rng(seed)
    rows = pd.DataFrame(random.normal(size=(num_rows, 3)), columns=FEATURES)
    rows["region"] = random.choice(["north", "south", "east"], num_rows)
    noise = random.normal(size=num_rows) * np.where(rows.region == "north", 3.0, 0.5)
    rows["y"] = np.round(2 * rows.a + rows.b**2 + noise, 1)  # Rounding makes equal scores.
    signal = rows.a + random.normal(size=num_rows) * 0.5
    rows["k"] = np.where(signal > 0.5, "high", np.where(rows.b > 0, "mid", "low"))
    return rows


TRAIN, CALIBRATION, FRESH = (make_rows(n, seed) for n, seed in ((400, 1), (217, 2), (500, 3)))


@pytest.fixture(scope="module")
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        connection.register("calibration_frame", CALIBRATION)
        connection.register("fresh_frame", FRESH)
        connection.execute("CREATE TABLE calibration AS FROM calibration_frame")
        connection.execute("CREATE TABLE fresh AS FROM fresh_frame")
        yield connection


def calibrate(con: Session, options: str) -> None:
    con.execute(f"ALTER MODEL m CALIBRATE USING (FROM calibration) OPTIONS ({options})")


def fetch_intervals(con: Session, coverage: float) -> np.ndarray:
    """Return the intervals for the fresh rows, (n, 2)."""
    query = f"SELECT predict_interval('m', *, coverage := {coverage}) FROM fresh ORDER BY rowid"
    intervals = [interval for (interval,) in con.execute(query).fetchall()]
    return np.array([[interval["lower"], interval["upper"]] for interval in intervals])


@pytest.mark.parametrize(
    "estimator",
    [LinearRegression(), RandomForestRegressor(10, random_state=0), XGBRegressor(n_estimators=10)],
    ids=lambda estimator: type(estimator).__name__,
)
def test_split_intervals_are_those_of_mapie_and_crepes(con: Session, estimator: Any) -> None:
    fitted = estimator.fit(TRAIN[FEATURES], TRAIN.y)
    con.create_model("m", fitted, or_replace=True)
    calibrate(con, "label = 'y'")
    mapie = SplitConformalRegressor(fitted, confidence_level=list(COVERAGES), prefit=True)
    mapie.conformalize(CALIBRATION[FEATURES], CALIBRATION.y)
    _, expected = mapie.predict_interval(FRESH[FEATURES])
    residuals = CALIBRATION.y.to_numpy() - fitted.predict(CALIBRATION[FEATURES])
    crepes = ConformalRegressor().fit(residuals=residuals)
    prediction = fitted.predict(FRESH[FEATURES])
    for position, coverage in enumerate(COVERAGES):
        intervals = fetch_intervals(con, coverage)
        np.testing.assert_allclose(intervals, expected[:, :, position], rtol=1e-6)
        same = crepes.predict_int(prediction, confidence=coverage)
        np.testing.assert_allclose(intervals, same, rtol=1e-6)


def test_groups_are_mondrian_categories_of_crepes(con: Session) -> None:
    fitted = LinearRegression().fit(TRAIN[FEATURES], TRAIN.y)
    con.create_model("m", fitted, or_replace=True)
    calibrate(con, "label = 'y', method = 'mondrian', by = 'region'")
    residuals = CALIBRATION.y.to_numpy() - fitted.predict(CALIBRATION[FEATURES])
    crepes = ConformalRegressor().fit(residuals=residuals, bins=CALIBRATION.region.to_numpy())
    prediction = fitted.predict(FRESH[FEATURES])
    # crepes rounds (1 - 0.9) * 70 down to 6, and then takes the rank 64 of 69 instead of 63.
    for coverage in (0.5, 0.75, 0.875, 0.9375):
        expected = crepes.predict_int(prediction, bins=FRESH.region.to_numpy(), confidence=coverage)
        np.testing.assert_allclose(fetch_intervals(con, coverage), expected, rtol=1e-12)


def test_normalized_intervals_are_those_of_crepes(con: Session) -> None:
    fitted = LinearRegression().fit(TRAIN[FEATURES], TRAIN.y)
    errors = (TRAIN.y - fitted.predict(TRAIN[FEATURES])).abs()
    difficulty = LinearRegression().fit(TRAIN[["a", "c"]], errors)
    con.create_model("m", fitted, or_replace=True)
    con.create_model("difficulty", difficulty, or_replace=True)
    calibrate(con, "label = 'y', method = 'normalized', difficulty = 'difficulty', beta = 0.25")

    def estimate_sigmas(rows: pd.DataFrame) -> np.ndarray:
        return np.maximum(difficulty.predict(rows[["a", "c"]]), 0) + 0.25

    residuals = CALIBRATION.y.to_numpy() - fitted.predict(CALIBRATION[FEATURES])
    crepes = ConformalRegressor().fit(residuals=residuals, sigmas=estimate_sigmas(CALIBRATION))
    prediction = fitted.predict(FRESH[FEATURES])
    for coverage in COVERAGES:
        expected = crepes.predict_int(
            prediction, sigmas=estimate_sigmas(FRESH), confidence=coverage
        )
        np.testing.assert_allclose(fetch_intervals(con, coverage), expected, rtol=1e-12)


@pytest.mark.parametrize("symmetric", [True, False])
def test_quantile_models_are_corrected_as_in_mapie(con: Session, symmetric: bool) -> None:
    models = {}
    for name, level in (("lower", 0.1), ("upper", 0.9), ("m", 0.5)):
        estimator = GradientBoostingRegressor(loss="quantile", alpha=level, n_estimators=20)
        models[name] = estimator.fit(TRAIN[FEATURES], TRAIN.y)
        con.create_model(name, models[name], or_replace=True)
    calibrate(
        con,
        f"label = 'y', method = 'cqr', lower = 'lower', upper = 'upper', symmetric = {symmetric}",
    )
    mapie = ConformalizedQuantileRegressor(
        [models["lower"], models["upper"], models["m"]], confidence_level=0.8, prefit=True
    )
    mapie.conformalize(CALIBRATION[FEATURES], CALIBRATION.y)
    _, expected = mapie.predict_interval(FRESH[FEATURES], symmetric_correction=symmetric)
    np.testing.assert_allclose(fetch_intervals(con, 0.8), expected[:, :, 0], rtol=1e-12)


def test_the_ends_of_a_model_of_quantiles(con: Session) -> None:
    """XGBoost fits several quantiles at once; the first and the last are corrected."""
    levels = np.array([0.1, 0.5, 0.9])
    fitted = XGBRegressor(
        objective="reg:quantileerror", quantile_alpha=levels, n_estimators=20, max_depth=3
    ).fit(TRAIN[FEATURES], TRAIN.y)
    con.create_model("m", fitted, or_replace=True)
    calibrate(con, "label = 'y', method = 'cqr'")
    ends = fitted.predict(CALIBRATION[FEATURES])[:, [0, 2]].astype(float)
    y = CALIBRATION.y.to_numpy()
    scores = np.sort(np.maximum(ends[:, 0] - y, y - ends[:, 1]))
    quantile = scores[int(np.ceil((len(y) + 1) * 0.9)) - 1]
    fresh = fitted.predict(FRESH[FEATURES])[:, [0, 2]].astype(float)
    np.testing.assert_allclose(fetch_intervals(con, 0.9), fresh + [-quantile, quantile], rtol=1e-12)


def fetch_sets(con: Session, coverage: float) -> list[list[str]]:
    query = f"SELECT predict_set('m', *, coverage := {coverage}) FROM fresh ORDER BY rowid"
    return [labels for (labels,) in con.execute(query).fetchall()]


def test_lac_sets_are_those_of_mapie(con: Session) -> None:
    fitted = LogisticRegression().fit(TRAIN[FEATURES], TRAIN.k)
    con.create_model("m", fitted, or_replace=True)
    calibrate(con, "label = 'k', method = 'lac'")
    mapie = SplitConformalClassifier(
        fitted, confidence_level=list(COVERAGES), conformity_score="lac", prefit=True
    )
    mapie.conformalize(CALIBRATION[FEATURES], CALIBRATION.k)
    _, expected = mapie.predict_set(FRESH[FEATURES])
    for position, coverage in enumerate(COVERAGES):
        masks = expected[:, :, position]
        assert fetch_sets(con, coverage) == [list(fitted.classes_[mask]) for mask in masks]


def test_aps_scores_are_those_of_mapie(con: Session) -> None:
    """MAPIE subtracts a random share of the last probability; sqlml's sets are not random."""
    fitted = LogisticRegression().fit(TRAIN[FEATURES], TRAIN.k)
    con.create_model("m", fitted, or_replace=True)
    calibrate(con, "label = 'k', method = 'aps'")
    scores, _ = APSConformityScore.get_true_label_cumsum_proba(
        CALIBRATION.k, fitted.predict_proba(CALIBRATION[FEATURES]), fitted.classes_
    )
    probabilities = fitted.predict_proba(FRESH[FEATURES])
    fresh_scores = np.column_stack(
        [
            APSConformityScore.get_true_label_cumsum_proba(
                np.full(len(FRESH), label), probabilities, fitted.classes_
            )[0]
            for label in fitted.classes_
        ]
    )
    for coverage in COVERAGES:
        quantile = np.sort(scores.ravel())[int(np.ceil(218 * coverage)) - 1]
        is_clear = (np.abs(fresh_scores - quantile) > 1e-9).all(axis=1)
        assert is_clear.mean() > 0.95
        expected = [list(fitted.classes_[mask]) for mask in fresh_scores <= quantile]
        for labels, same, clear in zip(fetch_sets(con, coverage), expected, is_clear, strict=True):
            assert labels == same or not clear
