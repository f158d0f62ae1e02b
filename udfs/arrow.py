"""`BatchFunction`: a compiled Program as a function from one Arrow array to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sqlml.backends.base import Compiled
from sqlml.errors import InputTypeError, ScoringError, SqlmlError
from sqlml.types import Array
from sqlml.udfs.failures import park


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """Scores a batch: fixed-size list array (rows of numbers) in, numbers out.

    `compiled` reads `input_name` (n, width) of `dtype` and makes `output`; one column comes back
    as a plain array, several as lists. Any number of threads may call it at once.
    """

    compiled: Compiled
    input_name: str
    output: str
    width: int
    dtype: str
    integer: bool
    columns: int

    def __call__(self, packed: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Score one batch.

        Raises:
            ParkedFailure: stands for the typed error that `failures.claim` gives back.
        """
        try:
            return self._score(packed)
        except SqlmlError as error:
            raise park(error) from None
        except Exception as error:  # an engine shows only text; keep the cause for the caller
            failure = ScoringError(
                f"scoring failed in backend code ({type(error).__name__}: {error}); "
                "please report this with the model's DESCRIBE"
            )
            failure.__cause__ = error
            raise park(failure) from None

    def _score(self, packed: pa.Array | pa.ChunkedArray) -> pa.Array:
        matrix = rows_of(packed, self.width, self.dtype)
        result = self.compiled.run({self.input_name: matrix}, [self.output])[self.output]
        if result.shape != (matrix.shape[0], self.columns):
            raise ScoringError(
                f"the model made {result.shape} instead of {(matrix.shape[0], self.columns)}"
            )
        if self.integer:
            return _plain(result[:, 0], pa.int32())
        numbers = _plain(result.reshape(-1), pa.float64())
        if self.columns == 1:
            return numbers
        ends = np.arange(0, result.size + 1, self.columns)
        return pa.ListArray.from_arrays(_plain(ends, pa.int32()), numbers)


def _plain(values: Array, kind: pa.DataType) -> pa.Array:
    """A numpy array (n,) as an Arrow array without NULLs; pa.array() would import pandas.

    Arrow owns the memory. DuckDB 1.5 lets Arrow's own threads release a result, maybe when the
    interpreter is already ending; around numpy's memory they would need the GIL and abort.
    """
    dtype = np.dtype(kind.to_pandas_dtype())
    buffer = pa.allocate_buffer(values.size * dtype.itemsize)
    np.frombuffer(buffer, dtype)[:] = values
    return pa.Array.from_buffers(kind, values.size, [None, buffer])


def rows_of(packed: pa.Array | pa.ChunkedArray, width: int, dtype: str) -> Array:
    """A fixed-size list array as an (n, width) matrix; NULL becomes NaN. No copy without NULLs.

    Raises:
        InputTypeError: another type or width than the model's.
    """
    if isinstance(packed, pa.ChunkedArray):
        packed = packed.chunk(0) if packed.num_chunks == 1 else packed.combine_chunks()
    if isinstance(packed, pa.ChunkedArray):
        packed = pa.concat_arrays(packed.chunks)
    kind = packed.type
    value = {"float32": pa.float32(), "float64": pa.float64()}[dtype]
    if not pa.types.is_fixed_size_list(kind) or kind.list_size != width or kind.value_type != value:
        raise InputTypeError(
            f"the batch is {kind}, but this model's function takes {dtype}[{width}]; call it "
            "through predict(..), which packs the columns"
        )
    if packed.null_count:
        raise InputTypeError("a row of the batch is NULL as a whole; pass NULL per column instead")
    values = packed.values.slice(packed.offset * width, len(packed) * width)
    if values.null_count:
        values = values.fill_null(float("nan"))
    if not len(values):
        return np.empty((0, width), dtype)
    start = values.offset * np.dtype(dtype).itemsize
    flat: Array = np.frombuffer(values.buffers()[1], dtype, len(values), start)
    return flat.reshape(-1, width)
