"""`model_bodies`: what a model computes of the row `r`, as the bodies of macros.

The types of the row's columns are known only when a query is bound: the bodies inspect them with
`typeof`, which the engine folds.

The engine binds all columns of a table for each `r` in a body, and discards those that are not
read: it scans what the model reads, and planning takes the product of both numbers. So a model that
reads very many columns gets its row once, as the parameter of a lambda, which DuckDB does not look
through: then it scans them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

from sqlml.catalog.model import Transform
from sqlml.catalog.scoring_macros import helper
from sqlml.dialects import DUCKDB
from sqlml.dialects.type_names import DATETIMES, NUMBERS, UNTYPED
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.refused_nulls import any_missing, packed, refused, texts, unless
from sqlml.planner.binding.requested_output import OUTPUTS_OF, index_of
from sqlml.planner.binding.unknown_categories import known_categories, nullified
from sqlml.planner.choice.choose import batch_rows, choose
from sqlml.planner.choice.cost import most_categories
from sqlml.planner.program.function_names import FunctionSpec, Output, Part
from sqlml.planner.program.prepare import prepare_parts
from sqlml.planner.program.result_sql import decoded, label_literal
from sqlml.types import DATETIME, NESTED, Feature, Kind, Labels, list_classes


def _call(name: str, *arguments: str) -> str:
    return DUCKDB.call(name, *arguments)


def _error(message: str) -> str:
    return _call("error", message)


def _joined(*texts: str) -> str:
    return reduce(partial(DUCKDB.operator, "||"), texts)


def _typed(types: str, made: str, wants: str) -> str:
    """A macro of a column `x` and the feature `f` that it feeds: `made` of `x`, or an error."""
    pattern = DUCKDB.quote_string(f"(?s){types}|{'|'.join(UNTYPED)}")
    takes = f"' of the model takes {wants}, but the column is '"
    message = _joined("'feature '", "f", takes, _call("typeof", "x"), "'; cast it'")
    return (
        f"(x, f) AS CASE WHEN {_call('regexp_full_match', _call('typeof', 'x'), pattern)} "
        f"THEN {made} ELSE {_error(message)} END"
    )


_NUMBER = helper("number", _typed(NUMBERS.pattern, "CAST(x AS DOUBLE)", "numbers"))
_TEXT = helper("text", _typed(r"VARCHAR|ENUM\(.*\)", "CAST(x AS VARCHAR)", "strings"))
_DATETIME = helper("datetime", _typed(DATETIMES.pattern, DUCKDB.microseconds("x"), "dates"))
HELPERS = (_NUMBER, _TEXT, _DATETIME)
"""Macros that the bodies call."""

_OF_KIND: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {"number": (_NUMBER[0], "DOUBLE"), DATETIME: (_DATETIME[0], "DOUBLE")}
)
"""Kind of a feature -> the macro that feeds it, and what that gives; of all others a text."""


@dataclass(frozen=True, slots=True)
class Body:
    """One macro's body, and the engine function that it calls (None: it calls none)."""

    kind: str
    sql: str
    function: FunctionSpec | None


def model_bodies(
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
    transform: Transform | None = None,
) -> list[Body]:
    """The bodies of all functions that a model has.

    The kind of a function's macro (`catalog.plain_macros.keep.FUNCTIONS`) is its first output.
    """
    made = []
    for kind, *others in OUTPUTS_OF.values():
        output = next((o for o in (kind, *others) if o in program.outputs), None)
        if output is not None:
            made += _bodies(kind, output, features, program, options, transform)
    return made


def _bodies(
    kind: str,
    output: Output,
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
    transform: Transform | None,
) -> list[Body]:
    try:
        prepared = prepare_parts(program, (Part(output),), lookup=most_categories())
        choice = choose(prepared.split.core, options)
    except SqlmlError as error:  # say for want of a library: the session says so as well
        return [
            Body(kind, _error(DUCKDB.quote_string(f"this model cannot be scored: {error}")), None)
        ]
    read = [f for f in features if f.name in prepared.program.inputs]
    if any(f.kind in NESTED for f in read):
        why = "a model that reads lists or maps is scored by a session: sqlml.attach(connection)"
        return [Body(kind, _error(DUCKDB.quote_string(why)), None)]
    spec = FunctionSpec(
        program.hash,
        (Part(output),),
        "f64",
        choice.backend,
        choice.strategy,
        choice.device,
        rows=batch_rows(options),
        lookup=None if prepared.split.lookup is None else most_categories(),
    )
    wide = len(read) > MANY and transform is None
    bounds = {f.name: _of_wide(f) if wide else _field(f, transform) for f in read}
    bounds = nullified(bounds, known_categories(options, program))
    missing = any_missing(bounds, sorted(refused(options, program) & bounds.keys()))
    call = (
        f"{DUCKDB.scorer(spec.name)}({packed(prepared, bounds, 'DOUBLE')}{texts(prepared, bounds)})"
    )
    result = decoded(call, program, output, None)
    positive = options.get("positive_class")
    if kind == "proba" and positive is not None and len(program.labels) == 1:
        place = index_of(program.labels[0], positive)
        unknown = DUCKDB.quote_string(f"the model has no class {positive!r}, as its options say")
        result = _error(unknown) if place is None else DUCKDB.at(call, place + 1)
    made = {kind: result}
    if kind == "proba" and len(program.labels) == 1:
        made["class"] = _one_class(call, program.labels[0])
    bodies = {kind: unless(missing, value) for kind, value in made.items()}
    if wide:
        bodies = {kind: _of_one_row(value, read) for kind, value in bodies.items()}
    return [Body(kind, value, spec) for kind, value in bodies.items()]


MANY = 100
"""Columns that a model reads up to which the engine scans only those.

100 of 102 columns are planned in 0.3 s, 300 of 302 in 3 s, and by a lambda in 0.3 s.
"""

_ROW = "sqlml_x"
"""The row as a parameter of a lambda."""


def _of_wide(feature: Feature) -> Bound:
    """A column of a row that the body names once, of which `_of_one_row` looks at the types."""
    own = DUCKDB.field(_ROW, feature.name)
    if feature.kind == "number":
        return Bound(f"CAST({own} AS DOUBLE)", "DOUBLE")
    name, kind = _OF_KIND.get(feature.kind, (_TEXT[0], "VARCHAR"))
    return Bound(f"sqlml.{name}({own}, {DUCKDB.quote_string(feature.name)})", kind)


def _of_one_row(value: str, read: Sequence[Feature]) -> str:
    """`value` of the row `_ROW`, which is `r`, or an error where a column holds no numbers.

    Types are texts: all of them are compared at once, which the engine folds. A lambda it does not
    fold, so one looks for the column only where there is an error to tell.
    """
    numbers = [f.name for f in read if f.kind == "number"]
    if numbers:
        types = {name: _call("typeof", DUCKDB.field(_ROW, name)) for name in numbers}
        known = f"(?:{NUMBERS.pattern}|{'|'.join(UNTYPED)})"
        listed = _call("concat_ws", "';'", *types.values())
        every = DUCKDB.quote_string(f"{known}(?:;{known})*")
        pairs = DUCKDB.array(
            [DUCKDB.array([DUCKDB.quote_string(name), kind]) for name, kind in types.items()]
        )
        name, kind = DUCKDB.at("k", 1), DUCKDB.at("k", 2)
        is_number = _call("regexp_full_match", kind, DUCKDB.quote_string(known))
        wrong = _call("list_filter", pairs, f"lambda k: NOT {is_number}")
        takes = "' of the model takes numbers, but the column is '"
        told = _joined("'feature '", name, takes, kind, "'; cast it'")
        told = DUCKDB.at(DUCKDB.each(wrong, "k", told), 1)
        value = (
            f"CASE WHEN {_call('regexp_full_match', listed, every)} THEN {value} "
            f"ELSE {_error(told)} END"
        )
    return DUCKDB.let(_ROW, "r", value)


def _field(feature: Feature, transform: Transform | None) -> Bound:
    """The row's field that feeds a feature, or what is made of others; one that is missing does not
    bind, and is named."""
    if transform is not None and feature.name in transform.made:
        fields = {name: DUCKDB.field("r", name) for name in transform.columns}
        return Bound(transform.sql(feature.name, fields), transform.made[feature.name].type)
    name, kind = _OF_KIND.get(feature.kind, (_TEXT[0], "VARCHAR"))
    own = DUCKDB.quote_string(feature.name)
    return Bound(f"sqlml.{name}({DUCKDB.field('r', feature.name)}, {own})", kind)


def _one_class(call: str, labels: Labels) -> str:
    """The probability of the class that the parameter `class` spells."""
    place = f"coalesce({_PLACES[labels.kind](labels)}, 0)"
    known = list_classes(labels.values)
    unknown = _joined(
        "'the model has no class '",
        f"coalesce({_SPELLED}, 'NULL')",
        DUCKDB.quote_string(f"; its classes are {known}"),
    )
    return f"CASE WHEN {place} = 0 THEN {_error(unknown)} ELSE {DUCKDB.at(call, place)} END"


_SPELLED = "CAST(class AS VARCHAR)"
_WHOLE = DUCKDB.call("regexp_replace", _SPELLED, "'\\.0+$'", "''")
_TYPE = DUCKDB.call("typeof", "class")
_NUMBER_OF_TRUTH = f"CASE {_SPELLED} WHEN 'true' THEN '1' ELSE '0' END"


def _listed(labels: Labels, change: str = "") -> str:
    values = [f"CAST({label_literal(v, labels.kind)} AS VARCHAR)" for v in labels.values]
    return DUCKDB.array([_call(change, value) for value in values] if change else values)


def _among_texts(labels: Labels) -> str:
    exact = _call("list_position", _listed(labels), _SPELLED)
    folded = _call("list_position", _listed(labels, "lower"), _SPELLED)
    whole = _call("list_position", _listed(labels), _WHOLE)
    return (
        f"coalesce({exact}, CASE WHEN {_TYPE} = 'BOOLEAN' THEN {folded} "
        f"WHEN {_TYPE} IN ('DOUBLE', 'FLOAT') THEN {whole} END)"
    )


def _among_whole_numbers(labels: Labels) -> str:
    wanted = (
        f"CASE {_TYPE} WHEN 'VARCHAR' THEN {_SPELLED} "
        f"WHEN 'BOOLEAN' THEN {_NUMBER_OF_TRUTH} ELSE {_WHOLE} END"
    )
    return _call("list_position", _listed(labels), wanted)


def _among_numbers(labels: Labels) -> str:
    values = DUCKDB.array([label_literal(v, labels.kind) for v in labels.values])
    return _call("list_position", values, "TRY_CAST(class AS DOUBLE)")


def _among_truths(labels: Labels) -> str:
    wanted = (
        f"CASE WHEN {_TYPE} IN ('VARCHAR', 'BOOLEAN') THEN {_call('lower', _SPELLED)} "
        f"WHEN {_WHOLE} = '1' THEN 'true' WHEN {_WHOLE} = '0' THEN 'false' END"
    )
    return _call("list_position", _listed(labels), wanted)


_PLACES: Mapping[str, Callable[[Labels], str]] = {
    "string": _among_texts,
    "int64": _among_whole_numbers,
    "float64": _among_numbers,
    "bool": _among_truths,
}
"""Kind of labels -> the place (from 1) among them of what `class` spells, or NULL, as SQL."""
