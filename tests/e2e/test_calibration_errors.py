"""A faulty calibration, or a faulty call of its intervals, is one clear error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import sqlml
from sqlml.errors import (
    ArtifactError,
    BindError,
    ConfigError,
    MissingColumnError,
    MissingOutputError,
    ParseError,
    UnknownModelError,
)
from sqlml.session.session import Session
from tests.e2e.test_conformal import CALIBRATION, FEATURES, calibrate, fetch, fill


@pytest.fixture
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        fill(connection)
        yield connection


BAD_OPTIONS = (
    ("m", "label = 'y', method = 'lac'", ConfigError, "does not fit model m .* a number; methods"),
    ("k", "label = 'k', method = 'cqr'", ConfigError, "methods: mondrian, lac, aps"),
    ("m", "label = 'y', coverage = 0.9", ConfigError, "unknown option 'coverage'; options of CAL"),
    ("m", "label = 'nowhere'", MissingColumnError, "no column 'nowhere' with the labels; it has a"),
    ("m", "method = 'split'", ConfigError, "name the column of the query with the true labels"),
    ("m", "label = 'region'", ConfigError, "column 'region' must have finite numbers"),
    ("k", "label = 'region'", ConfigError, "contains '.*', which is not a class of model k"),
    ("m", "label = 'y', by = 'nowhere'", MissingColumnError, "no column 'nowhere' with the groups"),
    ("m", "label = 'y', method = 'mondrian'", ConfigError, "needs groups: OPTIONS"),
    ("m", "label = 'y', weight = 'a'", ConfigError, "column 'a' has weights, which must be posit"),
    ("m", "label = 'y', method = 'normalized'", ConfigError, "needs a model of how far predictio"),
    ("m", "label = 'y', method = 'cqr', lower = 'm'", ConfigError, "upper is missing"),
    (
        "m",
        "label = 'y', method = 'normalized', difficulty = 'k'",
        ConfigError,
        "does not predict a",
    ),
    ("m", "label = 'y', method = 'normalized', difficulty = 'z'", UnknownModelError, "z"),
    ("m", "label = 'y', difficulty = 'm'", ConfigError, "belongs to method normalized, not split"),
    ("m", "label = 'y', symmetric = 3", ConfigError, "'symmetric' must be true or false"),
    ("m", "label = 'y', by = 'day'", ConfigError, "column 'day' contains .*: cast it to VARCHAR"),
    ("m", "label = 'y', by = 'items'", ConfigError, "column 'items' contains .*: cast it to VARC"),
    ("m", "label = 'y', by = 'nothing'", ConfigError, "column 'nothing' is NULL in all rows"),
    ("m", "label = 'day'", ConfigError, "column 'day' must have finite numbers"),
    ("k", "label = 'k', symmetric = false", ConfigError, "belongs to method split or normalized"),
)


@pytest.mark.parametrize(("model", "options", "error", "message"), BAD_OPTIONS)
def test_bad_options(
    con: Session, model: str, options: str, error: type[Exception], message: str
) -> None:
    con.execute(
        "ALTER TABLE calibration ADD COLUMN day DATE; UPDATE calibration SET day = '2020-01-01'; "
        "ALTER TABLE calibration ADD COLUMN items INTEGER[]; UPDATE calibration SET items = [1]; "
        "ALTER TABLE calibration ADD COLUMN nothing VARCHAR"
    )
    with pytest.raises(error, match=message):
        calibrate(con, options, model)
    with pytest.raises(MissingOutputError, match="is not calibrated"):
        fetch(con, "SELECT predict_interval('m', *) FROM fresh")


def test_rows_that_calibrate_nothing(con: Session) -> None:
    for where in ("false", "y IS NULL"):
        query = f"SELECT * FROM calibration WHERE {where}"
        with pytest.raises(ConfigError, match="no row to calibrate on has a label in column 'y'"):
            con.execute(f"ALTER MODEL m CALIBRATE USING ({query}) OPTIONS (label = 'y')")
    query = "SELECT * FROM calibration WHERE k <> 'mid'"
    with pytest.raises(ConfigError, match="no calibration row has the class 'mid'"):
        con.execute(f"ALTER MODEL k CALIBRATE USING ({query}) OPTIONS (label = 'k', by = 'k')")
    con.execute(f"ALTER MODEL k CALIBRATE USING ({query}) OPTIONS (label = 'k')")
    with pytest.raises(ParseError, match="without model calls"):
        con.execute("ALTER MODEL m CALIBRATE USING (SELECT *, predict('m', *) FROM calibration)")
    with pytest.raises(UnknownModelError):
        con.execute("ALTER MODEL nobody CALIBRATE USING (FROM calibration)")


def test_models_that_have_no_intervals(con: Session) -> None:
    frame = CALIBRATION[FEATURES]
    con.create_model("clusters", KMeans(2, n_init=1).fit(frame))
    con.create_model("margins", LinearSVC().fit(frame, CALIBRATION.k))
    con.create_model("scaler", StandardScaler().fit(frame))
    for name in ("clusters", "margins", "scaler"):
        with pytest.raises(ConfigError, match="neither numbers nor probabilities of classes"):
            calibrate(con, "label = 'k'", name)
    several = MultiOutputRegressor(LinearRegression()).fit(frame, CALIBRATION[["y", "weight"]])
    con.create_model("several", several)
    with pytest.raises(ConfigError, match="predicts 2 targets, and an interval is for one"):
        calibrate(con, "label = 'y'", "several")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            "predict_set('m', *)",
            MissingOutputError,
            r"does not fit model 'm'; use predict_interval",
        ),
        ("predict_interval('m', *, coverage := 0)", BindError, "a number between 0 and 1"),
        ("predict_interval('m', *, coverage := 1)", BindError, "a number between 0 and 1"),
        ("predict_interval('m', *, coverage := '0.9')", BindError, "a number between 0 and 1"),
        ("predict_interval('m', *, coverage := NULL)", BindError, "a number between 0 and 1"),
        ("predict_interval('m', *, coverage := region)", BindError, "not VARCHAR"),
        ("predict_interval('m', *, coverage := .9, coverage := .8)", BindError, "given twice"),
        ("predict_interval('nobody', *)", UnknownModelError, "nobody"),
        ("predict_interval('m', a)", BindError, "takes 2 features by position"),
    ],
)
def test_bad_calls(con: Session, call: str, error: type[Exception], message: str) -> None:
    calibrate(con)
    with pytest.raises(error, match=message):
        fetch(con, f"SELECT {call} FROM fresh")


def test_a_feature_called_coverage(con: Session) -> None:
    """The name in quotes is the feature, as for every option of a call."""
    frame = CALIBRATION[FEATURES].set_axis(["a", "coverage"], axis=1)
    con.create_model("c", LinearRegression().fit(frame, CALIBRATION.y))
    rows = "SELECT a, b AS coverage, y FROM calibration"
    con.execute(f"ALTER MODEL c CALIBRATE USING ({rows}) OPTIONS (label = 'y')")
    ((wide,), (narrow,)) = fetch(
        con,
        "SELECT i.upper - i.lower FROM (SELECT predict_interval('c', a := 0, \"coverage\" := 5, "
        "coverage := 0.9) i UNION ALL SELECT predict_interval('c', 0, 5, coverage := 0.5))",
    )
    assert wide > narrow
    assert fetch(con, "SELECT predict('c', a := 0, coverage := 5)")


def test_a_column_called_like_the_internal_input(con: Session) -> None:
    frame = CALIBRATION[FEATURES].set_axis(["a", "(coverage)"], axis=1)
    con.create_model("c", LinearRegression().fit(frame, CALIBRATION.y))
    call = "predict('c', a := a, \"(coverage)\" := b)"
    assert len(fetch(con, f"SELECT {call} FROM fresh")) == 200
    rows = 'SELECT a, b AS "(coverage)", y FROM calibration'
    for model, options in (("c", ""), ("m", ", by = '(coverage)'")):
        query = rows.replace("a, b", "a, b, b") if model == "m" else rows
        with pytest.raises(ConfigError, match="called '.coverage.': rename it"):
            con.execute(
                f"ALTER MODEL {model} CALIBRATE USING ({query}) OPTIONS (label = 'y'{options})"
            )


def test_a_forged_calibration(con: Session) -> None:
    calibrate(con)
    table = "sqlml.catalog_small_models"
    ((facts,),) = fetch(con, f"SELECT facts FROM {table}")
    for forged in (
        "{}",
        "[]",
        "nothing",
        facts.replace('"split"', "3"),
        facts.replace("0.99", "null"),
    ):
        con.execute(f"UPDATE {table} SET facts = ?", [forged])
        with pytest.raises(
            ArtifactError, match="calibration of model 'm' is damaged.*DROP CALIBRA"
        ):
            fetch(con, "SELECT predict_interval('m', *) FROM fresh")
    con.execute(f"UPDATE {table} SET facts = ?", [facts])
    con.execute(
        f"UPDATE {table} SET program = (SELECT program FROM sqlml.catalog_versions WHERE key = 'm')"
    )
    with pytest.raises(ArtifactError, match="calibration of model 'm' does not fit it"):
        fetch(con, "SELECT predict_interval('m', *) FROM fresh")
    assert fetch(con, "SELECT predict('m', 1, 1)") == [(pytest.approx(2.0),)]
    con.execute("ALTER MODEL m DROP CALIBRATION")
