"""Kernels that leave their arrays end the process, and those that stay inside do not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sqlml.backends.native.jit.specialise import COUNT, reads, specialise, writes
from sqlml.backends.native.kernel_calls import INPUT, RESULT, Call, Rows
from tests.support.guarded_arrays import (
    Side,
    is_accepted,
    load_guarded_kernel,
    replace_constants,
    run_call,
    run_cases,
    set_allocation_side,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

DOUBLE = np.dtype(np.float64)
SIGNATURE = (reads(DOUBLE, 2), reads(DOUBLE, 1, "C"), COUNT, writes(DOUBLE, 2))


def read_table(x: Any, table: Any, index: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        out[r, 0] = x[r, 0] + table[np.uint64(index)]


def read_rows(x: Any, table: Any, index: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        out[r, 0] = x[np.uint64(r + index), 0]


def write_table(x: Any, table: Any, index: Any, out: Any) -> None:
    scratch = np.zeros(16)
    scratch[np.uint64(index)] = 1.0
    for r in range(x.shape[0]):
        out[r, 0] = scratch[0]


def wait_forever(x: Any, table: Any, index: Any, out: Any) -> None:
    while out[0, 0] == out[0, 0] or index == 0:
        out[0, 0] = x[0, 0]


def check_table(x: Any, table: Any, index: Any, out: Any) -> Any:
    return 0 <= index < table.size and out.shape == (1, 1) and x.shape[1] == 1


def make_call(function: Callable[..., Any], index: int) -> Call:
    x, out = Rows(INPUT, DOUBLE, 1), Rows(RESULT, DOUBLE, 1)
    return Call(specialise(function, SIGNATURE), (x, np.arange(5.0), index, out))


def fill(rows: Rows, count: int) -> Any:
    return np.ones((count, rows.stride or rows.width))


def find_failures(call: Call, side: Side, count: int = 3, kernel: Any = None) -> list[str]:
    def run(case: int) -> bool:
        set_allocation_side(side)
        run_call(call, (count,), fill, side, kernel)
        return True

    return [reason for _, reason in run_cases(run, [0], case_seconds=2).failures]


@pytest.mark.parametrize(
    ("function", "index", "side", "failures"),
    [
        (read_table, 4, "end", []),
        (read_table, 12, "end", []),  # The padding of a constant may be read.
        (read_table, 13, "end", ["SIGSEGV"]),
        (read_table, 0, "begin", []),
        (read_table, -1, "begin", ["SIGSEGV"]),
        (read_rows, 0, "end", []),
        (read_rows, 1, "end", ["SIGSEGV"]),
        (read_rows, -1, "begin", ["SIGSEGV"]),
        (wait_forever, 0, "end", ["time limit"]),
    ],
)
def test_an_access_outside_an_array_ends_the_process(
    function: Any, index: int, side: Side, failures: list[str]
) -> None:
    assert find_failures(make_call(function, index), side) == failures


@pytest.mark.nightly
def test_scratch_arrays_are_guarded() -> None:
    call = make_call(write_table, 15)
    kernel = load_guarded_kernel(write_table, SIGNATURE)
    assert find_failures(call, "end", kernel=kernel) == []
    for index, side in ((16, "end"), (-9, "begin"), (1 << 40, "end")):
        outside = replace_constants(call, {2: index})
        assert find_failures(outside, side, kernel=kernel) == ["SIGSEGV"], index


def test_cases_after_a_crash_still_run() -> None:
    call = make_call(read_table, 0)

    def run(case: int) -> bool:
        changed = replace_constants(call, {2: case})
        if case == 7:
            raise ValueError("case 7")
        if case != 12345 and not is_accepted(check_table, changed):
            return False
        run_call(changed, (1, 2), fill)
        return True

    outcome = run_cases(run, [-1, 0, 12345, 4, 5, 7, 1, 1 << 62])
    assert (outcome.cases, outcome.accepted) == (8, 3)
    (first, crash), (second, message) = outcome.failures
    assert (first, crash, second) == (12345, "SIGSEGV", 7) and "ValueError: case 7" in message
