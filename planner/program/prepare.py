"""Make a Program ready to run: choose its output, run the passes, split, lower, compile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.backends.base import BACKENDS, Compiled, load
from sqlml.bounded_cache import of_programs
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError, ConfigError
from sqlml.explaining.explained import BY_CLASS, OWN, holding
from sqlml.ir.builder import Builder, Value, copy
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.passes.fold_arguments import fold_arguments
from sqlml.passes.lower import lower
from sqlml.passes.order import TENSOR_PASSES, only, run
from sqlml.passes.split import Layout, Split, split
from sqlml.planner.choice.choose import Choice
from sqlml.planner.program.function_names import Constants, Field, Output, Part, struct_of
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One output of a model after the model passes: what is read, and how it is split."""

    program: Program
    split: Split


def prepare(
    program: Program,
    output: str,
    column: int | None = None,
    layout: Layout = "f64",
    lookup: int | None = None,
) -> Prepared:
    """The part of `program` that computes `output` (only what its `column` is, if given).

    Encoders of more than `lookup` categories are left to the function (`passes.split`).

    Raises:
        ConfigError: unknown output or column.
    """
    _check(program, output, column)
    return _prepared(program, output, column, layout, lookup)


def prepare_parts(
    program: Program,
    parts: tuple[Part, ...],
    layout: Layout = "f64",
    constants: Constants = (),
    lookup: int | None = None,
) -> Prepared:
    """The part of `program` that computes several parts of its outputs, side by side in an output
    `ALL`.

    A single part keeps its own name. `constants` are values of inputs that become part of
    it.

    Raises:
        ConfigError: unknown output or column.
    """
    if constants:
        program = _folded(program, constants)
    if len(parts) == 1:
        return prepare(program, parts[0].output, parts[0].column, layout, lookup)
    for part in parts:
        _check(program, part.output, part.column)
    return _prepared(_side_by_side(program, parts), ALL, None, layout, lookup)


def _check(program: Program, output: str, column: int | None) -> None:
    """Raise ConfigError unless a model has an output, and that the column."""
    made = holding(program, output)
    there = output in made.outputs
    if there and column is not None:
        there = column < (
            len(program.labels[0]) if _by_class(made, output) else _width(made, output)
        )
    if not there:
        raise ConfigError(f"unknown output {output!r} or column {column} of the model")


def _by_class(program: Program, output: str) -> bool:
    """Whether a column of an output is a block of contributions."""
    return output == OWN and BY_CLASS in program.outputs


def _width(program: Program, output: str) -> int:
    return program.output_type(output).width


def width_of(program: Program, part: Part) -> int:
    """How many numbers a part has."""
    made = holding(program, part.output)
    one = part.column is not None and not _by_class(made, part.output)
    return 1 if one else _width(made, part.output)


def _taken(program: Program, output: str, column: int) -> tuple[str, Array]:
    """The output and the columns of it that one `column` of an output means."""
    if not _by_class(program, output):
        return output, np.array([column], np.int64)
    block = _width(program, output)
    return BY_CLASS, np.arange(column * block, (column + 1) * block)


def is_listed(part: Part, width: int) -> bool:
    """Whether a part of so many numbers is a list: probabilities are, also those of one class."""
    return width > 1 or (part.output == "proba" and part.column is None)


def fields_of(program: Program, parts: tuple[Part, ...], by_column: bool) -> tuple[Field, ...]:
    """The fields of the struct that a function of several parts returns; none where it is a list.

    A field costs the engine nothing, an element of a list 3 ns a row; but Arrow hands a list over
    faster, and a struct has no place for an output of several numbers.
    """
    listed = any(is_listed(part, width_of(program, part)) for part in parts)
    if len(parts) == 1 or listed or not by_column:
        return ()
    whole = bool(program.labels)
    return tuple(
        (str(part), "INTEGER" if whole and part.output == "label" else "DOUBLE") for part in parts
    )


@of_programs
def _folded(program: Program, constants: Constants) -> Program:
    names = list(program.inputs)
    if constants[-1][0] >= len(names):
        raise ConfigError(
            "the model has no such input; the function's name belongs to another model"
        )
    values = {names[place]: value for place, value in constants}
    return fold_arguments(program, values, sums=False)


ALL: Output = "transform"
"""The output of several parts: numbers side by side, as transformers make them."""


@of_programs
def _side_by_side(program: Program, parts: tuple[Part, ...]) -> Program:
    b = Builder()
    values: list[Value] = []
    for asked in {part.output for part in parts}:
        program = holding(program, asked)
    for node in program.nodes:
        values.append(copy(b, node, [values[i] for i in node.inputs]))
    made = []
    for part in parts:
        value = values[program.outputs[part.output]]
        if part.column is not None:
            output, columns = _taken(program, part.output, part.column)
            value = b.op("select", values[program.outputs[output]], indices=columns)
        kind = value.type.dtype
        made.append(value if kind == "float64" else b.op("cast", value, dtype="float64"))
    return b.build({ALL: b.op("concat", *made)})


def chosen(program: Program, parts: tuple[Part, ...]) -> Program:
    """`program` with only these parts, before all passes: where `prepare_parts` starts."""
    if len(parts) == 1:
        return _chosen(program, parts[0].output, parts[0].column)
    return _chosen(_side_by_side(program, parts), ALL, None)


def _chosen(program: Program, output: str, column: int | None) -> Program:
    made = holding(program, output)
    if column is None:
        return only(made, [output])
    source, columns = _taken(made, output, column)
    return _pick(only(made, [source]), source, columns, output)


def _prepared(
    program: Program, output: str, column: int | None, layout: Layout, lookup: int | None
) -> Prepared:
    try:
        return _split(_part(program, output, column), layout, lookup)
    except RecursionError:
        raise BackendError(_TOO_DEEP) from None


@of_programs
def _part(program: Program, output: str, column: int | None) -> Program:
    """The part of a model that is wanted, after the model passes: the same for each layout."""
    return run(_chosen(program, output, column))


@of_programs
def _split(part: Program, layout: Layout, lookup: int | None) -> Prepared:
    return Prepared(part, split(part, layout, lookup))


def _pick(program: Program, source: str, columns: Array, output: str) -> Program:
    """Some columns of an output as another."""
    last = program.outputs[source]
    b = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(copy(b, node, [values[i] for i in node.inputs]))
    picked = b.op("select", values[last], indices=columns)
    return b.build({output: picked})


def compile_core(core: Program, choice: Choice) -> Compiled:
    """Lower `core` as the choice needs it, and compile it.

    Raises:
        BackendError: the backend cannot run it; the message names what can.
    """
    return _compile(core, choice.backend, choice.strategy, choice.device)


_TOO_DEEP = "the steps of this model are nested too deeply; fit it with fewer stages"


@of_programs
def _compile(core: Program, backend: str, strategy: str, device: str) -> Compiled:
    if backend not in BACKENDS:
        raise ConfigError(f"unknown backend {backend!r}; backends: {', '.join(BACKENDS)}")
    try:
        lowered = core
        if BACKENDS[backend].level == "tensor":
            lowered = run(lower(core, strategy), passes=TENSOR_PASSES)
        engine = load(backend)
        reason = engine.supports(lowered)
        if reason is not None:
            raise BackendError(
                f"backend {backend!r} cannot run this model ({reason}); use backend 'auto'"
            )
        return engine.compile(lowered, device=device, strategy=strategy)
    except RecursionError:
        raise BackendError(_TOO_DEEP) from None


# `Shared`: the parts that calls of one model on the same row ask of one function together.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """All `parts` that calls of one model on the same row ask for, and where they are evaluated.

    Attributes:
        calls: how many they are.
        again: rows come again in another clause, so that the function is to remember some.
        in_from: FROM makes the parts, as a column that all clauses read.
        once: the engine is to evaluate the function where it is written, and for no other rows.
    """

    parts: tuple[Part, ...]
    calls: int = 1
    again: bool = False
    in_from: bool = False
    once: bool = False

    def apart(self, part: Part) -> Shared:
        """What is left for one call that shares nothing."""
        return Shared(parts=(part,), once=self.once)

    def type(self, program: Program, by_column: bool) -> str:
        """The SQL type of the function of all parts."""
        part = self.parts[0]
        if fields := fields_of(program, self.parts, by_column):
            return struct_of(fields)
        if len(self.parts) > 1:
            return "DOUBLE[]"
        number = "INTEGER" if part.output == "label" and program.labels else "DOUBLE"
        return number + "[]" * is_listed(part, width_of(program, part))

    def element(
        self, call: str, program: Program, part: Part, by_column: bool, dialect: Dialect = DUCKDB
    ) -> str:
        """What `part` is of the result of `call`, the function of all parts."""
        if len(self.parts) == 1:
            return call
        if fields_of(program, self.parts, by_column):
            return dialect.field(call, str(part))
        first = 1 + sum(width_of(program, p) for p in self.parts[: self.parts.index(part)])
        width = width_of(program, part)
        if is_listed(part, width):
            return dialect.part(call, first, first + width - 1)
        element = dialect.at(call, first)
        whole = part.output == "label" and bool(program.labels)
        return f"CAST({element} AS INTEGER)" if whole else element


# `refuses_rows`: whether a model may raise an error for some row.


_REQUIREMENTS = frozenset({"require", "require_finite", "require_finite_stored", "require_known"})


@of_programs
def refuses_rows(program: Program) -> bool:
    """Whether some row may be an error to the model and not a value."""
    return any(n.op in _REQUIREMENTS or OPS[n.op].group == "opaque" for n in program.nodes)
