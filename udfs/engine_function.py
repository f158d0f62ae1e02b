"""The interface between the planner and a SQL engine, and the functions that an engine registers.

An engine is a class with the methods of `Engine`. It knows nothing about models; mypy checks it
where a session calls `register_functions`.
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
        """Return the planner's view of the engine, with `model` to resolve model references."""
        ...

    def find_registered(self, name: str) -> str | None:
        """Return the name by which to call the permanent function `name`; None if it is missing."""
        ...

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Register a function for `spec`; return its name, or raise BackendError."""
        ...

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Register a function whose rows name the models that score them; return its name."""
        ...


def register_functions(
    engine: Engine, plan: Plan, program: Callable[[str], Program]
) -> Mapping[str, str]:
    """Register the functions of a plan; return the registered name of each function."""
    names: dict[str, str] = {}
    for name, spec in plan.specs.items():
        # A function that the SQL does not call is not needed: SQL expressions compute its rows.
        if f"{name}(" in plan.sql:
            registered = engine.find_registered(name)
            names[name] = registered or engine.register(spec, program(spec.program_hash))
    for function in plan.functions_of_models:
        registered = engine.find_registered(function.name)
        names[function.name] = registered or engine.register_named(function, program)
    return names


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its SQL types."""

    name: str
    # Scores a batch. None if the function is built from its name when the first batch arrives.
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False  # The engine must evaluate each call exactly where the query writes it.
    # Takes one argument per column, so that native code may run it without Python.
    by_column: bool = False
    # Calls the function whose name is the first argument; native code may run it.
    named: bool = False
    metered: FunctionCopy | None = None  # Counts the batches of native code.
    # Scores each row with the model that the row names; native code may run it.
    models: NamedFunction | None = None

    @property
    def types(self) -> tuple[str, ...]:
        return (*self.argument_types, self.result_type)


def add_signature(argument_count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Give `function` a signature with `argument_count` columns, since engines inspect it."""

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
    """Score the rows of a batch group by group, one group per name; return scores in row order.

    `score_group` maps a name and the positions (m,) of its rows to an array (m,), or to None if the
    scores of these rows are NULL. A row whose name is NULL has the score NULL.
    """
    results, positions = [], [np.empty(0, np.int64)]
    for name, rows in _group_rows(names):
        scores = None if name is None else score_group(name, rows)
        if scores is not None and len(rows) == len(names):
            return scores
        results.append(pa.nulls(len(rows), result_type) if scores is None else scores)
        positions.append(rows)
    order = np.concatenate(positions)
    positions_in_order = np.empty_like(order)
    positions_in_order[order] = np.arange(len(order))
    scores_by_group = pa.concat_arrays(results) if results else pa.nulls(0, result_type)
    return scores_by_group.take(to_arrow(positions_in_order, pa.int64()))


def _group_rows(names: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str | None, Array]]:
    """Yield each distinct name and the ascending positions of its rows."""
    names = join_chunks(names)
    encoded = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, ends):
        code = codes[rows[0]]
        yield (None if code < 0 else encoded.dictionary[int(code)].as_py()), rows
