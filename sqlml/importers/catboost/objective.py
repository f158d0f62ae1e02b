"""What each loss function of CatBoost does with the raw values.

Source: catboost/libs/eval_result/eval_helpers.cpp, and CatBoostRegressor's default prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.ir.builder import Builder, Value

Task = Literal["regression", "classes", "multilabel"]
Output = Literal["identity", "exp", "uncertainty", "sigmoid", "softmax"]

_REGRESSION: tuple[Task, Output] = ("regression", "identity")
_IDENTITY = (
    "RMSE MAE Quantile MultiQuantile GroupQuantile LogLinQuantile Expectile MAPE RMSPE Lq Huber "
    "LogCosh Cox SurvivalAft MultiRMSE MultiRMSEWithMissingValues QueryRMSE QuerySoftMax "
    "QueryCrossEntropy PairLogit PairLogitPairwise YetiRank YetiRankPairwise StochasticFilter "
    "StochasticRank LambdaMart UserPerObjMetric UserQuerywiseMetric PythonUserDefinedPerObject "
    "PythonUserDefinedMultiTarget"
).split()

LOSSES: Mapping[str, tuple[Task, Output]] = MappingProxyType(
    {
        "Logloss": ("classes", "sigmoid"),
        "CrossEntropy": ("classes", "sigmoid"),
        "Focal": ("classes", "sigmoid"),
        "MultiClass": ("classes", "softmax"),
        "MultiClassOneVsAll": ("classes", "sigmoid"),
        "MultiLogloss": ("multilabel", "sigmoid"),
        "MultiCrossEntropy": ("multilabel", "sigmoid"),
        "Poisson": ("regression", "exp"),
        "Tweedie": ("regression", "exp"),
        "RMSEWithUncertainty": ("regression", "uncertainty"),
        **dict.fromkeys(_IDENTITY, _REGRESSION),
    }
)
"""Loss function -> what it is trained for, and what takes raw values to predictions."""


def loss(name: str) -> tuple[Task, Output]:
    """Return the row of `name`, which is empty for a file that does not say it.

    CatBoost itself predicts the raw values of such a file.

    Raises:
        UnsupportedModelError: no row has that name.
    """
    if not name:
        return _REGRESSION
    if name not in LOSSES:
        raise UnsupportedModelError(
            f"CatBoost's loss function {name!r} is not covered; covered: {', '.join(LOSSES)}"
        )
    return LOSSES[name]


def predict(b: Builder, output: Output, raw: Value) -> Value:
    """Raw values (n, K) float64 as predictions (n, K)."""
    if output == "exp":
        return b.op("exp", raw)
    if output == "sigmoid":
        return b.op("sigmoid", raw)
    if output == "softmax":
        return b.op("softmax", raw, sum_dtype="float64")
    if output == "uncertainty":
        # The mean, and the variance that the second value is half the logarithm of.
        mean = b.op("select", raw, indices=np.array([0], np.int64))
        deviation = b.op("select", raw, indices=np.array([1], np.int64))
        variance = b.op("exp", b.op("mul", deviation, b.constant(np.array([2.0]))))
        return b.op("concat", mean, variance)
    return raw
