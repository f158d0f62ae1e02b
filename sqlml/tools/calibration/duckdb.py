"""Measure DuckDB's part of the costs that `backends.costs` ships.

Every coefficient is the slope between two queries over the same rows that differ in one thing: the
number of columns in a sum or in a function's argument, the depth of trees, or the number of
categories.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np

from sqlml.dialects import DUCKDB
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.planner.program.cost import BATCH
from sqlml.planner.program.function_names import FunctionSpec, Part
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.function_registry import create_function
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.duckdb.native.install import Unavailable
from sqlml.udfs.duckdb.native.native_connection import NativeConnection, open_native_connection
from sqlml.udfs.make_function import make_engine_function

ROWS, COLUMNS, FEW = 61_440, 16, 4
SOME, MANY = 16, 256
"""Numbers of categories."""
ROUNDS = 5


def engine_costs() -> dict[str, float]:
    """Return nanoseconds by name: for columns and trees as expressions, and for function calls."""
    names = [f"c{k}" for k in range(COLUMNS)]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        values = ", ".join(f"(random() * 2 - 1)::FLOAT AS {name}" for name in names)
        category = f"'category number ' || (random() * {MANY})::INTEGER AS c"
        connection.execute(f"CREATE TABLE t AS SELECT {values}, {category} FROM range({ROWS})")

        def row(value: str) -> float:
            """Return nanoseconds per row for an expression; all columns are read in any case."""
            return _time(connection, f"SELECT sum({value}), {', '.join(map(_sum, names))} FROM t")

        def packed(count: int) -> float:
            columns = ", ".join(names[:count])
            return row(f"{_function(connection, count)}([{columns}]::FLOAT[{count}])")

        def by_column(count: int, native: NativeConnection) -> float:
            columns = ", ".join(names[:count])
            return row(f"{_native_function(native, count)}({columns})")

        nothing = row("c0")
        number = (row(_weighted(names)) - row(_weighted(names[:FEW]))) / (COLUMNS - FEW)
        few = packed(FEW)
        argument = (packed(COLUMNS) - few) / (COLUMNS - FEW)
        call = few - nothing - FEW * argument
        native = _native(connection)
        direct = dict[str, float]()
        if native is not None:
            few_of_them = by_column(FEW, native)
            column = (by_column(COLUMNS, native) - few_of_them) / (COLUMNS - FEW)
            begin = (few_of_them - nothing - FEW * column) * BATCH
            direct = {"column.number": max(column, 0.1), "column.call": max(begin, 100.0)}
            native.close()
        low, high = row(_full(names[:3])), row(_full(names[:5]))
        level = (high - row(_chain(names, 31))) / 3  # A row passes 5 levels there, 2 tests here.
        test = (high - low - 2 * level) / 24

        few_known, known = row(_code(SOME)), row(_code(MANY))
        planned = [_time(connection, f"SELECT {_code(n)} FROM (SELECT 'x' AS c)") for n in _SIZES]
        category_planned = (planned[1] - planned[0]) * ROWS / (MANY - SOME)
        looked_at = (known - few_known - category_planned * (MANY - SOME) / ROWS) / (MANY - SOME)
        argument_of_texts = f"[{DUCKDB.bytes('c')}]::BLOB[]"
        texts = row(f"{_lookup(connection)}([0]::FLOAT[1], {argument_of_texts})") - packed(1)
        in_sql = few_known - nothing - SOME * (looked_at + category_planned / ROWS)
    return {
        "sql.number": number,
        "sql.level": level,
        "sql.test": test,
        "udf.number": argument,
        "udf.call": call * BATCH,
        "sql.category": category_planned,
        "sql.lookup": looked_at,
        "udf.text": texts - in_sql,
        **direct,
    }


_SIZES = (SOME, MANY)


def _categories(count: int) -> list[str]:
    return [f"category number {k}" for k in range(count)]


def _code(count: int) -> str:
    """Write the code of a category among `count` as `backends.sql` does."""
    return DUCKDB.place_of("c", [DUCKDB.quote_string(name) for name in _categories(count)])


def _lookup(connection: duckdb.DuckDBPyConnection) -> str:
    """Create a function that looks up a category among many, and return its name."""
    b = Builder()
    names = np.array(_categories(MANY), object)
    code = b.op("encode", b.input("c", "string"), categories=names, missing=-1)
    program = b.build({"score": b.op("cast", code, dtype="float64")})
    spec = FunctionSpec(
        program.hash, (Part("score"),), "f32", "native", "traverse", "cpu", max_categories=1
    )
    create_function(connection, spec.name, make_engine_function(spec, program))
    return spec.name


def _sum(name: str) -> str:
    return f"sum({name})"


def _weighted(names: Sequence[str]) -> str:
    """Write a weighted sum of columns as `backends.sql` does."""
    terms = (f"CAST({name} AS DOUBLE) * '0.{k + 1}'::DOUBLE" for k, name in enumerate(names))
    return " + ".join(terms)


def _full(names: Sequence[str], leaf: int = 1) -> str:
    """Write a tree that tests one column per level, with a different value in each leaf.

    >>> _full(["a"])
    'CASE WHEN a <= 0.0 THEN 2.0 ELSE 3.0 END'
    """
    if not names:
        return f"{leaf}.0"
    left, right = _full(names[1:], 2 * leaf), _full(names[1:], 2 * leaf + 1)
    return f"CASE WHEN {names[0]} <= 0.0 THEN {left} ELSE {right} END"


def _chain(names: Sequence[str], tests: int) -> str:
    """Write a tree of `tests` tests, at each of which half of the remaining rows end.

    >>> _chain(["a"], 2)
    'CASE WHEN a <= 0.0 THEN 1.0 ELSE CASE WHEN a <= 0.5 THEN 2.0 ELSE 0.0 END END'
    """
    expression = "0.0"
    for k in reversed(range(tests)):
        bound, test = 1 - 0.5 ** (k // len(names)), names[k % len(names)]
        expression = f"CASE WHEN {test} <= {bound} THEN {k + 1}.0 ELSE {expression} END"
    return expression


def _function(connection: duckdb.DuckDBPyConnection, columns: int) -> str:
    """Create a function that adds columns, and return its name."""
    function = make_engine_function(*_sum_of(columns))
    create_function(connection, function.name, function)
    return function.name


def _sum_of(columns: int, by_column: bool = False) -> tuple[FunctionSpec, Program]:
    b = Builder()
    x = b.op("concat", *(b.input(f"x{k}", "float64") for k in range(columns)))
    ones = np.ones((columns, 1))
    program = b.build({"score": b.op("linear", x, weights=ones, bias=np.zeros(1))})
    spec = FunctionSpec(program.hash, (Part("score"),), "f32", "native", "traverse", "cpu")
    return replace(spec, by_column=by_column), program


def _native(connection: duckdb.DuckDBPyConnection) -> NativeConnection | None:
    try:
        return open_native_connection(connection)
    except Unavailable:
        return None


def _native_function(native: NativeConnection, columns: int) -> str:
    """Register `_function` as a native function, and return its name."""
    function = make_engine_function(*_sum_of(columns, by_column=True))
    batch = function.function
    assert isinstance(batch, BatchFunction)
    native_functions.register(native.pointer, function, lambda _: batch)
    return function.name


def _time(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    """Return nanoseconds per row, the best of several rounds."""
    best = math.inf
    for _ in range(ROUNDS + 1):
        start = time.perf_counter_ns()
        connection.execute(query).fetchall()
        best = min(best, time.perf_counter_ns() - start)
    return best / ROWS
