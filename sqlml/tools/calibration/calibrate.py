"""Measure the costs of this machine, which replace the default costs of `backends.costs`.

`backends.py` measures the costs of the backends. This module measures the costs of DuckDB. Every
cost is the slope between two queries over the same rows that differ in one thing: the number of
columns in a sum or in an argument, the depth of trees, or the number of categories.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import numpy as np

from sqlml.backends.costs import DEFAULT_COSTS, save_costs
from sqlml.backends.no_wait import wait_for_kernels
from sqlml.dialects import DUCKDB
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.long_work import long_work, show_stage
from sqlml.planner.program.cost import BATCH
from sqlml.planner.program.function_spec import FunctionSpec, ResultPart
from sqlml.tools.calibration.backends import measure_backends
from sqlml.udfs.batch_function import BatchFunction
from sqlml.udfs.duckdb.function_registry import create_function
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.duckdb.native.extension import NativeConnection, Unavailable, open_native_connection
from sqlml.udfs.make_function import make_engine_function

MAX_RATIO = 50.0
"""A cost is ignored as noise if it differs from the default cost by more than this factor."""


def calibrate() -> dict[str, float]:
    """Measure DuckDB and each installed backend, and save the costs for later choices.

    This takes about two seconds, plus the time to load libraries and to compile missing kernels.

    Returns:
        The measured costs in nanoseconds, keyed by name.

    Raises:
        OSError: the file for the costs cannot be written.
    """
    with wait_for_kernels(), long_work("measuring this machine"):
        show_stage("backends")
        costs = measure_backends()
        show_stage("DuckDB")
        costs |= _measure_engine()
    measured = {
        name: round(value, 6)
        for name, value in costs.items()
        if DEFAULT_COSTS[name] / MAX_RATIO < value < DEFAULT_COSTS[name] * MAX_RATIO
    }
    save_costs(measured)
    return measured


ROWS, COLUMNS, FEW_COLUMNS = 61_440, 16, 4
FEW_CATEGORIES, CATEGORIES = 16, 256
ROUNDS = 5


def _measure_engine() -> dict[str, float]:
    names = [f"c{k}" for k in range(COLUMNS)]
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        columns_sql = ", ".join(f"(random() * 2 - 1)::FLOAT AS {name}" for name in names)
        category_sql = f"'category number ' || (random() * {CATEGORIES})::INTEGER AS c"
        connection.execute(
            f"CREATE TABLE t AS SELECT {columns_sql}, {category_sql} FROM range({ROWS})"
        )

        sums_sql = ", ".join(f"sum({name})" for name in names)

        def measure(expression: str) -> float:
            """Return the time, in ns per row, of summing a SQL expression and all columns."""
            return _time_query(connection, f"SELECT sum({expression}), {sums_sql} FROM t")

        def measure_packed(count: int) -> float:
            columns = ", ".join(names[:count])
            return measure(f"{_create_sum(connection, count)}([{columns}]::FLOAT[{count}])")

        baseline = measure("c0")
        num_added = COLUMNS - FEW_COLUMNS
        few_sum_time, sum_time = (
            measure(_build_weighted_sum(names[:n])) for n in (FEW_COLUMNS, COLUMNS)
        )
        few_columns_time = measure_packed(FEW_COLUMNS)
        argument_cost = (measure_packed(COLUMNS) - few_columns_time) / num_added
        low_tree_time, tree_time = (measure(_build_full_tree(names[:n])) for n in (3, 5))
        # Both have 31 tests. A row passes 5 levels of the full tree, and 2 tests of the chain.
        level_cost = (tree_time - measure(_build_chain(names, 31))) / 3

        num_categories = CATEGORIES - FEW_CATEGORIES
        texts = [DUCKDB.quote_string(name) for name in _name_categories(CATEGORIES)]
        expressions = [DUCKDB.place_of("c", texts[:n]) for n in (FEW_CATEGORIES, CATEGORIES)]
        few_codes_time, codes_time = map(measure, expressions)
        queries = [f"SELECT {expression} FROM (SELECT 'x' AS c)" for expression in expressions]
        few_plan_time, plan_time = (_time_query(connection, query) * ROWS for query in queries)
        planning_cost = (plan_time - few_plan_time) / num_categories
        lookup_cost = (codes_time - few_codes_time) / num_categories - planning_cost / ROWS
        text_sql = f"{_create_lookup(connection)}([0]::FLOAT[1], [{DUCKDB.bytes('c')}]::BLOB[])"
        sql_time = few_codes_time - baseline - FEW_CATEGORIES * (lookup_cost + planning_cost / ROWS)
        return {
            "sql.operation": (sum_time - few_sum_time) / (2 * num_added),
            "sql.level": level_cost,
            "sql.test": (tree_time - low_tree_time - 2 * level_cost) / 24,
            "udf.number": argument_cost,
            "udf.call": (few_columns_time - baseline - FEW_COLUMNS * argument_cost) * BATCH,
            "sql.category": planning_cost,
            "sql.lookup": lookup_cost,
            "udf.text": measure(text_sql) - measure_packed(1) - sql_time,
            **_measure_native_calls(connection, measure, names, baseline),
        }


def _measure_native_calls(
    connection: duckdb.DuckDBPyConnection,
    measure: Callable[[str], float],
    names: Sequence[str],
    baseline: float,
) -> dict[str, float]:
    try:
        native = open_native_connection(connection)
    except Unavailable:
        return {}
    few_columns_time, columns_time = (
        measure(f"{_register_sum(native, count)}({', '.join(names[:count])})")
        for count in (FEW_COLUMNS, COLUMNS)
    )
    native.close()
    number_cost = (columns_time - few_columns_time) / (COLUMNS - FEW_COLUMNS)
    call_cost = (few_columns_time - baseline - FEW_COLUMNS * number_cost) * BATCH
    return {"column.number": max(number_cost, 0.1), "column.call": max(call_cost, 100.0)}


def _name_categories(count: int) -> list[str]:
    return [f"category number {k}" for k in range(count)]


def _create_lookup(connection: duckdb.DuckDBPyConnection) -> str:
    builder = Builder()
    names = np.array(_name_categories(CATEGORIES), object)
    code = builder.op("encode", builder.input("c", "string"), categories=names, missing=-1)
    program = builder.build({"score": builder.op("cast", code, dtype="float64")})
    spec = FunctionSpec(program.hash, (ResultPart("score"),), "f32", "native", "traverse", "cpu")
    spec = replace(spec, max_categories=1)
    create_function(connection, spec.name, make_engine_function(spec, program))
    return spec.name


def _build_weighted_sum(names: Sequence[str]) -> str:
    terms = (f"CAST({name} AS DOUBLE) * '0.{k + 1}'::DOUBLE" for k, name in enumerate(names))
    return " + ".join(terms)


def _build_full_tree(names: Sequence[str], leaf: int = 1) -> str:
    """Build SQL for a full tree with distinct leaves that tests one column per level.

    >>> _build_full_tree(["a"])
    'CASE WHEN a <= 0.0 THEN 2.0 ELSE 3.0 END'
    """
    if not names:
        return f"{leaf}.0"
    left, right = (_build_full_tree(names[1:], 2 * leaf + branch) for branch in (0, 1))
    return f"CASE WHEN {names[0]} <= 0.0 THEN {left} ELSE {right} END"


def _build_chain(names: Sequence[str], tests: int) -> str:
    """Build SQL for a chain of tests. Each test matches half of the remaining rows.

    >>> _build_chain(["a"], 2)
    'CASE WHEN a <= 0.0 THEN 1.0 ELSE CASE WHEN a <= 0.5 THEN 2.0 ELSE 0.0 END END'
    """
    expression = "0.0"
    for k in reversed(range(tests)):
        bound, column = 1 - 0.5 ** (k // len(names)), names[k % len(names)]
        expression = f"CASE WHEN {column} <= {bound} THEN {k + 1}.0 ELSE {expression} END"
    return expression


def _create_sum(connection: duckdb.DuckDBPyConnection, num_columns: int) -> str:
    function = make_engine_function(*_build_sum(num_columns))
    create_function(connection, function.name, function)
    return function.name


def _build_sum(num_columns: int, by_column: bool = False) -> tuple[FunctionSpec, Program]:
    builder = Builder()
    x = builder.op("concat", *(builder.input(f"x{k}", "float64") for k in range(num_columns)))
    ones = np.ones((num_columns, 1))
    program = builder.build({"score": builder.op("linear", x, weights=ones, bias=np.zeros(1))})
    spec = FunctionSpec(program.hash, (ResultPart("score"),), "f32", "native", "traverse", "cpu")
    return replace(spec, by_column=by_column), program


def _register_sum(native: NativeConnection, num_columns: int) -> str:
    function = make_engine_function(*_build_sum(num_columns, by_column=True))
    batch = function.function
    assert isinstance(batch, BatchFunction)
    native_functions.register(native.pointer, function, lambda _: batch)
    return function.name


def _time_query(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    """Return the best time of a query in several rounds, in nanoseconds per row."""
    best_time = math.inf
    for _ in range(ROUNDS + 1):
        start_time = time.perf_counter_ns()
        connection.execute(query).fetchall()
        best_time = min(best_time, time.perf_counter_ns() - start_time)
    return best_time / ROWS
