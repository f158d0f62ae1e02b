"""Expressions by what they give, as templates: ``{a}`` is another expression of that kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.generated.calls import call
from tests.generated.dice import Dice
from tests.generated.models import VALUES, literal
from tests.generated.scope import TABLES, Relation, Scope

_SLOT = re.compile(r"\{(\w+)\}")

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "a": (
        "(5 - {a})",
        "({a} + {g}) % 6",
        "greatest({a}, 2)",
        "coalesce({a}, {a})",
        "nullif({a}, 3)",
        "CASE WHEN {bool} THEN {a} ELSE {a} END",
        "CASE {s} WHEN 'red' THEN {a} WHEN 'blue' THEN 1 END",
        "if({bool}, {a}, 4)",
        "(length({s}) % 6)",
        "[{a}, 2][1]",
        "{row}.a",
        "list_max([{a}, {g}])",
        "CAST({a} AS DOUBLE)",
        "({a})::DECIMAL(4, 1)",
        "({a} IS NULL)::INTEGER",
        "(abs({whole}) % 3 + 1)",
        "{scalar_a}",
        "({scalar_groups} % 6)",
    ),
    "b": (
        "(2.5 - {b})",
        "coalesce({b}, 1.5)",
        "({a} / 2)",
        "least({b}, 2.0)",
        "({b})::FLOAT",
        "{row}.b",
    ),
    "g": ("(3 - {g})", "({a} % 4)", "coalesce({g}, 0)", "({bool})::INTEGER", "list_min([{g}, 2])"),
    "s": (
        "coalesce({s}, 'blue')",
        "lower(upper({s}))",
        "CASE WHEN {bool} THEN {s} ELSE 'green' END",
        "nullif({s}, 'red')",
        "{row}.s",
        "trim(' ' || {s} || ' ')",
        "['red', 'green', 'blue'][1 + {g}]",
        "{scalar_s}",
    ),
    "as": ("[{a}, {a}]", "[1, {a}, NULL]", "list_filter({as}, lambda u: u < 4)"),
    "row": ("{'a': {a}, 'b': {b}, 'g': {g}, 's': {s}}",),
    "number": (
        "{call_number}",
        "{call_number}",
        "{call_number}",
        "({call_number} + {b})",
        "({number} - {call_number})",
        "round({number}, 3)",
        "-({number})",
        "abs({number})",
        "coalesce({number}, -1.0)",
        "({number} * {a})",
        "CASE WHEN {bool} THEN {number} ELSE {call_number} END",
        "TRY({strict_number})",
        "TRY({number})",
        "CASE WHEN {a} IS NOT NULL AND {b} IS NOT NULL THEN {strict_number} END",
        "{call_list}[1]",
        "map_values({call_chances})[1]",
        "list_max(map_values({call_chances}))",
        "list_sum({numbers})",
        "list_sum(list_transform({as}, lambda u: {number_of_a}))",
        "list_sum([{number_of_a} FOR u IN {as} IF u IS NOT NULL])",
        "{scalar_number}",
    ),
    "whole": (
        "{call_whole}",
        "({whole} + 1)",
        "length({label})",
        "-({whole})",
        "coalesce({whole}, 7)",
    ),
    "label": (
        "{call_label}",
        "{call_label}",
        "upper({label})",
        "({label} || {s})",
        "coalesce({label}, 'none')",
        "CASE WHEN {bool} THEN {label} ELSE {s} END",
        "map_keys({call_chances})[1]::VARCHAR",
        "({whole})::VARCHAR",
    ),
    "numbers": ("[{number}, {number}]", "{call_list}", "map_values({call_chances})"),
    "chances": ("{call_chances}",),
    "list": ("{call_list}",),
    "bool": (
        "{compared}",
        "{compared}",
        "{compared}",
        "{a} < {a}",
        "{a} IS NOT NULL",
        "{b} BETWEEN 0.5 AND 2",
        "{s} IN ('red', 'blue')",
        "{s} LIKE '%e%'",
        "{label} <> {s}",
        "{whole} = {a}",
        "{number} IS NULL",
        "{number} > 1.2345678",
        "NOT ({bool})",
        "({bool} AND {bool})",
        "({bool} OR {bool})",
        "({bool}) IS TRUE",
        "{a} IS DISTINCT FROM {g}",
        "list_contains({as}, {a})",
        "len(list_filter({as}, lambda u: {compared_of_a})) > 1",
        "{exists}",
        "{among}",
        "{exists_group}",
        "{among_groups}",
        "{among_windows}",
        "{exists_above}",
    ),
}

LEAVES: Mapping[str, tuple[str, ...]] = {
    **{f: tuple(literal(v) for v in VALUES[f] if v is not None) for f in "abgs"},
    "as": ("[0, 2, 5]", "[4, NULL]"),
    "row": ("{'a': 2, 'b': 0.5, 'g': 1, 's': 'red'}",),
}


def expression(dice: Dice, kind: str, scope: Scope, depth: int = 2) -> str:
    """A text that gives `kind` in `scope`, with calls no deeper than `depth`."""
    if kind in SPECIAL:
        return SPECIAL[kind](dice, scope, depth)
    function, _, wanted = kind.partition("_")
    if function in ("call", "strict"):
        # TRY takes no aggregate, which a scope without subqueries may hold
        function = function if scope.subqueries else "call"
        return call(dice, wanted, scope, depth, expression, strict=function == "strict")
    atoms = scope.of_kind(kind)
    leaves = LEAVES.get(kind, ())
    if (atoms or leaves) and (depth <= 0 or dice.chance(0.6)):
        if leaves and (not atoms or dice.chance(0.1)):
            return _leaf(dice, kind)
        return _maybe_bare(dice, dice.pick(atoms), scope)
    if depth <= 0:
        templates = TEMPLATES[kind][:1]
    else:
        templates = TEMPLATES[kind]
    return fill(dice, dice.pick(templates), scope, depth - 1)


def fill(dice: Dice, template: str, scope: Scope, depth: int = 2) -> str:
    """The template with its slots filled."""
    return _SLOT.sub(lambda slot: expression(dice, slot[1], scope, depth), template)


def _maybe_bare(dice: Dice, atom: str, scope: Scope) -> str:
    """A column without its table, sometimes, where no other column has its name."""
    table, _, column = atom.partition(".")
    if not (table.isidentifier() and column.isidentifier()) or not dice.chance(0.3):
        return atom
    names = [text.rpartition(".")[2] for text, _ in scope.atoms]
    return column if names.count(column) == 1 else atom


def _leaf(dice: Dice, kind: str) -> str:
    if kind in VALUES and dice.chance(0.3):
        value = dice.pick([v for v in VALUES[kind] if v is not None])
        return dice.parameter(value) if dice.parameters_allowed else literal(value)
    return dice.pick(LEAVES[kind])


def _compared(dice: Dice, scope: Scope, depth: int) -> str:
    """A call compared with what lies between its answers."""
    kind = dice.pick(("number", "number", "number", "whole", "label"))
    return call(dice, kind, scope, depth, expression, compared=True)


def _of_a(kind: str) -> Callable[[Dice, Scope, int], str]:
    """The body of a lambda, whose argument is a value of the feature a."""

    def body(dice: Dice, scope: Scope, depth: int) -> str:
        inner = Scope(scope.atoms, (), subqueries=False).having(*[("u", "a")] * 5)
        return expression(dice, kind, inner, min(depth, 1))

    return body


def _subquery(template: str, kind: str) -> Callable[[Dice, Scope, int], str]:
    """A subquery of a table or of a derived one, correlated or not; `kind` where there can be none.

    KEY stands for one expression, which is a column and what its rows are grouped by.
    """
    before, _, select = template.rpartition("SELECT ")
    first, after = select.split("FROM")

    def made(dice: Dice, scope: Scope, depth: int) -> str:
        if not scope.subqueries or depth <= 0:
            return expression(dice, kind, scope, 0)
        depth = min(depth - 1, 1)
        rows, own = _rows(dice, scope, depth)
        inner = own.inside(scope) if dice.chance(0.6) else own
        key = expression(dice, "label", own, depth) if "KEY" in template else ""
        columns = fill(dice, first, own, depth).replace("KEY", key)
        rest = fill(dice, after, inner, depth).replace("KEY", dice.respelled(key))
        return f"{fill(dice, before, scope, depth)}SELECT {columns}FROM {rows}{rest}"

    return made


def _exists_above(dice: Dice, scope: Scope, depth: int) -> str:
    """A subquery that groups, with a condition on its groups, correlated or not."""
    if not scope.subqueries or depth <= 0:
        return expression(dice, "compared", scope, 0)
    rows, own = _rows(dice, scope, min(depth - 1, 1))
    key = own.of_kind("g")[0]
    over = [(f"{dice.pick(('max', 'min'))}({text})", k) for text, k in own.atoms if k in VALUES]
    above = Scope((*over, (key, "g")), subqueries=False)
    above = above.inside(scope) if dice.chance(0.6) else above
    condition = expression(dice, "compared", above, 1)
    return f"EXISTS (SELECT {key} FROM {rows} GROUP BY {key} HAVING {condition})"


def _rows(dice: Dice, scope: Scope, depth: int) -> tuple[str, Scope]:
    """What a subquery reads, and what it brings into its scope."""
    table, alias = dice.pick(("t1", "t2")), dice.name("q")
    own = Scope.of(Relation(alias, TABLES[table]))
    if dice.chance(0.4):
        return f"{_derived(dice, table, scope, depth)} {alias}", own
    return f"{table} {alias}", own


def _derived(dice: Dice, table: str, scope: Scope, depth: int) -> str:
    """A query in brackets with the columns of a table, whose features may be predictions."""
    alias = dice.name("y")
    own = Scope.of(Relation(alias, TABLES[table]))
    if dice.chance(0.4):
        return f"(SELECT {dice.pick(('*', 'DISTINCT *', f'{alias}.*'))} FROM {table} {alias})"
    items = [f"{expression(dice, f, own, 1)} AS {f}" for f in VALUES]
    text = f"SELECT {alias}.id, {', '.join(items)} FROM {table} {alias}"
    if dice.chance(0.5):
        inside = own.inside(scope) if dice.chance(0.5) else own
        text += f" WHERE {expression(dice, 'bool', inside, min(depth, 1))}"
    return f"({text})"


SPECIAL: Mapping[str, Callable[[Dice, Scope, int], str]] = {
    "compared": _compared,
    "number_of_a": _of_a("number"),
    "compared_of_a": _of_a("compared"),
    "scalar_a": _subquery("(SELECT max({a}) FROM WHERE {bool})", "a"),
    "scalar_s": _subquery("(SELECT min({s}) FROM WHERE {bool})", "s"),
    "scalar_number": _subquery("(SELECT avg({number}) FROM WHERE {bool})", "number"),
    "exists": _subquery("EXISTS (SELECT 1 FROM WHERE {bool})", "compared"),
    "among": _subquery("{label} IN (SELECT {label} FROM WHERE {bool})", "compared"),
    "exists_group": _subquery(
        "EXISTS (SELECT KEY FROM WHERE {compared} GROUP BY KEY HAVING count(*) > 1)", "compared"
    ),
    "among_groups": _subquery("{label} IN (SELECT KEY FROM GROUP BY KEY)", "compared"),
    "among_windows": _subquery(
        "{whole} IN (SELECT count(*) OVER (PARTITION BY KEY) FROM WHERE {bool})", "compared"
    ),
    "exists_above": _exists_above,
    "scalar_groups": _subquery("(SELECT count(DISTINCT KEY) FROM WHERE KEY > 'i')", "a"),
}
