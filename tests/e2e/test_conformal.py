"""ALTER MODEL ... CALIBRATE, predict_interval and predict_set, wherever predict works."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import sqlml
from sqlml.errors import (
    BindError,
    CatalogError,
    MissingColumnError,
    MissingOutputError,
    MissingValueError,
)
from sqlml.session.session import Session

FEATURES = ["a", "b"]
REGRESSOR = LinearRegression().fit(
    pd.DataFrame({"a": [0.0, 1.0, 0.0, 3.0], "b": [0.0, 0.0, 1.0, 1.0]}), [0.0, 1.0, 1.0, 4.0]
)
"""Predicts a + b."""


def make_rows(num_rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    rows = pd.DataFrame(random.normal(size=(num_rows, 2)), columns=FEATURES)
    rows["region"] = random.choice(["north", "south", "east"], num_rows)
    rows["weight"] = random.choice([0.25, 0.5, 1.0], num_rows)
    scale = np.where(rows.region == "north", 3.0, 0.5)
    rows["y"] = rows.a + rows.b + np.round(random.normal(size=num_rows) * scale, 1)
    signal = rows.a + random.normal(size=num_rows) * 0.5
    rows["k"] = np.where(signal > 0.5, "high", np.where(rows.b > 0, "mid", "low"))
    return rows


CALIBRATION, FRESH = make_rows(99, 1), make_rows(200, 2)
CLASSIFIER = LogisticRegression().fit(FRESH[FEATURES], FRESH.k)


@pytest.fixture
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        fill(connection)
        yield connection


def fill(connection: Session) -> None:
    """Create the tables `calibration` and `fresh`, and the models `m` and `k`."""
    for name, rows in (("calibration", CALIBRATION), ("fresh", FRESH)):
        connection.register("frame", rows)
        connection.execute(f"CREATE TABLE {name} AS FROM frame")
    connection.create_model("m", REGRESSOR)
    connection.create_model("k", CLASSIFIER)


def calibrate(con: Session, options: str = "label = 'y'", model: str = "m") -> dict[str, str]:
    statement = f"ALTER MODEL {model} CALIBRATE USING (FROM calibration) OPTIONS ({options})"
    return dict(con.execute(statement).fetchall())


def fetch(con: Session, query: str, *parameters: object) -> list[tuple[object, ...]]:
    return con.execute(query, list(parameters)).fetchall()


def find_quantile(scores: np.ndarray, weights: np.ndarray, coverage: str) -> float:
    """Return the smallest score that is heavy enough, by exact arithmetic on the definition."""
    weights = weights / weights.max()
    total = sum(map(Fraction, weights)) + 1
    heavy = Fraction(0)
    for score, weight in sorted(zip(scores, weights, strict=True)):
        heavy += Fraction(weight)
        if heavy >= Fraction(coverage) * total:
            return float(score)
    return math.inf


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_any_coverage_has_the_exact_rank(con: Session, weighted: bool, grouped: bool) -> None:
    """Residuals are rounded, so that many are equal; literals and columns have the same rank."""
    options = "label = 'y'" + ", weight = 'weight'" * weighted + ", by = 'region'" * grouped
    calibrate(con, options)
    for region, rows in CALIBRATION.groupby("region"):
        rows = rows if grouped else CALIBRATION
        residuals = np.abs(rows.y - REGRESSOR.predict(rows[FEATURES])).to_numpy()
        weights = rows.weight.to_numpy() if weighted else np.ones(len(rows))
        for coverage in ("0.01", "0.5", "0.7", "0.9", "0.93", "0.95"):
            half_width = find_quantile(residuals, weights, coverage)
            query = (
                f"SELECT (i.upper - i.lower) / 2 FROM (SELECT predict_interval('m', a := 0, b := 0"
                f"{', region := ?' * grouped}, coverage := {{}}) AS i "
                f"FROM (SELECT {coverage} AS c))"
            )
            parameters = [region] * grouped
            for coverage_sql in (coverage, "c"):
                ((width,),) = fetch(con, query.format(coverage_sql), *parameters)
                assert width == pytest.approx(half_width, abs=1e-12)


def test_a_coverage_that_too_few_rows_support(con: Session) -> None:
    """With 99 rows, the highest rank is 99 of 100."""
    description = calibrate(con)
    assert description["highest coverage"] == "0.99"
    assert description["rows"] == "99"
    assert fetch(con, "SELECT predict_interval('m', *, coverage := 0.99) FROM fresh LIMIT 1")
    message = r"needs 199 calibration rows, and model 'm' has 99, which allow at most 0\.99"
    with pytest.raises(BindError, match=message):
        fetch(con, "SELECT predict_interval('m', *, coverage := 0.995) FROM fresh")
    with pytest.raises(MissingValueError, match=r"coverage must be greater than 0 and at most"):
        fetch(con, "SELECT predict_interval('m', *, coverage := 0.5 + a / 4) FROM fresh")


def test_a_group_without_enough_rows_has_no_bounds(con: Session) -> None:
    con.execute("INSERT INTO calibration SELECT 0, 0, 'west', 1, 9, 'low'")
    con.execute("INSERT INTO calibration SELECT 0, 0, NULL, 1, 7, 'low' FROM range(9)")
    assert calibrate(con, "label = 'y', by = 'region'")["groups"] == "5, the smallest of 1 rows"
    rows = fetch(
        con,
        "SELECT r, (predict_interval('m', a := 0, b := 0, region := r, coverage := 0.9)).upper "
        "FROM (VALUES ('west'), ('mars'), (NULL)) t(r)",
    )
    assert rows == [("west", math.inf), ("mars", math.inf), (None, pytest.approx(7.0))]


def test_whatever_divides_the_rows(con: Session) -> None:
    """Integers and booleans are groups, too, and a column of the model."""
    con.execute("ALTER TABLE calibration ADD COLUMN n INTEGER")
    con.execute("UPDATE calibration SET n = CASE WHEN region = 'north' THEN 7 ELSE -1 END")
    calibrate(con, "label = 'y', by = 'n'")
    wide, narrow = (
        fetch(con, f"SELECT predict_interval('m', 0, 0, {n}, coverage := 0.9)")[0][0]
        for n in (7, -1)
    )
    assert wide["upper"] > 2 * narrow["upper"]
    con.execute(
        "CREATE OR REPLACE TABLE calibration AS SELECT * REPLACE (a > 0 AS a) FROM calibration"
    )
    calibrate(con, "label = 'y', by = 'a'")
    assert fetch(con, "SELECT predict_interval('m', true, 0) IS NOT NULL")[0][0]


def test_classes_as_groups(con: Session) -> None:
    """Each class has a threshold of its own, so that rare classes are covered as well."""
    calibrate(con, "label = 'k', by = 'k'", "k")
    probabilities = CLASSIFIER.predict_proba(CALIBRATION[FEATURES])
    fresh = CLASSIFIER.predict_proba(FRESH[FEATURES])
    chosen = []
    for index, label in enumerate(CLASSIFIER.classes_):
        scores = 1 - probabilities[CALIBRATION.k == label, index]
        threshold = find_quantile(scores, np.ones(len(scores)), "0.8")
        chosen.append(1 - fresh[:, index] <= threshold)
    expected = [list(CLASSIFIER.classes_[mask]) for mask in np.column_stack(chosen)]
    sets = fetch(con, "SELECT predict_set('k', *, coverage := 0.8) FROM fresh ORDER BY rowid")
    assert [labels for (labels,) in sets] == expected


@pytest.mark.version
def test_wherever_predict_works(con: Session) -> None:
    """In CTEs, subqueries, filters, aggregates, windows, views, macros and prepared statements."""
    calibrate(con)
    calibrate(con, "label = 'k'", "k")
    interval = "predict_interval('m', *, coverage := 0.8)"
    ((expected,),) = fetch(con, f"SELECT sum(i.upper) FROM (SELECT {interval} AS i FROM fresh)")
    for query in (
        f"WITH c AS (SELECT {interval} AS i FROM fresh) SELECT sum(i.upper) FROM c",
        f"SELECT sum(({interval}).upper) FROM fresh",
        f"SELECT sum({interval}['upper']) FROM fresh",
        "SELECT sum((predict_interval('m', a, b, coverage := 0.8)).upper) FROM fresh",
        "SELECT sum((predict_interval('m', fresh, coverage := 0.8)).upper) FROM fresh",
        "SELECT sum((predict_interval(MODEL m, *, coverage := 0.8)).upper) FROM fresh",
        "SELECT sum((predict_interval(MODEL (name), *, coverage := 0.8)).upper) "
        "FROM (SELECT *, 'm' AS name FROM fresh)",
        f"SELECT sum(u) FROM (SELECT sum(({interval}).upper) AS u FROM fresh GROUP BY region)",
    ):
        assert fetch(con, query)[0][0] == pytest.approx(expected)
    query = "SELECT sum((predict_interval(?, *, coverage := ?)).upper) FROM fresh"
    for coverage in (0.8, 0.5, 0.8):
        ((total,),) = fetch(con, query, "m", coverage)
        assert (total == pytest.approx(expected)) == (coverage == 0.8)
    con.execute(f"PREPARE q AS SELECT sum(({interval}).upper) FROM fresh")
    assert fetch(con, "EXECUTE q")[0][0] == pytest.approx(expected)
    con.execute(f"CREATE VIEW v AS SELECT {interval} AS i, predict('m', *) AS p FROM fresh")
    assert fetch(con, "SELECT sum(i.upper) FROM v")[0][0] == pytest.approx(expected)
    covered = fetch(con, "SELECT avg((p BETWEEN i.lower AND i.upper)::INT) FROM v")
    assert covered == [(1.0,)]
    inside = f"SELECT count(*) FROM fresh WHERE y < ({interval}).lower"
    assert 0 < fetch(con, inside)[0][0] < 60
    by_set = "SELECT predict_set('k', *) AS s, count(*) FROM fresh GROUP BY s ORDER BY s"
    assert sum(count for _, count in fetch(con, by_set)) == 200


def test_calls_share_an_evaluation(con: Session) -> None:
    calibrate(con, "label = 'k'", "k")
    query = "SELECT predict('k', *), predict_proba('k', *), predict_set('k', *) FROM fresh"
    assert "one evaluation of label, proba, set for 3 calls" in con.explain(query)
    for label, probabilities, labels in fetch(con, query):
        best = max(probabilities, key=lambda name: probabilities[name])
        assert label == best and (not labels or label in labels)
    sets = [f"predict_set('k', *, coverage := {coverage})" for coverage in (0.6, 0.9)]
    for narrow, wide in fetch(con, f"SELECT {', '.join(sets)} FROM fresh"):
        assert set(narrow) <= set(wide)


def test_the_options_of_a_model_hold(con: Session) -> None:
    con.execute("ALTER MODEL m SET OPTIONS (on_null = 'null')")
    calibrate(con)
    rows = fetch(con, "SELECT predict_interval('m', *) FROM (VALUES (NULL, 1), (1, 1)) t(a, b)")
    assert rows[0] == (None,) and rows[1][0]["upper"] > 2
    for backend in ("native", "onnxruntime", "sql"):
        con.execute(f"SET sqlml_backend = '{backend}'")
        assert fetch(con, "SELECT predict_interval('m', 1, 1)")[0][0] == pytest.approx(rows[1][0])


def test_coverages_beside_each_other(con: Session) -> None:
    """A coverage that each row computes stays, also beside literals, and without values yet."""
    calibrate(con)
    interval, rising = "(predict_interval('m', *, coverage := {})).upper", "0.5 + rowid / 1000"
    ((literal, by_row),) = fetch(
        con,
        f"SELECT sum({interval.format(0.5)}), sum({interval.format(rising)}) FROM fresh",
    )
    alone = fetch(con, f"SELECT sum({interval.format(rising)}) FROM fresh")
    assert alone == [(pytest.approx(by_row),)] and by_row > literal + 1
    con.execute(
        "CREATE MACRO upper_end(a, b, c) AS (predict_interval('m', a, b, coverage := c)).upper"
    )
    con.execute(
        "PREPARE q AS SELECT sum((predict_interval('m', *, coverage := $1)).upper) FROM fresh"
    )
    for query in (
        "SELECT sum(upper_end(a, b, 0.5)) FROM fresh",
        "EXECUTE q(0.5)",
        "SELECT sum(list_transform([0.5], lambda c: "
        "(predict_interval('m', a, b, coverage := c)).upper)[1]) FROM fresh",
    ):
        assert fetch(con, query) == [(pytest.approx(literal),)]
    sums = ", ".join(f"sum({interval.format(k / 100)})" for k in range(1, 99))
    (many,) = fetch(con, f"SELECT {sums} FROM fresh")
    assert list(many) == sorted(many) and many[49] == pytest.approx(literal)


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        QuadraticDiscriminantAnalysis(),
        make_pipeline(MinMaxScaler((0.2, 0.8)), RandomForestClassifier(5, random_state=0)),
        RadiusNeighborsClassifier(20.0),
    ],
    ids=["bayes", "discriminant", "scaled trees", "neighbours"],
)
def test_a_literal_coverage_changes_nothing_else(con: Session, estimator: Any) -> None:
    """The steps of the model, some of which add constants or reject rows, stay as they are."""
    fitted = estimator.fit(CALIBRATION[FEATURES], CALIBRATION.k)
    con.create_model("k", fitted, or_replace=True)
    calibrate(con, "label = 'k'", "k")
    rows = fetch(
        con,
        "SELECT predict_proba('k', *), predict_set('k', *, coverage := 0.8) FROM fresh "
        "ORDER BY rowid",
    )
    expected = fitted.predict_proba(FRESH[FEATURES])
    probabilities = [[row[0][name] for name in fitted.classes_] for row in rows]
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)
    by_row = fetch(
        con, "SELECT predict_set('k', *, coverage := 0.8 + 0 * rowid) FROM fresh ORDER BY rowid"
    )
    assert [labels for _, labels in rows] == [labels for (labels,) in by_row]


def test_literal_features_of_a_calibrated_model(con: Session) -> None:
    """Trees are specialised for a literal column of many rows, beside the coverage."""
    trees = RandomForestRegressor(60, random_state=0).fit(CALIBRATION[FEATURES], CALIBRATION.y)
    con.create_model("trees", trees)
    calibrate(con, "label = 'y'", "trees")
    con.execute("CREATE TABLE many AS SELECT (range % 100) / 50 - 1 AS a FROM range(200_000)")
    call = "predict_interval('trees', a := a, b := {}, coverage := {})"
    queries = [
        "SELECT sum(i.upper - i.lower), sum(i.upper) "
        f"FROM (SELECT {call.format(b, c)} AS i FROM many)"
        for b, c in (("1", "0.5"), ("1 + 0 * a", "0.5"), ("1", "0.5 + 0 * a"))
    ]
    first, *others = [fetch(con, query) for query in queries]
    assert all(other == [pytest.approx(first[0])] for other in others)


@pytest.mark.parametrize("num_rows", [19, 49, 99])
def test_ranks_of_asymmetric_intervals(con: Session, num_rows: int) -> None:
    con.execute(f"CREATE OR REPLACE TABLE calibration AS FROM calibration LIMIT {num_rows}")
    rows = CALIBRATION.head(num_rows)
    highest = calibrate(con, "label = 'y', symmetric = false")["highest coverage"]
    assert float(highest) == pytest.approx((num_rows - 1) / (num_rows + 1), abs=1e-6)
    residuals = np.sort(rows.y - REGRESSOR.predict(rows[FEATURES]))
    for k in range(num_rows // 2 + 1, num_rows + 1):
        coverage = Fraction(2 * k - num_rows - 1, num_rows + 1)
        if coverage <= 0 or coverage.denominator not in (1, 2, 4, 5, 10, 20, 25, 50, 100):
            continue
        query = f"SELECT predict_interval('m', 0, 0, coverage := {float(coverage)})"
        ((interval,),) = fetch(con, query)
        assert interval["upper"] == pytest.approx(residuals[k - 1], abs=1e-12)
        assert interval["lower"] == pytest.approx(residuals[num_rows - k], abs=1e-12)


def test_evaluations_that_request_no_coverage(con: Session) -> None:
    """A calibration adds columns to ml_evaluate only where its intervals can be evaluated."""
    evaluate = "FROM ml_evaluate(MODEL m, {}, label := 'y'{})"
    calibrate(con, "label = 'y', by = 'region'")
    rows, table = "(SELECT a, b, y FROM fresh)", "TABLE fresh"
    assert "coverage" not in con.sql(evaluate.format(rows, "")).columns
    assert "coverage" in con.sql(evaluate.format(table, "")).columns
    with pytest.raises(MissingColumnError, match="region"):
        con.sql(evaluate.format(rows, ", coverage := 0.8"))
    con.execute("CREATE OR REPLACE TABLE calibration AS FROM calibration LIMIT 5")
    calibrate(con)
    assert "coverage" not in con.sql(evaluate.format(table, "")).columns
    with pytest.raises(BindError, match="coverage cannot be combined with per_class"):
        calibrate(con, "label = 'k'", "k")
        con.sql(
            "FROM ml_evaluate(MODEL k, TABLE fresh, label := 'k', per_class := true, "
            "coverage := 0.5)"
        )


def test_predictions_beside_intervals_are_bound_alike(con: Session) -> None:
    """A call of predict does not get the column of the groups because another call needs it."""
    calibrate(con, "label = 'y', by = 'region'")
    for query in ("predict('m', a, b, region)", "predict('m', a := a, b := b, region := region)"):
        with pytest.raises(BindError):
            fetch(con, f"SELECT {query}, predict_interval('m', a, b, region) FROM fresh")
    rows = fetch(con, "SELECT predict('m', a, b), predict_interval('m', a, b, region) FROM fresh")
    assert all(i["lower"] <= p <= i["upper"] for p, i in rows)


def test_rows_name_their_models(con: Session) -> None:
    con.create_model("n", REGRESSOR)
    calibrate(con)
    calibrate(con, "label = 'y', by = 'region'", "n")
    query = (
        "SELECT model, avg(i.upper - i.lower) FROM (SELECT model, predict_interval(model, *, "
        "coverage := 0.8) AS i FROM fresh, (VALUES ('m'), ('n')) v(model)) GROUP BY model "
        "ORDER BY model"
    )
    widths = dict(fetch(con, query))
    for model, width in widths.items():
        single = query.replace("VALUES ('m'), ('n')", f"VALUES ('{model}')")
        assert dict(fetch(con, single)) == {model: pytest.approx(width)}
    assert widths["m"] != pytest.approx(widths["n"])


# -- the life of a calibration


def test_it_is_stored_with_the_version(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    query = "SELECT predict_interval('m', a := 0, b := 0)"
    with sqlml.connect(str(path)) as con:
        fill(con)
        calibrate(con)
        expected = fetch(con, query)
        con.execute("CREATE VIEW v AS SELECT predict_interval('m', *) AS i FROM fresh")
    with sqlml.connect(str(path)) as con:
        assert fetch(con, query) == expected
        assert len(fetch(con, "FROM v")) == 200
        con.execute("ALTER MODEL m RENAME TO n")
        assert fetch(con, query.replace("'m'", "'n'")) == expected
        file = tmp_path / "n.sqlml"
        con.execute(f"EXPORT MODEL n TO '{file}'")
        con.execute(f"CREATE MODEL copied FROM '{file}'")
        assert fetch(con, query.replace("'m'", "'copied'")) == expected
        con.execute("ALTER MODEL copied DROP CALIBRATION")
        with pytest.raises(MissingOutputError, match="version 1 of model 'copied' is not calibr"):
            fetch(con, query.replace("'m'", "'copied'"))
        with pytest.raises(CatalogError, match="no calibration for its version 1"):
            con.execute("ALTER MODEL copied DROP CALIBRATION")
        con.execute("DROP MODEL copied")
        con.execute("DROP MODEL n")
        con.execute("DROP MODEL k")
        assert fetch(con, "SELECT count(*) FROM sqlml.catalog_programs") == [(0,)]


def test_a_version_is_calibrated_for_itself(con: Session) -> None:
    calibrate(con)
    con.model("m")  # The default version is calibrated, and a new one is not.
    con.execute("CREATE TABLE rows AS SELECT a, b, y FROM calibration")
    con.execute(
        "ALTER MODEL m ADD VERSION OPTIONS (model_type = 'linear_reg', label = 'y') AS FROM rows"
    )
    with pytest.raises(MissingOutputError, match="version 2 of model 'm' is not calibrated"):
        fetch(con, "SELECT predict_interval('m/2', *) FROM fresh")
    calibrate(con, "label = 'y'", "m/2")
    assert fetch(con, "SELECT predict_interval('m/2', *) IS NOT NULL FROM fresh LIMIT 1") == [
        (True,)
    ]
    calibrate(con, "label = 'y', by = 'region'")  # Replaces the calibration of version 1.
    described = dict(fetch(con, "DESCRIBE MODEL m/1"))
    assert described["calibration: by"] == "region"
    assert described["calibration: method"] == "split"


def test_show_create_calibrates_again(con: Session, tmp_path: Path) -> None:
    joblib.dump(REGRESSOR, tmp_path / "m.joblib")
    file = tmp_path / "m.joblib"
    con.execute(f"CREATE MODEL p FROM '{file}' OPTIONS (allow_pickle = true)")
    calibrate(con, "label = 'y', by = 'region', weight = 'weight', symmetric = false", "p")
    statements = fetch(con, "SHOW CREATE MODEL p")[0][-1]
    assert "CALIBRATE USING (FROM calibration)" in statements
    query = "SELECT predict_interval('p', *) FROM fresh ORDER BY rowid"
    expected = fetch(con, query)
    con.execute("DROP MODEL p")
    con.execute(statements.replace("OPTIONS (", "OPTIONS (allow_pickle = true, ", 1))
    assert fetch(con, query) == expected


def test_features_that_sql_computes(con: Session) -> None:
    con.execute(
        "CREATE MODEL t TRANSFORM (a * 2 AS doubled, b, y) OPTIONS (model_type = 'linear_reg', "
        "label = 'y') AS SELECT a, b, y FROM fresh"
    )
    calibrate(con, "label = 'y', by = 'region'", "t")
    query = "SELECT avg((y BETWEEN i.lower AND i.upper)::INT) FROM (SELECT y, {} AS i FROM fresh)"
    ((covered,),) = fetch(con, query.format("predict_interval('t', *, coverage := 0.8)"))
    assert 0.7 < covered < 0.92


# -- the promise


@pytest.mark.nightly
@pytest.mark.parametrize("options", ["", ", by = 'region'", ", weight = 'weight'"])
def test_the_coverage_of_intervals_is_as_promised(options: str) -> None:
    """Over 200 draws of calibration and fresh rows, the number of covered rows is binomial."""
    with sqlml.connect() as con:
        fill(con)
        check_coverage(con, options)


def check_coverage(con: Session, options: str) -> None:
    covered = dict.fromkeys(("north", "south", "east"), 0)
    rows = dict.fromkeys(covered, 0)
    for seed in range(200):
        con.register("drawn", make_rows(300, 1000 + seed))
        con.execute("CREATE OR REPLACE TABLE calibration AS FROM drawn")
        con.register("drawn", make_rows(30, 5000 + seed))
        con.execute("CREATE OR REPLACE TABLE fresh AS FROM drawn")
        calibrate(con, f"label = 'y'{options}")
        for region, inside in fetch(
            con,
            "SELECT region, y BETWEEN i.lower AND i.upper FROM (SELECT region, y, "
            "predict_interval('m', *, coverage := 0.8) AS i FROM fresh)",
        ):
            rows[region] += 1
            covered[region] += bool(inside)
    groups = [(covered[name], rows[name]) for name in covered] if "by" in options else []
    for hits, total in [(sum(covered.values()), sum(rows.values())), *groups]:
        # The promise is at least 0.8; ties and ranks add at most 1 / (n + 1) and the share of ties.
        assert binom.cdf(hits, total, 0.8) > 1e-4
        assert binom.sf(hits, total, 0.8 + 0.03) > 1e-4
