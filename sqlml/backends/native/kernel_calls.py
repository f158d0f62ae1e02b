"""`KernelCalls`: the kernel calls that compute an output, recorded so that they run without Python.

A filler (`backends/base.py`) is a Python function around kernels. This module records once which
kernels a filler calls for a block of rows, with which constants, and where a block's numbers go.
The calls are encoded as a table of integers, which machine code follows on any thread without the
GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, kinds_of, reads, writes
from sqlml.backends.native.jit.call_wrapper import to_words
from sqlml.backends.native.jit.specialise import find_entry, specialise
from sqlml.types import Array

# Places of a block's numbers: the input rows, the output, and the first of the scratch places.
INPUT, RESULT, SCRATCH = 0, 1, 2

# How a word of a call is set for a block: to an address in a place, or to a multiple of the rows.
ADDRESS, COUNT = 0, 1


@dataclass(frozen=True, slots=True)
class Rows:
    """An array in a block of n rows: (n, width), or (n * width,) if `flat`.

    `place` holds rows of `stride` numbers (0 means `width`), and the array begins at their column
    `first`.
    """

    place: int
    dtype: np.dtype[Any]
    width: int
    first: int = 0
    stride: int = 0
    flat: bool = False

    @property
    def is_contiguous(self) -> bool:
        """True if each row begins where the previous row ends."""
        return self.stride in (0, self.width)

    def select(self, columns: slice) -> Rows:
        width, stride = columns.stop - columns.start, self.stride or self.width
        return replace(self, first=self.first + columns.start, width=width, stride=stride)

    def line(self, dtype: np.dtype[Any] | None = None) -> Rows:
        """Return the rows as a flat array, viewed as `dtype`, which must have the same size."""
        assert self.is_contiguous
        return replace(self, dtype=dtype or self.dtype, flat=True)


MEMORY = object()
"""An argument that stands for the whole memory, as an array of bytes that addresses index."""


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel of `specialise` and its arguments: constants, `Rows`, and `MEMORY`."""

    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RowKernel:
    """A kernel that maps x (n, k) to (n, width) of `dtype`, with the constants that it reads.

    If `is_zeroed`, its output must be filled with zeros before the call.
    """

    kernel: Callable[..., Any]
    constants: tuple[Any, ...]
    width: int
    dtype: np.dtype[Any]
    is_zeroed: bool = False

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        source: np.dtype[Any],
        constants: tuple[Any, ...],
        width: int,
        dtype: np.dtype[Any],
        *,
        is_zeroed: bool = False,
    ) -> RowKernel:
        """Compile `function(x, *constants, out)` for rows of dtype `source`."""
        argument_kinds = (reads(source, 2), *kinds_of(*constants), writes(dtype, 2))
        return cls(specialise(function, argument_kinds), constants, width, dtype, is_zeroed)

    def __call__(self, x: Array) -> Array:
        allocate = np.zeros if self.is_zeroed else np.empty
        out: Array = allocate((x.shape[0], self.width), self.dtype)
        self.kernel(x, *self.constants, out)
        return out

    def call(self, x: Rows, out: Rows) -> Call:
        return Call(self.kernel, (x, *self.constants, out))


@dataclass(frozen=True, slots=True, eq=False)
class KernelCalls:
    """Calls in order. If a call returns 0 or more, it rejects rows, and the block ends there."""

    calls: tuple[Call, ...]

    def measure_scratch(self) -> tuple[int, ...]:
        """Return the bytes per row of each scratch place, in the order of their numbers."""
        sizes: dict[int, int] = {}
        for call in self.calls:
            for argument in call.arguments:
                if isinstance(argument, Rows) and argument.place >= SCRATCH:
                    size = (argument.stride or argument.width) * argument.dtype.itemsize
                    sizes[argument.place] = max(size, sizes.get(argument.place, 0))
        return tuple(sizes.get(place, 0) for place in range(SCRATCH, max(sizes, default=1) + 1))

    def count_max_words(self) -> int:
        return max((len(_encode_arguments(call)[0]) for call in self.calls), default=0)

    def encode(self) -> Array | None:
        """Encode the calls as a table, int64; return None if a kernel needs numba to run.

        Each call is encoded as the address of its entry, the number of its words, the number of
        words that change, the words, and three integers for each word that changes: its index, how
        it is set (ADDRESS or COUNT), and a value. The value is

        - for ADDRESS, the place times 2**32 plus an offset in bytes,
        - for COUNT, the word's value per row.

        The arrays in the calls must be kept alive as long as the table is used.
        """
        table: list[int] = []
        for call in self.calls:
            entry = find_entry(call.kernel)
            if entry is None:
                return None
            words, changes = _encode_arguments(call)
            table += (entry.words, len(words), len(changes) // 3, *words, *changes)
        return np.array(table, np.int64)


_LARGEST = (1 << 63) - 1


def _encode_arguments(call: Call) -> tuple[list[int], list[int]]:
    """Return the words of a call's arguments, and the changes of words per block (`encode`)."""
    entry = find_entry(call.kernel)
    assert entry is not None
    words: list[int] = []
    changes: list[int] = []
    for kind, argument in zip(entry.signature, call.arguments, strict=True):
        if isinstance(argument, Rows):
            words += _encode_rows(kind, argument, len(words), changes)
        elif argument is MEMORY:
            words += (0, _LARGEST, 1)
        else:
            words += to_words(kind, argument)
    return words, changes


def _encode_rows(kind: Kind, rows: Rows, index: int, changes: list[int]) -> Iterator[int]:
    """Yield the words of `rows`, which begin at word `index`; extend `changes` (`encode`)."""
    assert isinstance(kind, ArrayKind) and kind.dtype == rows.dtype
    assert kind.ndim == (1 if rows.flat else 2) and (rows.is_contiguous or kind.layout == "A")
    itemsize = rows.dtype.itemsize
    changes += (index, ADDRESS, (rows.place << 32) + rows.first * itemsize)
    changes += (index + 1, COUNT, rows.width if rows.flat else 1)
    yield from (0, 0)
    if not rows.flat:
        yield from (rows.width, (rows.stride or rows.width) * itemsize)
    yield itemsize
