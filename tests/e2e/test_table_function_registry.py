"""The registry of table functions against the syntax of each, and against what each returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sqlml
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.planner.table_functions.table_function_registry import TABLE_FUNCTIONS

CALLS = {
    "predict": "ml_predict(MODEL m, TABLE t)",
    "evaluate": "ml_evaluate(MODEL m, TABLE t, label := 'y')",
    "confusion_matrix": "ml_confusion_matrix(MODEL m, TABLE t, label := 'y')",
    "roc_curve": "ml_roc_curve(MODEL m, TABLE t, label := 'y')",
    "pr_curve": "ml_pr_curve(MODEL m, TABLE t, label := 'y')",
    "calibration_curve": "ml_calibration_curve(MODEL m, TABLE t, label := 'y')",
    "lift": "ml_lift(MODEL m, TABLE t, label := 'y')",
    "detect_anomalies": "ml_detect_anomalies(MODEL groups, TABLE t, contamination := 0.1)",
    "reconstruction_loss": "ml_reconstruction_loss(MODEL components, TABLE t)",
    "transform": "ml_transform(MODEL components, TABLE t)",
    "describe_data": "ml_describe_data(TABLE t)",
    "validate_data_drift": "ml_validate_data_drift(TABLE t, TABLE t)",
    "validate_data_skew": "ml_validate_data_skew(MODEL m, TABLE t)",
    "explain_predict": "ml_explain_predict(MODEL m, TABLE t)",
    "global_explain": "ml_global_explain(MODEL m, TABLE t)",
    "permutation_importance": "ml_permutation_importance(MODEL m, TABLE t, label := 'y')",
    "partial_dependence": "ml_partial_dependence(MODEL m, TABLE t, 'a')",
    "feature_importance": "ml_feature_importance(MODEL m)",
    "weights": "ml_weights(MODEL m)",
    "advanced_weights": "ml_advanced_weights(MODEL line)",
    "centroids": "ml_centroids(MODEL groups)",
    "principal_components": "ml_principal_components(MODEL components)",
    "principal_component_info": "ml_principal_component_info(MODEL components)",
    "tree": "ml_tree(MODEL trees)",
    "training_info": "ml_training_info(MODEL m)",
    "feature_info": "ml_feature_info(MODEL m)",
    "trial_info": "ml_trial_info(MODEL m)",
    "partitions": "ml_partitions(MODEL parts)",
    "cross_validation": "ml_cross_validation(MODEL folds)",
    "cross_predict": "ml_cross_predict(MODEL folds)",
}


ANY = "..."
"""Columns that depend on the model, on the rows or on the options."""

COLUMNS = {
    "predict": "...",
    "evaluate": "... rows null_labels null_predictions",
    "confusion_matrix": "expected_label ...",
    "roc_curve": (
        "threshold recall false_positive_rate true_positives false_positives true_negatives "
        "false_negatives"
    ),
    "pr_curve": "threshold recall precision",
    "calibration_curve": "bin lowest highest mean_predicted fraction_of_positives rows",
    "lift": (
        "bin lowest highest rows positives response_rate lift cumulative_share cumulative_gain "
        "cumulative_lift"
    ),
    "detect_anomalies": "is_anomaly normalized_distance CENTROID_ID a b y",
    "reconstruction_loss": "mean_absolute_error mean_squared_error mean_squared_log_error a b y",
    "transform": "b2 a",
    "describe_data": (
        "name type num_rows num_nulls num_zeros min max mean stddev median quantiles "
        "approx_unique avg_string_length top_values"
    ),
    "validate_data_drift": (
        "input metric value threshold is_anomaly psi jensen_shannon_divergence l_infinity "
        "kolmogorov_smirnov null_share_base null_share_study rows_base rows_study"
    ),
    "validate_data_skew": (
        "input metric value threshold is_anomaly psi jensen_shannon_divergence l_infinity "
        "kolmogorov_smirnov null_share_base null_share_study rows_base rows_study"
    ),
    "explain_predict": (
        "... top_feature_attributions baseline_prediction_value prediction_value "
        "approximation_error"
    ),
    "global_explain": "feature attribution",
    "permutation_importance": "feature importance stddev metric",
    "partial_dependence": "value mean low median high rows",
    "feature_importance": ("feature importance importance_weight importance_gain importance_cover"),
    "weights": "processed_input category class weight",
    "advanced_weights": "processed_input category weight standard_error p_value",
    "centroids": "centroid_id feature numerical_value categorical_value",
    "principal_components": "principal_component_id feature numerical_value categorical_value",
    "principal_component_info": (
        "principal_component_id eigenvalue explained_variance_ratio "
        "cumulative_explained_variance_ratio"
    ),
    "tree": (
        "tree node depth feature category operator threshold categories yes no missing cover "
        "gain output leaf_values leaf"
    ),
    "training_info": "iteration loss eval_loss seconds training_run learning_rate duration_ms",
    "feature_info": "input type min max mean stddev category_count null_count",
    "trial_info": "trial_id hyperparameters objective status seconds is_best",
    "partitions": "b rows held_out ... seconds",
    "cross_validation": "fold training_rows rows ...",
    "cross_predict": "a b y fold predicted_y predicted_y_probs",
}
"""The columns of each table function, in order."""


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    """A session with a model of each kind and a table `t`."""
    with sqlml.connect() as session:
        session.execute(
            "CREATE TABLE t AS SELECT CAST(i AS DOUBLE) AS a, i % 7 AS b, "
            "CASE WHEN i % 7 > i / 20 THEN 'yes' ELSE 'no' END AS y FROM range(100) AS r(i)"
        )
        for name, kind in (("m", "logistic_reg"), ("trees", "random_forest_classifier")):
            session.execute(
                f"CREATE MODEL {name} OPTIONS (model_type = '{kind}', label = 'y') "
                "AS SELECT * FROM t"
            )
        session.execute(
            "CREATE MODEL parts PARTITION BY b OPTIONS (model_type = 'linear_reg', label = 'a') "
            "AS SELECT a, b, y FROM t"
        )
        session.execute(
            "CREATE MODEL folds OPTIONS (model_type = 'logistic_reg', label = 'y', cv = 2) "
            "AS SELECT a, b, y FROM t"
        )
        session.execute(
            "CREATE MODEL line OPTIONS (model_type = 'linear_reg', label = 'a', "
            "calculate_p_values = true) AS SELECT a, b FROM t"
        )
        session.execute(
            "CREATE MODEL groups OPTIONS (model_type = 'kmeans', num_clusters = 2) "
            "AS SELECT a, b FROM t"
        )
        session.execute(
            "CREATE MODEL components TRANSFORM (2 * b AS b2, a) OPTIONS (model_type = 'pca') "
            "AS SELECT a, b FROM t"
        )
        yield session


def test_each_syntax_has_a_writer() -> None:
    assert list(TABLE_FUNCTIONS) == list(FORMS) == list(CALLS) == list(COLUMNS)


@pytest.mark.parametrize("name", CALLS)
def test_columns_are_as_listed(con: sqlml.Session, name: str) -> None:
    columns = [row[0] for row in con.execute(f"SELECT * FROM {CALLS[name]}").description]
    registered = COLUMNS[name].split()
    if ANY in registered:
        position = registered.index(ANY)
        first, last = registered[:position], registered[position + 1 :]
        assert columns[:position] == first
        assert columns[len(columns) - len(last) :] == last
        assert len(columns) > len(first) + len(last)
    else:
        assert columns == registered
