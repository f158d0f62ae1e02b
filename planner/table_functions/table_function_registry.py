"""The registry of table functions, with a SQL builder for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlml.planner.syntax.table_forms import FORMS
from sqlml.planner.table_functions import (
    evaluation,
    explained_rows,
    model_tables,
    unsupervised_rows,
)
from sqlml.planner.table_functions.data_drift import build_drift, build_skew
from sqlml.planner.table_functions.describe_data import build_description
from sqlml.planner.table_functions.partial_dependence import build_partial_dependence
from sqlml.planner.table_functions.permutation_importance import build_permutation_importance
from sqlml.planner.table_functions.predicted_rows import (
    build_cross_predicted_rows,
    build_predicted_rows,
)
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

Builder = Callable[[TableFunctionCall], tuple[str, ...]]
"""Returns the SQL before, between and after a call's rows, or one piece if there are no rows."""

TABLE_FUNCTIONS: Mapping[str, Builder] = {
    "predict": build_predicted_rows,
    **dict.fromkeys(evaluation.BUILDERS, evaluation.build_evaluation),
    "detect_anomalies": unsupervised_rows.build_anomalies,
    "reconstruction_loss": unsupervised_rows.build_reconstruction_losses,
    "transform": unsupervised_rows.build_transformed_rows,
    "describe_data": build_description,
    "validate_data_drift": build_drift,
    "validate_data_skew": build_skew,
    "explain_predict": explained_rows.build_explained_rows,
    "global_explain": explained_rows.build_mean_contributions,
    "permutation_importance": build_permutation_importance,
    "partial_dependence": build_partial_dependence,
    "feature_importance": model_tables.build_feature_importance,
    "weights": model_tables.build_weights,
    "advanced_weights": model_tables.build_advanced_weights,
    "centroids": model_tables.build_centroids,
    "principal_components": model_tables.build_principal_components,
    "principal_component_info": model_tables.build_principal_component_info,
    "tree": model_tables.build_tree,
    "training_info": model_tables.build_training_info,
    "feature_info": model_tables.build_feature_info,
    "trial_info": model_tables.build_trial_info,
    "partitions": model_tables.build_partitions,
    "cross_validation": model_tables.build_cross_validation,
    "cross_predict": build_cross_predicted_rows,
}
"""Function name without `ml_` -> its SQL builder. `FORMS` has the syntax under the same names."""


def build_table_function(call: TableFunctionCall) -> tuple[str, ...]:
    """Return the SQL before, between and after the rows of a call.

    If the call has no rows, return one complete query instead. This query reads what the catalog
    records about the model, or evaluates the model on the rows that training held out.
    """
    build = TABLE_FUNCTIONS[call.name]
    if call.rows or FORMS[call.name].table_range == (0, 0):
        return build(call)
    asks_for_metrics = call.name == "evaluate" and call.form.options.keys() <= {"trial_id"}
    if asks_for_metrics and call.training is not None:
        call.check_trial()
        return model_tables.build_training_metrics(call)
    if call.name == "global_explain":
        rows = explained_rows.find_explained_rows(call)
    else:
        rows = call.find_held_out_rows()
    prefix, suffix = build(replace(call, rows=(rows,)))
    return (f"{prefix}{rows}{suffix}",)
