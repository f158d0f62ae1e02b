"""The interface between the planner and a SQL engine, and the functions that an engine registers.

An engine is a class with the methods of `Engine`. An engine knows nothing about models. mypy checks
the class where a session calls `register_functions`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute

from sqlml.types import Array
from sqlml.udfs.batch_function import join_chunks, to_arrow

if TYPE_CHECKING:
    from sqlml.catalog.model import Model
    from sqlml.ir.program import Program
    from sqlml.planner.binding.context import Context
    from sqlml.planner.plan.plan import Plan
    from sqlml.planner.program.function_spec import FunctionSpec, NamedFunction
    from sqlml.udfs.metering import FunctionCopy


class Engine(Protocol):
    """One connection of a SQL engine."""

    def make_context(self, model: Callable[[str], Model]) -> Context:
        """Return the planner's interface to the engine. `model` resolves model references."""

    def find_registered(self, name: str) -> str | None:
        """Return the name to call for the permanent function `name`, or None if missing."""

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Register a function for `spec` and return the name to call, or raise BackendError."""

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Register a function that scores each row with the model named in it; return its name."""


def register_functions(
    engine: Engine, plan: Plan, find_program: Callable[[str], Program]
) -> Mapping[str, str]:
    """Register the functions of a plan; return the registered name of each function."""
    sql_names: dict[str, str] = {}
    for name, spec in plan.specs.items():
        # If the SQL does not call a function, SQL expressions replace the function.
        if f"{name}(" in plan.sql:
            sql_name = engine.find_registered(name)
            sql_names[name] = sql_name or engine.register(spec, find_program(spec.program_hash))
    for function in plan.functions_of_models:
        sql_name = engine.find_registered(function.name)
        sql_names[function.name] = sql_name or engine.register_named(function, find_program)
    return sql_names


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register, with a name, a batch function, and SQL types."""

    name: str
    # Scores a batch, or None if the function is built from `name` when the first batch arrives.
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False  # The engine must evaluate each call exactly where the query writes it.
    # Takes one argument per column, so native code may run the function without Python.
    by_column: bool = False
    # Calls the function whose name is the first argument. Native code may run the function.
    named: bool = False
    metered: FunctionCopy | None = None  # Counts the batches of native code.
    # Scores each row with the model named in the row. Native code may run the function.
    models: NamedFunction | None = None

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.argument_types, self.result_type)


def add_signature(argument_count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` with a signature of `argument_count` columns, since engines inspect it."""

    def call(*columns: Any) -> Any:
        return function(*columns)

    parameter_kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"column{k}", parameter_kind) for k in range(argument_count)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def score_by_name(
    names: pa.Array | pa.ChunkedArray,
    result_type: pa.DataType,
    score_group: Callable[[str, Array], pa.Array | None],
) -> pa.Array:
    """Score the rows of a batch, grouped by name, and return the scores in row order.

    `score_group` maps a name and the positions (m,) of the name's rows to scores (m,), or to None
    if all these scores are NULL. If the name of a row is NULL, the score is NULL.
    """
    score_arrays, index_arrays = [], [np.empty(0, np.int64)]
    for name, indexes in _group_rows(names):
        scores = None if name is None else score_group(name, indexes)
        if scores is not None and len(indexes) == len(names):
            return scores
        score_arrays.append(pa.nulls(len(indexes), result_type) if scores is None else scores)
        index_arrays.append(indexes)
    row_order = np.concatenate(index_arrays)
    positions_in_order = np.empty_like(row_order)
    positions_in_order[row_order] = np.arange(len(row_order))
    scores_by_group = pa.concat_arrays(score_arrays) if score_arrays else pa.nulls(0, result_type)
    return scores_by_group.take(to_arrow(positions_in_order, pa.int64()))


def _group_rows(names: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str | None, Array]]:
    names = join_chunks(names)
    encoded = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    group_starts = np.flatnonzero(np.diff(codes[order])) + 1
    for indexes in np.split(order, group_starts):
        code = codes[indexes[0]]
        yield (None if code < 0 else encoded.dictionary[int(code)].as_py()), indexes
