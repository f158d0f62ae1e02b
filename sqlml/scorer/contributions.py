"""`Contributions`: what each column of rows contributes to what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.program import Program
from sqlml.types import Array, Feature


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """Shapley values of n rows, as `explain` gives them in SQL.

    Attributes:
        features: names of the columns of training, in their order, which is that of `values`.
        values: (n, features) float64; (n, targets, features) of several targets. A row's values add
            up, with its baseline, to the model's score: the margin of boosted trees, else the
            probability or the value.
        baseline: (n,) or (n, targets): what the model is expected to say of a row of which nothing
            is known.
    """

    features: tuple[str, ...]
    values: Array
    baseline: Array

    @classmethod
    def of(cls, blocks: Array, program: Program, columns: Sequence[Feature]) -> Contributions:
        """From rows of blocks, each of the contributions of all inputs and the baseline."""
        each = blocks.reshape(len(blocks), -1, len(program.inputs) + 1)
        features = tuple(column.name for column in columns)
        values = np.zeros((*each.shape[:2], len(features)))
        for k, name in enumerate(program.inputs):
            values[:, :, features.index(name)] = each[:, :, k]
        baseline = each[:, :, -1].copy()
        if each.shape[1] == 1:
            return cls(features, values[:, 0], baseline[:, 0])
        return cls(features, values, baseline)
