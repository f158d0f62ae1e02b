"""`RowStore`: a matrix that grows by batches, in memory, or beyond a size in a file without a name.

The file has no name in any folder (or loses it at once), so nothing is left behind however the
process ends. It is read in blocks: the rows need no memory of the process.
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

# `Blocks`: rows that are read some at a time, since not all of them fit into memory.


BLOCK_BYTES = 32 << 20
"""Bytes of rows that are read at a time."""


def block_rows(row_bytes: int, most: int = BLOCK_BYTES) -> int:
    """How many rows of this size are read at a time: full vectors of the engine.

    >>> block_rows(4), block_rows(3_200), block_rows(1 << 20)
    (122880, 10240, 2048)

    Args:
        most: bytes that they may take together.
    """
    return min(max(most // max(row_bytes, 1) // 2048, 1), 60) * 2048


class Blocks(ABC):
    """(n, k) numbers that are read some rows at a time."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abstractmethod
    def block_rows(self) -> int:
        """Rows of a block."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Any:
        """The rows from one place to another, of their own."""

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[Any]:
        """All rows in blocks of their own."""
        for start in range(0, len(self), self.block_rows):
            yield self.rows(start, min(start + self.block_rows, len(self)))


# `Buffer`: an array that grows by batches, without a second copy of what it holds.


class Buffer:
    """Rows of a fixed width, (n, width) or (n,), that are appended to.

    The memory is reallocated, which the system does by moving pages: at no time are there two
    copies.
    """

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._rows = 0
        self._tail = () if width is None else (width,)
        self._held = np.empty((0, *self._tail), dtype)

    def __len__(self) -> int:
        return self._rows

    def grow(self, rows: int) -> Array:
        """The place of so many more rows, to be written."""
        end = self._rows + rows
        if end > len(self._held):
            room = max(end, int(len(self._held) * 1.1))
            self._held.resize((room, *self._tail), refcheck=False)
        made = self._held[self._rows : end]
        self._rows = end
        return made

    def append(self, rows: Array) -> None:
        """Add rows at the end."""
        self.grow(len(rows))[...] = rows

    def array(self) -> Array:
        """All rows; nothing is appended afterwards."""
        self._held.resize((self._rows, *self._tail), refcheck=False)
        return self._held

    def take_out(self, mask: Array) -> Array:
        """The rows of a mask, (n,) bool, as an array of their own; the others stay, in order."""
        held = self.array()
        gone = held[mask]
        end = 0
        for start in range(0, len(held), _BLOCK):
            kept = held[start : start + _BLOCK][~mask[start : start + _BLOCK]]
            held[end : end + len(kept)] = kept
            end += len(kept)
        self._rows = end
        del held
        return gone


_BLOCK = 1 << 16
"""Rows that are moved at a time."""


# `VanishingFolder`: a folder that goes when it is not needed any more, or when the process is
# killed.


_WAITS = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""What the child runs: its standard input ends with its parent, however that ends."""


class VanishingFolder:
    """A folder for files that libraries open by name, and that nobody needs afterwards.

    A process of its own, which outlives this one, removes it.

    Args:
        parent: where it is made; None: in the system's folder for such files.
    """

    def __init__(self, parent: str | None) -> None:
        self._parent = parent

    def __enter__(self) -> Self:
        """Make the folder; its path is `path`.

        Raises:
            OSError: it cannot be made, or no process can be started.
        """
        self.path = os.path.abspath(tempfile.mkdtemp(prefix="sqlml_training_", dir=self._parent))
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WAITS, self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                start_new_session=True,  # what kills this process's group leaves it alone
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
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()


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


# `Part`: rows as an estimator takes them.


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows as an estimator takes them: X (n, k), y (n,), weight (n,), group (n,), or None each.

    X is an array, a sparse matrix, a pandas frame, or `Blocks`.
    """

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None


def sample(part: Part, most: int) -> Part:
    """So many rows at most, evenly spaced, in memory; all of them if they are in groups."""
    count = part.X.shape[0]
    chosen = None
    if count > most and part.group is None:
        chosen = np.linspace(0, count - 1, most).astype(np.int64)
    X = part.X
    if isinstance(X, Blocks):
        X = stacked(list(_chosen(X, chosen)))
    elif chosen is not None:
        X = X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
    if chosen is None:
        return replace(part, X=X)
    y, weight = (None if v is None else v[chosen] for v in (part.y, part.weight))
    return Part(X, y, weight, None)


def _chosen(X: Blocks, places: Array | None) -> Iterator[Any]:
    """The rows at some places, (n,) in order, or all, block by block."""
    row = 0
    for block in X.blocks():
        end = row + block.shape[0]
        yield block if places is None else block[places[(places >= row) & (places < end)] - row]
        row = end


def blocks_of(X: Any) -> Iterator[Any]:
    """The rows of a matrix, some at a time."""
    if isinstance(X, Blocks):
        yield from X.blocks()
        return
    step = block_rows(X.shape[1] * X.dtype.itemsize)
    for start in range(0, X.shape[0], step):
        yield X[start : start + step]


def stacked(parts: Sequence[Any]) -> Any:
    """Blocks one below another: arrays or sparse matrices."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack(parts, format="csr")
