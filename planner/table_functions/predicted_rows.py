"""The SQL of `ml_predict`: the rows, with columns for the prediction and its probabilities.

For PCA and autoencoders, the columns are those to which the rows are projected.

::

    FROM ml_predict(MODEL m, TABLE t)
    FROM (SELECT *, predict('m', *) AS predicted_label,
                 predict_proba('m', *) AS predicted_label_probs FROM t)
"""

from __future__ import annotations

from sqlml.catalog.small_models import FOLD
from sqlml.errors import BindError
from sqlml.planner.binding.requested_output import render_class
from sqlml.planner.program.result_sql import build_label_array
from sqlml.planner.table_functions.evaluated_model import EvaluatedModel
from sqlml.planner.table_functions.table_function_call import TableFunctionCall
from sqlml.planner.table_functions.unsupervised_rows import (
    build_nearest_centroids,
    has_distances,
)
from sqlml.types import fold


def build_predicted_rows(call: TableFunctionCall) -> tuple[str, str]:
    items = _list_items_by_row(call) if call.form.column else _list_items_of_model(call)
    return f"(SELECT {', '.join(['*', *items])} FROM ", ")"


def build_cross_predicted_rows(call: TableFunctionCall) -> tuple[str]:
    """Return the query of ml_cross_predict: each training row, predicted by its fold's model."""
    rows_sql, dialect, model = call.find_fold_rows(), call.dialect, call.model
    name = f"{model.name}/{model.version}@folds"
    reference = dialect.quote_string(name if model.database is None else f"{model.database}.{name}")
    column = f"predicted_{model.options.get('output', 'label')}"
    calls = {column: f"predict({reference}, *)"}
    if "proba" in model.program.outputs:
        calls[f"{column}_probs"] = f"predict_proba({reference}, *)"
    number = dialect.quote_name(FOLD)
    items = [
        f"CASE WHEN fold IS NOT NULL THEN {sql} END AS {dialect.quote_name(name)}"
        for name, sql in calls.items()
    ]
    numbered_sql = f"SELECT *, CAST(coalesce(fold, 1) AS DOUBLE) AS {number} FROM {rows_sql}"
    return (
        f"(SELECT {', '.join([dialect.star_without([number]), *items])} FROM ({numbered_sql} "
        "AS sqlml_folds) AS sqlml_rows)",
    )


def _list_items_by_row(call: TableFunctionCall) -> list[str]:
    """Return the select items of ml_predict for rows that each name a model.

    If some of these models have no probabilities, a rewrite rule removes the item for them.
    """
    form = call.form
    assert form.column is not None
    for option in form.options.keys() - {"unknown_model"}:
        raise call.error(
            f"option {option} goes with one model, as in ml_predict(MODEL m, TABLE t, ...)", option
        )
    reference = f"MODEL {call.sql[form.column.start : form.column.end]}"
    argument = ""
    unknown_model = form.options.get("unknown_model")
    if unknown_model is not None:
        if unknown_model.value not in ("error", "null"):
            raise call.error("option unknown_model takes 'error' or 'null'", "unknown_model")
        argument = f", unknown_model := '{unknown_model.value}'"
    return [
        f"predict({reference}, *{argument}) AS predicted_label",
        f"predict_proba({reference}, *{argument}) AS predicted_label_probs",
    ]


def _list_items_of_model(call: TableFunctionCall) -> list[str]:
    form, dialect = call.form, call.dialect
    call.check_trial()
    if "unknown_model" in form.options:
        raise call.error(
            "option unknown_model goes with a model per row, as in "
            "ml_predict(MODEL (shop_model), TABLE t)",
            "unknown_model",
        )
    outputs = call.model.program.outputs
    stem = _PROJECTED_COLUMNS.get(fold(call.model.origin.source))
    if stem is not None and "transform" in outputs and not form.options:
        return _list_projected_items(call, stem)
    if "label" not in outputs:
        message = (
            f"ml_predict returns predictions, and model {form.model!r} predicts nothing; use "
            "predict_score(...) or transform(...)"
        )
        raise BindError(message, call.sql, form.model_span.start)
    reference = dialect.quote_string(str(form.model))
    column = f"predicted_{call.model.options.get('output', 'label')}"
    prediction = f"predict({reference}, *)"
    if form.options.keys() & {"threshold", "class"}:
        evaluated = EvaluatedModel(form, call.model, dialect, call.sql)
        prediction = build_threshold_case(evaluated, reference)
    items = [f"{prediction} AS {dialect.quote_name(column)}"]
    if has_distances(call.model.program):
        call.reject_columns(("CENTROID_ID", "NEAREST_CENTROIDS_DISTANCE"))
        # BigQuery numbers centroids from 1.
        items.append(f"{dialect.operator('+', prediction, '1')} AS CENTROID_ID")
        items.append(f"{build_nearest_centroids(call)} AS NEAREST_CENTROIDS_DISTANCE")
    if "proba" in outputs:
        probabilities = dialect.quote_name(f"{column}_probs")
        items.append(f"predict_proba({reference}, *) AS {probabilities}")
    coverage = form.options.get("coverage")
    if coverage is not None:
        items += _list_calibrated_items(
            call, f"{reference}, *, coverage := {coverage.value!r}", column
        )
    return items


_PROJECTED_COLUMNS = {"autoencoder": "latent_col", "pca": "principal_component"}
"""Source of a model that projects rows -> the start of the names of its columns, as in BigQuery."""


def _list_projected_items(call: TableFunctionCall, stem: str) -> list[str]:
    dialect = call.dialect
    width = call.model.program.output_type("transform").width
    projected = f"transform({dialect.quote_string(str(call.form.model))}, *)"
    values = [dialect.at(projected, n) for n in range(1, width + 1)] if width > 1 else [projected]
    return [f"{value} AS {stem}_{n}" for n, value in enumerate(values, 1)]


def _list_calibrated_items(call: TableFunctionCall, arguments: str, column: str) -> list[str]:
    """Return the select items of the interval or set of a calibrated model."""
    quote, field = call.dialect.quote_name, call.dialect.field
    if call.require_calibration().output == "set":
        return [f"predict_set({arguments}) AS {quote(f'{column}_set')}"]
    interval = f"predict_interval({arguments})"
    ends = ("lower", "upper")
    return [f"{field(interval, end)} AS {quote(f'{column}_{end}')}" for end in ends]


def build_threshold_case(evaluated: EvaluatedModel, reference: str) -> str:
    if "threshold" not in evaluated.form.options:
        raise evaluated.error("option class goes with threshold", "class")
    name, dialect = evaluated.model.name, evaluated.dialect
    if evaluated.score_kind != "probabilities":
        raise evaluated.error(f"model {name!r} gives no probabilities", "threshold")
    if evaluated.task != "two classes" or evaluated.target_count > 1:
        message = f"option threshold needs a binary classifier, and model {name!r} is not one"
        raise evaluated.error(message, "threshold")
    positive_class = dialect.quote_string(render_class(evaluated.class_labels.values[1]))
    probability = f"predict_proba({reference}, *, class := {positive_class})"
    threshold = f"CAST({float(evaluated.form.options['threshold'].value)!r} AS DOUBLE)"
    classes = build_label_array(evaluated.class_labels, dialect)
    negative_label, positive_label = dialect.at(classes, "1"), dialect.at(classes, "2")
    return (
        f"CASE WHEN {probability} >= {threshold} THEN {positive_label} "
        f"WHEN {probability} IS NOT NULL THEN {negative_label} END"
    )
