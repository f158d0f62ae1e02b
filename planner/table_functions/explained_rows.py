"""The SQL of `ml_explain_predict` and `ml_global_explain`: contributions of the features.

::

    FROM ml_explain_predict(MODEL m, TABLE t)
    FROM (SELECT * EXCLUDE (sqlml_contributions), ... AS top_feature_attributions, ... FROM (
          SELECT *, predict('m', *) AS predicted_label,
                 map_values(explain('m', *, baseline := true)) AS sqlml_contributions FROM t))
"""

from __future__ import annotations

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.explaining.explained import needs_background
from sqlml.planner.binding.requested_output import find_label, render_class
from sqlml.planner.syntax.table_forms import TableForm
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel
from sqlml.planner.table_functions.predicted_rows import build_threshold_case
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

_MAX_FEATURES = 4096  # The maximum number of features in the result of one query.
_SAMPLED_ROWS, _BACKGROUND_ROWS = 1000, 100  # For models that are explained by samples.


def build_explained_rows(call: TableFunctionCall) -> tuple[str, str]:
    _require_single_target(call)
    form, model, dialect = call.form, call.model, call.dialect
    features = list(model.program.inputs)
    top_count = call.read_integer("top_k_features", 5, 1, _MAX_FEATURES)  # BigQuery's default.
    quote, contributions = dialect.quote_name, dialect.quote_name("sqlml_contributions")
    errors = quote("sqlml_errors") if "background" in form.options else None
    internal_columns = [contributions, *([] if errors is None else [errors])]
    top_attributions = _build_top_attributions(features, contributions, errors, top_count, dialect)
    items = [
        dialect.star_without(internal_columns),
        f"{top_attributions} AS top_feature_attributions",
        f"{dialect.at(contributions, len(features) + 1)} AS baseline_prediction_value",
        f"{dialect.summed(contributions)} AS prediction_value",
        "CAST(0 AS DOUBLE) AS approximation_error",
    ]
    calls = []
    reference = dialect.quote_string(str(form.model))
    if "label" in model.program.outputs:
        label = quote(f"predicted_{model.options.get('output', 'label')}")
        prediction = f"predict({reference}, *)"
        if "threshold" in form.options:
            evaluated = EvaluatedModel(form, model, dialect, call.sql)
            prediction = build_threshold_case(evaluated, reference)
        calls.append(f"{prediction} AS {label}")
    if "proba" in model.program.outputs and len(model.program.labels) == 1:
        calls.append(f"{_build_predict_proba_call(form, model, dialect)} AS probability")
    explain_call = _build_explain_call(form, dialect, "baseline := true")
    calls.append(f"{dialect.call('map_values', explain_call)} AS {contributions}")
    if errors is not None:
        explain_call = _build_explain_call(form, dialect, "standard_errors := true")
        calls.append(f"{dialect.call('map_values', explain_call)} AS {errors}")
    prefix = f"(SELECT {', '.join(items)} FROM (SELECT *, {', '.join(calls)} FROM "
    return prefix, ") AS sqlml_rows)"


def find_explained_rows(call: TableFunctionCall) -> str:
    """Return the held-out or else the training rows, for a call of ml_global_explain without rows.

    A model that is only explained against background rows is explained on the first training rows.
    """
    training_rows = call.find_training_rows()
    if training_rows is None:
        return call.find_held_out_rows()
    if needs_background(call.model.program):
        return f"(SELECT * FROM {training_rows} LIMIT {_SAMPLED_ROWS})"
    held_out = call.training is not None and call.training.held_out
    return call.find_held_out_rows() if held_out else training_rows


def _find_background(call: TableFunctionCall) -> str | None:
    """Return the first training rows as a background if the call needs one and names none."""
    if "background" in call.form.options or call.form.rows:
        return None
    if not needs_background(call.model.program):
        return None
    return f"(SELECT * FROM {call.find_training_rows()} LIMIT {_BACKGROUND_ROWS})"


def build_mean_contributions(call: TableFunctionCall) -> tuple[str, str]:
    _require_single_target(call)
    model, dialect = call.model, call.dialect
    features = list(model.program.inputs)
    if len(features) > _MAX_FEATURES:
        raise call.error(
            f"ml_global_explain takes models of at most {_MAX_FEATURES} features, and model "
            f"{model.name!r} has {len(features)}; average the contributions of some features, as "
            "in avg(abs(explain('m', *)['a']))"
        )
    positions = range(1, len(features) + 1)
    background = _find_background(call)
    flags = [] if background is None else [f"background := {background}"]
    explain_call = _build_explain_call(call.form, dialect, *flags)
    contributions = dialect.call("map_values", explain_call)
    magnitudes = [dialect.call("abs", dialect.at("contributions", k)) for k in positions]
    means = dialect.array([dialect.call("avg", magnitude) for magnitude in magnitudes])
    name_array = dialect.array([dialect.text(name) for name in features])
    feature_rows = ", ".join(f"({k})" for k in positions)
    return (
        "(SELECT feature, attribution FROM (WITH sqlml_explained AS (SELECT "
        f"{contributions} AS contributions FROM ",
        f"), sqlml_means AS (SELECT {means} AS means FROM sqlml_explained) "
        f"SELECT {dialect.at(name_array, 'place')} AS feature, {dialect.at('means', 'place')} AS "
        f"attribution, place FROM sqlml_means CROSS JOIN (VALUES {feature_rows}) AS places(place)"
        ") AS sqlml_means_by_feature ORDER BY attribution DESC, place)",
    )


def _require_single_target(call: TableFunctionCall) -> None:
    program = call.model.program
    width = program.output_type("label").width if "label" in program.outputs else 1
    if width > 1:
        raise call.error(
            f"model {call.model.name!r} predicts {width} values per row, but ml_{call.name} "
            "explains only one; explain('m', *) returns a MAP for each value"
        )


def _build_explain_call(form: TableForm, dialect: Dialect, *flags: str) -> str:
    arguments = [dialect.quote_string(str(form.model)), "*", *_build_class_argument(form, dialect)]
    arguments += flags
    if "background" in form.options:
        arguments.append(f"background := {form.options['background'].value}")
    if "permutations" in form.options:
        arguments.append(f"permutations := {form.options['permutations'].value!r}")
    return f"explain({', '.join(arguments)})"


def _build_class_argument(form: TableForm, dialect: Dialect) -> list[str]:
    if "class" not in form.options:
        return []
    value = form.options["class"].value
    class_sql = dialect.quote_string(value) if isinstance(value, str) else render_class(value)
    return [f"class := {class_sql}"]


def _build_predict_proba_call(form: TableForm, model: Model, dialect: Dialect) -> str:
    """Build the SQL of the probability of the requested, positive or else most probable class."""
    (labels,) = model.program.labels
    reference = dialect.quote_string(str(form.model))
    class_argument = _build_class_argument(form, dialect)
    positive_class = model.options.get("positive_class")
    if not class_argument and positive_class is None and len(labels) > 2:
        return dialect.greatest(dialect.call("map_values", f"predict_proba({reference}, *)"))
    if not class_argument:
        index = None if positive_class is None else find_label(labels, positive_class)
        label = labels.values[-1 if index is None else index]
        class_argument = [f"class := {dialect.quote_string(render_class(label))}"]
    return f"predict_proba({', '.join([reference, '*', *class_argument])})"


def _build_top_attributions(
    features: list[str], contributions: str, errors: str | None, top_count: int, dialect: Dialect
) -> str:
    """Build a SQL list of structs with the `top_count` largest absolute contributions of a row."""
    name_array = dialect.array([dialect.text(name) for name in features])
    positions = dialect.array([str(k) for k in range(1, len(features) + 1)])
    contribution = dialect.at(contributions, "sqlml_k")
    sql_by_field = {"attribution": contribution}
    if errors is not None:
        sql_by_field["standard_error"] = dialect.at(errors, "sqlml_k")
    size = dialect.negated(dialect.call("abs", contribution))
    sort_keys = dialect.struct({"size": size, "place": "sqlml_k", **sql_by_field})
    ordered = dialect.ordered(dialect.each(positions, "sqlml_k", sort_keys))
    feature = dialect.at(name_array, dialect.member("sqlml_e", "place"))
    fields = {field: dialect.member("sqlml_e", field) for field in sql_by_field}
    attribution = dialect.struct({"feature": feature, **fields})
    attributions = dialect.each(dialect.part(ordered, 1, top_count), "sqlml_e", attribution)
    return f"CASE WHEN {contributions} IS NOT NULL THEN {attributions} END"
