"""`make_encoder`: a fast `encode` operator that looks up many rows at once."""

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
"""A function from values (n, 1) to int64 codes (n, 1); unknown values get -1."""

ArrowEncoder = Callable[[Any], Array]
"""A function from an Arrow array of strings to int64 codes (n, 1); unknown strings get -1."""


def make_encoder(categories: Array, missing_code: int) -> Encoder:
    """Return a fast `encode` function; the last of equal categories determines the code."""
    make_for_dtype = _make_string_encoder if categories.dtype == object else _make_number_encoder
    return make_for_dtype(categories, missing_code)


def _make_number_encoder(categories: Array, missing_code: int) -> Encoder:
    # Drop NaN. Reverse the order, because `unique` keeps the first of equal categories.
    indices = np.flatnonzero(categories == categories)[::-1]
    distinct, first_indices = np.unique(categories[indices], return_index=True)
    codes = indices[first_indices].astype(np.int64)
    is_float = categories.dtype.kind == "f"

    def encode(x: Array) -> Array:
        flat = np.ascontiguousarray(x[:, 0])
        if distinct.size:
            positions = np.minimum(np.searchsorted(distinct, flat), distinct.size - 1)
            codes_of_rows = np.where(distinct[positions] == flat, codes[positions], -1)
        else:
            codes_of_rows = np.full(flat.shape, -1, np.int64)
        if is_float:
            codes_of_rows[np.isnan(flat)] = missing_code
        return codes_of_rows.reshape(-1, 1)

    return encode


def _make_string_encoder(categories: Array, missing_code: int) -> Encoder:
    code_of = {category: code for code, category in enumerate(categories)}
    encode_arrow = make_arrow_encoder(categories, missing_code)

    def encode(x: Array) -> Array:
        column = None
        with suppress(pa.ArrowException, UnicodeEncodeError):
            column = pa.array(x[:, 0], from_pandas=True)
        # The conversion fails or returns chunks if a value is not a string or not valid UTF-8, or
        # if the text is too long for one array.
        if encode_arrow is not None and isinstance(column, pa.StringArray):
            return encode_arrow(column)
        codes = [code_of.get(v, -1) if isinstance(v, str) else missing_code for v in x[:, 0]]
        return np.array(codes, np.int64).reshape(-1, 1)

    return encode


def make_arrow_encoder(categories: Array, missing_code: int) -> ArrowEncoder | None:
    """Return an encoder of Arrow strings, or None if a category is not valid UTF-8."""
    code_of = {category: code for code, category in enumerate(categories)}
    try:
        strings = pa.array(list(code_of), pa.string())
    except (pa.ArrowException, UnicodeEncodeError):
        return None
    arrow_types = (pa.string(), pa.large_string())
    options_by_type = {type_: pc.SetLookupOptions(strings.cast(type_)) for type_ in arrow_types}
    # The last entry is the code of unknown strings.
    codes = np.array([*code_of.values(), -1], np.int64)

    def encode(column: Any) -> Array:
        if column.type not in options_by_type:
            column = column.cast(pa.large_string())
        positions = pc.index_in(column, options=options_by_type[column.type])
        if positions.null_count:
            positions = positions.fill_null(len(code_of))
        codes_of_rows: Array = codes[positions.to_numpy()]
        if column.null_count:
            codes_of_rows[column.is_null().to_numpy(zero_copy_only=False)] = missing_code
        return codes_of_rows.reshape(-1, 1)

    return encode


def make_arrow_encoders(program: Program) -> dict[str, tuple[str, ArrowEncoder]] | None:
    """Map each output to an input and an encoder; return None unless all outputs encode strings."""
    encoders: dict[str, tuple[str, ArrowEncoder]] = {}
    for output, i in program.outputs.items():
        node = program.nodes[i]
        if node.op != "encode":
            return None
        source = program.nodes[node.inputs[0]]
        if source.op != "input" or source.type.dtype != "string":
            return None
        encoder = make_arrow_encoder(node.attrs["categories"], node.attrs["missing"])
        if encoder is None:
            return None
        encoders[output] = (str(source.attrs["name"]), encoder)
    return encoders
