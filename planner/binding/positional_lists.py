"""`list_values`: a list or array as the one argument: its elements are the features, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlml.dialects.type_names import element
from sqlml.errors import ArityError
from sqlml.planner.binding.column_types import Bound, bracket, typed
from sqlml.planner.binding.scope import Scope
from sqlml.planner.syntax.outline import Argument
from sqlml.types import NESTED, Feature

_LENGTH = re.compile(r"\[(\d+)\]$")


def elements_written(plain: Sequence[Argument], features: Sequence[Feature]) -> Sequence[Argument]:
    """The arguments of `f('m', [a, b])`, which are those of `f('m', a, b)`; else `plain`."""
    if len(plain) != 1 or plain[0].items is None or _is_list(features):
        return plain
    return plain[0].items


def list_values(
    argument: Argument,
    kind: str,
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound] | None:
    """What feeds each feature in `used` of a list of type `kind`; None if that is none.

    A list of NULL is NULL in each feature; one of another length is an error of the query.

    Raises:
        ArityError: an array of another length.
        ColumnTypeError: its elements do not feed a feature.
    """
    inner, dialect = element(kind), scope.dialect
    if inner is None or _is_list(features):
        return None
    count, at = len(features), argument.span.start
    told = f"{model} takes {count} features by position"
    fixed = _LENGTH.search(kind)
    if fixed is not None and int(fixed[1]) != count:
        raise ArityError(f"{told}, but the array has {fixed[1]}", scope.sql, at)
    values = bracket(scope.text(argument.span))
    made: dict[str, Bound] = {}
    for place, feature in enumerate(features, 1):
        if feature.name not in used:
            continue
        bound = typed(Bound(dialect.at(values, place), inner), feature, model, scope, at)
        if fixed is None and not made:  # the first says for all that the length is wrong
            length = dialect.length(values)
            error = dialect.error(dialect.quote_string(f"{told}; a list has another length"))
            checked = f"CASE WHEN {length} <> {count} THEN {error} ELSE {bound.sql} END"
            bound = replace(bound, sql=checked)
        made[feature.name] = bound
    return made


def _is_list(features: Sequence[Feature]) -> bool:
    """Whether the one feature is itself a list."""
    return len(features) == 1 and features[0].kind in NESTED
