"""The steps from margins to outputs, which XGBoost, LightGBM and CatBoost share.

The importer of a library reads the model, finds the objective in a table and computes the margins.
The functions `import_*` compute the outputs. Margins are (n, K), in float32 for XGBoost and in
float64 for the other libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

Task = Literal["regression", "binary", "multiclass", "multilabel"]
Link = Literal["identity", "exp", "log1p_exp", "sigmoid", "softmax", "step", "variance"]


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective of a boosting library.

    `link` converts margins to predictions. `base_link` converts XGBoost's base score, which is
    stored as a prediction, to a margin.
    """

    task: Task
    link: Link
    base_link: Literal["identity", "log", "logit"] = "identity"


REGRESSION = Objective("regression", "identity")
"""An objective that predicts the margin itself."""


def find_objective(
    objectives: Mapping[str, Objective], name: str, description: str = "objective"
) -> Objective:
    """Return the objective `name`; messages call an unknown name a `description`."""
    if name not in objectives:
        raise UnsupportedModelError(
            f"{description} {name!r} is not supported; supported: {', '.join(objectives)}"
        )
    return objectives[name]


def check_width(frame: Frame, num_features: int, library: str) -> None:
    if not num_features:
        raise UnsupportedModelError(f"the {library} model has no features")
    if frame.width != num_features:
        raise UnsupportedModelError(
            f"the {library} model reads {num_features} columns, but gets {frame.width}"
        )


def build_schema(names: tuple[str, ...] | None, default_names: tuple[str, ...]) -> Schema:
    """Return the schema of a model; `names` is None if the model was trained without names."""
    if names is None or names == default_names:
        return Schema(None, len(default_names), default_names)
    return Schema(names, len(names))


def apply_link(builder: Builder, link: Link, margin: Value) -> Value:
    """Convert margins to predictions of the same shape with the function `link`."""
    return _LINKS[link](builder, margin)


def _exponentiate_variance(builder: Builder, margin: Value) -> Value:
    """Convert margins, a mean and half of a log-variance, to means and variances."""
    op = builder.op
    mean = op("select", margin, indices=np.array([0], np.int64))
    half_log_variance = op("select", margin, indices=np.array([1], np.int64))
    log_variance = op("mul", half_log_variance, _make_constant(builder, 2.0, margin))
    return op("concat", mean, op("exp", log_variance))


_LINKS: Mapping[Link, Callable[[Builder, Value], Value]] = {
    "identity": lambda builder, margin: margin,
    "exp": lambda builder, margin: builder.op("exp", margin),
    "log1p_exp": lambda builder, margin: builder.op("log1p", builder.op("exp", margin)),
    "sigmoid": lambda builder, margin: builder.op("sigmoid", margin),
    "softmax": lambda builder, margin: builder.op("softmax", margin, sum_dtype="float64"),
    "step": lambda builder, margin: builder.cast(
        builder.op("gt", margin, _make_constant(builder, 0.0, margin)), margin.type.dtype
    ),
    "variance": _exponentiate_variance,
}


def import_regression(builder: Builder, link: Link, margin: Value) -> Outputs:
    return Outputs({"label": apply_link(builder, link, margin), "score": margin})


def import_binary(
    builder: Builder, label: Value, positive: Value, margin: Value, labels: Labels
) -> Outputs:
    """Return the outputs of a binary classifier.

    `positive` is the probability of the second class. If all training rows had the same class,
    there are no probabilities, because the second column would have no label.
    """
    if len(labels) == 1:
        return Outputs({"label": label, "score": margin}, labels)
    complement = builder.op("sub", _make_constant(builder, 1.0, positive), positive)
    proba = builder.op("concat", complement, positive)
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def import_multiclass(
    builder: Builder, class_scores: Value, proba: Value, margin: Value, labels: Labels
) -> Outputs:
    """Return the outputs of a multiclass classifier; the label has the highest class score."""
    label = builder.op("argmax", class_scores, axis=1)
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def import_multilabel(label: Value, proba: Value, margin: Value) -> Outputs:
    """Return the outputs of a multilabel classifier: labels 0 or 1, and their probabilities."""
    labels = (Labels("int64", (0, 1)),) * label.type.width
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def label_above(builder: Builder, x: Value, threshold: Value | float) -> Value:
    """Return int64 labels: 1 where `x` is above `threshold`, 0 elsewhere."""
    limit = _make_constant(builder, threshold, x) if isinstance(threshold, float) else threshold
    return builder.op("cast", builder.op("gt", x, limit), dtype="int64")


def _make_constant(builder: Builder, number: float, like: Value) -> Value:
    return builder.constant(np.array([number], like.type.dtype))
