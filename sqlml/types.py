"""Types of the values in a Program."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

_NumberDType = Literal["bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
DType = Literal[_NumberDType, "string", "list", "map", "pairs"]
DTYPES: frozenset[str] = frozenset(get_args(DType))
FLOATS: frozenset[str] = frozenset({"float16", "float32", "float64"})
INTEGERS: frozenset[str] = frozenset({"int8", "int16", "int32", "int64"})

NESTED: frozenset[str] = frozenset({"list", "map", "pairs"})
"""Columns with many values per row. Each row is a JSON string: an array of scalars ("list"), an
object of scalars ("map"), or an array of names and scalars ("pairs"). Only operators with `nested`
in the table of operators accept such columns."""

TEXTUAL: frozenset[str] = NESTED | {"string"}
"""Columns of text: a `TextColumn`, or an object array of `str` and None."""

Array = npt.NDArray[Any]

ROWS = -1
"""The size of a dimension that grows with the batch. Only the first dimension may have it."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """The dtype and shape of a value. `shape[0]` is `ROWS` if the value has one entry per row.

    A `sparse` value is a `Csr`, which does not store all cells. Operators accept sparse values only
    if they are marked `sparse` in the table of operators.

    >>> TensorType("float64", (ROWS, 28))
    float64[n,28]
    """

    dtype: DType
    shape: tuple[int, ...]
    sparse: bool = False

    @property
    def rowwise(self) -> bool:
        """True if the value has one entry per row of the batch."""
        return bool(self.shape) and self.shape[0] == ROWS

    @property
    def width(self) -> int:
        """The number of columns of a value with two dimensions."""
        return self.shape[1]

    def __repr__(self) -> str:
        dims = ",".join("n" if dim == ROWS else str(dim) for dim in self.shape)
        return f"{'sparse ' if self.sparse else ''}{self.dtype}[{dims}]"


def column(dtype: DType) -> TensorType:
    return TensorType(dtype, (ROWS, 1))


def matrix(dtype: DType, width: int, sparse: bool = False) -> TensorType:
    return TensorType(dtype, (ROWS, width), sparse)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype for `dtype`, which is object (`str` and None) for text."""
    return np.dtype(object) if dtype in TEXTUAL else np.dtype(dtype)


def dtype_of(array: Array) -> DType:
    """Return the DType of a numpy array. Object and unicode arrays have the DType "string".

    >>> dtype_of(np.zeros(3, np.float32))
    'float32'
    """
    name = array.dtype.name
    if array.dtype.kind in "OUT":
        return "string"
    if name not in DTYPES:
        raise TypeError(f"numpy dtype {name} has no counterpart in a Program")
    return name  # type: ignore[return-value]


def promote(*dtypes: DType) -> DType:
    """Return the result dtype of an operation on values of these dtypes, as in numpy.

    Strings cannot be combined with other dtypes.

    >>> promote("int64", "float32")
    'float64'
    """
    if set(dtypes) == {"string"}:
        return "string"
    if not TEXTUAL.isdisjoint(dtypes):
        raise TypeError(f"no common type of {', '.join(dtypes)}")
    return dtype_of(np.empty(0, np.result_type(*[np.dtype(dtype) for dtype in dtypes])))


_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold(name: str) -> str:
    """Convert ASCII letters to lower case, since DuckDB ignores only the case of ASCII letters.

    >>> fold("Straße Ä")
    'straße Ä'
    """
    return name.lower() if name.isascii() else name.translate(_ASCII_LOWER)


def is_unicode(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8. This fails for lone surrogates.

    >>> is_unicode("Zürich"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Kind = Literal["number", "string", "datetime", "list", "map", "pairs", "any"]
"""The values that a feature accepts: numbers, booleans and decimals ("number"), strings and enums
("string"), dates and timestamps ("datetime"), nested values (`NESTED`), or anything ("any") if the
model never reads the column."""

DATETIME: Literal["datetime"] = "datetime"
"""The kind of a float64 input with microseconds since 1970-01-01, without a time zone. The numbers
are exact from 1684 to 2255."""


def feature_kind(dtype: DType) -> Kind:
    """Return the kind of values that an input of `dtype` accepts.

    >>> feature_kind("int64"), feature_kind("list")
    ('number', 'list')
    """
    return dtype if dtype in ("string", "list", "map", "pairs") else "number"


@dataclass(frozen=True, slots=True)
class Feature:
    """A named input of a model.

    `is_boolean` marks a number whose column is declared BOOLEAN. Catalogs and files store the kind
    of such a feature as "boolean".
    """

    name: str
    kind: Kind
    is_boolean: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def from_stored_kind(cls, name: str, stored_kind: Any) -> Feature:
        is_boolean = stored_kind == "boolean"
        return cls(name, "number" if is_boolean else stored_kind, is_boolean)

    @property
    def stored_kind(self) -> str:
        return "boolean" if self.is_boolean else self.kind


def features_behind_blanks(
    features: Iterable[Feature], columns: Collection[str]
) -> dict[str, Feature]:
    """Map each column with blanks in the name to the feature that LightGBM named after the column.

    LightGBM replaces blanks with underscores. Features with the exact name of a column are skipped.

    >>> features_behind_blanks([Feature("my_col", "number")], ["My Col", "other"])
    {'My Col': Feature(name='my_col', kind='number')}
    """
    with_blanks = [column for column in columns if " " in column]
    if not with_blanks:
        return {}
    folded_columns = {fold(column) for column in columns}
    unmatched = {fold(f.name): f for f in features if fold(f.name) not in folded_columns}
    renamed = {column: fold(column).replace(" ", "_") for column in with_blanks}
    return {column: unmatched[name] for column, name in renamed.items() if name in unmatched}


LabelKind = Literal["string", "int64", "float64", "bool"]

LABEL_TYPES: Mapping[LabelKind, re.Pattern[str]] = MappingProxyType(
    {
        "string": re.compile(
            r"VARCHAR|DATE|UUID|TIMESTAMP(?: WITH TIME ZONE)?"
            r"|ENUM\('(?:[^']|'')*'(?:, '(?:[^']|'')*')*\)"
        ),
        "int64": re.compile("TINYINT|SMALLINT|INTEGER|BIGINT|UTINYINT|USMALLINT|UINTEGER"),
        "float64": re.compile(r"FLOAT|DOUBLE|U?HUGEINT|UBIGINT|DECIMAL\(\d{1,2},\d{1,2}\)"),
        "bool": re.compile("BOOLEAN"),
    }
)
"""Maps kinds of labels to the SQL types that the kind represents exactly."""


@dataclass(frozen=True, slots=True)
class Labels:
    """The classes of a classifier in the model's order, with the type that `predict` returns.

    `sql_type` is the SQL type of the label column, or "" if the type is unknown or implied by
    `kind`. Labels of types such as ENUM and DATE are stored as strings, which the engine casts to
    `sql_type`.
    """

    kind: LabelKind
    values: tuple[Any, ...]
    sql_type: str = ""

    def array(self) -> Array:
        """Return the labels as a numpy array (K,). The dtype of strings is object."""
        return np.array(self.values, dtype=object if self.kind == "string" else self.kind)

    def __len__(self) -> int:
        return len(self.values)


def class_text(value: Any) -> str:
    """Return the text of a class label as in SQL results, without quotes around strings.

    >>> class_text(True), class_text(3), class_text("yes")
    ('true', '3', 'yes')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def class_literal(value: Any) -> str:
    """Return the text of a class label as in messages, with quotes around strings.

    >>> class_literal(True), class_literal(3), class_literal("yes")
    ('true', '3', "'yes'")
    """
    return class_text(value) if isinstance(value, bool) else repr(value)


def list_classes(values: Iterable[Any], limit: int = 20) -> str:
    return ", ".join(map(class_literal, islice(values, limit)))


def label_sets(labels: Labels | tuple[Labels, ...] | None) -> tuple[Labels, ...]:
    """Return the classes of each target as a tuple, which is () for a regressor.

    >>> label_sets(None), len(label_sets(Labels("bool", (False, True))))
    ((), 1)
    """
    if labels is None:
        return ()
    return (labels,) if isinstance(labels, Labels) else tuple(labels)
