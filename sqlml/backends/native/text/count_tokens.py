"""Split texts into tokens and count the tokens, without a Python object per text or token.

A text is read character by character from UTF-8 bytes. Tables made with Python's `re` and
`str.lower` give each character's lower case, and mark word characters and spaces. The n-grams of a
text are ranges of one byte buffer. They are hashed with MurmurHash3 and looked up in an
open-addressing table of the vocabulary.

Python prepares texts that the tables do not support: texts with accents, or with characters whose
lower case depends on the neighbours or is longer than one character. Python also finds the tokens
if the pattern is not a run of word characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import COUNT, FLAG, Signature, reads, specialise, writes
from sqlml.backends.native.text import token_kernels as kernels
from sqlml.backends.native.text.token_kernels import (
    CODE_POINTS,
    PAGE_SIZE,
    PYTHON_ONLY,
    SPACE,
    WORD,
)
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
"""Bytes of texts that are processed at a time, so that the tokens stay in the cache."""

_EMPTY = np.zeros(0, np.uint8)

TokenCounter = Callable[..., Any]
"""A function from text columns (TextColumn, or objects (n, 1)) to token counts (Csr)."""


def make_token_counter(attrs: Attrs, hashed: bool) -> TokenCounter:
    """Return a function that computes the operator `count_tokens`, or `hash_tokens` if `hashed`."""
    analyzer = make_analyzer(attrs)
    dtype = np.dtype(str(attrs["dtype"]))
    uses_table = is_cut_by_table(analyzer)
    vocabulary = make_vocabulary(attrs, hashed)
    width = vocabulary[1]

    def count_chunks(texts: TextColumn, settings: _CutSettings) -> Csr:
        results = [_count_ngrams(chunk, settings, vocabulary) for chunk in _split_chunks(texts)]
        ends = np.cumsum([0, *(chunk[1].size for chunk in results)])
        indptr = [np.zeros(1, np.int64)]
        indptr += [chunk[0][1:] + end for chunk, end in zip(results, ends, strict=False)]
        indices = np.concatenate([np.zeros(0, np.int32), *(chunk[1] for chunk in results)])
        counts = np.concatenate([np.zeros(0, np.int32), *(chunk[2] for chunk in results)])
        return Csr(counts.astype(dtype), indices, np.concatenate(indptr), width)

    prepared, original = _CutSettings(analyzer, True), _CutSettings(analyzer, False)
    whole_text = _CutSettings(_WHOLE_TEXT, True)

    def count_texts(texts: TextColumn) -> Csr:
        if uses_table:
            mask = _mask_python_texts(texts, analyzer)
            if not mask.any():
                return count_chunks(texts, original)
            fast_counts = count_chunks(texts[~mask], original)
            slow_counts = count_chunks(_prepare_texts(texts, mask, analyzer), prepared)
            rows = [np.flatnonzero(~mask)[fast_counts.rows], np.flatnonzero(mask)[slow_counts.rows]]
            return _merge_rows([fast_counts, slow_counts], rows, len(texts))
        features = [analyzer.extract_features(texts.text(i)) for i in range(len(texts))]
        if not hashed:
            return _count_in_vocabulary(features, make_indices(), dtype)
        tokens: Array = np.empty(sum(map(len, features)), object)
        tokens[:] = [token for row in features for token in row]
        token_counts = count_chunks(TextColumn.from_values(tokens), whole_text)
        token_rows = np.repeat(np.arange(len(texts)), [len(row) for row in features])
        return _merge_rows([token_counts], [token_rows[token_counts.rows]], len(texts))

    @cache
    def make_indices() -> dict[str, int]:
        return {word: i for i, word in enumerate(unpack_words(attrs["words"], attrs["ends"]))}

    def count(*columns: Any) -> Csr:
        texts = [TextColumn.from_values(column) for column in columns]
        require_no_missing_texts(texts, attrs)
        matrices = [count_texts(column) for column in texts]
        if len(matrices) == 1:
            return matrices[0]
        return _merge_rows(matrices, [matrix.rows for matrix in matrices], len(texts[0]))

    return count


Table = tuple[Array, Array, Array, Array]
"""A hash table: packed words, the end of each word, and a word index (or -1) and hash per slot."""

Vocabulary = tuple[Table, int, bool, bool]
"""A table of words, the number of columns, True if hashes have signs, and True if a token's column
is computed from the hash instead of the table."""


def make_vocabulary(attrs: Attrs, hashed: bool) -> Vocabulary:
    """Return the vocabulary of a `count_tokens` operator, or of `hash_tokens` if `hashed`."""
    if hashed:
        words, ends, width = _EMPTY, np.zeros(0, np.int64), int(attrs["width"])
    else:
        words, ends, width = attrs["words"], attrs["ends"], attrs["ends"].size
    return make_word_table(words, ends), width, bool(attrs.get("alternate_sign", False)), hashed


def is_cut_by_table(analyzer: Analyzer) -> bool:
    """Return True if kernels can find the tokens of `analyzer`, or False if Python must."""
    return analyzer.kind != "word" or analyzer.pattern in WORD_RUN_PATTERNS


def make_stop_word_table(analyzer: Analyzer) -> Table:
    return make_word_table(*pack_words(sorted(analyzer.stop_words)))


_WHOLE_TEXT = Analyzer("whole", False, "", "", frozenset(), 1, 1)


def _count_in_vocabulary(
    features: list[list[str]], indices: dict[str, int], dtype: np.dtype[Any]
) -> Csr:
    columns_of_rows = [[indices[f] for f in row if f in indices] for row in features]
    columns = np.array([c for row in columns_of_rows for c in row], np.int32)
    ones = Csr(np.ones(columns.size, dtype), columns, np.arange(columns.size + 1), len(indices))
    rows = np.repeat(np.arange(len(columns_of_rows)), [len(row) for row in columns_of_rows])
    return _merge_rows([ones], [rows], len(columns_of_rows))


class _CutSettings:
    """An analyzer's settings for kernels that split texts; Python may have `prepared` the texts."""

    def __init__(self, analyzer: Analyzer, prepared: bool) -> None:
        self.kind = analyzer.kind
        self.grams = (self.kind == "char_wb", analyzer.min_n, analyzer.max_n)
        self.arguments: tuple[Any, ...] = (analyzer.lowercase and not prepared,)
        self.stop_table: Table | None = None
        if self.kind == "word":
            self.arguments += (WORD_RUN_PATTERNS.get(analyzer.pattern, 1),)
            if analyzer.stop_words:
                self.stop_table = make_stop_word_table(analyzer)


def _split_chunks(texts: TextColumn) -> Iterator[TextColumn]:
    """Yield consecutive groups of texts: up to CHUNK bytes, or a single longer text."""
    total_bytes = np.cumsum(texts.stop - texts.start)
    start = 0
    while start < len(texts):
        bytes_before = int(total_bytes[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(total_bytes, bytes_before + CHUNK, side="right")))
        yield texts[start:stop]
        start = stop


def _count_ngrams(
    texts: TextColumn, settings: _CutSettings, vocabulary: tuple[Any, ...]
) -> tuple[Array, Array, Array]:
    """Count n-grams; return the arrays indptr, columns and counts of a sparse matrix."""
    row_count, size = len(texts), int((texts.stop - texts.start).sum())
    groups = np.arange(row_count + 1)
    if settings.kind == "whole":
        tokens = (texts.data.copy(), texts.start.copy(), texts.stop.copy(), groups)
    else:
        max_units, max_bytes = kernels.measure_capacity(size, row_count)
        max_groups = size + row_count if settings.kind == "char_wb" else row_count
        starts, stops = np.empty((2, max_units), np.int64)
        tokens = (np.empty(max_bytes, np.uint8), starts, stops, np.empty(max_groups + 1, np.int64))
        results = (tokens, groups) if settings.kind == "char_wb" else (tokens,)
        tables = make_character_tables()
        _run(_CUTTERS[settings.kind], _to_arrays(texts), tables, *settings.arguments, *results)
        if settings.stop_table is not None:
            _run(kernels.drop_words, tokens, settings.stop_table)
    units = np.diff(tokens[3][groups])
    _, min_n, max_n = settings.grams
    lengths = max_n - min_n + 1
    keys = np.empty(int(units.max(initial=0)) * lengths, np.int64)
    indptr = np.zeros(row_count + 1, np.int64)
    indices, counts = np.empty((2, int(units.sum()) * lengths), np.int32)
    result_arrays = (indptr, indices, counts)
    _run(kernels.count, tokens, groups, settings.grams, vocabulary, keys, result_arrays)
    return indptr, indices[: indptr[-1]], counts[: indptr[-1]]


BLOCK_CHARACTERS = 64
"""Characters that are lowered together, to skip blocks of characters without case."""


@cache
def make_character_tables() -> tuple[Array, Array, Array]:
    """Return the `tables` of `token_kernels.py`: the pages, the lower case and the marks."""
    code_points = np.arange(CODE_POINTS, dtype="<u4")
    all_characters = code_points.tobytes().decode("utf-32-le", "surrogatepass")
    lower = np.zeros(CODE_POINTS, np.int32)
    marks = np.zeros(CODE_POINTS, np.uint8)
    for pattern, mark in ((r"\w+", WORD), (r"\s+", SPACE)):
        for run in re.finditer(pattern, all_characters):
            marks[run.start() : run.end()] |= mark
    for start in range(0, CODE_POINTS, BLOCK_CHARACTERS):
        block = all_characters[start : start + BLOCK_CHARACTERS]
        if block.lower() == block:  # Most characters have no case.
            continue
        for i, character in enumerate(block, start):
            lowered = character.lower()
            if len(lowered) != 1:
                marks[i] |= PYTHON_ONLY
            elif lowered != character:
                lower[i] = ord(lowered) - i
    marks[0x3A3] |= PYTHON_ONLY  # The Greek sigma has another lower case at word ends.
    return _share_pages(lower, marks)


def _share_pages(lower: Array, marks: Array) -> tuple[Array, Array, Array]:
    """Store equal pages of the arrays once, in the order in which they first appear."""
    lower, marks = lower.reshape(-1, PAGE_SIZE), marks.reshape(-1, PAGE_SIZE)
    contents = [(a.tobytes(), b.tobytes()) for a, b in zip(lower, marks, strict=True)]
    first_rows: dict[tuple[bytes, bytes], int] = {}
    for row, content in enumerate(contents):
        first_rows.setdefault(content, row)
    page_of_content = {content: page for page, content in enumerate(first_rows)}
    pages = np.array([page_of_content[content] for content in contents], np.uint16)
    rows = list(first_rows.values())
    return pages, lower[rows].ravel(), marks[rows].ravel()


def _mask_python_texts(texts: TextColumn, analyzer: Analyzer) -> Array:
    if not (analyzer.lowercase or analyzer.accents):
        return np.zeros(len(texts), bool)
    if texts.data.size == 0 or texts.data.max() < 0x80:
        return np.zeros(len(texts), bool)  # This avoids compiling the scanner.
    scan_options = (PYTHON_ONLY if analyzer.lowercase else 0), bool(analyzer.accents)
    needs_python = np.zeros(len(texts), bool)
    _run(kernels.scan, _to_arrays(texts), make_character_tables(), *scan_options, needs_python)
    return needs_python


def _prepare_texts(texts: TextColumn, mask: Array, analyzer: Analyzer) -> TextColumn:
    rows = np.flatnonzero(mask)
    values: Array = np.empty(rows.size, object)
    values[:] = [analyzer.normalize(texts.text(int(i))) for i in rows]
    return TextColumn.from_values(values)


def _merge_rows(matrices: Sequence[Csr], rows_by_matrix: Sequence[Array], row_count: int) -> Csr:
    """Merge matrices; `rows_by_matrix` has the rows of the entries. Entries of a cell are added."""
    rows = np.concatenate(rows_by_matrix)
    columns = np.concatenate([matrix.indices for matrix in matrices])
    data = np.concatenate([matrix.data for matrix in matrices])
    order = np.lexsort((columns, rows))
    rows, columns, data = rows[order], columns[order], data[order]
    is_first = np.ones(rows.size, bool)
    is_first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    first_entries = np.flatnonzero(is_first)
    sums = np.add.reduceat(data, first_entries) if first_entries.size else data
    indptr = np.zeros(row_count + 1, np.int64)
    np.cumsum(np.bincount(rows[first_entries], minlength=row_count), out=indptr[1:])
    return Csr(sums, columns[first_entries], indptr, matrices[0].width)


def _to_arrays(texts: TextColumn) -> tuple[Array, Array, Array]:
    return np.ascontiguousarray(texts.data), texts.start, texts.stop


def make_word_table(words: Array, ends: Array) -> Table:
    """Return a hash table of packed words, with int32 slots and uint32 hashes (2**k,)."""
    words, ends = np.ascontiguousarray(words), np.ascontiguousarray(ends)
    size = 4
    while size < 2 * ends.size:
        size *= 2
    slots, hashes = np.full(size, -1, np.int32), np.zeros(size, np.uint32)
    table = (words, ends, slots, hashes)
    if ends.size:
        _run(kernels.build, words.copy(), table)
    return table


_INT64, _INT32 = writes(np.int64, 1), writes(np.int32, 1)
TEXTS = (reads(np.uint8, 1), reads(np.int64, 1), reads(np.int64, 1))
WORD_TABLE = (reads(np.uint8, 1), reads(np.int64, 1), _INT32, writes(np.uint32, 1))
_TABLES = (reads(np.uint16, 1, "C"), reads(np.int32, 1, "C"), reads(np.uint8, 1, "C"))
_TOKENS = (writes(np.uint8, 1), _INT64, _INT64, _INT64)

_GRAMS, _VOCABULARY = (FLAG, COUNT, COUNT), (WORD_TABLE, COUNT, FLAG, FLAG)
_RESULTS = (_INT64, _INT32, _INT32)

_SIGNATURES: Mapping[Callable[..., Any], Signature] = {
    kernels.cut_words: (TEXTS, _TABLES, FLAG, COUNT, _TOKENS),
    kernels.cut_characters: (TEXTS, _TABLES, FLAG, _TOKENS),
    kernels.cut_within: (TEXTS, _TABLES, FLAG, _TOKENS, _INT64),
    kernels.drop_words: (_TOKENS, WORD_TABLE),
    kernels.count: (_TOKENS, _INT64, _GRAMS, _VOCABULARY, _INT64, _RESULTS),
    kernels.scan: (TEXTS, _TABLES, COUNT, FLAG, writes(bool, 1)),
    kernels.build: (writes(np.uint8, 1), WORD_TABLE),
    kernels.look_up: (TEXTS, WORD_TABLE, writes(np.int64, 1)),
}
_CUTTERS: dict[str, Callable[..., Any]] = {
    "word": kernels.cut_words,
    "char": kernels.cut_characters,
    "char_wb": kernels.cut_within,
}


def _run(function: Callable[..., Any], *arguments: Any) -> None:
    specialise(function, _SIGNATURES[function])(*arguments)


def make_text_encoder(categories: Array, missing: int) -> Callable[[TextColumn], Array]:
    """Return a function that looks up the codes (n, 1) of strings in a hash table."""
    is_text = np.array([isinstance(category, str) for category in categories], bool)
    word_table = make_word_table(*pack_words(categories[is_text]))
    codes = np.append(np.flatnonzero(is_text), -1)  # The last code is for unknown strings.

    def encode(x: TextColumn) -> Array:
        indices = np.empty(len(x), np.int64)
        _run(kernels.look_up, _to_arrays(x), word_table, indices)
        indices = codes[indices]
        indices[x.missing] = missing
        return indices.reshape(-1, 1)

    return encode


def make_text_fill(attrs: Attrs) -> Callable[[TextColumn], TextColumn]:
    """Return the operator `fill` for a TextColumn."""
    value = np.frombuffer(attrs["value"].encode("utf-8", CODEC), np.uint8)
    marker = attrs.get("missing")

    def fill(x: TextColumn) -> TextColumn:
        is_filled = x.missing if marker is None else _find_equal(x, marker)
        data = np.concatenate([x.data, value])
        start = np.where(is_filled, x.data.size, x.start)
        stop = np.where(is_filled, data.size, x.stop)
        return TextColumn(data, start, stop, x.missing & ~is_filled)

    return fill


def _find_equal(x: TextColumn, text: str) -> Array:
    pattern = np.frombuffer(text.encode("utf-8", CODEC), np.uint8)
    is_equal: Array = ~x.missing & (x.stop - x.start == pattern.size)
    rows = np.flatnonzero(is_equal)
    if pattern.size:
        candidates = x.data[x.start[rows, None] + np.arange(pattern.size)]
        is_equal[rows] = (candidates == pattern).all(axis=1)
    return is_equal
