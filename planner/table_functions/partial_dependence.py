"""The SQL of `ml_partial_dependence`: predictions with one feature set to a value in all rows.

For each value of a grid, the result has the mean prediction (Friedman, "Greedy function
approximation", 2001, section 8.2) and quantiles of the predictions for individual rows (Goldstein
and others, "Peeking inside the black box", 2015).
"""

from __future__ import annotations

from sqlml.dialects import Dialect
from sqlml.planner.binding.requested_output import render_class
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.types import fold

_DEFAULT_POINTS, _MAX_POINTS = 20, 1000


def build_partial_dependence(call: TableFunctionCall) -> tuple[str, str]:
    evaluated, dialect = EvaluatedModel.of(call), call.dialect
    quote = dialect.quote_name
    feature = _find_feature(evaluated)
    points = call.read_integer("points", _DEFAULT_POINTS, 2, _MAX_POINTS)
    sql_by_column = {name: f"r.{quote(name)}" for name in call.model.used_columns}
    sql_by_column[feature] = f"g.{quote('value')}"
    arguments = ", ".join(f"{quote(name)} := {sql}" for name, sql in sql_by_column.items())
    prediction = _build_model_call(evaluated, arguments)
    column = quote(feature)
    position = dialect.operator("-", f"row_number() OVER (ORDER BY {column})", "1")
    count = dialect.operator("-", "count(*) OVER ()", "1")
    shares = {"low": 0.1, "median": 0.5, "high": 0.9}
    quantiles = ", ".join(f"{dialect.quantile('p', q)} AS {name}" for name, q in shares.items())
    prefix = "(SELECT * FROM (WITH sqlml_rows AS (SELECT * FROM "
    suffix = (
        f"), sqlml_values AS (SELECT {column} AS {quote('value')}, "
        f"{position} AS sqlml_place, {count} AS sqlml_count FROM (SELECT DISTINCT {column} FROM "
        f"sqlml_rows WHERE {column} IS NOT NULL) AS sqlml_distinct), "
        f"sqlml_grid AS (SELECT {quote('value')} FROM sqlml_values WHERE "
        f"{_build_grid_condition(points, dialect)}), "
        f"sqlml_scored AS (SELECT g.{quote('value')}, CAST({prediction} AS DOUBLE) AS p "
        "FROM sqlml_rows AS r CROSS JOIN sqlml_grid AS g) "
        f"SELECT {quote('value')}, {dialect.call('avg', 'p')} AS mean, {quantiles}, "
        f"{dialect.call('count', 'p')} AS {quote('rows')} FROM sqlml_scored "
        f"GROUP BY {quote('value')} ORDER BY {quote('value')}) AS sqlml_dependence)"
    )
    return prefix, suffix


def _find_feature(evaluated: EvaluatedModel) -> str:
    option = evaluated.form.options.get("feature")
    if option is None:
        raise evaluated.error(
            "name the feature, as in ml_partial_dependence(MODEL m, TABLE t, 'tenure')"
        )
    names = evaluated.model.used_columns
    feature = next((name for name in names if fold(name) == fold(option.value)), None)
    if feature is None:
        raise evaluated.error(
            f"model {evaluated.model.name!r} does not read {option.value!r}; it reads "
            f"{', '.join(map(repr, names[:20]))}",
            "feature",
        )
    evaluated.get_column_type(feature, "feature")
    return feature


def _build_grid_condition(max_points: int, dialect: Dialect) -> str:
    """Build the SQL condition that selects at most `max_points` evenly spaced distinct values."""
    steps = []
    for position in ("sqlml_place", dialect.operator("-", "sqlml_place", "1")):
        product = dialect.operator("*", position, str(max_points - 1))  # Integers are exact.
        share = dialect.divided(f"CAST({product} AS DOUBLE)", "sqlml_count", "DOUBLE")
        steps.append(dialect.call("floor", share))
    return f"sqlml_count < {max_points} OR sqlml_place = 0 OR {steps[0]} > {steps[1]}"


def _build_model_call(evaluated: EvaluatedModel, arguments: str) -> str:
    model, dialect = evaluated.model, evaluated.dialect
    program, reference = model.program, dialect.quote_string(str(evaluated.form.model))
    option = evaluated.form.options.get("class")
    if not program.labels:
        if "label" not in program.outputs or program.output_type("label").width > 1:
            raise evaluated.error(f"model {model.name!r} does not predict one value per row")
        if option is not None:
            raise evaluated.error(f"model {model.name!r} has no classes", "class")
        return f"predict({reference}, {arguments})"
    if "proba" not in program.outputs or len(program.labels) > 1:
        raise evaluated.error(f"model {model.name!r} gives no probabilities of one label per row")
    (labels,) = program.labels
    if option is None and model.options.get("positive_class") is None and len(labels) > 2:
        message = "name the class, as in class := 'yes', since the model has more than two"
        raise evaluated.error(message)
    label = dialect.quote_string(render_class(labels.values[evaluated.positive_index]))
    return f"predict_proba({reference}, {arguments}, class := {label})"
