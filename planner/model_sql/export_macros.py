"""Export of a model as macros, which DuckDB runs without sqlml.

::

    CREATE OR REPLACE MACRO "churn"("tenure", "charges") AS ...;        -- predict
    CREATE OR REPLACE MACRO "churn_proba"("tenure", "charges") AS ...;  -- predict_proba
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.backends.sql.printer import print_sql
from sqlml.catalog.small_models import COVERAGE, DEFAULT_COVERAGE
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError
from sqlml.ir.ops import CALIBRATED_OUTPUTS
from sqlml.ir.program import Program
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from sqlml.passes.tree_stages import LEAF
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.refused_nulls import build_missing_test, build_null_if, find_null_inputs
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.binding.unknown_categories import (
    accept_unknown_as_missing,
    find_known_categories,
    replace_unknown_with_null,
)
from sqlml.planner.program.prepare_program import prepare_output
from sqlml.planner.program.result_sql import decode_result
from sqlml.types import Feature, fold

MACRO_SUFFIXES = {
    "label": "",
    "proba": "_proba",
    "score": "_score",
    "samples": "_score",
    "transform": "_transform",
}


def build_expression(
    program: Program,
    output: str,
    column: int | None = None,
    inputs: Mapping[str, str] | None = None,
    dialect: Dialect = DUCKDB,
) -> str:
    """Return the SQL expression of the model's `output`, or of one `column` of the output.

    `inputs` maps features to the SQL that feeds them, which the result may repeat. By default, the
    column of the same name feeds a feature. Raises BackendError if an operator has no SQL
    equivalent, or if the SQL would be too long.
    """
    part_program = fold_casts_into_trees(prepare_output(program, output, column).program)
    if inputs is None:
        inputs = {name: dialect.quote_name(name) for name in part_program.inputs}
    input_sql = {name: [inputs[name]] for name in part_program.inputs}
    sql = print_sql(part_program, output, input_sql, dialect)
    output_type = part_program.output_type(output)
    if output == "transform" and output_type.width == 1 and output_type.dtype != "float64":
        sql = f"CAST({sql} AS DOUBLE)"  # Class numbers are integers.
    is_list = output in ("proba", LEAF) and column is None and output_type.width == 1
    return dialect.array([sql]) if is_list else sql


def export_macros(program: Program, name: str, options: Mapping[str, Any] | None = None) -> str:
    """Return the statements that create a macro for each output of the model named `name`.

    The options on_null, on_unknown and positive_class change the results. Raises BackendError if
    SQL cannot express the model. Raises ConfigError if on_null is 'null' and the columns in which
    the model rejects NULL cannot be determined.
    """
    options = options or {}
    categories = find_known_categories(options, program)
    if categories:
        program = accept_unknown_as_missing(program)
    if len(program.labels) > 1:
        raise BackendError("macros do not support models of several targets; export to ONNX")
    statements = []
    for output in program.outputs:
        if output not in MACRO_SUFFIXES:
            continue
        part_program = prepare_output(program, output).program
        used_features = [f for f in program.features if f.name in part_program.inputs]
        parameters = ", ".join(DUCKDB.quote_name(f.name) for f in used_features)
        macro_name = DUCKDB.quote_name(name + MACRO_SUFFIXES[output])
        positive_index = None
        if output == "proba" and options.get("positive_class") is not None:
            positive_index = find_label(program.labels[0], options["positive_class"])
        if positive_index is None:
            value_sql = decode_result(build_expression(program, output), program, output, None)
        else:
            value_sql = build_expression(program, output, positive_index)
        bound_inputs = {f.name: _bind_parameter(f) for f in used_features}
        bound_inputs = replace_unknown_with_null(bound_inputs, categories)
        null_features = sorted(find_null_inputs(options, program) & bound_inputs.keys())
        value_sql = build_null_if(build_missing_test(bound_inputs, null_features), value_sql)
        statements.append(f"CREATE OR REPLACE MACRO {macro_name}({parameters}) AS {value_sql};\n")
    return "\n".join(statements)


MAX_LEVELS = 2000
"""The maximum number of distinct scores of a calibration in a macro, which compares them all."""


def export_calibrated_macro(program: Program, name: str, options: Mapping[str, Any]) -> str:
    """Return the statement that creates `<name>_interval` or `<name>_set` of a calibrated model.

    The last parameter is the coverage. Raises BackendError if SQL cannot express the model, or if
    it was calibrated on too many rows.
    """
    num_levels = sum(n.attrs["edges"].size for n in program.nodes if n.op == "search_sorted")
    if num_levels > MAX_LEVELS:
        raise BackendError(f"it was calibrated on more than {MAX_LEVELS:,} rows")
    output = next(name for name in CALIBRATED_OUTPUTS if name in program.outputs)
    used_inputs = prepare_output(program, output).program.inputs.keys() - {COVERAGE}
    used_features = [feature for feature in program.features if feature.name in used_inputs]
    names = {fold(feature.name) for feature in used_features}
    coverage = "coverage" if "coverage" not in names else "requested_coverage"
    inputs = {f.name: DUCKDB.quote_name(f.name) for f in used_features} | {COVERAGE: coverage}
    expression = build_expression(program, output, inputs=inputs)
    value_sql = decode_result(expression, program, output, None)
    bound_inputs = {f.name: _bind_parameter(f) for f in used_features}
    null_features = sorted(find_null_inputs(options, program) & bound_inputs.keys())
    value_sql = build_null_if(build_missing_test(bound_inputs, null_features), value_sql)
    parameters = [DUCKDB.quote_name(f.name) for f in used_features]
    parameters.append(f"{coverage} := {DEFAULT_COVERAGE!r}")
    macro_name = DUCKDB.quote_name(f"{name}_{output}")
    return f"CREATE OR REPLACE MACRO {macro_name}({', '.join(parameters)}) AS {value_sql};\n"


def _bind_parameter(feature: Feature) -> BoundInput:
    """Return the SQL that reads a feature from a macro's untyped parameter of the same name."""
    name = DUCKDB.quote_name(feature.name)
    if feature.kind == "number":
        return BoundInput(f"CAST({name} AS DOUBLE)", "DOUBLE")
    return BoundInput(name, "VARCHAR")
