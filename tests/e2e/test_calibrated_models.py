"""Calibrated versions outside of queries: VERIFY MODEL, and Scorers of exported files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlml
from sqlml.errors import ConfigError, MissingColumnError
from sqlml.session.session import Session
from tests.e2e.test_conformal import FRESH, calibrate, con, fetch

__all__ = ["con"]


def export(con: Session, model: str, folder: Path) -> Any:
    path = str(folder / f"{model}.sqlml")
    con.execute(f"EXPORT MODEL {model} TO '{path}'")
    return sqlml.compile(path)


def verify(con: Session, model: str, query: str) -> dict[str, Any]:
    statement = f"VERIFY MODEL {model} USING ({query})"
    return {row[0]: row[1:] for row in con.execute(statement).fetchall()}


@pytest.mark.parametrize("options", ["label = 'y'", "label = 'y', by = 'region'"])
def test_a_scorer_returns_the_intervals_of_sql(con: Session, tmp_path: Path, options: str) -> None:
    calibrate(con, options)
    scorer = pickle.loads(pickle.dumps(export(con, "m", tmp_path)))
    for coverage in (0.5, 0.8):
        rows = fetch(
            con,
            f"SELECT r.lower, r.upper FROM (SELECT predict_interval('m', *, coverage := {coverage})"
            " AS r FROM fresh)",
        )
        np.testing.assert_array_equal(scorer.predict_interval(FRESH, coverage=coverage), rows)
    assert scorer.predict_interval(FRESH).dtype == np.float64
    assert "predict_interval" in dir(scorer)
    assert "predict_set" not in dir(scorer)


def test_a_scorer_returns_the_sets_of_sql(con: Session, tmp_path: Path) -> None:
    calibrate(con, "label = 'k'", "k")
    scorer = export(con, "k", tmp_path)
    found = scorer.predict_set(FRESH[["a", "b"]].to_numpy(), coverage=0.7)
    rows = fetch(con, "SELECT predict_set('k', *, coverage := 0.7) FROM fresh")
    assert found.dtype == bool
    assert [sorted(scorer.classes_[row]) for row in found] == [sorted(row[0]) for row in rows]  # type: ignore[call-overload]


def test_what_a_scorer_refuses(con: Session, tmp_path: Path) -> None:
    plain = export(con, "k", tmp_path)
    with pytest.raises(AttributeError, match=r"not calibrated; ALTER MODEL ... CALIBRATE"):
        plain.predict_set(FRESH)
    calibrate(con, "label = 'y', by = 'region'")
    scorer = export(con, "m", tmp_path)
    with pytest.raises(AttributeError, match="has no sets"):
        scorer.predict_set(FRESH)
    for coverage in (0, 1, True):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            scorer.predict_interval(FRESH, coverage=coverage)
    with pytest.raises(ConfigError, match="the calibration rows allow at most 0.9"):
        scorer.predict_interval(FRESH, coverage=0.999)
    with pytest.raises(MissingColumnError, match="'region'"):
        scorer.predict_interval(FRESH[["a", "b"]])


def test_verify_measures_the_coverage(con: Session) -> None:
    calibrate(con)
    calibrate(con, "label = 'k'", "k")
    count, share, _, allowed, missed, agrees = verify(con, "m", "FROM fresh")["interval"]
    ((coverage,),) = fetch(
        con, "SELECT coverage FROM ml_evaluate(MODEL m, TABLE fresh, label := 'y')"
    )
    assert (count, share) == (len(FRESH), pytest.approx(1 - float(str(coverage))))
    assert missed == round(share * count)
    assert agrees == (share <= allowed)
    assert 0.1 < allowed < 0.25
    assert verify(con, "k", "FROM fresh")["set"][-1]
    shifted = verify(con, "m", "SELECT * REPLACE (y + 100 AS y) FROM fresh")["interval"]
    assert (shifted[1], shifted[-1]) == (1, False)
    with pytest.raises(ConfigError, match="no column y with the true labels"):
        verify(con, "m", "SELECT a, b FROM fresh")
    with pytest.raises(ConfigError, match="all labels in column y are NULL"):
        verify(con, "m", "SELECT * REPLACE (NULL::DOUBLE AS y) FROM fresh")
