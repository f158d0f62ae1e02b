"""The FROM clause that a call sees; `@` marks the place of the call."""

from __future__ import annotations

import pytest

from sqlml.planner.syntax.outline import Block
from sqlml.planner.syntax.read_outline import read_outline


def block(sql: str) -> tuple[str, Block | None]:
    text = sql.replace("@", "predict('m', *)")
    (call,) = read_outline(text).calls
    return text, call.block


def sources(sql: str) -> list[str]:
    text, found = block(sql)
    assert found is not None
    return [text[s.start : s.end].strip() for s in found.sources]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT @ FROM t", ["t"]),
        ("SELECT @ FROM t WHERE a", ["t"]),
        ("SELECT 1 FROM t WHERE @ GROUP BY a HAVING b", ["t"]),
        ("SELECT 1 FROM t ORDER BY @ LIMIT 3", ["t"]),
        ("FROM t SELECT @ WHERE b", ["t"]),
        ("FROM t WHERE @", ["t"]),
        ("SELECT @ FROM a JOIN b USING (id), c AS d WHERE x", ["a JOIN b USING (id), c AS d"]),
        ("SELECT @ FROM a ASOF JOIN b ON a.t >= b.t QUALIFY x", ["a ASOF JOIN b ON a.t >= b.t"]),
        ("SELECT @ FROM t TABLESAMPLE 10%", ["t TABLESAMPLE 10%"]),
        ("SELECT @ FROM t USING SAMPLE 5", ["t"]),
        ("SELECT @ FROM (SELECT * FROM u) v", ["(SELECT * FROM u) v"]),
        ("SELECT 1 FROM (SELECT @ FROM u) v", ["u"]),
        ("SELECT (SELECT @ FROM u WHERE u.a = t.a) FROM t", ["u"]),
        ("SELECT a IS DISTINCT FROM b, @ FROM t", ["t"]),
        ("SELECT extract(year FROM d), @ FROM t", ["t"]),
        ("SELECT @ FROM a UNION ALL SELECT 2 FROM b", ["a"]),
        ("SELECT 1 FROM a UNION ALL BY NAME SELECT @ FROM b", ["b"]),
        ("SELECT 1 FROM a UNION SELECT @ FROM b ORDER BY 1", ["b"]),
        ("SELECT x FROM a UNION FROM b ORDER BY @", ["SELECT x FROM a UNION FROM b"]),
        ("UPDATE t SET a = @ WHERE b", ["t"]),
        ("UPDATE t AS u SET a = @ FROM v WHERE b", ["t AS u", "v"]),
        ("DELETE FROM t WHERE @", ["t"]),
        ("DELETE FROM t USING u WHERE @", ["t", "u"]),
        ("INSERT INTO t (a, b) SELECT @ FROM u", ["u"]),
        ("INSERT INTO t VALUES (1) RETURNING @", ["t"]),
        ("INSERT INTO t (a) VALUES (1) ON CONFLICT DO UPDATE SET a = @", ["t"]),
        ("CREATE TABLE n AS SELECT @ FROM u", ["u"]),
        ("CREATE VIEW n (x) AS (SELECT @ FROM u)", ["u"]),
        ("COPY (SELECT @ FROM u) TO 'x'", ["u"]),
        ("PREPARE p AS SELECT @ FROM u WHERE a > ?", ["u"]),
        ("EXPLAIN SELECT @ FROM u", ["u"]),
        ("SELECT sum(@) FILTER (WHERE x) OVER (ORDER BY y) FROM u", ["u"]),
        ("SELECT list_aggregate([@], 'sum') FROM u", ["u"]),
        ("SELECT quantile_cont(a, 0.5) WITHIN GROUP (ORDER BY @) FROM u", ["u"]),
        ("PIVOT t ON a USING sum(@)", ["t"]),
        ("SELECT @", []),
        ("VALUES (@)", []),
    ],
)  # fmt: skip
def test_sources(sql: str, expected: list[str]) -> None:
    assert sources(sql) == expected


def test_definitions_of_a_with_clause_are_in_scope_in_order() -> None:
    sql = "WITH a AS (SELECT 1), b(x) AS MATERIALIZED (SELECT 2) SELECT @ FROM b"
    _, found = block(sql)
    assert found is not None
    assert [c.name for c in found.ctes] == ["a", "b"]
    _, inner = block("WITH a AS (SELECT 1), b AS (SELECT @ FROM a) SELECT * FROM b")
    assert inner is not None and inner.parent is not None
    assert [c.name for c in inner.parent.ctes] == ["a"]


def test_a_recursive_definition_sees_itself() -> None:
    _, found = block(
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT @ FROM r) SELECT * FROM r"
    )
    assert found is not None and found.parent is not None
    assert found.parent.is_recursive and [c.name for c in found.parent.ctes] == ["r"]


def test_a_derived_table_knows_that_it_may_be_lateral() -> None:
    _, found = block("SELECT 1 FROM t, LATERAL (SELECT @) l")
    assert found is not None and found.is_lateral and found.parent is not None


def test_select_aliases_are_found() -> None:
    text, found = block("SELECT a + 1 AS b, c d, e: f(1, 2), @ FROM t")
    assert found is not None
    aliases = [item.span for item in found.items if item.is_named]
    assert [text[s.start : s.end] for s in aliases] == ["a + 1 AS b", "e: f(1, 2)"]


def test_outside_of_any_query_there_is_no_block_with_sources() -> None:
    _, found = block("CREATE MACRO f(a) AS @ + a")
    assert found is None or not found.sources
