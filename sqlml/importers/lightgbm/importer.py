"""Importers of LightGBM's estimators, Booster and text files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.frame import (
    Frame,
    Outputs,
    Schema,
    category_array,
    category_codes,
    coded_columns,
    labels_of,
)
from sqlml.importers.lightgbm.document import LightGBMModel, LinearLeaves, ranges, read_lines
from sqlml.importers.lightgbm.forest import PLAIN, TRUNCATED, ZERO, ZERO_MISSING, forest_of
from sqlml.importers.model_checks import unfitted
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels

# What each objective of LightGBM does with the raw score (src/objective, ConvertOutput).


Output = Literal["identity", "sigmoid", "exp", "log1p_exp", "softmax"]
Task = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True, slots=True)
class Row:
    """`output` takes the raw score to the prediction."""

    output: Output
    task: Task


_IDENTITY = Row("identity", "regression")
_EXP = Row("exp", "regression")

OBJECTIVES: Mapping[str, Row] = MappingProxyType(
    {
        "regression": _IDENTITY,
        "regression_l1": _IDENTITY,
        "huber": _IDENTITY,
        "fair": _IDENTITY,
        "quantile": _IDENTITY,
        "mape": _IDENTITY,
        "poisson": _EXP,
        "gamma": _EXP,
        "tweedie": _EXP,
        "cross_entropy": Row("sigmoid", "regression"),
        "cross_entropy_lambda": Row("log1p_exp", "regression"),
        "lambdarank": _IDENTITY,
        "rank_xendcg": _IDENTITY,
        "custom": _IDENTITY,
        "binary": Row("sigmoid", "binary"),
        "multiclass": Row("softmax", "multiclass"),
        "multiclassova": Row("sigmoid", "multiclass"),
    }
)

HALF = 1.5 * 2.0**-53
"""Largest x whose float64 sigmoid is not above 0.5: below it exp(-x) + 1 rounds to 2."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A row with its options: `sigmoid` scales the score, `square` undoes reg_sqrt."""

    name: str
    row: Row
    sigmoid: float
    square: bool

    @classmethod
    def parse(cls, words: tuple[str, ...]) -> Objective:
        """From the words of the "objective" line; none for a custom objective.

        Raises:
            UnsupportedModelError: no row has that name.
            ArtifactError: a sigmoid that is not a positive number.
        """
        name = words[0] if words else "custom"
        row = OBJECTIVES.get(name)
        if row is None:
            raise UnsupportedModelError(
                f"LightGBM objective {name!r} is not covered; covered: {', '.join(OBJECTIVES)}"
            )
        sigmoid = 1.0
        for word in words[1:]:
            key, _, value = word.partition(":")
            if key == "sigmoid":
                try:
                    sigmoid = float(value)
                except ValueError:
                    sigmoid = -1.0
                if not 0 < sigmoid < float("inf"):
                    raise ArtifactError(f"sigmoid:{value} of the LightGBM model is not a number")
        return cls(name, row, sigmoid, "sqrt" in words[1:])

    def scaled(self, b: Builder, score: Value) -> Value:
        """The score times `sigmoid`."""
        if self.sigmoid == 1.0:
            return score
        return b.op("mul", score, b.constant(np.array([self.sigmoid])))

    def predict(self, b: Builder, score: Value) -> Value:
        """What Booster.predict makes of the score: (n, K) float64."""
        output = self.row.output
        if output == "sigmoid":
            return b.op("sigmoid", self.scaled(b, score))
        if output == "softmax":
            return b.op("softmax", score, sum_dtype="float64")
        if output == "exp":
            return b.op("exp", score)
        if output == "log1p_exp":
            return b.op("log1p", b.op("exp", score))
        if self.square:
            return b.op("mul", b.op("sign", score), b.op("square", score))
        return score


def schema(model: Any) -> Schema:
    """Return the columns of an estimator or Booster."""
    return _schema(tuple(str(n) for n in _booster(model).feature_name()))


def file_schema(model: LightGBMModel) -> Schema:
    """Return the columns of a text file."""
    return _schema(model.names)


def _schema(names: tuple[str, ...]) -> Schema:
    """Return the columns of a model, of which LightGBM numbers those that it got without names."""
    if names == tuple(f"Column_{i}" for i in range(len(names))):
        return Schema(None, len(names), names)
    return Schema(names, len(names))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """LGBMClassifier: labels as `classes_` has them."""
    text = _text(model)
    if callable(model.objective):
        raise UnsupportedModelError(
            "an LGBMClassifier with a custom objective has no labels or probabilities; import "
            "its booster_ instead"
        )
    objective = Objective.parse(text.objective)
    score = _score(text, frame)
    return _classes(text, objective, frame, score, labels_of(model.classes_))


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """LGBMRegressor and LGBMRanker."""
    text = _text(model)
    return _regression(text, Objective.parse(text.objective), frame, _score(text, frame))


def import_booster(model: Any, frame: Frame) -> Outputs:
    """A raw Booster, up to its best iteration; a classifier when its objective is one."""
    return import_file(_text(model), frame)


def import_file(model: LightGBMModel, frame: Frame) -> Outputs:
    """A text file: the iterations it holds; labels are 0 .. k-1."""
    objective = Objective.parse(model.objective)
    score = _score(model, frame)
    if objective.row.task == "regression":
        return _regression(model, objective, frame, score)
    labels = Labels("int64", tuple(range(max(model.outputs, 2))))
    return _classes(model, objective, frame, score, labels)


def _booster(model: Any) -> Any:
    if not hasattr(model, "booster_") and hasattr(model, "get_params"):
        raise unfitted(model)
    return getattr(model, "booster_", model)


def _text(model: Any) -> LightGBMModel:
    booster = _booster(model)
    params = model.get_params() if booster is not model else {}
    if params.get("pred_early_stop"):
        raise UnsupportedModelError(
            "pred_early_stop stops at a tree that depends on the row; set it to False"
        )
    # model_to_string would hold the whole text three times; a file is read tree by tree.
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.txt")
        booster.save_model(str(path))
        with path.open(encoding="utf-8", newline="\n") as lines:
            return read_lines(lines)


def _regression(model: LightGBMModel, objective: Objective, frame: Frame, score: Value) -> Outputs:
    """(n, K) values; K is above 1 for an objective of one's own with several outputs."""
    label = objective.predict(frame.builder, _averaged(model, frame, score))
    return Outputs({"label": label, "score": score})


def _classes(
    model: LightGBMModel, objective: Objective, frame: Frame, score: Value, labels: Labels
) -> Outputs:
    b = frame.builder
    averaged = _averaged(model, frame, score)
    prediction = objective.predict(b, averaged)
    if model.outputs > 1:
        if len(labels) != model.outputs:
            raise UnsupportedModelError(
                f"the model has {model.outputs} outputs, but its labels had {len(labels)} "
                "different values; fit it without num_class, or on labels of as many classes"
            )
        label = b.op("argmax", prediction, axis=1)
        return Outputs({"label": label, "proba": prediction, "score": score}, labels)
    if objective.name == "binary":
        # Comparing scores instead of probabilities keeps labels free of the last bit of exp.
        above = b.op("gt", objective.scaled(b, averaged), b.constant(np.array([HALF])))
    else:
        one = b.constant(np.ones(1))
        above = b.op("gt", prediction, b.op("sub", one, prediction))
    label = b.op("cast", above, dtype="int64")
    if len(labels) == 1:
        # All training rows had one class; predict_proba has a second column without a label.
        return Outputs({"label": label, "score": score}, labels)
    other = b.op("sub", b.constant(np.ones(1)), prediction)
    proba = b.op("concat", other, prediction)
    return Outputs({"label": label, "proba": proba, "score": score}, labels)


def _averaged(model: LightGBMModel, frame: Frame, score: Value) -> Value:
    """boosting=rf: predictions are of the mean, raw scores are the sum."""
    iterations = model.nodes.leaves.size // model.outputs
    if not model.average or iterations < 2:
        return score
    b = frame.builder
    return b.op("div", score, b.constant(np.array([float(iterations)])))


def _score(model: LightGBMModel, frame: Frame) -> Value:
    """The raw scores, (n, K) float64."""
    if frame.width != model.features:
        raise UnsupportedModelError(
            f"the LightGBM model reads {model.features} columns, but gets {frame.width}"
        )
    categories = _categories(model)
    forest = forest_of(model.nodes, model.features, model.outputs, frozenset(categories))
    b = frame.builder
    parts: list[Value] = []
    for treatment in (PLAIN, ZERO_MISSING, TRUNCATED):
        chosen = [f for f, t in forest.columns if t == treatment]
        if not chosen:
            continue
        x = _columns(frame, chosen, categories)
        if treatment == ZERO_MISSING:
            zero = b.op("le", b.op("abs", x), b.constant(np.array([ZERO])))
            x = b.op("where", zero, b.constant(np.array([np.nan])), x)
        elif treatment == TRUNCATED:
            x = b.op("trunc", x)
        parts.append(x)
    x = parts[0] if len(parts) == 1 else b.op("concat", *parts)
    read = [f for t in (PLAIN, ZERO_MISSING, TRUNCATED) for f, own in forest.columns if own == t]
    least, most = ranges([model.infos[f] for f in read])
    told = replace(forest.ensemble, input_least=least, input_most=most)
    score = b.op("tree_ensemble", x, **told.attrs())
    if model.nodes.linear is None:
        return score
    return _linear_leaves(model, model.nodes.linear, frame, categories, score)


def _linear_leaves(
    model: LightGBMModel,
    linear: LinearLeaves,
    frame: Frame,
    categories: dict[int, Array],
    leaves: Value,
) -> Value:
    """linear_tree=True: the outputs of the exit leaves' models, added up tree by tree.

    They too read |x| <= ZERO as 0 (include/LightGBM/tree.h, Tree::Predict).
    """
    b = frame.builder
    used = np.unique(linear.feature)
    x = _columns(frame, used.tolist() or [0], categories)
    zero = b.constant(np.zeros(1))
    tiny = b.op("le", b.op("abs", x), b.constant(np.array([ZERO])))
    trees = np.arange(model.nodes.leaves.size)
    return b.op(
        "linear_leaves",
        b.op("cast", leaves, dtype="int64"),
        b.op("where", tiny, zero, x),
        value=model.nodes.value,
        const=linear.const,
        begin=linear.begin.astype(np.int32),
        feature=np.searchsorted(used, linear.feature).astype(np.int32),
        weights=linear.weights,
        base=np.zeros(model.outputs),
        target=(trees % model.outputs).astype(np.int32),
    )


def _columns(frame: Frame, chosen: list[int], categories: dict[int, Array]) -> Value:
    codes = partial(category_codes, dtype="float64")
    return coded_columns(frame, chosen, categories, codes, "float64")


def _categories(model: LightGBMModel) -> dict[int, Array]:
    """Feature -> its pandas categories.

    LightGBM lists them in the order of the frame's category columns and does not say which
    columns those were: they are the categorical features, and ordered categories, which are
    trained as numbers. Raises UnsupportedModelError when that leaves more than one reading.
    """
    lists = model.categories
    chosen = list(model.categorical)
    if len(lists) > len(chosen):
        # Ordered categories among them: every column whose values could be codes is a candidate.
        most = max((len(c) for c in lists), default=0)
        chosen = [
            i
            for i, info in enumerate(model.infos)
            if i in model.categorical or _could_be_codes(info, most)
        ]
    fits = len(lists) == len(chosen) and all(
        _could_be_codes(model.infos[i], len(c)) for i, c in zip(chosen, lists, strict=True)
    )
    if lists and not fits:
        raise UnsupportedModelError(
            "this LightGBM model was trained on pandas categories, and its text does not say on "
            "which columns; train on unordered categories and leave categorical_feature='auto'"
        )
    return {
        i: category_array(values, model.names[i]) for i, values in zip(chosen, lists, strict=False)
    }


def _could_be_codes(info: str, count: int) -> bool:
    """Whether the values that a feature had in training are codes below `count`."""
    if info == "none":
        return True
    try:
        values = [float(v) for v in info.strip("[]").split(":")]
    except ValueError:
        return False
    low = 0 if info.startswith("[") else -1
    return all(v.is_integer() and low <= v < count for v in values)


FILE = "lightgbm file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "lightgbm.sklearn.LGBMClassifier": import_classifier,
        "lightgbm.sklearn.LGBMRegressor": import_regressor,
        "lightgbm.sklearn.LGBMRanker": import_regressor,
        "lightgbm.basic.Booster": import_booster,
        FILE: import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: file_schema if path == FILE else schema for path in IMPORTERS}
)
