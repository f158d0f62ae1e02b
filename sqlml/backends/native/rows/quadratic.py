"""Squared lengths of centred and turned rows, |(x - mean) @ turn|^2 for each class, by tiles.

What QuadraticDiscriminantAnalysis computes: five operators, between which all rows would pass
through memory once per class. Here rows are lanes, and only the result is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.rows.matmul_tiles import FUSES, HIGH, WIDE, square_tile
from sqlml.ir.program import Program
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class Quadratic:
    """Node `node` (n, k) less means (t, k), times turns (t, k, m), squared and summed: (n, t)."""

    node: int
    means: Array
    turns: Array

    @classmethod
    def of(cls, program: Program, i: int) -> Quadratic | None:
        """What node i, a sum, computes; None if it does not follow this pattern."""
        nodes = program.nodes
        if nodes[i].attrs["axis"] != 2 or nodes[i].type.dtype != "float64" or not FUSES:
            return None
        below = nodes[nodes[i].inputs[0]]
        if below.op != "square":
            return None
        product = nodes[below.inputs[0]]
        if product.op != "batch_matmul":
            return None
        centred, turns = (nodes[j] for j in product.inputs)
        if centred.op != "sub" or turns.op != "constant":
            return None
        spread, means = (nodes[j] for j in centred.inputs)
        if spread.op != "reshape" or means.op != "constant" or spread.type.shape[1] != 1:
            return None
        x = nodes[spread.inputs[0]].type
        classes, width, turned = turns.type.shape
        if len(x.shape) != 2 or means.type.shape != (classes, width) or not width or not turned:
            return None
        return cls(spread.inputs[0], means.attrs["value"], turns.attrs["value"])


def quadratic(found: Quadratic) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, t, 1) float64."""
    classes, width, turned = found.turns.shape
    # Rows after the last are not counted.
    turns = np.zeros((classes, turned + -turned % HIGH, width))
    turns[:, :turned] = found.turns.transpose(0, 2, 1)
    turns = turns.reshape(-1, width)
    means = np.ascontiguousarray(found.means)
    signature = (reads(np.float64, 2), *kinds_of(means, turns, turned), writes(np.float64, 2))
    kernel = specialise(_norms, signature)

    def norms(x: Array) -> Array:
        out = np.empty((x.shape[0], classes))
        kernel(x, means, turns, turned, out)
        return out[:, :, None]

    return norms


def _norms(x: Any, means: Any, turns: Any, turned: Any, out: Any) -> None:
    rows, width = x.shape
    classes = means.shape[0]
    padded = turns.shape[0] // classes
    block, centred = np.zeros((width, WIDE)), np.empty((1, width, WIDE))
    norms = np.empty(WIDE)
    for first in range(0, rows, WIDE):
        here = min(WIDE, rows - first)
        for r in range(here):
            for c in range(width):
                block[c, r] = x[first + r, c]
        for t in range(classes):
            for c in range(width):
                mean = means[t, c]
                for w in range(WIDE):
                    centred[0, c, w] = block[c, w] - mean
            norms[:] = 0.0
            for j in range(0, turned, HIGH):
                square_tile(turns, t * padded + j, turned - j, centred, 0, norms)
            for r in range(here):
                out[first + r, t] = norms[r]
