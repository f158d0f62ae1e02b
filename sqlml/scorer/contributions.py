"""`Contributions`: what each column of rows contributes to what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sqlml import html
from sqlml.explaining.explained import block_of
from sqlml.ir.program import Program
from sqlml.types import Array, Feature

SHOWN, BAR = 20, 30
"""How many columns a notebook shows, and the length of the longest bar."""


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
        errors: the standard errors of `values`, where these are estimates; else None.
    """

    features: tuple[str, ...]
    values: Array
    baseline: Array
    errors: Array | None = None

    @classmethod
    def of(cls, blocks: Array, program: Program, columns: Sequence[Feature]) -> Contributions:
        """From rows of the blocks of an explained Program."""
        inputs, block = list(program.inputs), block_of(program)
        each = blocks.reshape(len(blocks), -1, block)
        features = tuple(column.name for column in columns)
        places = [features.index(name) for name in inputs]

        def placed(first: int) -> Array:
            made = np.zeros((*each.shape[:2], len(features)))
            made[:, :, places] = each[:, :, first : first + len(inputs)]
            return made[:, 0] if each.shape[1] == 1 else made

        baseline = each[:, :, len(inputs)]
        return cls(
            features,
            placed(0),
            (baseline[:, 0] if each.shape[1] == 1 else baseline).copy(),
            placed(len(inputs) + 1) if block > len(inputs) + 1 else None,
        )

    def _repr_html_(self) -> str:
        """The mean size of what each column contributes, the largest first."""
        sizes = np.abs(self.values).reshape(-1, len(self.features)).mean(axis=0)
        order = np.argsort(-sizes, kind="stable")[:SHOWN]
        most = max(float(sizes.max(initial=0.0)), np.finfo(float).tiny)
        rows = [
            (self.features[k], f"{sizes[k]:.6g}", "\N{FULL BLOCK}" * round(BAR * sizes[k] / most))
            for k in order
        ]
        below = f"{len(self.values):,} rows, {len(self.features)} columns"
        names = ("column", "mean |contribution|", "")
        return html.table(names, rows, numbers=(False, True, False), below=below)
