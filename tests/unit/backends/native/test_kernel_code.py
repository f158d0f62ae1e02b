"""Kernels as machine code of their own: what they take, and what they give."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from sqlml.backends.native.jit import runtime_library
from sqlml.backends.native.jit.argument_kinds import NOTHING, format_kind
from sqlml.backends.native.jit.specialise import (
    COUNT,
    FLAG,
    Signature,
    bind_constants,
    reads,
    specialise,
    to_kinds,
    writes,
)
from sqlml.types import Array

FOREIGN = "arguments that it was not compiled for"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


def _weigh(x: Any, weights: Any, times: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        total = 0.0
        for c in range(x.shape[1]):
            total += x[r, c] * weights[c]
        out[r] = total * times


WEIGH = (reads("f4", 2), reads("f8", 1, "C"), COUNT, writes("f8", 1))


def weigh(x: Array, weights: Array, times: Any = 1) -> Array:
    out = np.full(len(x), np.nan)
    assert specialise(_weigh, WEIGH)(x, weights, times, out) is None
    return out


X = np.arange(48, dtype=np.float32).reshape(6, 8)


@pytest.mark.parametrize(
    "x",
    [X, X[:, ::2], X[::-2], X.T, X[:, ::-1], X[:0], X[:, :0], np.asfortranarray(X), X[2:3]],
    ids=["C", "columns", "rows", "turned", "backwards", "none", "narrow", "Fortran", "one"],
)
def test_arrays_of_any_layout_are_read_where_they_lie(x: Array) -> None:
    weights = np.linspace(-1, 1, x.shape[1])
    np.testing.assert_allclose(weigh(x, weights), x.astype("f8") @ weights, atol=1e-12)


def test_arrays_of_stored_models_are_read_that_lie_at_odd_addresses() -> None:
    odd = np.zeros(X.nbytes + 1, np.uint8)[1:].view("f4").reshape(X.shape)
    odd[:] = X
    assert not odd.flags.aligned
    assert weigh(odd, np.ones(8)).tolist() == X.sum(axis=1).tolist()


def test_subclasses_and_arrays_that_cannot_be_written_are_read(tmp_path: Path) -> None:
    weights = np.ones(8)
    weights.flags.writeable = False
    held = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    held[:] = X
    assert weigh(held, weights, np.int64(2)).tolist() == (2 * X.sum(axis=1)).tolist()


BAD: dict[str, tuple[Any, Any, Any]] = {
    "dtype": (X.astype("f8"), np.ones(8), 1),
    "swapped": (X.astype(">f4"), np.ones(8), 1),
    "dimensions": (X[0], np.ones(8), 1),
    "layout": (X, np.ones(16)[::2], 1),
    "a list": (X.tolist(), np.ones(8), 1),
    "None": (None, np.ones(8), 1),
}


@pytest.mark.parametrize("name", BAD)
def test_an_argument_of_another_kind_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=FOREIGN):
        specialise(_weigh, WEIGH)(*BAD[name], np.zeros(6))


def test_a_number_that_is_none_and_an_array_that_is_read_only_are_refused() -> None:
    kernel = specialise(_weigh, WEIGH)
    out = np.zeros(6)
    for times in (1.5, "1", None, 1 << 70):
        with pytest.raises(TypeError, match=FOREIGN):
            kernel(X, np.ones(8), times, out)
    out.flags.writeable = False
    for arguments in ((X, np.ones(8), 1, out), (X, np.ones(8), 1), ()):
        with pytest.raises(TypeError, match=FOREIGN):
            kernel(*arguments)


def _pick(records: Any, parts: Any, absent: Any, chosen: Any, scale: Any) -> Any:
    total = 0
    if absent is None and chosen:
        for i in range(records.size):
            total += np.int64(records[i].first) * parts[0][i] + parts[1][i]
    return total * scale[()]


PARTS = to_kinds((np.array([1, 2, 3]), np.array([5, 5, 5], np.uint8)), None)
WANT = 2 * (7 + 2 + 3 * (2**32 - 1) + 15)


def test_records_tuples_flags_none_and_single_numbers() -> None:
    records = np.zeros(3, [("threshold", "f8"), ("first", "u4"), ("spare", "u4")])
    records["first"] = 7, 1, 2**32 - 1
    parts = (np.array([1, 2, 3]), np.array([5, 5, 5], np.uint8))
    scale = np.array(2)
    signature: Signature = (*to_kinds(records, parts, None), FLAG, reads("i8", 0))
    kernel = specialise(_pick, signature)
    assert kernel(records, parts, None, np.bool_(True), scale) == WANT
    assert kernel(records, parts, None, False, scale) == 0
    for bad in (
        (records, parts[:1], None, True, scale),
        (records, list(parts), None, True, scale),
        (records, parts, 0, True, scale),
        (records["first"], parts, None, True, scale),
    ):
        with pytest.raises(TypeError, match=FOREIGN):
            kernel(*bad)


class Pair(NamedTuple):
    long: Array
    short: Array


def test_constants_are_bound_once_and_stay_alive() -> None:
    records = np.zeros(3, [("threshold", "f8"), ("first", "u4"), ("spare", "u4")])
    records["first"] = 7, 1, 2**32 - 1
    signature: Signature = (reads(records.dtype, 1, "C"), *PARTS, FLAG, reads("i8", 0))
    kernel = specialise(_pick, signature)

    def bind() -> tuple[Any, Any]:
        parts = Pair(np.array([1, 2, 3]), np.array([5, 5, 5], np.uint8))
        assert kernel(records, parts, None, True, np.array(2)) == WANT
        return bind_constants(kernel, 1, (parts, None, True)), weakref.ref(parts.long)

    bound, long = bind()
    gc.collect()
    assert bound(records, np.array(2)) == WANT
    assert bound(records, np.array(4)) == 2 * WANT
    for bad in ((records,), (records["first"], np.array(2)), (records, None, np.array(2))):
        with pytest.raises(TypeError, match=FOREIGN):
            bound(*bad)
    assert long() is not None
    del bound
    assert long() is None


def _room(size: Any) -> Any:
    held = np.empty(size)
    for i in range(min(size, 8)):
        held[i] = i
    total = 0.0
    for i in range(min(size, 8)):
        total += held[i]
    return total > 27.0


def test_memory_of_a_kernel_is_given_back_and_its_lack_reported() -> None:
    kernel = specialise(_room, (COUNT,))
    status = Path("/proc/self/statm")
    for _ in range(10):
        kernel(1 << 21)
    before = int(status.read_text().split()[0]) if status.exists() else 0
    assert all(kernel(1 << 21) for _ in range(300))  # 16 MiB each
    if before:
        assert int(status.read_text().split()[0]) - before < 1 << 16  # pages
    with pytest.raises(MemoryError):
        kernel(1 << 58)


def _spin(rounds: Any, out: Any) -> None:
    for i in range(rounds):
        out[i & 1023] = out[(i * 7) & 1023] * 0.5 + i


def test_other_threads_run_meanwhile() -> None:
    kernel = specialise(_spin, (COUNT, writes("f8", 1)))
    done = threading.Event()
    turns = 0

    def work() -> None:
        kernel(100_000_000, np.zeros(1024))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_runs_and_loads_kernels() -> None:
    weigh(X, np.ones(8))
    work = multiprocessing.get_context("fork").Process(target=_in_child)
    work.start()
    work.join(60)
    assert work.exitcode == 0


def _in_child() -> None:
    assert weigh(X, np.ones(8)).tolist() == X.sum(axis=1).tolist()
    assert specialise(_room, (COUNT,))(100)


def _sorts(x: Any, out: Any) -> None:
    out[:] = np.linalg.solve(x, out)


@pytest.mark.nightly
def test_a_kernel_that_needs_numba_is_run_by_numba(tmp_path: Path) -> None:
    """Calls of LAPACK go through numba's own library."""
    kernel = specialise(_sorts, (reads("f8", 2, "C"), writes("f8", 1)))
    out = np.array([2.0, 8.0])
    kernel(np.array([[2.0, 0.0], [0.0, 4.0]]), out)
    assert out.tolist() == [1.0, 2.0]
    assert not list(tmp_path.rglob("_sorts*.kernel"))  # others may be compiled meanwhile


def test_where_arrays_have_other_fields_numba_runs_all_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert runtime_library.can_call_kernels()
    monkeypatch.setattr(runtime_library, "can_call_kernels", lambda: False)
    signature = (*WEIGH[:3], writes("f8", 1), NOTHING)

    def with_nothing(x: Any, weights: Any, times: Any, out: Any, absent: Any) -> None:
        out[0] = x[0, 1] * weights[0] * times

    out = np.zeros(1)
    kernel = specialise(with_nothing, signature)
    kernel(X, np.full(8, 3.0), 2, out, None)
    assert out.tolist() == [6.0] and hasattr(kernel, "py_func")


def test_kinds_are_spelled_apart() -> None:
    kinds = [
        *(reads("f8", 1), reads("f8", 1, "C"), writes("f8", 1), reads("f8", 2), reads("f4", 1)),
        *(reads([("a", "f4"), ("b", "u4")], 1), reads([("b", "f4"), ("a", "u4")], 1)),
        *(COUNT, FLAG, NOTHING, (), (COUNT,), (COUNT, FLAG), ((COUNT,), FLAG), (COUNT, (FLAG,))),
    ]
    assert len({format_kind(kind) for kind in kinds}) == len(kinds)
