"""The check of the register machine accepts assembled bytecode, and no operand that is missing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier

from sqlml.backends.native.kernel_calls import INPUT, RESULT, Call, Rows
from sqlml.backends.native.vm.assembler import FIELDS, MAX_INSTRUCTIONS, Assembler, VmCode
from sqlml.backends.native.vm.register_machine import OPCODES, compile_machine
from tests.support.damaged_calls import Rng, damage_call
from tests.support.exported_calls import find_calls, is_safe, load_guarded, run_damaged
from tests.support.guarded_arrays import (
    replace_constants,
    run_cases,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

SINGLE, DOUBLE, CODE, COLUMNS, NUMBERS, SHAPE, OUT = range(7)
"""The indices of the machine's arguments."""

INPUTS, CONSTANTS, REGISTERS, BLOCK_ROWS, RESULTS, IS_INTEGER, WIDTH = range(7)
"""The indices of the numbers in `shape`."""


def make_call(code: VmCode, dtype: str = "float64") -> Call:
    """A call of the machine for rows of a dtype."""
    width, results = int(code.shape[WIDTH]), int(code.shape[RESULTS])
    rows = Rows(INPUT, np.dtype(dtype), width).flatten()
    single, double = (rows, np.empty(0)) if dtype == "float32" else (np.empty(0, "f4"), rows)
    out = Rows(RESULT, np.dtype(np.float64), results).flatten()
    return Call(
        compile_machine(), (single, double, code.code, code.columns, code.numbers, code.shape, out)
    )


def assemble_instruction(op: str, inputs: int, count: int) -> VmCode:
    """Code of up to `count` equal instructions, whose numbers have no others around them."""
    asm = Assembler(inputs)
    columns, results = [k % inputs for k in range(count)], []
    if op.removesuffix("32") in ("linear", "sqeuclidean"):
        store = asm.store_singles if op.endswith("32") else asm.store
        weights, biases = store(np.arange(6.0 * count)), asm.store(np.arange(float(count)))
        listed = [0, 1, asm.constant(1.0), 0, 0, 1]
        results = [asm.emit_list(op, listed, weights + 6 * k, biases + k) for k in range(count)]
    elif op.removesuffix("32") == "add_rows":
        ones, is_single = [np.ones((rows, count)) for rows in (3, 1)], op.endswith("32")
        tables = asm.store_tables(ones, is_single)
        results = asm.emit_row_sums([0, 1], tables, count, is_single)
    elif op == "take":
        results = [asm.emit_take(k, [5.0, 6.0, 7.0, 8.0][: 2 + k]) for k in columns]
    elif op == "check":
        limits = [asm.store_numbers(-np.inf, np.inf, 1.0 + k) for k in columns]
        results = [
            asm.emit(op, k, 0, index) and k for k, index in zip(columns, limits, strict=True)
        ]
    elif op == "compare":
        results = [asm.compare(k, 1, 2.0 + k, 3.0) for k in columns]
    elif op == "sum":
        results = [asm.add(k, 1, 2.0 + k) for k in columns]
    elif op == "where":
        results = [asm.emit(op, k, 1, asm.constant(float(k))) for k in columns]
    elif op == "log":
        results = [asm.emit(op, k, asm.constant(0.0)) for k in columns]
    else:
        results = [asm.emit(op, k, 1) for k in columns]
    return asm.finish(range(inputs), results, op == "whole")


def assemble_wide(inputs: int) -> VmCode:
    """Code that reads enough adjacent columns for transposition."""
    asm = Assembler(inputs)
    return asm.finish(range(inputs), [asm.sum_registers(range(inputs))], False)


def skip_columns(code: VmCode) -> VmCode:
    """Return the code for rows with 3 columns more than it reads, the first of them last."""
    columns, shape = code.columns.copy(), code.shape.copy()
    columns[0], shape[WIDTH] = shape[INPUTS] + 2, shape[INPUTS] + 3
    return VmCode(code.code, columns, code.numbers, shape)


@cache
def list_samples() -> tuple[Call, ...]:
    """Calls of the machine: of each instruction, and of models."""
    codes = [assemble_instruction(op, 2, count) for op in OPCODES for count in (1, 2)]
    codes += [assemble_instruction(op, 5, 4) for op in OPCODES]
    codes += [assemble_wide(11), skip_columns(assemble_wide(8)), skip_columns(codes[0])]
    calls = [
        *map(make_call, codes),
        make_call(codes[0], "float32"),
        make_call(codes[-3], "float32"),
    ]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4))
    labels, steps = rng.integers(3, size=90), np.rint(x)
    models = (
        MLPClassifier((5,), tol=1.0, random_state=0).fit(x, labels),
        make_pipeline(OneHotEncoder(), LogisticRegression()).fit(steps, labels),
        XGBClassifier(n_estimators=2, n_jobs=1).fit(x, labels),
    )
    return (*calls, *(find_calls(model, "_run")[0] for model in models))


def damage_machine(call: Call, rng: Rng) -> Call:
    """Return a call with up to three changed operands, or with other damage."""
    if rng.random() < 0.3:
        return damage_call(call, rng)
    code, columns, numbers, shape = (
        call.arguments[k].copy() for k in (CODE, COLUMNS, NUMBERS, SHAPE)
    )
    limits = (0, 2, int(shape[REGISTERS]), numbers.size, 2 * numbers.size, columns.size)
    for _ in range(int(rng.integers(1, 4))):
        number = int(rng.choice(limits)) + int(rng.integers(-4, 3))
        way = rng.random()
        if way < 0.6 and code.size:
            code[int(rng.integers(code.shape[0])), int(rng.integers(FIELDS))] = number
        elif way < 0.7:
            shape[int(rng.integers(shape.size))] = number
        elif way < 0.8:
            columns[int(rng.integers(columns.size))] = number
        elif numbers.size:
            odd = rng.choice([2.5, np.nan, np.inf, 1e18, float(number)])
            numbers[int(rng.integers(numbers.size))] = odd
    changed = {CODE: code, COLUMNS: columns, NUMBERS: numbers, SHAPE: shape}
    return replace_constants(call, changed)


def test_all_instructions_are_accepted() -> None:
    samples = list_samples()
    used = {opcode for call in samples for opcode in call.arguments[CODE][:, 0].tolist()}
    assert used == set(range(len(OPCODES)))
    for call in samples:
        assert is_safe(call)


def run(case: int, guarded: Mapping[Any, Any] | None = None) -> bool:
    return run_damaged(list_samples(), case, guarded, damage_machine)


def test_what_is_accepted_stays_inside_its_arrays() -> None:
    list_samples()
    outcome = run_cases(run, range(1500))
    assert not outcome.failures, outcome
    assert outcome.accepted > 150


@pytest.mark.nightly
def test_registers_are_not_left_either() -> None:
    guarded = load_guarded(list_samples()[:1])
    outcome = run_cases(lambda case: run(case, guarded), range(300_000), total_seconds=300)
    assert not outcome.failures, outcome
    assert outcome.accepted > 5000


LEAST, MOST = -(1 << 63), (1 << 63) - 1
OPCODE, RUNS, A, A_STEP, B, B_STEP, C, C_STEP, RESULT_REGISTER, RESULT_STEP = range(FIELDS)

HOSTILE: Mapping[str, tuple[str, int, int, Any]] = {
    "an unknown instruction": ("sum", CODE, OPCODE, len(OPCODES)),
    "a negative instruction": ("linear", CODE, OPCODE, -1),
    "no runs": ("sum", CODE, RUNS, 0),
    "too many runs": ("sum", CODE, RUNS, MAX_INSTRUCTIONS + 1),
    "a register after the last": ("mul", CODE, A, 1000),
    "a negative register": ("mul", CODE, B, -1),
    "the least register": ("where", CODE, C, LEAST),
    "a step to a missing register": ("mul", CODE, A_STEP, 1000),
    "a step before the first register": ("mul", CODE, B_STEP, -2),
    "a step that overflows": ("mul", CODE, RESULT_STEP, MOST),
    "a missing result": ("exp", CODE, RESULT_REGISTER, 1000),
    "a missing factor": ("sum", CODE, C, 2),
    "a missing number of a comparison": ("compare", CODE, C, 3),
    "a missing limit": ("check", CODE, C, 4),
    "a missing table": ("take", CODE, C, 1000),
    "a table after its count": ("take", NUMBERS, -4, 4.0),
    "a table with a fraction more": ("take", NUMBERS, -4, 3.5),
    "an infinite table": ("take", NUMBERS, -4, np.inf),
    "a list of inputs": ("linear", CODE, A, 0),
    "a list that ends too late": ("linear", CODE, A, 10),
    "a list of a negative length": ("linear", CODE, A_STEP, -3),
    "a list of the most": ("sqeuclidean", CODE, A_STEP, MOST // 3 * 3),
    "weights before the first": ("sqeuclidean", CODE, B, -1),
    "weights after the last": ("sqeuclidean", CODE, B, 1000),
    "a missing bias": ("linear", CODE, C, 1000),
    "a step to a missing bias": ("linear", CODE, C_STEP, 1000),
    "tables after the last number": ("add_rows", CODE, C, 1000),
    "tables before the first number": ("add_rows", CODE, C, -1),
    "a column after the last of the tables": ("add_rows", CODE, B, 1),
    "a column before the first of the tables": ("add_rows", CODE, B, -1),
    "every second column of the tables": ("add_rows", CODE, B_STEP, 2),
    "tables of fewer columns": ("add_rows", NUMBERS, 0, 1.0),
    "tables of more columns": ("add_rows", NUMBERS, 0, 3.0),
    "a fractional number of columns": ("add_rows", NUMBERS, 0, 2.5),
    "a NaN number of columns": ("add_rows", NUMBERS, 0, np.nan),
    "a row of zeros that starts too late": ("add_rows", NUMBERS, 1, 15.0),
    "a row of zeros before the header": ("add_rows", NUMBERS, 1, -1.0),
    "a table that starts too late": ("add_rows", NUMBERS, 2, 11.0),
    "a table that starts before the header": ("add_rows", NUMBERS, 2, -1.0),
    "a table of too many rows": ("add_rows", NUMBERS, 5, 3.0),
    "a fractional number of rows": ("add_rows", NUMBERS, 3, 2.5),
    "a row of float32 zeros that starts too late": ("add_rows32", NUMBERS, 1, 23.0),
    "more codes than tables": ("add_rows", CODE, A_STEP, 12),
    "float32 weights after the last": ("linear32", CODE, B, 1000),
    "float32 points after the last": ("sqeuclidean32", CODE, B, 1000),
    "a table of infinitely many rows": ("add_rows", NUMBERS, 3, np.inf),
    "a table of float32 that starts too late": ("add_rows32", NUMBERS, 2, 17.0),
    "a list of codes that ends too late": ("add_rows", CODE, A, 10),
    "a register of codes": ("add_rows", COLUMNS, -1, 1000),
    "a register of a list": ("linear", COLUMNS, -1, 1000),
    "a column after the last": ("mul", COLUMNS, 0, 2),
    "a negative column": ("mul", COLUMNS, 1, -1),
    "a register of a result": ("mul", COLUMNS, 2, 1000),
    "negative inputs": ("mul", SHAPE, INPUTS, -1),
    "too many inputs": ("mul", SHAPE, INPUTS, 1000),
    "negative constants": ("where", SHAPE, CONSTANTS, LEAST),
    "too many constants": ("where", SHAPE, CONSTANTS, MOST),
    "no registers": ("mul", SHAPE, REGISTERS, 0),
    "too many registers": ("mul", SHAPE, REGISTERS, 1 << 40),
    "blocks without rows": ("mul", SHAPE, BLOCK_ROWS, 0),
    "blocks of too many rows": ("mul", SHAPE, BLOCK_ROWS, 1 << 40),
    "no results": ("mul", SHAPE, RESULTS, 0),
    "negative results": ("mul", SHAPE, RESULTS, -1),
    "fewer results": ("mul", SHAPE, RESULTS, 1),
    "wider rows": ("mul", SHAPE, WIDTH, 3),
    "rows of negative width": ("mul", SHAPE, WIDTH, -2),
}
"""Maps what is wrong to an instruction that runs twice, the argument, the place and the number."""


@pytest.mark.parametrize("wrong", HOSTILE)
def test_hostile_code_is_refused(wrong: str) -> None:
    op, argument, place, number = HOSTILE[wrong]
    call = make_call(assemble_instruction(op, 2, 2))
    assert is_safe(call)
    array = call.arguments[argument].copy()
    assert argument != CODE or array[0, RUNS] == 2
    array.reshape(-1)[place] = number
    assert not is_safe(replace_constants(call, {argument: array}))


def test_arrays_of_other_shapes_are_refused() -> None:
    call = make_call(assemble_instruction("mul", 2, 2))
    rows, no_floats = call.arguments[DOUBLE], np.empty(0, np.float32)
    single_rows = Rows(INPUT, no_floats.dtype, 2, is_flat=True)
    for changed in (
        {CODE: np.empty((1, FIELDS - 1), np.int64)},
        {CODE: np.empty((1 << 40, 0), np.int64)},
        {CODE: np.repeat(call.arguments[CODE], MAX_INSTRUCTIONS + 1, axis=0)},
        {COLUMNS: call.arguments[COLUMNS][:3]},
        {COLUMNS: np.empty(0, np.int64)},
        {SHAPE: call.arguments[SHAPE][:6]},
        {SHAPE: np.empty(0, np.int64)},
        {SINGLE: no_floats, DOUBLE: np.empty(0)},
        {SINGLE: single_rows, DOUBLE: rows},
        {OUT: Rows(RESULT, np.dtype(np.float64), 1, is_flat=True)},
    ):
        assert not is_safe(replace_constants(call, changed)), changed
