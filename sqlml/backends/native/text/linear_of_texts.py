"""Compute a linear layer over the token counts of texts, in one pass and without Python.

The kernel splits, counts, looks up, weights and normalizes one text after another, and adds each
text to the sums. `count_tokens.py` and the operators of sparse rows do this for a batch, with the
same order of every sum and the same rounding of every step.

Python scores a block that contains a text that Python must prepare (`has_marked`), a text that the
model rejects, a text of MAX_TOKENS or more, or the logarithm of a count >= LOG_TABLE_SIZE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.jit.process_memory import bytes_at, doubles_at, free, malloc, words_at
from sqlml.backends.native.jit.specialise import reads, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import MEMORY, Call, Rows
from sqlml.backends.native.text import count_tokens
from sqlml.backends.native.text import token_kernels as kernels
from sqlml.backends.native.text.count_tokens import CHUNK
from sqlml.backends.native.text.token_kernels import PYTHON_ONLY, count_keys, find_keys, has_marked
from sqlml.ir.operators.text import TEXT_OPERATORS, WORD_RUN_PATTERNS, make_analyzer
from sqlml.ir.program import Node, Program
from sqlml.types import Array

WORDS, CHARACTERS, WITHIN = range(3)
"""The ways to cut a text (`Analyzer.kind`)."""

_KINDS = {"word": WORDS, "char": CHARACTERS, "char_wb": WITHIN}

SCALE, LOG, ONE, POSITIVE, L1, L2, FINITE, CAST, SELECT = range(9)
"""Codes of operators on stored numbers (`ir/operators/sparse_rows.py`), and of `select`. The
factors of `select` are the new positions of columns, or -1."""

_MAPS = {"sublinear": LOG, "one": ONE, "positive": POSITIVE}
_NORMS = {"l1": L1, "l2": L2}

MAX_TOKENS = 1 << 24
"""Texts with fewer tokens have counts that float32 represents exactly."""

LOG_TABLE_SIZE = 1024
"""Logarithms of smaller counts come from numpy, since others may differ in the last bit."""

_cut_words, _drop_words = compiled_helper(kernels.cut_words), compiled_helper(kernels.drop_words)
_cut_characters = compiled_helper(kernels.cut_characters)
_cut_within = compiled_helper(kernels.cut_within)
_measure_capacity = compiled_helper(kernels.measure_capacity)


@dataclass(frozen=True, slots=True, eq=False)
class TextSums:
    """The sums that the counted tokens of a string column add to a linear layer."""

    node: int  # The input that holds the texts.
    count_node: Node  # The operator that counts tokens.
    # int64 (k, 4), for each operator on the counts: the code, 1 for float32, the index of the first
    # factor, and the number of factors.
    operators: Array
    factors: Array
    weights: Array | None  # (columns, m), or None to write the values to their columns.

    @classmethod
    def of(cls, program: Program, i: int, weights: Array | None = None) -> TextSums | None:
        """Return the sums for node `i` (sparse rows), or None if no kernel can compute the sums."""
        operators: list[tuple[int, int, int, int]] = []
        factors: list[Array] = [np.empty(0)]
        node = program.nodes[i]
        while node.op not in TEXT_OPERATORS:
            source = program.nodes[node.inputs[0]]
            code, operator_factors = _describe_operator(node, source.type.width)
            if code is None or node.type.dtype == "float16":
                return None
            is_single = int(node.type.dtype == "float32")
            operators.append((code, is_single, sum(f.size for f in factors), operator_factors.size))
            factors.append(operator_factors)
            node = source
        operators.reverse()
        analyzer = make_analyzer(node.attrs)
        is_plain_input = program.nodes[node.inputs[0]].op == "input" and len(node.inputs) == 1
        has_kernels = count_tokens.is_cut_by_table(analyzer) and analyzer.kind in _KINDS
        if not is_plain_input or not has_kernels:
            return None
        codes = [code for code, *_ in operators]
        if LOG in codes and not {*codes[: codes.index(LOG)]} <= {FINITE, SELECT}:
            return None  # The table only has logarithms of counts.
        table = np.array(operators, np.int64).reshape(-1, 4)
        return cls(node.inputs[0], node, table, np.concatenate(factors), weights)

    def make_calls(self, start: Rows, stop: Rows, out: Rows) -> Iterator[Call]:
        """Yield the call that adds the sums of the texts at `start` to `stop` to `out`."""
        attrs = self.count_node.attrs
        analyzer = make_analyzer(attrs)
        min_length = WORD_RUN_PATTERNS[analyzer.pattern] if analyzer.kind == "word" else 1
        settings = (_KINDS[analyzer.kind], analyzer.lowercase, bool(analyzer.accents), min_length)
        grams = (analyzer.kind == "char_wb", analyzer.min_n, analyzer.max_n)
        stop_table = (bool(analyzer.stop_words), count_tokens.make_stop_word_table(analyzer))
        vocabulary = count_tokens.make_vocabulary(attrs, self.count_node.op == "hash_tokens")
        values = (self.operators, self.factors, _tabulate_logarithms(np.dtype(str(attrs["dtype"]))))
        weights = np.empty((0, 0), out.dtype) if self.weights is None else self.weights
        sums = (self.weights is not None, np.ascontiguousarray(weights))
        tables = count_tokens.make_character_tables()
        layer = (tables, settings, stop_table, grams, vocabulary, values, sums)
        address = reads(np.int64, 1, "C")
        argument_kinds = (reads(np.uint8, 1, "C"), address, address, to_kinds(*layer))
        kernel = specialise(add_text_sums, (*argument_kinds, writes(out.dtype, 2)))
        yield Call(kernel, (MEMORY, start, stop, layer, out))


def _describe_operator(node: Node, width: int) -> tuple[int | None, Array]:
    """Return the code of an operator on `width` columns (None if unsupported), and the factors."""
    no_factors = np.empty(0)
    if node.op == "scale_stored":
        return SCALE, node.attrs["factors"].astype(np.float64)
    if node.op == "map_stored":
        return _MAPS[node.attrs["function"]], no_factors
    if node.op == "normalise_stored":
        return _NORMS[node.attrs["norm"]], no_factors
    if node.op == "select":
        indices = node.attrs["indices"]
        positions = np.full(width, -1.0)
        positions[indices] = np.arange(indices.size)
        return SELECT if np.unique(indices).size == indices.size else None, positions
    return {"require_finite_stored": FINITE, "cast": CAST}.get(node.op), no_factors


def _tabulate_logarithms(dtype: np.dtype[Any]) -> Array:
    """Return a float64 table of log(count) + 1 for small counts, computed in `dtype`."""
    with np.errstate(divide="ignore"):
        values = np.log(np.arange(LOG_TABLE_SIZE, dtype=dtype)) + dtype.type(1)
    logs: Array = values.astype(np.float64)
    return logs


@compiled_helper
def _cut_texts(texts: Any, tables: Any, options: Any, stop: Any, groups: Any, tokens: Any) -> None:
    """Split texts into `tokens`; write where the groups of each text begin to `groups`.

    An n-gram never extends beyond a group.
    """
    kind, lowering, _, min_length = options
    for row in range(groups.size):
        groups[row] = row
    if kind == WORDS:
        _cut_words(texts, tables, lowering, min_length, tokens)
        if stop[0]:
            _drop_words(tokens, stop[1])
    elif kind == CHARACTERS:
        _cut_characters(texts, tables, lowering, tokens)
    else:
        _cut_within(texts, tables, lowering, tokens, groups)


@compiled_helper
def _apply_operators(operators: Any, columns: Any, values: Any, count: Any) -> Any:
    """Apply the operators to the counts of one text; return how many columns remain.

    Returns -1 if Python must score the text. `columns` and `values` (count,) are overwritten.
    Values are float64, and are rounded to float32 after each float32 operator.
    """
    table, factors, logs = operators
    for k in range(table.shape[0]):
        op, is_single = table[k, 0], table[k, 1] != 0
        if op == SELECT:
            remaining = 0
            for j in range(count):
                position = np.int64(factors[table[k, 2] + columns[j]])
                if position >= 0:
                    columns[remaining], values[remaining] = position, values[j]
                    remaining += 1
            count = remaining
            continue
        total = 0.0
        if op == L1 or op == L2:
            for j in range(count):
                magnitude = values[j] * values[j] if op == L2 else abs(values[j])
                total += np.float64(np.float32(magnitude)) if is_single else magnitude
            if op == L2:
                total = np.sqrt(total)
            if total == 0.0:
                total = 1.0
        for j in range(count):
            value = values[j]
            if op == SCALE:
                value *= factors[table[k, 2] + (columns[j] if table[k, 3] > 1 else 0)]
            elif op == LOG:
                if not 0 <= value < logs.size:
                    return -1
                value = logs[np.int64(value)]
            elif op == ONE:
                value = 1.0
            elif op == POSITIVE:
                value = 1.0 if value > 0 else 0.0
            elif op == L1 or op == L2:
                value /= total
            elif op == FINITE and not np.isfinite(value):
                return -1
            values[j] = np.float64(np.float32(value)) if is_single else value
    return count


@compiled_helper
def _find_chunk_end(memory: Any, start: Any, stop: Any, begin: Any, tables: Any, flags: Any) -> Any:
    """Return the end of the chunk from text `begin` on, and the text that Python must score, or -1.

    A chunk has up to CHUNK bytes, or one longer text. It ends before a text that Python must
    prepare. `flags` are the mark of characters that need Python, and True if all characters beyond
    ASCII need Python.
    """
    mark, accents = flags
    end, size = begin, 0
    while end < start.size and (end == begin or size + stop[end] - start[end] <= CHUNK):
        size += stop[end] - start[end]
        if (mark or accents) and has_marked(memory, start[end], stop[end], tables, mark, accents):
            return end, end
        end += 1
    return end, -1


def add_text_sums(memory: Any, start: Any, stop: Any, layer: Any, out: Any) -> Any:
    """Add each text's values times the weights to out (n, m); without weights, write the values.

    Returns -1 on success, or the index of a text that Python must score (0 if memory runs out).
    This is one long function, so that a chunk of texts passes all steps while it is in the cache.

    Args:
        memory: the whole memory as uint8.
        start, stop: int64 (n,), the addresses where each text begins and ends.
        layer: seven tuples: `tables` of `token_kernels`; settings (a kind, two flags to lower texts
            and to strip accents, and the fewest characters of a word); a flag to drop stop words,
            and the table of stop words; `grams` and `vocabulary` of `token_kernels.count`; the
            operators, the factors and a table of logarithms; and a flag to use weights, and the
            weights.
    """
    tables, settings, stop_table, grams, vocabulary, operators, sums = layer
    is_weighted, weights = sums
    kind, lowering, accents, _ = settings
    flags = (PYTHON_ONLY if lowering else 0, accents)
    rows, size = start.size, CHUNK
    for r in range(rows):
        size = max(size, stop[r] - start[r])
    units, characters = _measure_capacity(size, rows)
    buffer_words = 2 * units + size + 2 * rows + 2
    buffer_address = malloc(8 * buffer_words + characters)
    if buffer_address == 0:
        return 0
    buffer = words_at(buffer_address, buffer_words)
    units_begin = buffer_words - 2 * units
    groups, offsets = buffer[: rows + 1], buffer[rows + 1 : units_begin]
    first, last = buffer[units_begin : units_begin + units], buffer[units_begin + units :]
    out_bytes = bytes_at(buffer_address + 8 * buffer_words, characters)
    lengths = grams[2] - grams[1] + 1
    key_capacity, key_address, failed_row, begin = 0, 0, -1, 0
    while begin < rows and failed_row < 0:
        end, failed_row = _find_chunk_end(memory, start, stop, begin, tables, flags)
        if failed_row >= 0:
            break
        chunk_groups = groups[: end - begin + 1]
        tokens = (out_bytes, first, last, offsets if kind == WITHIN else offsets[: end - begin + 1])
        texts = (memory, start[begin:end], stop[begin:end])
        _cut_texts(texts, tables, settings, stop_table, chunk_groups, tokens)
        max_units = 0
        for r in range(end - begin):
            max_units = max(max_units, offsets[chunk_groups[r + 1]] - offsets[chunk_groups[r]])
        max_keys = lengths * max_units
        if max_keys >= MAX_TOKENS:
            failed_row = begin
            break
        if max_keys > key_capacity:
            free(key_address)
            key_capacity = 2 * max_keys
            key_address = malloc(3 * 8 * key_capacity)
            if key_address == 0:
                failed_row = begin
                break
        keys = words_at(key_address, key_capacity)
        columns = words_at(key_address + 8 * key_capacity, key_capacity)
        values = doubles_at(key_address + 16 * key_capacity, key_capacity)
        for r in range(begin, end):
            group, next_group = chunk_groups[r - begin], chunk_groups[r - begin + 1]
            key_count = find_keys(tokens, group, next_group, grams, vocabulary, keys)
            n_columns = count_keys(keys, key_count, columns, values)
            n_columns = _apply_operators(operators, columns, values, n_columns)
            if n_columns < 0:
                failed_row = r
                break
            for j in range(n_columns):
                value, column = out.dtype.type(values[j]), columns[j]
                if is_weighted:
                    for k in range(out.shape[1]):
                        out[r, k] += value * weights[column, k]
                else:
                    out[r, column] = value
        begin = end
    free(key_address)
    free(buffer_address)
    return failed_row
