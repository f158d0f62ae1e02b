"""The steps from margins to outputs, which XGBoost, LightGBM and CatBoost share.

Each library's importer reads its document, looks up the objective in its table, computes
the margins, and calls `import_regression`, `import_binary`, `import_multiclass` or
`import_multilabel` for the rest. Margins are (n, K), float32 in XGBoost and float64 in the others.
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
    """Return `objectives[name]`; the error for an unknown name calls it a `description`."""
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
    """Return the schema of a model; if it was trained without names, `names` is None."""
    if names is None or names == default_names:
        return Schema(None, len(default_names), default_names)
    return Schema(names, len(names))


def apply_link(builder: Builder, link: Link, margin: Value) -> Value:
    """Convert margins, (n, K), to predictions, (n, K), with the function called `link`."""
    return _LINKS[link](builder, margin)


def _exponentiate_variance(builder: Builder, margin: Value) -> Value:
    """Return means and variances, (n, 2), from margins: means and half the logs of variances."""
    mean = builder.op("select", margin, indices=np.array([0], np.int64))
    half_log_variance = builder.op("select", margin, indices=np.array([1], np.int64))
    log_variance = builder.op("mul", half_log_variance, _make_constant(builder, 2.0, margin))
    return builder.op("concat", mean, builder.op("exp", log_variance))


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
    """Return a binary classifier's outputs; `positive` is the second class's probability, (n, 1).

    If all training rows had the same class, the outputs have no probabilities, because the second
    column would have no label.
    """
    if len(labels) == 1:
        return Outputs({"label": label, "score": margin}, labels)
    proba = builder.op(
        "concat", builder.op("sub", _make_constant(builder, 1.0, positive), positive), positive
    )
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def import_multiclass(
    builder: Builder, class_scores: Value, proba: Value, margin: Value, labels: Labels
) -> Outputs:
    """Return a multiclass classifier's outputs; the label has the highest of `class_scores`."""
    label = builder.op("argmax", class_scores, axis=1)
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def import_multilabel(label: Value, proba: Value, margin: Value) -> Outputs:
    """Return a multilabel classifier's outputs: 0/1 labels, and the probability of each 1."""
    labels = (Labels("int64", (0, 1)),) * label.type.width
    return Outputs({"label": label, "proba": proba, "score": margin}, labels)


def label_above(builder: Builder, x: Value, threshold: Value | float) -> Value:
    """Return int64 labels in the shape of `x`: 1 where `x` is above `threshold`, 0 elsewhere."""
    limit = _make_constant(builder, threshold, x) if isinstance(threshold, float) else threshold
    return builder.op("cast", builder.op("gt", x, limit), dtype="int64")


def _make_constant(builder: Builder, number: float, like: Value) -> Value:
    return builder.constant(np.array([number], like.type.dtype))
