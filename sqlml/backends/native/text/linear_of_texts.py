"""A linear layer over the counted tokens of texts, in one pass and without Python.

What `count_tokens.py` and the operators of sparse rows do one after the other for a batch is done
here text by text: cut, count, look up, weight, normalise, and add to the sums. The order of every
sum, and each rounding, are those of the operators.

Python scores the blocks that hold a text which it must prepare (`is_hard`), one that the model
refuses, one of MOST_TOKENS, or a count of LOGS under a logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.process_memory import bytes_at, doubles_at, free, malloc, words_at
from sqlml.backends.native.jit.specialise import called, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import MEMORY, Call, Rows
from sqlml.backends.native.text import token_kernels as kernels
from sqlml.backends.native.text.count_tokens import (
    CHUNK,
    is_cut_by_table,
    places_of,
    stop_words,
    tables,
)
from sqlml.backends.native.text.token_kernels import HARD, count_keys, find_keys, is_hard
from sqlml.ir.operators.text import TEXT_OPERATORS, WORD_RUN_PATTERNS, make_analyzer
from sqlml.ir.program import Node, Program
from sqlml.types import Array

WORDS, CHARACTERS, WITHIN = range(3)
"""How a text is cut (`Analyzer.kind`)."""

_KINDS = {"word": WORDS, "char": CHARACTERS, "char_wb": WITHIN}

SCALE, LOG, ONE, POSITIVE, L1, L2, FINITE, CAST, SELECT = range(9)
"""Operators of stored numbers (`ir/operators/sparse_rows.py`), and `select`, whose factors are the
new positions of columns, or -1."""

_MAPS = {"sublinear": LOG, "one": ONE, "positive": POSITIVE}
_NORMS = {"l1": L1, "l2": L2}

MOST_TOKENS = 1 << 24
"""float32 counts fewer tokens than this exactly."""

LOGS = 1024
"""Logarithms of smaller counts come from a table that numpy made; another log may differ in its
last bit."""

_cut_words, _drop_words = called(kernels.cut_words), called(kernels.drop_words)
_cut_characters, _cut_within = called(kernels.cut_characters), called(kernels.cut_within)
_room = called(kernels.room)


@dataclass(frozen=True, slots=True, eq=False)
class TextSums:
    """What the counted tokens of a column of texts add to a linear layer.

    node: the input that holds the texts; counted: the node that counts. stored: int64 (k, 4), for
    each operator of the counts what it is, whether it is float32's, where its factors begin, and
    how many they are. weights: (columns, m), or None: the values themselves are written to their
    columns.
    """

    node: int
    counted: Node
    stored: Array
    factors: Array
    weights: Array | None

    @classmethod
    def of(cls, program: Program, i: int, weights: Array | None = None) -> TextSums | None:
        """The sums of the sparse rows of node `i`; None where Python has to make them."""
        stored: list[tuple[int, int, int, int]] = []
        factors: list[Array] = [np.empty(0)]
        node = program.nodes[i]
        while node.op not in TEXT_OPERATORS:
            below = program.nodes[node.inputs[0]]
            op, own = _stored(node, below.type.width)
            if op is None or node.type.dtype == "float16":
                return None
            single = int(node.type.dtype == "float32")
            stored.append((op, single, sum(f.size for f in factors), own.size))
            factors.append(own)
            node = below
        stored.reverse()
        analyzer = make_analyzer(node.attrs)
        given = program.nodes[node.inputs[0]].op == "input" and len(node.inputs) == 1
        if not given or not is_cut_by_table(analyzer) or analyzer.kind not in _KINDS:
            return None
        operators = [op for op, *_ in stored]
        if LOG in operators and not {*operators[: operators.index(LOG)]} <= {FINITE, SELECT}:
            return None  # of numbers that are no longer counts: the table lacks them
        table = np.array(stored, np.int64).reshape(-1, 4)
        return cls(node.inputs[0], node, table, np.concatenate(factors), weights)

    def calls(self, start: Rows, stop: Rows, out: Rows) -> Iterator[Call]:
        """The call that adds the sums to `out`, for texts whose bytes lie between addresses."""
        attrs = self.counted.attrs
        analyzer = make_analyzer(attrs)
        least = WORD_RUN_PATTERNS[analyzer.pattern] if analyzer.kind == "word" else 1
        how = (_KINDS[analyzer.kind], analyzer.lowercase, bool(analyzer.accents), least)
        grams = (analyzer.kind == "char_wb", analyzer.min_n, analyzer.max_n)
        stop_table = (bool(analyzer.stop_words), stop_words(analyzer))
        places = places_of(attrs, self.counted.op == "hash_tokens")
        values = (self.stored, self.factors, _logs(np.dtype(str(attrs["dtype"]))))
        weights = np.empty((0, 0), out.dtype) if self.weights is None else self.weights
        sums = (self.weights is not None, np.ascontiguousarray(weights))
        constants = (tables(), how, stop_table, grams, places, values, sums)
        address = reads(np.int64, 1, "C")
        kinds = (reads(np.uint8, 1, "C"), address, address, *kinds_of(*constants))
        kernel = specialise(add_text_sums, (*kinds, writes(out.dtype, 2)))
        yield Call(kernel, (MEMORY, start, stop, *constants, out))


def _stored(node: Node, width: int) -> tuple[int | None, Array]:
    """An operator of sparse rows of `width` columns, or None for another one, and its factors."""
    none = np.empty(0)
    if node.op == "scale_stored":
        return SCALE, node.attrs["factors"].astype(np.float64)
    if node.op == "map_stored":
        return _MAPS[node.attrs["function"]], none
    if node.op == "normalise_stored":
        return _NORMS[node.attrs["norm"]], none
    if node.op == "select":
        chosen = node.attrs["indices"]
        places = np.full(width, -1.0)
        places[chosen] = np.arange(chosen.size)
        return SELECT if np.unique(chosen).size == chosen.size else None, places
    return {"require_finite_stored": FINITE, "cast": CAST}.get(node.op), none


def _logs(dtype: np.dtype[Any]) -> Array:
    """float64 (LOGS,): log(x) + 1 of counts, as numpy computes it in a dtype."""
    with np.errstate(divide="ignore"):
        made = np.log(np.arange(LOGS, dtype=dtype)) + dtype.type(1)
    logs: Array = made.astype(np.float64)
    return logs


@called
def _cut_texts(texts: Any, tables: Any, how: Any, stop: Any, groups: Any, cut: Any) -> None:
    """Cut texts into units, and write which groups each has."""
    kind, lowering, _, least = how
    for row in range(groups.size):
        groups[row] = row
    if kind == WORDS:
        _cut_words(texts, tables, lowering, least, cut)
        if stop[0]:
            _drop_words(cut, stop[1])
    elif kind == CHARACTERS:
        _cut_characters(texts, tables, lowering, cut)
    else:
        _cut_within(texts, tables, lowering, cut, groups)


@called
def _apply(operators: Any, columns: Any, values: Any, count: Any) -> Any:
    """Apply the operators to the counts of one text; how many columns there are then, or -1: it is
    refused.

    values: float64 (count,), rounded to float32 where an operator is float32's.
    """
    stored, factors, logs = operators
    for k in range(stored.shape[0]):
        op, single = stored[k, 0], stored[k, 1] != 0
        if op == SELECT:
            left = 0
            for j in range(count):
                place = np.int64(factors[stored[k, 2] + columns[j]])
                if place >= 0:
                    columns[left], values[left] = place, values[j]
                    left += 1
            count = left
            continue
        total = 0.0
        if op == L1 or op == L2:
            for j in range(count):
                size = values[j] * values[j] if op == L2 else abs(values[j])
                total += np.float64(np.float32(size)) if single else size
            if op == L2:
                total = np.sqrt(total)
            if total == 0.0:
                total = 1.0
        for j in range(count):
            value = values[j]
            if op == SCALE:
                value *= factors[stored[k, 2] + (columns[j] if stored[k, 3] > 1 else 0)]
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
            values[j] = np.float64(np.float32(value)) if single else value
    return count


@called
def _chunk_end(memory: Any, start: Any, stop: Any, at: Any, marks: Any, hard: Any) -> Any:
    """Where the chunk that begins at text `at` ends (up to CHUNK bytes, or one longer text), and
    its first text that Python must prepare, or -1.

    hard: the mark of characters that are hard, and whether those beyond ASCII are.
    """
    mark, accents = hard
    end, size = at, 0
    while end < start.size and (end == at or size + stop[end] - start[end] <= CHUNK):
        size += stop[end] - start[end]
        if (mark or accents) and is_hard(memory, start[end], stop[end], marks, mark, accents):
            return end, end
        end += 1
    return end, -1


def add_text_sums(
    memory: Any,
    start: Any,
    stop: Any,
    tables: Any,
    how: Any,
    stop_table: Any,
    grams: Any,
    places: Any,
    operators: Any,
    sums: Any,
    out: Any,
) -> Any:
    """Add the products of the texts' values and weights to out (n, m), or write the values there.

    Returns -1, or a text that Python must score (0 where there is no memory).

    start, stop: int64 (n,), the addresses between which a text lies. how: the kind of units,
    whether texts are lowered, whether accents are taken off, and the least characters of a word.
    stop_table: whether words are dropped, and which. grams, places: as of `token_kernels.count`.
    operators: those of stored numbers, their factors, and a table of logarithms. sums: whether
    there are weights, and these.
    """
    weighted, weights = sums
    kind, lowering, accents, _ = how
    hard = (HARD if lowering else 0, accents)
    rows, size = start.size, CHUNK
    for r in range(rows):
        size = max(size, stop[r] - start[r])
    units, characters = _room(size, rows)
    words = 2 * units + size + 2 * rows + 2
    held_at = malloc(8 * words + characters)
    if held_at == 0:
        return 0
    held = words_at(held_at, words)
    groups, heads = held[: rows + 1], held[rows + 1 : words - 2 * units]
    first, last = held[words - 2 * units : words - units], held[words - units :]
    written = bytes_at(held_at + 8 * words, characters)
    each = grams[2] - grams[1] + 1
    held_keys, keys_at, failed, at = 0, 0, -1, 0
    while at < rows and failed < 0:
        end, failed = _chunk_end(memory, start, stop, at, tables[1], hard)
        if failed >= 0:
            break
        here = groups[: end - at + 1]
        cut = (written, first, last, heads if kind == WITHIN else heads[: end - at + 1])
        _cut_texts((memory, start[at:end], stop[at:end]), tables, how, stop_table, here, cut)
        most = 0
        for r in range(end - at):
            most = max(most, each * (heads[here[r + 1]] - heads[here[r]]))
        if most >= MOST_TOKENS:
            failed = at
            break
        if most > held_keys:
            free(keys_at)
            held_keys = 2 * most
            keys_at = malloc(3 * 8 * held_keys)
            if keys_at == 0:
                failed = at
                break
        keys, columns = words_at(keys_at, held_keys), words_at(keys_at + 8 * held_keys, held_keys)
        values = doubles_at(keys_at + 16 * held_keys, held_keys)
        for r in range(at, end):
            found = find_keys(cut, here[r - at], here[r - at + 1], grams, places, keys)
            count = count_keys(keys, found, columns, values)
            count = _apply(operators, columns, values, count)
            if count < 0:
                failed = r
                break
            for j in range(count):
                value, place = out.dtype.type(values[j]), columns[j]
                if weighted:
                    for m in range(out.shape[1]):
                        out[r, m] += value * weights[place, m]
                else:
                    out[r, place] = value
        at = end
    free(keys_at)
    free(held_at)
    return failed
