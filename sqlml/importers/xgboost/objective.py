"""What each objective of XGBoost does with base_score and with the margin.

Source: XGBoost src/objective; `base_score` is kept in the space of the predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

Link = Literal["identity", "logit", "log"]
Output = Literal["identity", "sigmoid", "exp", "step", "softmax"]
Task = Literal["regression", "binary", "multiclass"]


@dataclass(frozen=True, slots=True)
class Objective:
    """`link` takes base_score to the margin, `output` the margin to the prediction."""

    link: Link
    output: Output
    task: Task


_IDENTITY = Objective("identity", "identity", "regression")
_EXP = Objective("log", "exp", "regression")
_SOFTMAX = Objective("identity", "softmax", "multiclass")

OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "reg:squarederror": _IDENTITY,
        "reg:linear": _IDENTITY,
        "reg:squaredlogerror": _IDENTITY,
        "reg:pseudohubererror": _IDENTITY,
        "reg:absoluteerror": _IDENTITY,
        "reg:quantileerror": _IDENTITY,
        "reg:logistic": Objective("logit", "sigmoid", "regression"),
        "reg:gamma": _EXP,
        "reg:tweedie": _EXP,
        "count:poisson": _EXP,
        "survival:cox": _EXP,
        "survival:aft": _EXP,
        "rank:pairwise": _IDENTITY,
        "rank:ndcg": _IDENTITY,
        "rank:map": _IDENTITY,
        "binary:logistic": Objective("logit", "sigmoid", "binary"),
        "binary:logitraw": _IDENTITY,
        "binary:hinge": Objective("identity", "step", "binary"),
        "multi:softmax": _SOFTMAX,
        "multi:softprob": _SOFTMAX,
    }
)

HALF = np.float32(1.5 * 2.0**-24)
"""Largest margin whose float32 sigmoid is not above 0.5: below it exp(-x) + 1 rounds to 2.

Comparing margins instead of probabilities keeps labels free of the last bit of anybody's exp."""


def objective(name: str) -> Objective:
    """The row of `name`.

    Raises:
        UnsupportedModelError: no row has that name.
    """
    row = OBJECTIVES.get(name)
    if row is None:
        raise UnsupportedModelError(
            f"XGBoost objective {name!r} is not covered; covered: {', '.join(OBJECTIVES)}"
        )
    return row


def base_margin(row: Objective, base_score: Array) -> Array:
    """base_score float32 (K,) as a margin, in XGBoost's float32 arithmetic."""
    base = base_score.astype(np.float32)
    with np.errstate(all="ignore"):
        if row.link == "logit":
            one, edge = np.float32(1), np.float32(1e-6)
            odds = one / np.clip(base, edge, one - edge) - one
            return -_log(odds)
        if row.link == "log":
            return _log(base)
    return base


def _log(x: Array) -> Array:
    return np.log(x.astype(np.float64)).astype(np.float32)


def predict(b: Builder, row: Objective, margin: Value) -> Value:
    """What Booster.predict makes of the margin: (n, K) float32."""
    if row.output == "sigmoid":
        return b.op("sigmoid", margin)
    if row.output == "exp":
        return b.op("exp", margin)
    if row.output == "softmax":
        return b.op("softmax", margin, sum_dtype="float64")
    if row.output == "step":
        above = b.op("gt", margin, b.constant(np.zeros(1, np.float32)))
        return b.op("cast", above, dtype="float32")
    return margin


def above_half(b: Builder, row: Objective, margin: Value, prediction: Value) -> Value:
    """Whether the prediction is above 0.5, as int64 (n, 1): the class of two classes."""
    if row.output == "sigmoid":
        above = b.op("gt", margin, b.constant(np.array([HALF])))
    else:
        above = b.op("gt", prediction, b.constant(np.array([0.5], np.float32)))
    return b.op("cast", above, dtype="int64")
