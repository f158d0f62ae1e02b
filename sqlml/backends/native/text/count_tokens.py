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
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import COUNT, FLAG, reads, specialise, writes
from sqlml.backends.native.text import token_kernels as kernels
from sqlml.backends.native.text.token_kernels import CODE_POINTS, HARD, SPACE, WORD
from sqlml.ir.csr import Csr
from sqlml.ir.operators.text import (
    WORD_RUN_PATTERNS,
    Analyzer,
    make_analyzer,
    require_no_missing_texts,
)
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import CODEC, TextColumn, pack_words, unpack_words
from sqlml.types import Array

CHUNK = 1 << 16
"""Bytes of texts that are cut and counted at a time: their tokens stay in the cache."""

_EMPTY = np.zeros(0, np.uint8)

Count = Callable[..., Any]
"""Columns of texts (Texts or objects (n, 1)) -> the counts of their tokens."""


def counter(attrs: Attrs, hashed: bool) -> Count:
    """A function that does what `count_tokens`, or `hash_tokens` if `hashed`, says."""
    analyzer = make_analyzer(attrs)
    dtype = np.dtype(str(attrs["dtype"]))
    by_table = is_cut_by_table(analyzer)
    places = places_of(attrs, hashed)
    width = places[1]

    def run(texts: TextColumn, how: _How) -> Csr:
        parts = [_counted(part, how, places) for part in _chunks(texts)]
        ends = np.cumsum([0, *(p[1].size for p in parts)])
        indptr = [np.zeros(1, np.int64)]
        indptr += [p[0][1:] + end for p, end in zip(parts, ends, strict=False)]
        indices = np.concatenate([np.zeros(0, np.int32), *(p[1] for p in parts)])
        counts = np.concatenate([np.zeros(0, np.int32), *(p[2] for p in parts)])
        return Csr(counts.astype(dtype), indices, np.concatenate(indptr), width)

    ready = _How(analyzer, True)
    raw = _How(analyzer, False)
    whole = _How(_WHOLE_TEXT, True)

    def one(texts: TextColumn) -> Csr:
        if by_table:
            hard = _hard(texts, analyzer)
            if not hard.any():
                return run(texts, raw)
            parts = [run(texts[~hard], raw), run(_prepared(texts, hard, analyzer), ready)]
            rows = [np.flatnonzero(~hard), np.flatnonzero(hard)]
            return _grouped(
                parts, [r[p.rows] for r, p in zip(rows, parts, strict=True)], len(texts)
            )
        features = [analyzer.features(texts.text(i)) for i in range(len(texts))]
        if not hashed:
            return _looked_up(features, vocabulary(), dtype)
        flat: Array = np.empty(sum(map(len, features)), object)
        flat[:] = [f for row in features for f in row]
        found = run(TextColumn.from_values(flat), whole)
        rows_of = np.repeat(np.arange(len(texts)), [len(row) for row in features])
        return _grouped([found], [rows_of[found.rows]], len(texts))

    @cache
    def vocabulary() -> dict[str, int]:
        return {word: i for i, word in enumerate(unpack_words(attrs["words"], attrs["ends"]))}

    def count(*columns: Any) -> Csr:
        texts = [TextColumn.from_values(column) for column in columns]
        require_no_missing_texts(texts, attrs)
        parts = [one(t) for t in texts]
        return (
            parts[0] if len(parts) == 1 else _grouped(parts, [p.rows for p in parts], len(texts[0]))
        )

    return count


Table = tuple[Array, Array, Array, Array]
"""A hash table of packed words (`table`)."""

Places = tuple[Table, int, bool, bool]
"""Where tokens are counted: a table of words, how many columns there are, whether hashes count as
-1 where they are negative, and whether hashes take the place of the table."""


def places_of(attrs: Attrs, hashed: bool) -> Places:
    """The columns of `count_tokens`, or of `hash_tokens` if `hashed`."""
    if hashed:
        words, ends, width = _EMPTY, np.zeros(0, np.int64), int(attrs["width"])
    else:
        words, ends, width = attrs["words"], attrs["ends"], attrs["ends"].size
    return table(words, ends), width, bool(attrs.get("alternate_sign", False)), hashed


def is_cut_by_table(analyzer: Analyzer) -> bool:
    """Whether kernels find the tokens: Python alone has other patterns than runs of words."""
    return analyzer.kind != "word" or analyzer.pattern in WORD_RUN_PATTERNS


def stop_words(analyzer: Analyzer) -> Table:
    """The words that are dropped."""
    return table(*pack_words(sorted(analyzer.stop_words)))


_WHOLE_TEXT = Analyzer("whole", False, "", "", frozenset(), 1, 1)


def _looked_up(features: list[list[str]], places: dict[str, int], dtype: np.dtype[Any]) -> Csr:
    """The counts of each row's features that have a place."""
    found = [[places[f] for f in row if f in places] for row in features]
    columns = np.array([c for row in found for c in row], np.int32)
    each = Csr(np.ones(columns.size, dtype), columns, np.arange(columns.size + 1), len(places))
    rows = np.repeat(np.arange(len(found)), [len(row) for row in found])
    return _grouped([each], [rows], len(found))


class _How:
    """How a text is cut: the arguments of its kernel."""

    def __init__(self, analyzer: Analyzer, prepared: bool) -> None:
        self.kind = analyzer.kind
        self.grams = (self.kind == "char_wb", analyzer.min_n, analyzer.max_n)
        self.arguments: tuple[Any, ...] = (analyzer.lowercase and not prepared,)
        self.stop: Table | None = None
        if self.kind == "word":
            self.arguments += (WORD_RUN_PATTERNS.get(analyzer.pattern, 1),)
            if analyzer.stop_words:
                self.stop = stop_words(analyzer)


def _chunks(texts: TextColumn) -> Iterator[TextColumn]:
    """The texts in order, in groups of up to CHUNK bytes; a longer one on its own."""
    total = np.cumsum(texts.stop - texts.start)
    first = 0
    while first < len(texts):
        before = int(total[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(total, before + CHUNK, side="right")))
        yield texts[first:stop]
        first = stop


def _counted(texts: TextColumn, how: _How, places: tuple[Any, ...]) -> tuple[Array, Array, Array]:
    """indptr, int64 (n + 1,), columns and counts, int32 (stored,), of the n-grams of texts."""
    rows, size = len(texts), int((texts.stop - texts.start).sum())
    groups = np.arange(rows + 1)
    if how.kind == "whole":
        out, first, last, heads = texts.data.copy(), texts.start.copy(), texts.stop.copy(), groups
    else:
        most, size_of_all = kernels.room(size, rows)
        out = np.empty(size_of_all, np.uint8)
        first, last = np.empty((2, most), np.int64)
        heads = np.empty((rows if how.kind != "char_wb" else size + rows) + 1, np.int64)
        made: tuple[Any, ...] = ((out, first, last, heads),)
        if how.kind == "char_wb":
            made = (*made, groups)
        _cutter(how.kind)(_parts(texts), tables(), *how.arguments, *made)
        if how.stop is not None:
            _dropper()(*made, how.stop)
    units = np.diff(heads[groups])
    _, min_n, max_n = how.grams
    each = max_n - min_n + 1
    keys = np.empty(int(units.max(initial=0)) * each, np.int64)
    indptr = np.zeros(rows + 1, np.int64)
    indices, counts = np.empty((2, int(units.sum()) * each), np.int32)
    cut, stored = (out, first, last, heads), (indptr, indices, counts)
    _counter()(cut, groups, how.grams, places, keys, stored)
    return indptr, indices[: indptr[-1]], counts[: indptr[-1]]


SAME = 64
"""Characters whose lower case is looked at together."""


@cache
def tables() -> tuple[Array, Array]:
    """Lower case, int32, and marks, uint8, of each code point."""
    lower = np.arange(CODE_POINTS, dtype=np.int32)
    everything = lower.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    marks = np.zeros(CODE_POINTS, np.uint8)
    for pattern, mark in ((r"\w+", WORD), (r"\s+", SPACE)):
        for run in re.finditer(pattern, everything):
            marks[run.start() : run.end()] |= mark
    for start in range(0, CODE_POINTS, SAME):
        part = everything[start : start + SAME]
        if part.lower() == part:  # most characters are not letters, or have no case
            continue
        for i, c in enumerate(part, start):
            low = c.lower()
            if len(low) != 1:
                marks[i] |= HARD
            elif low != c:
                lower[i] = ord(low)
    marks[0x3A3] |= HARD  # the Greek sigma: at the end of a word its lower case is another
    return lower, marks


def _hard(texts: TextColumn, analyzer: Analyzer) -> Array:
    """bool (n,): the texts that Python must prepare."""
    if not (analyzer.lowercase or analyzer.accents):
        return np.zeros(len(texts), bool)
    if texts.data.size == 0 or texts.data.max() < 0x80:
        return np.zeros(len(texts), bool)  # not even the scanner has to be compiled
    look_for = (HARD if analyzer.lowercase else 0), bool(analyzer.accents)
    found = np.zeros(len(texts), bool)
    _scanner()(_parts(texts), tables()[1], *look_for, found)
    return found


def _prepared(texts: TextColumn, rows: Array, analyzer: Analyzer) -> TextColumn:
    chosen = np.flatnonzero(rows)
    made: Array = np.empty(chosen.size, object)
    made[:] = [analyzer.normalize(texts.text(int(i))) for i in chosen]
    return TextColumn.from_values(made)


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


def _parts(texts: TextColumn) -> tuple[Array, Array, Array]:
    """Texts as kernels read them."""
    return np.ascontiguousarray(texts.data), texts.start, texts.stop


def table(words: Array, ends: Array) -> Table:
    """A hash table of packed words: these, and what the table adds.

    Slots, int32 (2**k,) with -1 for an empty one, and the hash of the word in each, uint32.
    """
    words, ends = np.ascontiguousarray(words), np.ascontiguousarray(ends)
    size = 4
    while size < 2 * ends.size:
        size *= 2
    slots, hashes = np.full(size, -1, np.int32), np.zeros(size, np.uint32)
    made = (words, ends, slots, hashes)
    if ends.size:
        _builder()(words.copy(), made)
    return made


_WHOLE, _SHORT = writes(np.int64, 1), writes(np.int32, 1)
TEXTS = (reads(np.uint8, 1), reads(np.int64, 1), reads(np.int64, 1))
TABLE = (reads(np.uint8, 1), reads(np.int64, 1), _SHORT, writes(np.uint32, 1))
_TABLES = (reads(np.int32, 1, "C"), reads(np.uint8, 1, "C"))
_CUT = (writes(np.uint8, 1), _WHOLE, _WHOLE, _WHOLE)


def _cutter(kind: str) -> Any:
    if kind == "word":
        return specialise(kernels.cut_words, (TEXTS, _TABLES, FLAG, COUNT, _CUT))
    if kind == "char":
        return specialise(kernels.cut_characters, (TEXTS, _TABLES, FLAG, _CUT))
    return specialise(kernels.cut_within, (TEXTS, _TABLES, FLAG, _CUT, _WHOLE))


def _dropper() -> Any:
    return specialise(kernels.drop_words, (_CUT, TABLE))


def _counter() -> Any:
    grams, places = (FLAG, COUNT, COUNT), (TABLE, COUNT, FLAG, FLAG)
    made = (_WHOLE, _SHORT, _SHORT)
    return specialise(kernels.count, (_CUT, _WHOLE, grams, places, _WHOLE, made))


def _scanner() -> Any:
    return specialise(kernels.scan, (TEXTS, _TABLES[1], COUNT, FLAG, writes(bool, 1)))


def _builder() -> Any:
    return specialise(kernels.build, (writes(np.uint8, 1), TABLE))


# `encode` and `fill` of texts as their bytes, without a Python object for each.


def text_encoder(categories: Array, missing: int) -> Callable[[TextColumn], Array]:
    """A function that does what `reference.FUNCTIONS["encode"]` does, for Texts: codes (n, 1).

    The categories are looked up in a hash table of their bytes.
    """
    is_text = np.fromiter((isinstance(c, str) for c in categories), bool, categories.size)
    known = table(*pack_words(categories[is_text]))
    codes = np.append(np.flatnonzero(is_text), -1)  # the last for non-categories

    def encode(x: TextColumn) -> Array:
        found = np.empty(len(x), np.int64)
        _finder()((np.ascontiguousarray(x.data), x.start, x.stop), known, found)
        found = codes[found]
        found[x.missing] = missing
        return found.reshape(-1, 1)

    return encode


def text_filler(attrs: Attrs) -> Callable[[TextColumn], TextColumn]:
    """A function that does what `reference.FUNCTIONS["fill"]` does, for Texts."""
    value = np.frombuffer(attrs["value"].encode("utf-8", CODEC), np.uint8)
    gone = attrs.get("missing")

    def fill(x: TextColumn) -> TextColumn:
        filled = x.missing if gone is None else _equal(x, gone)
        start, end = x.data.size, x.data.size + value.size
        return TextColumn(
            np.concatenate([x.data, value]),
            np.where(filled, start, x.start),
            np.where(filled, end, x.stop),
            x.missing & ~filled,
        )

    return fill


def _equal(x: TextColumn, text: str) -> Array:
    """bool (n,): the texts that are `text`."""
    wanted = np.frombuffer(text.encode("utf-8", CODEC), np.uint8)
    same: Array = ~x.missing & (x.stop - x.start == wanted.size)
    rows = np.flatnonzero(same)
    if wanted.size:
        bytes_of = x.data[x.start[rows, None] + np.arange(wanted.size)]
        same[rows] = (bytes_of == wanted).all(axis=1)
    return same


def _finder() -> Any:
    return specialise(kernels.look_up, (TEXTS, TABLE, writes(np.int64, 1)))
