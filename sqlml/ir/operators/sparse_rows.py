"""Operators on sparse rows (`ir/csr.py`), and conversions to and from them.

`has_items` and `hash_items` make sparse rows from columns with many values per row
(`types.NESTED`): `has_items` looks up known values, and `hash_items` hashes names. A row is a JSON
string in the dialect of Python's json module: NaN and Infinity are numbers, and integers have any
size. Values that are equal in Python, such as 1, 1.0 and true, are the same item.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError, MissingValueError
from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.hashes import murmur3
from sqlml.ir.operators.op import (
    Op,
    Types,
    array_attribute,
    ignore_attributes,
    require,
    require_float,
    require_matrix,
)
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import TextColumn, is_well_formed, pack_words, unpack_words
from sqlml.types import NESTED, Array, TensorType, dtype_of, matrix

STORED_FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "sublinear": lambda x: np.log(x) + x.dtype.type(1),
    "one": np.ones_like,
    "positive": lambda x: (x > 0).astype(x.dtype),
}
"""Map the `function` of map_stored to a function of the stored numbers."""


def _stored_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].sparse, "the operator needs sparse rows")
    return types[0]


def _scale_type(types: Types, attrs: Attrs) -> TensorType:
    factors = array_attribute(attrs, "factors")
    require_float(dtype_of(factors))
    is_valid = factors.shape in ((types[0].width,), (1,))
    require(is_valid, "factors must have one number per column, or one for all columns")
    return _stored_type(types, attrs)


def _map_type(types: Types, attrs: Attrs) -> TensorType:
    require(attrs["function"] in STORED_FUNCTIONS, f"unknown function {attrs['function']!r}")
    return _stored_type(types, attrs)


def _normalize_type(types: Types, attrs: Attrs) -> TensorType:
    require(attrs["norm"] in ("l1", "l2"), f"unknown norm {attrs['norm']!r}")
    return _stored_type(types, attrs)


def _densify_type(types: Types, attrs: Attrs) -> TensorType:
    x = _stored_type(types, attrs)
    return matrix(x.dtype, x.width)


def _sparsify_type(types: Types, attrs: Attrs) -> TensorType:
    x = require_matrix(types[0])
    require(x.dtype in ("float32", "float64"), "sparse rows are float32 or float64")
    return matrix(x.dtype, x.width, sparse=True)


def _scale(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    factors: Array = attrs["factors"]
    factor = factors[x.indices] if factors.size != 1 else factors
    return x.with_data((x.data * factor).astype(x.dtype, copy=False))


def _map(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    return x.with_data(STORED_FUNCTIONS[attrs["function"]](x.data))


def _normalize(args: Sequence[Any], attrs: Attrs) -> Any:
    return csr.normalize_rows(args[0], attrs["norm"])


def _densify(args: Sequence[Any], attrs: Attrs) -> Any:
    return args[0].toarray(attrs["fill"])


def _require_finite(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    is_finite = np.isfinite(x.data)
    if not is_finite.all():
        raise MissingValueError(
            f"{attrs['feature']!r} makes {x.data[~is_finite][0]}, which {attrs['step']} does not "
            "take; filter such rows"
        )
    return x


ITEM_OPERATORS: frozenset[str] = frozenset({"has_items", "hash_items"})
"""Operators on nested columns, which lookups in SQL cannot replace."""

Pair = tuple[Any, Any]

_FILTER_MAP = "map_from_entries(list_filter(map_entries(...), ...))"
_ROWS: Mapping[str, tuple[str, str, str]] = {
    "list": ("a list of single values", "[]", "list_filter(...)"),
    "map": ("a mapping of names to single values", "MAP {}", _FILTER_MAP),
    "pairs": ("a list of pairs (name, value)", "[]", "list_filter(...)"),
}
"""Map a kind of column to a row in words, SQL for an empty row, and SQL that removes items."""


def pack_items(items: Iterable[Any]) -> tuple[Array, Array]:
    """Encode scalars as JSON strings; return the attributes `words` and `ends`.

    >>> unpack_words(*pack_items(["a", 1, None, 0.5]))
    ['"a"', '1', 'null', '0.5']
    """
    return pack_words(json.dumps(item) for item in items)


def unpack_items(words: Array, ends: Array) -> list[Any]:
    """Decode scalars from `pack_items`; raise ValueError or RecursionError for damaged JSON."""
    return [json.loads(word) for word in unpack_words(words, ends)]


class _Members(list[Pair]):
    """The members of a JSON object as a list, which keeps members with equal names."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Members)


class _RowReader:
    """Reads the rows of one column; the names in error messages come from `attrs`."""

    def __init__(self, column_kind: str, attrs: Attrs) -> None:
        self._expected_row, self._empty, self._filter_sql = _ROWS[column_kind]
        self._name: str = attrs["feature"]
        self._step: str = attrs["step"]

    def parse(self, column: TextColumn, i: int) -> Any:
        """Decode row i; raise MissingValueError for NULL and InputTypeError for invalid JSON."""
        if column.missing[i]:
            raise self.make_null_row_error("NULL")
        try:
            row = _DECODER.decode(column.text(i))
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputTypeError(
                f"column {self._name!r} has a string that is not JSON ({reason}); pass "
                f"{self._expected_row} per row"
            ) from None
        if row is None:
            raise self.make_null_row_error("a JSON null")
        return row

    def read_items(self, column: TextColumn, i: int) -> list[Any]:
        row = self.parse(column, i)
        if type(row) is not list:
            raise self.make_type_error(row)
        return row

    def read_pairs(self, column: TextColumn, i: int) -> Iterable[Pair]:
        """Return the pairs (name, value) in row i, a list of two-value arrays or objects."""
        pairs: list[Pair] = []
        for pair in self.read_items(column, i):
            if pair is None:
                raise self.make_null_item_error("among its pairs")
            if not isinstance(pair, list) or len(pair) != 2:
                raise self.make_type_error(pair)
            name, value = pair
            pairs.append((name[1], value[1]) if isinstance(pair, _Members) else (name, value))
        return pairs

    def read_members(self, column: TextColumn, i: int) -> Iterable[Pair]:
        """Return the members of the object in row i; for equal names, only the last member."""
        row = self.parse(column, i)
        if not isinstance(row, _Members):
            raise self.make_type_error(row)
        return dict(row).items()

    def read_number(self, key: Any, value: Any) -> float:
        if value is None:
            raise self.make_null_item_error(f"as the value of {key!r:.60}")
        try:
            if isinstance(value, int | float):
                return float(value)
        except OverflowError:
            problem = f"column {self._name!r} has a number under {key!r}"
            raise InputTypeError(f"{problem} that is too large for a float") from None
        raise self.make_type_error(value)

    def encode_name(self, name: Any) -> bytes:
        if name is None:
            raise self.make_null_item_error("where a name is expected")
        problem = f"column {self._name!r} has {name!r:.60}"
        if not isinstance(name, str):
            raise InputTypeError(f"{problem} where {self._step} takes a string; cast it")
        try:
            return name.encode()
        except UnicodeEncodeError:
            raise InputTypeError(f"{problem}, not valid Unicode (a lone surrogate)") from None

    def make_null_row_error(self, value: str) -> MissingValueError:
        return MissingValueError(
            f"column {self._name!r} has {value}, which {self._step} does not take; fill it in SQL "
            f"(coalesce(..., {self._empty})), or filter such rows"
        )

    def make_null_item_error(self, where: str) -> MissingValueError:
        return MissingValueError(
            f"column {self._name!r} has NULL {where}, which {self._step} does not take; remove it "
            f"in SQL ({self._filter_sql}), or filter such rows"
        )

    def make_type_error(self, value: Any) -> InputTypeError:
        type_names: dict[type, str] = {_Members: "an object", list: "a list", str: "a string"}
        type_name = "NULL" if value is None else type_names.get(type(value), "a number")
        context = f"in a row where {self._step} takes {self._expected_row}"
        return InputTypeError(f"column {self._name!r} has {type_name} {context}")


def _check_items(types: Types, attrs: Attrs, kinds: Iterable[str]) -> None:
    (x,) = types
    require(attrs["kind"] in kinds and x.dtype == attrs["kind"], "kind must match the column")
    require_matrix(x, width=1)
    require(attrs["dtype"] in ("float32", "float64"), "the dtype must be float32 or float64")


def _has_items_type(types: Types, attrs: Attrs) -> TensorType:
    _check_items(types, attrs, ("list",))
    words, ends = array_attribute(attrs, "words"), array_attribute(attrs, "ends")
    require(is_well_formed(words, ends), "the known items are damaged")
    try:
        items = unpack_items(words, ends)
        are_distinct = len(set(items)) == len(items) and all(item == item for item in items)
    except (ValueError, TypeError, RecursionError):
        are_distinct = False
    require(are_distinct, "the known items must be distinct single values")
    return matrix(attrs["dtype"], len(items), sparse=True)


def _hash_items_type(types: Types, attrs: Attrs) -> TensorType:
    _check_items(types, attrs, NESTED)
    require(attrs["width"] >= 1, "hash_items needs a width of at least 1")
    return matrix(attrs["dtype"], attrs["width"], sparse=True)


def _mark_items(args: Sequence[Any], attrs: Attrs) -> Any:
    column_by_item = {item: k for k, item in enumerate(unpack_items(attrs["words"], attrs["ends"]))}
    texts, reader = TextColumn.from_values(args[0]), _RowReader(attrs["kind"], attrs)
    indptr, indices = [0], []
    for i in range(len(texts)):
        row = reader.read_items(texts, i)
        try:
            indices += sorted({column_by_item[item] for item in row if item in column_by_item})
        except TypeError:  # Lists and objects are not hashable.
            unhashable = next(item for item in row if isinstance(item, list))
            raise reader.make_type_error(unhashable) from None
        indptr.append(len(indices))
    ones = np.ones(len(indices), str(attrs["dtype"]))
    return Csr(ones, np.array(indices, np.int32), np.array(indptr, np.int64), len(column_by_item))


def _hash_items(args: Sequence[Any], attrs: Attrs) -> Any:
    """Return sparse rows in which the hash of a name determines the column of the value.

    If `alternate_sign`, the hash also determines the sign. A string value becomes part of the name
    ("name=value") and counts as 1. Zeros are left out. Values in the same column are added in the
    order of the row, as scipy does for up to 16 items.
    """
    kind, width, is_signed = attrs["kind"], int(attrs["width"]), bool(attrs["alternate_sign"])
    column, reader = TextColumn.from_values(args[0]), _RowReader(kind, attrs)
    read_pairs: Mapping[str, Callable[[TextColumn, int], Iterable[Pair]]] = {
        "list": lambda column, i: ((item, 1) for item in reader.read_items(column, i)),
        "map": reader.read_members,
        "pairs": reader.read_pairs,
    }
    hash_by_name: dict[Any, int] = {}
    cells: list[tuple[int, int]] = []
    weights: list[float] = []
    for i in range(len(column)):
        for name, value in read_pairs[kind](column, i):
            if isinstance(value, str):
                name, weight = f"{name}={value}", 1.0
            else:
                weight = reader.read_number(name, value)
            if weight == 0:
                continue
            hash_value = hash_by_name.get(name) if isinstance(name, str) else None
            if hash_value is None:
                hash_value = hash_by_name[name] = murmur3(reader.encode_name(name))
            cells.append((i, abs(hash_value) % width))
            weights.append(-weight if is_signed and hash_value < 0 else weight)
    with np.errstate(over="ignore"):
        data = np.array(weights, np.float64).astype(str(attrs["dtype"]))
    rows, columns = np.array(cells, np.int64).reshape(-1, 2).T
    return _sum_duplicates(rows, columns, data, len(column), width)


def _sum_duplicates(rows: Array, columns: Array, data: Array, num_rows: int, width: int) -> Csr:
    """Return a Csr in which numbers of the same row and column are added, in order."""
    order = np.lexsort((columns, rows))
    rows, columns, data = rows[order], columns[order], data[order]
    is_first = np.ones(rows.size, bool)
    is_first[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    sums = np.zeros(int(is_first.sum()), data.dtype)
    np.add.at(sums, np.cumsum(is_first) - 1, data)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[is_first], minlength=num_rows))])
    return Csr(sums, columns[is_first].astype(np.int32), indptr.astype(np.int64), width)


_ITEMS = "kind: str, dtype: str, feature: str, step: str"
_HASH_ITEMS = f"{_ITEMS}, width: int, alternate_sign: bool"
_CHECK = "feature: str, step: str"

OPERATORS: tuple[Op, ...] = (
    Op("scale_stored", "injective", _scale_type, _scale, "factors", sparse=True),
    Op("map_stored", "injective", _map_type, _map, "function: str", sparse=True),
    Op("normalise_stored", "complex", _normalize_type, _normalize, "norm: str", sparse=True),
    Op("require_finite_stored", "injective", _stored_type, _require_finite, _CHECK, sparse=True),
    Op("densify", "injective", _densify_type, _densify, "fill: float", sparse=True),
    Op("sparsify", "injective", _sparsify_type, ignore_attributes(csr.from_dense)),
    Op("has_items", "opaque", _has_items_type, _mark_items, f"{_ITEMS}, words, ends", nested=True),
    Op("hash_items", "opaque", _hash_items_type, _hash_items, _HASH_ITEMS, nested=True),
)
