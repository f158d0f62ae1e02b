"""The columns that a model learns from: those of the query, or of TRANSFORM, and parts of them.

Dates become numbers (`date_parts`), and lists, maps and structs become columns (`flatten`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import duckdb

from sqlml.catalog.model import Transform
from sqlml.catalog.row_expressions import RowExpression, is_storable_text
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.training.transform.fitted_rows import FittedRows, check_time_zones
from sqlml.training.transform.transform_items import Named, transform_items
from sqlml.types import fold

_DAYS = ("year", "month", "day", "dayofweek")
_HOURS = ("hour", "minute")
_SINCE = ("epoch",)

DATE_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DATE": (*_DAYS, *_SINCE),
        "TIMESTAMP": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_S": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_MS": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_NS": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP WITH TIME ZONE": (*_DAYS, *_HOURS, *_SINCE),
        "TIME": (*_HOURS, "second"),
        "INTERVAL": _SINCE,
    }
)
"""Type -> the engine's functions that return its numbers; `epoch` is in seconds, since 1970 for
dates."""


def date_parts(name: str, column: RowExpression) -> list[tuple[str, RowExpression]]:
    """Return the name and expression of each numeric part of a date, time or interval, or nothing.

    Args:
        made: reads the date, with its type in the engine.
    """
    sql, inputs, kind = column.sql, column.columns, column.type
    if kind == "TIMESTAMP WITH TIME ZONE":  # Ignore the time zone of the session.
        sql = f"{builtin('timezone')}('UTC', {sql})"
    return [
        (
            f"{name}_{part}",
            RowExpression(
                f"{builtin(part)}({sql})", inputs, "DOUBLE" if part == "epoch" else "INTEGER"
            ),
        )
        for part in DATE_PARTS.get(kind, ())
    ]


MAX_ITEMS = 100
"""Upper bound on list entries or map keys that become columns, the most frequent ones."""

MAX_PARTS = 4096
"""Upper bound on the parts of a column; one with more is left out."""

FlatPart = tuple[str, str, RowExpression]
"""Name, type and expression of a column."""


def flatten(rows: FittedRows, name: str, column: RowExpression) -> list[FlatPart]:
    """Return the parts of a nested column, recursively; none of other columns.

    Parts are the numbers of an array, or of lists that all have the same length; a BOOLEAN for each
    of the most frequent entries of lists of names; the values of the most frequent keys of a map, 0
    or NULL without the key; and the fields of a struct.

    Args:
        made: reads the column, with its type in the engine.
    """
    if not _NESTED.search(column.type):
        return []
    kind = duckdb.sqltype(column.type)
    parts = _FLATTENERS.get(kind.id, _flatten_nothing)(rows, column, kind)
    flat: list[FlatPart] = []
    for suffix, sql, type_name in parts:
        part = RowExpression(sql, column.columns, type_name)
        part_name = f"{name}_{suffix}"
        flat += flatten(rows, part_name, part) or [(part_name, type_name, part)]
        if len(flat) > MAX_PARTS:
            return []
    return flat


_NESTED = re.compile(r"\]$|^(MAP|STRUCT)\(", re.DOTALL)

_NestedParts = Iterator[tuple[str, str, str]]
"""Name suffix, expression and type of each part."""


def _flatten_nothing(rows: FittedRows, column: RowExpression, kind: Any) -> _NestedParts:
    return iter(())


def _flatten_items(column: RowExpression, count: int, child: str) -> _NestedParts:
    for position in range(1, count + 1 if count <= MAX_PARTS else 0):
        yield str(position), f"{builtin('array_extract')}({column.sql}, {position})", child


def _flatten_array(rows: FittedRows, column: RowExpression, kind: Any) -> _NestedParts:
    (_, child), (_, size) = kind.children
    return _flatten_items(column, size, str(child))


def _flatten_list(rows: FittedRows, column: RowExpression, kind: Any) -> _NestedParts:
    child = str(kind.children[0][1])
    if NUMBERS.fullmatch(child):
        length = f"{builtin('len')}({_over_columns(column)})"
        least, most = rows.ask(f"{builtin('min')}({length}), {builtin('max')}({length})")
        yield from _flatten_items(column, (least or 0) if least == most else 0, child)
    elif _is_category(child):
        texts = f"CAST({column.sql} AS VARCHAR[])"
        for text in _find_frequent(rows, _over_columns(column)):
            contains = f"{builtin('list_contains')}({texts}, {DUCKDB.quote_string(text)})"
            yield text, contains, "BOOLEAN"


def _flatten_map(rows: FittedRows, column: RowExpression, kind: Any) -> _NestedParts:
    (_, key), (_, value) = kind.children
    value = str(value)
    if not _is_category(str(key)) or not (NUMBERS.fullmatch(value) or _is_category(value)):
        return
    keys = f"{builtin('map_keys')}({_over_columns(column)})"
    for text in _find_frequent(rows, keys):
        key_value = f"CAST({DUCKDB.quote_string(text)} AS {key})"
        expression = f"{builtin('map_extract_value')}({column.sql}, {key_value})"
        if NUMBERS.fullmatch(value):  # A missing key is 0, as in scikit-learn's DictVectorizer.
            zero = f"CASE WHEN {column.sql} IS NOT NULL THEN CAST(0 AS {value}) END"
            expression = f"COALESCE({expression}, {zero})"
        yield text, expression, value


def _flatten_struct(rows: FittedRows, column: RowExpression, kind: Any) -> _NestedParts:
    for field, child in kind.children:
        if not field or not is_storable_text(field):
            continue
        name = DUCKDB.quote_string(field)
        yield field, f"{builtin('struct_extract')}({column.sql}, {name})", str(child)


_FLATTENERS: Mapping[str, Callable[[FittedRows, RowExpression, Any], _NestedParts]] = (
    MappingProxyType(
        {
            "array": _flatten_array,
            "list": _flatten_list,
            "map": _flatten_map,
            "struct": _flatten_struct,
        }
    )
)
"""Kind of type -> the function that returns its parts."""


def _find_frequent(rows: FittedRows, lists: str) -> list[str]:
    """Return the most frequent entries of lists, sorted."""
    entries = rows.most_frequent(f"CAST({lists} AS VARCHAR[])", MAX_ITEMS)
    return sorted(text for text in entries if is_storable_text(text))


def _is_category(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM(")


def _over_columns(expression: RowExpression) -> str:
    """Return the expression over the columns of the query."""
    return expression.to_sql({name: DUCKDB.quote_name(name) for name in expression.columns})


Role = Literal["number", "category"]
"""The role of a feature: a number with NaN for NULL, or a category, in which NULL is a name of its
own or missing, as the estimator requires."""

_WIDE_NUMBERS = re.compile(r"DECIMAL\(.*\)|U?HUGEINT|UBIGINT|BIGNUM|VARINT")
"""Numbers without a numpy type or a pandas column."""

_ORDERED_TYPES = re.compile(rf"{NUMBERS.pattern}|VARCHAR|DATE|TIME.*")
"""Types whose largest values can be held out."""

_CATEGORY_TYPES = re.compile(r"(VARCHAR( COLLATE \w+)?|ENUM\(.*\)|UUID)", re.DOTALL)
_TEXT_LABELS = re.compile(
    r"(DATE|UUID|TIMESTAMP( WITH TIME ZONE)?|ENUM\(.*\)|VARCHAR.*)", re.DOTALL
)
"""Types of labels that are stored as texts."""


@dataclass(frozen=True, slots=True)
class TrainingColumn:
    """A column of the query, or one that is computed from columns.

    type: in the engine. role: None if the model does not learn from it. expression: computes it;
    None for a column of the query.
    """

    name: str
    type: str
    role: Role | None
    expression: RowExpression | None = None

    @property
    def sql(self) -> str:
        """The expression that reads the column."""
        expression = DUCKDB.quote_name(self.name)
        if self.expression is not None:
            expression = self.expression.to_typed_sql(
                {c: DUCKDB.quote_name(c) for c in self.expression.columns}
            )
        if self.role is None:
            return expression
        if self.type == "BOOLEAN":
            return f"CAST({expression} AS UTINYINT)"
        if _WIDE_NUMBERS.fullmatch(self.type):
            return f"CAST({expression} AS DOUBLE)"
        if self.role == "category" and self.type == "UUID":
            return f"CAST({expression} AS VARCHAR)"
        return expression


@dataclass(frozen=True, slots=True)
class TrainingColumns:
    """The columns of a training query.

    raw: its columns, name -> type. features: the model learns from them, in the order of the query
    or of TRANSFORM. left_out: columns that are not learned from, though no option names them.
    label: the column or expression of the label; None without one.
    """

    raw: Mapping[str, str]
    features: tuple[TrainingColumn, ...]
    left_out: tuple[TrainingColumn, ...]
    label: TrainingColumn | None

    def transform(self, features: Sequence[str]) -> Transform | None:
        """Return how the used features are computed; None if all of them are columns."""
        used = [column for column in self.features if column.name in features]
        expressions = {c.name: c.expression for c in used if c.expression is not None}
        if not expressions:
            return None
        read = {c.name for c in used if c.expression is None}
        read.update(name for expression in expressions.values() for name in expression.columns)
        return Transform(tuple(name for name in self.raw if name in read), expressions)

    def drop_expressions(self) -> TrainingColumns:
        """Return the columns without features that are computed; their columns are left out."""
        features = tuple(c for c in self.features if c.expression is None)
        computed_from = {
            n for c in self.features if c.expression is not None for n in c.expression.columns
        }
        dropped = tuple(
            TrainingColumn(name, self.raw[name], None) for name in self.raw if name in computed_from
        )
        return replace(self, features=features, left_out=(*self.left_out, *dropped))

    def fill_texts(self, names: Sequence[str]) -> TrainingColumns:
        """Return the columns with an empty text instead of NULL in some features."""
        features = []
        for column in self.features:
            if column.name in names:
                expression = column.expression or RowExpression(
                    "sqlml_raw_0", (column.name,), "VARCHAR"
                )
                filled = RowExpression(
                    f"COALESCE({expression.sql}, '')", expression.columns, "VARCHAR"
                )
                column = replace(column, expression=filled)
            features.append(column)
        return replace(self, features=tuple(features))


def read_columns(
    host: RowHost, query: str, request: Request, transform: Sequence[str] | None
) -> tuple[TrainingColumns, Request]:
    """Return the columns of a query, and the request with their names spelled as in the query.

    Args:
        transform: the items of TRANSFORM (...).

    Raises:
        ConfigError: two columns have the same name, or a type does not suit an option.
        MissingColumnError: the query lacks the label, or another column that options name.
        ParseError: the query is invalid, or TRANSFORM contains something other than row
            expressions.
    """
    described = host.describe(query)
    counted = Counter(fold(name) for name, _ in described)
    duplicate = next((name for name, _ in described if counted[fold(name)] > 1), None)
    if duplicate is not None:
        raise ConfigError(
            f"the query has several columns {duplicate!r}; give each a different name with AS"
        )
    raw = dict(described)
    rows = FittedRows(host, query, raw, request)
    columns = _list_columns(rows, transform)
    names = {fold(c.name): c.name for c in columns} | {fold(name): name for name in raw}
    request = request.with_columns(names)
    _check_types(raw, request)
    others = request.other_columns
    features = [c for c in columns if c.name not in others]
    _check_names(features)
    label = next((c for c in columns if c.name == request.label), None)
    if label is None and request.label is not None:
        label = TrainingColumn(request.label, raw[request.label], None)
    learned = tuple(column for column in features if column.role)
    left_out = tuple(column for column in features if not column.role)
    return TrainingColumns(raw, learned, left_out, label), request


def _check_types(raw: Mapping[str, str], request: Request) -> None:
    """Reject columns whose types do not suit the options that name them.

    Raises:
        ConfigError: weights are not numbers, or a split is by a type without order.
    """
    weight, split = raw.get(request.weight or ""), request.split
    is_valid = weight in (None, *UNTYPED) or (
        weight != "BOOLEAN" and NUMBERS.fullmatch(str(weight))
    )
    if not is_valid:
        raise ConfigError(
            f"option weight takes a column of numbers, and {request.weight!r} is {weight}"
        )
    split_type = raw.get(split.column or "")
    if (
        split.method == "seq"
        and split_type is not None
        and not _ORDERED_TYPES.fullmatch(split_type)
    ):
        raise ConfigError(
            "split 'seq' takes a column of numbers, texts, dates or times, and "
            f"{split.column!r} is {split_type}"
        )


def _check_names(columns: Sequence[TrainingColumn]) -> None:
    counted = Counter(fold(column.name) for column in columns)
    duplicate = next((c.name for c in columns if counted[fold(c.name)] > 1), None)
    if duplicate is not None:
        raise ConfigError(
            f"two features would be called {duplicate!r}; give one another name with AS"
        )


def _list_columns(rows: FittedRows, transform: Sequence[str] | None) -> list[TrainingColumn]:
    """Return all columns to learn from, and those that options name."""
    raw, named = rows.columns, {fold(name) for name in rows.request.other_columns}
    if transform is None:
        items: list[Named] = [(name, None) for name in raw]
    else:
        items = transform_items(rows, transform, named)
    columns: list[TrainingColumn] = []
    expressions = [e for _, e in items if e is not None]
    types = iter(rows.types(expressions))
    check_time_zones(rows, {name: e for name, e in items if e is not None})
    taken = {fold(name) for name, _ in items}
    for name, expression in items:
        kind = raw[name] if expression is None else next(types)
        if expression is not None:
            expression = RowExpression(expression.sql, expression.columns, _stored_type(kind))
        column = TrainingColumn(name, kind, _role_of(kind), expression)
        if fold(name) in named or column.role:
            columns.append(column)
            continue
        for part in _split_column(rows, column):
            columns.append(
                part if part is column else replace(part, name=_unique_name(part.name, taken))
            )
    return columns


def _unique_name(name: str, taken: set[str]) -> str:
    """Return a name with a number appended if it is taken, since keys of a map may differ in case
    only."""
    unique, number = name, 2
    while fold(unique) in taken:
        unique, number = f"{name}_{number}", number + 1
    taken.add(fold(unique))
    return unique


def _split_column(rows: FittedRows, column: TrainingColumn) -> list[TrainingColumn]:
    """Return the parts of a column: of nested values, of dates, and of dates in nested values.

    The column itself is returned if it has no parts.
    """
    name, kind = column.name, column.type
    expression = column.expression or RowExpression("sqlml_raw_0", (name,), kind)
    whole = RowExpression(expression.sql, expression.columns, kind)
    parts: list[TrainingColumn] = []
    for part_name, part_type, part in flatten(rows, name, whole) or [(name, kind, whole)]:
        dates = date_parts(part_name, part)
        parts += [TrainingColumn(n, date.type, "number", date) for n, date in dates]
        if not dates and part is not whole:
            stored = RowExpression(part.sql, part.columns, _stored_type(part_type))
            parts.append(TrainingColumn(part_name, part_type, _role_of(part_type), stored))
    return parts or [column]


def _stored_type(kind: str) -> str:
    """Return the type of an expression as it is stored: categories are texts."""
    return "VARCHAR" if _CATEGORY_TYPES.fullmatch(kind) else kind


def _role_of(kind: str) -> Role | None:
    if NUMBERS.fullmatch(kind):
        return "number"
    return "category" if _CATEGORY_TYPES.fullmatch(kind) else None


def label_sql(label: TrainingColumn, request: Request) -> str:
    """Return the expression that reads the label.

    Raises:
        ConfigError: the type of the label does not suit the type of model.
    """
    sql, kind = TrainingColumn(label.name, label.type, None, label.expression).sql, label.type
    if request.task != "classify":
        if not NUMBERS.fullmatch(kind):
            raise ConfigError(
                f"{request.model_type} models predict numbers, and column {label.name!r} has type "
                f"{kind}"
            )
        return f"CAST({sql} AS DOUBLE)"
    if kind == "BOOLEAN" or re.fullmatch(r"U?(TINYINT|SMALLINT|INTEGER)|BIGINT", kind):
        return sql
    if _WIDE_NUMBERS.fullmatch(kind):
        return _cast_exactly(sql, label)
    if NUMBERS.fullmatch(kind):
        return f"CAST({sql} AS DOUBLE)"
    if _TEXT_LABELS.fullmatch(kind):
        return f"CAST({sql} AS VARCHAR)"
    if kind in UNTYPED:
        raise ConfigError(f"all values of the label {label.name!r} are NULL")
    raise ConfigError(
        f"classes cannot have type {kind}; cast column {label.name!r} to VARCHAR in the query"
    )


def _cast_exactly(sql: str, label: TrainingColumn) -> str:
    """Cast a wide number to a DOUBLE that must hold all of its digits."""
    message = DUCKDB.text(
        f"the label {label.name!r} has values with more digits than a DOUBLE holds; cast it to "
        "VARCHAR in the query"
    )
    number = f"CAST({sql} AS DOUBLE)"
    failed = f"CAST({DUCKDB.error(message)} AS DOUBLE)"
    return f"CASE WHEN {sql} = CAST({number} AS {label.type}) THEN {number} ELSE {failed} END"
