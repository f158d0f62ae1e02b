"""`columns_of`: the columns that a model learns from, or what TRANSFORM makes of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import duckdb

from sqlml.catalog.model import Transform
from sqlml.catalog.row_expressions import RowExpression, may_be_kept
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.training.transform.fitted_rows import FittedRows, check_time_zones
from sqlml.training.transform.transform_items import Named, transform_items
from sqlml.types import fold

# `parts_of`: the numbers that a date, a time or an interval is to a model.


_DAYS = ("year", "month", "day", "dayofweek")
_HOURS = ("hour", "minute")
_SINCE = ("epoch",)

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
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
"""Type -> the engine's functions that make numbers of it; `epoch` are seconds, since 1970."""


def parts_of(name: str, made: RowExpression) -> list[tuple[str, RowExpression]]:
    """Name and expression of each part; none if the type has no parts.

    Args:
        made: what reads the date, with its type in the engine.
    """
    sql, columns, kind = made.sql, made.columns, made.type
    if kind == "TIMESTAMP WITH TIME ZONE":  # whatever the session's own time zone
        sql = f"{builtin('timezone')}('UTC', {sql})"
    return [
        (
            f"{name}_{part}",
            RowExpression(
                f"{builtin(part)}({sql})", columns, "DOUBLE" if part == "epoch" else "INTEGER"
            ),
        )
        for part in PARTS.get(kind, ())
    ]


# `flat_parts`: the columns that a list, a map or a struct is to a model.


MOST_ITEMS = 100
"""Entries of lists of names, and keys of maps, that become columns: the most frequent ones."""

MOST_PLACES = 4096
"""Parts of one column; one with more is left out."""

FlatPart = tuple[str, str, RowExpression]
"""The name of a column, its type, and what makes it."""


def flat_parts(rows: FittedRows, name: str, made: RowExpression) -> list[FlatPart]:
    """The parts of a column that is nested, parts of parts included; none of any other, and of
    lists of numbers of different lengths.

    An array's numbers, or a list's if all are equally long, are parts by their place; the most
    frequent entries of lists of names are parts that say whether they are there; the most frequent
    keys of a map, its values, 0 or missing without the key; and the fields of a struct.

    Args:
        made: what reads the column, with its type in the engine.
    """
    if not _NESTED.search(made.type):
        return []
    kind = duckdb.sqltype(made.type)
    found = _PARTS.get(kind.id, _nothing)(rows, made, kind)
    flat: list[FlatPart] = []
    for suffix, sql, type_name in found:
        part = RowExpression(sql, made.columns, type_name)
        own = f"{name}_{suffix}"
        flat += flat_parts(rows, own, part) or [(own, type_name, part)]
        if len(flat) > MOST_PLACES:
            return []
    return flat


_NESTED = re.compile(r"\]$|^(MAP|STRUCT)\(", re.DOTALL)

Found = Iterator[tuple[str, str, str]]
"""Suffix of the name, expression and type of each part."""


def _nothing(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    return iter(())


def _places(made: RowExpression, count: int, child: str) -> Found:
    for place in range(1, count + 1 if count <= MOST_PLACES else 0):
        yield str(place), f"{builtin('array_extract')}({made.sql}, {place})", child


def _of_array(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    (_, child), (_, size) = kind.children
    return _places(made, size, str(child))


def _of_list(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    child = str(kind.children[0][1])
    if NUMBERS.fullmatch(child):
        length = f"{builtin('len')}({_plain(made)})"
        least, most = rows.ask(f"{builtin('min')}({length}), {builtin('max')}({length})")
        yield from _places(made, (least or 0) if least == most else 0, child)
    elif _is_name(child):
        texts = f"CAST({made.sql} AS VARCHAR[])"
        for text in _frequent(rows, _plain(made)):
            found = f"{builtin('list_contains')}({texts}, {DUCKDB.quote_string(text)})"
            yield text, found, "BOOLEAN"


def _of_map(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    (_, key), (_, value) = kind.children
    value = str(value)
    if not _is_name(str(key)) or not (NUMBERS.fullmatch(value) or _is_name(value)):
        return
    keys = f"{builtin('map_keys')}({_plain(made)})"
    for text in _frequent(rows, keys):
        wanted = f"CAST({DUCKDB.quote_string(text)} AS {key})"
        found = f"{builtin('map_extract_value')}({made.sql}, {wanted})"
        if NUMBERS.fullmatch(value):  # as DictVectorizer has it
            zero = f"CASE WHEN {made.sql} IS NOT NULL THEN CAST(0 AS {value}) END"
            found = f"COALESCE({found}, {zero})"
        yield text, found, value


def _of_struct(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    for field, child in kind.children:
        if not field or not may_be_kept(field):
            continue
        name = DUCKDB.quote_string(field)
        yield field, f"{builtin('struct_extract')}({made.sql}, {name})", str(child)


_PARTS: Mapping[str, Callable[[FittedRows, RowExpression, Any], Found]] = MappingProxyType(
    {"array": _of_array, "list": _of_list, "map": _of_map, "struct": _of_struct}
)
"""Kind of type -> its parts."""


def _frequent(rows: FittedRows, lists: str) -> list[str]:
    """The most frequent entries of lists."""
    found = rows.most_frequent(f"CAST({lists} AS VARCHAR[])", MOST_ITEMS)
    return sorted(text for text in found if may_be_kept(text))


def _is_name(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM(")


def _plain(made: RowExpression) -> str:
    """The expression over the query's own columns."""
    return made.plain({name: DUCKDB.quote_name(name) for name in made.columns})


Role = Literal["number", "category"]
"""A feature that is a number (NULL is NaN), or one of several names (NULL is a name of its own, or
missing, as the estimator has it)."""

_WIDE = re.compile(r"DECIMAL\(.*\)|U?HUGEINT|UBIGINT|BIGNUM|VARINT")
"""Numbers that numpy has no type for, or a pandas frame no column."""

_ORDERED = re.compile(rf"{NUMBERS.pattern}|VARCHAR|DATE|TIME.*")
"""Types whose greatest values can be held out."""

_NAMES = re.compile(r"(VARCHAR( COLLATE \w+)?|ENUM\(.*\)|UUID)", re.DOTALL)
_TEXTS = re.compile(r"(DATE|UUID|TIMESTAMP( WITH TIME ZONE)?|ENUM\(.*\)|VARCHAR.*)", re.DOTALL)
"""Types of labels whose values are kept as texts."""


@dataclass(frozen=True, slots=True)
class TrainingColumn:
    """A column of the query, or what is made of columns.

    type: in the engine. role: None for one that the model does not learn from. expression: what
    makes it; None for a column of the query.
    """

    name: str
    type: str
    role: Role | None
    expression: RowExpression | None = None

    @property
    def sql(self) -> str:
        """The expression that reads it."""
        made = DUCKDB.quote_name(self.name)
        if self.expression is not None:
            made = self.expression.of({c: DUCKDB.quote_name(c) for c in self.expression.columns})
        if self.role is None:
            return made
        if self.type == "BOOLEAN":
            return f"CAST({made} AS UTINYINT)"
        if _WIDE.fullmatch(self.type):
            return f"CAST({made} AS DOUBLE)"
        if self.role == "category" and self.type == "UUID":
            return f"CAST({made} AS VARCHAR)"
        return made


@dataclass(frozen=True, slots=True)
class TrainingColumns:
    """What a query gives to learn from.

    raw: its columns, name -> type. features: what is learned from, in the order of the query or of
    TRANSFORM. left_out: columns that nothing is learned from, though no option names them. label:
    the column or expression of the label; None without one.
    """

    raw: Mapping[str, str]
    features: tuple[TrainingColumn, ...]
    left_out: tuple[TrainingColumn, ...]
    label: TrainingColumn | None

    def transform(self, features: Sequence[str]) -> Transform | None:
        """How those of the features that a model has are made; None if they are columns."""
        chosen = [column for column in self.features if column.name in features]
        made = {c.name: c.expression for c in chosen if c.expression is not None}
        if not made:
            return None
        read = {c.name for c in chosen if c.expression is None}
        read.update(name for expression in made.values() for name in expression.columns)
        return Transform(tuple(name for name in self.raw if name in read), made)

    def without_expressions(self) -> TrainingColumns:
        """Only what is learned from columns as they are; the others are left out."""
        features = tuple(c for c in self.features if c.expression is None)
        made = {n for c in self.features if c.expression is not None for n in c.expression.columns}
        gone = tuple(
            TrainingColumn(name, self.raw[name], None) for name in self.raw if name in made
        )
        return replace(self, features=features, left_out=(*self.left_out, *gone))

    def with_texts(self, names: Sequence[str]) -> TrainingColumns:
        """With an empty text in place of NULL in some features, as a model has learned from it."""
        features = []
        for column in self.features:
            if column.name in names:
                made = column.expression or RowExpression("sqlml_raw_0", (column.name,), "VARCHAR")
                filled = RowExpression(f"COALESCE({made.sql}, '')", made.columns, "VARCHAR")
                column = replace(column, expression=filled)
            features.append(column)
        return replace(self, features=tuple(features))


def columns_of(
    host: RowHost, query: str, request: Request, transform: Sequence[str] | None
) -> tuple[TrainingColumns, Request]:
    """The columns of a query, and the request with the columns' names as the query spells them.

    Args:
        transform: the items of TRANSFORM (..).

    Raises:
        ConfigError: two columns of one name.
        MissingColumnError: the query lacks the label, or another column that options name.
        ParseError: it is no query, or TRANSFORM has something else than expressions over a row.
    """
    described = host.describe(query)
    counted = Counter(fold(name) for name, _ in described)
    twice = next((name for name, _ in described if counted[fold(name)] > 1), None)
    if twice is not None:
        raise ConfigError(
            f"the query has several columns {twice!r}; give each a name of its own with AS"
        )
    raw = dict(described)
    rows = FittedRows(host, query, raw, request)
    listed = _listed(rows, transform)
    known = {fold(c.name): c.name for c in listed} | {fold(name): name for name in raw}
    request = request.with_columns(known)
    _check_kinds(raw, request)
    others = request.other_columns
    features = [c for c in listed if c.name not in others]
    _check_names(features)
    label = next((c for c in listed if c.name == request.label), None)
    if label is None and request.label is not None:
        label = TrainingColumn(request.label, raw[request.label], None)
    learned = tuple(column for column in features if column.role)
    left_out = tuple(column for column in features if not column.role)
    return TrainingColumns(raw, learned, left_out, label), request


def _check_kinds(raw: Mapping[str, str], request: Request) -> None:
    """Refuse columns whose types do not suit what options take them for.

    Raises:
        ConfigError: weights that are no numbers, or a split by what has no order.
    """
    weight, split = raw.get(request.weight or ""), request.split
    fits = weight in (None, *UNTYPED) or (weight != "BOOLEAN" and NUMBERS.fullmatch(str(weight)))
    if not fits:
        raise ConfigError(
            f"option weight takes a column of numbers, and {request.weight!r} is {weight}"
        )
    place = raw.get(split.column or "")
    if split.method == "seq" and place is not None and not _ORDERED.fullmatch(place):
        raise ConfigError(
            "split 'seq' takes a column of numbers, texts, dates or times, and "
            f"{split.column!r} is {place}"
        )


def _check_names(columns: Sequence[TrainingColumn]) -> None:
    counted = Counter(fold(column.name) for column in columns)
    twice = next((c.name for c in columns if counted[fold(c.name)] > 1), None)
    if twice is not None:
        raise ConfigError(f"two features would be called {twice!r}; give one another name with AS")


def _listed(rows: FittedRows, transform: Sequence[str] | None) -> list[TrainingColumn]:
    """What is learned from, the columns that options name included."""
    raw, named = rows.columns, {fold(name) for name in rows.request.other_columns}
    if transform is None:
        items: list[Named] = [(name, None) for name in raw]
    else:
        items = transform_items(rows, transform, named)
    made: list[TrainingColumn] = []
    expressions = [e for _, e in items if e is not None]
    types = iter(rows.types(expressions))
    check_time_zones(rows, {name: e for name, e in items if e is not None})
    own = {fold(name) for name, _ in items}
    for name, expression in items:
        kind = raw[name] if expression is None else next(types)
        if expression is not None:
            expression = RowExpression(expression.sql, expression.columns, _kept_type(kind))
        whole = TrainingColumn(name, kind, _role(kind), expression)
        if fold(name) in named or whole.role:
            made.append(whole)
            continue
        for part in _parts(rows, whole):
            made.append(part if part is whole else replace(part, name=_free(part.name, own)))
    return made


def _free(name: str, taken: set[str]) -> str:
    """A name for what is made of a column, with a number behind it where it is taken: keys of a
    map may differ in their case alone."""
    found, number = name, 2
    while fold(found) in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(fold(found))
    return found


def _parts(rows: FittedRows, column: TrainingColumn) -> list[TrainingColumn]:
    """What is learned from a column in its place: parts of nested values, of dates, of dates in
    nested values; the column itself if it has none."""
    name, kind = column.name, column.type
    place = column.expression or RowExpression("sqlml_raw_0", (name,), kind)
    whole = RowExpression(place.sql, place.columns, kind)
    made: list[TrainingColumn] = []
    for part_name, part_type, part in flat_parts(rows, name, whole) or [(name, kind, whole)]:
        dates = parts_of(part_name, part)
        made += [TrainingColumn(n, date.type, "number", date) for n, date in dates]
        if not dates and part is not whole:
            kept = RowExpression(part.sql, part.columns, _kept_type(part_type))
            made.append(TrainingColumn(part_name, part_type, _role(part_type), kept))
    return made or [column]


def _kept_type(kind: str) -> str:
    """The type of an expression as it is kept: of names, texts."""
    return "VARCHAR" if _NAMES.fullmatch(kind) else kind


def _role(kind: str) -> Role | None:
    if NUMBERS.fullmatch(kind):
        return "number"
    return "category" if _NAMES.fullmatch(kind) else None


def label_sql(label: TrainingColumn, request: Request) -> str:
    """The expression that reads the label.

    Raises:
        ConfigError: a label of this type does not fit the type of model.
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
    if _WIDE.fullmatch(kind):
        return _as_double(sql, label)
    if NUMBERS.fullmatch(kind):
        return f"CAST({sql} AS DOUBLE)"
    if _TEXTS.fullmatch(kind):
        return f"CAST({sql} AS VARCHAR)"
    if kind in UNTYPED:
        raise ConfigError(f"all values of the label {label.name!r} are NULL")
    raise ConfigError(
        f"classes cannot have type {kind}; cast column {label.name!r} to VARCHAR in the query"
    )


def _as_double(sql: str, label: TrainingColumn) -> str:
    """A wide number as a DOUBLE, which must hold all of its digits."""
    message = DUCKDB.text(
        f"the label {label.name!r} has values with more digits than a DOUBLE holds; cast it to "
        "VARCHAR in the query"
    )
    number = f"CAST({sql} AS DOUBLE)"
    failed = f"CAST({DUCKDB.error(message)} AS DOUBLE)"
    return f"CASE WHEN {sql} = CAST({number} AS {label.type}) THEN {number} ELSE {failed} END"
