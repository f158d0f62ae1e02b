"""Binding of a call's arguments to the features of its model: by name, struct, list or position."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    BoundInput,
    convert_to_feature,
    convert_to_json,
    parenthesize,
)
from sqlml.planner.binding.probe_queries import Column, Scope
from sqlml.planner.syntax.outline import Argument, ModelCall, Outline, Star
from sqlml.suggestions import closest
from sqlml.types import NESTED, Feature, features_behind_blanks, fold

_LENGTH = re.compile(r"\[(\d+)\]$")


def bind(
    call: ModelCall,
    features: Sequence[Feature],
    used_features: frozenset[str],
    model_label: str,
    scope: Scope,
    fold_blanks: bool = False,
    missing_is_null: bool = False,
) -> dict[str, BoundInput]:
    """Bind each feature in `used_features` to the expression that feeds it.

    Raises a BindError that points at the call if an argument does not fit a feature.

    Args:
        model_label: the model's name in messages.
        fold_blanks: a column also feeds the feature whose name has _ where the column's name has
            blanks, since LightGBM renames features in this way.
        missing_is_null: a feature without a column is NULL instead of an error.
    """
    binder = _Binder(call, features, used_features, model_label, scope, fold_blanks)
    if not call.arguments:
        if used_features:
            message = f"{call.function} needs the features of {model_label}: write *, or "
            raise ArityError(message + _list_names(features), scope.sql, call.span.start)
        return {}
    named_arguments = [a for a in call.arguments if a.name is not None]
    stars = [a for a in call.arguments if a.star is not None]
    positional = [a for a in call.arguments if a.name is None and a.star is None]
    if named_arguments or stars:
        if positional:
            raise BindError(
                "positional arguments do not mix with * or named arguments; name this one, as in "
                f"{features[0].name if features else 'x'} := ..",
                scope.sql,
                positional[0].span.start,
            )
        binder.check_names(named_arguments)
        available = binder.collect_columns(named_arguments, stars)
    else:
        if len(positional) == 1 and positional[0].items is not None and not binder.is_nested:
            positional = list(positional[0].items)  # f('m', [a, b]) means f('m', a, b)
        fields = _read_struct(positional, scope)
        if call.function == "predict_proba" and len(positional) == 2 and fields is None:
            _reject_class_by_position(call, positional, scope)
        if fields is None or binder.is_map_argument(fields):
            return binder.bind_by_position(positional)
        available = fields
    if fold_blanks:
        for name, feature in features_behind_blanks(features, available).items():
            available.setdefault(fold(feature.name), []).extend(available.pop(name))
    if missing_is_null:
        for feature in features:
            available.setdefault(fold(feature.name), [BoundInput("NULL", UNTYPED[0])])
    return binder.bind_by_name(available)


def find_other_columns(
    call: ModelCall, features: Sequence[Feature], scope: Scope, fold_blanks: bool = False
) -> tuple[str, ...]:
    """Return the names of the columns that stars in `call` select and that are not features."""
    stars = [a.star for a in call.arguments if a.star is not None]
    columns = (c for star in stars for c in _describe_star(star, star.select.start, scope))
    names = dict.fromkeys(column.name for column in columns)
    feature_names = {fold(f.name) for f in features}
    renamed = features_behind_blanks(features, names) if fold_blanks else {}
    return tuple(name for name in names if fold(name) not in feature_names and name not in renamed)


def _read_struct(positional: Sequence[Argument], scope: Scope) -> Available | None:
    """Return the fields of a lone argument that is a struct or a table's row, or else None."""
    if len(positional) != 1:
        return None
    (argument,) = positional
    available: Available = {}
    if argument.fields is not None:  # {'a': x, 'b': y}
        columns = scope.describe_values([span for _, span in argument.fields])
        for (name, span), column in zip(argument.fields, columns, strict=True):
            value = BoundInput(parenthesize(scope.text(span)), column.type)
            available.setdefault(fold(name), []).append(value)
        return available
    try:
        (column,) = scope.describe_values([argument.span])
    except BindError:
        return None
    fields = struct_fields(column.type)
    if fields is None:
        return None
    # The engine builds a table's row again for each field that is read, so the columns are read
    # instead. Fields of a struct column c are not read as `c.a`, which would be a column of a table
    # named c.
    sql, dialect = scope.text(argument.span), scope.dialect
    is_row = _can_read_columns(argument, [field.name for field in fields], scope)
    for field in fields:
        column_sql = f"{sql}.{dialect.quote_name(field.name)}"
        field_sql = column_sql if is_row else dialect.field(sql, field.name)
        available.setdefault(fold(field.name), []).append(BoundInput(field_sql, field.type))
    return available


def _can_read_columns(argument: Argument, fields: Sequence[str], scope: Scope) -> bool:
    """Return whether an argument is a table's row by which no query around it groups."""
    block, name = scope.block, argument.column
    if block is None or name is None:
        return False
    if [word for word, _ in _find_identifiers(argument.span, scope)] != [name]:
        return False
    while block is not None:
        for word, offset in () if block.group is None else _find_identifiers(block.group, scope):
            is_in_call = overlaps(Span(offset, offset + 1), scope.outline.outer_calls)
            if word == name and not is_in_call and not _QUALIFIER.match(scope.sql, offset):
                return False
        block = block.parent
    return scope.is_row_of_table(scope.text(argument.span), name, fields)


_QUALIFIER = re.compile(r'(?:\w+|"(?:[^"]|"")*"|`(?:[^`]|``)*`)\s*\.')


def _find_identifiers(span: Span, scope: Scope) -> Sequence[tuple[str, int]]:
    identifiers = scope.outline.identifiers
    first_index = bisect_left(identifiers, span.start, key=itemgetter(1))
    return identifiers[first_index : bisect_left(identifiers, span.end, key=itemgetter(1))]


def _reject_class_by_position(call: ModelCall, arguments: list[Argument], scope: Scope) -> None:
    """Raise BindError for a row and a class. Only macros accept a class by position."""
    if _read_struct(arguments[:1], scope) is not None:
        row_sql, class_sql = (scope.text(argument.span) for argument in arguments)
        message = f"name the class: {call.function}(.., {row_sql}, class := {class_sql})"
        raise BindError(message, scope.sql, arguments[1].span.start)


@dataclass(frozen=True, slots=True)
class _Binder:
    """A binder of the arguments of one call. The attributes are the arguments of `bind`."""

    call: ModelCall
    features: Sequence[Feature]
    used_features: frozenset[str]
    model_label: str
    scope: Scope
    fold_blanks: bool

    @property
    def is_nested(self) -> bool:
        """True if the only feature is itself a list or a map."""
        return len(self.features) == 1 and self.features[0].kind in NESTED

    def is_map_argument(self, fields: Available) -> bool:
        """Return whether a struct with `fields` is a value of the only feature, which is a map."""
        if len(self.features) != 1 or self.features[0].kind != "map":
            return False
        bound_inputs = fields.get(fold(self.features[0].name), [])
        return all(convert_to_json(b.sql, b.type, "map") is None for b in bound_inputs)

    def check_names(self, arguments: Sequence[Argument]) -> None:
        """Raise BindError for a named argument that is not a feature."""
        feature_names = {fold(f.name): f.name for f in self.features}
        written_names = [argument.name or "" for argument in arguments]
        renamed = features_behind_blanks(self.features, written_names) if self.fold_blanks else {}
        for argument, name in zip(arguments, written_names, strict=True):
            if fold(name) in feature_names or name in renamed:
                continue
            extra_names = ["class"] if self.call.function == "predict_proba" else []
            suggestion = closest(fold(name), [*feature_names, *extra_names])
            hint = f"it has {_list_names(self.features)}"
            if suggestion:
                hint = f"did you mean {feature_names.get(suggestion, suggestion)!r}?"
            message = f"{self.model_label} has no feature {name!r}; {hint}"
            raise BindError(message, self.scope.sql, argument.name_start)

    def collect_columns(
        self, arguments: Sequence[Argument], stars: Sequence[Argument]
    ) -> Available:
        """Return the columns of `stars`, replaced by `arguments` of the same names."""
        scope, available = self.scope, Available()
        for argument in stars:
            assert argument.star is not None
            for name, bound in _expand_star(argument.star, argument.span.start, scope):
                available.setdefault(fold(name), []).append(bound)
        given_names: set[str] = set()
        columns = self.describe_columns(arguments) if arguments else ()
        for argument, column in zip(arguments, columns, strict=True):
            name = fold(argument.name or "")
            if name in given_names:
                message = f"{argument.name} := is given twice"
                raise BindError(message, scope.sql, argument.name_start)
            given_names.add(name)
            available[name] = [BoundInput(parenthesize(scope.text(argument.span)), column.type)]
        return available

    def describe_columns(self, arguments: Sequence[Argument]) -> tuple[Column, ...]:
        """Return the column of each argument, or raise BindError at an unknown name."""
        scope = self.scope
        try:
            return scope.describe_values([argument.span for argument in arguments])
        except BindError as error:
            if error.offset is not None:
                raise
            offset = _find_unknown_name(scope.outline, error.message, self.call.span.start)
            raise BindError(error.message, scope.sql, offset) from None

    def bind_by_name(self, available: Available) -> dict[str, BoundInput]:
        """Bind each used feature to the only column of that name, or raise BindError."""
        scope, offset = self.scope, self.call.span.start
        read_features = [feature for feature in self.features if feature.name in self.used_features]
        missing_names = [f.name for f in read_features if fold(f.name) not in available]
        if missing_names:
            message = self.describe_missing(missing_names, sorted(available))
            raise MissingColumnError(message, scope.sql, offset)
        bound_inputs: dict[str, BoundInput] = {}
        for feature in read_features:
            column, *other_columns = available[fold(feature.name)]
            if other_columns:
                candidates = " and ".join(_find_candidates(column, scope))
                candidates_text = f" ({candidates})" if candidates else ""
                raise AmbiguousColumnError(
                    f"feature {feature.name!r} of {self.model_label} is ambiguous: "
                    f"{len(other_columns) + 1} columns have that name"
                    f"{candidates_text}; say which with "
                    f"{scope.dialect.quote_name(feature.name)} := .., t.* or "
                    f"{scope.dialect.star_without(['..'])}",
                    scope.sql,
                    offset,
                )
            bound_inputs[feature.name] = convert_to_feature(
                column, feature, self.model_label, scope, offset
            )
        return bound_inputs

    def describe_missing(self, missing_names: list[str], available_names: list[str]) -> str:
        descriptions = []
        for name in missing_names[:10]:
            suggestion = closest(fold(name), available_names)
            hint = f" (did you mean {suggestion!r}?)" if suggestion else ""
            descriptions.append(f"{name!r}{hint}")
        omitted = f" and {len(missing_names) - 10} more" if len(missing_names) > 10 else ""
        noun, pronoun = ("columns", "them") if len(missing_names) > 1 else ("column", "it")
        shown_names = ", ".join(available_names[:30]) + ", .." * (len(available_names) > 30)
        message = (
            f"{self.model_label} needs {noun} {', '.join(descriptions)}{omitted}, not among: "
            f"{shown_names or 'no columns at all (is there a FROM clause?)'}; add {pronoun} to the "
            f"query or write {self.scope.dialect.quote_name(missing_names[0])} := <expression>"
        )
        first_feature = self.features[0].name
        prefix = first_feature.removesuffix("0")
        has_default_names = all(f.name == f"{prefix}{i}" for i, f in enumerate(self.features))
        if len(missing_names) < len(self.used_features) or not has_default_names:
            return message
        return (
            f"{message}. A model that was fitted without names calls its columns {first_feature}, "
            f"...: bind by position, as in {self.call.function}(.., a, b, ...), or name them by "
            "INPUT (...) or inputs= when you register it"
        )

    def bind_by_position(self, positional: Sequence[Argument]) -> dict[str, BoundInput]:
        """Bind the used features to arguments in the same order, or to the elements of one list."""
        features, scope = self.features, self.scope
        list_inputs = self.bind_list(positional[0]) if len(positional) == 1 else None
        if list_inputs is not None:
            return list_inputs
        if len(positional) != len(features):
            message = (
                f"{self.model_label} takes {len(features)} features by position "
                f"({_list_names(features)}), but got {len(positional)}; write * to bind by name"
            )
            raise ArityError(message, scope.sql, self.call.span.start)
        written_names = [a.column for a in positional]
        expected_names = [fold(f.name) for f in features]
        if None not in written_names and written_names != expected_names:
            if sorted(name for name in written_names if name) == sorted(expected_names):
                raise ColumnOrderError(
                    f"these are the features of {self.model_label} in another order, which would "
                    f"feed them to the wrong inputs; write {self.call.function}(.., *), or the "
                    f"order {_list_names(features)}",
                    scope.sql,
                    positional[0].span.start,
                )
        columns = self.describe_columns(positional)
        bound_inputs: dict[str, BoundInput] = {}
        for argument, feature, column in zip(positional, features, columns, strict=True):
            if feature.name in self.used_features:
                value = BoundInput(parenthesize(scope.text(argument.span)), column.type)
                offset = argument.span.start
                bound = convert_to_feature(value, feature, self.model_label, scope, offset)
                bound_inputs[feature.name] = bound
        return bound_inputs

    def bind_list(self, argument: Argument) -> dict[str, BoundInput] | None:
        """Bind the used features to the elements of a list, or return None for other arguments.

        A NULL list makes each feature NULL. An array of the wrong length raises ArityError, and a
        list of the wrong length fails when it is scored.
        """
        scope, dialect, offset = self.scope, self.scope.dialect, argument.span.start
        if argument.literal is not None or self.is_nested:
            return None
        try:
            (column,) = scope.describe_values([argument.span])
        except BindError:
            return None  # The caller reports the error.
        element_type = element(column.type)
        if element_type is None:
            return None
        feature_count = len(self.features)
        expectation = f"{self.model_label} takes {feature_count} features by position"
        fixed_length = _LENGTH.search(column.type)
        if fixed_length is not None and int(fixed_length[1]) != feature_count:
            message = f"{expectation}, but the array has {fixed_length[1]}"
            raise ArityError(message, scope.sql, offset)
        list_sql = parenthesize(scope.text(argument.span))
        bound_inputs: dict[str, BoundInput] = {}
        for position, feature in enumerate(self.features, 1):
            if feature.name not in self.used_features:
                continue
            list_element = BoundInput(dialect.at(list_sql, position), element_type)
            bound = convert_to_feature(list_element, feature, self.model_label, scope, offset)
            # The first feature checks the length for all.
            if fixed_length is None and not bound_inputs:
                message = dialect.quote_string(f"{expectation}; a list has another length")
                length_test = f"{dialect.length(list_sql)} <> {feature_count}"
                sql = f"CASE WHEN {length_test} THEN {dialect.error(message)} ELSE {bound.sql} END"
                bound = replace(bound, sql=sql)
            bound_inputs[feature.name] = bound
        return bound_inputs


def _find_candidates(bound: BoundInput, scope: Scope) -> list[str]:
    """Return the columns that the engine suggests, such as `a.x` and `b.x` for an ambiguous `x`."""
    try:
        scope.describe_items([bound.sql])
    except BindError as error:
        return _read_candidates(error.message)
    return []


def _list_names(features: Sequence[Feature]) -> str:
    names = [f.name for f in features]
    return ", ".join(names[:12]) + (f", .. {len(names) - 12} more" if len(names) > 12 else "")


def _expand_star(star: Star, offset: int, scope: Scope) -> list[tuple[str, BoundInput]]:
    """Return the name and the expression of each column of a star. Errors point at `offset`."""
    qualifier = "" if star.qualifier is None else scope.text(star.qualifier)
    columns = []
    for column in _describe_star(star, offset, scope):
        folded_name = fold(column.name)
        if folded_name in star.replaced:
            column_sql = parenthesize(scope.text(star.replaced[folded_name]))
        elif folded_name in star.renamed:
            column_sql = qualifier + scope.text(star.renamed[folded_name])
        else:
            column_sql = qualifier + scope.dialect.quote_name(column.name)
        columns.append((column.name, BoundInput(column_sql, column.type)))
    if any("." in excluded for excluded in star.excluded) and not qualifier:
        return [(name, _qualify_ambiguous(bound, scope, star.excluded)) for name, bound in columns]
    return columns


def _describe_star(star: Star, offset: int, scope: Scope) -> tuple[Column, ...]:
    try:
        (columns,) = scope.describe_spans([star.select])
    except BindError as error:
        if scope.block is None or not (scope.block.sources or scope.block.parent):
            message = "* needs a FROM clause here; name the features, as in tenure := 12"
            raise BindError(message, scope.sql, offset) from None
        offset = _find_unknown_name(scope.outline, error.message, offset)
        raise BindError(error.message, scope.sql, offset) from None
    return columns


def _qualify_ambiguous(bound: BoundInput, scope: Scope, excluded: frozenset[str]) -> BoundInput:
    """Qualify an ambiguous column with its table, such as `id` after `* EXCLUDE (b.id)`."""
    for candidate in _find_candidates(bound, scope):
        if fold(candidate) not in excluded:
            qualified_sql = ".".join(map(scope.dialect.quote_name, candidate.split(".")))
            return BoundInput(qualified_sql, bound.type)
    return bound


_UNKNOWN_NAME_ERROR = re.compile(
    r'with name "?([^"\s]+)"? does not exist|Referenced (?:column|table) "([^"]+)" not found'
    r'|does not have a column named "([^"]+)"|with name `([^`]+)` cannot be resolved'
)
"""A part of the engine's messages about unknown names, with a group for the name."""


def _find_unknown_name(outline: Outline, message: str, offset: int) -> int:
    """Return the offset of the name that the engine's `message` calls unknown.

    If the name occurs several times, return the first occurrence at or after `offset`, or else the
    last occurrence. If the message or the statement lacks the name, return `offset`.
    """
    match = _UNKNOWN_NAME_ERROR.search(message)
    if match is None:
        return offset
    name = fold(next(group for group in match.groups() if group is not None).split(".")[-1])
    offsets = [start for word, start in outline.identifiers if word == name] or [offset]
    return next((start for start in offsets if start >= offset), offsets[-1])


_CANDIDATE = re.compile(r"""["']([^"'\s]+\.[^"'\s]+)["']|((?:`[^`]+`\.)+`[^`]+`)""")
"""A candidate in an engine's error such as (use: 'a.id' or 'b.id'), in any kind of quotes."""


def _read_candidates(message: str) -> list[str]:
    """Return the columns that the engine's `message` suggests instead of an ambiguous name.

    >>> _read_candidates("could be: [`c`.`a`, `x`.`a`]"), _read_candidates('use: "c.a" or "x.a"')
    (['c.a', 'x.a'], ['c.a', 'x.a'])
    """
    return [(a or b).replace("`", "") for a, b in _CANDIDATE.findall(message)]
