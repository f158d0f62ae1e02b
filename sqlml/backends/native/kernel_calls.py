"""`KernelCalls`: the kernel calls that compute an output, recorded so that they run without Python.

A filler (`backends/base.py`) is a Python function around kernels. This module records the kernels
that a filler calls for a block of rows, their constants, and the buffers that they read and write.
The calls are encoded as a table of integers. Machine code follows the table without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import (
    ArrayKind,
    Kind,
    reads,
    to_kinds,
    to_words,
    writes,
)
from sqlml.backends.native.jit.processor_levels import LINE_BYTES
from sqlml.backends.native.jit.specialise import find_entry, specialise
from sqlml.types import Array

# Numbers of a block's buffers: the input rows, the output, and the first scratch buffer.
INPUT, RESULT, SCRATCH = 0, 1, 2

# Kinds of patches: a word becomes an address in a buffer, or a multiple of the number of rows.
PATCH_ADDRESS, PATCH_COUNT = 0, 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of a buffer for a block of n rows: an array (n, width), or (n * width,) if `is_flat`.

    A row of the buffer has `stride` numbers; 0 means `width`. The array begins at column
    `first_column` of the buffer.
    """

    buffer: int
    dtype: np.dtype[Any]
    width: int
    first_column: int = 0
    stride: int = 0
    is_flat: bool = False

    @property
    def is_contiguous(self) -> bool:
        """True if each row begins where the previous row ends."""
        return self.stride in (0, self.width)

    def select(self, columns: slice) -> Rows:
        width, stride = columns.stop - columns.start, self.stride or self.width
        first_column = self.first_column + columns.start
        return replace(self, first_column=first_column, width=width, stride=stride)

    def flatten(self, dtype: np.dtype[Any] | None = None) -> Rows:
        """Return the rows as a flat array, viewed as `dtype`, which must have the same size."""
        assert self.is_contiguous
        return replace(self, dtype=dtype or self.dtype, is_flat=True)


MEMORY = object()
"""An argument that stands for the whole memory: an array of bytes that is indexed by address."""


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel of `specialise` and its arguments: constants, `Rows`, and `MEMORY`."""

    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]


def pack_arrays(constants: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy the arrays of `constants`, which may contain tuples, into one block of memory.

    Each array begins at a cache line. A model in one block uses few pages of memory: where 300
    models of 100 small trees score 512 rows each in turn, a turn takes 33 us instead of 59 us,
    because the processor looks up fewer addresses of pages.
    """
    nbytes = sum(_align(array.nbytes) for array in list_arrays(constants))
    unaligned_block = np.empty(nbytes + LINE_BYTES, np.uint8)
    block = unaligned_block[-unaligned_block.ctypes.data % LINE_BYTES :]
    position = 0

    def pack(value: Any) -> Any:
        nonlocal position
        if isinstance(value, tuple):
            return tuple(map(pack, value))
        if not isinstance(value, np.ndarray):
            return value
        packed = block[position : position + value.nbytes].view(value.dtype).reshape(value.shape)
        packed[...] = value
        position += _align(value.nbytes)
        return packed

    return tuple(map(pack, constants))


def _align(nbytes: int) -> int:
    return -(-nbytes // LINE_BYTES) * LINE_BYTES


def list_arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays in `value`, which may be nested tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from list_arrays(item)


@dataclass(frozen=True, slots=True, eq=False)
class RowKernel:
    """A kernel that maps x (n, k) to (n, width) of `dtype`, and the kernel's constants.

    If `is_zeroed`, the output must be filled with zeros before the call. If `takes_any_stride`, the
    output may be columns of wider rows. `row_shape` is the shape of a row of the result, if it is
    not (width,).
    """

    kernel: Callable[..., Any]
    constants: tuple[Any, ...]
    width: int
    dtype: np.dtype[Any]
    is_zeroed: bool = False
    takes_any_stride: bool = False
    row_shape: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        source_dtype: np.dtype[Any],
        constants: tuple[Any, ...],
        width: int,
        dtype: np.dtype[Any],
        *,
        is_zeroed: bool = False,
        takes_any_stride: bool = False,
    ) -> RowKernel:
        """Compile `function(x, *constants, out)` for rows of dtype `source_dtype`."""
        out_kind = ArrayKind(dtype, 2, "A", False) if takes_any_stride else writes(dtype, 2)
        kernel = specialise(function, (reads(source_dtype, 2), *to_kinds(*constants), out_kind))
        return cls(kernel, constants, width, dtype, is_zeroed, takes_any_stride)

    def __call__(self, x: Array) -> Array:
        allocate = np.zeros if self.is_zeroed else np.empty
        out: Array = allocate((x.shape[0], self.width), self.dtype)
        self.kernel(x, *self.constants, out)
        return out.reshape(-1, *self.row_shape) if self.row_shape else out

    def make_call(self, x: Rows, out: Rows) -> Call:
        return Call(self.kernel, (x, *self.constants, out))


@dataclass(frozen=True, slots=True, eq=False)
class KernelCalls:
    """Calls in order. A call that returns 0 or more rejects rows and ends the block."""

    calls: tuple[Call, ...]

    def measure_scratch(self) -> tuple[int, ...]:
        """Return the bytes per row of each scratch buffer, in the order of their numbers."""
        sizes: dict[int, int] = {}
        for call in self.calls:
            for argument in call.arguments:
                if isinstance(argument, Rows) and argument.buffer >= SCRATCH:
                    size = (argument.stride or argument.width) * argument.dtype.itemsize
                    sizes[argument.buffer] = max(size, sizes.get(argument.buffer, 0))
        return tuple(sizes.get(buffer, 0) for buffer in range(SCRATCH, max(sizes, default=1) + 1))

    def count_max_words(self) -> int:
        return max((len(_encode_arguments(call)[0]) for call in self.calls), default=0)

    def encode(self) -> Array | None:
        """Encode the calls as a table, int64; return None if a kernel needs numba to run.

        A call is encoded as the address of the kernel's entry, the number of words, the number of
        patches, the words, and the patches. A patch is three integers: the index of the word to
        change, a kind (PATCH_ADDRESS or PATCH_COUNT), and a value. The value is

        - for PATCH_ADDRESS, the buffer times 2**32 plus an offset in bytes,
        - for PATCH_COUNT, the word's value per row.

        The arrays in the calls must be kept alive as long as the table is used.
        """
        table: list[int] = []
        for call in self.calls:
            entry = find_entry(call.kernel)
            if entry is None:
                return None
            words, patches = _encode_arguments(call)
            table += (entry.words_address, len(words), len(patches) // 3, *words, *patches)
        return np.array(table, np.int64)


_MAX_INT64 = (1 << 63) - 1


def _encode_arguments(call: Call) -> tuple[list[int], list[int]]:
    """Return a call's words, and the patches of these words; see `KernelCalls.encode`."""
    entry = find_entry(call.kernel)
    assert entry is not None
    words: list[int] = []
    patches: list[int] = []
    for kind, argument in zip(entry.signature, call.arguments, strict=True):
        if isinstance(argument, Rows):
            words += encode_call_rows(kind, argument, len(words), patches)
        elif argument is MEMORY:
            words += (0, _MAX_INT64, 1)
        else:
            words += to_words(kind, argument)
    return words, patches


def encode_call_rows(kind: Kind, rows: Rows, first_word: int, patches: list[int]) -> Iterator[int]:
    """Yield the words that encode `rows`, and append the patches of these words to `patches`."""
    assert isinstance(kind, ArrayKind) and kind.dtype == rows.dtype
    assert kind.ndim == (1 if rows.is_flat else 2) and (rows.is_contiguous or kind.layout == "A")
    itemsize = rows.dtype.itemsize
    patches += (first_word, PATCH_ADDRESS, (rows.buffer << 32) + rows.first_column * itemsize)
    patches += (first_word + 1, PATCH_COUNT, rows.width if rows.is_flat else 1)
    yield from (0, 0)
    if not rows.is_flat:
        yield from (rows.width, (rows.stride or rows.width) * itemsize)
    yield itemsize
