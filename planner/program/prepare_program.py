"""Prepare a Program to run: select outputs, run the passes, and split, lower and compile it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import BACKENDS, CompiledProgram, load_backend
from sqlml.bounded_cache import cache_by_program
from sqlml.catalog.small_models import COVERAGE
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError, ConfigError
from sqlml.explaining.explained import BY_CLASS, OWN, ensure_output
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.passes import TENSOR_PASSES, prepare_for_kernels, run, select_outputs
from sqlml.passes.fold_arguments import fold_arguments, fold_input
from sqlml.passes.lower import lower
from sqlml.passes.prepare_partition import prepare_partition
from sqlml.passes.split import Layout, SplitProgram, split
from sqlml.passes.tree_stages import LEAF, keep_stages
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.function_spec import (
    TREES,
    Constants,
    Field,
    Output,
    ResultPart,
    format_struct,
)
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class PreparedProgram:
    """A part of a model after the model passes, and the split into SQL and a function."""

    program: Program
    split: SplitProgram


def prepare_output(
    program: Program,
    output: str,
    column: int | None = None,
    layout: Layout = "f64",
    max_categories: int | None = None,
) -> PreparedProgram:
    """Prepare the part of `program` that computes `output`, or one `column` of the output.

    Encoders with at most `max_categories` categories become SQL. None means no limit.
    """
    _require_output(program, output, column)
    return _prepare_output(program, output, column, layout, max_categories)


def prepare_parts(
    program: Program,
    parts: tuple[ResultPart, ...],
    layout: Layout = "f64",
    constants: Constants = (),
    max_categories: int | None = None,
) -> PreparedProgram:
    """Prepare the part of `program` that computes `parts` side by side in the output `ALL_PARTS`.

    If there is only one part, the output has the name of that part's output. Inputs in `constants`
    become constants of the Program. Raises ConfigError for an unknown output or column.
    """
    if constants:
        program = fold_constants(program, constants)
    if len(parts) == 1:
        return prepare_output(program, parts[0].output, parts[0].column, layout, max_categories)
    for part in parts:
        _require_output(program, part.output, part.column)
    return _prepare_output(
        _concatenate_parts(program, parts), ALL_PARTS, None, layout, max_categories
    )


def _require_output(program: Program, output: str, column: int | None) -> None:
    explained = ensure_output(program, output)
    exists = output in explained.outputs
    if exists and column is not None:
        has_blocks = _has_class_blocks(explained, output)
        width = explained.output_type(output).width
        exists = column < (len(program.labels[0]) if has_blocks else width)
    if not exists:
        raise ConfigError(f"unknown output {output!r} or column {column} of the model")


def _has_class_blocks(program: Program, output: str) -> bool:
    """Return whether each "column" of `output` stands for all contributions to one class."""
    return output == OWN and BY_CLASS in program.outputs


def find_part_width(program: Program, part: ResultPart) -> int:
    explained = ensure_output(program, part.output)
    is_single = part.column is not None and not _has_class_blocks(explained, part.output)
    return 1 if is_single else explained.output_type(part.output).width


def _locate_column(program: Program, output: str, column: int) -> tuple[str, Array]:
    """Return the output that holds `column`, and the column indices to select from the output."""
    if not _has_class_blocks(program, output):
        return output, np.array([column], np.int64)
    block_width = program.output_type(output).width
    return BY_CLASS, np.arange(column * block_width, (column + 1) * block_width)


def is_list(part: ResultPart, width: int) -> bool:
    """Return whether a part of `width` columns is a list in SQL, as all probabilities are."""
    return width > 1 or (part.output in ("proba", LEAF) and part.column is None)


def list_result_fields(
    program: Program, parts: tuple[ResultPart, ...], by_column: bool
) -> tuple[Field, ...]:
    """Return the fields of the struct that a function returns, or () if it returns no struct.

    Reading a field costs the engine nothing, while reading a list element takes 3 ns per row.
    However, Arrow passes lists faster, and a field cannot hold a part of several numbers.
    """
    has_list = any(is_list(part, find_part_width(program, part)) for part in parts)
    if len(parts) == 1 or has_list or not by_column:
        return ()
    return tuple((str(part), _find_number_type(program, part)) for part in parts)


def _find_number_type(program: Program, part: ResultPart) -> str:
    return "INTEGER" if part.output == "label" and program.labels else "DOUBLE"


@cache_by_program
def fold_constants(program: Program, constants: Constants) -> Program:
    """Return a Program for rows in which inputs have the values of `constants`."""
    names = [*program.inputs, TREES]
    if constants[-1][0] >= len(names):
        message = "the model has no such input; the function's name belongs to another model"
        raise ConfigError(message)
    arguments = {names[k]: value for k, value in constants}
    trees, coverage = arguments.pop(TREES, None), arguments.pop(COVERAGE, None)
    if isinstance(trees, float):
        program = keep_stages(program, int(trees))
    if isinstance(coverage, float):
        program = fold_input(program, COVERAGE, coverage)
    return fold_arguments(program, arguments, sums=False) if arguments else program


ALL_PARTS: Output = "transform"  # The output that holds several parts side by side.


@cache_by_program
def _concatenate_parts(program: Program, parts: tuple[ResultPart, ...]) -> Program:
    for output_name in {part.output for part in parts}:
        program = ensure_output(program, output_name)
    builder, values = _copy_retyped_nodes(program)
    columns_of_parts = []
    for part in parts:
        value = values[program.outputs[part.output]]
        if part.column is not None:
            output, columns = _locate_column(program, part.output, part.column)
            value = builder.op("select", values[program.outputs[output]], indices=columns)
        is_number = value.type.dtype == "float64"
        columns_of_parts.append(value if is_number else builder.op("cast", value, dtype="float64"))
    return builder.build({ALL_PARTS: builder.op("concat", *columns_of_parts)})


def select_parts(program: Program, parts: tuple[ResultPart, ...]) -> Program:
    if len(parts) == 1:
        return _select_output(program, parts[0].output, parts[0].column)
    return _select_output(_concatenate_parts(program, parts), ALL_PARTS, None)


def _select_output(program: Program, output: str, column: int | None) -> Program:
    explained = ensure_output(program, output)
    if column is None:
        return select_outputs(explained, [output])
    source, columns = _locate_column(explained, output, column)
    return _select_columns(select_outputs(explained, [source]), source, columns, output)


def _prepare_output(
    program: Program, output: str, column: int | None, layout: Layout, max_categories: int | None
) -> PreparedProgram:
    try:
        return _split_program(_run_model_passes(program, output, column), layout, max_categories)
    except RecursionError:
        raise BackendError(_TOO_DEEP_MESSAGE) from None


@cache_by_program
def _run_model_passes(program: Program, output: str, column: int | None) -> Program:
    return run(_select_output(program, output, column))


@cache_by_program
def _split_program(program: Program, layout: Layout, max_categories: int | None) -> PreparedProgram:
    return PreparedProgram(program, split(program, layout, max_categories))


def _select_columns(program: Program, source: str, columns: Array, output: str) -> Program:
    builder, values = _copy_retyped_nodes(program)
    selected = builder.op("select", values[program.outputs[source]], indices=columns)
    return builder.build({output: selected})


def _copy_retyped_nodes(program: Program) -> tuple[Builder, list[Value]]:
    builder = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(copy_retyped(builder, node, [values[i] for i in node.inputs]))
    return builder, values


def compile_core(core: Program, choice: Choice) -> CompiledProgram:
    return _compile(core, choice.backend, choice.strategy, choice.device)


_TOO_DEEP_MESSAGE = "the steps of this model are nested too deeply; fit it with fewer stages"


@cache_by_program
def _compile(core: Program, backend: str, strategy: str, device: str) -> CompiledProgram:
    if backend not in BACKENDS:
        raise ConfigError(f"unknown backend {backend!r}; backends: {', '.join(BACKENDS)}")
    try:
        if BACKENDS[backend].level == "tensor":
            core = run(lower(core, strategy), passes=TENSOR_PASSES)
        elif backend == "native":
            core = prepare_for_kernels(core)
        loaded_backend: Any = load_backend(backend)
        reason = loaded_backend.supports(core)
        if reason is not None:
            raise BackendError(
                f"backend {backend!r} cannot run this model ({reason}); use backend 'auto'"
            )
        options = {"prepare": prepare_partition} if backend == "native" else {}
        compiled: CompiledProgram = loaded_backend.compile(
            core, device=device, strategy=strategy, **options
        )
        return compiled
    except RecursionError:
        raise BackendError(_TOO_DEEP_MESSAGE) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The parts that one function computes for several calls of a model on the same row.

    Attributes:
        again: the same rows recur in another clause, so the function remembers results.
        in_from: the parts are a column of FROM, which all clauses read.
        once: the engine must evaluate the function only at its position, for no other rows.
        by_partition: FROM sorts the rows by the partitions of the model.
    """

    parts: tuple[ResultPart, ...]
    calls: int = 1
    again: bool = False
    in_from: bool = False
    once: bool = False
    by_partition: bool = False

    def find_type(self, program: Program, by_column: bool) -> str:
        """Return the SQL type of the function's result: a struct, a list or a single number."""
        if fields := list_result_fields(program, self.parts, by_column):
            return format_struct(fields)
        if len(self.parts) > 1:
            return "DOUBLE[]"
        (part,) = self.parts
        width = find_part_width(program, part)
        return _find_number_type(program, part) + "[]" * is_list(part, width)

    def build_part_sql(
        self,
        call_sql: str,
        program: Program,
        part: ResultPart,
        by_column: bool,
        dialect: Dialect = DUCKDB,
    ) -> str:
        """Return the SQL that reads `part` from `call_sql`, a call that computes all parts."""
        if len(self.parts) == 1:
            return call_sql
        if list_result_fields(program, self.parts, by_column):
            return dialect.field(call_sql, str(part))
        parts_before = self.parts[: self.parts.index(part)]
        position = 1 + sum(find_part_width(program, p) for p in parts_before)
        width = find_part_width(program, part)
        if is_list(part, width):
            return dialect.part(call_sql, position, position + width - 1)
        element = dialect.at(call_sql, position)
        number_type = _find_number_type(program, part)
        return element if number_type == "DOUBLE" else f"CAST({element} AS {number_type})"


_REQUIREMENTS = frozenset({"require", "require_finite", "require_finite_stored", "require_known"})


@cache_by_program
def can_reject_rows(program: Program) -> bool:
    return any(n.op in _REQUIREMENTS or OPS[n.op].group == "opaque" for n in program.nodes)
