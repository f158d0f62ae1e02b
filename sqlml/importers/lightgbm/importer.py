"""Import LightGBM's estimators, Boosters and text files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers import boosters
from sqlml.importers.boosters import REGRESSION, Objective
from sqlml.importers.frame import (
    Frame,
    Leaf,
    Outputs,
    Schema,
    build_labels,
    encode_categories,
    encode_columns,
    to_category_array,
)
from sqlml.importers.lightgbm.document import LightGBMModel, LinearLeaves, parse_ranges, read_lines
from sqlml.importers.lightgbm.forest import PLAIN, TRUNCATED, ZERO, ZERO_MISSING, build_forest
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels

OBJECTIVES: Mapping[str, Objective] = {
    **dict.fromkeys("regression regression_l1 huber fair quantile mape".split(), REGRESSION),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), Objective("regression", "exp")),
    "cross_entropy": Objective("regression", "sigmoid"),
    "cross_entropy_lambda": Objective("regression", "log1p_exp"),
    **dict.fromkeys(("lambdarank", "rank_xendcg", "custom"), REGRESSION),
    "binary": Objective("binary", "sigmoid"),
    "multiclass": Objective("multiclass", "softmax"),
    "multiclassova": Objective("multiclass", "sigmoid"),
}
"""Maps an objective's name to the task and the link. Source: LightGBM src/objective."""

MAX_FIRST_CLASS_SCORE = 1.5 * 2.0**-53
"""The largest score whose float64 sigmoid is not above 0.5, because exp(-x) + 1 rounds to 2.

Scores are compared instead of probabilities, so labels do not depend on the last bit of exp."""


@dataclass(frozen=True, slots=True)
class _ScaledObjective:
    """An objective with options.

    Scores are multiplied by `scale` before a sigmoid, and squared if `is_squared` (reg_sqrt)."""

    name: str
    objective: Objective
    scale: float
    is_squared: bool

    @classmethod
    def parse(cls, words: tuple[str, ...]) -> _ScaledObjective:
        """Parse the words of the "objective" line; a custom objective has no words."""
        name = words[0] if words else "custom"
        objective = boosters.find_objective(OBJECTIVES, name, "LightGBM objective")
        scale = 1.0
        for option in words[1:]:
            key, _, value = option.partition(":")
            if key == "sigmoid":
                try:
                    scale = float(value)
                except ValueError:
                    scale = -1.0
                if not 0 < scale < float("inf"):
                    raise ArtifactError(f"sigmoid:{value} of the LightGBM model is not a number")
        return cls(name, objective, scale, "sqrt" in words[1:])

    def scale_score(self, builder: Builder, score: Value) -> Value:
        if self.scale == 1.0:
            return score
        return builder.op("mul", score, builder.constant(np.array([self.scale])))

    def predict(self, builder: Builder, score: Value) -> Value:
        """Convert scores to the predictions of Booster.predict, float64 (n, K)."""
        if self.objective.link == "sigmoid":
            score = self.scale_score(builder, score)
        if self.objective.link == "identity" and self.is_squared:
            return builder.op("mul", builder.op("sign", score), builder.op("square", score))
        return boosters.apply_link(builder, self.objective.link, score)


def read_schema(model: Any) -> Schema:
    is_file = isinstance(model, LightGBMModel)
    names = tuple(model.names if is_file else map(str, _require_booster(model).feature_name()))
    return boosters.build_schema(names, tuple(f"Column_{i}" for i in range(len(names))))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import LGBMClassifier, with the labels of `classes_`."""
    parsed_model = _read_model(model)
    if callable(model.objective):
        raise UnsupportedModelError(
            "an LGBMClassifier with a custom objective has no labels or probabilities; import "
            "its booster_ instead"
        )
    return _import_classes(parsed_model, frame, build_labels(model.classes_))


def import_regressor(model: Any, frame: Frame) -> Outputs:
    return _import_regression(_read_model(model), frame)


def import_saved_model(model: LightGBMModel, frame: Frame) -> Outputs:
    """Import a model with all iterations; the labels of a classifier are 0 to k - 1."""
    if _ScaledObjective.parse(model.objective).objective.task == "regression":
        return _import_regression(model, frame)
    return _import_classes(model, frame, Labels("int64", tuple(range(max(model.outputs, 2)))))


def _require_booster(model: Any) -> Any:
    if not hasattr(model, "booster_") and hasattr(model, "get_params"):
        raise make_unfitted_error(model)
    return getattr(model, "booster_", model)


def _read_model(model: Any) -> LightGBMModel:
    booster = _require_booster(model)
    params = model.get_params() if booster is not model else {}
    if params.get("pred_early_stop"):
        reason = "pred_early_stop stops at a tree that depends on the row; set it to False"
        raise UnsupportedModelError(reason)
    # model_to_string keeps the whole text in memory three times; a file is read tree by tree.
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.txt")
        booster.save_model(str(path))
        with path.open(encoding="utf-8", newline="\n") as lines:
            return read_lines(lines)


def _import_regression(model: LightGBMModel, frame: Frame) -> Outputs:
    objective = _ScaledObjective.parse(model.objective)
    score = _build_score(model, frame)
    label = objective.predict(frame.builder, _average_trees(model, frame, score))
    return Outputs({"label": label, "score": score})


def _import_classes(model: LightGBMModel, frame: Frame, labels: Labels) -> Outputs:
    builder = frame.builder
    objective = _ScaledObjective.parse(model.objective)
    score = _build_score(model, frame)
    mean_score = _average_trees(model, frame, score)
    prediction = objective.predict(builder, mean_score)
    if model.outputs > 1:
        if len(labels) != model.outputs:
            raise UnsupportedModelError(
                f"the model has {model.outputs} outputs, but its labels had {len(labels)} "
                "distinct values; fit it without num_class, or on labels of as many classes"
            )
        return boosters.import_multiclass(builder, prediction, prediction, score, labels)
    if objective.name == "binary":
        scaled_score = objective.scale_score(builder, mean_score)
        label = boosters.label_above(builder, scaled_score, MAX_FIRST_CLASS_SCORE)
    else:
        first_class = builder.op("sub", builder.constant(np.ones(1)), prediction)
        label = boosters.label_above(builder, prediction, first_class)
    return boosters.import_binary(builder, label, prediction, score, labels)


def _average_trees(model: LightGBMModel, frame: Frame, score: Value) -> Value:
    """Divide the sum of the trees by the number of iterations if the model is a random forest."""
    num_iterations = model.nodes.leaf_counts.size // model.outputs
    if not model.is_average or num_iterations < 2:
        return score
    builder = frame.builder
    return builder.op("div", score, builder.constant(np.array([float(num_iterations)])))


def _build_score(model: LightGBMModel, frame: Frame) -> Value:
    boosters.check_width(frame, model.features, "LightGBM")
    categories = _assign_categories(model)
    forest = build_forest(model.nodes, model.features, model.outputs, frozenset(categories))
    builder = frame.builder
    blocks, features = list[Value](), list[int]()
    for treatment in (PLAIN, ZERO_MISSING, TRUNCATED):
        treated_features = [f for f, kind in forest.columns if kind == treatment]
        if not treated_features:
            continue
        values = _read_columns(frame, treated_features, categories)
        if treatment == ZERO_MISSING:
            magnitude = builder.op("abs", values)
            is_zero = builder.op("le", magnitude, builder.constant(np.array([ZERO])))
            values = builder.op("where", is_zero, builder.constant(np.array([np.nan])), values)
        elif treatment == TRUNCATED:
            values = builder.op("trunc", values)
        blocks.append(values)
        features += treated_features
    minima, maxima = parse_ranges([model.feature_infos[f] for f in features])
    stage_ends = np.arange(model.outputs, forest.ensemble.trees + 1, model.outputs)
    ensemble = forest.ensemble.with_stages(stage_ends, model.is_average)
    ensemble = replace(ensemble, input_least=minima, input_most=maxima)
    score = builder.op("tree_ensemble", builder.concat(blocks), **ensemble.attrs())
    if model.nodes.linear is None:
        return score
    return _add_linear_leaves(model, model.nodes.linear, frame, categories, score)


def _add_linear_leaves(
    model: LightGBMModel,
    linear: LinearLeaves,
    frame: Frame,
    categories: dict[int, Array],
    exit_leaves: Value,
) -> Value:
    """Build the sum of the linear models in the reached leaves, tree by tree.

    `exit_leaves` has the index of the reached leaf in each tree. Linear models read |x| <= ZERO
    as 0.
    """
    builder = frame.builder
    used_features = np.unique(linear.feature)
    x = _read_columns(frame, used_features.tolist() or [0], categories)
    zero = builder.constant(np.zeros(1))
    is_zero = builder.op("le", builder.op("abs", x), builder.constant(np.array([ZERO])))
    return builder.op(
        "linear_leaves",
        builder.op("cast", exit_leaves, dtype="int64"),
        builder.op("where", is_zero, zero, x),
        value=model.nodes.value,
        const=linear.const,
        begin=linear.begin.astype(np.int32),
        feature=np.searchsorted(used_features, linear.feature).astype(np.int32),
        weights=linear.weights,
        base=np.zeros(model.outputs),
        target=(np.arange(model.nodes.leaf_counts.size) % model.outputs).astype(np.int32),
    )


def _read_columns(frame: Frame, features: list[int], categories: dict[int, Array]) -> Value:
    encode = partial(encode_categories, dtype="float64")
    return encode_columns(frame, features, categories, encode, "float64")


def _assign_categories(model: LightGBMModel) -> dict[int, Array]:
    """Map the indices of features that were pandas category columns to the categories.

    LightGBM stores the lists of categories in the order of the category columns, but does not name
    the columns. Category columns are the categorical features, and features with ordered
    categories, which LightGBM treats as numbers.
    """
    category_lists, features = model.categories, list(model.categorical)
    if len(category_lists) > len(features):
        # Some categories are ordered. Any feature whose values could be codes is a candidate.
        max_count = max(map(len, category_lists))
        are_codes = [_could_be_codes(info, max_count) for info in model.feature_infos]
        features = [i for i, is_code in enumerate(are_codes) if is_code or i in model.categorical]
    counts = map(len, category_lists)
    infos = [model.feature_infos[i] for i in features]
    lists_match = len(infos) == len(category_lists) and all(map(_could_be_codes, infos, counts))
    if category_lists and not lists_match:
        raise UnsupportedModelError(
            "this LightGBM model was trained on pandas categories, and its text does not say on "
            "which columns; train on unordered categories and leave categorical_feature='auto'"
        )
    pairs = zip(features, category_lists, strict=False)
    return {i: to_category_array(values, model.names[i]) for i, values in pairs}


def _could_be_codes(info: str, num_codes: int) -> bool:
    if info == "none":
        return True
    try:
        values = [float(v) for v in info.strip("[]").split(":")]
    except ValueError:
        return False
    min_code = 0 if info.startswith("[") else -1
    return all(v.is_integer() and min_code <= v < num_codes for v in values)


FILE = "lightgbm file"

IMPORTERS: Mapping[str, Leaf] = {
    "lightgbm.sklearn.LGBMClassifier": import_classifier,
    "lightgbm.sklearn.LGBMRegressor": import_regressor,
    "lightgbm.sklearn.LGBMRanker": import_regressor,
    # `_read_model` calls save_model, which stops after the best iteration.
    "lightgbm.basic.Booster": lambda model, frame: import_saved_model(_read_model(model), frame),
    FILE: import_saved_model,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = dict.fromkeys(IMPORTERS, read_schema)
