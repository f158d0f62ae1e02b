"""Values of combinations of categories: CatBoost's statistics of the target (CTR).

L. Prokhorenkova et al., "CatBoost: unbiased boosting with categorical features", NeurIPS 2018,
section 4 and its supplementary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of, matrix

MULTIPLIER = 0x4906BA494954CB65
"""Of the hash of several elements: that of a and then b is MULTIPLIER * (a + MULTIPLIER * b)."""

MOST_WHOLE = 1 << 53


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """Some columns whose values are looked up together.

    columns: places. keys: int64 (k,), bit patterns of hashes, ascending. values: (k + 1, outputs),
    the last row for a combination that is not there.
    """

    columns: Array
    keys: Array
    values: Array


def combinations(attrs: Attrs) -> Iterator[Combination]:
    """The combinations that the attributes of `look_up_combinations` describe."""
    columns, keys, values = attrs["columns"], attrs["keys"], attrs["values"]
    first_column = first_key = first_value = 0
    for column, key, width in zip(
        attrs["column_ends"].tolist(),
        attrs["key_ends"].tolist(),
        attrs["widths"].tolist(),
        strict=True,
    ):
        last_value = first_value + (key - first_key + 1) * width
        yield Combination(
            columns[first_column:column],
            keys[first_key:key],
            values[first_value:last_value].reshape(-1, width),
        )
        first_column, first_key, first_value = column, key, last_value


def packed(given: Sequence[Combination]) -> dict[str, Array]:
    """The attributes of `look_up_combinations`."""

    def ends(sizes: Sequence[int]) -> Array:
        return np.cumsum(sizes, dtype=np.int64)

    return {
        "columns": np.concatenate([c.columns for c in given]).astype(np.int32),
        "column_ends": ends([c.columns.size for c in given]),
        "keys": np.concatenate([c.keys for c in given]),
        "key_ends": ends([c.keys.size for c in given]),
        "values": np.concatenate([c.values.ravel() for c in given]),
        "widths": np.array([c.values.shape[1] for c in given], np.int64),
    }


def hashes(x: Array, columns: Array) -> Array:
    """int64 (n,): the hash of each row's values in some columns, as a bit pattern.

    A value that is not finite or not below MOST_WHOLE counts as 0; fractions are cut off.
    """
    multiplier = np.uint64(MULTIPLIER)
    made = np.zeros(x.shape[0], np.uint64)
    for column in columns:
        value = x[:, column]
        whole = np.where(np.abs(value) < MOST_WHOLE, value, 0).astype(np.int64).view(np.uint64)
        made = multiplier * (made + multiplier * whole)
    return made.view(np.int64)


def _type(types: Types, attrs: Attrs) -> TensorType:
    x = types[0]
    need(x.dtype == "float64" and x.rowwise, "look_up_combinations takes float64 rows")
    need(len(x.shape) == 2, "look_up_combinations takes (n, k)")
    columns, keys, values = (array(attrs, name) for name in ("columns", "keys", "values"))
    ends = [array(attrs, name) for name in ("column_ends", "key_ends", "widths")]
    column_ends, key_ends, widths = ends
    need(all(e.dtype == np.int64 and e.ndim == 1 for e in ends), "ends must be int64, one axis")
    need(len({e.size for e in ends}) == 1 and widths.size > 0, "as many ends as combinations")
    need(columns.dtype == np.int32 and columns.ndim == 1, "columns must be int32, one axis")
    need(keys.dtype == np.int64 and keys.ndim == 1, "keys must be int64, one axis")
    need(values.ndim == 1, "values must have one axis")
    floating(dtype_of(values))
    for end, size in ((column_ends, columns.size), (key_ends, keys.size)):
        steps = np.diff(end, prepend=0)
        need(bool((steps >= 0).all()) and end[-1] == size, "ends do not fit what they end")
    need(columns.size == 0 or (columns.min() >= 0 and columns.max() < x.width), "no such column")
    need(bool((widths > 0).all()) and int(widths.max()) <= values.size, "a width is out of range")
    sizes = (np.diff(key_ends, prepend=0) + 1).astype(object) * widths.astype(object)
    need(int(sizes.sum()) == values.size, "as many values as keys and one more, for each output")
    ascending = np.ones(keys.size, bool)
    ascending[1:] = keys[1:] > keys[:-1]
    ascending[key_ends[key_ends < keys.size]] = True
    need(bool(ascending.all()), "keys must ascend")
    return matrix(dtype_of(values), int(widths.sum()))


def _look_up(args: Sequence[Array], attrs: Attrs) -> Array:
    """For each combination of columns, the values of the hash of what a row has in them."""
    (x,) = args
    made = []
    for one in combinations(attrs):
        wanted = hashes(x, one.columns)
        place = np.searchsorted(one.keys, wanted)
        known = place < one.keys.size
        known[known] = one.keys[place[known]] == wanted[known]
        made.append(one.values[np.where(known, place, one.keys.size)])
    return np.concatenate(made, axis=1)


OPERATORS: tuple[Op, ...] = (
    Op(
        "look_up_combinations",
        "model",
        "opaque",
        _type,
        _look_up,
        dict.fromkeys(("columns", "column_ends", "keys", "key_ends", "values", "widths"), "array"),
    ),
)
