"""`make_encoder`: the `encode` operator by lookups of many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlml.ir.program import Program
from sqlml.types import Array

Encoder = Callable[[Array], Array]
"""A function from (n, 1) of the categories' dtype to int64 codes (n, 1), -1 for unknown ones."""

ArrowEncoder = Callable[[Any], Array]
"""A function from an Arrow array of strings to the same codes."""


def make_encoder(categories: Array, missing: int) -> Encoder:
    """Return a fast equivalent of the reference's `encode`; the last of equal categories counts."""
    if categories.dtype == object:
        return _make_string_encoder(categories, missing)
    return _make_number_encoder(categories, missing)


def _make_number_encoder(categories: Array, missing: int) -> Encoder:
    # In reverse order, because `unique` returns the first of equal categories. NaN equals nothing.
    numbers = np.flatnonzero(categories == categories)[::-1]
    values, first = np.unique(categories[numbers], return_index=True)
    codes = numbers[first].astype(np.int64)
    floats = categories.dtype.kind == "f"

    def encode(x: Array) -> Array:
        flat = np.ascontiguousarray(x[:, 0])
        if values.size:
            position = np.minimum(np.searchsorted(values, flat), values.size - 1)
            result = np.where(values[position] == flat, codes[position], -1)
        else:
            result = np.full(flat.shape, -1, np.int64)
        if floats:
            result[np.isnan(flat)] = missing
        return result.reshape(-1, 1)

    return encode


def _make_string_encoder(categories: Array, missing: int) -> Encoder:
    code_of = {category: code for code, category in enumerate(categories)}
    encode_arrow = make_arrow_encoder(categories, missing)

    def encode_one_by_one(x: Array) -> Array:
        codes = [code_of.get(v, -1) if isinstance(v, str) else missing for v in x[:, 0]]
        return np.array(codes, np.int64).reshape(-1, 1)

    def encode(x: Array) -> Array:
        column = None
        with suppress(pa.ArrowException, UnicodeEncodeError):
            column = pa.array(x[:, 0], from_pandas=True)
        # Otherwise an entry is no string or not valid UTF-8, or the text exceeds one array.
        if encode_arrow is not None and isinstance(column, pa.StringArray):
            return encode_arrow(column)
        return encode_one_by_one(x)

    return encode


def make_arrow_encoder(categories: Array, missing: int) -> ArrowEncoder | None:
    """Return an encoder of Arrow arrays of strings; None if a category is not valid UTF-8."""
    code_of = {category: code for code, category in enumerate(categories)}
    try:
        values = pa.array(list(code_of), pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return None
    kinds = (pa.string(), pa.large_string())
    sets = {kind: pc.SetLookupOptions(values.cast(kind)) for kind in kinds}
    # The last entry is the code of unknown strings.
    codes = np.array([*code_of.values(), -1], np.int64)

    def encode(column: Any) -> Array:
        if column.type not in sets:
            column = column.cast(pa.large_string())
        position = pc.index_in(column, options=sets[column.type])
        if position.null_count:
            position = position.fill_null(len(code_of))
        result: Array = codes[position.to_numpy()]
        if column.null_count:
            result[column.is_null().to_numpy(zero_copy_only=False)] = missing
        return result.reshape(-1, 1)

    return encode


def make_arrow_encoders(program: Program) -> dict[str, tuple[str, ArrowEncoder]] | None:
    """Map each output to its input and its encoder; None if an output is not an encoded input."""
    encoders: dict[str, tuple[str, ArrowEncoder]] = {}
    for output, i in program.outputs.items():
        node = program.nodes[i]
        if node.op != "encode":
            return None
        source = program.nodes[node.inputs[0]]
        if source.op != "input" or source.type.dtype != "string":
            return None
        encode = make_arrow_encoder(node.attrs["categories"], node.attrs["missing"])
        if encode is None:
            return None
        encoders[output] = (str(source.attrs["name"]), encode)
    return encoders
