"""From a FunctionSpec and its Program to the EngineFunction that scores."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from sqlml.backends.base import Filler, filler_of, text_filler_of
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import unknown_category
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import PACKED
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.function_names import FunctionSpec, Part, refused_text_names, struct_of
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
from sqlml.udfs.batch_function import BatchFunction, Explain, LastRows, Lookup
from sqlml.udfs.engine_function import EngineFunction

# Name the value that `require_known` refused: it sees only codes, all of them below 0.
#
# Only after the error: the codes are computed once more, by the reference, to find the row.


_LONGEST_QUERY = 2000
_LONGEST_VALUE = 60
"""Characters of a message."""

Read = Callable[[str, int], tuple[Any] | None]
"""Column and row -> the value there, in a tuple; None if it is unavailable."""


def named(
    error: UnknownCategoryError,
    core: Program,
    inputs: Mapping[str, Any],
    read: Read,
    encoders: Program | None = None,
    dialect: Dialect = DUCKDB,
) -> UnknownCategoryError:
    """`error` with the first value that is refused, or with the query that finds it.

    Args:
        core: the Program that raised it, over `inputs`.
        encoders: what turned strings into codes earlier, if the strings are no longer available.
        dialect: of the query.
    """
    if error.feature is None or error.step is None:
        return error
    try:
        row = _row(core, inputs, error.feature, error.step)
        value = None if row is None else read(error.feature, row)
    except SqlmlError:  # another check stands before this one, or a column holds odd values
        return error
    if value is not None:
        return unknown_category(error.feature, error.step, shown(value[0]))
    if encoders is None or error.feature not in encoders.inputs:
        return error
    refuses_null = _code_of_null(encoders, error.feature) < 0
    found = "a category (or NULL)" if refuses_null else "a category"
    query = _query(encoders, error.feature, refuses_null, dialect)
    return unknown_category(error.feature, error.step, found, query)


def shown(value: Any) -> str:
    """A value as a message has it: quoted and not too long; NULL for a missing one."""
    if value is None or value != value:
        return "NULL"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]}..{text[0]}"


def _row(core: Program, inputs: Mapping[str, Any], feature: str, step: str) -> int | None:
    """The first row of which a code is refused."""
    b = Builder()
    values: list[Value] = []
    codes: dict[str, Value] = {}
    for node in core.nodes:
        before = [values[i] for i in node.inputs]
        if node.op == "require_known" and node.attrs["feature"] == feature:
            if node.attrs["step"] == step:
                codes[str(len(codes))] = before[0]
        values.append(b.again(node, before))
    if not codes:
        return None
    made = reference.run(b.build(codes), inputs)
    refused = np.concatenate([c.reshape(len(c), -1) < 0 for c in made.values()], axis=1).any(axis=1)
    return int(refused.argmax()) if refused.any() else None


def made_of(encoders: Program, feature: str) -> list[str]:
    """The outputs of `encoders` that only `feature` makes."""
    reads: list[frozenset[str]] = []
    for node in encoders.nodes:
        own = {str(node.attrs["name"])} if node.op == "input" else set()
        reads.append(frozenset(own.union(*(reads[i] for i in node.inputs))))
    return [name for name, i in encoders.outputs.items() if reads[i] == {feature}]


def _codes_of(encoders: Program, feature: str) -> Program:
    b = Builder()
    values: list[Value] = []
    for node in encoders.nodes:
        values.append(b.again(node, [values[i] for i in node.inputs]))
    return b.build({n: values[encoders.outputs[n]] for n in made_of(encoders, feature)})


def _code_of_null(encoders: Program, feature: str) -> int:
    """The least code that a missing value has."""
    missing: Array = np.array([[None]], object)
    made = reference.run(_codes_of(encoders, feature), {feature: missing})
    return min((int(c.min()) for c in made.values()), default=0)


def _query(encoders: Program, feature: str, refuses_null: bool, dialect: Dialect) -> str:
    """SQL that finds what the encoders of `feature` do not know; "" where that is too long."""
    sets = [n.attrs["categories"] for n in _codes_of(encoders, feature).nodes if n.op == "encode"]
    known = {str(c) for c in sets[0]}.intersection(*sets) if sets else set()
    listed = ", ".join(map(dialect.quote_string, sorted(known)))
    if "\0" in listed or not known or len(listed) > _LONGEST_QUERY:
        return ""
    column = dialect.quote_name(feature)
    null = f" OR {column} IS NULL" if refuses_null else ""
    return f"SELECT DISTINCT {column} FROM .. WHERE {column} NOT IN ({listed}){null}"


# Texts that a model may refuse: which code stands for which, so that an error can name it.
#
# Where the engine's SQL makes codes of categories, the function that scores never sees a text. So
# a text that an encoder does not know is handed to a function of ours, which keeps it, and gives
# a code below -1 that stands for it. It raises nothing itself: the engine may ask it about rows
# that the query does not score. Rows of known categories never reach it.


_NULL = -2
"""The code of a missing text."""

_FIRST = -3
_CODES = 1 << 23
"""Codes before they begin again; a FLOAT holds all of them."""

_OF_A_BATCH = 256
"""Texts of one batch that are kept: an error is about the first that is refused."""

_KEPT = 1 << 14
_LONGEST = 1000
"""Characters of a text that are kept."""

_counter = itertools.count()
_texts: OrderedDict[int, str] = OrderedDict()
_lock = threading.Lock()


def _codes(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A code for each text (n,); -1 for those that are not kept."""
    first = texts.slice(0, _OF_A_BATCH).to_pylist()
    with _lock:
        codes = list(_kept(first))
    return pa.array(codes + [-1] * (len(texts) - len(first)), pa.int32())


def _kept(texts: list[str | None]) -> Iterator[int]:
    for text in texts:
        if text is None:
            yield _NULL
            continue
        code = _FIRST - next(_counter) % _CODES
        _texts.pop(code, None)
        _texts[code] = text[:_LONGEST]
        if len(_texts) > _KEPT:
            _texts.popitem(last=False)
        yield code


def refused_text(code: float) -> tuple[str | None] | None:
    """The text or NULL that a code stands for, in a tuple; None if unknown."""
    if code == _NULL:
        return (None,)
    with _lock:
        text = _texts.get(int(code))
    return None if text is None else (text,)


def refused_text_functions(sql: str) -> list[EngineFunction]:
    """The functions of this kind that a text calls; they may have several names.

    >>> [f.name for f in refused_text_functions("f([system.main.sqlml_refused_text(a)])")]
    ['sqlml_refused_text']
    """
    return [EngineFunction(n, _codes, ("VARCHAR",), "INTEGER") for n in refused_text_names(sql)]


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
