"""Trees of SQL texts: corrections of what sqlglot misreads, and the span of each node."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB as DuckDBDialect

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse_trees
from sqlml.parsing.places import ModelName, PipedQuery, is_in_text, span

CALL = "predict('m', *)"

DUCKDB = [
    f"SELECT CASE WHEN range < 2048 THEN {CALL} END FROM range(3)",
    f"SELECT {CALL} FROM t WHERE a LIKE 'a$%' ESCAPE ('$' || '')",
    f"SELECT contains(*COLUMNS('a|b')), {CALL} FROM t",
    f"SELECT {CALL}, GROUPING() FROM t GROUP BY ALL",
    f"MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND {CALL} > 1 THEN ERROR",
    f"MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN ERROR 'no' || {CALL} RETURNING a",
    f"SELECT map, {CALL} FROM t",
    f"SELECT map {{'a': 1}}, MAP([1], [2]), {CALL} FROM t",
    f"FROM VALUES (1) t(x) SELECT {CALL}",
    f"FROM (VALUES (1)) t(x) FULL JOIN u ON a, v SELECT {CALL}",
    f"SELECT a::INTEGER < 3, {CALL} FROM t",
    "SELECT predict('m', {'a': 2}.a, b := {'a': 3}['a'], c := 1) FROM t",
    f"SELECT (values), (delete, {CALL}), update + 1 FROM t",
    f"CREATE TABLE x AS PIVOT t ON a USING max({CALL})",
    f"PIVOT (SELECT a, {CALL} AS p FROM t) ON p USING max(a) GROUP BY b ORDER BY b LIMIT 3",
    f"PIVOT t ON a > 0.5, {CALL} < 3 USING sum(b) + 1 AS c GROUP BY b",
    f"PIVOT t ON a IN ('x', 'y') USING sum({CALL}) UNION ALL SELECT 1",
    f"WITH c AS (SELECT {CALL} AS p FROM t) PIVOT c ON p USING count(*) ORDER BY p",
    f"WITH c AS (SELECT {CALL} AS p FROM t) UNPIVOT c ON p INTO NAME n VALUE v LIMIT 2",
    f"SELECT a FROM (PIVOT t ON a USING max({CALL}) ORDER BY b LIMIT 1)",
    f"SELECT a FROM t GROUP BY CUBE (a > 0.5, {CALL} < 3 AND b)",
    f"SELECT a FROM t GROUP BY ROLLUP ((a, {CALL} IS NULL), b IN (1, 2))",
    f"SELECT a FROM t GROUP BY GROUPING SETS (a < 1, (b, {CALL} > 1), CUBE (a = 1), ())",
    f"SELECT X'41'::BLOB, x'41', b'101'::BIT, {CALL} FROM t",
    f"CREATE TYPE x AS ENUM (SELECT DISTINCT {CALL} FROM t)",
    f"CREATE MACRO f(a, b := 3) AS {CALL} + b",
    f"CREATE MACRO f(a) AS a, (a, b) AS {CALL}",
    f"PREPARE p (INTEGER) AS SELECT {CALL} FROM t WHERE a > ?",
    f"EXPLAIN (FORMAT json) SELECT {CALL} FROM t",
    f"EXPLAIN ANALYZE UPDATE t SET a = {CALL}",
    f"INSERT INTO t BY POSITION SELECT {CALL} FROM u",
    f"INSERT OR REPLACE INTO t SELECT {CALL} FROM u",
    f"SELECT apply([1, 2], lambda x: x + 1), {CALL} FROM t",
    f"SELECT percent({CALL}) FROM t",
    f"SELECT f(?::INTEGER, $1, b := $2), {CALL} FROM t",
    f"SELECT list[{CALL} + 1] FROM t",
]
SPARK = [
    f"SELECT {CALL} FROM csv.`a.csv` WITH (header true, delimiter ';')",
    f"SELECT {CALL} FROM s WHERE b AND insert",
    f"INSERT OVERWRITE DIRECTORY 'x' USING csv OPTIONS (header true) SELECT {CALL} FROM t",
    f"INSERT OVERWRITE LOCAL DIRECTORY 'x' USING csv FROM t |> SELECT {CALL}",
    "SELECT predict('m', {'a': 1.5D, b: 10L}) FROM t",
    "SELECT predict('m', a => :name, b := ?) FROM t",
    f"FROM t |> WHERE a |> EXTEND {CALL} AS p |> AGGREGATE max(p) GROUP BY b |> SELECT *",
    f"FROM t |> LEFT JOIN u ON {CALL} > 1 |> SET a = 2 |> DROP b |> LIMIT 3",
    f"FROM t |> UNION ALL (SELECT {CALL} FROM u) |> ORDER BY a |> AS x |> TABLESAMPLE (1 PERCENT)",
    f"EXPLAIN EXTENDED SELECT {CALL} FROM t",
    f"SELECT a FROM t GROUP BY CUBE (a > 0.5, {CALL} < 3)",
    f"SELECT a FROM t GROUP BY GROUPING SETS (a < 1, (b, {CALL} > 1), ROLLUP (a = 1), ())",
]


def calls(tree: exp.Expr) -> list[exp.Expr]:
    return [n for n in tree.find_all(exp.Anonymous) if n.name == "predict"]


@pytest.mark.parametrize(
    ("sql", "dialect"), [*((s, "duckdb") for s in DUCKDB), *((s, "spark") for s in SPARK)]
)
def test_what_sqlglot_misreads(sql: str, dialect: str) -> None:
    (tree,) = parse_trees(sql, dialect)
    assert tree.find(exp.Command) is None
    (call,) = calls(tree)
    place = span(call)
    assert place is not None and sql[place.start :].startswith("predict(")
    assert sql[place.end - 1] == ")"


@pytest.mark.parametrize(
    ("sql", "dialect"), [*((s, "duckdb") for s in DUCKDB), *((s, "spark") for s in SPARK)]
)
def test_what_a_node_holds_stands_within_it(sql: str, dialect: str) -> None:
    for tree in parse_trees(sql, dialect):
        assert (place := span(tree)) is not None and sql[place.start : place.end].strip() == sql
        for node, child in pairs(tree):
            outer, inner = span(node), span(child)
            assert outer is not None and inner is not None
            moved = isinstance(node, PipedQuery | exp.SetOperation) or child.arg_key == "with_"
            assert moved or outer.contains(inner), (sql, repr(node), repr(child))


def pairs(tree: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    for node in tree.walk():
        for child in node.iter_expressions():
            if is_in_text(node) and is_in_text(child):
                yield node, child


@pytest.mark.parametrize(
    "name", ["m", '"my model"', "`m`", "main.m", "m@last", "'m'", "m/3", "$model"]
)
def test_a_model_may_be_named_by_the_word_model(name: str) -> None:
    (tree,) = parse_trees(f"SELECT PREDICT(MODEL {name}, *) FROM t")
    node = tree.find(ModelName)
    assert node is not None and node.name == name


PLACES = [
    f"SELECT {{}}, {CALL} FROM t",
    f"SELECT t.{{}}, {CALL} FROM t",
    "SELECT predict('m', {}) FROM t",
    "SELECT predict('m', a := {} + 1, b := t.{}) FROM t",
    f"SELECT {CALL} AS {{}} FROM t",
    f"SELECT {CALL} {{}} FROM t",
    f"SELECT {CALL} FROM t WHERE {{}} = 2 AND {{}} > 3",
    f"SELECT {CALL} FROM t {{}}",
    f"SELECT {CALL} FROM {{}} GROUP BY {{}}",
]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("place", PLACES)
def test_a_word_may_be_a_name_wherever_duckdb_takes_it_for_one(place: str) -> None:
    keywords = duckdb.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    words = {word for (word,) in keywords}
    words |= {word.lower() for word in DuckDBDialect.Tokenizer.KEYWORDS if word.isidentifier()}
    unread = []
    for word in sorted(words):
        text = place.replace("{}", word)
        try:
            duckdb.extract_statements(text)
            parse_trees(text)
        except duckdb.Error:
            continue
        except ParseError:
            unread.append(word)
    assert unread == []


@pytest.mark.parametrize("name", ["date", "text", "int", "map", "'a b'", "values", "group"])
def test_any_word_behind_model_names_one(name: str) -> None:
    (tree,) = parse_trees(f"SELECT predict(MODEL {name}, *), predict(MODEL {name}) FROM t")
    assert [str(m.this) for m in tree.find_all(ModelName)] == [name, name]
    (tree,) = parse_trees("SELECT predict(model, 1), predict('m', model, model + 1) FROM t")
    assert not list(tree.find_all(ModelName))


def test_functions_stay_as_they_are_written() -> None:
    """sqlglot's own functions would reorder and count their arguments."""
    (tree,) = parse_trees("SELECT date_diff('day', a, b), coalesce(a), round(a, b, c, d) FROM t")
    assert [n.name for n in tree.find_all(exp.Anonymous)] == ["date_diff", "coalesce", "round"]
    (tree,) = parse_trees("SELECT list[1]")
    assert [n.name for n in tree.find_all(exp.Literal)] == ["1"]


@pytest.mark.parametrize(
    ("sql", "place"),
    [("SELECT a FROM t WHERE (", 22), ("SELECT (a FROM t", 10), ("SELECT 'a", None)],
)
def test_what_cannot_be_read_has_a_place(sql: str, place: int | None) -> None:
    with pytest.raises(ParseError) as caught:
        parse_trees(sql)
    assert caught.value.offset == place


@pytest.mark.parametrize(
    "sql", ["SELECT a FROM t WHERE", "SELECT a + ", "SELECT a FROM 'x' + WHERE b"]
)
def test_what_cannot_be_read_is_told_without_names_of_sqlglot(sql: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_trees(sql)
    assert "<" not in caught.value.message


def test_no_warning_about_statements_of_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    parse_trees("CALL pragma_version(); CHECKPOINT; INSTALL httpfs; EXECUTE p(1)")
    assert not caplog.records
