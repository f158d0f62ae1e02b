"""The bodies of a model's macros, which score a row `r` without planning.

The types of the row's columns are known only when a query is bound. The bodies inspect them with
`typeof`, which the engine folds.

The engine binds all columns of a table for each `r` in a body, and discards those that are not
read. So it scans only the columns of the model, but planning takes time in proportion to the
product of both numbers. A model that reads very many columns therefore gets its row once, as the
parameter of a lambda. DuckDB does not look through lambdas, and scans all columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Transform
from sqlml.catalog.scoring_macros import name_helper
from sqlml.dialects import DUCKDB
from sqlml.dialects.type_names import DATETIMES, NUMBERS, UNTYPED
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.refused_nulls import (
    find_null_inputs,
    null_if,
    test_missing,
    write_packed_numbers,
    write_text_argument,
)
from sqlml.planner.binding.requested_output import OUTPUTS_OF, find_label
from sqlml.planner.binding.unknown_categories import (
    find_known_categories,
    replace_unknown_with_null,
)
from sqlml.planner.program.choose import choose, read_batch_size
from sqlml.planner.program.cost import count_inline_categories
from sqlml.planner.program.function_names import FunctionSpec, Output, Part
from sqlml.planner.program.prepare import prepare_parts
from sqlml.planner.program.result_sql import decode_result, label_literal
from sqlml.types import DATETIME, NESTED, Feature, Kind, Labels, list_classes


def _call(name: str, *arguments: str) -> str:
    return DUCKDB.call(name, *arguments)


def _error(message: str) -> str:
    return _call("error", message)


def _concat(*texts: str) -> str:
    return reduce(partial(DUCKDB.operator, "||"), texts)


def _write_typed_macro(types: str, value: str, expected: str) -> str:
    """Return a macro of a column `x` and its feature `f`: `value` if the type fits, or an error."""
    pattern = DUCKDB.quote_string(f"(?s){types}|{'|'.join(UNTYPED)}")
    takes = f"' of the model takes {expected}, but the column is '"
    message = _concat("'feature '", "f", takes, _call("typeof", "x"), "'; cast it'")
    return (
        f"(x, f) AS CASE WHEN {_call('regexp_full_match', _call('typeof', 'x'), pattern)} "
        f"THEN {value} ELSE {_error(message)} END"
    )


_NUMBER = name_helper("number", _write_typed_macro(NUMBERS.pattern, "CAST(x AS DOUBLE)", "numbers"))
_TEXT = name_helper(
    "text", _write_typed_macro(r"VARCHAR|ENUM\(.*\)", "CAST(x AS VARCHAR)", "strings")
)
_DATETIME = name_helper(
    "datetime", _write_typed_macro(DATETIMES.pattern, DUCKDB.microseconds("x"), "dates")
)
HELPERS = (_NUMBER, _TEXT, _DATETIME)

_MACROS_BY_KIND: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {"number": (_NUMBER[0], "DOUBLE"), DATETIME: (_DATETIME[0], "DOUBLE")}
)
"""Kind of a feature -> the macro that feeds it, and its type; all other kinds are texts."""


@dataclass(frozen=True, slots=True)
class MacroBody:
    """The body of a macro, and the engine function that it calls, if any."""

    kind: str
    sql: str
    function: FunctionSpec | None


def write_bodies(
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
    transform: Transform | None = None,
) -> list[MacroBody]:
    """Return the bodies of the macros of all functions that a model has; see `OUTPUTS_OF`."""
    bodies = []
    for kind, *others in OUTPUTS_OF.values():
        output = next((o for o in (kind, *others) if o in program.outputs), None)
        if output is not None:
            bodies += _write_bodies(kind, output, features, program, options, transform)
    return bodies


def _write_bodies(
    kind: str,
    output: Output,
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
    transform: Transform | None,
) -> list[MacroBody]:
    try:
        prepared = prepare_parts(program, (Part(output),), lookup=count_inline_categories())
        choice = choose(prepared.split.core, options)
    except SqlmlError as error:  # For example, a library is missing.
        message = f"this model cannot be scored: {error}"
        return [MacroBody(kind, _error(DUCKDB.quote_string(message)), None)]
    read = [f for f in features if f.name in prepared.program.inputs]
    if any(f.kind in NESTED for f in read):
        message = (
            "a model that reads lists or maps is scored by a session: sqlml.attach(connection)"
        )
        return [MacroBody(kind, _error(DUCKDB.quote_string(message)), None)]
    spec = FunctionSpec(
        program.hash,
        (Part(output),),
        "f64",
        choice.backend,
        choice.strategy,
        choice.device,
        rows=read_batch_size(options),
        max_categories=None if prepared.split.lookup is None else count_inline_categories(),
    )
    is_wide = len(read) > MAX_SCANNED_COLUMNS and transform is None
    bounds = {f.name: _bind_column(f, transform, _ROW if is_wide else "r") for f in read}
    bounds = replace_unknown_with_null(bounds, find_known_categories(options, program))
    missing = test_missing(bounds, sorted(find_null_inputs(options, program) & bounds.keys()))
    numbers = write_packed_numbers(prepared, bounds, "DOUBLE")
    call = f"{DUCKDB.scorer(spec.name)}({numbers}{write_text_argument(prepared, bounds)})"
    result = decode_result(call, program, output, None)
    positive = options.get("positive_class")
    if kind == "proba" and positive is not None and len(program.labels) == 1:
        place = find_label(program.labels[0], positive)
        unknown = DUCKDB.quote_string(f"the model has no class {positive!r}, as its options say")
        result = _error(unknown) if place is None else DUCKDB.at(call, place + 1)
    values = {kind: result}
    if kind == "proba" and len(program.labels) == 1:
        values["class"] = _select_class(call, program.labels[0])
    bodies = {kind: null_if(missing, value) for kind, value in values.items()}
    if is_wide:
        bodies = {kind: _check_row_types(value, read) for kind, value in bodies.items()}
    return [MacroBody(kind, value, spec) for kind, value in bodies.items()]


MAX_SCANNED_COLUMNS = 100
"""The most columns of a model that are scanned alone: 100 of 102 are planned in 0.3 s, but 300 of
302 in 3 s, or 0.3 s with a lambda."""

_ROW = "sqlml_x"


def _check_row_types(value: str, read: Sequence[Feature]) -> str:
    """Return `value` of the row `r` as `_ROW`, or an error if a numeric column holds no numbers.

    The names of all types are compared at once, which the engine folds. It does not fold the lambda
    that finds the column for the error's message.
    """
    numbers = [f.name for f in read if f.kind == "number"]
    if numbers:
        types = {name: _call("typeof", DUCKDB.field(_ROW, name)) for name in numbers}
        type_pattern = f"(?:{NUMBERS.pattern}|{'|'.join(UNTYPED)})"
        type_list = _call("concat_ws", "';'", *types.values())
        all_types = DUCKDB.quote_string(f"{type_pattern}(?:;{type_pattern})*")
        pairs = DUCKDB.array(
            [DUCKDB.array([DUCKDB.quote_string(name), kind]) for name, kind in types.items()]
        )
        name, kind = DUCKDB.at("k", 1), DUCKDB.at("k", 2)
        is_number = _call("regexp_full_match", kind, DUCKDB.quote_string(type_pattern))
        wrong = _call("list_filter", pairs, f"lambda k: NOT {is_number}")
        takes = "' of the model takes numbers, but the column is '"
        messages = _concat("'feature '", name, takes, kind, "'; cast it'")
        messages = DUCKDB.at(DUCKDB.each(wrong, "k", messages), 1)
        value = (
            f"CASE WHEN {_call('regexp_full_match', type_list, all_types)} THEN {value} "
            f"ELSE {_error(messages)} END"
        )
    return DUCKDB.let(_ROW, "r", value)


def _bind_column(feature: Feature, transform: Transform | None, row: str) -> Bound:
    """Bind a feature to a field of the row, which must exist, or to an item of TRANSFORM."""
    if transform is not None and feature.name in transform.expressions:
        fields = {name: DUCKDB.field(row, name) for name in transform.columns}
        return Bound(transform.sql(feature.name, fields), transform.expressions[feature.name].type)
    column = DUCKDB.field(row, feature.name)
    if row == _ROW and feature.kind == "number":  # `_check_row_types` checks its type.
        return Bound(f"CAST({column} AS DOUBLE)", "DOUBLE")
    name, kind = _MACROS_BY_KIND.get(feature.kind, (_TEXT[0], "VARCHAR"))
    return Bound(f"sqlml.{name}({column}, {DUCKDB.quote_string(feature.name)})", kind)


_CLASS_TEXT = "CAST(class AS VARCHAR)"
_CLASS_INTEGER = DUCKDB.call("regexp_replace", _CLASS_TEXT, "'\\.0+$'", "''")
_CLASS_TYPE = DUCKDB.call("typeof", "class")


def _select_class(call: str, labels: Labels) -> str:
    position = f"coalesce({_find_class(labels)}, 0)"
    class_names = list_classes(labels.values)
    unknown = _concat(
        "'the model has no class '",
        f"coalesce({_CLASS_TEXT}, 'NULL')",
        DUCKDB.quote_string(f"; its classes are {class_names}"),
    )
    return f"CASE WHEN {position} = 0 THEN {_error(unknown)} ELSE {DUCKDB.at(call, position)} END"


def _list_labels(labels: Labels, change: str = "") -> str:
    values = [f"CAST({label_literal(v, labels.kind)} AS VARCHAR)" for v in labels.values]
    return DUCKDB.array([_call(change, value) for value in values] if change else values)


def _find_class(labels: Labels) -> str:
    """Return the SQL of the position, from 1, of the class that the parameter `class` names."""
    if labels.kind == "float64":
        values = DUCKDB.array([label_literal(v, labels.kind) for v in labels.values])
        return _call("list_position", values, "TRY_CAST(class AS DOUBLE)")
    texts = _list_labels(labels)
    if labels.kind == "string":
        exact = _call("list_position", texts, _CLASS_TEXT)
        folded = _call("list_position", _list_labels(labels, "lower"), _CLASS_TEXT)
        integer = _call("list_position", texts, _CLASS_INTEGER)
        return (
            f"coalesce({exact}, CASE WHEN {_CLASS_TYPE} = 'BOOLEAN' THEN {folded} "
            f"WHEN {_CLASS_TYPE} IN ('DOUBLE', 'FLOAT') THEN {integer} END)"
        )
    if labels.kind == "int64":
        text = (
            f"CASE {_CLASS_TYPE} WHEN 'VARCHAR' THEN {_CLASS_TEXT} WHEN 'BOOLEAN' THEN "
            f"CASE {_CLASS_TEXT} WHEN 'true' THEN '1' ELSE '0' END ELSE {_CLASS_INTEGER} END"
        )
    else:
        text = (
            f"CASE WHEN {_CLASS_TYPE} IN ('VARCHAR', 'BOOLEAN') THEN {_call('lower', _CLASS_TEXT)} "
            f"WHEN {_CLASS_INTEGER} = '1' THEN 'true' WHEN {_CLASS_INTEGER} = '0' THEN 'false' END"
        )
    return _call("list_position", texts, text)
