"""`RowStore`: a matrix that grows by batches, in memory, or beyond a size in a file without a name.

The file has no name in any folder (or loses it at once), so nothing is left behind however the
process ends. It is read in blocks: the rows need no memory of the process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.storage.blocks import Blocks, block_rows
from sqlml.training.storage.buffers import Buffer
from sqlml.types import Array


class RowStore:
    """(n, width) numbers.

    Args:
        most: bytes that are kept in memory. folder: of the file; None: the system's for such files.
    """

    def __init__(self, dtype: Any, width: int, most: float, folder: str | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.width = width
        self.folder = folder
        self._most = most
        self._buffer: Buffer | None = Buffer(dtype, width)
        self._file: IO[bytes] | None = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def block_rows(self) -> int:
        """Rows that are read at a time."""
        return block_rows(self.width * self.dtype.itemsize)

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory."""
        return self._file is None

    def append(self, block: Array) -> None:
        """Add rows at the end.

        Raises:
            ConfigError: the disk is full.
        """
        self._rows += len(block)
        if self._buffer is not None:
            self._buffer.append(block)
            if self._rows * self.width * self.dtype.itemsize > self._most:
                self._move()
            return
        self._write(block)

    def take_out(self, mask: Array) -> Array:
        """The rows of a mask, (n,) bool, as an array of their own; the others stay, in order. Only
        of rows in memory."""
        assert self._buffer is not None
        gone = self._buffer.take_out(mask)
        self._rows = len(self._buffer)
        return gone

    def array(self) -> Array:
        """All rows; those in memory are not copied."""
        if self._buffer is not None:
            return self._buffer.array()
        return self.block(0, self._rows)

    def block(self, start: int, stop: int) -> Array:
        """Some rows; those from the file are a copy."""
        if self._file is None:
            return self.array()[start:stop]
        made = np.empty((stop - start, self.width), self.dtype)
        view = made.reshape(-1).view(np.uint8).data
        place, read = start * self.width * self.dtype.itemsize, 0
        while read < len(view):
            got = os.preadv(self._file.fileno(), [view[read:]], place + read)
            if not got:
                raise ConfigError("a temporary file of training has been cut off")
            read += got
        return made

    def _move(self) -> None:
        """From memory into a file."""
        assert self._buffer is not None
        try:
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)
        except OSError as error:
            raise ConfigError(f"training cannot write a temporary file: {error}") from error
        held = self._buffer.array()
        self._buffer = None
        for start in range(0, len(held), self.block_rows):
            self._write(held[start : start + self.block_rows])

    def _write(self, block: Array) -> None:
        assert self._file is not None
        view = np.ascontiguousarray(block, self.dtype).reshape(-1).view(np.uint8).data
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            folder = self.folder or tempfile.gettempdir()
            size = self._rows * self.width * self.dtype.itemsize
            raise ConfigError(
                f"training needs {size / 2**20:,.0f} MiB or more in {folder} for the rows that it "
                f"reads ({error.strerror}): free some space there, or set temp_directory"
            ) from error


@dataclass(frozen=True, eq=False)
class StoredRows(Blocks):
    """Some rows of a store that is a file, in order.

    mask: which, (n,) bool; None: all. recoded: column -> place of each of its codes; NaN stays.
    columns: which of the columns, in this order; None: all.
    """

    store: RowStore
    mask: Array | None
    recoded: Mapping[int, Array]
    columns: tuple[int, ...] | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows = len(self.store) if self.mask is None else int(self.mask.sum())
        return rows, self.store.width if self.columns is None else len(self.columns)

    @property
    def block_rows(self) -> int:
        """Rows of a block of the store."""
        return self.store.block_rows

    def blocks(self) -> Iterator[Array]:
        """The rows in blocks of their own."""
        return self._between(0, len(self.store))

    def rows(self, start: int, stop: int) -> Array:
        """The rows from one place to another, of their own."""
        first, last = start, stop
        if self.mask is not None:
            places = self._places[start:stop]
            if not len(places):
                return np.empty((0, self.shape[1]), self.store.dtype)
            first, last = int(places[0]), int(places[-1]) + 1
        return np.concatenate([*self._between(first, last)])

    def _between(self, start: int, stop: int) -> Iterator[Array]:
        """Those of the store's rows from one place to another, in blocks: the rows of a mask may
        lie far apart."""
        for first in range(start, stop, self.block_rows):
            last = min(first + self.block_rows, stop)
            chosen = None if self.mask is None else self.mask[first:last]
            if chosen is None:
                yield self._finished(self.store.block(first, last))
            elif chosen.any():  # libraries take no blocks without rows
                yield self._finished(self.store.block(first, last)[chosen])

    @cached_property
    def _places(self) -> Array:
        """(m,) where in the store the rows are."""
        return np.flatnonzero(np.asarray(self.mask))

    def _finished(self, block: Array) -> Array:
        """A block with its categories numbered in order, and the chosen columns."""
        for column, places in self.recoded.items():
            known = ~np.isnan(block[:, column])
            block[known, column] = places[block[known, column].astype(np.int64)]
        return block if self.columns is None else block[:, self.columns]

    @cached_property
    def first(self) -> Array:
        """The first rows: one block."""
        return self.rows(0, min(self.block_rows, len(self)))

    def column(self, place: int) -> Array:
        """(n,) one column."""
        parts = [np.empty(0, self.store.dtype)]
        return np.concatenate([*parts, *(block[:, place].copy() for block in self.blocks())])

    def array(self) -> Array:
        """All of them in memory."""
        made = np.empty(self.shape, self.store.dtype)
        row = 0
        for block in self.blocks():
            made[row : row + len(block)] = block
            row += len(block)
        return made
