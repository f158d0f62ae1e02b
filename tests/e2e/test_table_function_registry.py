"""The registry of table functions against the syntax of each, and against what each returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sqlml
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.planner.table_functions.table_function_registry import ANY, TABLE_FUNCTIONS

CALLS = {
    "predict": "ml_predict(MODEL m, TABLE t)",
    "evaluate": "ml_evaluate(MODEL m, TABLE t, label := 'y')",
    "confusion_matrix": "ml_confusion_matrix(MODEL m, TABLE t, label := 'y')",
    "roc_curve": "ml_roc_curve(MODEL m, TABLE t, label := 'y')",
    "pr_curve": "ml_pr_curve(MODEL m, TABLE t, label := 'y')",
    "calibration_curve": "ml_calibration_curve(MODEL m, TABLE t, label := 'y')",
    "lift": "ml_lift(MODEL m, TABLE t, label := 'y')",
    "describe_data": "ml_describe_data(TABLE t)",
    "validate_data_drift": "ml_validate_data_drift(TABLE t, TABLE t)",
    "validate_data_skew": "ml_validate_data_skew(MODEL m, TABLE t)",
    "explain_predict": "ml_explain_predict(MODEL m, TABLE t)",
    "global_explain": "ml_global_explain(MODEL m, TABLE t)",
    "permutation_importance": "ml_permutation_importance(MODEL m, TABLE t, label := 'y')",
    "partial_dependence": "ml_partial_dependence(MODEL m, TABLE t, 'a')",
    "feature_importance": "ml_feature_importance(MODEL m)",
    "weights": "ml_weights(MODEL m)",
    "tree": "ml_tree(MODEL trees)",
    "training_info": "ml_training_info(MODEL m)",
    "feature_info": "ml_feature_info(MODEL m)",
    "trial_info": "ml_trial_info(MODEL m)",
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    """A session with a logistic regression `m`, a forest `trees` and a table `t`."""
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
        yield session


def test_each_syntax_has_a_writer() -> None:
    assert list(TABLE_FUNCTIONS) == list(FORMS) == list(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_columns_are_as_registered(con: sqlml.Session, name: str) -> None:
    columns = [row[0] for row in con.execute(f"SELECT * FROM {CALLS[name]}").description]
    registered = list(TABLE_FUNCTIONS[name].columns)
    if ANY in registered:
        position = registered.index(ANY)
        first, last = registered[:position], registered[position + 1 :]
        assert columns[:position] == first
        assert columns[len(columns) - len(last) :] == last
        assert len(columns) > len(first) + len(last)
    else:
        assert columns == registered
