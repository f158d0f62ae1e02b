"""A model call in one of its forms, and the prediction that stands for it."""

from __future__ import annotations

from collections.abc import Callable

from tests.generated.dice import Dice
from tests.generated.models import Output, every_output, literal
from tests.generated.scope import Relation, Scope

Expression = Callable[[Dice, str, Scope, int], str]


def call(
    dice: Dice,
    kind: str,
    scope: Scope,
    depth: int,
    expression: Expression,
    *,
    strict: bool = False,
    compared: bool = False,
) -> str:
    """A call that gives `kind`, in brackets and compared with a constant where told."""
    fitting = [o for o in every_output() if o.kind == kind and (o.strict or not strict)]
    output = dice.pick(fitting)
    ours, twin = arguments(dice, output, scope, depth, expression, not strict)
    name = literal(output.model)
    if dice.parameters_allowed and dice.chance(0.1):
        name = dice.parameter(output.model)
    listed = ", ".join(twin)
    written, other = (f"{output.function}({name}, {x}{output.tail})" for x in (ours, listed))
    columns = ours == listed or ours.endswith("*") or ":=" in ours or "=>" in ours
    columns = columns and not ours.startswith(("{", "struct_pack"))
    mark = dice.call(written, f"{output.macro}({listed})", other if columns else "")
    if not compared:
        return mark
    if kind == "number":
        cut = str(dice.pick(output.cuts()))
        return dice.pick(("{} > {}", "{} <= {}", "{1} >= {0}")).format(mark, cut)
    labels = [literal(x) for x in output.labels()]
    if dice.chance(0.3):
        return f"{mark} IN ({', '.join(dice.some(labels))})"
    return f"{mark} {dice.pick(('=', '<>'))} {dice.pick(labels)}"


def arguments(
    dice: Dice,
    output: Output,
    scope: Scope,
    depth: int,
    expression: Expression,
    guarded: bool,
) -> tuple[str, list[str]]:
    """The arguments in one form; and the features' expressions in their order."""
    features = output.features
    rare = output.strict and guarded  # then NULL is an error, so that most calls take none
    relations = [r for r in scope.relations if r.alias and set(features) <= set(r.columns)]
    stars = scope.relations and (not rare or dice.chance(0.1))
    if stars and scope.has_star(features) and dice.chance(0.4):
        return _star(dice, output, scope, depth, expression)
    if stars and relations and dice.chance(0.5):
        return _of_a_relation(dice, features, dice.pick(relations))
    rows = scope.of_kind("row")
    if rows and not rare and dice.chance(0.3):
        row = dice.pick(rows)
        return row, [f"{row}.{f}" for f in features]
    given = {f: expression(dice, f, scope, depth - 1) for f in features}
    if rare:
        given = {f: f"coalesce({text}, 1)" for f, text in given.items()}
    return _listed(dice, given)


def _star(
    dice: Dice, output: Output, scope: Scope, depth: int, expression: Expression
) -> tuple[str, list[str]]:
    features = output.features
    owner = {c: r.column(c) for r in scope.relations for c in r.columns}
    plain = [f if f in scope.merged else owner[f] for f in features]
    form = dice.pick(("*", "*", "override", "replace", "exclude"))
    k = dice.number(0, len(features) - 1)
    own = features[k]
    changed = [*plain]
    if form in ("override", "replace"):
        changed[k] = expression(dice, own, scope, depth - 1)
        if output.strict:
            changed[k] = f"coalesce({changed[k]}, 1)"
    if form == "override":
        return f"*, {own} := {changed[k]}", changed
    if form == "replace" and own not in scope.merged:
        return f"* REPLACE ({changed[k]} AS {own})", changed
    others = [c for c in owner if c not in features and c not in scope.merged]
    if form == "exclude" and others:
        return f"* EXCLUDE ({dice.pick(others)})", plain
    return "*", plain


def _of_a_relation(
    dice: Dice, features: tuple[str, ...], relation: Relation
) -> tuple[str, list[str]]:
    alias = relation.alias
    forms = [f"{alias}.*", f"{alias}.*", *[alias] * relation.row]
    if "id" in relation.columns:
        forms.append(f"{alias}.* EXCLUDE (id)")
    return dice.pick(forms), [f"{alias}.{f}" for f in features]


def _listed(dice: Dice, given: dict[str, str]) -> tuple[str, list[str]]:
    """Named in any order, by position, or as a struct."""
    named = dice.some([*given], least=len(given))
    forms = (
        ", ".join(given.values()),
        ", ".join(f"{f} := {given[f]}" for f in named),
        ", ".join(f"{f} => {given[f]}" for f in named),
        "{" + ", ".join(f"'{f}': {given[f]}" for f in named) + "}",
        "struct_pack(" + ", ".join(f"{f} := {given[f]}" for f in named) + ")",
    )
    return dice.pick(forms), [*given.values()]
