"""Write models as an extension of DuckDB: the runtime library, followed by the models' data.

The data has the plans of the functions (`plan_bytecode.py`) with the keys of kernels and the
positions of arrays in place of addresses, and descriptions of arguments, results and checks. It is
the same for all platforms. `runtime.c` checks and reads it when DuckDB loads the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, format_kind
from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.backends.native.jit.specialise import find_entry
from sqlml.backends.native.kernel_calls import MEMORY, Call, KernelCalls, Rows, encode_call_rows
from sqlml.backends.native.runtime.build_runtime import make_metadata
from sqlml.backends.native.runtime.init_symbol import rename_init_function
from sqlml.errors import BackendError
from sqlml.ir.utf8_column import CODEC
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.native.memory_layout import (
    FLAT,
    LARGE_BATCH,
    LARGE_TABLE,
    LEVELS,
    SMALL_TABLE,
)
from sqlml.udfs.duckdb.native.plan_bytecode import VECTOR_ROWS, BytecodePlan, build_plan

MAGIC = b"sqlml 2\n"

ARRAY_PATCH, KERNEL_PATCH, WORD_PATCH = range(1, 4)
"""Kinds of words that become addresses when the data is loaded."""

PLAIN, LISTED, FIELDS = range(3)
"""Kinds of vectors in the shape of a result; see `runtime.c`."""

NUMBER, LABEL, ARRAY_OF, PAIRS, RECORD, COMPLEMENT, MEMBERS = range(7)
"""Kinds of values in a result; see `runtime.c`."""

TAKES_NUMBER, TAKES_TEXT, TAKES_TIME, TAKES_ANYTHING = range(4)
"""Kinds of arguments."""

MISSING, INFINITE, TOO_LARGE, UNKNOWN, MISSING_TEXT, UNKNOWN_NUMBER = range(6)
"""Kinds of checks."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an exported function.

    `position` is the index among the columns of the plan, or None if the model does not read it.
    `known` are the categories that do not count as NULL, or None if no value counts as NULL.
    """

    kind: int
    position: int | None
    refuses_null: bool
    type_message: str
    known: Array | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A reason to refuse a row.

    `quoted` is the text that the message quotes in place of %s. `known` are the numbers that an
    UNKNOWN_NUMBER is not among.
    """

    kind: int
    column: int
    message: str
    quoted: int | None = None
    known: Array | None = None


@dataclass(frozen=True, slots=True)
class ExportedFunction:
    """A function of an extension: what it computes, and how its result is built.

    `type_code`, `shape` and `value` are the words that `runtime.c` describes. Texts and tables of
    labels are placed into these words by `DataWriter`, so they are given as functions of it.
    """

    name: str
    function: BatchFunction
    arguments: tuple[Argument, ...]
    type_code: Callable[[DataWriter], list[Word]]
    shape: tuple[int, ...]
    value: Callable[[DataWriter], list[Word]]
    checks: tuple[Check, ...]
    other_message: str


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """A table function without arguments, whose rows are a name and a value."""

    name: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A word that becomes an address: of an array, of a kernel, or of another word."""

    kind: int
    value: int


Word = int | Address


@dataclass(slots=True)
class DataWriter:
    """Collects the words, texts, kernels and arrays of an extension's data.

    `known_keys` are the keys of the kernels that the runtime has. If `is_compact`, small batches
    use the kernels for large ones, so that the arrays of one kind of kernel suffice.
    """

    known_keys: Collection[bytes]
    is_compact: bool = False
    words: list[Word] = field(default_factory=list)
    texts: bytearray = field(default_factory=bytearray)
    arrays: bytearray = field(default_factory=bytearray)
    text_positions: dict[bytes, int] = field(default_factory=dict)
    array_positions: dict[bytes, int] = field(default_factory=dict)
    kernel_keys: dict[bytes, int] = field(default_factory=dict)

    def add_words(self, words: Sequence[Word]) -> Address:
        """Append words; return the address of the first."""
        index = len(self.words)
        self.words += words
        return Address(WORD_PATCH, index)

    def add_text(self, text: str) -> int:
        """Return the position of a text that ends with a NUL byte."""
        return self._add_bytes(text.encode("utf-8", "replace").replace(b"\0", b"") + b"\0")

    def add_label(self, text: str) -> tuple[int, int]:
        """Return the position and the size of a text, which may contain any character."""
        content = text.encode("utf-8", CODEC)
        return self._add_bytes(content + b"\0"), len(content)

    def _add_bytes(self, content: bytes) -> int:
        if content not in self.text_positions:
            self.text_positions[content] = len(self.texts)
            self.texts += content
        return self.text_positions[content]

    def add_array(self, array: Array) -> Address:
        """Return the address of an array's first number; equal contents are stored once."""
        content = np.ascontiguousarray(array).tobytes()
        if content not in self.array_positions:
            self.arrays += bytes(-len(self.arrays) % 64)
            self.array_positions[content] = len(self.arrays)
            self.arrays += content + bytes(64)  # Vectors may read beyond the end.
        return Address(ARRAY_PATCH, self.array_positions[content])

    def add_calls(self, calls: KernelCalls) -> Address:
        """Append a table of calls, as `KernelCalls.encode` makes it; return its address."""
        table: list[Word] = []
        for call in calls.calls:
            words, patches = self._encode_arguments(call)
            table += (self._find_kernel(call), len(words), len(patches) // 3, *words, *patches)
        return self.add_words(table)

    def _encode_arguments(self, call: Call) -> tuple[list[Word], list[int]]:
        entry = find_entry(call.kernel)
        assert entry is not None
        words: list[Word] = []
        patches: list[int] = []
        for kind, argument in zip(entry.signature, call.arguments, strict=True):
            if isinstance(argument, Rows):
                words += encode_call_rows(kind, argument, len(words), patches)
            elif argument is MEMORY:
                words += (0, (1 << 63) - 1, 1)
            else:
                words += self._encode_constant(kind, argument)
        return words, patches

    def _encode_constant(self, kind: Kind, value: Any) -> Iterator[Word]:
        if isinstance(kind, ArrayKind):
            array = np.ascontiguousarray(value)
            yield self.add_array(array)
            yield from array.shape
            # numpy does not define the stride of an axis of length 1, and `runtime.c` checks it.
            lengths = [max(1, length) for length in array.shape]
            yield from (prod(lengths[axis + 1 :]) * array.itemsize for axis in range(array.ndim))
        elif isinstance(kind, tuple):
            for item_kind, item in zip(kind, value, strict=True):
                yield from self._encode_constant(item_kind, item)
        elif kind != "nothing":
            yield int(value)

    def _find_kernel(self, call: Call) -> Address:
        entry = find_entry(call.kernel)
        assert entry is not None
        key = make_key(entry.function, entry.signature)
        if key not in self.known_keys:
            raise BackendError(
                f"an extension cannot run this model: the runtime lacks the kernel "
                f"{entry.function.__name__} for {format_kind(entry.signature)}"
            )
        return Address(KERNEL_PATCH, self.kernel_keys.setdefault(key, len(self.kernel_keys)))

    def add_plan(self, function: BatchFunction) -> Address:
        """Append the plan of a function, with calls for few and for many rows."""
        small_plan = None if self.is_compact else build_plan(function, 1)
        plan: BytecodePlan = build_plan(function, VECTOR_ROWS, small_plan)
        words: list[Word] = [int(word) for word in plan.words]
        words[LEVELS] = FLAT
        if self.is_compact and plan.large_calls is not None:
            words[LARGE_BATCH] = 0
        for index, calls in ((SMALL_TABLE, plan.small_calls), (LARGE_TABLE, plan.large_calls)):
            if calls is not None:
                words[index] = self.add_calls(calls)
        return self.add_words(words)

    def finish(
        self, functions: Sequence[ExportedFunction], tables: Sequence[ExportedTable]
    ) -> bytes:
        """Return the data of an extension with these functions."""
        records: list[Word] = []
        for exported in functions:
            records += self._describe(exported)
        records.append(len(tables))
        for table in tables:
            texts = [n for row in table.rows for text in row for n in self.add_label(text)]
            records += (self.add_text(table.name), len(table.rows), self.add_words(texts))
        list_at = self.add_words([len(functions), *records])
        return self._join(list_at.value)

    def _describe(self, exported: ExportedFunction) -> list[Word]:
        function = exported.function
        arguments: list[Word] = []
        for a in exported.arguments:
            position = -1 if a.position is None else a.position
            arguments += (a.kind, position, int(a.refuses_null), self.add_text(a.type_message))
            arguments += (0, -1) if a.known is None else self._add_known(a.known)
        checks: list[Word] = []
        for c in exported.checks:
            quoted = -1 if c.quoted is None else c.quoted
            known = (0, 0) if c.known is None else self._add_known(c.known)
            checks += (c.kind, c.column, self.add_text(c.message), quoted, *known)
        return [
            self.add_text(exported.name),
            self.add_plan(function),
            self.add_words(arguments),
            len(exported.arguments),
            function.packed + function.texts,
            self.add_words(exported.type_code(self)),
            self.add_words(exported.shape),
            self.add_words(exported.value(self)),
            function.columns,
            int(function.is_integer),
            self.add_words(checks),
            len(exported.checks),
            self.add_text(exported.other_message),
        ]

    def _add_known(self, categories: Array) -> tuple[Word, int]:
        """Add known categories in ascending order; return the address and how many there are."""
        if categories.dtype == object:
            texts = sorted(set(categories.tolist()), key=lambda text: text.encode("utf-8", CODEC))
            places = [number for text in texts for number in self.add_label(text)]
            return self.add_words(places), len(texts)
        numbers = np.unique(categories.astype(np.float64))
        return self.add_array(numbers), int((numbers == numbers).sum())

    def _join(self, functions: int) -> bytes:
        patches = [
            (index, word.kind, word.value)
            for index, word in enumerate(self.words)
            if isinstance(word, Address)
        ]
        words = np.array([0 if isinstance(w, Address) else w for w in self.words], np.int64)
        parts = [words.tobytes(), np.array(patches, np.int64).tobytes(), bytes(self.texts) or b"\0"]
        parts += [b"".join(self.kernel_keys), bytes(self.arrays)]
        positions, body, begin = [], b"", 128
        for part in parts:
            body += bytes(-len(body) % 64)
            positions.append(begin + len(body))
            body += part
        body += bytes(-len(body) % 64)
        numbers = (
            begin + len(body),
            *(positions[0], len(words), positions[1], len(patches)),
            *(positions[2], len(parts[2]), positions[3], len(self.kernel_keys)),
            *(positions[4], len(self.arrays), functions),
        )
        rest = struct.pack("<12q", *numbers).ljust(begin - 16, b"\0") + body
        return MAGIC + struct.pack("<Q", hash_words(rest)) + rest


def hash_words(content: bytes) -> int:
    """Return the checksum of `runtime.c` over 64-bit words."""
    words = np.frombuffer(content, np.uint64)
    mixed = words + np.arange(words.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xC2B2AE3D27D4EB4F)
    return int((mixed ^ (mixed >> np.uint64(29))).sum(dtype=np.uint64))


def write_data(
    library: bytes,
    functions: Sequence[ExportedFunction],
    tables: Sequence[ExportedTable] = (),
    is_compact: bool = False,
) -> bytes:
    """Return the data of functions, which the runtimes of all platforms can read.

    `library` is a runtime. Raises BackendError if it lacks a kernel of the functions.
    """
    keys = frozenset(list_kernel_keys(library))
    return DataWriter(keys, is_compact).finish(functions, tables)


FOOTER_BYTES = 512
"""The bytes of DuckDB's metadata and signature at the end of an extension."""


def write_extension(
    library: bytes,
    name: str,
    platform: str,
    functions: Sequence[ExportedFunction],
    tables: Sequence[ExportedTable] = (),
) -> bytes:
    """Return the bytes of the extension `<name>.duckdb_extension`.

    `library` is the runtime for `platform`, DuckDB's name of what will load the extension. The
    extension has no signature.
    """
    data = write_data(library, functions, tables)
    renamed = rename_init_function(library[:-FOOTER_BYTES], name)
    padding, metadata = bytes(-len(renamed) % 64), make_metadata(platform)
    return renamed + padding + data + MAGIC + struct.pack("<q", len(data)) + metadata + bytes(256)
