"""What is done to sparse rows (`ir/csr.py`) without storing their zeros; the ways in and out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError, MissingValueError
from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.hashes import murmur3
from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import Texts, pack, unpack, well_formed
from sqlml.types import NESTED, Array, TensorType, dtype_of, matrix

MAPS = ("sublinear", "one", "positive")
"""log(x) + 1, 1, and whether x > 0 as 1 or 0, of what is stored."""


def _stored_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].sparse, "it takes sparse rows")
    return types[0]


def _scale_type(types: Types, attrs: Attrs) -> TensorType:
    factors = array(attrs, "factors")
    floating(dtype_of(factors))
    need(factors.shape in ((types[0].width,), (1,)), "one factor a column, or one for all")
    return _stored_type(types, attrs)


def _map_type(types: Types, attrs: Attrs) -> TensorType:
    need(attrs["function"] in MAPS, f"no function {attrs['function']!r} of what is stored")
    return _stored_type(types, attrs)


def _normalise_type(types: Types, attrs: Attrs) -> TensorType:
    need(attrs["norm"] in ("l1", "l2"), f"no norm {attrs['norm']!r}")
    return _stored_type(types, attrs)


def _densify_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].sparse, "it takes sparse rows")
    return matrix(types[0].dtype, types[0].width)


def _sparsify_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].rowwise and len(types[0].shape) == 2, "sparsify takes (n, k) values")
    floating(types[0].dtype)
    need(types[0].dtype != "float16", "sparse rows are float32 or float64")
    return matrix(types[0].dtype, types[0].width, sparse=True)


def _scale(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    factors: Array = attrs["factors"]
    by = factors[x.indices] if factors.size != 1 else factors
    return x.with_data((x.data * by).astype(x.dtype, copy=False))


def _map(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    if attrs["function"] == "one":
        return x.with_data(np.ones_like(x.data))
    if attrs["function"] == "positive":
        return x.with_data((x.data > 0).astype(x.dtype))
    return x.with_data(np.log(x.data) + x.dtype.type(1))


def _normalise(args: Sequence[Any], attrs: Attrs) -> Any:
    return csr.normalise(args[0], attrs["norm"])


def _sparsify(args: Sequence[Any], attrs: Attrs) -> Any:
    return csr.of(args[0])


def _require_finite(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    fine = np.isfinite(x.data)
    if not fine.all():
        raise MissingValueError(
            f"{attrs['feature']!r} makes {x.data[~fine][0]}, which {attrs['step']} does not take; "
            "filter such rows"
        )
    return x


def _densify(args: Sequence[Any], attrs: Attrs) -> Array:
    x: Csr = args[0]
    return x.toarray(attrs["fill"])


# From columns of many values per row (`types.NESTED`) to sparse rows: by known values, or by a
# hash.
#
# A row is a text of JSON, as Python's json module reads it: NaN and Infinity are numbers, and
# integers have any size. What is equal in Python is the same item: 1, 1.0 and true.


ITEMS: frozenset[str] = frozenset({"has_items", "hash_items"})
"""Operators over nested columns, which no look-up in SQL replaces."""

Pair = tuple[Any, Any]

_ROWS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "list": ("a list of single values", "[]", "list_filter(..)"),
        "map": (
            "a mapping of names to single values",
            "MAP {}",
            "map_from_entries(list_filter(map_entries(..), ..))",
        ),
        "pairs": ("a list of pairs (name, value)", "[]", "list_filter(..)"),
    }
)
"""Kind of column -> what a row is; in SQL, an empty row, and one without some of its items."""


def pack_items(items: Iterable[Any]) -> tuple[Array, Array]:
    """Scalars as the attributes `words` and `ends`: each as a text of JSON.

    >>> unpack(*pack_items(["a", 1, None, 0.5]))
    ['"a"', '1', 'null', '0.5']
    """
    return pack(json.dumps(item) for item in items)


def unpack_items(words: Array, ends: Array) -> list[Any]:
    """Undo `pack_items`.

    Raises:
        ValueError: a word is not JSON.
        RecursionError: it is nested too deeply.
    """
    return [json.loads(word) for word in unpack(words, ends)]


class _Members(list[Pair]):
    """A JSON object: its members in order, two of the same name too.

    An engine may write a pair as an object, with any two names, even the same.
    """


_DECODER = json.JSONDecoder(object_pairs_hook=_Members)


class _Reader:
    """Reads the rows of one column, and words what is wrong with one."""

    def __init__(self, kind: str, attrs: Attrs) -> None:
        self._form, self._empty, self._without = _ROWS[kind]
        self._name: str = attrs["feature"]
        self._step: str = attrs["step"]

    def parsed(self, column: Texts, i: int) -> Any:
        """Row i of the column as Python has it."""
        if column.missing[i]:
            raise self.no_row("NULL")
        try:
            row = _DECODER.decode(column.text(i))
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise InputTypeError(
                f"column {self._name!r} has a string that is not JSON ({reason}); pass "
                f"{self._form} per row"
            ) from None
        if row is None:
            raise self.no_row("the null of JSON")
        return row

    def items(self, column: Texts, i: int) -> list[Any]:
        """Row i, an array."""
        row = self.parsed(column, i)
        if type(row) is not list:
            raise self.wrong(row)
        return row

    def pairs(self, column: Texts, i: int) -> Iterable[Pair]:
        """Row i, an array of pairs: arrays of two, or objects of two members."""
        pairs: list[Pair] = []
        for item in self.items(column, i):
            if item is None:
                raise self.missing("among its pairs")
            if not isinstance(item, list) or len(item) != 2:
                raise self.wrong(item)
            first, second = item
            pairs.append((first[1], second[1]) if isinstance(item, _Members) else (first, second))
        return pairs

    def members(self, column: Texts, i: int) -> Iterable[Pair]:
        """Row i, an object; of members of the same name the last one counts."""
        row = self.parsed(column, i)
        if not isinstance(row, _Members):
            raise self.wrong(row)
        return dict(row).items()

    def number(self, name: Any, value: Any) -> float:
        """The weight of a name."""
        if value is None:
            raise self.missing(f"as the value of {name!r:.60}")
        try:
            if isinstance(value, int | float):
                return float(value)
        except OverflowError:
            raise InputTypeError(
                f"column {self._name!r} has a number under {name!r} that is too large for a float"
            ) from None
        raise self.wrong(value)

    def token(self, name: Any) -> bytes:
        """The bytes of a name, which are hashed."""
        if name is None:
            raise self.missing("where a name is expected")
        if not isinstance(name, str):
            raise InputTypeError(
                f"column {self._name!r} has {name!r:.60} where {self._step} takes a string; cast it"
            )
        try:
            return name.encode()
        except UnicodeEncodeError:
            raise InputTypeError(
                f"column {self._name!r} has {name!r:.60}, not valid Unicode (a lone surrogate)"
            ) from None

    def no_row(self, what: str) -> MissingValueError:
        return MissingValueError(
            f"column {self._name!r} has {what}, which {self._step} does not take; fill it in SQL "
            f"(coalesce(.., {self._empty})), or filter such rows"
        )

    def missing(self, where: str) -> MissingValueError:
        return MissingValueError(
            f"column {self._name!r} has NULL {where}, which {self._step} does not take; remove it "
            f"in SQL ({self._without}), or filter such rows"
        )

    def wrong(self, value: Any) -> InputTypeError:
        kinds: dict[type, str] = {_Members: "an object", list: "a list", str: "a string"}
        kind = "NULL" if value is None else kinds.get(type(value), "a number")
        return InputTypeError(
            f"column {self._name!r} has {kind} in a row where {self._step} takes {self._form}"
        )


def _check(types: Types, attrs: Attrs, kinds: Iterable[str]) -> None:
    (kind,) = types
    need(attrs["kind"] in kinds and kind.dtype == attrs["kind"], "no such kind of column")
    need(kind.rowwise and kind.shape[1:] == (1,), "items come of one column")
    need(attrs["dtype"] in ("float32", "float64"), "items are counted in float32 or float64")


def _has_items_type(types: Types, attrs: Attrs) -> TensorType:
    _check(types, attrs, ("list",))
    words, ends = array(attrs, "words"), array(attrs, "ends")
    need(well_formed(words, ends), "the known items are damaged")
    try:
        items = unpack_items(words, ends)
        once = len(set(items)) == len(items) and all(item == item for item in items)
    except (ValueError, TypeError, RecursionError):
        once = False
    need(once, "the known items must be single values, each of them once")
    return matrix(attrs["dtype"], len(items), sparse=True)


def _hash_items_type(types: Types, attrs: Attrs) -> TensorType:
    _check(types, attrs, NESTED)
    need(attrs["width"] >= 1, "hash_items makes at least one column")
    return matrix(attrs["dtype"], attrs["width"], sparse=True)


def _has_items(args: Sequence[Any], attrs: Attrs) -> Any:
    """1 in the column of each known item that the row has, once or more often."""
    place = {item: k for k, item in enumerate(unpack_items(attrs["words"], attrs["ends"]))}
    column, reader = Texts.of(args[0]), _Reader(attrs["kind"], attrs)
    indptr, indices = [0], []
    for i in range(len(column)):
        row = reader.items(column, i)
        try:
            indices += sorted({place[item] for item in row if item in place})
        except TypeError:  # a list or an object cannot be looked up
            raise reader.wrong(next(item for item in row if isinstance(item, list))) from None
        indptr.append(len(indices))
    return Csr(
        np.ones(len(indices), str(attrs["dtype"])),
        np.array(indices, np.int32),
        np.array(indptr, np.int64),
        len(place),
    )


def _hash_items(args: Sequence[Any], attrs: Attrs) -> Any:
    """The weight of each name, with the sign of its hash, in the column that its hash gives.

    A text as a value belongs to the name ("name=value", weight 1); a weight of 0 is left out.
    Weights that meet in a column are added up in the order of the row, in the result's dtype.
    (scipy adds them in the order that an unstable sort leaves; up to 16 items a row it is this.)
    """
    kind, width, signed = attrs["kind"], int(attrs["width"]), bool(attrs["alternate_sign"])
    column, reader = Texts.of(args[0]), _Reader(kind, attrs)
    read: Callable[[Texts, int], Iterable[Pair]] = reader.members if kind == "map" else reader.pairs
    places: dict[Any, tuple[int, int]] = {}
    rows: list[int] = []
    columns: list[int] = []
    weights: list[float] = []
    for i in range(len(column)):
        for name, value in (
            ((item, 1) for item in reader.items(column, i)) if kind == "list" else read(column, i)
        ):
            if isinstance(value, str):
                name, weight = f"{name}={value}", 1.0
            else:
                weight = reader.number(name, value)
            if weight == 0:
                continue
            found = places.get(name) if isinstance(name, str) else None
            if found is None:
                h = murmur3(reader.token(name))
                found = places[name] = (abs(h) % width, -1 if signed and h < 0 else 1)
            rows.append(i)
            columns.append(found[0])
            weights.append(weight * found[1])
    with np.errstate(over="ignore"):
        data = np.array(weights, np.float64).astype(str(attrs["dtype"]))
    return _summed(np.array(rows, np.int64), np.array(columns, np.int64), data, len(column), width)


def _summed(rows: Array, columns: Array, data: Array, count: int, width: int) -> Csr:
    """Numbers by row and column, those of the same place added up from the first to the last."""
    order = np.lexsort((columns, rows))
    rows, columns, data = rows[order], columns[order], data[order]
    first = np.ones(rows.size, bool)
    first[1:] = (np.diff(rows) != 0) | (np.diff(columns) != 0)
    sums = np.zeros(int(first.sum()), data.dtype)
    np.add.at(sums, np.cumsum(first) - 1, data)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[first], minlength=count))])
    return Csr(sums, columns[first].astype(np.int32), indptr.astype(np.int64), width)


_ATTRS: Mapping[str, str] = MappingProxyType(
    {"kind": "str", "dtype": "str", "feature": "str", "step": "str"}
)


OPERATORS: tuple[Op, ...] = (
    Op(
        "scale_stored", "model", "injective", _scale_type, _scale, {"factors": "array"}, sparse=True
    ),
    Op("map_stored", "model", "injective", _map_type, _map, {"function": "str"}, sparse=True),
    Op(
        "normalise_stored",
        "model",
        "complex",
        _normalise_type,
        _normalise,
        {"norm": "str"},
        sparse=True,
    ),
    Op(
        "require_finite_stored",
        "model",
        "injective",
        _stored_type,
        _require_finite,
        {"feature": "str", "step": "str"},
        sparse=True,
    ),
    Op("densify", "model", "injective", _densify_type, _densify, {"fill": "float"}, sparse=True),
    Op("sparsify", "model", "injective", _sparsify_type, _sparsify),
    Op(
        "has_items",
        "model",
        "opaque",
        _has_items_type,
        _has_items,
        {**_ATTRS, "words": "array", "ends": "array"},
        nested=True,
    ),
    Op(
        "hash_items",
        "model",
        "opaque",
        _hash_items_type,
        _hash_items,
        {**_ATTRS, "width": "int", "alternate_sign": "bool"},
        nested=True,
    ),
)
