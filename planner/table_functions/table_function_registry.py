"""The registry of table functions: the writer of the SQL of each, and the columns it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from sqlml.planner.syntax.table_forms import FORMS
from sqlml.planner.table_functions.data_drift import write_drift, write_skew
from sqlml.planner.table_functions.describe_data import write_description
from sqlml.planner.table_functions.evaluation import write_evaluation
from sqlml.planner.table_functions.explained_rows import (
    write_explained_rows,
    write_mean_contributions,
)
from sqlml.planner.table_functions.model_tables import (
    write_feature_importance,
    write_feature_info,
    write_training_info,
    write_training_metrics,
    write_tree,
    write_trial_info,
    write_weights,
)
from sqlml.planner.table_functions.partial_dependence import write_partial_dependence
from sqlml.planner.table_functions.permutation_importance import write_permutation_importance
from sqlml.planner.table_functions.predicted_rows import write_predicted_rows
from sqlml.planner.table_functions.table_function_call import TableFunctionCall

Writer = Callable[[TableFunctionCall], tuple[str, ...]]
"""Returns the SQL before, between and after the rows of a call; one piece if it has no rows."""

ANY = "..."
"""Stands for columns that depend on the model, on the rows or on the options."""

_DRIFT = (
    *("input", "metric", "value", "threshold", "is_anomaly", "psi", "jensen_shannon_divergence"),
    *("l_infinity", "kolmogorov_smirnov", "null_share_base", "null_share_study", "rows_base"),
    "rows_study",
)
_COUNTS = ("rows", "null_labels", "null_predictions")


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A table function: how its SQL is written, and what it returns.

    Attributes:
        write: the writer.
        columns: the columns of the result, in order; `ANY` stands for any number of them. Columns
            of the option `by`, or `target` and `class`, may precede those of an evaluation.
        write_stored: the writer for a model that sqlml trained, if the call names neither rows nor
            options and the catalog holds the result.
    """

    write: Writer
    columns: tuple[str, ...]
    write_stored: Writer | None = None


TABLE_FUNCTIONS: Mapping[str, TableFunction] = MappingProxyType(
    {
        "predict": TableFunction(write_predicted_rows, (ANY,)),
        "evaluate": TableFunction(write_evaluation, (ANY, *_COUNTS), write_training_metrics),
        "confusion_matrix": TableFunction(write_evaluation, ("expected_label", ANY)),
        "roc_curve": TableFunction(
            write_evaluation,
            (
                *("threshold", "recall", "false_positive_rate", "true_positives"),
                *("false_positives", "true_negatives", "false_negatives"),
            ),
        ),
        "pr_curve": TableFunction(write_evaluation, ("threshold", "recall", "precision")),
        "calibration_curve": TableFunction(
            write_evaluation,
            ("bin", "lowest", "highest", "mean_predicted", "fraction_of_positives", "rows"),
        ),
        "lift": TableFunction(
            write_evaluation,
            (
                *("bin", "lowest", "highest", "rows", "positives", "response_rate", "lift"),
                *("cumulative_share", "cumulative_gain", "cumulative_lift"),
            ),
        ),
        "describe_data": TableFunction(
            write_description,
            (
                *("name", "type", "num_rows", "num_nulls", "num_zeros", "min", "max", "mean"),
                *("stddev", "median", "quantiles", "approx_unique", "avg_string_length"),
                "top_values",
            ),
        ),
        "validate_data_drift": TableFunction(write_drift, _DRIFT),
        "validate_data_skew": TableFunction(write_skew, _DRIFT),
        "explain_predict": TableFunction(
            write_explained_rows,
            (
                *(ANY, "top_feature_attributions", "baseline_prediction_value"),
                *("prediction_value", "approximation_error"),
            ),
        ),
        "global_explain": TableFunction(write_mean_contributions, ("feature", "attribution")),
        "permutation_importance": TableFunction(
            write_permutation_importance, ("feature", "importance", "stddev", "metric")
        ),
        "partial_dependence": TableFunction(
            write_partial_dependence, ("value", "mean", "low", "median", "high", "rows")
        ),
        "feature_importance": TableFunction(
            write_feature_importance,
            (
                *("feature", "importance", "importance_weight", "importance_gain"),
                "importance_cover",
            ),
        ),
        "weights": TableFunction(write_weights, ("processed_input", "category", "class", "weight")),
        "tree": TableFunction(
            write_tree,
            (
                *("tree", "node", "depth", "feature", "category", "operator", "threshold"),
                *("categories", "yes", "no", "missing", "cover", "gain", "output", "leaf_values"),
            ),
        ),
        "training_info": TableFunction(
            write_training_info, ("iteration", "loss", "eval_loss", "seconds")
        ),
        "feature_info": TableFunction(
            write_feature_info,
            (
                *("input", "type", "min", "max", "mean", "stddev", "category_count"),
                "null_count",
            ),
        ),
        "trial_info": TableFunction(
            write_trial_info,
            ("trial_id", "hyperparameters", "objective", "status", "seconds", "is_best"),
        ),
    }
)
"""Name without `ml_` -> table function. `FORMS` has the syntax of each, by the same names."""


def write_table_function(call: TableFunctionCall) -> tuple[str, ...]:
    """Return the SQL before, between and after the rows of a call.

    A call without rows is one piece: what the catalog knows about the model, or an evaluation of
    the rows that its training held out.

    Raises:
        BindError: the model, the rows or an option do not fit the function.
        UnknownModelError: there is no such model.
    """
    function = TABLE_FUNCTIONS[call.name]
    takes_no_rows = FORMS[call.name].table_range == (0, 0)
    if call.rows or takes_no_rows:
        return function.write(call)
    if function.write_stored and not call.form.options and call.training is not None:
        return function.write_stored(call)
    rows = call.find_held_out_rows()
    before, after = function.write(replace(call, rows=(rows,)))
    return (f"{before}{rows}{after}",)
