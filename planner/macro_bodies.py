"""`model_bodies`: what a model computes of the row `r`, as the bodies of macros.

The types of the row's columns are known when a query is bound, and not now: the bodies look at them
themselves, by `typeof`, which the engine folds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.catalog.macros import helper
from sqlml.dialects import DUCKDB
from sqlml.dialects.type_names import NUMBERS, UNTYPED
from sqlml.errors import SqlmlError
from sqlml.ir.program import Program
from sqlml.planner.arguments import packed, texts
from sqlml.planner.build import prepare_parts
from sqlml.planner.choice import batch_rows, choose
from sqlml.planner.classes import index_of
from sqlml.planner.column_types import Bound
from sqlml.planner.names import FunctionSpec, Output, Part
from sqlml.planner.nulls import any_missing, refused, unless
from sqlml.planner.results import decoded, label_literal
from sqlml.planner.target import OUTPUTS_OF
from sqlml.types import NESTED, Feature, Labels

_KINDS: Mapping[str, str] = {
    "predict": "label",
    "predict_proba": "proba",
    "predict_score": "score",
    "transform": "transform",
}
"""Function -> the kind of its macro (`catalog.macros.FUNCTIONS`)."""


def _typed(types: str, name: str, wants: str) -> str:
    """A macro of a column `x` and the feature `f` that it feeds: `x` as `name`, or an error."""
    pattern = DUCKDB.quote_string(f"(?s){types}|{'|'.join(UNTYPED)}")
    return (
        f"(x, f) AS CASE WHEN regexp_full_match(typeof(x), {pattern}) THEN CAST(x AS {name}) "
        f"ELSE error('feature ' || f || ' of the model takes {wants}, but the column is ' "
        "|| typeof(x) || '; cast it') END"
    )


_NUMBER = helper("number", _typed(NUMBERS.pattern, "DOUBLE", "numbers"))
_TEXT = helper("text", _typed(r"VARCHAR|ENUM\(.*\)", "VARCHAR", "strings"))
HELPERS = (_NUMBER, _TEXT)
"""Macros that the bodies call."""


@dataclass(frozen=True, slots=True)
class Body:
    """One macro's body, and the engine function that it calls (None: it calls none)."""

    kind: str
    sql: str
    function: FunctionSpec | None


def model_bodies(
    features: Sequence[Feature], program: Program, options: Mapping[str, Any]
) -> list[Body]:
    """The bodies of all functions that a model has."""
    made = []
    for function, outputs in OUTPUTS_OF.items():
        output = next((o for o in outputs if o in program.outputs), None)
        if output is not None:
            made += _bodies(_KINDS[function], output, features, program, options)
    return made


def _bodies(
    kind: str,
    output: Output,
    features: Sequence[Feature],
    program: Program,
    options: Mapping[str, Any],
) -> list[Body]:
    try:
        prepared = prepare_parts(program, (Part(output),))
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
    )
    bounds = {f.name: _field(f) for f in read}
    missing = any_missing(bounds, sorted(refused(options, program) & bounds.keys()))
    call = f"{spec.name}({packed(prepared, bounds, 'DOUBLE')}{texts(prepared, bounds)})"
    result = decoded(call, program, output, None)
    positive = options.get("positive_class")
    if kind == "proba" and positive is not None and len(program.labels) == 1:
        place = index_of(program.labels[0], positive)
        unknown = DUCKDB.quote_string(f"the model has no class {positive!r}, as its options say")
        result = _error(unknown) if place is None else f"({call})[{place + 1}]"
    bodies = [Body(kind, unless(missing, result), spec)]
    if kind == "proba" and len(program.labels) == 1:
        bodies.append(Body("class", unless(missing, _one_class(call, program.labels[0])), spec))
    return bodies


def _field(feature: Feature) -> Bound:
    """The row's field that feeds a feature; one that is missing does not bind, and is named."""
    name, kind = (_NUMBER[0], "DOUBLE") if feature.kind == "number" else (_TEXT[0], "VARCHAR")
    own = DUCKDB.quote_string(feature.name)
    return Bound(f"sqlml.{name}(struct_extract(r, {own}), {own})", kind)


def _one_class(call: str, labels: Labels) -> str:
    """The probability of the class that the parameter `class` spells: see `classes.index_of`."""
    place = f"coalesce({_PLACES[labels.kind](labels)}, 0)"
    known = ", ".join(repr(v) for v in labels.values[:20])
    unknown = f"'the model has no class ' || coalesce({_SPELLED}, 'NULL') || "
    unknown += DUCKDB.quote_string(f"; its classes are {known}")
    return f"CASE WHEN {place} = 0 THEN {_error(unknown)} ELSE ({call})[{place}] END"


_SPELLED = "CAST(class AS VARCHAR)"
_WHOLE = f"regexp_replace({_SPELLED}, '\\.0+$', '')"
_NUMBER_OF_TRUTH = f"CASE {_SPELLED} WHEN 'true' THEN '1' ELSE '0' END"


def _listed(labels: Labels, change: str = "") -> str:
    values = ", ".join(
        f"{change}(CAST({label_literal(v, labels.kind)} AS VARCHAR))" for v in labels.values
    )
    return f"[{values}]"


def _among_texts(labels: Labels) -> str:
    exact = f"list_position({_listed(labels)}, {_SPELLED})"
    folded = f"list_position({_listed(labels, 'lower')}, {_SPELLED})"
    whole = f"list_position({_listed(labels)}, {_WHOLE})"
    return (
        f"coalesce({exact}, CASE WHEN typeof(class) = 'BOOLEAN' THEN {folded} "
        f"WHEN typeof(class) IN ('DOUBLE', 'FLOAT') THEN {whole} END)"
    )


def _among_whole_numbers(labels: Labels) -> str:
    wanted = (
        f"CASE typeof(class) WHEN 'VARCHAR' THEN {_SPELLED} "
        f"WHEN 'BOOLEAN' THEN {_NUMBER_OF_TRUTH} ELSE {_WHOLE} END"
    )
    return f"list_position({_listed(labels)}, {wanted})"


def _among_numbers(labels: Labels) -> str:
    values = ", ".join(label_literal(v, labels.kind) for v in labels.values)
    return f"list_position([{values}], TRY_CAST(class AS DOUBLE))"


def _among_truths(labels: Labels) -> str:
    wanted = (
        f"CASE WHEN typeof(class) IN ('VARCHAR', 'BOOLEAN') THEN lower({_SPELLED}) "
        f"WHEN {_WHOLE} = '1' THEN 'true' WHEN {_WHOLE} = '0' THEN 'false' END"
    )
    return f"list_position({_listed(labels)}, {wanted})"


_PLACES: Mapping[str, Callable[[Labels], str]] = {
    "string": _among_texts,
    "int64": _among_whole_numbers,
    "float64": _among_numbers,
    "bool": _among_truths,
}
"""Kind of labels -> the place (from 1) among them of what `class` spells, or NULL, as SQL."""


def _error(message: str) -> str:
    return f"error({message})"
