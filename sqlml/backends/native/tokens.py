"""Texts cut into tokens and counted, without a Python object per text or token.

A text is read character by character out of its UTF-8 bytes, lowered and sorted into word
characters, spaces and others by tables that are made of Python's own `re` and `str.lower`. The
n-grams of a text are ranges of one buffer of bytes, hashed with MurmurHash3 and looked up in an
open-addressing table of the vocabulary.

Python itself prepares the texts that no table can: characters whose lower case depends on their
neighbours or is longer than one, and accents. It also finds the tokens of patterns other than
runs of word characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numba
import numpy as np

from sqlml.backends.native.jit import reads, specialise
from sqlml.backends.native.token_kernels import (
    CHARS,
    CODE_POINTS,
    HARD,
    SPACE,
    WHOLE,
    WITHIN,
    WORD,
    WORDS,
    build,
    scan,
)
from sqlml.backends.native.token_kernels import count as count_texts
from sqlml.ir.analyzer import RUNS, Analyzer
from sqlml.ir.csr import Csr
from sqlml.ir.operators.text import analyzer_of, check_texts
from sqlml.ir.program import Attrs
from sqlml.ir.texts import Texts, pack, unpack
from sqlml.types import Array

_KINDS = {"word": WORDS, "char": CHARS, "char_wb": WITHIN, "whole": WHOLE}
_EMPTY = np.zeros(0, np.uint8)

Count = Callable[..., Any]
"""Columns of texts (Texts or objects (n, 1)) -> the counts of their tokens."""


def counter(attrs: Attrs, hashed: bool) -> Count:
    """A function that does what `count_tokens`, or `hash_tokens` if `hashed`, says."""
    analyzer = analyzer_of(attrs)
    if hashed:
        words, ends, width = _EMPTY, np.zeros(0, np.int64), int(attrs["width"])
    else:
        words, ends = attrs["words"], attrs["ends"]
        width = ends.size
    signed = bool(attrs.get("alternate_sign", False))
    dtype = np.dtype(str(attrs["dtype"]))
    words, ends = np.ascontiguousarray(words), np.ascontiguousarray(ends)
    table = _table(words, ends)
    by_table = analyzer.kind != "word" or analyzer.pattern in RUNS

    def run(texts: Texts, how: _How) -> Csr:
        data = np.ascontiguousarray(texts.data)
        indptr, indices, counts = _kernel()(
            data,
            texts.start,
            texts.stop,
            *how.arguments,
            words,
            ends,
            *table,
            width,
            signed,
            hashed,
        )
        return Csr(counts.astype(dtype), indices, indptr, width)

    ready = _How(analyzer, True)
    raw = _How(analyzer, False)
    whole = _How(_WHOLE_TEXT, True)

    def one(texts: Texts) -> Csr:
        if by_table:
            hard = _hard(texts, analyzer)
            if not hard.any():
                return run(texts, raw)
            parts = [run(_take(texts, ~hard), raw), run(_prepared(texts, hard, analyzer), ready)]
            rows = [np.flatnonzero(~hard), np.flatnonzero(hard)]
            return _grouped(
                parts, [r[p.rows] for r, p in zip(rows, parts, strict=True)], len(texts)
            )
        features = [analyzer.features(texts.text(i)) for i in range(len(texts))]
        if not hashed:
            return _looked_up(features, vocabulary(), dtype)
        flat: Array = np.empty(sum(map(len, features)), object)
        flat[:] = [f for row in features for f in row]
        found = run(Texts.of(flat), whole)
        rows_of = np.repeat(np.arange(len(texts)), [len(row) for row in features])
        return _grouped([found], [rows_of[found.rows]], len(texts))

    @cache
    def vocabulary() -> dict[str, int]:
        return {word: i for i, word in enumerate(unpack(words, ends))}

    def count(*columns: Any) -> Csr:
        texts = [Texts.of(column) for column in columns]
        check_texts(texts, attrs)
        parts = [one(t) for t in texts]
        return (
            parts[0] if len(parts) == 1 else _grouped(parts, [p.rows for p in parts], len(texts[0]))
        )

    return count


_WHOLE_TEXT = Analyzer("whole", False, "", "", frozenset(), 1, 1)


def _looked_up(features: list[list[str]], places: dict[str, int], dtype: np.dtype[Any]) -> Csr:
    """The counts of each row's features that have a place."""
    found = [[places[f] for f in row if f in places] for row in features]
    columns = np.array([c for row in found for c in row], np.int32)
    each = Csr(np.ones(columns.size, dtype), columns, np.arange(columns.size + 1), len(places))
    rows = np.repeat(np.arange(len(found)), [len(row) for row in found])
    return _grouped([each], [rows], len(found))


class _How:
    """The kernel's arguments that say how a text is cut."""

    def __init__(self, analyzer: Analyzer, prepared: bool) -> None:
        stop = pack(sorted(analyzer.stop_words) if analyzer.kind == "word" else ())
        self.arguments = (
            _KINDS[analyzer.kind],
            analyzer.lowercase and not prepared,
            RUNS.get(analyzer.pattern, 1),
            analyzer.min_n,
            analyzer.max_n,
            *_tables(),
            *stop,
            *_table(*stop),
        )


@cache
def _tables() -> tuple[Array, Array]:
    """Lower case, int32, and marks, uint8, of each code point."""
    everything = "".join(map(chr, range(CODE_POINTS)))
    marks = np.zeros(CODE_POINTS, np.uint8)
    for pattern, mark in ((r"\w", WORD), (r"\s", SPACE)):
        marks[[m.start() for m in re.finditer(pattern, everything)]] |= mark
    lower = np.arange(CODE_POINTS, dtype=np.int32)
    for i, c in enumerate(everything):
        low = c.lower()
        if len(low) != 1:
            marks[i] |= HARD
        elif low != c:
            lower[i] = ord(low)
    marks[0x3A3] |= HARD  # the Greek sigma: at the end of a word its lower case is another
    return lower, marks


def _hard(texts: Texts, analyzer: Analyzer) -> Array:
    """bool (n,): the texts that Python must prepare."""
    if not (analyzer.lowercase or analyzer.accents):
        return np.zeros(len(texts), bool)
    data = np.ascontiguousarray(texts.data)
    look_for = (HARD if analyzer.lowercase else 0), bool(analyzer.accents)
    found: Array = _scanner()(data, texts.start, texts.stop, _tables()[1], *look_for)
    return found


def _take(texts: Texts, rows: Array) -> Texts:
    return Texts(texts.data, texts.start[rows], texts.stop[rows], texts.missing[rows])


def _prepared(texts: Texts, rows: Array, analyzer: Analyzer) -> Texts:
    chosen = np.flatnonzero(rows)
    made: Array = np.empty(chosen.size, object)
    made[:] = [analyzer.prepared(texts.text(int(i))) for i in chosen]
    return Texts.of(made)


def _grouped(parts: Sequence[Csr], rows: Sequence[Array], count: int) -> Csr:
    """The entries of `parts`, each moved to its row of `rows`, entries of one place added up."""
    row = np.concatenate(rows)
    column = np.concatenate([p.indices for p in parts])
    data = np.concatenate([p.data for p in parts])
    order = np.lexsort((column, row))
    row, column, data = row[order], column[order], data[order]
    fresh = np.ones(row.size, bool)
    fresh[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    first = np.flatnonzero(fresh)
    summed = np.add.reduceat(data, first) if first.size else data
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(row[first], minlength=count), out=indptr[1:])
    return Csr(summed, column[first], indptr, parts[0].width)


def _table(words: Array, ends: Array) -> tuple[Array, Array]:
    """Slots, int32 (2**k,) with -1 for an empty one, and the hash of the word in each, uint32."""
    size = 4
    while size < 2 * ends.size:
        size *= 2
    slots, hashes = np.full(size, -1, np.int32), np.zeros(size, np.uint32)
    _builder()(words, ends, slots, hashes)
    return slots, hashes


_BYTES, _PLACES = reads(np.uint8, 1), reads(np.int64, 1)
_SLOTS, _HASHES = reads(np.int32, 1, "C"), reads(np.uint32, 1, "C")
_INT, _BOOL = numba.types.int64, numba.types.boolean


def _kernel() -> Any:
    lists = (_BYTES, _PLACES, _SLOTS, _HASHES)
    how = (_INT, _BOOL, _INT, _INT, _INT, _SLOTS, reads(np.uint8, 1, "C"), *lists)
    return specialise(count_texts, (_BYTES, _PLACES, _PLACES, *how, *lists, _INT, _BOOL, _BOOL))


def _scanner() -> Any:
    return specialise(scan, (_BYTES, _PLACES, _PLACES, reads(np.uint8, 1, "C"), _INT, _BOOL))


def _builder() -> Any:
    slots = numba.types.Array(numba.types.int32, 1, "C")
    hashes = numba.types.Array(numba.types.uint32, 1, "C")
    return specialise(build, (_BYTES, _PLACES, slots, hashes))
