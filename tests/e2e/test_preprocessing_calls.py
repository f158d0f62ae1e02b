"""BigQuery's preprocessing functions in queries: the values that its reference pages show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import sqlml
from sqlml.errors import BindError, UnknownModelError

NUMBERS = "FROM (VALUES (1), (2), (3), (4), (5)) AS t(f) ORDER BY f"
TEXTS = "FROM unnest([NULL, 'a', 'b', 'b', 'c', 'c', 'c', 'd', 'd']) AS t(f) ORDER BY f NULLS FIRST"


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.execute("CREATE SCHEMA ml")
        session.execute("CREATE MACRO min(x) AS error('a macro of the user')")
        yield session


def column(con: sqlml.Session, sql: str, *parameters: Any) -> list[Any]:
    return [value for (value,) in con.execute(sql, *parameters).fetchall()]


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("ML.STANDARD_SCALER(f) OVER()", [-1.2649110640673518, -0.6324555320336759, 0.0]),
        ("ML.MIN_MAX_SCALER(f) OVER ()", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("ml_max_abs_scaler(f) OVER ()", [0.2, 0.4, 0.6, 0.8, 1.0]),
        ("ML.ROBUST_SCALER(f) OVER ()", [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ("ML.ROBUST_SCALER(f, [0, 100], false, false) OVER ()", [1.0, 2.0, 3.0]),
        ("ML.IMPUTER(nullif(f, 5), 'median') OVER ()", [1.0, 2.0, 3.0, 4.0, 2.5]),
        ("ML.QUANTILE_BUCKETIZE(f, 3) OVER()", ["bin_1", "bin_2", "bin_2", "bin_3", "bin_3"]),
        ("ML.MAX_ABS_SCALER(f) OVER (PARTITION BY f % 2)", [0.2, 0.5, 0.6, 1.0, 1.0]),
        ("ML.BUCKETIZE(f, [2, 4])", ["bin_1", "bin_2", "bin_2", "bin_3", "bin_3"]),
        ("ML.BUCKETIZE(f - 3, ARRAY[-1.5, -.5, +1e0])", ["bin_1", "bin_2", "bin_3", "bin_4"]),
        ("ML.BUCKETIZE(ML.STANDARD_SCALER(f) OVER (), [0])", ["bin_1", "bin_1", "bin_2"]),
        ("ML.NORMALIZER([f, 0])", [[1.0, 0.0]] * 5),
        ("ml_polynomial_expand({'x': f}, 3)", [{"x": 1.0, "x_x": 1.0, "x_x_x": 1.0}]),
    ],
)
def test_numbers(con: sqlml.Session, call: str, values: list[Any]) -> None:
    assert column(con, f"SELECT {call} {NUMBERS}")[: len(values)] == values


def test_categories_that_are_limited(con: sqlml.Session) -> None:
    codes = column(con, f"SELECT ML.LABEL_ENCODER(f, 2, 2) OVER () {TEXTS}")
    assert codes == [0, 0, 1, 1, 2, 2, 2, 0, 0]
    for drop, dropped in (("'none'", 1.0), ("'most_frequent'", 0.0)):
        encoded = column(con, f"SELECT ML.ONE_HOT_ENCODER(f, {drop}, 2, 2) OVER () {TEXTS}")
        assert [row["index"] for (row,) in encoded] == codes
        assert [row["value"] for (row,) in encoded] == [1.0] * 4 + [dropped] * 3 + [1.0] * 2


@pytest.mark.parametrize(("limit", "frequency"), [(1000, 1), (1000, 2), (3, 1), (4, 2)])
def test_categories_of_partitions(con: sqlml.Session, limit: int, frequency: int) -> None:
    texts = ["é", "B", "a", "b", None, "ab", "", "10", "9", "a", "9"]
    rows = [(n % 3, texts[n * n % (7 + n % 5)]) for n in range(60)]
    kept: list[list[str]] = []
    for group in range(3):
        counts = Counter(text for g, text in rows if g == group and text is not None)
        frequent = sorted((-n, text) for text, n in counts.items() if n >= frequency)
        kept.append(sorted(text for _, text in frequent[:limit]))
    expected = [kept[g].index(text) + 1 if text in kept[g] else 0 for g, text in rows]
    con.execute("CREATE OR REPLACE TABLE p(i INTEGER, g INTEGER, f VARCHAR)")
    con.executemany("INSERT INTO p VALUES (?, ?, ?)", [(i, *row) for i, row in enumerate(rows)])
    con.execute("SET default_order = 'DESC'")
    call = f"ML.LABEL_ENCODER(f, {limit}, {frequency}) OVER (PARTITION BY g)"
    assert column(con, f"SELECT {call} FROM p ORDER BY i ASC") == expected
    con.execute("RESET default_order")


def test_values_of_one_row(con: sqlml.Session) -> None:
    (row,) = con.execute(
        "SELECT ML.FEATURE_CROSS(STRUCT('a' AS f1, 'b' AS f2, 'c' AS f3)), "
        "ML.POLYNOMIAL_EXPAND(STRUCT(2 AS f1, 3 AS f2)), ML.NORMALIZER([4.0, 1.0, 2.0, 2.0, 0.0]), "
        "ML.NORMALIZER([4, NULL, -8], CAST('+INF' AS FLOAT64)), ML.NORMALIZER([0.0, 3.0], 0), "
        "ML.NORMALIZER([1, -3], 1), ML.NGRAMS(['a', 'b', 'c'], [2, 3], '#'), "
        "ML.BUCKETIZE(NULL, [1]), ML.HASH_BUCKETIZE('a', 1)"
    ).fetchall()
    assert row == (
        {"f1_f2": "a_b", "f1_f3": "a_c", "f2_f3": "b_c"},
        {"f1": 2.0, "f1_f1": 4.0, "f1_f2": 6.0, "f2": 3.0, "f2_f2": 9.0},
        [0.8, 0.2, 0.4, 0.4, 0.0],
        [0.5, None, -1.0],
        [0.0, 3.0],
        [0.25, -0.75],
        ["a#b", "b#c", "a#b#c"],
        None,
        0,
    )


def test_parameters_views_and_other_places(con: sqlml.Session) -> None:
    assert column(con, "SELECT ML.BUCKETIZE(?, [1, 2])", [1.5]) == ["bin_2"]
    named = column(con, f"SELECT ML.MIN_MAX_SCALER(f + $n) OVER () {NUMBERS}", {"n": 2})
    assert named == [0.0, 0.25, 0.5, 0.75, 1.0]
    con.execute(f"CREATE OR REPLACE VIEW v AS SELECT f, ML.BUCKETIZE(f, [3]) AS bin {NUMBERS}")
    query = "SELECT bin FROM v WHERE ml_bucketize(f, [2]) = 'bin_2' GROUP BY bin ORDER BY bin"
    assert column(con, query) == ["bin_1", "bin_2"]
    con.execute("CREATE OR REPLACE MACRO bin_of(x) AS ml_bucketize(x, [3])")
    assert column(con, "SELECT bin_of(2)") == ["bin_1"]
    assert column(con, f"WITH w AS (SELECT ML.IMPUTER(f) OVER () AS i {NUMBERS}) FROM w")[0] == 1.0


def test_a_column_without_a_name_is_called_like_the_function(con: sqlml.Session) -> None:
    calls = "DISTINCT ml_bucketize(f, [2]), ML.IMPUTER(f) OVER (), ML.NGRAMS(['a']) AS n"
    result = con.execute(f"SELECT {calls}, len(ml_ngrams(['a'])) FROM (SELECT 1 AS f)")
    names = [column[0] for column in result.description]
    assert names[:3] == ["ml_bucketize", "ml_imputer", "n"]
    (row,) = con.execute(
        "SELECT ml_ngrams(['a']) UNION ALL SELECT ml_ngrams(['a']) LIMIT 1"
    ).fetchall()
    assert row == (["a"],)


def test_a_function_of_the_user_is_called_by_its_bare_name(con: sqlml.Session) -> None:
    con.execute("CREATE OR REPLACE TEMP MACRO ml_ngrams(a) AS a || '!'")
    assert con.execute("SELECT ml_ngrams('x'), ML.NGRAMS(['x'])").fetchall() == [("x!", ["x"])]
    con.execute("DROP MACRO ml_ngrams")
    assert column(con, "SELECT ml_ngrams(['x'])") == [["x"]]


def test_tables_with_the_name_of_a_function_are_tables(con: sqlml.Session) -> None:
    con.execute("CREATE TABLE ml_imputer(a INTEGER); CREATE TABLE ml.ngrams(a INTEGER)")
    con.execute("INSERT INTO ml_imputer (a) VALUES (1); INSERT INTO ml.ngrams (a) VALUES (2)")
    query = "SELECT a FROM ml_imputer UNION SELECT a FROM ml.ngrams AS ml_ngrams(a) ORDER BY a"
    assert column(con, query) == [1, 2]
    rows = "WITH ml_ngrams(a) AS (SELECT 3) SELECT a FROM ml_ngrams"
    assert column(con, f"{rows} WHERE ml_bucketize(a, [1]) = ?", ["bin_2"]) == [3]
    con.execute("DROP TABLE ml_imputer; DROP TABLE ml.ngrams")


def test_a_function_of_the_user_in_a_schema_or_database_called_ml_is_called() -> None:
    query = "SELECT ML.BUCKETIZE(1, [1]), ml_bucketize(1, [1])"
    for definition in ("CREATE SCHEMA ml", "ATTACH ':memory:' AS ml"):
        with sqlml.connect() as session:
            session.execute(definition)
            assert session.execute(query).fetchall() == [("bin_2", "bin_2")]
            session.execute("CREATE MACRO ml.bucketize(x, y) AS 'mine'")
            assert session.execute(query).fetchall() == [("mine", "bin_2")]
            session.execute("CREATE VIEW v AS SELECT ml.bucketize(1, [1]) AS a, ML.NGRAMS(['a'])")
            assert session.execute("FROM v").fetchall() == [("mine", ["a"])]


def test_a_function_that_a_bare_name_does_not_mean_is_not_called() -> None:
    with sqlml.connect() as session:
        session.execute("CREATE SCHEMA s; CREATE MACRO s.ml_ngrams(a) AS 's'")
        session.execute("ATTACH ':memory:' AS o; CREATE MACRO o.ml_ngrams(a) AS 'o'")
        session.execute("CREATE MACRO o.abs(a) AS 'o'")
        query = "SELECT ml_ngrams(['a'])"
        assert column(session, query) == [["a"]]
        for path, name in (("s", "s"), ("o", "o"), ("main,o.main", "o")):
            session.execute(f"SET search_path = '{path}'")
            assert column(session, query) == [name]


def test_blanks_around_a_call(con: sqlml.Session) -> None:
    assert column(con, "SELECT ML . BUCKETIZE(1, [3])FROM range(1)") == ["bin_1"]
    assert column(con, "SELECT ML/* */.\nbucketize(1, [3])UNION SELECT 'bin_1'") == ["bin_1"]
    assert column(con, "SELECT ml_imputer(i) OVER ()FROM range(1) t(i)") == [0.0]


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE ml_imputer(x INTEGER); CREATE INDEX ii ON ml_imputer(x)",
        "CREATE TABLE IF NOT EXISTS ml_imputer(x INTEGER); "
        "INSERT INTO ml_imputer(x) VALUES (1); COPY ml_imputer(x) TO '/dev/null'",
        "CREATE TABLE ml_imputer(x INTEGER PRIMARY KEY); "
        "CREATE TABLE r(y INTEGER REFERENCES ml_imputer(x))",
        "WITH ml_label_encoder(a) AS MATERIALIZED (SELECT 1) FROM ml_label_encoder",
        "WITH b AS (SELECT 2), ml_label_encoder(a) AS NOT MATERIALIZED (SELECT 1) "
        "FROM ml_label_encoder",
        "WITH RECURSIVE b AS (SELECT 2), ml_ngrams(a) USING KEY (a) AS (SELECT 1 UNION SELECT 1) "
        "FROM ml_ngrams",
        "FROM (VALUES (1)) ml_label_encoder(a)",
        "FROM range(1) ml_label_encoder(a), (VALUES (1)) AS ml_ngrams(b)",
        "CREATE MACRO ml_imputer(x) AS 'mine'; SELECT ml_imputer(1)",
        "CREATE MACRO f(x) AS TABLE SELECT a FROM (VALUES (1)) AS ml_imputer(a); FROM f(1)",
    ],
)
def test_names_with_lists_of_columns_are_not_calls(statements: str) -> None:
    with sqlml.connect() as session:
        for statement in statements.split("; "):
            session.execute(statement).fetchall()


def test_calls_after_words_of_expressions(con: sqlml.Session) -> None:
    query = """
        SELECT DISTINCT ON (a) ml_bucketize(a, [1]), NOT ml_bucketize(a, [1]) = 'x',
               CASE ml_bucketize(a, [1]) WHEN ml_bucketize(a, [1]) THEN ml_bucketize(a, [1]) END,
               [ml_bucketize(i, [1]) FOR i IN [1, 2] IF ml_bucketize(i, [1]) = 'bin_2']
        FROM range(1) t(a) JOIN range(1) u(b) ON ml_bucketize(a, [1]) = ml_bucketize(b, [1])
        WHERE ml_bucketize(a, [1]) IS DISTINCT FROM ml_bucketize(a + 1, [1])
          AND 'bin_1' LIKE ml_bucketize(a, [1]) AND a BETWEEN ml_hash_bucketize(a, 1) AND 3
        ORDER BY ml_bucketize(a, [1])"""
    bins = ["bin_2", "bin_2"]
    assert con.execute(query).fetchall() == [("bin_1", True, "bin_1", bins)]


def test_structs_beside_calls(con: sqlml.Session) -> None:
    query = f"SELECT STRUCT(f AS x, t.f) AS s, ml_bucketize(f, [2]) AS b {NUMBERS} LIMIT 1"
    assert con.execute(query).fetchall() == [({"x": 1, "f": 1}, "bin_1")]
    with pytest.raises(duckdb.ParserException):  # DuckDB's own statements stay as they are.
        con.execute(f"SELECT STRUCT(f AS x) {NUMBERS}")


def test_errors_show_the_statement_of_the_user(con: sqlml.Session) -> None:
    with pytest.raises(UnknownModelError, match="LINE 1: SELECT ml_bucketize.predict") as raised:
        con.execute("SELECT ml_bucketize(predict('none', *), [1]) FROM range(3) t(a)")
    assert "column 29" in str(raised.value)
    with pytest.raises(duckdb.BinderException, match="LINE 1: SELECT ml_bucketize.none"):
        con.execute("SELECT ml_bucketize(none, [1]) FROM range(3) t(a)")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("ML.MIN_MAX_SCALER(f)", r"ml_min_max_scaler needs OVER \(\)"),
        ("ML.MIN_MAX_SCALER(f, 1) OVER ()", "takes 1 argument, not 2"),
        ("ML.MIN_MAX_SCALER(f + ?) OVER ()", "several times, so it cannot contain"),
        ("ML.BUCKETIZE(f, f)", "expected a constant instead of f"),
        ("ML.BUCKETIZE(f, [3, 2])", "a list of finite numbers in order"),
        ("ML.BUCKETIZE(f, [3, 4], true)", "give three points or more"),
        ("ML.FEATURE_CROSS(f)", "a struct of at least two columns"),
        ("ML.FEATURE_CROSS(STRUCT(f AS a, f AS a))", "a struct of at least two columns"),
        ("ml_polynomial_expand(STRUCT(f AS a, f AS A_a))", "to the same A_a: rename a column"),
        (
            "ml_feature_cross(STRUCT(f AS a, f AS b_c, f AS a_b, f AS c))",
            "of a, b_c and of a_b, c to the same a_b_c: rename a column",
        ),
        ("ML.POLYNOMIAL_EXPAND(STRUCT(f + 1))", "a field of a STRUCT needs a name"),
        ("ML.MULTI_HOT_ENCODER([f]) OVER ()", "works only in TRANSFORM"),
        ("ML.NORMALIZER([f], 0.5)", "a norm that is 0, at least 1, or infinite"),
    ],
)
def test_calls_that_are_refused(con: sqlml.Session, call: str, says: str) -> None:
    with pytest.raises(BindError, match=says):
        con.execute(f"SELECT {call} {NUMBERS}", [1] if "?" in call else None)
