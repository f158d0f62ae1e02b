"""`export_sql`: a model as macros, which plain DuckDB runs without sqlml.

CREATE OR REPLACE MACRO "churn"("tenure", "charges") AS ..;        -- what predict gives
CREATE OR REPLACE MACRO "churn_proba"("tenure", "charges") AS ..;  -- what predict_proba gives
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.backends.sql import print_sql
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError
from sqlml.ir.program import Program
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.refused_nulls import any_missing, refused, unless
from sqlml.planner.binding.requested_output import index_of
from sqlml.planner.binding.unknown_categories import (
    known_categories,
    nullified,
    with_unknown_as_null,
)
from sqlml.planner.program.prepare import prepare
from sqlml.planner.program.result_sql import decoded
from sqlml.types import Feature

MACROS = {
    "label": "",
    "proba": "_proba",
    "score": "_score",
    "samples": "_score",
    "transform": "_transform",
}
"""Output -> the suffix of the model's name."""


def expression(
    program: Program,
    output: str,
    column: int | None = None,
    inputs: Mapping[str, str] | None = None,
    dialect: Dialect = DUCKDB,
) -> str:
    """One output (only its column `column`, if given) as SQL.

    Args:
        inputs: for each feature the expression that feeds it, cheap to write several times; by
            default the column of that name.

    Raises:
        BackendError: an operator cannot be printed as SQL, or the SQL would be too long.
    """
    part = fold_casts_into_trees(prepare(program, output, column).program)
    if inputs is None:
        inputs = {name: dialect.quote_name(name) for name in part.inputs}
    made = print_sql(part, output, {name: [inputs[name]] for name in part.inputs}, dialect)
    kind = part.output_type(output)
    if output == "transform" and kind.width == 1 and kind.dtype != "float64":
        made = f"CAST({made} AS DOUBLE)"  # codes of labels
    listed = output == "proba" and column is None and kind.width == 1
    return dialect.array([made]) if listed else made


def export_sql(program: Program, name: str, options: Mapping[str, Any] | None = None) -> str:
    """The statements that make the macros of all outputs.

    Args:
        options: of the model; on_null, on_unknown and positive_class affect its results.

    Raises:
        BackendError: SQL cannot express the model; the message says why.
        ConfigError: it is unknown for which columns on_null gives NULL.
    """
    options = options or {}
    known = known_categories(options, program)
    if known:
        program = with_unknown_as_null(program)
    if len(program.labels) > 1:
        raise BackendError("a model of several targets is not printed as SQL; export it as ONNX")
    statements = []
    for output in program.outputs:
        if output not in MACROS:
            continue
        part = prepare(program, output).program
        read = [f.name for f in program.features if f.name in part.inputs]
        inputs = ", ".join(map(DUCKDB.quote_name, read))
        macro = DUCKDB.quote_name(name + MACROS[output])
        place = _positive(program, options) if output == "proba" else None
        if place is None:
            made = decoded(expression(program, output), program, output, None)
        else:
            made = expression(program, output, place)
        bounds = {f.name: _field(f) for f in program.features if f.name in part.inputs}
        bounds = nullified(bounds, known)
        made = unless(any_missing(bounds, sorted(refused(options, program) & bounds.keys())), made)
        statements.append(f"CREATE OR REPLACE MACRO {macro}({inputs}) AS {made};\n")
    return "\n".join(statements)


def _field(feature: Feature) -> Bound:
    """A macro's parameter, which has no type."""
    name = DUCKDB.quote_name(feature.name)
    number = feature.kind == "number"
    return Bound(f"CAST({name} AS DOUBLE)", "DOUBLE") if number else Bound(name, "VARCHAR")


def _positive(program: Program, options: Mapping[str, Any]) -> int | None:
    """The index of the model's positive_class among its labels; None if it has none."""
    positive = options.get("positive_class")
    return None if positive is None else index_of(program.labels[0], positive)
