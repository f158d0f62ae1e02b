"""Binding of a call's arguments to the features of its model: by name, by struct, by list or by
position.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from sqlml.dialects.type_names import UNTYPED, element, struct_fields
from sqlml.errors import (
    AmbiguousColumnError,
    ArityError,
    BindError,
    ColumnOrderError,
    MissingColumnError,
)
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.column_types import (
    Available,
    Bound,
    convert_to_feature,
    convert_to_json,
    parenthesize,
)
from sqlml.planner.binding.probe_queries import Column, Scope, is_row_of_table
from sqlml.planner.binding.stars import (
    expand_star,
    find_blamed_offset,
    list_star_names,
    read_candidates,
)
from sqlml.planner.syntax.outline import Argument, ModelCall
from sqlml.suggestions import closest
from sqlml.types import NESTED, Feature, features_behind_blanks, fold

_LENGTH = re.compile(r"\[(\d+)\]$")


def unwrap_list(positional: Sequence[Argument], features: Sequence[Feature]) -> Sequence[Argument]:
    """Return the arguments in `f('m', [a, b])`, which mean the same as `f('m', a, b)`; otherwise
    `positional`.
    """
    if len(positional) != 1 or positional[0].items is None or _is_single_nested(features):
        return positional
    return positional[0].items


def bind_list(
    argument: Argument,
    kind: str,
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound] | None:
    """Bind the elements of a list of type `kind` to the features in `used`; return None for other
    types.

    A NULL list makes each feature NULL. A list of another length is an error of the query.

    Raises:
        ArityError: an array has another length.
        ColumnTypeError: its elements do not fit a feature.
    """
    element_type, dialect = element(kind), scope.dialect
    if element_type is None or _is_single_nested(features):
        return None
    count, at = len(features), argument.span.start
    expectation = f"{model} takes {count} features by position"
    fixed_length = _LENGTH.search(kind)
    if fixed_length is not None and int(fixed_length[1]) != count:
        raise ArityError(f"{expectation}, but the array has {fixed_length[1]}", scope.sql, at)
    values = parenthesize(scope.text(argument.span))
    bounds: dict[str, Bound] = {}
    for position, feature in enumerate(features, 1):
        if feature.name not in used:
            continue
        bound = convert_to_feature(
            Bound(dialect.at(values, position), element_type), feature, model, scope, at
        )
        if fixed_length is None and not bounds:  # the first feature checks the length for all
            length = dialect.length(values)
            error = dialect.error(dialect.quote_string(f"{expectation}; a list has another length"))
            checked = f"CASE WHEN {length} <> {count} THEN {error} ELSE {bound.sql} END"
            bound = replace(bound, sql=checked)
        bounds[feature.name] = bound
    return bounds


def _is_single_nested(features: Sequence[Feature]) -> bool:
    """Return whether the only feature is itself a list."""
    return len(features) == 1 and features[0].kind in NESTED


def read_struct(positional: Sequence[Argument], scope: Scope) -> Available | None:
    """Return the fields of the only argument if it is a struct or a table's row; otherwise None."""
    if len(positional) != 1:
        return None
    (argument,) = positional
    literal = _read_struct_literal(argument, scope)
    if literal is not None:
        return literal
    sql = scope.text(argument.span)
    try:
        (column,) = scope.single_columns([argument.span])
    except BindError:
        return None
    fields = struct_fields(column.type)
    if fields is None:
        return None
    # The engine builds a table's row again for each field that is read, so the columns are read
    # instead. Fields of a struct column c are not read as `c.a`, which would be a column of a table
    # named c.
    is_row = _can_read_columns(argument, [field.name for field in fields], scope)
    available: Available = {}
    for field in fields:
        field_sql = scope.dialect.field(sql, field.name)
        if is_row:
            field_sql = f"{sql}.{scope.dialect.quote_name(field.name)}"
        available.setdefault(fold(field.name), []).append(Bound(field_sql, field.type))
    return available


def _can_read_columns(argument: Argument, fields: Sequence[str], scope: Scope) -> bool:
    """Return whether an argument is the row of a table whose columns can be read instead.

    They cannot if the query groups its rows by that row.
    """
    names = [word for word, _ in _identifiers_in(argument.span, scope)]
    if scope.block is None or argument.column is None or names != [argument.column]:
        return False
    group_identifiers = (
        () if scope.block.group is None else _identifiers_in(scope.block.group, scope)
    )
    for word, offset in group_identifiers:
        in_call = overlaps(Span(offset, offset + 1), scope.outline.outer_calls)
        if word == argument.column and not in_call:
            return False
    return is_row_of_table(
        scope.text(argument.span),
        argument.column,
        fields,
        scope.block,
        scope.probed,
        scope.describe,
    )


def _identifiers_in(span: Span, scope: Scope) -> Sequence[tuple[str, int]]:
    """Return the folded identifiers in a span with their offsets."""
    identifiers = scope.outline.identifiers
    first = bisect_left(identifiers, span.start, key=itemgetter(1))
    return identifiers[first : bisect_left(identifiers, span.end, key=itemgetter(1))]


def _read_struct_literal(argument: Argument, scope: Scope) -> Available | None:
    """Return the entries of `{'a': x, 'b': y}`."""
    if argument.fields is None:
        return None
    spans = [place for _, place in argument.fields]
    available: Available = {}
    for (name, place), column in zip(argument.fields, scope.single_columns(spans), strict=True):
        value = Bound(parenthesize(scope.text(place)), column.type)
        available.setdefault(fold(name), []).append(value)
    return available


def bind(
    call: ModelCall,
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
    fold_blanks: bool = False,
    missing_is_null: bool = False,
) -> dict[str, Bound]:
    """Map each feature in `used` to the expression that feeds it.

    Args:
        model: the model's name in messages.
        fold_blanks: a column also feeds the feature whose name has _ for its blanks, as LightGBM
            renames features.
        missing_is_null: a feature without a column is NULL.

    Raises:
        MissingColumnError, AmbiguousColumnError, ArityError, ColumnOrderError, ColumnTypeError,
            BindError: an argument does
        not fit a feature; the error points at the call.
    """
    named = [a for a in call.arguments if a.name is not None]
    stars = [a for a in call.arguments if a.star is not None]
    positional = [a for a in call.arguments if a.name is None and a.star is None]
    at = call.span.start
    if not call.arguments:
        if used:
            raise ArityError(
                f"{call.function} needs the features of {model}: write *, or "
                f"{_list_names(features)}",
                scope.sql,
                at,
            )
        return {}
    if named or stars:
        if positional:
            raise BindError(
                "positional arguments do not mix with * or named ones; name it, as in "
                f"{features[0].name if features else 'x'} := ..",
                scope.sql,
                positional[0].span.start,
            )
        _check_names(call, named, features, model, scope, fold_blanks)
        available = _collect_named_columns(call, named, stars, scope)
    else:
        positional = [*unwrap_list(positional, features)]
        structs = read_struct(positional, scope)
        if call.function == "predict_proba" and len(positional) == 2 and structs is None:
            _reject_class_by_position(call, positional, scope)
        if structs is None or _is_map_argument(structs, features):
            return _bind_by_position(call, positional, features, used, model, scope)
        available = structs
    if fold_blanks:
        for name, feature in features_behind_blanks(features, available).items():
            available.setdefault(fold(feature.name), []).extend(available.pop(name))
    if missing_is_null:
        for feature in features:
            available.setdefault(fold(feature.name), [Bound("NULL", UNTYPED[0])])
    return _bind_by_name(call, available, features, used, model, scope)


def find_other_columns(
    call: ModelCall, features: Sequence[Feature], scope: Scope, fold_blanks: bool = False
) -> tuple[str, ...]:
    """Return the columns of the call's stars that are not features of its model."""
    stars = [a.star for a in call.arguments if a.star is not None]
    names = dict.fromkeys(name for star in stars for name in list_star_names(star, scope))
    feature_names = {fold(f.name) for f in features}
    renamed = features_behind_blanks(features, names) if fold_blanks else {}
    return tuple(name for name in names if fold(name) not in feature_names and name not in renamed)


def _is_map_argument(structs: Available, features: Sequence[Feature]) -> bool:
    """Return whether the only struct is the map that a model of one map reads, and not a row with a
    map.
    """
    if len(features) != 1 or features[0].kind != "map":
        return False
    fields = structs.get(fold(features[0].name), [])
    return all(convert_to_json(b.sql, b.type, "map") is None for b in fields)


def _reject_class_by_position(
    call: ModelCall, positional: Sequence[Argument], scope: Scope
) -> None:
    """Raise BindError for a row and a class by position, which only the macro for plain connections
    takes.
    """
    row, last = positional
    if read_struct([row], scope) is None:
        return
    raise BindError(
        f"name the class: {call.function}(.., {scope.text(row.span)}, class := "
        f"{scope.text(last.span)})",
        scope.sql,
        last.span.start,
    )


def _check_names(
    call: ModelCall,
    named: Sequence[Argument],
    features: Sequence[Feature],
    model: str,
    scope: Scope,
    fold_blanks: bool,
) -> None:
    """Raise BindError for a named argument that is not a feature; a star may bring in other
    columns.
    """
    feature_names = {fold(f.name): f.name for f in features}
    written = [argument.name or "" for argument in named]
    renamed = features_behind_blanks(features, written) if fold_blanks else {}
    for argument, name in zip(named, written, strict=True):
        if fold(name) in feature_names or name in renamed:
            continue
        candidates = (
            [*feature_names, "class"] if call.function == "predict_proba" else [*feature_names]
        )
        close = closest(fold(name), candidates)
        suggestion = close and feature_names.get(close, close)
        hint = f"did you mean {suggestion!r}?" if suggestion else f"it has {_list_names(features)}"
        raise BindError(
            f"{model} has no feature {name!r}; {hint}",
            scope.sql,
            argument.name_start,
        )


def _collect_named_columns(
    call: ModelCall, named: Sequence[Argument], stars: Sequence[Argument], scope: Scope
) -> Available:
    available: Available = {}
    for star in stars:
        assert star.star is not None
        for name, bound in expand_star(star.star, star.span.start, scope):
            available.setdefault(fold(name), []).append(bound)
    texts = [scope.text(a.span) for a in named]
    if texts:
        columns = _describe_columns(call, named, scope)
        names: set[str] = set()
        for argument, sql, column in zip(named, texts, columns, strict=True):
            folded = fold(argument.name or "")
            if folded in names:
                offset = argument.name_start
                raise BindError(f"{argument.name} := is given twice", scope.sql, offset)
            names.add(folded)
            # A named argument overrides the columns of a star.
            available[folded] = [Bound(parenthesize(sql), column.type)]
    return available


def _bind_by_name(
    call: ModelCall,
    available: Available,
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound]:
    at = call.span.start
    missing = [f.name for f in features if f.name in used and fold(f.name) not in available]
    if missing:
        quoted = scope.dialect.quote_name(missing[0])
        message = _describe_missing(missing, sorted(available), model, quoted)
        if len(missing) == len(used) and _have_default_names(features):
            message += (
                f". A model that was fitted without names calls its columns {features[0].name}, "
                f"...: bind by position, as in {call.function}(.., a, b, ...), or name them by "
                "INPUT (...) or inputs= when you register it"
            )
        raise MissingColumnError(message, scope.sql, at)
    bound: dict[str, Bound] = {}
    for feature in features:
        if feature.name not in used:
            continue
        choices = available[fold(feature.name)]
        if len(choices) > 1:
            feature_sql, star_sql = (
                scope.dialect.quote_name(feature.name),
                scope.dialect.star_without([".."]),
            )
            raise AmbiguousColumnError(
                f"feature {feature.name!r} of {model} is ambiguous: {len(choices)} columns have "
                f"that name{_describe_owners(choices[0], scope)}; say which with "
                f"{feature_sql} := .., t.* or {star_sql}",
                scope.sql,
                at,
            )
        bound[feature.name] = convert_to_feature(choices[0], feature, model, scope, at)
    return bound


def _describe_owners(bound: Bound, scope: Scope) -> str:
    """Return ` (a.x and b.x)`, the tables of an ambiguous column as the engine names them."""
    try:
        scope.describe_items([bound.sql])
    except BindError as error:
        tables = read_candidates(error.message)
        if tables:
            return f" ({' and '.join(tables)})"
    return ""


def _describe_missing(
    missing: list[str], available_names: list[str], model: str, quoted: str
) -> str:
    descriptions = []
    for name in missing[:10]:
        close = closest(fold(name), available_names)
        descriptions.append(f"{name!r}" + (f" (did you mean {close!r}?)" if close else ""))
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    shown = ", ".join(available_names[:30]) + (", .." if len(available_names) > 30 else "")
    none = "no columns at all (is there a FROM clause?)"
    return (
        f"{model} needs {'columns' if len(missing) > 1 else 'column'} "
        f"{', '.join(descriptions)}{more}, "
        f"not among: {shown or none}; add {'them' if len(missing) > 1 else 'it'} to "
        f"the query or write {quoted} := <expression>"
    )


def _have_default_names(features: Sequence[Feature]) -> bool:
    """Return whether the features have a library's default names: a word and 0, 1, ..."""
    stem = features[0].name.removesuffix("0")
    return all(feature.name == f"{stem}{i}" for i, feature in enumerate(features))


def _bind_by_position(
    call: ModelCall,
    positional: Sequence[Argument],
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound]:
    at = call.span.start
    values = _bind_list_argument(positional, features, used, model, scope)
    if values is not None:
        return values
    if len(positional) != len(features):
        raise ArityError(
            f"{model} takes {len(features)} features by position ({_list_names(features)}), but "
            f"got {len(positional)}; write * to bind by name",
            scope.sql,
            at,
        )
    written = [a.column for a in positional]
    expected = [fold(f.name) for f in features]
    if None not in written and written != expected:
        if sorted(w for w in written if w) == sorted(expected):
            raise ColumnOrderError(
                f"these are the features of {model} in another order, which would feed them to "
                f"the wrong inputs; write {call.function}(.., *), or the order "
                f"{_list_names(features)}",
                scope.sql,
                positional[0].span.start,
            )
    texts = [scope.text(a.span) for a in positional]
    columns = _describe_columns(call, positional, scope)
    bound: dict[str, Bound] = {}
    for argument, feature, sql, column in zip(positional, features, texts, columns, strict=True):
        if feature.name in used:
            value = Bound(parenthesize(sql), column.type)
            bound[feature.name] = convert_to_feature(
                value, feature, model, scope, argument.span.start
            )
    return bound


def _bind_list_argument(
    positional: Sequence[Argument],
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound] | None:
    """Bind the only argument if it is a list of the features' values; otherwise return None."""
    if len(positional) != 1 or positional[0].literal is not None:
        return None
    try:
        (column,) = scope.single_columns([positional[0].span])
    except BindError:
        return None  # the caller reports the error
    return bind_list(positional[0], column.type, features, used, model, scope)


def _describe_columns(
    call: ModelCall, arguments: Sequence[Argument], scope: Scope
) -> tuple[Column, ...]:
    try:
        return scope.single_columns([a.span for a in arguments])
    except BindError as error:
        if error.offset is not None:
            raise
        offset = find_blamed_offset(scope.outline, error.message, call.span.start)
        raise BindError(error.message, scope.sql, offset) from None


def _list_names(features: Sequence[Feature]) -> str:
    names = [f.name for f in features]
    return ", ".join(names[:12]) + (f", .. {len(names) - 12} more" if len(names) > 12 else "")
