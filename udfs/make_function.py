"""From a FunctionSpec and its Program to the EngineFunction that scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from sqlml.backends.base import Filler, filler_of, text_filler_of
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import UnknownCategoryError
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import PACKED
from sqlml.planner.choice.choose import Choice
from sqlml.planner.program.function_names import FunctionSpec, Part, struct_of
from sqlml.planner.program.prepare import (
    ALL,
    Prepared,
    compile_core,
    fields_of,
    is_listed,
    prepare_parts,
)
from sqlml.planner.program.result_sql import first_positions
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, Explain
from sqlml.udfs.category_codes import Lookup
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.refused_texts import refused_text
from sqlml.udfs.repeated_rows import LastRows
from sqlml.udfs.unknown_category import made_of, named

_TYPES = {"f32": ("float32", "FLOAT"), "f64": ("float64", "DOUBLE")}


@dataclass(frozen=True, slots=True, eq=False)
class CompiledOnUse:
    """A core that is compiled when the first batch comes: opening a database stays quick."""

    program: Program
    choice: Choice

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Score a batch as `Compiled.run` does, compiled by the first one."""
        return compile_core(self.program, self.choice).run(inputs, outputs)

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        """What writes an output straight into memory that is given, if the backend has it."""
        return filler_of(compile_core(self.program, self.choice), output, columns, width)

    def text_filler(self, output: str) -> Any:
        """What writes an output of a matrix and columns of texts, if the backend has it."""
        return text_filler_of(compile_core(self.program, self.choice), output)


def engine_function(
    spec: FunctionSpec, program: Program, on_use: bool = False, dialect: Dialect = DUCKDB
) -> EngineFunction:
    """Compile what `spec` asks of `program`, now or (`on_use`) when it is first called.

    Queries in its messages are in the words of `dialect`.

    Raises:
        ConfigError: unknown output or backend.
        BackendError: the backend cannot run the Program.
    """
    prepared = prepare_parts(program, spec.parts, spec.layout, spec.constants, spec.lookup)
    core = prepared.split.core
    choice = Choice(spec.backend, spec.strategy, spec.device, "function name")
    compiled = CompiledOnUse(core, choice) if on_use else compile_core(core, choice)
    dtype, sql_type = _TYPES[spec.layout]
    part = spec.parts[0] if len(spec.parts) == 1 else Part(ALL)
    made = core.output_type(part.output)
    labels = program.labels
    integer = part.output == "label" and bool(labels)
    width = core.input_type(PACKED).width
    lookup = _lookup(prepared, dtype, on_use)
    groups: tuple[int, ...] = ()
    shifts: tuple[int, ...] = ()
    if len(labels) > 1 and part.output == "proba" and not program.one_probability:
        groups = tuple(map(len, labels))
    if len(labels) > 1 and integer:
        shifts = first_positions(labels)
    listed = is_listed(part, made.width)
    fields = fields_of(program, spec.parts, spec.by_column)
    result = ("INTEGER" if integer else "DOUBLE") + "[]" * (listed + bool(groups))
    batch = BatchFunction(
        compiled,
        PACKED,
        part.output,
        width,
        dtype,
        integer,
        made.width,
        listed,
        groups,
        shifts,
        _explainer(prepared, dialect),
        _last_rows(spec) if spec.again else None,
        core.nbytes,
        spec.rows,
        lookup,
        len(prepared.split.whole),
        spec.by_column,
        fields,
    )
    if spec.by_column:
        taken = (sql_type,) * batch.given + ("VARCHAR",) * batch.texts
    else:
        taken = (f"{sql_type}[{batch.given}]",) + ("BLOB[]",) * bool(batch.texts)
    if fields:
        result = struct_of(fields)
    return EngineFunction(spec.name, batch, taken, result, spec.once, spec.by_column)


def _last_rows(spec: FunctionSpec) -> LastRows:
    """What remembers rows for a function, volatile or not: WHERE calls one, SELECT the other."""
    own = LastRows()
    first = _remembered.setdefault(replace(spec, once=False).name, own)
    return own if first is own else first.twin()


_remembered: WeakValueDictionary[str, LastRows] = WeakValueDictionary()


def _lookup(prepared: Prepared, dtype: str, on_use: bool) -> Lookup | None:
    """What finds the codes that the engine does not."""
    split = prepared.split
    if split.lookup is None:
        return None
    how = Choice("native", "traverse", "cpu", "a table of categories")
    return Lookup(
        CompiledOnUse(split.lookup, how) if on_use else compile_core(split.lookup, how),
        len(split.texts),
        tuple(split.lookup.inputs),
        tuple(c.name for c in split.columns if c.found),
        tuple(k for k, c in enumerate(split.columns) if not c.found),
        tuple(k for k, c in enumerate(split.columns) if c.found),
        dtype,
    )


def _explainer(prepared: Prepared, dialect: Dialect) -> Explain:
    """Names the value of a refused category, or has the query that finds it."""
    split = prepared.split
    places = {c.name: k for k, c in enumerate(split.columns) if not c.encoded}
    codes = {c.name: k for k, c in enumerate(split.columns) if c.strict and not c.found}

    def explain(
        error: UnknownCategoryError, inputs: Mapping[str, Any], looked_up: Mapping[str, Texts]
    ) -> UnknownCategoryError:
        def read(feature: str, row: int) -> tuple[Any] | None:
            if feature in looked_up:
                texts = looked_up[feature]
                return (None if texts.missing[row] else texts.text(row),)
            if feature in places:
                return (inputs[PACKED][row, places[feature]],)
            if split.encoders is None:
                return None
            names = [name for name in made_of(split.encoders, feature) if name in codes]
            given = (refused_text(inputs[PACKED][row, codes[name]]) for name in names)
            return next((text for text in given if text is not None), None)

        return named(error, split.core, inputs, read, split.encoders, dialect)

    return explain
