"""Growing matrices: rows are added in batches, in memory or in a temporary file.

A `RowStore` moves from memory into a file once it exceeds its limit. The file has no name in any
folder, so nothing is left behind however the process ends. `StoredRows` reads such a file in
blocks, and `Part` bundles the rows, targets and weights that an estimator is fitted to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from sqlml.errors import ConfigError
from sqlml.types import Array

BLOCK_BYTES = 32 << 20
"""Bytes of rows that are read at a time."""


def block_rows(row_bytes: int, most: int = BLOCK_BYTES) -> int:
    """Return how many rows of a size make a block: a multiple of the engine's vector size.

    >>> block_rows(4), block_rows(3_200), block_rows(1 << 20)
    (122880, 10240, 2048)

    Args:
        row_bytes: size of a row.
        most: upper bound on the bytes of a block.
    """
    return min(max(most // max(row_bytes, 1) // 2048, 1), 60) * 2048


class Blocks(ABC):
    """An (n, k) matrix that is read block by block."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """The number of rows in a block."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Any:
        """Return a copy of the rows from `start` to `stop`."""

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[Any]:
        """Yield a copy of all rows, block by block."""
        for start in range(0, len(self), self.block_rows):
            yield self.rows(start, min(start + self.block_rows, len(self)))


class Buffer:
    """An array of shape (n, width) or (n,) that rows are appended to.

    Growing reallocates the memory, which the system does by moving pages, so that two copies never
    exist at the same time.
    """

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._rows = 0
        self._tail = () if width is None else (width,)
        self._array = np.empty((0, *self._tail), dtype)

    def __len__(self) -> int:
        return self._rows

    def grow(self, rows: int) -> Array:
        """Make room for more rows, and return the part of the array where they belong."""
        end = self._rows + rows
        if end > len(self._array):
            capacity = max(end, int(len(self._array) * 1.1))
            self._array.resize((capacity, *self._tail), refcheck=False)
        new_rows = self._array[self._rows : end]
        self._rows = end
        return new_rows

    def append(self, rows: Array) -> None:
        """Append rows."""
        self.grow(len(rows))[...] = rows

    def array(self) -> Array:
        """Return all rows; nothing may be appended afterwards."""
        self._array.resize((self._rows, *self._tail), refcheck=False)
        return self._array

    def take_out(self, mask: Array) -> Array:
        """Remove the rows of a mask, (n,) bool, and return a copy of them; the others keep their
        order."""
        array = self.array()
        removed = array[mask]
        end = 0
        for start in range(0, len(array), _MOVED_ROWS):
            remaining = array[start : start + _MOVED_ROWS][~mask[start : start + _MOVED_ROWS]]
            array[end : end + len(remaining)] = remaining
            end += len(remaining)
        self._rows = end
        del array
        return removed


_MOVED_ROWS = 1 << 16
"""Rows that are moved at a time."""


_CLEANER = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""Program of the child process: it waits until its standard input closes, which happens when the
parent ends in any way, and removes the folder."""


class VanishingFolder:
    """A temporary folder for files that libraries open by name.

    A child process, which outlives this one, removes the folder even if this process is killed.

    Args:
        parent: the folder that contains it; None for the system's temporary folder.
    """

    def __init__(self, parent: str | None) -> None:
        self._parent = parent

    def __enter__(self) -> Self:
        """Create the folder; its path is `path`.

        Raises:
            OSError: the folder cannot be created, or the child process cannot be started.
        """
        self.path = os.path.abspath(tempfile.mkdtemp(prefix="sqlml_training_", dir=self._parent))
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CLEANER, self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                start_new_session=True,  # A signal to this process group must not end it.
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()


class RowStore:
    """An (n, width) matrix in memory, or in a temporary file once it is too large.

    Args:
        most: upper bound on the bytes in memory.
        folder: the folder of the file; None for the system's temporary folder.
    """

    def __init__(self, dtype: Any, width: int, most: float, folder: str | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.width = width
        self.folder = folder
        self._memory_limit = most
        self._buffer: Buffer | None = Buffer(dtype, width)
        self._file: IO[bytes] | None = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    @property
    def block_rows(self) -> int:
        """The number of rows in a block."""
        return block_rows(self.width * self.dtype.itemsize)

    @property
    def in_memory(self) -> bool:
        """Return whether all rows are in memory."""
        return self._file is None

    def append(self, block: Array) -> None:
        """Append rows.

        Raises:
            ConfigError: the disk is full.
        """
        self._rows += len(block)
        if self._buffer is not None:
            self._buffer.append(block)
            if self._rows * self.width * self.dtype.itemsize > self._memory_limit:
                self._move_to_file()
            return
        self._write(block)

    def take_out(self, mask: Array) -> Array:
        """Remove the rows of a mask, (n,) bool, and return a copy of them; the rows must be in
        memory."""
        assert self._buffer is not None
        removed = self._buffer.take_out(mask)
        self._rows = len(self._buffer)
        return removed

    def array(self) -> Array:
        """Return all rows; those in memory are not copied."""
        if self._buffer is not None:
            return self._buffer.array()
        return self.block(0, self._rows)

    def block(self, start: int, stop: int) -> Array:
        """Return the rows from `start` to `stop`; those from the file are a copy."""
        if self._file is None:
            return self.array()[start:stop]
        block = np.empty((stop - start, self.width), self.dtype)
        view = block.reshape(-1).view(np.uint8).data
        offset, filled = start * self.width * self.dtype.itemsize, 0
        while filled < len(view):
            count = os.preadv(self._file.fileno(), [view[filled:]], offset + filled)
            if not count:
                raise ConfigError("a temporary file of training has been cut off")
            filled += count
        return block

    def _move_to_file(self) -> None:
        assert self._buffer is not None
        try:
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)
        except OSError as error:
            raise ConfigError(f"training cannot write a temporary file: {error}") from error
        array = self._buffer.array()
        self._buffer = None
        for start in range(0, len(array), self.block_rows):
            self._write(array[start : start + self.block_rows])

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

    mask: selects the rows, (n,) bool; None for all. recoded: maps a column to the new number of
    each of its codes. columns: selects and orders the columns; None for all.
    """

    store: RowStore
    mask: Array | None
    recoded: Mapping[int, Array]
    columns: tuple[int, ...] | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        rows = len(self.store) if self.mask is None else int(self.mask.sum())
        return rows, self.store.width if self.columns is None else len(self.columns)

    @property
    def block_rows(self) -> int:
        """The number of rows in a block of the store."""
        return self.store.block_rows

    def blocks(self) -> Iterator[Array]:
        """Yield a copy of the rows, block by block."""
        return self._read_between(0, len(self.store))

    def rows(self, start: int, stop: int) -> Array:
        """Return a copy of the rows from `start` to `stop`."""
        first, last = start, stop
        if self.mask is not None:
            positions = self._positions[start:stop]
            if not len(positions):
                return np.empty((0, self.shape[1]), self.store.dtype)
            first, last = int(positions[0]), int(positions[-1]) + 1
        return np.concatenate([*self._read_between(first, last)])

    def _read_between(self, start: int, stop: int) -> Iterator[Array]:
        """Yield the selected rows between two positions of the store, block by block.

        Reading by blocks keeps memory bounded, since the rows of a mask may lie far apart.
        """
        for first in range(start, stop, self.block_rows):
            last = min(first + self.block_rows, stop)
            selected = None if self.mask is None else self.mask[first:last]
            if selected is None:
                yield self._finish_block(self.store.block(first, last))
            elif selected.any():  # Libraries reject blocks without rows.
                yield self._finish_block(self.store.block(first, last)[selected])

    @cached_property
    def _positions(self) -> Array:
        """Positions of the selected rows in the store, (m,)."""
        return np.flatnonzero(np.asarray(self.mask))

    def _finish_block(self, block: Array) -> Array:
        """Renumber the categories of a block, and select its columns."""
        for column, new_codes in self.recoded.items():
            present = ~np.isnan(block[:, column])
            block[present, column] = new_codes[block[present, column].astype(np.int64)]
        return block if self.columns is None else block[:, self.columns]

    @cached_property
    def first(self) -> Array:
        """The rows of the first block."""
        return self.rows(0, min(self.block_rows, len(self)))

    def column(self, index: int) -> Array:
        """Return one column, (n,)."""
        empty = np.empty(0, self.store.dtype)
        return np.concatenate([empty, *(block[:, index].copy() for block in self.blocks())])

    def array(self) -> Array:
        """Load all rows into memory."""
        array = np.empty(self.shape, self.store.dtype)
        row = 0
        for block in self.blocks():
            array[row : row + len(block)] = block
            row += len(block)
        return array


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows in the form that an estimator takes.

    X: (n, k), an array, a sparse matrix, a pandas frame or `Blocks`. y, weight, group: (n,), or
    None.
    """

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None


def sample(part: Part, most: int) -> Part:
    """Return at most `most` evenly spaced rows, in memory; rows in groups are all returned."""
    count = part.X.shape[0]
    positions = None
    if count > most and part.group is None:
        positions = np.linspace(0, count - 1, most).astype(np.int64)
    X = part.X
    if isinstance(X, Blocks):
        X = stack_blocks(list(_select_rows(X, positions)))
    elif positions is not None:
        X = X.iloc[positions] if hasattr(X, "iloc") else X[positions]
    if positions is None:
        return replace(part, X=X)
    y, weight = (None if v is None else v[positions] for v in (part.y, part.weight))
    return Part(X, y, weight, None)


def _select_rows(X: Blocks, positions: Array | None) -> Iterator[Any]:
    """Yield the rows at some positions, (m,) in ascending order, or all rows, block by block."""
    row = 0
    for block in X.blocks():
        end = row + block.shape[0]
        if positions is None:
            yield block
        else:
            yield block[positions[(positions >= row) & (positions < end)] - row]
        row = end


def blocks_of(X: Any) -> Iterator[Any]:
    """Yield the rows of a matrix, block by block."""
    if isinstance(X, Blocks):
        yield from X.blocks()
        return
    step = block_rows(X.shape[1] * X.dtype.itemsize)
    for start in range(0, X.shape[0], step):
        yield X[start : start + step]


def stack_blocks(blocks: Sequence[Any]) -> Any:
    """Concatenate the rows of arrays or of sparse matrices."""
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.vstack(blocks, format="csr")
