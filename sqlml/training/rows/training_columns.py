"""The columns that a model learns from: columns of the query or TRANSFORM, and their parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from sqlml.training.transform.transform_items import NamedFeature, transform_items
from sqlml.types import fold

_DAY_FUNCTIONS = ("year", "month", "day", "dayofweek", "epoch")
_TIMESTAMP_FUNCTIONS = ("year", "month", "day", "dayofweek", "hour", "minute", "epoch")

DATE_PARTS: Mapping[str, tuple[str, ...]] = {
    "DATE": _DAY_FUNCTIONS,
    "TIMESTAMP": _TIMESTAMP_FUNCTIONS,
    "TIMESTAMP_S": _TIMESTAMP_FUNCTIONS,
    "TIMESTAMP_MS": _TIMESTAMP_FUNCTIONS,
    "TIMESTAMP_NS": _TIMESTAMP_FUNCTIONS,
    "TIMESTAMP WITH TIME ZONE": _TIMESTAMP_FUNCTIONS,
    "TIME": ("hour", "minute", "second"),
    "INTERVAL": ("epoch",),
}
"""Maps each type to the engine's functions for its numeric parts. `epoch` is in seconds."""


NamedPart = tuple[str, RowExpression]


def list_date_parts(name: str, column: RowExpression) -> list[NamedPart]:
    """Return the name and expression of each numeric part of a date, time or interval."""
    sql = column.sql
    if column.type == "TIMESTAMP WITH TIME ZONE":  # Ignore the time zone of the session.
        sql = f"{builtin('timezone')}('UTC', {sql})"
    parts = []
    for part_name in DATE_PARTS.get(column.type, ()):
        result_type = "DOUBLE" if part_name == "epoch" else "INTEGER"
        expression = RowExpression(f"{builtin(part_name)}({sql})", column.columns, result_type)
        parts.append((f"{name}_{part_name}", expression))
    return parts


MAX_ITEMS = 100
"""Maximum list entries or map keys that become columns; the most frequent are kept."""

MAX_PARTS = 4096
"""Maximum parts of a column; a column with more parts is left out."""


def flatten_column(rows: FittedRows, name: str, column: RowExpression) -> list[NamedPart]:
    """Split a nested column recursively into parts, and return their names and expressions.

    Parts are the entries of arrays and of lists that all have one length, a BOOLEAN for each of the
    most frequent strings in lists, the values of a map's most frequent keys, and struct fields.
    Return [] for a column that is not nested, or has more than `MAX_PARTS` parts.
    """
    if not _NESTED.search(column.type):
        return []
    parts: list[NamedPart] = []
    for suffix, sql, type_name in _list_parts(rows, column, duckdb.sqltype(column.type)):
        part_name = f"{name}_{suffix}"
        part = RowExpression(sql, column.columns, type_name)
        parts += flatten_column(rows, part_name, part) or [(part_name, part)]
        if len(parts) > MAX_PARTS:
            return []
    return parts


_NESTED = re.compile(r"\]$|^(MAP|STRUCT)\(", re.DOTALL)

_NestedParts = Iterator[tuple[str, str, str]]
"""Name suffix, expression and type of each part."""


def _list_parts(rows: FittedRows, column: RowExpression, sql_type: Any) -> _NestedParts:
    match sql_type.id:
        case "array":
            (_, child_type), (_, size) = sql_type.children
            yield from _list_items(column, size, str(child_type))
        case "list":
            yield from _list_list_parts(rows, column, str(sql_type.children[0][1]))
        case "map":
            (_, key_type), (_, value_type) = sql_type.children
            yield from _list_map_parts(rows, column, str(key_type), str(value_type))
        case "struct":
            for field, child_type in sql_type.children:
                if field and is_storable_text(field):
                    sql = f"{builtin('struct_extract')}({column.sql}, {DUCKDB.quote_string(field)})"
                    yield field, sql, str(child_type)


def _list_items(column: RowExpression, length: int, item_type: str) -> _NestedParts:
    for position in range(1, length + 1 if length <= MAX_PARTS else 0):
        yield str(position), f"{builtin('array_extract')}({column.sql}, {position})", item_type


def _list_list_parts(rows: FittedRows, column: RowExpression, item_type: str) -> _NestedParts:
    if NUMBERS.fullmatch(item_type):
        length_sql = f"{builtin('len')}({_format_over_columns(column)})"
        range_sql = f"{builtin('min')}({length_sql}), {builtin('max')}({length_sql})"
        min_length, max_length = rows.read_aggregates(range_sql)
        length = (min_length or 0) if min_length == max_length else 0
        yield from _list_items(column, length, item_type)
    elif _is_category(item_type):
        string_list = f"CAST({column.sql} AS VARCHAR[])"
        for text in _find_frequent(rows, _format_over_columns(column)):
            contains = f"{builtin('list_contains')}({string_list}, {DUCKDB.quote_string(text)})"
            yield text, contains, "BOOLEAN"


def _list_map_parts(
    rows: FittedRows, column: RowExpression, key_type: str, value_type: str
) -> _NestedParts:
    is_number = NUMBERS.fullmatch(value_type) is not None
    if not _is_category(key_type) or not (is_number or _is_category(value_type)):
        return
    keys = f"{builtin('map_keys')}({_format_over_columns(column)})"
    for text in _find_frequent(rows, keys):
        key_value = f"CAST({DUCKDB.quote_string(text)} AS {key_type})"
        expression = f"{builtin('map_extract_value')}({column.sql}, {key_value})"
        if is_number:  # A missing key is 0, as in scikit-learn's DictVectorizer.
            zero = f"CASE WHEN {column.sql} IS NOT NULL THEN CAST(0 AS {value_type}) END"
            expression = f"COALESCE({expression}, {zero})"
        yield text, expression, value_type


def _find_frequent(rows: FittedRows, lists_sql: str) -> list[str]:
    texts = rows.find_most_frequent(f"CAST({lists_sql} AS VARCHAR[])", MAX_ITEMS)
    return sorted(text for text in texts if is_storable_text(text))


def _is_category(sql_type: str) -> bool:
    return sql_type == "VARCHAR" or sql_type.startswith("ENUM(")


def _format_over_columns(expression: RowExpression) -> str:
    return expression.to_sql(_quote_names(expression.columns))


def _quote_names(names: Iterable[str]) -> dict[str, str]:
    return {name: DUCKDB.quote_name(name) for name in names}


Role = Literal["number", "category"]
"""The form in which a model reads a column: numbers, with NaN for NULL, or categories, one of
which may be NULL."""

_WIDE_NUMBERS = re.compile(r"DECIMAL\(.*\)|U?HUGEINT|UBIGINT|BIGNUM|VARINT")
"""Numbers without a numpy type or a pandas column."""

_ORDERED_TYPES = re.compile(rf"{NUMBERS.pattern}|VARCHAR|DATE|TIME.*")
"""Types of columns by which rows are split in order."""

_CATEGORY_TYPES = re.compile(r"(VARCHAR( COLLATE \w+)?|ENUM\(.*\)|UUID)", re.DOTALL)
_TEXT_LABELS = re.compile(r"DATE|UUID|TIMESTAMP( WITH TIME ZONE)?|ENUM\(.*\)|VARCHAR.*", re.DOTALL)
"""Types of labels that are stored as strings."""


@dataclass(frozen=True, slots=True)
class TrainingColumn:
    """A column of the query, or a column that is computed from others.

    type: the SQL type. role: None if the model does not learn from the column. expression: the
    expression that computes the column, or None for a column of the query.
    """

    name: str
    type: str
    role: Role | None
    expression: RowExpression | None = None

    @property
    def sql(self) -> str:
        expression = DUCKDB.quote_name(self.name)
        if self.expression is not None:
            expression = self.expression.to_typed_sql(_quote_names(self.expression.columns))
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

    raw: the types of the query's columns, keyed by name. features: the columns that the model
    learns from, in the order of the query or of TRANSFORM. left_out: all other columns that no
    option names. label: the column or expression of the label, or None.
    """

    raw: Mapping[str, str]
    features: tuple[TrainingColumn, ...]
    left_out: tuple[TrainingColumn, ...]
    label: TrainingColumn | None

    def build_transform(self, features: Sequence[str]) -> Transform | None:
        """Return the `Transform` that computes `features`, or None if all of them are columns."""
        used_columns = [column for column in self.features if column.name in features]
        expressions = {c.name: c.expression for c in used_columns if c.expression is not None}
        if not expressions:
            return None
        sources = {c.name for c in used_columns if c.expression is None}
        sources.update(name for e in expressions.values() for name in e.columns)
        return Transform(tuple(name for name in self.raw if name in sources), expressions)

    def drop_expressions(self) -> TrainingColumns:
        features = tuple(c for c in self.features if c.expression is None)
        expressions = [c.expression for c in self.features if c.expression is not None]
        computed_from = {name for expression in expressions for name in expression.columns}
        dropped = [TrainingColumn(n, t, None) for n, t in self.raw.items() if n in computed_from]
        return replace(self, features=features, left_out=(*self.left_out, *dropped))

    def fill_texts(self, names: Sequence[str]) -> TrainingColumns:
        """Return the columns, with an empty string instead of NULL in the features `names`."""
        features = []
        for column in self.features:
            if column.name in names:
                unchanged = RowExpression("sqlml_raw_0", (column.name,), "VARCHAR")
                expression = column.expression or unchanged
                filled = replace(expression, sql=f"COALESCE({expression.sql}, '')", type="VARCHAR")
                column = replace(column, expression=filled)
            features.append(column)
        return replace(self, features=tuple(features))


def read_columns(
    host: RowHost, query: str, request: Request, transform: Sequence[str] | None
) -> tuple[TrainingColumns, Request]:
    """Return the training columns, and the request with column names spelled as in the query.

    The features are the columns of `query`, or the items of TRANSFORM (...) if `transform` is set.

    If the query lacks a column that an option names, MissingColumnError is raised; if the query is
    invalid, ParseError is raised.
    """
    column_types = host.describe(query)
    duplicate = _find_duplicate(name for name, _ in column_types)
    if duplicate is not None:
        message = f"the query has several columns {duplicate!r}; give each a different name with AS"
        raise ConfigError(message)
    raw = dict(column_types)
    columns = _list_columns(FittedRows(host, query, raw, request), transform)
    names = {fold(c.name): c.name for c in columns} | {fold(name): name for name in raw}
    request = request.with_columns(names)
    _check_types(raw, request)
    if request.folds is not None:
        _check_fold_columns(raw, request)
    option_columns = request.other_columns
    features = [c for c in columns if c.name not in option_columns]
    duplicate = _find_duplicate(c.name for c in features)
    if duplicate is not None:
        raise ConfigError(f"two features would be called {duplicate!r}; rename one with AS")
    label = next((c for c in columns if c.name == request.label), None)
    if label is None and request.label is not None:
        label = TrainingColumn(request.label, raw[request.label], None)
    learned = tuple(column for column in features if column.role)
    left_out = tuple(column for column in features if not column.role)
    return TrainingColumns(raw, learned, left_out, label), request


def _find_duplicate(names: Iterable[str]) -> str | None:
    all_names = list(names)
    counts = Counter(map(fold, all_names))
    return next((name for name in all_names if counts[fold(name)] > 1), None)


def _check_fold_columns(raw: Mapping[str, str], request: Request) -> None:
    predicted = fold(f"predicted_{request.label}")
    added = {"fold", "sqlml_fold_key", predicted, f"{predicted}_probs"}
    name = next((name for name in raw if fold(name) in added), None)
    if name is not None:
        message = f"ml_cross_predict adds a column {name!r}: rename the column of the query with AS"
        raise ConfigError(f"with cv, {message}")


def _check_types(raw: Mapping[str, str], request: Request) -> None:
    weight_type = raw.get(request.weight or "")
    is_number = weight_type != "BOOLEAN" and NUMBERS.fullmatch(str(weight_type))
    if weight_type not in (None, *UNTYPED) and not is_number:
        fault = f"{request.weight!r} is {weight_type}"
        raise ConfigError(f"option weight takes a column of numbers, and {fault}")
    ordered = {"split 'seq'": request.split.column if request.split.method == "seq" else None}
    if request.folds is not None and request.folds.method == "time":
        ordered["option cv_time"] = request.folds.column
    for option, column in ordered.items():
        sql_type = raw.get(column or "")
        if sql_type is not None and not _ORDERED_TYPES.fullmatch(sql_type):
            accepted = "a column of numbers, strings, dates or times"
            raise ConfigError(f"{option} takes {accepted}, and {column!r} is {sql_type}")


def _list_columns(rows: FittedRows, transform: Sequence[str] | None) -> list[TrainingColumn]:
    raw = rows.columns
    option_columns = {fold(name) for name in rows.request.other_columns}
    if transform is None:
        named_expressions: list[NamedFeature] = [(name, None) for name in raw]
    else:
        named_expressions = transform_items(rows, transform, option_columns)
    columns: list[TrainingColumn] = []
    types = iter(rows.list_types([e for _, e in named_expressions if e is not None]))
    check_time_zones(rows, {name: e for name, e in named_expressions if e is not None})
    taken_names = {fold(name) for name, _ in named_expressions}
    for name, expression in named_expressions:
        sql_type = raw[name] if expression is None else next(types)
        if expression is not None:
            expression = replace(expression, type=_get_stored_type(sql_type))
        column = TrainingColumn(name, sql_type, _choose_role(sql_type), expression)
        if fold(name) in option_columns or column.role:
            columns.append(column)
            continue
        for part in _split_column(rows, column):
            name = part.name if part is column else _make_unique_name(part.name, taken_names)
            columns.append(replace(part, name=name))
    return columns


def _make_unique_name(name: str, taken_names: set[str]) -> str:
    unique_name = name
    number = 1
    while fold(unique_name) in taken_names:
        number += 1
        unique_name = f"{name}_{number}"
    taken_names.add(fold(unique_name))
    return unique_name


def _split_column(rows: FittedRows, column: TrainingColumn) -> list[TrainingColumn]:
    """Return the parts of a nested or date column, or only the column if it has no parts."""
    name, sql_type = column.name, column.type
    expression = column.expression or RowExpression("sqlml_raw_0", (name,), sql_type)
    computed = replace(expression, type=sql_type)
    parts: list[TrainingColumn] = []
    for part_name, part in flatten_column(rows, name, computed) or [(name, computed)]:
        date_parts = list_date_parts(part_name, part)
        parts += [TrainingColumn(n, date.type, "number", date) for n, date in date_parts]
        if not date_parts and part is not computed:
            stored = replace(part, type=_get_stored_type(part.type))
            parts.append(TrainingColumn(part_name, part.type, _choose_role(part.type), stored))
    return parts or [column]


def _get_stored_type(sql_type: str) -> str:
    return "VARCHAR" if _CATEGORY_TYPES.fullmatch(sql_type) else sql_type


def _choose_role(sql_type: str) -> Role | None:
    if NUMBERS.fullmatch(sql_type):
        return "number"
    return "category" if _CATEGORY_TYPES.fullmatch(sql_type) else None


def build_label_sql(label: TrainingColumn, request: Request) -> str:
    """Return SQL for the label: a DOUBLE for a regression, or a class with all of its digits."""
    sql = replace(label, role=None).sql
    sql_type = label.type
    if request.task != "classify":
        if not NUMBERS.fullmatch(sql_type):
            fault = f"column {label.name!r} has type {sql_type}"
            raise ConfigError(f"{request.model_type} models predict numbers, and {fault}")
        return f"CAST({sql} AS DOUBLE)"
    if sql_type == "BOOLEAN" or re.fullmatch(r"U?(TINYINT|SMALLINT|INTEGER)|BIGINT", sql_type):
        return sql
    if _WIDE_NUMBERS.fullmatch(sql_type):
        return _cast_exactly(sql, label)
    if NUMBERS.fullmatch(sql_type):
        return f"CAST({sql} AS DOUBLE)"
    if _TEXT_LABELS.fullmatch(sql_type):
        return f"CAST({sql} AS VARCHAR)"
    if sql_type in UNTYPED:
        raise ConfigError(f"all values of the label {label.name!r} are NULL")
    raise ConfigError(
        f"classes cannot have type {sql_type}; cast column {label.name!r} to VARCHAR in the query"
    )


def _cast_exactly(sql: str, label: TrainingColumn) -> str:
    """Cast a wide number to DOUBLE, and fail if the DOUBLE cannot represent all of its digits."""
    message = DUCKDB.text(
        f"the label {label.name!r} has values with more digits than a DOUBLE holds; cast it to "
        "VARCHAR in the query"
    )
    number = f"CAST({sql} AS DOUBLE)"
    error_value = f"CAST({DUCKDB.error(message)} AS DOUBLE)"
    return f"CASE WHEN {sql} = CAST({number} AS {label.type}) THEN {number} ELSE {error_value} END"
