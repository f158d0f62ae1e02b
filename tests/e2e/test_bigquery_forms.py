"""BigQuery ML's documented forms: how many of 55 statements run here, and what the others say.

The statements are written after the reference pages and tutorials of BigQuery ML, over small
tables. They run in order in one session, because later statements use the models of earlier ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.linear_model import LinearRegression

import sqlml

pytestmark = pytest.mark.skipif(
    duckdb.__version__ < "2", reason="DuckDB 1.5 has no * EXCEPT (...) and no names in backticks"
)

TABLES = """
    ATTACH ':memory:' AS shop;
    CREATE TABLE shop.visits AS SELECT
        i AS id,
        ['Linux', 'Windows', NULL][(hash(i + 1000) % 3)::INTEGER + 1] AS os,
        hash(i + 2000) % 2 = 0 AS is_mobile,
        ['Chile', 'Ghana', 'Japan', 'Norway'][(hash(i + 3000) % 4)::INTEGER + 1] AS country,
        (hash(i + 4000) % 20)::BIGINT AS pageviews,
        CASE WHEN hash(i + 5000) % 10 > 0 THEN hash(i + 6000) % 1000 / 10 END::DOUBLE AS seconds,
        (pageviews + hash(i + 7000) % 8 > 14)::BIGINT AS bought
    FROM range(600) r(i);
    CREATE TABLE shop.penguins AS SELECT
        ['Adelie', 'Chinstrap', 'Gentoo'][(hash(i + 1000) % 3)::INTEGER + 1] AS species,
        ['Biscoe', 'Dream'][(hash(i + 2000) % 2)::INTEGER + 1] AS island,
        35 + hash(i + 3000) % 200 / 10 + length(species) AS culmen_length_mm,
        13 + hash(i + 4000) % 80 / 10 AS culmen_depth_mm,
        180 + hash(i + 5000) % 50 AS flipper_length_mm,
        ['MALE', 'FEMALE'][(hash(i + 6000) % 2)::INTEGER + 1] AS sex,
        20 * flipper_length_mm + 100 * length(species) + hash(i + 7000) % 300 AS body_mass_g
    FROM range(300) r(i);
"""

How = Literal["as it is", "changed", "refused"]
"""The way in which a statement runs.

It runs as it is, or with changed quotes or changed names of tables or files, or is refused with a
sentence that says what to write instead.
"""


@dataclass(frozen=True)
class Form:
    """A statement; `text` occurs in the names of its columns, or in the message of its error.

    In `sql`, {folder} stands for a folder of the test.
    """

    sql: str
    how: How = "as it is"
    text: str = ""


FORMS: dict[str, Form] = {
    "a column called label": Form(
        """CREATE OR REPLACE MODEL `shop`.`visit_model` OPTIONS(model_type='logistic_reg') AS
        SELECT IF(pageviews > 12, 1, 0) AS label, IFNULL(os, '') AS os, is_mobile AS is_mobile,
            IFNULL(country, '') AS country, IFNULL(seconds, 0) AS seconds
        FROM `shop`.`visits` WHERE id BETWEEN 0 AND 499""",
        "changed",
    ),
    "evaluate a query": Form(
        """SELECT * FROM ML.EVALUATE(MODEL shop.visit_model, (
        SELECT IF(pageviews > 12, 1, 0) AS label, IFNULL(os, '') AS os, is_mobile,
            country, IFNULL(seconds, 0) AS seconds FROM shop.visits WHERE id >= 500))""",
        text="roc_auc",
    ),
    "predict by country": Form(
        """SELECT country, SUM(predicted_label) AS total FROM ML.PREDICT(MODEL shop.visit_model, (
        SELECT IFNULL(os, '') AS os, is_mobile, IFNULL(country, '') AS country,
            IFNULL(seconds, 0) AS seconds FROM shop.visits))
        GROUP BY country ORDER BY total DESC LIMIT 10""",
        text="total",
    ),
    "predict with a threshold": Form(
        """SELECT * FROM ML.PREDICT(MODEL shop.visit_model, (
        SELECT IFNULL(os, '') AS os, is_mobile, country, IFNULL(seconds, 0) AS seconds
        FROM shop.visits), STRUCT(0.55 AS threshold))""",
        text="predicted_label_probs",
    ),
    "roc_curve": Form("SELECT * FROM ML.ROC_CURVE(MODEL shop.visit_model)", text="recall"),
    "roc_curve with thresholds": Form(
        """SELECT * FROM ML.ROC_CURVE(MODEL shop.visit_model, (
        SELECT IF(pageviews > 12, 1, 0) AS label, IFNULL(os, '') AS os, is_mobile, country,
            IFNULL(seconds, 0) AS seconds FROM shop.visits), [0.4, 0.5, 0.6])""",
        text="recall",
    ),
    "confusion_matrix": Form(
        """SELECT * FROM ML.CONFUSION_MATRIX(MODEL shop.visit_model, (
        SELECT IF(pageviews > 12, 1, 0) AS label, IFNULL(os, '') AS os, is_mobile, country,
            IFNULL(seconds, 0) AS seconds FROM shop.visits), STRUCT(0.2 AS threshold))""",
        text="expected_label",
    ),
    "training_info": Form(
        "SELECT * FROM ML.TRAINING_INFO(MODEL shop.visit_model) ORDER BY iteration DESC",
        text="loss",
    ),
    "feature_info": Form("SELECT * FROM ML.FEATURE_INFO(MODEL shop.visit_model)", text="stddev"),
    "weights": Form("SELECT * FROM ML.WEIGHTS(MODEL shop.visit_model)", text="weight"),
    "weights with standardize": Form(
        "SELECT * FROM ML.WEIGHTS(MODEL shop.visit_model, STRUCT(true AS standardize))",
        text="weight",
    ),
    "linear regression": Form(
        """CREATE OR REPLACE MODEL shop.penguin_model OPTIONS(model_type = 'linear_reg',
            input_label_cols = ['body_mass_g'], enable_global_explain = TRUE,
            optimize_strategy = 'NORMAL_EQUATION', calculate_p_values = FALSE)
        AS SELECT * FROM shop.penguins WHERE body_mass_g IS NOT NULL"""
    ),
    "explain_predict": Form(
        """SELECT * FROM ML.EXPLAIN_PREDICT(MODEL shop.penguin_model, (
        SELECT * FROM shop.penguins WHERE island = 'Biscoe'), STRUCT(3 AS top_k_features))""",
        text="top_feature_attributions",
    ),
    "global_explain": Form(
        "SELECT * FROM ML.GLOBAL_EXPLAIN(MODEL shop.penguin_model)",
        text="attribution",
    ),
    "p-values": Form(
        """CREATE OR REPLACE MODEL shop.p_model OPTIONS (model_type = 'linear_reg',
            input_label_cols = ['body_mass_g'], calculate_p_values = true,
            category_encoding_method = 'dummy_encoding')
        AS SELECT * FROM shop.penguins""",
    ),
    "advanced_weights": Form(
        "SELECT * FROM ML.ADVANCED_WEIGHTS(MODEL shop.p_model)",
        text="p_value",
    ),
    "kmeans": Form(
        """CREATE OR REPLACE MODEL shop.groups OPTIONS (model_type = 'kmeans', num_clusters = 4,
            kmeans_init_method = 'kmeans++', distance_type = 'euclidean', early_stop = TRUE,
            min_rel_progress = 0.001, standardize_features = TRUE)
        AS SELECT * EXCEPT (id, bought) FROM shop.visits"""
    ),
    "predict clusters": Form(
        """SELECT CENTROID_ID, country FROM ML.PREDICT(MODEL shop.groups, (
        SELECT * FROM shop.visits WHERE country = 'Chile'))""",
        text="CENTROID_ID",
    ),
    "centroids": Form(
        "SELECT * FROM ML.CENTROIDS(MODEL shop.groups) ORDER BY centroid_id",
        text="categorical_value",
    ),
    "anomalies of kmeans": Form(
        """SELECT * FROM ML.DETECT_ANOMALIES(MODEL shop.groups, STRUCT(0.02 AS contamination),
        TABLE shop.visits)""",
        text="normalized_distance",
    ),
    "pca": Form(
        """CREATE OR REPLACE MODEL shop.components OPTIONS (model_type = 'PCA',
            num_principal_components = 2, scale_features = FALSE, pca_solver = 'FULL')
        AS SELECT * EXCEPT (species) FROM shop.penguins"""
    ),
    "predict components": Form(
        "SELECT * FROM ML.PREDICT(MODEL shop.components, TABLE shop.penguins)",
        text="principal_component_2",
    ),
    "principal_components": Form(
        "SELECT * FROM ML.PRINCIPAL_COMPONENTS(MODEL shop.components)",
        text="numerical_value",
    ),
    "principal_component_info": Form(
        "SELECT * FROM ML.PRINCIPAL_COMPONENT_INFO(MODEL shop.components)",
        text="eigenvalue",
    ),
    "boosted trees": Form(
        """CREATE OR REPLACE MODEL shop.tree_model OPTIONS (MODEL_TYPE = 'BOOSTED_TREE_CLASSIFIER',
            BOOSTER_TYPE = 'GBTREE', NUM_PARALLEL_TREE = 1, MAX_ITERATIONS = 5,
            TREE_METHOD = 'HIST', EARLY_STOP = FALSE, SUBSAMPLE = 0.85, L2_REG = 0.1,
            MIN_SPLIT_LOSS = 0, COLSAMPLE_BYTREE = 1.0, XGBOOST_VERSION = '1.1',
            AUTO_CLASS_WEIGHTS = TRUE, DATA_SPLIT_METHOD = 'RANDOM',
            DATA_SPLIT_EVAL_FRACTION = 0.2, MODEL_REGISTRY = 'VERTEX_AI',
            VERTEX_AI_MODEL_VERSION_ALIASES = ['first', 'tuned'],
            INPUT_LABEL_COLS = ['species'])
        AS SELECT * FROM shop.penguins"""
    ),
    "evaluate the held-out rows": Form(
        """SELECT roc_auc, CASE WHEN roc_auc > .8 THEN 'good' END
        FROM ML.EVALUATE(MODEL shop.tree_model)""",
        text="roc_auc",
    ),
    "feature_importance": Form(
        "SELECT * FROM ML.FEATURE_IMPORTANCE(MODEL shop.tree_model)", text="importance_gain"
    ),
    "boosted regression": Form(
        """CREATE OR REPLACE MODEL shop.dart OPTIONS (model_type = 'BOOSTED_TREE_REGRESSOR',
            booster_type = 'DART', dart_normalize_type = 'TREE', max_iterations = 5,
            learn_rate = 0.3, max_tree_depth = 4, min_tree_child_weight = 1,
            category_encoding_method = 'LABEL_ENCODING', early_stop = TRUE,
            min_rel_progress = 0.01, enable_global_explain = TRUE, data_split_method = 'NO_SPLIT',
            input_label_cols = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "random forest": Form(
        """CREATE MODEL IF NOT EXISTS shop.forest OPTIONS (
            MODEL_TYPE = 'RANDOM_FOREST_CLASSIFIER', NUM_PARALLEL_TREE = 10, TREE_METHOD = 'HIST',
            EARLY_STOP = FALSE, SUBSAMPLE = 0.85, MAX_TREE_DEPTH = 6,
            INPUT_LABEL_COLS = ['species'])
        AS SELECT * FROM shop.penguins"""
    ),
    "forest regression": Form(
        """CREATE MODEL shop.forest_regression OPTIONS (MODEL_TYPE = 'RANDOM_FOREST_REGRESSOR',
            NUM_PARALLEL_TREE = 10, TREE_METHOD = 'HIST', COLSAMPLE_BYNODE = 0.8,
            MIN_REL_PROGRESS = 0.01, ENABLE_GLOBAL_EXPLAIN = TRUE,
            INPUT_LABEL_COLS = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "dnn": Form(
        """CREATE OR REPLACE MODEL shop.dnn OPTIONS (MODEL_TYPE = 'DNN_CLASSIFIER',
            ACTIVATION_FN = 'RELU', BATCH_SIZE = 16, DROPOUT = 0.1, EARLY_STOP = FALSE,
            HIDDEN_UNITS = [16, 8], INPUT_LABEL_COLS = ['species'], LEARN_RATE = 0.001,
            MAX_ITERATIONS = 3, OPTIMIZER = 'ADAGRAD')
        AS SELECT * FROM shop.penguins"""
    ),
    "dnn regression": Form(
        """CREATE OR REPLACE MODEL shop.dnn_regression OPTIONS (MODEL_TYPE = 'DNN_REGRESSOR',
            ACTIVATION_FN = 'TANH', HIDDEN_UNITS = [8], MAX_ITERATIONS = 3, TF_VERSION = '2.8.0',
            INTEGRATED_GRADIENTS_NUM_STEPS = 20, INPUT_LABEL_COLS = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "wide and deep": Form(
        """CREATE OR REPLACE MODEL shop.wide OPTIONS (
            MODEL_TYPE = 'DNN_LINEAR_COMBINED_CLASSIFIER', ACTIVATION_FN = 'RELU',
            BATCH_SIZE = 16, DROPOUT = 0.1, EARLY_STOP = FALSE, HIDDEN_UNITS = [16, 8],
            INPUT_LABEL_COLS = ['species'], LEARN_RATE = 0.001, MAX_ITERATIONS = 3,
            OPTIMIZER = 'ADAGRAD')
        AS SELECT * FROM shop.penguins"""
    ),
    "wide and deep regression": Form(
        """CREATE OR REPLACE MODEL shop.wide_regression OPTIONS (
            MODEL_TYPE = 'DNN_LINEAR_COMBINED_REGRESSOR', HIDDEN_UNITS = [8],
            MAX_ITERATIONS = 3, L2_REG = 0.01, INPUT_LABEL_COLS = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "autoencoder": Form(
        """CREATE OR REPLACE MODEL shop.encoder OPTIONS (model_type = 'autoencoder',
            activation_fn = 'relu', batch_size = 8, dropout = 0.1, hidden_units = [8, 2, 8],
            learn_rate = 0.001, l1_reg_activation = 0.0001, max_iterations = 3,
            optimizer = 'adam')
        AS SELECT * FROM shop.penguins"""
    ),
    "predict latent columns": Form(
        "SELECT * FROM ML.PREDICT(MODEL shop.encoder, TABLE shop.penguins)",
        text="latent_col_1",
    ),
    "reconstruction_loss": Form(
        "SELECT * FROM ML.RECONSTRUCTION_LOSS(MODEL shop.encoder, TABLE shop.penguins)",
        text="mean_absolute_error",
    ),
    "anomalies of an autoencoder": Form(
        """SELECT * FROM ML.DETECT_ANOMALIES(MODEL shop.encoder, STRUCT(0.02 AS contamination),
        TABLE shop.penguins)""",
        text="mean_squared_error",
    ),
    "an ONNX file": Form(
        """CREATE OR REPLACE MODEL shop.imported OPTIONS (
            MODEL_TYPE = 'ONNX', MODEL_PATH = '{folder}/line.onnx')""",
        "changed",
    ),
    "predict with ONNX": Form(
        """SELECT * FROM ML.PREDICT(MODEL shop.imported, (
        SELECT culmen_length_mm AS X_0, culmen_depth_mm AS X_1 FROM shop.penguins))""",
        text="predicted_",
    ),
    "TRANSFORM": Form(
        """CREATE MODEL shop.transformed TRANSFORM (
            ML.FEATURE_CROSS(STRUCT(island AS island, sex AS sex)) AS crossed,
            ML.QUANTILE_BUCKETIZE(flipper_length_mm, 3) OVER () AS bucket,
            ML.POLYNOMIAL_EXPAND(STRUCT(culmen_length_mm AS l, culmen_depth_mm AS d), 2) AS poly,
            ML.ONE_HOT_ENCODER(species, 'most_frequent', 10, 1) OVER () AS species, body_mass_g)
        OPTIONS (model_type = 'linear_reg', input_label_cols = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "ML.TRANSFORM": Form(
        "SELECT * FROM ML.TRANSFORM(MODEL shop.transformed, TABLE shop.penguins)",
        text="crossed",
    ),
    "a search": Form(
        """CREATE MODEL shop.searched OPTIONS (MODEL_TYPE = 'LINEAR_REG', NUM_TRIALS = 1,
            MAX_PARALLEL_TRIALS = 2, HPARAM_TUNING_ALGORITHM = 'VIZIER_DEFAULT',
            HPARAM_TUNING_OBJECTIVES = ['R2_SCORE'], L1_REG = HPARAM_RANGE(0, 20),
            L2_REG = HPARAM_CANDIDATES([0, 0.1, 1, 10]), DATA_SPLIT_METHOD = 'RANDOM',
            INPUT_LABEL_COLS = ['body_mass_g'])
        AS SELECT * FROM shop.penguins"""
    ),
    "trial_info": Form(
        "SELECT * FROM ML.TRIAL_INFO(MODEL shop.searched) ORDER BY trial_id",
        text="trial_id",
    ),
    "predict with a trial": Form(
        """SELECT * FROM ML.PREDICT(MODEL shop.searched, TABLE shop.penguins,
        STRUCT(1 AS trial_id))""",
        text="predicted",
    ),
    "export": Form("EXPORT MODEL shop.dart OPTIONS (URI = '{folder}/dart.onnx')", "changed"),
    "alter": Form(
        """ALTER MODEL IF EXISTS shop.dart SET OPTIONS (
            description = 'weights of penguins', labels = [('team', 'zoo'), ('stage', 'test')])"""
    ),
    "drop": Form("DROP MODEL IF EXISTS shop.dart"),
    "min_max_scaler in a query": Form(
        """SELECT f, ML.MIN_MAX_SCALER(f) OVER () AS output
        FROM UNNEST([1, 2, 3, 4, 5]) AS f ORDER BY f""",
        text="output",
    ),
    "bucketize in a query": Form(
        """SELECT ML.BUCKETIZE(2.5, [1, 2, 3]) AS bucket,
            ML.NGRAMS(['a', 'b', 'c'], [2, 3], '#') AS ngrams""",
        text="bucket",
    ),
    "polynomial_expand in a query": Form(
        """SELECT ML.POLYNOMIAL_EXPAND(STRUCT(2 AS f1, 3 AS f2)) AS output,
            ML.NORMALIZER([4.0, 1.0, 2.0, 2.0, 0.0]) AS normal""",
        text="normal",
    ),
    "ARIMA_PLUS": Form(
        """CREATE OR REPLACE MODEL shop.series OPTIONS (model_type = 'ARIMA_PLUS',
            time_series_timestamp_col = 'day', time_series_data_col = 'pageviews')
        AS SELECT DATE '2026-01-01' + id::INTEGER AS day, pageviews FROM shop.visits""",
        "refused",
        "anofox",
    ),
    "MATRIX_FACTORIZATION": Form(
        """CREATE MODEL shop.ratings OPTIONS (model_type = 'matrix_factorization',
            user_col = 'os', item_col = 'country', rating_col = 'pageviews')
        AS SELECT os, country, pageviews FROM shop.visits""",
        "refused",
        "implicit",
    ),
    "AUTOML": Form(
        """CREATE MODEL shop.automl OPTIONS (model_type = 'AUTOML_CLASSIFIER', budget_hours = 1.0,
            input_label_cols = ['species']) AS SELECT * FROM shop.penguins""",
        "refused",
        "AutoGluon",
    ),
    "TENSORFLOW": Form(
        "CREATE MODEL shop.tf OPTIONS (MODEL_TYPE = 'TENSORFLOW', MODEL_PATH = 'saved/*')",
        "refused",
        "ONNX",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """The columns and rows of a statement, or its error."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    folder = tmp_path_factory.mktemp("files")
    x = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 5.0]])
    line = to_onnx(LinearRegression().fit(x, x @ [2.0, 3.0]), x)
    (folder / "line.onnx").write_bytes(line.SerializeToString())
    with sqlml.connect() as con:
        con.execute(TABLES)
        yield {name: run(con, form, folder) for name, form in FORMS.items()}


def run(con: sqlml.Session, form: Form, folder: Path) -> Outcome:
    try:
        result = con.execute(form.sql.replace("{folder}", str(folder)))
        columns = tuple(column[0] for column in result.description or ())
        return Outcome(columns, tuple(result.fetchall()) if columns else ())
    except (sqlml.errors.SqlmlError, duckdb.Error) as error:
        return Outcome(error=str(error))


@pytest.mark.parametrize("name", FORMS)
def test_a_form_runs_or_says_what_to_write(outcomes: dict[str, Outcome], name: str) -> None:
    form, outcome = FORMS[name], outcomes[name]
    if form.how in ("as it is", "changed"):
        assert outcome.error is None, outcome.error
        assert form.text in " ".join(outcome.columns)
    else:
        assert form.text in (outcome.error or "it ran")


def test_how_many_forms_run() -> None:
    counts = Counter(form.how for form in FORMS.values())
    assert len(FORMS) == 55 and counts["refused"] <= 5
    assert counts["as it is"] + counts["changed"] >= 50


def test_numbers(outcomes: dict[str, Outcome]) -> None:
    """Check some results, because a form that runs may still mean something else."""
    predicted = [row[-1] for row in outcomes["predict with ONNX"].rows]
    lengths = [row[0] for row in outcomes["predict with ONNX"].rows]
    depths = [row[1] for row in outcomes["predict with ONNX"].rows]
    expected = 2 * np.array(lengths, float) + 3 * np.array(depths, float)
    assert np.allclose(np.array(predicted, float), expected, rtol=1e-5)
    assert [row[-1] for row in outcomes["min_max_scaler in a query"].rows] == [
        0,
        0.25,
        0.5,
        0.75,
        1,
    ]
    (bucket, ngrams) = outcomes["bucketize in a query"].rows[0]
    assert (bucket, ngrams) == ("bin_3", ["a#b", "b#c", "a#b#c"])
    notices = [value for name, value in outcomes["boosted regression"].rows if name == "notice"]
    names = "min_rel_progress, enable_global_explain"
    assert notices[0] == f"options without an effect here: {names}"
    model_types = [row[1] for row in outcomes["random forest"].rows if row[0] == "model_type"]
    assert model_types == ["random_forest_classifier by xgboost"]
