"""`export_sql`: a model as macros, which plain DuckDB runs without sqlml.

CREATE OR REPLACE MACRO "churn"("tenure", "charges") AS ..;        -- what predict gives
CREATE OR REPLACE MACRO "churn_proba"("tenure", "charges") AS ..;  -- what predict_proba gives
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlml.backends.sql import print_sql
from sqlml.errors import BackendError
from sqlml.front.lexer import quote_name
from sqlml.ir.program import Program
from sqlml.passes.fold_into_trees import fold_casts_into_trees
from sqlml.planner.build import prepare
from sqlml.planner.results import decoded

MACROS = {
    "label": "",
    "proba": "_proba",
    "score": "_score",
    "samples": "_score",
    "transform": "_transform",
}
"""Output -> what is put behind the model's name."""


def expression(
    program: Program,
    output: str,
    column: int | None = None,
    inputs: Mapping[str, str] | None = None,
) -> str:
    """One output (its column alone when `column` is given) as SQL.

    Args:
        inputs: for each feature what feeds it, cheap to write several times; by default a column
            of its name.

    Raises:
        BackendError: an operator of the model has no SQL, or there would be too much of it.
    """
    part = fold_casts_into_trees(prepare(program, output, column).program)
    made = print_sql(
        part,
        output,
        {name: [quote_name(name) if inputs is None else inputs[name]] for name in part.inputs},
    )
    listed = output == "proba" and column is None and part.output_type(output).width == 1
    return f"[{made}]" if listed else made


def export_sql(program: Program, name: str) -> str:
    """The statements that make the macros of all outputs.

    Raises:
        BackendError: the model has no form in SQL; the message says why.
    """
    if len(program.labels) > 1:
        raise BackendError("a model of several targets is not printed as SQL; export it as ONNX")
    statements = []
    for output in program.outputs:
        if output not in MACROS:
            continue
        part = prepare(program, output).program
        inputs = ", ".join(quote_name(f.name) for f in program.features if f.name in part.inputs)
        macro = quote_name(name + MACROS[output])
        made = decoded(expression(program, output), program, output, None)
        statements.append(f"CREATE OR REPLACE MACRO {macro}({inputs}) AS {made};\n")
    return "\n".join(statements)
