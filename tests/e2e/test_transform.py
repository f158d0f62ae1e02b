"""TRANSFORM (..) and parts of dates: the same SQL in training and in prediction."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn import preprocessing

import sqlml
from sqlml import errors
from tests.e2e.macro_checks import CONFIG

TABLE = """
    CREATE TABLE t AS SELECT
        i AS id,
        (hash(i, 1) % 70)::INTEGER AS tenure,
        CASE WHEN hash(i, 9) % 10 > 0 THEN (hash(i, 2) % 10000) / 100 END::DOUBLE AS charges,
        ['basic', 'pro', 'max', NULL][(hash(i, 3) % 4)::INTEGER + 1] AS plan,
        ['x', 'y'][(hash(i, 7) % 2)::INTEGER + 1] AS side,
        DATE '2024-01-01' + (hash(i, 4) % 700)::INTEGER AS signup,
        TIMESTAMP '2025-01-01 10:20:30' + INTERVAL (hash(i, 5) % 100) HOUR AS seen,
        list_filter(['a', 'b', 'c'], lambda w: hash(i, w) % 2 = 0) AS words,
        7 AS unused,
        CASE WHEN tenure + coalesce(charges, 30) / 3 + month(signup) * 3 > 70 THEN 'yes' ELSE 'no'
        END AS churned
    FROM range(900) r(i)
"""
TREE = "model_type = 'boosted_tree_classifier', label = 'churned', n_estimators = 8, seed = 7"


@pytest.fixture(scope="module")
def shop() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.execute(TABLE)
        yield made


def create(con: sqlml.Session, transform: str, options: str = TREE, name: str = "m") -> None:
    con.execute(
        f"CREATE OR REPLACE MODEL {name} TRANSFORM ({transform}) OPTIONS ({options}) AS FROM t"
    )


def scores(con: sqlml.Session, source: str = "t", name: str = "m") -> list[Any]:
    return con.execute(f"SELECT predict_proba('{name}', *)['yes'] FROM {source}").fetchall()


ITEMS = [
    "tenure, ln(charges + 1) AS log_charges, plan",
    "tenure * 2 + charges AS both, plan || '_' || side AS pair",
    "dayofweek(signup) AS weekday, month(signup) AS month, plan IS NULL AS none",
    "CASE WHEN tenure > 10 THEN 'long' ELSE plan END AS kind, tenure::VARCHAR AS tenure",
    "coalesce(charges, 0) AS charges, nullif(tenure, 3) AS tenure, side = 'x' AS left_side",
    "len(words) AS many, list_sum(list_transform(words, lambda w: tenure + ascii(w))) AS weight",
    "words[1] AS first, array_to_string(words[1:2], '-') AS start, charges % 7 AS rest",
    "plan IN ('pro', 'max') AS large, charges BETWEEN 10 AND 20 AS small, plan LIKE 'p%' AS p",
    "DATE '2026-01-01' - signup AS age, date_diff('day', signup, seen::DATE) AS days",
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("items", ITEMS)
def test_it_equals_the_same_sql_before_training_and_before_prediction(
    shop: sqlml.Session, items: str
) -> None:
    con = shop.cursor()
    options = f"{TREE}, split = 'custom', split_column = 'late'"
    con.execute("CREATE OR REPLACE TEMP VIEW rows AS SELECT *, id > 700 AS late FROM t")
    con.execute(f"CREATE OR REPLACE MODEL m TRANSFORM ({items}) OPTIONS ({options}) AS FROM rows")
    con.execute(f"CREATE OR REPLACE TEMP VIEW made AS SELECT {items}, churned, late FROM rows")
    con.execute(f"CREATE OR REPLACE MODEL plain OPTIONS ({options}) AS FROM made")
    hashes = "SELECT last(program ORDER BY version) FROM sqlml.catalog_versions WHERE key = ?"
    assert con.execute(hashes, ["m"]).fetchall() == con.execute(hashes, ["plain"]).fetchall()
    assert scores(con, "t") == scores(con, "made", "plain")
    frame = con.execute(f"SELECT {items} FROM t").df()
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype(float)
    known = con.estimator("m").predict_proba(frame)[:, 1]
    assert np.allclose(known, np.array(scores(con))[:, 0], rtol=0, atol=1e-7)


def test_raw_columns_are_bound_in_every_form(shop: sqlml.Session) -> None:
    con = shop.cursor()
    create(con, "tenure, ln(charges + 1) AS log_charges, month(signup) AS month")
    known = con.execute("SELECT predict('m', *) FROM t ORDER BY id").fetchall()
    for call in (
        "predict('m', tenure, charges, signup)",
        "predict('m', t)",
        "predict('m', charges := charges, signup := signup, tenure := tenure)",
        "predict('m', * REPLACE (tenure + 0 AS tenure))",
        "predict('m', {'tenure': tenure, 'charges': charges, 'signup': signup})",
    ):
        assert con.execute(f"SELECT {call} FROM t ORDER BY id").fetchall() == known
    asked = "SELECT predict('m', ?, ?, ?)"
    first = con.execute("SELECT tenure, charges, signup FROM t ORDER BY id LIMIT 1").fetchall()[0]
    assert con.execute(asked, list(first)).fetchall() == known[:1]
    rows = con.execute("SELECT id FROM t WHERE predict_proba('m', *)['yes'] > 0.9").fetchall()
    assert 0 < len(rows) < 900
    joined = "SELECT predict('m', *) FROM (SELECT id, tenure, charges FROM t) JOIN t USING (id)"
    with pytest.raises(errors.AmbiguousColumnError):
        con.execute(joined)


def test_only_what_the_model_reads_is_read(shop: sqlml.Session) -> None:
    con = shop.cursor()
    create(con, "month(signup) * 3 + tenure AS score, 7 AS same, unused + 1 AS idle, plan AS plan")
    text = con.explain("SELECT predict('m', *) FROM t")
    read = text[text.index("columns read") : text.index("made in SQL")]
    assert "signup DATE" in read and "unused" in read.split("columns not read")[1]
    assert 'score = CAST("+"("*"("month"("signup"), 3), "tenure") AS BIGINT)' in " ".join(
        text.split()
    )
    con.execute("SELECT predict('m', * EXCLUDE (unused, words, charges)) FROM t").fetchall()


def test_dates_become_their_parts(shop: sqlml.Session) -> None:
    con = shop.cursor()
    query = "SELECT signup, seen, churned FROM t"
    con.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({TREE}) AS {query}")
    inputs = con.estimator("m").feature_names_in_.tolist()
    days = ["year", "month", "day", "dayofweek"]
    assert inputs == [
        *(f"signup_{part}" for part in (*days, "epoch")),
        *(f"seen_{part}" for part in (*days, "hour", "minute", "epoch")),
    ]
    day, time = datetime.date(2025, 3, 9), datetime.datetime(2025, 1, 2, 3, 4, 5)
    parts = [2025, 3, 9, 0, 1741478400, 2025, 1, 2, 4, 3, 4, 1735787045]
    known = con.estimator("m").predict(pd.DataFrame([parts], columns=inputs))
    assert con.execute("SELECT predict('m', ?, ?)", [day, time]).fetchall() == [(known[0],)]
    with pytest.raises(duckdb.BinderException, match="month|year"):
        con.execute("SELECT predict('m', 'x', seen) FROM t")


def test_a_time_zone_of_the_session_does_not_matter(shop: sqlml.Session) -> None:
    con = shop.cursor()
    query = "SELECT seen::TIMESTAMPTZ AS seen, churned FROM t"
    con.execute(f"CREATE OR REPLACE MODEL m OPTIONS ({TREE}) AS {query}")
    text = con.explain(f"SELECT predict('m', *) FROM ({query})")
    assert "timezone('UTC', \"seen\")" in " ".join(text.split())


def test_the_label_may_be_made_too(shop: sqlml.Session) -> None:
    con = shop.cursor()
    create(con, "tenure, plan, charges > 50 AS dear", TREE.replace("churned", "dear"))
    ((kind,),) = con.execute("SELECT DISTINCT typeof(predict('m', *)) FROM t").fetchall()
    assert kind == "BOOLEAN"


def test_a_star_takes_the_columns_that_nothing_else_names(shop: sqlml.Session) -> None:
    con = shop.cursor()
    create(con, "* EXCLUDE (id, words, seen, signup), ln(charges) AS charges")
    told = dict(con.execute("DESCRIBE MODEL m").fetchall())
    assert told["made in SQL"] == 'charges = CAST(ln("charges") AS DOUBLE)'
    names = con.estimator("m").feature_names_in_.tolist()
    assert sorted(names) == ["charges", "plan", "side", "tenure", "unused"]


def test_views_and_plain_connections_score_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path, config=CONFIG) as con:
        con.execute(TABLE)
        create(con, "tenure, ln(charges + 1) AS log_charges, month(signup) AS month, plan")
        con.execute("CREATE VIEW scored AS SELECT id, predict('m', *) AS p FROM t")
        known = con.execute("SELECT id, predict('m', *) FROM t ORDER BY id").fetchall()
        assert con.execute("FROM scored ORDER BY id").fetchall() == known
        plain = con.connection.cursor()
        assert plain.execute("SELECT id, predict('m', t) FROM t ORDER BY id").fetchall() == known
    with sqlml.connect(path) as con:
        assert con.execute("FROM scored ORDER BY id").fetchall() == known
        con.execute(f"EXPORT MODEL m TO '{tmp_path}/m.sqlml'")
        con.execute(f"CREATE MODEL copy FROM '{tmp_path}/m.sqlml'")
        assert con.execute("SELECT id, predict('copy', *) FROM t ORDER BY id").fetchall() == known
        with pytest.raises(errors.ConfigError, match="or nested values, which macros"):
            con.execute(f"EXPORT MODEL m TO '{tmp_path}/m.sql'")


def test_it_is_verified_and_shown_and_made_again(shop: sqlml.Session) -> None:
    con = shop.cursor()
    create(con, "tenure, ln(charges + 1) AS charges, ml_standard_scaler(tenure) OVER () AS s")
    con.execute("EXPORT MODEL m TO '/dev/null' FORMAT ONNX") if False else None
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    items = "tenure, ln(charges + 1) AS charges, ml_standard_scaler(tenure) OVER () AS s"
    assert f"TRANSFORM ({items})" in text
    before = scores(con)
    con.execute(text.replace("CREATE MODEL", "CREATE OR REPLACE MODEL"))
    assert scores(con) == before
    con.execute("ALTER MODEL m RETRAIN AS SELECT * FROM t WHERE tenure > 5")
    assert scores(con) != before
    with pytest.raises(errors.ConfigError, match="computes its features by TRANSFORM"):
        con.execute("ALTER MODEL m ADD CASCADE USING (FROM t) OPTIONS (label = 'churned')")


FITTED = """
    WHERE NOT hash(id, tenure, charges, plan, side, signup, seen, words, unused, 7) >> 33
        < floor(0.2 * 2 ** 31)
"""


class SampleScaler(preprocessing.StandardScaler):
    """A scaler that divides by the sample standard deviation, as BigQuery does."""

    def fit(self, x: pd.DataFrame, y: None = None) -> SampleScaler:
        super().fit(x)
        self.scale_ = x.std(ddof=1).to_numpy()
        return self


@pytest.mark.parametrize(
    ("call", "scaler"),
    [
        ("ml_standard_scaler(charges)", SampleScaler()),
        ("ml_min_max_scaler(charges)", preprocessing.MinMaxScaler(clip=True)),
        ("ml_max_abs_scaler(charges)", preprocessing.MaxAbsScaler()),
        ("ml_robust_scaler(charges)", preprocessing.RobustScaler()),
        (
            "ml_robust_scaler(charges, [10, 90], true, false)",
            preprocessing.RobustScaler(with_scaling=False),
        ),
        ("ml_standard_scaler(unused)", preprocessing.StandardScaler()),
    ],
)
def test_scalers_are_those_of_scikit_learn_on_the_rows_fitted_to(
    shop: sqlml.Session, call: str, scaler: Any
) -> None:
    con = shop.cursor()
    create(con, f"tenure, {call} OVER () AS scaled", f"{TREE}, eval_fraction = 0.2")
    column = "unused" if "unused" in call else "charges"
    fitted = con.execute(f"SELECT {column} FROM t {FITTED}").df()
    scaler.fit(fitted.astype(float))
    info = con.sql("FROM ml_feature_info(MODEL m)").to_arrow_table().to_pylist()
    everything = scaler.transform(con.execute(f"SELECT {column} FROM t").df().astype(float))
    found = next(row for row in info if row["input"] == "scaled")
    assert found["min"] == pytest.approx(np.nanmin(everything), rel=1e-9, abs=1e-9)
    assert found["max"] == pytest.approx(np.nanmax(everything), rel=1e-9, abs=1e-9)


def made_of(con: sqlml.Session, item: str, columns: str) -> list[Any]:
    """What an item is for some rows: the text that EXPLAIN MODEL's DESCRIBE shows, run as SQL."""
    create(con, f"tenure, {item}", f"{TREE}, split = 'none'")
    told = con.execute("DESCRIBE MODEL m").fetchall()
    made = [text.partition(" = ")[2] for name, text in told if name == "made in SQL"]
    listed = ", ".join(made)
    return con.execute(f"SELECT {listed} FROM {columns}").fetchall()


def test_buckets_encoders_and_crosses(shop: sqlml.Session) -> None:
    con = shop.cursor()
    values = (
        "(VALUES (5.0, 'pro', 'x', ['a', 'b']), (15.0, 'new', 'y', []), (95.0, NULL, 'x', NULL)) "
        "v(charges, plan, side, words)"
    )
    assert made_of(con, "ml_bucketize(charges, [10, 20]) AS bin", values) == [
        *(("bin_1",), ("bin_2",), ("bin_3",)),
    ]
    quartiles = made_of(con, "ml_quantile_bucketize(charges, 4) OVER () AS bin", values)
    assert quartiles == [("bin_1",), ("bin_1",), ("bin_4",)]
    assert made_of(con, "ml_label_encoder(plan) OVER () AS code", values) == [(3,), (0,), (0,)]
    top = made_of(con, "ml_one_hot_encoder(plan, 1) OVER () AS top", values)
    assert {value for (value,) in top} <= {"pro", None}
    kept = made_of(con, "ml_one_hot_encoder(plan) OVER () AS kept", values)
    assert kept == [("pro",), (None,), (None,)]
    assert made_of(con, "ml_multi_hot_encoder(words) OVER () AS has", values) == [
        (True, True, False),
        (False, False, False),
        (None, None, None),
    ]
    crossed = made_of(con, "ml_feature_cross({'plan': plan, 'side': side}) AS pair", values)
    assert crossed == [("pro_x",), ("new_y",), (None,)]
    hashed = made_of(con, "ml_hash_bucketize(plan, 10) AS bucket", values)
    assert hashed[2] == (None,) and all(0 <= n < 10 for (n,) in hashed[:2])
    mean = con.execute("SELECT avg(charges), median(charges), mode(plan) FROM t").fetchall()[0]
    missing = "(SELECT NULL::DOUBLE AS charges, NULL AS plan)"
    assert made_of(con, "ml_imputer(charges) OVER () AS x", missing)[0][0] == pytest.approx(mean[0])
    assert made_of(con, "ml_imputer(charges, 'median') OVER () AS x", missing) == [(mean[1],)]
    assert made_of(con, "ml_imputer(plan, 'most_frequent') OVER () AS x", missing) == [(mean[2],)]
    grams = made_of(con, "ml_multi_hot_encoder(ml_ngrams(words, [1, 2], '-')) OVER () AS g", values)
    assert sum(grams[0]) == 3 < len(grams[0])


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ("random() AS r", "cannot call random: .* depends on nothing but the row"),
        ("(SELECT max(tenure) FROM t) AS m", "not a subquery: compute it in the query"),
        ("sum(tenure) AS s", "cannot call sum"),
        ("row_number() OVER () AS n", "not a window function"),
        ("tenure + 1", "give 'tenure \\+ 1' in TRANSFORM a name with AS"),
        ("nothing", "the query has no column 'nothing'; its columns: id, tenure"),
        ("read_text('/etc/passwd') AS x", "cannot call read_text"),
        ("current_setting('threads') AS x", "cannot call current_setting"),
        ("own_macro(tenure) AS x", "cannot call own_macro"),
        ("$1 AS x", "not a parameter"),
        ("tenure, plan AS tenure", "two features would be called 'tenure'"),
        ("ml_standart_scaler(tenure) OVER () AS x", "unknown function ml_standart_scaler; did you"),
        ("ml_polynom(plan) AS x", "did you mean ml_polynomial_expand"),
        ("ml_logistic(plan) AS x", "functions: .*ml_multi_hot_encoder.*ml_feature_cross"),
        ("ml_polynomial_expand(plan) AS x", "takes a struct of columns with different names"),
        ("ml_polynomial_expand({'a': id}, 5) AS x", "takes a degree from 1 to 4, not 5"),
        ("ml_normalizer([id, tenure], 0.5) AS x", "a norm that is 0, at least 1, or infinite, not"),
        ("ml_normalizer(words) AS x", "takes a list of numbers, and words has type VARCHAR"),
        ("ml_one_hot_encoder(plan, 'first') OVER () AS x", "takes 'none' or 'most_frequent', not"),
        ("ml_one_hot_encoder(side, 'most_frequent', 1) OVER () AS x", "no category besides the"),
        ("1 + ml_one_hot_encoder(plan, 'most_frequent') OVER () AS x", "must stand alone"),
        ("now() AS f", "cannot call now"),
        ("today() AS f", "cannot call today"),
        ("get_current_timestamp() AS f", "cannot call get_current_timestamp"),
        ("transaction_timestamp() AS f", "cannot call transaction_timestamp"),
        ("current_localtimestamp() AS f", "cannot call current_localtimestamp"),
        ("age(signup) AS f", "cannot call age"),
        ("txid_current() AS f", "cannot call txid_current"),
        ("in_search_path('a', 'b') AS f", "cannot call in_search_path"),
        ("current_schema() AS f", "cannot call current_schema"),
        ("current_database() AS f", "cannot call current_database"),
        ("* EXCLUDE (zz)", "EXCLUDE names a column 'zz' that the query does not have"),
        ("lower(charges, 1) AS x", "'lower\\(DOUBLE, INTEGER_LITERAL\\)'"),
        ("ml_standard_scaler() OVER () AS x", "ml_standard_scaler takes 1 argument, not 0"),
        ("ml_bucketize(tenure, [3, 1]) AS x", "a list of finite numbers in order, not \\[3, 1\\]"),
        ("ml_quantile_bucketize(tenure, 1) OVER () AS x", "buckets from 2"),
        (
            "ml_quantile_bucketize(tenure, id) OVER () AS x",
            "takes constants after its first argument, not id",
        ),
        ("1 + ml_multi_hot_encoder(words) OVER () AS x", "must stand alone in TRANSFORM"),
        ("[[words]] AS w", "no column that a model can learn from"),
        ("tenure::SOMETHING AS x", "SOMETHING"),
    ],
)
def test_an_item_that_is_refused(shop: sqlml.Session, items: str, says: str) -> None:
    con = shop.cursor()
    con.execute("CREATE OR REPLACE TEMP MACRO own_macro(x) AS x + 1")
    with pytest.raises((errors.SqlmlError, duckdb.Error), match=says):
        con.execute(f"CREATE MODEL refused TRANSFORM ({items}) OPTIONS ({TREE}) AS FROM t")


PERCENTILES = "ml_robust_scaler takes two percentiles in order, from 0 to 100, not "
POINTS = "ml_bucketize takes a list of finite numbers in order, not "
SIZES = "ml_ngrams takes one or two sizes in order, from 1 to 100, not "


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("ml_robust_scaler(charges, [-5, 250]) OVER ()", f"{PERCENTILES}[-5, 250]: ml_robust_"),
        ("ml_robust_scaler(charges, [25]) OVER ()", f"{PERCENTILES}[25]"),
        ("ml_robust_scaler(charges, ['a', 'b']) OVER ()", f"{PERCENTILES}['a', 'b']"),
        ("ml_bucketize(charges, [NULL, 1])", f"{POINTS}[NULL, 1]: ml_bucketize(x, [10, 20], false"),
        ("ml_bucketize(charges, ['a', 'b'])", f"{POINTS}['a', 'b']"),
        ("ml_bucketize(charges)", "ml_bucketize takes 2 to 4 arguments, not 1"),
        ("ml_bucketize(charges, [1, 2], 'no')", "ml_bucketize takes true or false, not 'no'"),
        ("ml_bucketize(charges, [10, 20], true)", "[10, 20] has no others: give three points"),
        ("ml_bucketize(charges, points := [1, 2])", "takes positional arguments only"),
        ("ml_ngrams(words, [2])", f"{SIZES}[2]"),
        ("ml_ngrams(words, [1.5, 2])", f"{SIZES}[1.5, 2.0]"),
        (
            "ml_ngrams(plan)",
            "a list of strings, and plan has type VARCHAR: write string_split(plan",
        ),
        ("ml_quantile_bucketize(charges, 4, 'bucket_ranges') OVER ()", "takes 'bucket_names', not"),
        ("ml_standard_scaler(charges, 3, 4, 5) OVER ()", "takes 1 argument, not 4: ml_standard_"),
        ("ml_standard_scaler(charges) OVER (PARTITION BY plan)", "write an empty OVER ()"),
        ("ml_standard_scaler(charges) FILTER (WHERE id > 5) OVER ()", "without DISTINCT, FILTER"),
        ("ml_one_hot_encoder(plan, -1) OVER ()", "takes an integer of at least 1, not -1"),
        (
            "ml_feature_cross({'plan': plan, 'side': side}, 'z')",
            "takes a degree of at least 2, not",
        ),
        ("ml_feature_cross({'plan': plan, 'side': side}, id)", "after its first argument, not id"),
        ("ml_feature_cross({'plan': plan})", "takes a struct of at least two columns: ml_feature_"),
        ("ml_feature_cross(plan, id)", "takes a struct of at least two columns"),
        ("ml_imputer(plan, 'mean') OVER ()", "the mean of numbers only, and plan has type VARCHAR"),
        ("ml_imputer(late, 'mean') OVER ()", "write ml_imputer(late, 'most_frequent') OVER ()"),
        ("ml_imputer(words) OVER ()", "a DATE or a TIMESTAMP, and words has type VARCHAR[]"),
        ("ml_standard_scaler(plan) OVER ()", "and plan has type VARCHAR: write TRY_CAST(plan AS"),
        ("ml_min_max_scaler(signup) OVER ()", "and signup has type DATE: write epoch(signup)"),
        ("ml_bucketize(signup, [1, 2])", "takes a number, and signup has type DATE"),
        ("ml_multi_hot_encoder(plan) OVER ()", "takes a list, and plan has type VARCHAR"),
    ],
)
def test_arguments_that_a_preprocessing_function_does_not_take(
    shop: sqlml.Session, call: str, says: str
) -> None:
    con = shop.cursor()
    query = "SELECT *, id > 700 AS late FROM t"
    with pytest.raises(errors.ParseError, match=re.escape(says)):
        con.execute(f"CREATE MODEL refused TRANSFORM ({call} AS x) OPTIONS ({TREE}) AS {query}")


def test_a_value_that_fails_is_told_without_our_query(shop: sqlml.Session) -> None:
    con = shop.cursor()
    item = "ml_standard_scaler(plan::INTEGER) OVER () AS x"
    with pytest.raises(duckdb.ConversionException, match="to INT32") as raised:
        con.execute(f"CREATE MODEL refused TRANSFORM ({item}) OPTIONS ({TREE}) AS FROM t")
    assert "SELECT" not in str(raised.value) and "catalog" not in str(raised.value)


def test_preprocessing_functions_by_the_names_of_bigquery(shop: sqlml.Session) -> None:
    con = shop.cursor()
    values = "(VALUES (5.0, 'pro', 'x'), (25.0, NULL, 'y')) v(charges, plan, side)"
    for call in (
        "{}BUCKETIZE(charges, [10, 20])",
        "{}Min_Max_Scaler(charges) OVER ()",
        "{}label_encoder(plan) OVER ()",
        "{}feature_cross({{'plan': plan, 'side': side}})",
    ):
        ours = made_of(con, f"{call.format('ml_')} AS x", values)
        assert made_of(con, f"{call.format('ML.')} AS x", values) == ours
        assert made_of(con, f"{call.format('ml.')} AS x", values) == ours
    assert made_of(con, "ML.FEATURE_CROSS(STRUCT(plan, side)) AS x", values) == [
        *(("pro_x",), (None,)),
    ]


def test_polynomials_norms_and_dummies(shop: sqlml.Session) -> None:
    con = shop.cursor()
    values = "(VALUES (2.0, 3, 'pro'), (NULL, 4, 'new'), (0.0, 0, NULL)) v(charges, tenure, plan)"
    item = "ML.POLYNOMIAL_EXPAND(STRUCT(charges AS c, tenure), 2) AS p"
    assert made_of(con, item, values) == [
        (2.0, 4.0, 6.0, 3.0, 9.0),
        (None, None, None, 4.0, 16.0),
        (0.0, 0.0, 0.0, 0.0, 0.0),
    ]
    features = [name for name, *_ in con.execute("FROM ml_feature_info(MODEL m)").fetchall()]
    assert features == ["tenure", "p_c", "p_c_c", "p_c_tenure", "p_tenure", "p_tenure_tenure"]
    norms = made_of(con, "ML.NORMALIZER([charges, tenure], 1) AS n", values)
    assert norms == [(0.4, 0.6), (None, 1.0), (0.0, 0.0)]
    dummies = "ML.ONE_HOT_ENCODER(plan, 'most_frequent', 2) OVER () AS d"
    (dropped, kept), *_ = con.execute(
        "SELECT list(plan) FROM (SELECT plan FROM t WHERE plan IS NOT NULL GROUP BY plan "
        "ORDER BY count(*) DESC, plan LIMIT 2)"
    ).fetchone()
    rows = f"(VALUES ('{dropped}'), ('{kept}'), (NULL)) v(plan)"
    assert made_of(con, dummies, rows) == [(False, False), (True, False), (False, True)]
    features = [name for name, *_ in con.execute("FROM ml_feature_info(MODEL m)").fetchall()]
    assert features == ["tenure", f"d_{kept}", "d_other"]
    without = made_of(con, "ML.ONE_HOT_ENCODER(plan, 'none') OVER () AS d", rows)
    assert without == made_of(con, "ml_one_hot_encoder(plan) OVER () AS d", rows)
    with pytest.raises(errors.ParseError, match="takes a number"):
        made_of(con, "ML.MIN_MAX_SCALER(STRUCT(plan AS a).a) OVER () AS d", rows)


def test_options_of_buckets_and_imputers(shop: sqlml.Session) -> None:
    con = shop.cursor()
    values = "(VALUES (5.0), (15.0), (25.0), (95.0)) v(charges)"
    inner = made_of(con, "ml_bucketize(charges, [10, 20, 30], true, 'bucket_names') AS x", values)
    assert inner == [("bin_1",), ("bin_1",), ("bin_2",), ("bin_2",)]
    named = made_of(con, "ml_quantile_bucketize(charges, 4, 'bucket_names') OVER () AS x", values)
    assert named == made_of(con, "ml_quantile_bucketize(charges, 4) OVER () AS x", values)
    late = "ml_imputer(id > 700, 'most_frequent') OVER () AS x"
    assert made_of(con, late, "(SELECT NULL::INTEGER AS id)") == [(False,)]


ZONED = "SELECT *, seen::TIMESTAMPTZ AS zoned FROM t"


@pytest.mark.parametrize(
    "item",
    [
        "hour(zoned)",
        "zoned::DATE",
        "zoned::TIMESTAMP",
        "zoned::VARCHAR",
        "date_trunc('day', zoned)",
        "strftime(zoned, '%H')",
        "zoned > seen",
        "zoned > signup",
        "epoch(zoned + INTERVAL 1 DAY)",
        "timezone(zoned)",
        "ml_one_hot_encoder(zoned) OVER ()",
        "ml_feature_cross({'plan': plan, 'zoned': zoned})",
        "list_sum(list_transform([tenure], lambda n: n + hour(zoned)))",
    ],
)
def test_what_changes_with_the_time_zone_of_the_session_is_refused(
    shop: sqlml.Session, item: str
) -> None:
    con = shop.cursor()
    says = r"'x' would .* TimeZone: write \(zoned AT TIME ZONE 'UTC'\) instead of zoned"
    with pytest.raises(errors.ParseError, match=says):
        con.execute(f"CREATE MODEL r TRANSFORM ({item} AS x) OPTIONS ({TREE}) AS {ZONED}")


@pytest.mark.parametrize("item", ["seen::TIMESTAMPTZ", "hour(to_timestamp(tenure))"])
def test_what_is_given_a_time_zone_in_transform(shop: sqlml.Session, item: str) -> None:
    con = shop.cursor()
    with pytest.raises(errors.ParseError, match="convert each TIMESTAMPTZ first, with AT TIME"):
        con.execute(f"CREATE MODEL r TRANSFORM ({item} AS x) OPTIONS ({TREE}) AS {ZONED}")


def test_what_names_its_own_time_zone_is_the_same_in_any(shop: sqlml.Session) -> None:
    con = shop.cursor()
    items = (
        "hour(zoned AT TIME ZONE 'Asia/Tokyo') AS hour, epoch(zoned) AS seconds, "
        "CASE WHEN tenure > 9 THEN zoned END AS late, zoned IS NULL AS missing, "
        "list_max(list_transform([zoned], lambda z: epoch(z))) AS most, "
        "epoch(seen AT TIME ZONE 'Europe/Berlin') - epoch(to_timestamp(tenure)) AS since"
    )
    con.execute(
        "CREATE OR REPLACE TEMP TABLE zoned AS SELECT *, (seen AT TIME ZONE 'UTC') AS zoned FROM t"
    )
    con.execute(f"CREATE OR REPLACE MODEL z TRANSFORM ({items}) OPTIONS ({TREE}) AS FROM zoned")
    found = []
    for zone in ("UTC", "America/New_York"):
        con.execute(f"SET TimeZone = '{zone}'")
        found.append(scores(con, "zoned", "z"))
    con.execute("RESET TimeZone")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "change",
    [
        ("ln(", "random(", "cannot call random"),
        ("ln(", "getenv('HOME') || ln(", "cannot call getenv"),
        ("sqlml_raw_0, 1", "(SELECT max(i) FROM range(3) r(i)), 1", "not a subquery"),
        ("DOUBLE", "DOUBLE); DROP TABLE t; --", "its type is"),
        ("sqlml_raw_0", "sqlml_raw_5", "no column 'sqlml_raw_5'"),
        ("sqlml_raw_0", "x, 1", "no expression|more than one|no column"),
    ],
)
def test_a_forged_expression_never_runs(tmp_path: Path, change: tuple[str, str, str]) -> None:
    path = tmp_path / "shop.duckdb"
    old, new, says = change
    with sqlml.connect(path) as con:
        con.execute(TABLE)
        create(con, "ln(charges + 1) AS log_charges, tenure")
    with duckdb.connect(str(path)) as plain:
        forged = "UPDATE sqlml.catalog_versions SET options = replace(options, ?, ?)"
        plain.execute(forged, [old, new])
    with sqlml.connect(path) as con:
        with pytest.raises(errors.ArtifactError, match=says):
            con.execute("SELECT predict('m', *) FROM t")


def test_a_macro_of_the_database_is_never_called(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.execute(TABLE)
        create(con, "ln(charges + 1) AS log_charges, tenure")
        known = scores(con)
        con.execute("CREATE MACRO ln(x) AS error('called'); CREATE MACRO \"+\"(a, b) AS 7")
        assert scores(con) == known


@pytest.mark.parametrize("function", ["ml_min_max_scaler", "ml_max_abs_scaler"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_scaler_refuses_values_that_are_not_finite(function: str, value: str) -> None:
    with sqlml.connect() as con:
        con.execute(
            f"CREATE TABLE t AS SELECT i % 5 + CASE WHEN i = 3 THEN '{value}'::DOUBLE ELSE 0 END "
            "AS x, i % 2 AS churned FROM range(50) r(i)"
        )
        with pytest.raises(errors.ConfigError, match=f"{function} cannot scale x, .*isfinite"):
            create(con, f"{function}(x) OVER () AS a")
        con.execute("UPDATE t SET x = CASE WHEN isfinite(x) THEN x END")
        create(con, f"{function}(x) OVER () AS a")
