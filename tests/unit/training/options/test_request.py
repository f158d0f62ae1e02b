"""OPTIONS of training: names, types, and which fit which model."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lightgbm.basic import _ConfigAliases

from sqlml.errors import ConfigError, MissingColumnError
from sqlml.parsing.statements import Call
from sqlml.training.model_types import MODEL_TYPES, find_trainer
from sqlml.training.options.estimator_parameters import (
    ALLOWED,
    XGBOOST_EXTRAS,
    Candidates,
    Range,
    list_parameter_names,
)
from sqlml.training.options.request import Request, parse_request
from sqlml.training.options.splits import SplitRule

KEPT = ("positive_class", "backend")
BOOSTED = {"model_type": "boosted_tree_classifier", "label": "y"}
LINEAR = {"model_type": "linear_reg", "label": "y"}


def parse_options(**options: Any) -> Request:
    return parse_request(options, KEPT)


def test_parameters_are_the_librarys_own() -> None:
    request = parse_options(
        **BOOSTED, library="xgboost", max_depth=3, eta=0.5, positive_class="yes"
    )
    assert request.parameters == {
        "enable_categorical": True,
        "tree_method": "hist",
        "max_depth": 3,
        "learning_rate": 0.5,
        "random_state": 0,
    }
    assert request.stored_options == {"positive_class": "yes"}
    assert request.early_stopping_rounds == 10


@pytest.mark.parametrize(
    ("library", "depth", "rounds"),
    [
        ("xgboost", "max_depth", "n_estimators"),
        ("lightgbm", "max_depth", "n_estimators"),
        ("catboost", "depth", "iterations"),
        ("sklearn", "max_depth", "max_iter"),
    ],
)
def test_bigquerys_names_mean_the_same(library: str, depth: str, rounds: str) -> None:
    request = parse_options(
        **{"model_type": "BOOSTED_TREE_CLASSIFIER", "input_label_cols": ("y",)},
        library=library,
        max_tree_depth=3,
        learn_rate=0.2,
        max_iterations=50,
        data_split_method="SEQ",
        data_split_col="d",
        data_split_eval_fraction=0.1,
        auto_class_weights=True,
        early_stop=False,
    )
    assert request.parameters[depth] == 3 and request.parameters["learning_rate"] == 0.2
    assert request.parameters[rounds] == 50
    assert request.label == "y" and request.split == SplitRule("seq", 0.1, "d")
    assert request.class_weights == "balanced" and request.early_stopping_rounds is None


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (
            {"model_type": "dnn_classifier", "label": "y", "activation_fn": "RELU"},
            {"activation": "relu"},
        ),
        (
            {"model_type": "dnn_classifier", "label": "y", "optimizer": "ADAM"},
            {"optimizer": "adam"},
        ),
        ({"model_type": "dnn_regressor", "label": "y", "hidden_units": 3}, {"hidden_units": [3]}),
        ({"model_type": "pca", "pca_solver": "FULL"}, {"svd_solver": "full"}),
        ({"model_type": "kmeans", "kmeans_init_method": "KMEANS++"}, {"init": "k-means++"}),
        ({"model_type": "kmeans", "kmeans_init_method": "RANDOM"}, {"init": "random"}),
        ({"model_type": "kmeans", "distance_type": "EUCLIDEAN"}, {}),
        ({**LINEAR, "optimize_strategy": "AUTO_STRATEGY"}, {}),
        ({**BOOSTED, "booster_type": "DART"}, {"booster": "dart"}),
        ({**BOOSTED, "library": "lightgbm", "booster_type": "DART"}, {"boosting_type": "dart"}),
    ],
)
def test_bigquerys_words_are_the_librarys(
    options: dict[str, Any], parameters: dict[str, Any]
) -> None:
    assert parse_options(**options).parameters.items() >= parameters.items()


def test_bigquerys_names_of_sqlmls_own_options() -> None:
    assert parse_options(**BOOSTED, instance_weight_col="w").weight == "w"
    assert not parse_options(model_type="pca", scale_features=False).standardize


def test_searched_values_are_read_as_plain_ones_are() -> None:
    request = parse_options(
        **BOOSTED,
        booster_type=Call("hparam_candidates", (("GBTREE", "DART"),)),
        max_depth=Call("hparam_range", (2.0, 5)),
        eta=Call("hparam_range", (0, 1)),
    )
    assert request.searched == {
        "booster": Candidates(("gbtree", "dart")),
        "max_depth": Range(2, 5),
        "learning_rate": Range(0.0, 1.0),
    }
    assert isinstance(request.searched["learning_rate"].low, float)


def test_a_trial_has_its_own_regularisation() -> None:
    weights = {"l1_reg": 1, "l2_reg": Call("hparam_range", (0, 5))}
    request = parse_options(**LINEAR, **weights)
    assert request.trainer.path.endswith("ElasticNet")
    assert (
        request.make_parameters({"l2_reg": 3.0}).items() >= {"alpha": 4, "l1_ratio": 0.25}.items()
    )
    request = parse_options(model_type="logistic_reg", label="y", **weights)
    assert request.make_parameters({"l2_reg": 3.0}).items() >= {"C": 0.25, "l1_ratio": 0.25}.items()
    request = parse_options(model_type="logistic_reg", label="y", l2_reg=0)
    assert request.parameters["C"] == float("inf"), "no regularisation, as it says"


@pytest.mark.parametrize(
    ("options", "path", "parameters"),
    [
        ({}, "LinearRegression", {}),
        ({"l2_reg": 2}, "Ridge", {"alpha": 2.0}),
        ({"alpha": 0.5}, "Ridge", {"alpha": 0.5}),
        ({"l1_reg": 0.5}, "Lasso", {"alpha": 0.5}),
        ({"l1_reg": 1, "l2_reg": 3}, "ElasticNet", {"alpha": 4.0, "l1_ratio": 0.25}),
    ],
)
def test_regularisation_decides_the_linear_model(
    options: dict[str, Any], path: str, parameters: dict[str, Any]
) -> None:
    request = parse_options(model_type="linear_reg", label="y", **options)
    assert request.trainer.path.endswith(f".{path}")
    assert {k: v for k, v in request.parameters.items() if k != "random_state"} == parameters


def test_regularisation_of_logistic_regression() -> None:
    request = parse_options(model_type="logistic_reg", label="y", l1_reg=0.5, l2_reg=0.5)
    assert request.parameters["C"] == 1.0 and request.parameters["l1_ratio"] == 0.5
    assert request.parameters["solver"] == "saga"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "before AS; model types: linear_reg, logistic_reg"),
        ({"model_type": "boosted_tree_clasifier"}, "did you mean 'boosted_tree_classifier'"),
        ({"model_type": "ARIMA_PLUS"}, "'ARIMA_PLUS': .* extension anofox_forecast"),
        ({"model_type": "arima_plus_xreg"}, "SARIMAX of statsmodels"),
        ({"model_type": "MATRIX_FACTORIZATION"}, "implicit does in Python, and ALS in Spark"),
        ({"model_type": "automl_regressor"}, "FLAML or AutoGluon in Python"),
        ({"model_type": "transform_only"}, "create a view instead"),
        ({"model_type": "TENSORFLOW"}, "convert the model to ONNX with tf2onnx"),
        ({"model_type": "onnx", "label": "y"}, "CREATE MODEL m FROM 'path' reads them"),
        ({"model_type": "boosted_tree_classifier", "label": None}, "label must be the name of a"),
        ({**BOOSTED, "max_dept": 3}, "'max_dept' .* did you mean max_depth"),
        ({**BOOSTED, "max_depth": "deep"}, "max_depth must be an integer, not 'deep'"),
        ({**BOOSTED, "max_depth": True}, "max_depth must be an integer, not true"),
        ({**BOOSTED, "max_depth": 3, "max_tree_depth": 3}, "max_depth and max_tree_depth are the"),
        (
            {**BOOSTED, "num_clusters": 3},
            "num_clusters belongs to kmeans models, not to boosted",
        ),
        (
            {**BOOSTED, "hidden_units": (3,)},
            "hidden_units belongs to dnn, .* and autoencoder models",
        ),
        ({**BOOSTED, "num_leaves": 3}, "by lightgbm and catboost, not to those by xgboost; set"),
        ({**BOOSTED, "library": "torch"}, "does not train .* libraries: xgboost, lightgbm"),
        ({**BOOSTED, "library": 3}, "library must be the name of a library, not 3"),
        ({**BOOSTED, "eval_fraction": 1.5}, "at least 0 and below 1"),
        ({**BOOSTED, "eval_fraction": "x"}, "eval_fraction must be a number, not 'x'"),
        ({**BOOSTED, "split": "randm"}, "unknown split 'randm'; splits: auto, random"),
        ({**BOOSTED, "split": "seq"}, "split 'seq' needs the option split_column"),
        ({**BOOSTED, "split_column": "d"}, "split_column needs split = 'seq' or 'custom'"),
        ({**BOOSTED, "split": "none", "eval_fraction": 0.2}, "'none' takes no eval_fraction"),
        ({**BOOSTED, "split": "custom", "split_column": "y"}, "cannot be two of"),
        ({**BOOSTED, "early_stopping_rounds": 0}, "at least 1"),
        ({**BOOSTED, "early_stop": False, "early_stopping_rounds": 3}, "needs early_stop = true"),
        ({**BOOSTED, "class_weights": "all"}, r"must be 'balanced' or a list"),
        ({**BOOSTED, "class_weights": (("a",),)}, r"must be 'balanced' or a list"),
        ({**BOOSTED, "class_weights": (("a", -1),)}, "weight of class 'a' must be a positive"),
        ({**BOOSTED, "group": "q"}, "no option group; only boosted_tree_ranker models have it"),
        (
            {**BOOSTED, "encoding": "hot"},
            "encoding must be 'one_hot', 'dummy' or 'target', not 'hot'",
        ),
        (
            {**BOOSTED, "category_encoding_method": "DUMMY_ENCODING"},
            "no option encoding = 'dummy'; linear_reg and logistic_reg have it",
        ),
        ({"model_type": "pca", "instance_weight_col": "w"}, "no option instance_weight_col"),
        ({**BOOSTED, "encoding": "one_hot"}, "encodes categories itself"),
        ({**BOOSTED, "leaks": "no"}, "leaks must be 'warn' or 'error'"),
        ({**BOOSTED, "callbacks": 1}, "unknown option 'callbacks'"),
        (
            {**BOOSTED, "library": "lightgbm", "input_model": "/etc/x"},
            "unknown option 'input_model'",
        ),
        ({**BOOSTED, "library": "catboost", "train_dir": "/tmp"}, "unknown option 'train_dir'"),
        ({**LINEAR, "early_stopping_rounds": 3}, "does not stop early"),
        ({**LINEAR, "warm_start": True}, "warm_start can only be false: ALTER MODEL ... RETRAIN"),
        ({"model_type": "linear_reg", "label": "y", "class_weights": "balanced"}, "no classes"),
        ({"model_type": "linear_reg", "label": "y", "l1_reg": -1}, "l1_reg must be a number of at"),
        ({"model_type": "kmeans", "label": "y"}, "no option label: they take no label"),
        ({"model_type": "boosted_tree_ranker", "label": "y"}, "needs the option group"),
        ({"model_type": "pca", "weight": "w"}, "no option weight"),
        ({**BOOSTED, "eta": "x"}, "option eta must be a number, not 'x'"),
        ({**BOOSTED, "eta": (("yes",),)}, r"option eta must be a number, not \[\['yes'\]\]"),
        (
            {**BOOSTED, "eval_fraction": Call("hparam_range", (0.1, 0.2))},
            r"option eval_fraction must be a number, not hparam_range\(0.1, 0.2\)",
        ),
        ({**BOOSTED, "seed": -1}, "option seed must be an integer from 0 to 4294967295, not -1"),
        ({**BOOSTED, "random_state": 2**32}, "option random_state must be an integer from 0 to"),
        ({**BOOSTED, "n_estimators": -5}, "option n_estimators must be at least 1, not -5"),
        ({"model_type": "pca", "num_principal_components": 0}, "components must be at least 1"),
        ({"model_type": "pca", "pca_explained_variance_ratio": 1}, "above 0 and below 1, not 1"),
        ({"model_type": "kmeans", "num_clusters": 0}, "num_clusters must be at least 1, not 0"),
        ({"model_type": "kmeans", "kmeans_init_method": "CUSTOM"}, "init_method: k-means cannot"),
        ({"model_type": "kmeans", "kmeans_init_col": "a"}, "kmeans_init_col: k-means cannot start"),
        ({"model_type": "kmeans", "distance_type": "COSINE"}, "measures Euclidean distances"),
        ({**LINEAR, "checkpoint": "/tmp"}, "linear_reg .* cannot resume .*; leave out checkpoint"),
        (
            {**BOOSTED, "library": "sklearn", "checkpoint": "/tmp"},
            "by sklearn cannot resume from a checkpoint; libraries that can: xgboost, lightgbm$",
        ),
        (
            {"model_type": "dnn_classifier", "label": "y", "activation_fn": "CRELU"},
            "option activation_fn must be one of elu, gelu, .*, not 'CRELU'",
        ),
        ({"model_type": "pca", "pca_solver": "X"}, "option pca_solver must be one of arpack, "),
        ({**BOOSTED, "monotone_constraints": (1, 2)}, "must be -1, 0 or 1 for each feature"),
        (
            {**BOOSTED, "max_depth": Call("hparam_candidates", ((3, "a"),))},
            "option max_depth must be an integer, not 'a'",
        ),
        (
            {**BOOSTED, "max_tree_depth": Call("hparam_range", (2.5, 5))},
            "option max_tree_depth must be an integer, not 2.5",
        ),
        (
            {**BOOSTED, "booster_type": Call("hparam_range", (1, 2))},
            "booster_type must be a string: search for it with hparam_candidates",
        ),
        (
            {**LINEAR, "l2_reg": Call("hparam_range", (-1, 2))},
            "option l2_reg must be a number of at least 0, not -1",
        ),
        (
            {**BOOSTED, "max_depth": Call("hparam_range", (2, 5)), "split": "none"},
            "a search compares metrics on held-out rows, but no rows are held out: set split",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_request(options, KEPT)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({**LINEAR, "max_iterations": 5, "LEARN_RATE": 0.1}, "max_iterations, learn_rate"),
        ({**LINEAR, "optimize_strategy": "NORMAL_EQUATION"}, "optimize_strategy"),
        ({**LINEAR, "early_stop": True, "model_registry": "v"}, "model_registry, early_stop"),
        ({**BOOSTED, "min_rel_progress": 0.1, "xgboost_version": "1.1"}, "min_rel.*, xgboost_v"),
        ({"model_type": "kmeans", "early_stop": True, "kms_key_name": "k"}, "kms.*, early_stop"),
        (
            {"model_type": "random_forest_regressor", "category_encoding_method": "label_encoding"},
            "category_encoding_method",
        ),
    ],
)
def test_bigquerys_options_without_an_effect_are_named_in_one_notice(
    options: dict[str, Any], names: str
) -> None:
    (notice,) = parse_options(**{name.lower(): value for name, value in options.items()}).notices
    assert re.fullmatch(f"options without an effect here: {names}.*", notice)


def test_an_option_with_an_effect_or_its_default_needs_no_notice() -> None:
    assert not parse_options(model_type="kmeans", min_rel_progress=0.1, early_stop=False).notices
    assert not parse_options(**BOOSTED, category_encoding_method="LABEL_ENCODING").notices
    assert parse_options(**BOOSTED, category_encoding_method="LABEL_ENCODING").encoding is None


def test_the_only_library_with_an_option_is_chosen() -> None:
    forest = {"model_type": "random_forest_classifier", "label": "y"}
    assert parse_options(**forest).library == "sklearn"
    request = parse_options(**forest, tree_method="HIST", num_parallel_tree=7)
    assert request.library == "xgboost" and request.parameters["n_estimators"] == 7
    assert parse_options(**BOOSTED, path_smooth=1.0).library == "lightgbm"


def test_a_column_called_label_is_the_label_by_default() -> None:
    request = parse_options(model_type="linear_reg")
    assert request.with_columns({"label": "LABEL", "x": "x"}).label == "LABEL"
    assert request.options["label"] == "label"
    with pytest.raises(MissingColumnError, match="needs the option label, or a column .* label; "):
        request.with_columns({"x": "x"})


def test_a_model_without_a_label_holds_out_no_rows_unless_asked_to() -> None:
    assert parse_options(model_type="kmeans").split == SplitRule("none")
    assert parse_options(model_type="kmeans", eval_fraction=0.1).split == SplitRule("auto", 0.1)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_trainer_is_there(model_type: str) -> None:
    for library in MODEL_TYPES[model_type].trainers:
        name, trainer = find_trainer(model_type, library)
        assert name == library and hasattr(trainer.estimator_class(), "fit")
        assert set(trainer.names.values()).isdisjoint(trainer.names)


NAMES_OF_LIGHTGBM = _ConfigAliases._get_all_param_aliases()


@pytest.mark.parametrize("first", sorted(NAMES_OF_LIGHTGBM.keys() - ALLOWED["lightgbm"]))
def test_a_parameter_of_lightgbm_is_refused_by_all_of_its_names(first: str) -> None:
    trainer = find_trainer("boosted_tree_classifier", "lightgbm")[1]
    assert not list_parameter_names(trainer) & set(NAMES_OF_LIGHTGBM[first])


@pytest.mark.parametrize(
    "name", ["workers", "mlist", "fs", "config_file", "model_in", "save_period"]
)
def test_files_and_machines_are_no_options(name: str) -> None:
    for library in ("lightgbm", "xgboost", "catboost", "sklearn"):
        with pytest.raises(ConfigError, match=f"unknown option '{name}'"):
            parse_options(**BOOSTED, library=library, **{name: "1"})


def test_every_parameter_is_one_of_a_list() -> None:
    assert not ALLOWED["lightgbm"] - NAMES_OF_LIGHTGBM.keys() - {"importance_type"}
    for kind in MODEL_TYPES.values():
        for trainer in kind.trainers.values():
            if trainer.missing_packages or trainer.package == "lightgbm":
                continue
            assert list_parameter_names(trainer) <= ALLOWED[trainer.package] | XGBOOST_EXTRAS


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"eta": 0.5}, {"learning_rate": 0.5}),
        ({"max_leaf": 7}, {"num_leaves": 7}),
        ({"lambda": 2.0}, {"reg_lambda": 2.0}),
        ({"num_rounds": 9}, {"n_estimators": 9}),
        ({"bagging": 0.5, "bagging_freq": 1}, {"subsample": 0.5, "subsample_freq": 1}),
        ({"device": "cpu"}, {"device_type": "cpu"}),
    ],
)
def test_other_names_of_lightgbm_are_not_ignored(given: Any, parameter: Any) -> None:
    request = parse_options(**BOOSTED, library="lightgbm", **given)
    assert request.parameters.items() >= parameter.items()
    assert not request.parameters.keys() & (given.keys() - parameter.keys())


def test_two_names_of_one_parameter_are_refused() -> None:
    with pytest.raises(ConfigError, match="options eta and shrinkage_rate are the same"):
        parse_options(**BOOSTED, library="lightgbm", eta=0.5, shrinkage_rate=0.1)


@pytest.mark.parametrize(
    "name", ["objective", "boosting_type", "metric", "monotone_constraints_method"]
)
@pytest.mark.parametrize("text", ["binary machines=1.1.1.1:1", "binary\tfs=/x", "a\nfs=b", "fs=c"])
def test_a_text_for_lightgbm_sets_no_other_parameter(name: str, text: str) -> None:
    for value in (text, (text,), Call("hparam_candidates", (("binary", text),))):
        with pytest.raises(ConfigError, match=f"option {name} must be a (word of|string)"):
            parse_options(**BOOSTED, library="lightgbm", **{name: value})
