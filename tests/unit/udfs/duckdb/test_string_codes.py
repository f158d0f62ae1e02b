"""Codes of texts as DuckDB has them in memory: short ones in place, long ones by their address."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.kernel_calls import KernelCalls
from sqlml.ir.builder import Builder
from sqlml.types import Array
from sqlml.udfs.batch_function import CategoryEncoder
from sqlml.udfs.duckdb.native.memory_layout import INLINE_BYTES, NULL_LENGTH
from sqlml.udfs.duckdb.native.plan_bytecode import copy_to_text_column, make_code_calls
from tests.unit.backends.native.test_kernel_calls import followed


def as_duckdb(texts: list[str | None]) -> tuple[Array, list[Array]]:
    """uint64 (2 n,), and the bytes that it points to."""
    made, kept = np.zeros((len(texts), 16), np.uint8), []
    for row, text in zip(made, texts, strict=True):
        data = np.frombuffer(b"" if text is None else text.encode(), np.uint8)
        size = NULL_LENGTH if text is None else data.size
        row[:4] = np.array([size], np.uint32).view(np.uint8)
        if data.size <= INLINE_BYTES:
            row[4 : 4 + data.size] = data
        else:
            kept.append(data)
            row[4:8] = data[:4]
            row[8:] = np.array([data.ctypes.data], np.uint64).view(np.uint8)
    return made.view(np.uint64).reshape(-1), kept


def some_texts(seed: int) -> list[str | None]:
    rng = np.random.default_rng(seed)
    letters = np.array(list("ab\0é日😀 '"))
    made: list[str | None] = [
        "".join(rng.choice(letters, rng.integers(0, 30))) for _ in range(rng.integers(1, 400))
    ]
    return [*made, "", "\0", "a" * 12, "a" * 13, "a" * 12 + "\0", None]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(4))
def test_the_codes_are_those_of_the_look_up(seed: int, dtype: str) -> None:
    texts = some_texts(seed)
    rng = np.random.default_rng(seed)
    b = Builder()
    filled = b.op("fill", b.input("c", "string"), value="a" * 13, missing="a" * 12)
    can_be = [t for t in dict.fromkeys(texts) if t is not None and "\0" not in t]
    known = [t for t in can_be if rng.random() < 0.7]
    names = np.array(known, object)
    plain = b.op("encode", b.input("d", "string"), categories=names, missing=0)
    changed = b.op("encode", filled, categories=names, missing=-1)
    program = b.build({"changed": changed, "plain": plain})
    lookup = CategoryEncoder(
        NativeBackend().compile(program), 0, ("c", "d"), ("changed", "plain"), (1,), (2, 0), dtype
    )
    column = np.array(texts, object).reshape(-1, 1)
    want = lookup.compiled.run({"c": column, "d": column[::-1]}, ["changed", "plain"])
    first, kept = as_duckdb(texts)
    second, also_kept = as_duckdb(texts[::-1])
    x = np.full((len(texts), 3), 0.5, dtype)
    calls = KernelCalls(tuple(make_code_calls(lookup, 3)))
    assert followed(calls, x, x, [first, second]) == -1
    np.testing.assert_array_equal(x[:, 2], want["changed"][:, 0])
    np.testing.assert_array_equal(x[:, 0], want["plain"][:, 0])
    np.testing.assert_array_equal(x[:, 1], 0.5)
    assert len(kept) == len(also_kept)


@pytest.mark.parametrize("seed", range(4))
def test_texts_are_read_whole(seed: int) -> None:
    texts = some_texts(seed)
    strings, kept = as_duckdb(texts)
    read = copy_to_text_column(strings)
    assert [None if read.missing[i] else read.text(i) for i in range(len(read))] == texts
    assert kept
    assert len(copy_to_text_column(np.empty(0, np.uint64))) == 0
