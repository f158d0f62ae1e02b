"""`encoder`: the `encode` operator for many rows at once; categories are looked up, not tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlml.ir.program import Program
from sqlml.types import Array

Encoder = Callable[[Array], Array]
"""(n, 1) of the categories' dtype -> int64 codes (n, 1); -1 for unknown categories."""

ArrowEncoder = Callable[[Any], Array]
"""An Arrow array of strings -> the same codes."""


def encoder(categories: Array, missing: int) -> Encoder:
    """A function that does what `reference.FUNCTIONS["encode"]` does with these attributes.

    Of equal categories the last one counts; a missing value (NULL, NaN) has code `missing`.
    """
    if categories.dtype == object:
        return _string_encoder(categories, missing)
    return _number_encoder(categories, missing)


def _number_encoder(categories: Array, missing: int) -> Encoder:
    # From the back, so that `unique` keeps the last of equal categories; NaN equals nothing.
    known = np.flatnonzero(categories == categories)[::-1]
    values, first = np.unique(categories[known], return_index=True)
    codes = known[first].astype(np.int64)
    floats = categories.dtype.kind == "f"

    def encode(x: Array) -> Array:
        flat = np.ascontiguousarray(x[:, 0])
        if values.size:
            place = np.minimum(np.searchsorted(values, flat), values.size - 1)
            found = np.where(values[place] == flat, codes[place], -1)
        else:
            found = np.full(flat.shape, -1, np.int64)
        if floats:
            found[np.isnan(flat)] = missing
        return found.reshape(-1, 1)

    return encode


def _string_encoder(categories: Array, missing: int) -> Encoder:
    lookup = {category: code for code, category in enumerate(categories)}
    look_up = arrow_encoder(categories, missing)

    def one_by_one(x: Array) -> Array:
        return np.array(
            [lookup.get(v, -1) if isinstance(v, str) else missing for v in x[:, 0]], np.int64
        ).reshape(-1, 1)

    if look_up is None:
        return one_by_one

    def encode(x: Array) -> Array:
        try:
            column = pa.array(x[:, 0], from_pandas=True)
        except (pa.ArrowException, UnicodeEncodeError):
            return one_by_one(x)  # something in it is not a string, or no UTF-8
        if column.type != pa.string() or not isinstance(column, pa.Array):
            return one_by_one(x)  # nothing in it is a string, or more text than fits one array
        return look_up(column)

    return encode


def arrow_encoder(categories: Array, missing: int) -> ArrowEncoder | None:
    """An encoder of Arrow arrays of strings; None if a category is not valid UTF-8.

    Such a Python string, a lone surrogate, equals nothing that Arrow can hold.
    """
    lookup = {category: code for code, category in enumerate(categories)}
    try:
        values = pa.array(list(lookup), pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return None
    sets = {kind: pc.SetLookupOptions(values.cast(kind)) for kind in _STRINGS}
    # One entry more, which stands for "no category".
    codes = np.array([*lookup.values(), -1], np.int64)

    def encode(column: Any) -> Array:
        if column.type not in sets:
            column = column.cast(pa.large_string())
        place = pc.index_in(column, options=sets[column.type])
        if place.null_count:
            place = place.fill_null(len(lookup))
        found: Array = codes[place.to_numpy()]
        if column.null_count:
            found[column.is_null().to_numpy(zero_copy_only=False)] = missing
        return found.reshape(-1, 1)

    return encode


_STRINGS = (pa.string(), pa.large_string())


def arrow_encoders(program: Program) -> dict[str, tuple[str, ArrowEncoder]] | None:
    """Output -> the input that it encodes, and how; None if an output is something else."""
    made: dict[str, tuple[str, ArrowEncoder]] = {}
    for output, i in program.outputs.items():
        node = program.nodes[i]
        if node.op != "encode":
            return None
        below = program.nodes[node.inputs[0]]
        if below.op != "input" or below.type.dtype != "string":
            return None
        encode = arrow_encoder(node.attrs["categories"], node.attrs["missing"])
        if encode is None:
            return None
        made[output] = (str(below.attrs["name"]), encode)
    return made
