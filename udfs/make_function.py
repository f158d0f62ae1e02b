"""Build a scoring function from a FunctionSpec and its Program.

An error about an unknown category quotes the value. The core Program sees only codes. So after an
error, the reference backend runs the core again to find the row (`name_refused_value`). If SQL
encodes the categories, an unknown string is passed to a helper function
(`find_refused_text_functions`), which remembers the string and returns a code below -1. The helper
function raises no error, since the engine may call it for rows that the query does not score.
"""

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

from sqlml.backends.base import Filler, find_filler, find_text_filler
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import make_unknown_category_error
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import PACKED
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.function_spec import (
    FunctionSpec,
    ResultPart,
    find_refused_text_names,
    format_struct,
)
from sqlml.planner.program.prepare_program import (
    ALL_PARTS,
    PreparedProgram,
    compile_core,
    is_list,
    list_result_fields,
    prepare_parts,
)
from sqlml.planner.program.result_sql import find_first_positions
from sqlml.types import DATETIME, Array
from sqlml.udfs.batch_function import BatchFunction, CategoryEncoder, Explain, LastRows
from sqlml.udfs.engine_function import EngineFunction

_MAX_QUERY_LENGTH, _MAX_VALUE_LENGTH = 2000, 60

ReadValue = Callable[[str, int], tuple[Any] | None]
"""Returns (value,) for a column name and a row index, or None if the value is unavailable."""


def name_refused_value(
    error: UnknownCategoryError,
    core: Program,
    inputs: Mapping[str, Any],
    read_value: ReadValue,
    encoders: Program | None = None,
    dialect: Dialect = DUCKDB,
) -> UnknownCategoryError:
    """Return `error`, raised by `core`, with the first unknown value added to the message.

    If only SQL saw the strings, `encoders` is the Program that encoded them. The message then
    contains a query that finds the unknown values. If no value can be found and no query can be
    built, return `error` unchanged.
    """
    if error.feature is None or error.step is None:
        return error
    try:
        row = _find_refused_row(core, inputs, error.feature, error.step)
        value = None if row is None else read_value(error.feature, row)
    except SqlmlError:  # An earlier check failed, or a column holds unexpected values.
        return error
    if value is not None:
        return make_unknown_category_error(error.feature, error.step, format_value(value[0]))
    if encoders is None or error.feature not in encoders.inputs:
        return error
    null_column: Array = np.array([[None]], object)
    feature_encoders = _select_feature_outputs(encoders, error.feature)
    codes = reference.run(feature_encoders, {error.feature: null_column})
    rejects_null = any(column.min() < 0 for column in codes.values())
    value_description = "a category (or NULL)" if rejects_null else "a category"
    query = _build_unknown_values_sql(encoders, error.feature, rejects_null, dialect)
    return make_unknown_category_error(error.feature, error.step, value_description, query)


def format_value(value: Any) -> str:
    """Format `value` for a message: quoted and shortened, or as NULL if it is missing."""
    if value is None or value != value:
        return "NULL"
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto")).replace("T", " ")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = repr(value)
    is_short = len(text) <= _MAX_VALUE_LENGTH
    return text if is_short else f"{text[: _MAX_VALUE_LENGTH - 4]}...{text[0]}"


def _find_refused_row(
    core: Program, inputs: Mapping[str, Any], feature: str, step: str
) -> int | None:
    """Return the index of the first row whose `feature` is rejected by `step`, or None."""
    code_nodes = {
        str(i): node.inputs[0]
        for i, node in enumerate(core.nodes)
        if node.op == "require_known"
        and (node.attrs["feature"], node.attrs["step"]) == (feature, step)
    }
    if not code_nodes:
        return None
    results = reference.run(_select_outputs(core, code_nodes), inputs)
    is_unknown = np.concatenate([c.reshape(len(c), -1) < 0 for c in results.values()], axis=1)
    rejected_rows = np.flatnonzero(is_unknown.any(axis=1))
    return int(rejected_rows[0]) if rejected_rows.size else None


def _select_outputs(program: Program, outputs: Mapping[str, int]) -> Program:
    builder = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(builder.copy_node(node, [values[i] for i in node.inputs]))
    return builder.build({name: values[i] for name, i in outputs.items()})


def _list_feature_outputs(encoders: Program, feature: str) -> list[str]:
    """Return the names of the outputs of `encoders` that depend only on `feature`."""
    features_read: list[frozenset[str]] = []
    for node in encoders.nodes:
        features = {str(node.attrs["name"])} if node.op == "input" else set()
        features_read.append(frozenset(features.union(*(features_read[i] for i in node.inputs))))
    return [name for name, i in encoders.outputs.items() if features_read[i] == {feature}]


def _select_feature_outputs(encoders: Program, feature: str) -> Program:
    names = _list_feature_outputs(encoders, feature)
    return _select_outputs(encoders, {name: encoders.outputs[name] for name in names})


def _build_unknown_values_sql(
    encoders: Program, feature: str, rejects_null: bool, dialect: Dialect
) -> str:
    """Build SQL that finds the values unknown to the encoders of `feature`, or "" if too long."""
    nodes = _select_feature_outputs(encoders, feature).nodes
    category_sets = [set(node.attrs["categories"]) for node in nodes if node.op == "encode"]
    known_categories = set.intersection(*category_sets) if category_sets else set()
    category_list = ", ".join(map(dialect.quote_string, sorted(map(str, known_categories))))
    if "\0" in category_list or not known_categories or len(category_list) > _MAX_QUERY_LENGTH:
        return ""
    column = dialect.quote_name(feature)
    condition = f"{column} NOT IN ({category_list})"
    condition += f" OR {column} IS NULL" if rejects_null else ""
    return f"SELECT DISTINCT {column} FROM ... WHERE {condition}"


# Codes of unknown strings: one code for NULL, then as many codes as a FLOAT can hold exactly.
_NULL_CODE, _FIRST_CODE, _CODE_COUNT = -2, -3, 1 << 23
_MAX_BATCH_TEXTS = 256  # Strings to remember per batch. An error quotes only the first of them.
_MAX_TEXTS, _MAX_TEXT_LENGTH = 1 << 14, 1000  # Strings to remember in all, and their characters.
_code_counter = itertools.count()
_remembered_texts: OrderedDict[int, str] = OrderedDict()
_lock = threading.Lock()


def _encode_texts(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Remember the first `_MAX_BATCH_TEXTS` strings; all other strings get the code -1."""
    remembered = texts.slice(0, _MAX_BATCH_TEXTS).to_pylist()
    with _lock:
        codes = list(_remember_texts(remembered))
    return pa.array(codes + [-1] * (len(texts) - len(remembered)), pa.int32())


def _remember_texts(texts: list[str | None]) -> Iterator[int]:
    """Remember each string, and yield its code; the caller holds `_lock`."""
    for text in texts:
        if text is None:
            yield _NULL_CODE
            continue
        code = _FIRST_CODE - next(_code_counter) % _CODE_COUNT
        _remembered_texts.pop(code, None)
        _remembered_texts[code] = text[:_MAX_TEXT_LENGTH]
        if len(_remembered_texts) > _MAX_TEXTS:
            _remembered_texts.popitem(last=False)
        yield code


def find_refused_text(code: float) -> tuple[str | None] | None:
    """Return (string,) for a code, (None,) for the code of NULL, or None for an unknown code."""
    if code == _NULL_CODE:
        return (None,)
    with _lock:
        text = _remembered_texts.get(int(code))
    return None if text is None else (text,)


def find_refused_text_functions(sql: str) -> list[EngineFunction]:
    """Return the helper functions for unknown strings that `sql` calls under any name.

    >>> [f.name for f in find_refused_text_functions("f([system.main.sqlml_refused_text(a)])")]
    ['sqlml_refused_text']
    """
    names = find_refused_text_names(sql)
    return [EngineFunction(name, _encode_texts, ("VARCHAR",), "INTEGER") for name in names]


_TYPES_OF_LAYOUT = {"f32": ("float32", "FLOAT"), "f64": ("float64", "DOUBLE")}


@dataclass(frozen=True, slots=True, eq=False)
class CompiledOnUse:
    """A core Program that is compiled when the first batch arrives, so a database opens quickly."""

    program: Program
    choice: Choice

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        return compile_core(self.program, self.choice).run(inputs, outputs)

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        return find_filler(compile_core(self.program, self.choice), output, columns, width)

    def text_filler(self, output: str) -> Any:
        return find_text_filler(compile_core(self.program, self.choice), output)


def make_engine_function(
    spec: FunctionSpec, program: Program, on_use: bool = False, dialect: Dialect = DUCKDB
) -> EngineFunction:
    """Make the function that `spec` describes and that scores with `program`.

    If `on_use`, the Program is compiled at the first call. `dialect` is the SQL dialect of the
    queries in error messages. Raises ConfigError if the backend is unknown, and BackendError if the
    backend cannot run the Program.
    """
    prepared = prepare_parts(program, spec.parts, spec.layout, spec.constants, spec.max_categories)
    core = prepared.split.core
    choice = Choice(spec.backend, spec.strategy, spec.device, "function name")
    compiled = CompiledOnUse(core, choice) if on_use else compile_core(core, choice)
    dtype, sql_type = _TYPES_OF_LAYOUT[spec.layout]
    part = spec.parts[0] if len(spec.parts) == 1 else ResultPart(ALL_PARTS)
    output_type = core.output_type(part.output)
    labels = program.labels
    is_integer = part.output == "label" and bool(labels)
    has_groups = part.output == "proba" and not program.has_one_probability_per_target
    groups = tuple(map(len, labels)) if len(labels) > 1 and has_groups else ()
    class_offsets = find_first_positions(labels) if len(labels) > 1 and is_integer else ()
    is_listed = is_list(part, output_type.width)
    fields = list_result_fields(program, spec.parts, spec.by_column)
    scorer = BatchFunction(
        compiled=compiled,
        input_name=PACKED,
        output=part.output,
        width=core.input_type(PACKED).width,
        dtype=dtype,
        is_integer=is_integer,
        columns=output_type.width,
        is_listed=is_listed,
        groups=groups,
        class_offsets=class_offsets,
        explain=_make_explainer(prepared, dialect),
        last_rows=_share_last_rows(spec) if spec.remembers_rows else None,
        nbytes=core.nbytes,
        max_rows=spec.batch_rows,
        lookup=_build_lookup(prepared, dtype, on_use),
        texts=len(prepared.split.text_inputs),
        by_column=spec.by_column,
        fields=fields,
    )
    if spec.by_column:
        argument_types = (sql_type,) * scorer.packed + ("VARCHAR",) * scorer.texts
    else:
        argument_types = (f"{sql_type}[{scorer.packed}]",) + ("BLOB[]",) * bool(scorer.texts)
    result_type = ("INTEGER" if is_integer else "DOUBLE") + "[]" * (is_listed + bool(groups))
    if fields:
        result_type = format_struct(fields)
    return EngineFunction(spec.name, scorer, argument_types, result_type, spec.once, spec.by_column)


def _share_last_rows(spec: FunctionSpec) -> LastRows:
    """Return the `LastRows` that the function shares with its volatile variant in WHERE."""
    last_rows = LastRows()
    shared_rows = _shared_last_rows.setdefault(replace(spec, once=False).name, last_rows)
    return last_rows if shared_rows is last_rows else shared_rows.make_twin()


_shared_last_rows: WeakValueDictionary[str, LastRows] = WeakValueDictionary()


def _build_lookup(prepared: PreparedProgram, dtype: str, on_use: bool) -> CategoryEncoder | None:
    split = prepared.split
    if split.lookup is None:
        return None
    choice = Choice("native", "traverse", "cpu", "a table of categories")
    return CategoryEncoder(
        CompiledOnUse(split.lookup, choice) if on_use else compile_core(split.lookup, choice),
        len(split.texts),
        tuple(split.lookup.inputs),
        tuple(column.name for column in split.columns if column.is_looked_up),
        tuple(position for position, column in enumerate(split.columns) if not column.is_looked_up),
        tuple(position for position, column in enumerate(split.columns) if column.is_looked_up),
        dtype,
    )


def _make_explainer(prepared: PreparedProgram, dialect: Dialect) -> Explain:
    split = prepared.split
    number_positions = {c.name: k for k, c in enumerate(split.columns) if not c.is_encoded}
    date_names = {f.name for f in prepared.program.features if f.kind == DATETIME}
    code_positions = {
        c.name: k for k, c in enumerate(split.columns) if c.is_strict and not c.is_looked_up
    }

    def explain_error(
        error: UnknownCategoryError, inputs: Mapping[str, Any], looked_up: Mapping[str, TextColumn]
    ) -> UnknownCategoryError:
        def read_value(feature: str, row: int) -> tuple[Any] | None:
            if feature in looked_up:
                texts = looked_up[feature]
                return (None if texts.missing[row] else texts.text(row),)
            if feature in number_positions:
                number = inputs[PACKED][row, number_positions[feature]]
                is_date = feature in date_names and np.isfinite(number)
                return (np.datetime64(int(number), "us") if is_date else number,)
            if split.encoders is None:
                return None
            names = _list_feature_outputs(split.encoders, feature)
            positions = [code_positions[name] for name in names if name in code_positions]
            refused_texts = map(find_refused_text, inputs[PACKED][row, positions])
            return next((text for text in refused_texts if text is not None), None)

        return name_refused_value(error, split.core, inputs, read_value, split.encoders, dialect)

    return explain_error
