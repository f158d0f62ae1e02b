"""What each objective of LightGBM does with the raw score (src/objective, ConvertOutput)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.ir.builder import Builder, Value

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
