"""Growing matrices in memory or in an unnamed file, to which rows are added in batches."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.types import Array

BLOCK_BYTES = 32 << 20
"""Number of bytes that are read at a time."""


def block_rows(row_bytes: int, max_bytes: int = BLOCK_BYTES) -> int:
    """Return how many rows of `row_bytes` bytes fit into a block, a multiple of the vector size.

    >>> block_rows(4), block_rows(3_200), block_rows(1 << 20)
    (122880, 10240, 2048)
    """
    return min(max(max_bytes // max(row_bytes, 1) // 2048, 1), 60) * 2048


class BlockMatrix(ABC):
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
        """Yield copies of all rows, block by block."""
        for start in range(0, len(self), self.block_rows):
            yield self.rows(start, min(start + self.block_rows, len(self)))


class RowBuffer:
    """A growing array of shape (n, width) or (n,), to which rows are appended.

    The system moves memory pages when the array grows, so two copies never exist at the same time.
    """

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._row_count = 0
        self._row_shape = () if width is None else (width,)
        self._array = np.empty((0, *self._row_shape), dtype)

    def __len__(self) -> int:
        return self._row_count

    def grow(self, row_count: int) -> Array:
        """Make room for `row_count` more rows, and return the slice of the array to fill."""
        end = self._row_count + row_count
        if end > len(self._array):
            capacity = max(end, int(len(self._array) * 1.1))
            self._array.resize((capacity, *self._row_shape), refcheck=False)
        new_rows = self._array[self._row_count : end]
        self._row_count = end
        return new_rows

    def append(self, rows: Array) -> None:
        self.grow(len(rows))[...] = rows

    def array(self) -> Array:
        """Return all rows as an array. After this call, no rows may be appended."""
        self._array.resize((self._row_count, *self._row_shape), refcheck=False)
        return self._array

    def take_out(self, mask: Array) -> Array:
        """Remove the rows that `mask`, (n,) bool, selects, and return a copy of them."""
        array = self.array()
        removed = array[mask]
        end = 0
        for start in range(0, len(array), 1 << 16):
            block = slice(start, start + (1 << 16))
            remaining = array[block][~mask[block]]
            array[end : end + len(remaining)] = remaining
            end += len(remaining)
        self._row_count = end
        return removed


_CLEANER = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""Code of a child process that removes a folder once the parent has ended or was killed."""


@contextmanager
def open_vanishing_folder(parent: str | None) -> Iterator[str]:
    """Create a temporary folder that is removed even if this process is killed."""
    path = os.path.abspath(tempfile.mkdtemp(prefix="sqlml_training_", dir=parent))
    child: subprocess.Popen[bytes] | None = None
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CLEANER, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=tempfile.gettempdir(),
            start_new_session=True,  # A signal to this process group must not end the child.
        )
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if child is not None:
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()


class RowStore:
    """An (n, width) matrix in memory; above `max_bytes`, it moves to a file in `folder`."""

    def __init__(self, dtype: Any, width: int, max_bytes: float, folder: str | None = None) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.width = width
        self.folder = folder
        self._memory_limit = max_bytes
        self._buffer: RowBuffer | None = RowBuffer(dtype, width)
        self._file: IO[bytes] | None = None
        self._row_count = 0

    def __len__(self) -> int:
        return self._row_count

    @property
    def block_rows(self) -> int:
        return block_rows(self.width * self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self._row_count * self.width * self.dtype.itemsize)

    @property
    def in_memory(self) -> bool:
        return self._file is None

    def append(self, block: Array) -> None:
        self._row_count += len(block)
        if self._buffer is not None:
            self._buffer.append(block)
            if self.nbytes > self._memory_limit:
                self._move_to_file()
            return
        self._write(block)

    def take_out(self, mask: Array) -> Array:
        """Remove the rows that `mask`, (n,) bool, selects from memory, and return a copy."""
        assert self._buffer is not None
        removed = self._buffer.take_out(mask)
        self._row_count = len(self._buffer)
        return removed

    def array(self) -> Array:
        """Return all rows, without copying if they are in memory."""
        return self._buffer.array() if self._buffer is not None else self.block(0, self._row_count)

    def block(self, start: int, stop: int) -> Array:
        if self._file is None:
            return self.array()[start:stop]
        block = np.empty((stop - start, self.width), self.dtype)
        view = block.reshape(-1).view(np.uint8).data
        offset = start * self.width * self.dtype.itemsize
        filled = 0
        while filled < len(view):
            count = os.preadv(self._file.fileno(), [view[filled:]], offset + filled)
            if not count:
                raise ConfigError("a temporary file of the training has been truncated")
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
            size = f"{self.nbytes / 2**20:,.0f} MiB"
            raise ConfigError(
                f"training needs {size} or more in {folder} for the rows that it reads "
                f"({error.strerror}): free some space there, or set temp_directory"
            ) from error


@dataclass(frozen=True, eq=False)
class StoredRows(BlockMatrix):
    """Selected rows and columns of a `RowStore` that has moved to a file.

    mask: a bool array (n,) that selects rows, or None for all rows. recoded: maps column indices to
    arrays of new category codes. columns: the indices of the columns to return, in order, or None
    for all columns.
    """

    store: RowStore
    mask: Array | None
    recoded: Mapping[int, Array]
    columns: tuple[int, ...] | None = None

    @cached_property
    def shape(self) -> tuple[int, int]:
        row_count = len(self.store) if self.mask is None else int(self.mask.sum())
        return row_count, self.store.width if self.columns is None else len(self.columns)

    @property
    def block_rows(self) -> int:
        return self.store.block_rows

    def blocks(self) -> Iterator[Array]:
        return self._read_between(0, len(self.store))

    def rows(self, start: int, stop: int) -> Array:
        first_row, end_row = start, stop
        if self.mask is not None:
            positions = self._positions[start:stop]
            if not len(positions):
                return np.empty((0, self.shape[1]), self.store.dtype)
            first_row, end_row = int(positions[0]), int(positions[-1]) + 1
        return np.concatenate([*self._read_between(first_row, end_row)])

    def _read_between(self, start: int, stop: int) -> Iterator[Array]:
        for block_start in range(start, stop, self.block_rows):
            block_end = min(block_start + self.block_rows, stop)
            selected = None if self.mask is None else self.mask[block_start:block_end]
            if selected is None:
                yield self._finish_block(self.store.block(block_start, block_end))
            elif selected.any():  # Libraries reject blocks without rows.
                yield self._finish_block(self.store.block(block_start, block_end)[selected])

    @cached_property
    def _positions(self) -> Array:
        return np.flatnonzero(np.asarray(self.mask))

    def _finish_block(self, block: Array) -> Array:
        for column, new_codes in self.recoded.items():
            present = ~np.isnan(block[:, column])
            block[present, column] = new_codes[block[present, column].astype(np.int64)]
        return block if self.columns is None else block[:, self.columns]

    @cached_property
    def first_block(self) -> Array:
        return self.rows(0, min(self.block_rows, len(self)))

    def column(self, index: int) -> Array:
        empty = np.empty(0, self.store.dtype)
        return np.concatenate([empty, *(block[:, index].copy() for block in self.blocks())])

    def array(self) -> Array:
        array = np.empty(self.shape, self.store.dtype)
        start = 0
        for block in self.blocks():
            array[start : start + len(block)] = block
            start += len(block)
        return array


@dataclass(frozen=True, slots=True, eq=False)
class EstimatorRows:
    """Rows in the form that an estimator expects.

    X: the features (n, k) as an array, a sparse matrix, a pandas frame or a `BlockMatrix`. y: the
    labels (n,), or None. weight: the row weights (n,), or None. group: the group numbers (n,), or
    None.
    """

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None


def sample_rows(part: EstimatorRows, max_rows: int) -> EstimatorRows:
    """Load at most `max_rows` evenly spaced rows into memory; rows with groups are all loaded."""
    row_count = part.X.shape[0]
    positions = None
    if row_count > max_rows and part.group is None:
        positions = np.linspace(0, row_count - 1, max_rows).astype(np.int64)
    X = part.X
    if isinstance(X, BlockMatrix):
        blocks = list(_select_rows(X, positions))
        if isinstance(blocks[0], np.ndarray):
            X = np.concatenate(blocks)
        else:
            from scipy import sparse

            X = sparse.vstack(blocks, format="csr")
    elif positions is not None:
        X = X.iloc[positions] if hasattr(X, "iloc") else X[positions]
    if positions is None:
        return replace(part, X=X)
    y, weight = (None if values is None else values[positions] for values in (part.y, part.weight))
    return EstimatorRows(X, y, weight, None)


def _select_rows(X: BlockMatrix, positions: Array | None) -> Iterator[Any]:
    """Yield the rows at the ascending `positions` (m,) block by block, or all rows if None."""
    block_start = 0
    for block in X.blocks():
        block_end = block_start + block.shape[0]
        if positions is None:
            yield block
        else:
            is_inside = (positions >= block_start) & (positions < block_end)
            yield block[positions[is_inside] - block_start]
        block_start = block_end


def read_blocks(X: Any) -> Iterator[Any]:
    if isinstance(X, BlockMatrix):
        yield from X.blocks()
        return
    step = block_rows(X.shape[1] * X.dtype.itemsize)
    for start in range(0, X.shape[0], step):
        yield X[start : start + step]
