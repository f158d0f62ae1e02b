"""Bind a call's arguments to the features of its model: by name, by struct, or by position."""

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
from sqlml.planner.binding.column_types import Available, Bound, as_json, bracket, typed
from sqlml.planner.binding.probe_queries import Column, Scope, is_row_of_table
from sqlml.planner.binding.stars import blamed_place, meanings, star_columns, star_names
from sqlml.planner.syntax.outline import Argument, ModelCall
from sqlml.suggestions import closest
from sqlml.types import NESTED, Feature, features_behind_blanks, fold

# `list_values`: a list or array as the one argument: its elements are the features, in order.


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


# Structs as arguments: a row, a struct column, `{..}`: their fields as named columns.


def struct_columns(plain: Sequence[Argument], scope: Scope) -> Available | None:
    """The fields of the one argument that is a struct or a table's row; None when it is neither."""
    if len(plain) != 1:
        return None
    (argument,) = plain
    literal = _struct_literal(argument, scope)
    if literal is not None:
        return literal
    sql = scope.text(argument.span)
    try:
        (column,) = scope.single([argument.span])
    except BindError:
        return None
    fields = struct_fields(column.type)
    if fields is None:
        return None
    # The engine makes the row of a table anew for each field that is read of it, so its columns are
    # read instead. A struct column's fields are not read as `c.a`: where a table has the name c,
    # too, that is the table's column.
    is_row = _is_row_of_table(argument, [field.name for field in fields], scope)
    available: Available = {}
    for field in fields:
        read = scope.dialect.field(sql, field.name)
        if is_row:
            read = f"{sql}.{scope.dialect.quote_name(field.name)}"
        available.setdefault(fold(field.name), []).append(Bound(read, field.type))
    return available


def _is_row_of_table(argument: Argument, fields: Sequence[str], scope: Scope) -> bool:
    """Return whether an argument is the row of a table whose columns can be read in its place.

    They cannot where the query groups its rows by that row.
    """
    names = [word for word, _ in _words_in(argument.span, scope)]
    if scope.block is None or argument.column is None or names != [argument.column]:
        return False
    grouped = () if scope.block.group is None else _words_in(scope.block.group, scope)
    for word, at in grouped:
        in_call = overlaps(Span(at, at + 1), scope.outline.outer_calls)
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


def _words_in(place: Span, scope: Scope) -> Sequence[tuple[str, int]]:
    """Return the identifiers at a place, folded, with their places."""
    words = scope.outline.words
    first = bisect_left(words, place.start, key=itemgetter(1))
    return words[first : bisect_left(words, place.end, key=itemgetter(1))]


def _struct_literal(argument: Argument, scope: Scope) -> Available | None:
    """`{'a': x, 'b': y}`: its entries feed the features directly."""
    if argument.fields is None:
        return None
    places = [place for _, place in argument.fields]
    available: Available = {}
    for (name, place), column in zip(argument.fields, scope.single(places), strict=True):
        value = Bound(bracket(scope.text(place)), column.type)
        available.setdefault(fold(name), []).append(value)
    return available


def bind(
    call: ModelCall,
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
    blanks: bool = False,
    missing_is_null: bool = False,
) -> dict[str, Bound]:
    """Map each feature in `used` to what feeds it.

    `model` is for messages. `blanks`: a column feeds the feature that has _ for its blanks, as
    LightGBM names it. `missing_is_null`: a feature that no column has the name of is NULL.

    Raises:
        MissingColumnError, AmbiguousColumnError, ArityError, ColumnOrderError, ColumnTypeError,
        BindError: an argument does not fit a feature; the error points at the call.
    """
    named = [a for a in call.arguments if a.name is not None]
    stars = [a for a in call.arguments if a.star is not None]
    plain = [a for a in call.arguments if a.name is None and a.star is None]
    at = call.span.start
    if not call.arguments:
        if used:
            raise ArityError(
                f"{call.function} needs the features of {model}: write *, or {_listed(features)}",
                scope.sql,
                at,
            )
        return {}
    if named or stars:
        if plain:
            raise BindError(
                "positional arguments do not mix with * or named ones; name it, as in "
                f"{features[0].name if features else 'x'} := ..",
                scope.sql,
                plain[0].span.start,
            )
        _check_names(call, named, features, model, scope, blanks)
        available = _named_columns(call, named, stars, scope)
    else:
        plain = [*elements_written(plain, features)]
        structs = struct_columns(plain, scope)
        if call.function == "predict_proba" and len(plain) == 2 and structs is None:
            _check_class(call, plain, scope)
        if structs is None or _is_map(structs, features):
            return _by_position(call, plain, features, used, model, scope)
        available = structs
    if blanks:
        for name, feature in features_behind_blanks(features, available).items():
            available.setdefault(fold(feature.name), []).extend(available.pop(name))
    if missing_is_null:
        for feature in features:
            available.setdefault(fold(feature.name), [Bound("NULL", UNTYPED[0])])
    return _by_name(call, available, features, used, model, scope)


def other_columns(
    call: ModelCall, features: Sequence[Feature], scope: Scope, blanks: bool = False
) -> tuple[str, ...]:
    """Return the columns that the call's stars bring in and that are not features of its model."""
    stars = [a.star for a in call.arguments if a.star is not None]
    names = dict.fromkeys(name for star in stars for name in star_names(star, scope))
    known = {fold(f.name) for f in features}
    renamed = features_behind_blanks(features, names) if blanks else {}
    return tuple(name for name in names if fold(name) not in known and name not in renamed)


def _is_map(structs: Available, features: Sequence[Feature]) -> bool:
    """Whether the one struct is itself the map that a model of one map reads, not a row with a
    map."""
    if len(features) != 1 or features[0].kind != "map":
        return False
    fields = structs.get(fold(features[0].name), [])
    return all(as_json(b.sql, b.type, "map") is None for b in fields)


def _check_class(call: ModelCall, plain: Sequence[Argument], scope: Scope) -> None:
    """Refuse a row and a class: what the macro for plain connections takes."""
    row, last = plain
    if struct_columns([row], scope) is None:
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
    blanks: bool,
) -> None:
    """Refuse a named argument that is no feature; a star may bring in other columns."""
    have = {fold(f.name): f.name for f in features}
    written = [argument.name or "" for argument in named]
    renamed = features_behind_blanks(features, written) if blanks else {}
    for argument, name in zip(named, written, strict=True):
        if fold(name) in have or name in renamed:
            continue
        known = [*have, "class"] if call.function == "predict_proba" else [*have]
        close = closest(fold(name), known)
        near = close and have.get(close, close)
        hint = f"did you mean {near!r}?" if near else f"it has {_listed(features)}"
        raise BindError(
            f"{model} has no feature {name!r}; {hint}",
            scope.sql,
            argument.name_start,
        )


def _named_columns(
    call: ModelCall, named: Sequence[Argument], stars: Sequence[Argument], scope: Scope
) -> Available:
    available: Available = {}
    for star in stars:
        assert star.star is not None
        for name, bound in star_columns(star.star, star.span.start, scope):
            available.setdefault(fold(name), []).append(bound)
    texts = [scope.text(a.span) for a in named]
    if texts:
        columns = _columns(call, named, scope)
        seen: set[str] = set()
        for argument, sql, column in zip(named, texts, columns, strict=True):
            folded = fold(argument.name or "")
            if folded in seen:
                place = argument.name_start
                raise BindError(f"{argument.name} := is given twice", scope.sql, place)
            seen.add(folded)
            available[folded] = [Bound(bracket(sql), column.type)]  # it overrides a star
    return available


def _by_name(
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
        message = _missing(missing, sorted(available), model, quoted)
        if len(missing) == len(used) and _are_numbered(features):
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
            own, others = scope.dialect.quote_name(feature.name), scope.dialect.star_without([".."])
            raise AmbiguousColumnError(
                f"feature {feature.name!r} of {model} is ambiguous: {len(choices)} columns have "
                f"that name{_owners(choices[0], scope)}; say which with "
                f"{own} := .., t.* or {others}",
                scope.sql,
                at,
            )
        bound[feature.name] = typed(choices[0], feature, model, scope, at)
    return bound


def _owners(bound: Bound, scope: Scope) -> str:
    """ " (a.x and b.x)" as the engine itself names the tables of an ambiguous column."""
    try:
        scope.ask([bound.sql])
    except BindError as error:
        tables = meanings(error.message)
        if tables:
            return f" ({' and '.join(tables)})"
    return ""


def _missing(missing: list[str], have: list[str], model: str, quoted: str) -> str:
    parts = []
    for name in missing[:10]:
        close = closest(fold(name), have)
        parts.append(f"{name!r}" + (f" (did you mean {close!r}?)" if close else ""))
    more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
    shown = ", ".join(have[:30]) + (", .." if len(have) > 30 else "")
    none = "no columns at all (is there a FROM clause?)"
    return (
        f"{model} needs {'columns' if len(missing) > 1 else 'column'} {', '.join(parts)}{more}, "
        f"not among: {shown or none}; add {'them' if len(missing) > 1 else 'it'} to "
        f"the query or write {quoted} := <expression>"
    )


def _are_numbered(features: Sequence[Feature]) -> bool:
    """Return whether the names of features are a library's own: a word and 0, 1, ..."""
    stem = features[0].name.removesuffix("0")
    return all(feature.name == f"{stem}{i}" for i, feature in enumerate(features))


def _by_position(
    call: ModelCall,
    plain: Sequence[Argument],
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound]:
    at = call.span.start
    values = _of_list(plain, features, used, model, scope)
    if values is not None:
        return values
    if len(plain) != len(features):
        raise ArityError(
            f"{model} takes {len(features)} features by position ({_listed(features)}), but "
            f"got {len(plain)}; write * to bind by name",
            scope.sql,
            at,
        )
    written = [a.column for a in plain]
    expected = [fold(f.name) for f in features]
    if None not in written and written != expected:
        if sorted(w for w in written if w) == sorted(expected):
            raise ColumnOrderError(
                f"these are the features of {model} in another order, which would feed them to "
                f"the wrong inputs; write {call.function}(.., *), or the order {_listed(features)}",
                scope.sql,
                plain[0].span.start,
            )
    texts = [scope.text(a.span) for a in plain]
    columns = _columns(call, plain, scope)
    bound: dict[str, Bound] = {}
    for argument, feature, sql, column in zip(plain, features, texts, columns, strict=True):
        if feature.name in used:
            value = Bound(bracket(sql), column.type)
            bound[feature.name] = typed(value, feature, model, scope, argument.span.start)
    return bound


def _of_list(
    plain: Sequence[Argument],
    features: Sequence[Feature],
    used: frozenset[str],
    model: str,
    scope: Scope,
) -> dict[str, Bound] | None:
    """What feeds the features where the one argument is a list of their values; else None."""
    if len(plain) != 1 or plain[0].literal is not None:
        return None
    try:
        (column,) = scope.single([plain[0].span])
    except BindError:
        return None  # their number is wrong, or whoever binds them says what else is
    return list_values(plain[0], column.type, features, used, model, scope)


def _columns(call: ModelCall, arguments: Sequence[Argument], scope: Scope) -> tuple[Column, ...]:
    try:
        return scope.single([a.span for a in arguments])
    except BindError as error:
        if error.offset is not None:
            raise
        place = blamed_place(scope.outline, error.message, call.span.start)
        raise BindError(error.message, scope.sql, place) from None


def _listed(features: Sequence[Feature]) -> str:
    names = [f.name for f in features]
    return ", ".join(names[:12]) + (f", .. {len(names) - 12} more" if len(names) > 12 else "")
