"""Statements that change a table or define something, and the queries that tell what they did."""

# ruff: noqa: E501 (templates, one a line)

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.generated.dice import Dice
from tests.generated.expressions import expression, fill
from tests.generated.queries import query, rows
from tests.generated.scope import TABLES, TARGET, Relation, Scope
from tests.generated.sources import table

NOTHING = Scope()
D, X = (Scope.of(Relation(a, columns)) for a, columns in (("d", TARGET), ("x", TABLES["t1"])))
MET = Scope.of(
    Relation("d", TARGET, row=False), Relation("excluded", TARGET, row=False)
).without_subqueries()  # the engine takes none, and tries rows that met no other
UNNAMED = Scope.of(Relation("", TARGET))

ALL = "FROM d ORDER BY id"


@dataclass(frozen=True, slots=True)
class Step:
    """A statement for both sides; its text has marks in place of the calls."""

    marked: str
    ordered: bool = False
    lazily: bool = False
    """Whether it is a relation of `sql`, and not a result of `execute`."""


CHANGES: tuple[tuple[str, tuple[tuple[Scope, str], ...]], ...] = (
    ("INSERT INTO d SELECT x.id + 100, x.a, x.b, x.g, x.s, % FROM t1 x", ((X, "{number}, {label}"),)),
    ("INSERT INTO d SELECT x.id + 100, x.a, x.b, x.g, x.s, 0, 'new' FROM t1 x WHERE % RETURNING id, %",
     ((X, "{bool}"), (UNNAMED, "{number} AS n, {label} AS p"))),
    ("INSERT INTO d BY NAME SELECT x.id + 100 AS id, x.s, % FROM t2 x", ((X, "{number} AS w, {label} AS label"),)),
    ("INSERT INTO d (id, w, label) VALUES (100, %), (101, %)", ((NOTHING, "{number}, {label}"),) * 2),
    ("INSERT OR REPLACE INTO d SELECT x.id, x.a, x.b, x.g, x.s, % FROM t1 x WHERE %",
     ((X, "{number}, {label}"), (X, "{bool}"))),
    ("INSERT OR IGNORE INTO d SELECT x.id, x.a, x.b, x.g, x.s, % FROM t1 x RETURNING id, %",
     ((X, "{number}, {label}"), (UNNAMED, "{whole} AS n"))),
    ("INSERT INTO d SELECT x.id, x.a, x.b, x.g, x.s, 0, 'new' FROM t1 x ON CONFLICT (id) DO UPDATE SET w = %",
     ((MET, "{number}"),)),
    ("INSERT INTO d SELECT x.id, x.a, x.b, x.g, x.s, % FROM t1 x WHERE % ON CONFLICT (id) DO UPDATE "
     "SET w = %, label = 'met' WHERE %",
     ((X, "{number}, {label}"), (X, "{bool}"), (MET, "{number}"), (MET, "{compared}"))),
    ("INSERT INTO d SELECT x.id, x.a, x.b, x.g, x.s, % FROM t1 x ON CONFLICT DO NOTHING", ((X, "{number}, {label}"),)),
    ("UPDATE d SET w = %, label = %", ((D, "{number}"), (D, "{label}"))),
    ("UPDATE d SET w = % WHERE % RETURNING id, w, %", ((D, "{number}"), (D, "{bool}"), (UNNAMED, "{label} AS p"))),
    ("UPDATE d SET (w, label) = (%) WHERE %", ((D, "{number}, {label}"), (D, "{compared}"))),
    ("UPDATE d SET w = %, g = % FROM t1 x WHERE x.id = d.id AND %",
     ((D + X, "{number}"), (D + X, "{g}"), (D + X, "{bool}"))),
    ("UPDATE d SET w = % FROM t1 x WHERE x.id = d.id RETURNING d.id, %", ((D + X, "{number}"), (D, "{label} AS p"))),
    ("UPDATE d SET label = q.p FROM (SELECT x.id, % AS p FROM t1 x WHERE %) q WHERE q.id = d.id",
     ((X, "{label}"), (X, "{bool}"))),
    ("UPDATE d SET w = (SELECT max(%) FROM t1 x WHERE x.id <= d.id)", ((X, "{number}"),)),
    ("DELETE FROM d WHERE %", ((D, "{bool}"),)),
    ("DELETE FROM d WHERE % RETURNING id, %", ((D, "{compared}"), (UNNAMED, "{number} AS n, {label} AS p"))),
    ("DELETE FROM d USING t1 x WHERE x.id = d.id AND %", ((D + X, "{bool}"),)),
    ("DELETE FROM d USING t4 y WHERE y.id = d.id RETURNING d.id, %", ((D, "{number} AS n, {label} AS p"),)),
    ("DELETE FROM d WHERE d.id IN (SELECT x.id FROM t1 x WHERE %)", ((X, "{bool}"),)),
    ("MERGE INTO d USING t1 x ON d.id = x.id WHEN MATCHED AND % THEN UPDATE SET w = % "
     "WHEN MATCHED THEN DELETE", ((D + X, "{compared}"), (D + X, "{number}"))),
    ("MERGE INTO d USING t1 x ON d.id = x.id WHEN MATCHED AND % THEN DO NOTHING WHEN NOT MATCHED AND % "
     "THEN INSERT (id, w, label) VALUES (x.id, %)", ((D + X, "{bool}"), (X, "{compared}"), (X, "{number}, {label}"))),
    ("MERGE INTO d USING t4 y ON d.id = y.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET w = %, label = %",
     ((D, "{number}"), (D, "{label}"))),
    ("MERGE INTO d USING (SELECT x.id, % AS p FROM t2 x) q ON d.id = q.id WHEN MATCHED THEN UPDATE SET "
     "label = q.p WHEN NOT MATCHED THEN INSERT (id, label) VALUES (q.id, q.p)", ((X, "{label}"),)),
    ("INSERT INTO d (id, label) SELECT max(x.id) + 100, KEY FROM t1 x GROUP BY KEY", ((X, "{label}"),)),
    ("INSERT INTO d (id, w) SELECT max(x.id) + 100, count(*) FROM t1 x WHERE % GROUP BY ROLLUP (KEY) HAVING max(x.id) > 3 "
     "ON CONFLICT DO NOTHING", ((X, "{label}"), (X, "{bool}"))),
    ("UPDATE d SET label = q.p FROM (SELECT max(x.id) AS id, KEY AS p FROM t2 x GROUP BY KEY) q WHERE q.id = d.id",
     ((X, "{label}"),)),
    ("DELETE FROM d WHERE d.id IN (SELECT max(x.id) FROM t1 x GROUP BY KEY HAVING KEY IS NOT NULL)", ((X, "{label}"),)),
    ("DELETE FROM d WHERE d.id IN (SELECT x.id FROM t1 x QUALIFY rank() OVER (PARTITION BY KEY ORDER BY x.id) = 1)",
     ((X, "{label}"),)),
    ("MERGE INTO d USING (SELECT max(x.id) AS id, KEY AS p FROM t2 x GROUP BY KEY) q ON d.id = q.id WHEN MATCHED THEN "
     "UPDATE SET label = q.p WHEN NOT MATCHED THEN INSERT (id, label) VALUES (q.id, q.p)", ((X, "{label}"),)),
    ("CREATE OR REPLACE TABLE d AS SELECT KEY AS label, count(*) AS id FROM t1 x GROUP BY CUBE (KEY)", ((X, "{label}"),)),
    ("CREATE OR REPLACE TABLE d AS SELECT x.*, % AS w, % AS label FROM t1 x WHERE %",
     ((X, "{number}"), (X, "{label}"), (X, "{bool}"))),
)  # fmt: skip
"""A template with `%` for what is drawn, and for each of them its scope and its template.

KEY stands for the first of them, wherever it stands.
"""


def change(dice: Dice) -> list[Step]:
    """A change, and what the table holds then."""
    template, drawn = dice.pick(CHANGES)
    key = ""
    if "KEY" in template:
        (scope, slots), *drawn = drawn
        key = fill(dice, slots, scope)
    before, *parts = template.split("%")
    text = before
    for (scope, slots), rest in zip(drawn, parts, strict=True):
        text += fill(dice, slots, scope) + rest
    text = re.sub("KEY", lambda _: dice.respelled(key), text)
    return [Step(text), Step(ALL, ordered=True)]


def created_table(dice: Dice) -> list[Step]:
    made = query(dice)
    kind = dice.pick(("TABLE", "TEMP TABLE"))
    return [
        Step(f"CREATE {kind} made AS {made.text}"),
        Step("FROM made", made.ordered),
        Step("DROP TABLE made"),
    ]


def view_of_any(dice: Dice) -> list[Step]:
    """A view of a query of any shape."""
    made = query(dice)
    return [
        Step(f"CREATE {dice.pick(('', 'TEMP '))}VIEW v AS {made.text}"),
        Step("FROM v", made.ordered),
        Step("DROP VIEW v"),
    ]


def view(dice: Dice) -> list[Step]:
    text, columns = rows(dice, 1)
    scope = Scope.of(Relation("v", columns, key=False))
    return [
        Step(f"CREATE {dice.pick(('', 'TEMP '))}VIEW v AS {text}"),
        Step(fill(dice, "SELECT {number} AS n, {label} AS p FROM v WHERE {bool}", scope)),
        Step("DROP VIEW v"),
    ]


def macro(dice: Dice) -> list[Step]:
    """Calls in the body of a macro, whose parameters are features."""
    body = Scope((("p", "a"), ("q", "b")), subqueries=False)
    if dice.chance(0.5):
        made = fill(dice, "CREATE MACRO m(p, q) AS ({number})", body, 1)
        used = fill(dice, "SELECT x.id, m({a}, {b}) AS n FROM t1 x WHERE {bool}", X, 1)
    else:
        inner, scope = table(dice, "t1", "t2")
        inside = scope.inside(body).without_subqueries()
        select = f"SELECT {scope.keys[0]} AS id, {{number}} AS n FROM {inner} WHERE {{bool}}"
        if dice.chance(0.4):
            key = expression(dice, "label", inside, 1)
            again = dice.respelled(key)
            select = f"SELECT {key} AS k, count(*) AS n FROM {inner} GROUP BY {again}"
        made = fill(dice, f"CREATE MACRO m(p, q) AS TABLE {select}", inside, 1)
        used = fill(dice, "FROM m({a}, {b})", NOTHING, 0)
    kind = "MACRO TABLE" if "AS TABLE" in made else "MACRO"
    return [Step(made), Step(used), Step(f"DROP {kind} m")]


def prepared(dice: Dice) -> list[Step]:
    made = fill(
        dice, "PREPARE p AS SELECT x.id, {number} AS n FROM t1 x WHERE {bool} AND {number} > ?", X
    )
    again = [Step(f"EXECUTE p({dice.pick(('0.25', '-1.5', '3'))})") for _ in range(2)]
    return [Step(made), *again, Step("DEALLOCATE p")]


def copied(dice: Dice) -> list[Step]:
    made = fill(
        dice,
        "COPY (SELECT x.id, {whole} AS n, {label} AS p FROM t1 x WHERE {bool} ORDER BY x.id) "
        f"TO 'FILE.{(end := dice.pick(('csv', 'parquet', 'json')))}'",
        X,
    )
    return [Step(made), Step(f"FROM 'FILE.{end}'", ordered=True)]


CHANGING: tuple[Callable[[Dice], list[Step]], ...] = (
    *[change] * 8, created_table, view, view, view_of_any, view_of_any, macro, prepared, copied,
)  # fmt: skip
