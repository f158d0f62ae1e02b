"""What an outline says of a statement's calls; `@` marks the places of calls."""

from __future__ import annotations

import pytest

from sqlml.errors import BindError, ParseError
from sqlml.parsing.places import Span
from sqlml.planner.syntax.arguments import has_model_calls
from sqlml.planner.syntax.outline import Literal, ModelCall, ModelColumn, Outline, Parameter
from sqlml.planner.syntax.read_outline import find_enclosing_brackets, read_outline


def outline(sql: str, dialect: str = "duckdb") -> Outline:
    return read_outline(sql.replace("@", "predict('m', *)"), dialect)


def call(sql: str, dialect: str = "duckdb") -> ModelCall:
    (found,) = outline(sql, dialect).calls
    return found


@pytest.mark.parametrize(
    ("sql", "clause"),
    [
        ("SELECT @ FROM t", "SELECT"),
        ("SELECT DISTINCT ON (@) a FROM t", "SELECT"),
        ("SELECT a FROM t WHERE a OR @", "WHERE"),
        ("SELECT a FROM t JOIN u ON @", "FROM"),
        ("SELECT a FROM unnest([@])", "FROM"),
        ("SELECT a FROM t GROUP BY @", "GROUP"),
        ("SELECT a FROM t GROUP BY a HAVING max(@) > 1", "HAVING"),
        ("SELECT a FROM t QUALIFY @ = 1", "QUALIFY"),
        ("SELECT a FROM t WINDOW w AS (ORDER BY @)", "WINDOW"),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY @", "ORDER"),
        ("SELECT a FROM t LIMIT @", "LIMIT"),
        ("DELETE FROM t WHERE @", "WHERE"),
        ("UPDATE t SET a = @", ""),
        ("INSERT INTO t SELECT 1 RETURNING @", "RETURNING"),
        ("INSERT INTO t SELECT 1 ON CONFLICT (a) DO UPDATE SET b = @", "ON"),
        ("VALUES (@)", ""),
        ("CREATE MACRO f(a) AS @", ""),
    ],
)
def test_the_clause_of_a_call(sql: str, clause: str) -> None:
    assert call(sql).clause == clause


@pytest.mark.parametrize(
    ("sql", "sources"),
    [
        ("SELECT 1 FROM a JOIN b ON @ JOIN c USING (x)", ["a", "JOIN b ON @"]),
        ("SELECT 1 FROM a ANTI JOIN b ON @ JOIN c USING (x)", ["a", "ANTI JOIN b ON @"]),
        ("SELECT 1 FROM (a JOIN b ON @) JOIN c USING (x)", ["a ", "JOIN b ON @"]),
        ("DELETE FROM a USING b RETURNING @", ["a"]),
        ("UPDATE a SET x = 1 FROM b RETURNING @", ["a"]),
        ("MERGE INTO a USING b ON @ WHEN MATCHED THEN DELETE", ["a", "b"]),
        ("MERGE INTO a USING b ON x WHEN MATCHED THEN UPDATE SET y = @", ["a", "b"]),
        ("MERGE INTO a USING b ON x WHEN NOT MATCHED THEN INSERT VALUES (@)", ["b"]),
        ("MERGE INTO a USING b ON x WHEN NOT MATCHED BY SOURCE AND @ THEN DELETE", ["a"]),
        ("MERGE INTO a USING b ON x WHEN MATCHED THEN DELETE RETURNING @", ["a"]),
    ],
)
def test_what_a_call_sees(sql: str, sources: list[str]) -> None:
    found, whole = call(sql), outline(sql)
    assert found.block is not None
    seen = [whole.sql[p.start : p.end] for p in (*found.block.sources, *found.block.joins)]
    assert seen == [s.replace("@", "predict('m', *)") for s in sources]


@pytest.mark.parametrize(
    ("sql", "left"),
    [
        ("SELECT 1 FROM a, LATERAL (SELECT @) x, b", ["a"]),
        ("SELECT 1 FROM a JOIN LATERAL (SELECT @) x ON true JOIN b USING (y)", ["a"]),
        ("SELECT 1 FROM (SELECT @) x, b", []),
        ("SELECT (SELECT @) FROM a, b", ["a, b"]),
    ],
)
def test_a_query_in_from_sees_what_stands_to_its_left(sql: str, left: list[str]) -> None:
    found, whole = call(sql), outline(sql)
    assert found.block is not None and found.block.parent is not None
    assert [whole.sql[p.start : p.end] for p in found.block.parent.sources] == left


@pytest.mark.parametrize(
    ("sql", "asked"),
    [
        ("SELECT a FROM t WHERE (b OR c) AND @", True),
        ("SELECT a FROM t WHERE b OR @", False),
        ("SELECT a FROM t WHERE NOT (b AND (c OR @))", False),
        ("SELECT a FROM t WHERE CASE WHEN b THEN @ END", False),
        ("SELECT a FROM t WHERE coalesce(b, @)", False),
        ("SELECT a FROM t WHERE b IN (SELECT @ FROM u)", True),
        ("SELECT a FROM t WHERE list_filter(b, lambda x: @ > x) = []", False),
    ],
)
def test_whether_a_clause_asks_for_each_row(sql: str, asked: bool) -> None:
    assert call(sql).is_always_evaluated is asked


@pytest.mark.parametrize(
    ("sql", "local"),
    [
        ("SELECT list_transform(l, lambda x, i: predict('m', x.a, b, i)) FROM t", ["x.a", "i"]),
        ("SELECT list_transform(l, x -> predict('m', x, x.y.z, x(1))) FROM t", ["x", "x.y.z"]),
        ("SELECT [predict('m', v, w) FOR v IN l IF v > 1] FROM t", ["v"]),
        ("CREATE MACRO f(a, b := 1) AS predict('m', a, t.b, c, b := b)", ["a", "b"]),
        ("CREATE MACRO f(a) AS 1, (b) AS predict('m', a, b)", ["b"]),
        ("SELECT predict('m', x) FROM t", []),
    ],
)
def test_names_that_are_no_columns(sql: str, local: list[str]) -> None:
    found = call(sql)
    assert [sql[p.start : p.end] for p in found.local_names] == local


def test_arguments() -> None:
    sql = (
        "SELECT predict_proba(?, t.* EXCLUDE (a, t.b) REPLACE (x + 1 AS c) RENAME (d AS e), "
        "f := -1.5, \"G\" => 'x', h := NULL, i := $2, class := true)"
    )
    found = call(sql)
    assert isinstance(found.model, Parameter) and found.model.text == "?"
    star, *named = found.arguments
    assert star.star is not None and star.star.qualifier is not None
    assert star.star.excluded == {"a", "t.b"}
    assert [sql[p.start : p.end] for p in star.star.replaced.values()] == ["x + 1"]
    assert [sql[p.start : p.end] for p in star.star.renamed.values()] == ["d"]
    assert [a.name for a in named] == ["f", "G", "h", "i"]
    assert [a.literal for a in named[:3]] == [
        Literal("number", "1.5", True),
        Literal("string", "x"),
        Literal("word", "NULL"),
    ]
    assert named[3].parameter is not None and named[3].parameter.text == "$2"
    assert found.class_argument is not None
    assert found.class_argument.literal == Literal("word", "TRUE")


@pytest.mark.parametrize(
    ("sql", "bounds", "turned"),
    [
        ("SELECT 1 FROM t WHERE @ > 0.5 AND b", [(">", "0.5")], False),
        ("SELECT 1 FROM t WHERE 0.5 <= @", [(">=", "0.5")], True),
        ("SELECT 1 FROM t WHERE @ BETWEEN 0.1 AND 0.9 OR b", [(">=", "0.1"), ("<=", "0.9")], False),
        ("SELECT 1 FROM t WHERE @ > ?", [(">", "?")], False),
        ("SELECT 1 FROM t WHERE @ > /* > */ 0.5", [(">", "0.5")], False),
    ],
)
def test_comparisons(sql: str, bounds: list[tuple[str, str]], turned: bool) -> None:
    found = call(sql).comparison
    assert found is not None and found.is_reversed is turned
    assert [(sign, n.text) for sign, n, _ in found.bounds] == bounds


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM t WHERE @ + 1 > 0.5",
        "SELECT 1 FROM t WHERE @ > 0.5 + 1",
        "SELECT 1 FROM t WHERE @ > 0.5 IS NULL",
        "SELECT 1 FROM t WHERE a = @ > 0.5",
        "SELECT 1 FROM t WHERE @ = 0.5",
        "SELECT 1 FROM t WHERE @ > 0.5::FLOAT",
    ],
)
def test_what_is_no_plain_comparison(sql: str) -> None:
    assert call(sql).comparison is None


@pytest.mark.parametrize(
    ("sql", "created", "kept"),
    [
        ("SELECT @", "", False),
        ("CREATE VIEW v AS SELECT @ FROM t", "VIEW", True),
        ("CREATE OR REPLACE TEMP TABLE x AS SELECT @ FROM t", "TABLE", False),
        ("CREATE INDEX i ON t (predict('m', a))", "INDEX", True),
        ("PREPARE p AS SELECT @ FROM t", "", True),
        ("EXPLAIN SELECT @ FROM t", "", False),
    ],
)
def test_what_a_statement_makes_and_keeps(sql: str, created: str, kept: bool) -> None:
    found = outline(sql)
    assert (found.created, found.is_stored) == (created, kept)


def test_a_call_that_is_not_of_a_model() -> None:
    for text in ("mine.predict('m', a)", "predict(a, b)", "predict()", "\"predict\"('m', a)"):
        assert not outline(f"SELECT {text} FROM t").calls
        assert not has_model_calls(f"SELECT {text} FROM t")


def test_a_column_that_names_models() -> None:
    for text, named in (
        ("predict(m, *)", "m"),
        ("predict(t.m || '/1', t.*)", "t.m || '/1'"),
        ("predict(MODEL (m), a)", "(m)"),
        ("predict(m, COLUMNS('a.*'))", "m"),
    ):
        sql = f"SELECT {text} FROM t"
        (found,) = outline(sql).calls
        assert isinstance(found.model, ModelColumn)
        assert sql[found.model.span.start : found.model.span.end] == named


def test_what_cannot_be_meant() -> None:
    for text, why in (
        ("predict(m, *, unknown_model := 1)", "takes 'error' or 'null'"),
        ("predict('m', a, , b)", "an argument is empty"),
        ("predict('m', class := 1)", "belongs to predict_proba"),
        ("predict_proba('m', *, class := 1, class := 2)", "given twice"),
    ):
        with pytest.raises((BindError, ParseError), match=why):
            outline(f"SELECT {text} FROM t")


@pytest.mark.parametrize(
    ("sql", "output", "compares"),
    [
        ("SELECT @ FROM t", "SELECT @ FROM t", False),
        ("SELECT @ FROM t GROUP BY ALL", "SELECT @ FROM t GROUP BY ALL", True),
        ("SELECT DISTINCT a FROM t ORDER BY @", "SELECT DISTINCT a FROM t ORDER BY @", True),
        ("SELECT a FROM t WHERE @ GROUP BY a", "", False),
        ("SELECT a FROM t JOIN u ON @ GROUP BY a", "", False),
        ("FROM (SELECT @ FROM t GROUP BY b) x", "SELECT @ FROM t GROUP BY b", True),
        ("WITH x AS (SELECT a FROM t HAVING @) FROM x", "SELECT a FROM t HAVING @", False),
        ("SELECT (SELECT b WHERE @) FROM t", "SELECT (SELECT b WHERE @) FROM t", False),
        ("SELECT (SELECT @) FROM t GROUP BY a", "SELECT (SELECT @) FROM t GROUP BY a", True),
        ("SELECT a FROM t WHERE (SELECT @ GROUP BY a)", "SELECT @ GROUP BY a", True),
        ("SELECT a UNION SELECT b ORDER BY @", "SELECT a UNION SELECT b ORDER BY @", False),
        ("PIVOT t ON a USING sum(@)", "PIVOT t ON a USING sum(@)", True),
        ("DELETE FROM t WHERE @", "", False),
    ],
)
def test_the_output_that_has_a_call(sql: str, output: str, compares: bool) -> None:
    made = outline(sql)
    (found,) = made.calls
    place = found.output
    text = "" if place is None else made.sql[place.start : place.end]
    assert text.replace("predict('m', *)", "@") == output
    assert (place in made.comparing_outputs) == compares


@pytest.mark.parametrize(
    ("sql", "steady"),
    [
        ("SELECT TRY(@ + 1)", True),
        ("SELECT sum(@) OVER (ORDER BY a) FROM t", False),
        ("SELECT coalesce(sum(a) OVER (PARTITION BY @), 0) FROM t", True),
        ("SELECT sum(a) OVER (ORDER BY b, @ + 1) FROM t", True),
        ("SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY @)", True),
        ("SELECT string_agg(DISTINCT a, ',' ORDER BY @) FROM t", True),
        ("SELECT string_agg(a, ',' ORDER BY @) FROM t", False),
        ("SELECT a FROM t ORDER BY @", False),
        ("SELECT @, sum(a) OVER (ORDER BY b) FROM t", False),
    ],
)
def test_where_the_engine_accepts_no_volatile_function(sql: str, steady: bool) -> None:
    assert call(sql).must_be_stable == steady


@pytest.mark.parametrize(
    ("sql", "volatile"),
    [
        ("SELECT @ AS p FROM t", True),
        ("SELECT @ AS p FROM t WHERE p > 1", False),
        ("SELECT p: @, q: p + 1 FROM t", False),
        ("SELECT @, @ FROM t GROUP BY @", True),
        ("SELECT (SELECT @) AS p FROM t ORDER BY p", False),
    ],
)
def test_items_whose_names_are_used_take_no_volatile_function(sql: str, volatile: bool) -> None:
    assert all(item.accepts_volatile for item in outline(sql).calls[0].items) == volatile


def test_brackets_around_spans() -> None:
    sql = "SELECT f((a)), (b + (c)) FROM (SELECT d) ORDER BY e"
    spans = {name: Span(sql.index(name, 7), sql.index(name, 7) + 1) for name in "abcd"}
    around = find_enclosing_brackets(sql, "duckdb", [*spans.values(), Span(31, 39)])
    texts = {sql[s.start : s.end]: sql[b.start : b.end] for s, b in around.items()}
    assert texts == {"a": "a", "b": "b + (c)", "c": "c", "d": "SELECT d", "SELECT d": "SELECT d"}


@pytest.mark.parametrize(
    ("query", "aggregates"),
    [
        ("SELECT sum(predict(m, *)) FROM t", {"sum"}),
        ("SELECT AVG(predict(m, *)) FILTER (a > 1), count(*) + 1 FROM t WHERE b", {"avg", "count"}),
        ("SELECT m, predict(m, *) AS p FROM t GROUP BY ALL HAVING max(a) > 3", {"max"}),
        ("SELECT m, min(predict(MODEL (m), a)) FROM t GROUP BY m", {"min"}),
        ("SELECT m, predict(m, *) AS p FROM t GROUP BY ALL", set()),
        ("SELECT predict(m, *) FROM t", None),
        ("SELECT predict(m, *) AS p FROM t ORDER BY p LIMIT 3", None),
        ("SELECT m, list(predict(m, *)) FROM t GROUP BY m", None),
        ("SELECT m, string_agg(predict(m, *), ',') FROM t GROUP BY m", None),
        ("SELECT count(*), arg_max(a, predict(m, *)) FROM t", None),
        ("SELECT m, any_value(predict(m, *)), sum(a) FROM t GROUP BY m", None),
        ("SELECT m, max(my_aggregate(predict(m, *))) FROM t GROUP BY m", None),
        ("SELECT sum(predict(m, a)), predict('m0', first(a)) FROM t GROUP BY m", None),
        ("SELECT sum(predict(m, *)) OVER (PARTITION BY m) FROM t", None),
        ("SELECT sum(predict(m, *)) + (SELECT first(a) FROM u) FROM t", None),
        ("SELECT sum(predict(m, *), a) FROM t", None),
        ("SELECT other.sum(predict(m, *)) FROM t", None),
        ("SELECT sum(predict(m, *)) FROM t USING SAMPLE reservoir(4 ROWS) REPEATABLE (1)", None),
        ("SELECT DISTINCT ON (m) m, sum(predict(m, *)) FROM t GROUP BY ALL", None),
    ],
)
def test_aggregates_that_need_no_order(query: str, aggregates: set[str] | None) -> None:
    (source,) = (s for span, s in read_outline(query).widenable_sources.items() if span.start == 0)
    assert source.aggregates == aggregates
