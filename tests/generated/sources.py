"""FROM clauses: tables, joins of every kind, subqueries, VALUES, unnested lists, table forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.generated.dice import Dice
from tests.generated.expressions import fill
from tests.generated.models import VALUES, literal
from tests.generated.scope import FEATURES, TABLES, Relation, Scope

Found = tuple[str, Scope]
Rows = Callable[[Dice, int], tuple[str, dict[str, str]]]
"""A query of rows that have every feature, and the kinds of its columns."""


def source(dice: Dice, depth: int, rows: Rows, comma: str = ",") -> Found:
    """A FROM clause without the word, and what it brings into scope."""
    if depth <= 0 or dice.chance(0.35):
        return table(dice)
    kinds = (_subquery, _subquery, _values, _table_form, _unnested, _lateral, *[_join] * 6)
    return dice.pick(kinds)(dice, depth, rows, comma)


def table(dice: Dice, *names: str) -> Found:
    name = dice.pick(names or ("t1", "t1", "t1", "t2", "t2", "t3", "t4", "t5", "e1"))
    relation = Relation(name if dice.chance(0.2) and not names else dice.name("x"), TABLES[name])
    alias = dice.pick(("", "AS ")) + relation.alias
    return (name if relation.alias == name else f"{name} {alias}"), Scope.of(relation)


def _subquery(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    text, columns = rows(dice, depth - 1)
    relation = Relation(dice.name("x"), columns, key=False)
    return f"({text}) {relation.alias}", Scope.of(relation)


def _values(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    def row(i: int) -> str:
        cells = [literal(dice.pick(VALUES[f])) for f in FEATURES]
        if i == 0:  # the first row gives the types
            kinds = ("INTEGER", "DOUBLE", "INTEGER", "VARCHAR")
            cells = [f"{c}::{k}" for c, k in zip(cells, kinds, strict=True)]
        return f"({i}, {', '.join(cells)})"

    relation = Relation(dice.name("x"), {"id": "id", **FEATURES})
    listed = ", ".join(row(i) for i in range(dice.number(1, 4)))
    return f"(VALUES {listed}) {relation.alias}(id, a, b, g, s)", Scope.of(relation)


def _table_form(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    model, features, kind = dice.pick((("xgb", "a, b, g", "number"), ("lrn", "a, b", "whole")))
    text, columns = f"TABLE {(name := dice.pick(('t1', 't2')))}", dict(TABLES[name])
    if dice.chance(0.4):
        text, columns = rows(dice, depth - 1)
        text = f"({text})"
    probabilities = ", lrn_predict_proba(a, b) AS predicted_label_probs" * (model == "lrn")
    made = f"{model}_predict({features}) AS predicted_label{probabilities}"
    inner = f"({text})" if text.startswith("TABLE") else text
    call = dice.call(
        f"{dice.pick(('ml_predict', 'ML.PREDICT'))}(MODEL {model}, {text})",
        f"(SELECT *, {made} FROM {inner})",
    )
    relation = Relation(dice.name("x"), columns | {"predicted_label": kind}, key=False)
    return f"{call} {relation.alias}", Scope.of(relation)


def _unnested(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    alias, other = dice.name("x"), dice.name("y")
    relations = Relation(alias, TABLES["t5"]), Relation(other, {"w": "a"}, key=False)
    return f"t5 {alias}{comma} unnest({alias}.l) {other}(w)", Scope.of(*relations)


def _lateral(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    text, scope = table(dice, "t1", "t2")
    inner, added = table(dice, "t1", "t2", "t4")
    alias, key = dice.name("y"), added.keys[0]
    inside = added.inside(scope)
    select, rest, values = dice.pick(
        (
            ("{number} AS n, {whole} AS w", f" FROM {inner} WHERE {{bool}} AND {key} < 9", inside),
            ("{number} AS n, {whole} AS w", "", replace(scope, relations=())),
            ("max({number}) AS n, min({whole}) AS w", f" FROM {inner} WHERE {{bool}}", added),
            ("{number} AS n, {whole} AS w", f" FROM {inner} ORDER BY {key} LIMIT 2", inside),
        )
    )
    query = f"(SELECT {fill(dice, select, values, 1)}{fill(dice, rest, inside, 1)}) {alias}"
    made = Scope.of(Relation(alias, {"n": "number", "w": "whole"}, key=False))
    if dice.chance(0.3):
        return f"{text} LEFT JOIN LATERAL {query} ON true", scope + made
    return f"{text}{comma} {dice.pick(('LATERAL ', ''))}{query}", scope + made


_ON = (
    "{KEYS}",
    "{KEYS} AND {compared}",
    "{KEYS} AND {bool}",
    "{label} = {label}",
    "{whole} = {a}",
    "{a} = {a} AND {compared}",
    "{bool} AND {compared}",
)


def _join(dice: Dice, depth: int, rows: Rows, comma: str) -> Found:
    kind = dice.pick(_KINDS)
    left = source(dice, depth - 1, rows, " CROSS JOIN" if kind != "," else ",")
    right = _subquery(dice, min(depth, 1), rows, comma) if dice.chance(0.3) else table(dice)
    taken = {x.alias for x in left[1].relations}
    if taken & {x.alias for x in right[1].relations}:
        right = table(dice, "t1", "t2", "t3", "t4")
    return _JOINS[kind](dice, kind, left, right)


def _on(dice: Dice, kind: str, left: Found, right: Found) -> Found:
    both = left[1] + right[1]
    on = dice.pick(_ON).replace("{KEYS}", _equal_keys(left[1], right[1]) or "true")
    on = fill(dice, on, both.without_subqueries(), 1)
    return f"{left[0]} {kind} {right[0]} ON {on}", left[1] if _hides(kind) else both


def _crossed(dice: Dice, kind: str, left: Found, right: Found) -> Found:
    return f"{left[0]}{' ' * (kind != ',')}{kind} {right[0]}", left[1] + right[1]


def _positional(dice: Dice, kind: str, left: Found, right: Found) -> Found:
    if "JOIN" in left[0] or not (left[1].keys and right[1].keys):  # their rows have no order
        kind = "CROSS JOIN"
    return _crossed(dice, kind, left, right)


def _using(dice: Dice, kind: str, left: Found, right: Found) -> Found:
    """USING, or NATURAL where the tables share columns that are not ambiguous."""
    own = [c for x in left[1].relations for c in x.columns]
    shared = {c for x in right[1].relations for c in x.columns if c in own}
    shared = {"id"} & shared if "USING" in kind else shared
    if not shared or any(own.count(c) > 1 for c in shared):
        return _on(dice, "LEFT JOIN", left, right)
    end = " USING (id)" if "USING" in kind else ""
    kept = left[1] if _hides(kind) else left[1] + right[1]
    kept = kept if _hides(kind) else replace(kept, merged=kept.merged | shared)
    return f"{left[0]} {kind.replace(' USING', '')} {right[0]}{end}", kept


def _asof(dice: Dice, kind: str, left: Found, right: Found) -> Found:
    both = left[1] + right[1]
    ids = left[1].of_kind("id")
    if not ids or len(right[1].keys) != 1:
        return _on(dice, "JOIN", left, right)
    more = fill(dice, dice.pick(("", " AND {label} = {label}", " AND {g} = {g}")), both, 1)
    on = f"{ids[0]} >= {right[1].keys[0]}{more}"
    return f"{left[0]} {dice.pick((kind, 'ASOF LEFT JOIN'))} {right[0]} ON {on}", both


def _equal_keys(left: Scope, right: Scope) -> str:
    ids = left.of_kind("id")[:1] + right.of_kind("id")[:1]
    return " = ".join(ids) if len(ids) == 2 else ""


def _hides(kind: str) -> bool:
    """Whether the right side is out of scope above the join."""
    return "SEMI" in kind or "ANTI" in kind


_JOINS = {
    ",": _crossed,
    "CROSS JOIN": _crossed,
    "POSITIONAL JOIN": _positional,
    "ASOF JOIN": _asof,
    **dict.fromkeys(
        ("JOIN USING", "LEFT JOIN USING", "FULL JOIN USING", "SEMI JOIN USING", "NATURAL JOIN",
         "NATURAL LEFT JOIN"), _using,
    ),
    **dict.fromkeys(
        ("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"),
        _on,
    ),
}  # fmt: skip
_KINDS = tuple(_JOINS)
