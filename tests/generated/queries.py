"""Queries: each shape of SELECT is a small function of the dice."""

# ruff: noqa: E501 (templates, one a line)

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.generated.dice import Dice
from tests.generated.expressions import expression, fill
from tests.generated.scope import FEATURES, TABLES, Relation, Scope
from tests.generated.sources import source, table

NOWHERE = Scope()


@dataclass(frozen=True, slots=True)
class Query:
    text: str
    columns: dict[str, str]
    ordered: bool = False


def query(dice: Dice, depth: int = 2) -> Query:
    """A whole query, of any shape."""
    shape = dice.pick(SHAPES)
    return shape(dice, depth)


def rows(dice: Dice, depth: int) -> tuple[str, dict[str, str]]:
    """A query whose rows have an id and every feature, and perhaps predictions."""
    if depth > 0 and dice.chance(0.2):
        (left, columns), (right, others) = (_rows(dice, depth - 1) for _ in range(2))
        if columns == others:
            return f"{left} UNION ALL {dice.pick(('', 'BY NAME '))}{right}", columns
    return _rows(dice, depth)


def _rows(dice: Dice, depth: int) -> tuple[str, dict[str, str]]:
    text, scope = source(dice, depth, rows)
    ids = scope.of_kind("id") or ["0"]
    features = {f: expression(dice, f, scope, 1) for f in FEATURES}
    columns = {"id": "id", **FEATURES}
    items = [f"{ids[0]} AS id", *(f"{features[f]} AS {f}" for f in FEATURES)]
    if len(scope.relations) == 1 and "a" in scope.relations[0].columns and dice.chance(0.4):
        items = [f"{scope.relations[0].alias}.{c} AS {c}" for c in columns]
    for kind in dice.some(("number", "whole", "label"), least=0, most=2):
        name = dice.name("c")
        items.append(f"{expression(dice, kind, scope)} AS {name}")
        columns[name] = kind
    return _select(dice, items, text, _where(dice, scope)), columns


def _select(dice: Dice, items: list[str], text: str, rest: str = "", distinct: str = "") -> str:
    listed = ", ".join(items)
    if dice.chance(0.15):
        return f"FROM {text} SELECT {distinct}{listed}{rest}"
    return f"SELECT {distinct}{listed} FROM {text}{rest}"


def _where(dice: Dice, scope: Scope) -> str:
    return f" WHERE {expression(dice, 'bool', scope)}" if dice.chance(0.6) else ""


def _items(dice: Dice, scope: Scope, kinds: tuple[str, ...], least: int = 1) -> dict[str, str]:
    """Text with its alias -> kind."""
    found = {}
    for _ in range(dice.number(least, 3)):
        kind = dice.pick(kinds)
        found[f"{expression(dice, kind, scope)} AS {dice.name('c')}"] = kind
    return found


def _named(items: dict[str, str]) -> dict[str, str]:
    return {text.rpartition(" ")[2]: kind for text, kind in items.items()}


VALUED = ("number", "number", "whole", "label", "label", "bool", "chances", "list", "a", "s")
EXACT = ("whole", "label", "label", "bool", "a", "s")
"""Kinds without rounding: rows that are compared with one another hold nothing else."""


def plain(dice: Dice, depth: int) -> Query:
    text, scope = source(dice, depth, rows)
    items = _items(dice, scope, VALUED)
    keys = [f"{key} AS k{i}" for i, key in enumerate(scope.of_kind("id"))]
    chosen = _select(dice, [*keys, *items], text, _where(dice, scope))
    if dice.chance(0.3) and "number" not in items.values():
        limit = dice.pick(("", f" LIMIT {dice.number(0, 9)}", " LIMIT 5 OFFSET 2"))
        return Query(f"{chosen} ORDER BY ALL{limit}", _named(items), ordered=True)
    return Query(chosen, _named(items))


def ordered(dice: Dice, depth: int) -> Query:
    """Ordered by calls, and then by a key."""
    text, scope = table(dice, "t1", "t2")
    key = scope.keys[0]
    items = [f"{key} AS id", *_items(dice, scope, VALUED)]
    by = expression(dice, dice.pick(("number", "label", "bool")), scope)
    direction = dice.pick(("", " DESC", " DESC NULLS LAST", " NULLS FIRST"))
    limit = dice.pick(("", f" LIMIT {dice.number(0, 9)}", " LIMIT 30%"))
    chosen = _select(dice, items, text, _where(dice, scope))
    return Query(
        f"{chosen} ORDER BY round({by}, 4){direction}, {key}{limit}"
        if "number" in by
        else f"{chosen} ORDER BY {by}{direction}, {key}{limit}",
        {},
        True,
    )


def distinct(dice: Dice, depth: int) -> Query:
    text, scope = source(dice, depth, rows)
    items = _items(dice, scope, EXACT)
    return Query(_select(dice, [*items], text, _where(dice, scope), "DISTINCT "), _named(items))


def distinct_on(dice: Dice, depth: int) -> Query:
    text, scope = table(dice, "t1", "t2")
    on = expression(dice, dice.pick(("label", "whole", "bool")), scope)
    key = scope.keys[0]
    items = [f"{key} AS id", *_items(dice, scope, VALUED)]
    chosen = _select(dice, items, text, _where(dice, scope), f"DISTINCT ON ({on}) ")
    return Query(f"{chosen} ORDER BY {key}{dice.pick(('', ' DESC'))}", {}, ordered=True)


AGGREGATES = (
    "count(*)",
    "sum({number})",
    "avg({number})",
    "max({label})",
    "min({number})",
    "count(*) FILTER ({bool})",
    "count(DISTINCT {label})",
    "string_agg(SAME, ',' ORDER BY SAME)",
    "string_agg(DISTINCT SAME, ',' ORDER BY SAME)",
    "list_sort(list({whole}))",
    "bool_or({bool})",
    "max({number}) FILTER ({compared})",
    "sum(CASE WHEN {bool} THEN {number} END)",
)


def _aggregate(dice: Dice, scope: Scope) -> str:
    template = dice.pick(AGGREGATES)
    if "SAME" in template:  # else the order of what ties would be open
        template = template.replace("SAME", expression(dice, "label", scope))
    return f"{fill(dice, template, scope)} AS {dice.name('c')}"


def grouped(dice: Dice, depth: int) -> Query:
    text, scope = source(dice, depth, rows)
    drawn = [(expression(dice, k, scope, 1), k) for k in dice.some(EXACT, least=0, most=2)]
    keys = dict(drawn)
    over = [f"{dice.pick(('max', 'min'))}({t})" for t, k in scope.atoms if k == "a"][:2]
    above = scope.only(*keys.items(), *((o, "a") for o in over))
    names = {dice.name("k"): key for key in keys}
    items = [f"{key} AS {name}" for name, key in names.items()]
    items += [_aggregate(dice, scope) for _ in range(dice.number(1, 3))]
    if over and dice.chance(0.4):
        items += [*_items(dice, above.without_subqueries(), ("number", "label"))]
    by = ""
    if names:
        written = [dice.respelled(key) for key in keys]
        by = f" GROUP BY {_groups(dice, dice.pick(([*names], written)))}"
        if any(map(_is_constant, keys)):
            by = f" GROUP BY {', '.join(names)}"
        items += [
            _of_groups(dice, dice.respelled(k), kind) for k, kind in drawn if dice.chance(0.3)
        ]
    end = ""
    if dice.chance(0.3):
        tests = ["count(*) > 1", "sum({number}) > 1.2345", "bool_or({bool})"]
        tests += [f"{dice.respelled(key)} IS NOT NULL" for key in keys]
        end = f" HAVING {fill(dice, dice.pick(tests), scope)}"
    if keys and dice.chance(0.2):
        end += f" ORDER BY {dice.respelled(dice.pick([*keys]))}"
    columns = {name: keys[key] for name, key in names.items()}
    return Query(_select(dice, items, text, _where(dice, scope) + by + end), columns)


def _groups(dice: Dice, keys: list[str]) -> str:
    """What GROUP BY says of keys that are names or expressions."""
    listed = ", ".join(keys)
    sets = (
        f"ROLLUP ({listed})",
        f"CUBE ({listed})",
        f"GROUPING SETS (({listed}), ())",
        f"GROUPING SETS ({keys[0]}, ROLLUP ({listed}))",
        f"{keys[0]}, CUBE ({keys[-1]})",
    )
    return dice.pick((listed, listed, listed, "ALL", *sets))


def _is_constant(key: str) -> bool:
    """Whether a key is a literal, which the engine also finds within the macros of the twin."""
    return re.fullmatch(r"-?[\d.]+|'[^']*'", key) is not None


def _of_groups(dice: Dice, key: str, kind: str) -> str:
    """A column that is made of one of the keys of a grouped query."""
    templates = [
        f"count(*) OVER (PARTITION BY {key})",
        f"rank() OVER (ORDER BY {key})",
        f"coalesce(({key})::VARCHAR, 'none')",
    ]
    if "*" not in dice.text(key, 0):  # it would mean the columns of the subquery
        templates += [
            f"(SELECT max(z.id) FROM t1 z WHERE z.s >= ({key})::VARCHAR)",
            f"(SELECT {key})",
        ]
    return f"{dice.pick(templates)} AS {dice.name('c')}"


WINDOWS = (
    "sum({number}) OVER (PARTITION BY {label})",
    "rank() OVER (ORDER BY {label}, {whole})",
    "max({label}) OVER (PARTITION BY {g} ORDER BY KEY)",
    "row_number() OVER (ORDER BY {label} DESC, KEY)",
    "lag({label}, 1, 'first') OVER (ORDER BY KEY)",
    "avg({number}) OVER (ORDER BY KEY ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "count(*) FILTER ({bool}) OVER (PARTITION BY {s})",
    "first_value({number}) OVER w",
    "count({label}) OVER (w)",
    "sum({whole}) OVER (w ROWS 3 PRECEDING)",
    "coalesce(count(*) OVER (PARTITION BY {label}), 0)",
    "coalesce(sum({number}) OVER (PARTITION BY {whole}), 0)",
    "rank() OVER (PARTITION BY {compared} ORDER BY {whole}, KEY)",
    "(1 + sum({whole}) OVER (PARTITION BY {label}, {bool} ORDER BY KEY))",
    "count(*) OVER v",
)
VALUES_OF_WINDOWS = (
    ("lag(x.a) OVER (ORDER BY KEY)", "a"),
    ("max(x.b) OVER (PARTITION BY x.s)", "b"),
    ("first_value(x.s) OVER (ORDER BY KEY)", "s"),
    ("min(x.g) OVER w", "g"),
)


def windowed(dice: Dice, depth: int) -> Query:
    """Calls inside windows, windows inside calls, QUALIFY."""
    name = dice.pick(("t1", "t2"))
    scope = Scope.of(Relation("x", {"id": "id", **FEATURES}))
    key = "x.id"
    values = [(text.replace("KEY", key), kind) for text, kind in VALUES_OF_WINDOWS]
    items = ["x.id"]
    for _ in range(dice.number(1, 2)):
        items.append(
            f"{fill(dice, dice.pick(WINDOWS).replace('KEY', key), scope, 1)} AS {dice.name('c')}"
        )
    if dice.chance(0.4):
        over = scope.only(*values, *scope.atoms).without_subqueries()
        items += [*_items(dice, over, ("number", "label"))]
    rest = ""
    if dice.chance(0.4):
        test = dice.pick(
            (
                "rank() OVER (ORDER BY {whole}) <= 3",
                "{bool} AND count(*) OVER w > 1",
                "sum({number}) OVER (PARTITION BY {label}) > 1.2345",
                "{bool}",
                "WITHIN",
            )
        )
        if test == "WITHIN":  # the window is in a call, and nowhere else
            over = scope.only(*values).without_subqueries()
            test, items = fill(dice, "{compared}", over, 1), ["x.id"]
        elif "OVER" not in test:
            over = scope.only(*values, *scope.atoms).without_subqueries()
            test = f"{fill(dice, test, over, 1)} AND count(*) OVER () > 0"
        rest = f" QUALIFY {fill(dice, test, scope, 1)}"
    rest = _where(dice, scope) + _named_windows(dice, scope, ", ".join(items) + rest) + rest
    return Query(_select(dice, items, f"{name} x", rest), {"id": "id"})


def _named_windows(dice: Dice, scope: Scope, text: str) -> str:
    """The WINDOW clause of the windows that a text names."""
    definitions = {
        "w": "w AS (PARTITION BY {g} ORDER BY x.id)",
        "v": f"v AS (PARTITION BY {dice.pick(('{label}', '{whole}', '{compared}'))})",
    }
    used = [d for name, d in definitions.items() if re.search(rf"OVER \(?{name}\b", text)]
    return f" WINDOW {fill(dice, ', '.join(used), scope, 1)}" if used else ""


def combined(dice: Dice, depth: int) -> Query:
    """Set operations."""
    kinds = tuple(dice.pick(EXACT) for _ in range(2))
    sides = []
    for _ in range(dice.number(2, 3)):
        text, scope = source(dice, depth - 1, rows)
        items = [f"{expression(dice, k, scope)} AS c{i}" for i, k in enumerate(kinds)]
        sides.append(_select(dice, items, text, _where(dice, scope)))
    operators = ("UNION", "UNION ALL", "UNION ALL BY NAME", "EXCEPT", "INTERSECT", "EXCEPT ALL")
    joined = sides[0]
    for side in sides[1:]:
        joined = f"({joined}) {dice.pick(operators)} ({side})"
    if dice.chance(0.3):
        return Query(f"{joined} ORDER BY ALL LIMIT 7", {}, ordered=True)
    return Query(joined, {})


def with_definitions(dice: Dice, depth: int) -> Query:
    """CTEs, used once, twice or never."""
    first, columns = rows(dice, depth - 1)
    how = dice.pick(("", "", "MATERIALIZED ", "NOT MATERIALIZED "))
    text = f"WITH n1 AS {how}({first})"
    if dice.chance(0.4):
        inner, scope = f"n1 {(alias := dice.name('x'))}", Scope.of(Relation(alias, columns, False))
        items = [f"{scope.of_kind('id')[0]} AS id"]
        items += [f"{expression(dice, f, scope, 1)} AS {f}" for f in FEATURES]
        text += f", n2 AS ({_select(dice, items, inner, _where(dice, scope))})"
    last = "n2" if ", n2 AS (" in text else "n1"
    shown = columns if last == "n1" else {"id": "id", **FEATURES}
    one = Relation(dice.name("x"), shown, key=False)
    scope, joined = Scope.of(one), f"{last} {one.alias}"
    if dice.chance(0.3):
        two = Relation(dice.name("x"), columns, key=False)
        scope, joined = (
            Scope.of(one, two),
            f"{joined} JOIN n1 {two.alias} ON {one.alias}.id = {two.alias}.id",
        )
    items = [f"{one.alias}.id", *_items(dice, scope, VALUED)]
    return Query(f"{text} {_select(dice, items, joined, _where(dice, scope))}", {})


def recursive(dice: Dice, depth: int) -> Query:
    scope = Scope.of(Relation("w", {"n": "id", "a": "a", "b": "b"}))
    start = fill(dice, "SELECT 0 AS n, {a}::INTEGER AS a, {b}::DOUBLE AS b", NOWHERE, 1)
    step = fill(
        dice,
        dice.pick(
            (
                "SELECT n + 1, {a}::INTEGER, {b}::DOUBLE FROM w WHERE n < 5 AND {compared}",
                "SELECT n + 1, (abs({whole}) % 6)::INTEGER, {b}::DOUBLE FROM w WHERE n < 4",
                "SELECT w.n + 1, t4.h::INTEGER, {b}::DOUBLE FROM w JOIN t4 ON t4.id = w.n * 3 WHERE w.n < 4",
            )
        ),
        scope,
    )
    items = _items(dice, scope, VALUED)
    return Query(
        f"WITH RECURSIVE w AS ({start} UNION ALL {step}) "
        + _select(dice, ["n", *items], "w", _where(dice, scope)),
        {},
    )


PIVOTS = (
    "PIVOT ROWS ON {label} USING count(*) GROUP BY g",
    "PIVOT (SELECT x.g, {label} AS p, {whole} AS v FROM ROWS x) ON p USING max(v) GROUP BY g",
    "PIVOT ROWS ON s IN ('red', 'blue') USING avg({number}) GROUP BY g",
    "SELECT * FROM (SELECT x.g, x.s, {whole} AS v FROM ROWS x) PIVOT (max(v) FOR s IN ('red', 'green'))",
    "WITH w AS (PIVOT ROWS ON s IN ('red', 'blue') USING max({whole}) GROUP BY g) FROM w WHERE red > 0",
    "UNPIVOT (SELECT x.id, {number} AS p, {number} AS q FROM ROWS x) ON p, q INTO NAME what VALUE v",
    "SELECT what, {number} AS c FROM (SELECT a, g FROM ROWS) UNPIVOT INCLUDE NULLS (w FOR what IN (a, g)) y",
    "SELECT * FROM (SELECT x.id, {chances} AS m FROM ROWS x) WHERE map_keys(m)[1] IS NOT NULL",
    "SUMMARIZE SELECT {whole} AS w, {label} AS l FROM ROWS x",
    "DESCRIBE SELECT {whole} AS w, {label} AS l, {chances} AS m, {list} AS t FROM ROWS x",
    "SELECT count(*) FROM (FROM ROWS x WHERE {bool})",
    "FROM ROWS x WHERE {bool}",
    "SELECT x.*, {number} AS c FROM ROWS x WHERE {compared}",
    "SELECT * REPLACE ({number} AS b) FROM ROWS x",
    "SELECT COLUMNS(*), {label} AS c FROM ROWS x",
    "SELECT {label} AS p, p || '!' AS q, {number} AS v FROM ROWS x WHERE v IS NOT NULL",
    "VALUES ({number}, {label}), ({number}, {label})",
    "SELECT {number} AS c",
    "PIVOT ROWS ON {compared} USING count(*) GROUP BY g",
    "PIVOT ROWS ON s IN ('red', 'blue') USING max({whole}) GROUP BY g ORDER BY ALL LIMIT 2",
    "CREATED PIVOT c ON s USING max({whole}) GROUP BY g",
    "CREATED PIVOT c ON s IN ('red', 'blue') USING avg({number}) AS n, count(*) AS m GROUP BY g",
    "CREATED PIVOT c ON {label} USING count(*)",
    "CREATED PIVOT c ON {bool} USING count(*) GROUP BY s ORDER BY ALL",
    "CREATED SELECT * FROM (PIVOT c ON s IN ('red', 'blue') USING max({whole}) GROUP BY g) x",
    "CREATED SELECT * FROM c PIVOT (max({whole}) FOR s IN ('red', 'green') GROUP BY g)",
    "CREATED UNPIVOT c ON a, b INTO NAME what VALUE v",
    "CREATED UNPIVOT (SELECT id, {number} AS p, {number} AS q FROM c) ON p, q INTO NAME what VALUE v",
    "CREATED SELECT what, {whole} AS n FROM c UNPIVOT (w FOR what IN (a, g)) y",
)


def pivoted(dice: Dice, depth: int) -> Query:
    """PIVOT, UNPIVOT, SUMMARIZE, and other whole statements."""
    template = dice.pick(PIVOTS)
    if template.startswith("CREATED "):
        return _pivoted_definition(dice, depth, template.removeprefix("CREATED "))
    if "ROWS" not in template:
        return Query(fill(dice, template, NOWHERE), {})
    name = dice.pick(("t1", "t2"))
    scope = Scope.of(Relation("x" if "ROWS x" in template else "", TABLES[name]))
    if " y" in template:
        scope = NOWHERE.having(("y.w", "a"))
    template = template.replace("ROWS", name)
    if "SUMMARIZE" in template:
        return Query(
            f"SELECT column_name, column_type, min, max, count FROM ({fill(dice, template, scope)})",
            {},
        )
    return Query(fill(dice, template, replace(scope, subqueries="PIVOT" not in template)), {})


def _pivoted_definition(dice: Dice, depth: int, template: str) -> Query:
    """PIVOT or UNPIVOT of a CTE, whose columns may be predictions."""
    text, columns = rows(dice, min(depth, 1))
    scope = Scope.of(Relation("", columns)).without_subqueries()
    if " y" in template:
        scope = NOWHERE.having(("y.w", "a"))
    return Query(f"WITH c AS ({text}) {fill(dice, template, scope, 1)}", {})


AROUND = (
    "SELECT * FROM (QUERY) NAME WHERE",
    "SELECT * FROM (QUERY) NAME WHERE",
    "WITH NAME AS (QUERY) SELECT * FROM NAME WHERE",
    "WITH NAME AS MATERIALIZED (QUERY) FROM NAME WHERE",
    "SELECT count(*) AS n FROM (QUERY) NAME WHERE",
    "SELECT (SELECT count(*) FROM (QUERY) NAME WHERE) AS n FROM t4",
    "SELECT t4.id, NAME.* FROM t4 LEFT JOIN (QUERY) NAME ON true WHERE",
    "SELECT t4.id, NAME.* FROM t4, LATERAL (QUERY) NAME WHERE",
    "SELECT id FROM t4 WHERE EXISTS (QUERY)",
    "SELECT id FROM t4 WHERE id IN (SELECT count(*) FROM (QUERY) NAME WHERE)",
    "(QUERY) UNION ALL (QUERY)",
    "WITH NAME AS (QUERY), other AS (FROM NAME WHERE) SELECT * FROM other UNION ALL FROM NAME",
)
"""What a query may stand in."""


def nested(dice: Dice, depth: int) -> Query:
    """A query of any shape in another, with a condition on its columns."""
    shapes = (grouped, grouped, grouped, windowed, windowed, distinct, combined, pivoted)
    inner = dice.pick(shapes)(dice, depth - 1)
    name = dice.name("x")
    condition = ""
    if inner.columns and dice.chance(0.6):
        scope = Scope.of(Relation(name, inner.columns, key=False, row=False))
        condition = f" WHERE {expression(dice, 'bool', scope, 1)}"
    text = dice.pick(AROUND).replace(" WHERE)", f"{condition})").removesuffix(" WHERE")
    ends = text.endswith("NAME")
    text = text.replace("NAME", name).replace("QUERY", inner.text)
    return Query(text + condition if ends else text, {})


SHAPES: tuple[Callable[[Dice, int], Query], ...] = (
    *[plain] * 5, ordered, distinct, distinct_on, grouped, grouped, windowed, windowed, combined,
    with_definitions, with_definitions, recursive, pivoted, pivoted, *[nested] * 5,
)  # fmt: skip
