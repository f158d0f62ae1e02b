"""`KernelCalls`: an output as the calls of kernels that make it, for a caller without Python.

A filler (`backends/base.py`) is a function of Python around kernels. What it would call for a block
of rows is written down here once: which kernels, with which constants, and where the block's own
numbers go. `words` makes of it a table of plain numbers, which machine code follows on any thread
without Python's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind
from sqlml.backends.native.jit.call_wrapper import words_of
from sqlml.backends.native.jit.specialise import entry_of
from sqlml.types import Array

INPUT, RESULT, SCRATCH = 0, 1, 2
"""Places of numbers: the rows that are given, the output, and the first of those between."""

ADDRESS, COUNT = 0, 1
"""What a word of a call is: the address of a place, or a number for each row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The numbers of a block of n rows at `place`: (n, width), or (n * width,) where `flat`.

    They are columns `first` to `first + width` of rows of `stride` numbers.
    """

    place: int
    dtype: np.dtype[Any]
    width: int
    first: int = 0
    stride: int = 0
    flat: bool = False

    @property
    def whole(self) -> bool:
        """Whether the rows have no other columns."""
        return self.stride in (0, self.width)

    def columns(self, chosen: slice) -> Rows:
        """Some neighbouring columns of these rows."""
        stride = self.stride or self.width
        return replace(
            self, first=self.first + chosen.start, width=chosen.stop - chosen.start, stride=stride
        )

    def line(self, dtype: np.dtype[Any] | None = None) -> Rows:
        """The numbers one after the other, as bits of another `dtype` of the same size."""
        assert self.whole
        return replace(self, dtype=dtype or self.dtype, flat=True)


class _Memory:
    """All of the memory as one array of bytes: a byte's place is its address."""


MEMORY = _Memory()


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel of `specialise` and its arguments: constants, `Rows`, and `MEMORY`."""

    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KernelCalls:
    """Calls one after the other; none is made behind one whose result is not below 0."""

    calls: tuple[Call, ...]

    def scratch(self) -> tuple[int, ...]:
        """Bytes a row of the places from SCRATCH on."""
        sizes: dict[int, int] = {}
        for call in self.calls:
            for rows in call.arguments:
                if isinstance(rows, Rows) and rows.place >= SCRATCH:
                    size = (rows.stride or rows.width) * rows.dtype.itemsize
                    sizes[rows.place] = max(size, sizes.get(rows.place, 0))
        return tuple(sizes.get(place, 0) for place in range(SCRATCH, max(sizes, default=1) + 1))

    def most_words(self) -> int:
        """The most words that one of the calls takes."""
        return max((len(_words_of(call)[0]) for call in self.calls), default=0)

    def words(self) -> Array | None:
        """The table, int64: for each call its address, how many words it takes, how many of them
        change, the words, and three numbers for each that changes: its number, what it is, and

        - for ADDRESS the place, times 2**32, and the bytes after its begin,
        - for COUNT how many there are a row.

        None where numba itself runs one of the kernels. The arrays must be kept as long.
        """
        table: list[int] = []
        for call in self.calls:
            entry = entry_of(call.kernel)
            if entry is None:
                return None
            words, changes = _words_of(call)
            table += (entry.words, len(words), len(changes) // 3, *words, *changes)
        return np.array(table, np.int64)


_MOST = (1 << 63) - 1


def _words_of(call: Call) -> tuple[list[int], list[int]]:
    """The words of a call's arguments, and which of them change."""
    entry = entry_of(call.kernel)
    assert entry is not None
    words: list[int] = []
    changes: list[int] = []
    for kind, argument in zip(entry.signature, call.arguments, strict=True):
        if isinstance(argument, Rows):
            words += _words_of_rows(kind, argument, len(words), changes)
        elif argument is MEMORY:
            words += (0, _MOST, 1)
        else:
            words += words_of(kind, argument)
    return words, changes


def _words_of_rows(kind: Kind, rows: Rows, at: int, changes: list[int]) -> Iterator[int]:
    """The words of an array of rows; those that change are noted in `changes`."""
    assert isinstance(kind, ArrayKind) and kind.dtype == rows.dtype
    assert kind.ndim == (1 if rows.flat else 2) and (rows.whole or kind.layout == "A")
    size = rows.dtype.itemsize
    stride = rows.stride or rows.width
    changes += (at, ADDRESS, (rows.place << 32) + rows.first * size)
    changes += (at + 1, COUNT, rows.width if rows.flat else 1)
    yield from (0, 0)
    if rows.flat:
        yield size
    else:
        yield from (rows.width, stride * size, size)
