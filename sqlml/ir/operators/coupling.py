"""`couple`: probabilities of classes from probabilities of pairs of classes.

Wu, Lin and Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling"
(2004), the second method, with the iteration and the stopping rule of libsvm
(`multiclass_probability`), whose results carry that rule's tolerance of 0.005 / K: every step
must be the source's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from sqlml.ir.operators.op import Op, Types, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

MAX_CLASSES = 1000


def _couple_type(types: Types, attrs: Attrs) -> TensorType:
    classes, x = attrs["classes"], types[0]
    need(2 <= classes <= MAX_CLASSES, f"couple takes 2 to {MAX_CLASSES} classes")
    need(
        x.rowwise and x.dtype == "float64" and x.shape[1:] == (classes * (classes - 1) // 2,),
        f"couple of {x!r} for {classes} classes",
    )
    return matrix("float64", classes)


def _couple(args: Sequence[Array], attrs: Attrs) -> Array:
    """Input: for each pair (0, 1), (0, 2), ... (1, 2) ... the probability of its first class."""
    (x,) = args
    k: int = attrs["classes"]
    out = np.empty((x.shape[0], k))
    block = max(1, (1 << 20) // (k * k))
    for start in range(0, x.shape[0], block):
        out[start : start + block] = _coupled(x[start : start + block], k)
    return out


def _coupled(x: Array, k: int) -> Array:
    r = np.zeros((x.shape[0], k, k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        r[:, i, j] = x[:, column]
        r[:, j, i] = 1.0 - x[:, column]
    q = -np.swapaxes(r, 1, 2) * r
    for t in range(k):
        q[:, t, t] = 0.0
        for j in range(k):
            if j != t:
                q[:, t, t] += r[:, j, t] * r[:, j, t]
    p = np.full((x.shape[0], k), 1.0 / k)
    rows = np.arange(x.shape[0])
    for _ in range(max(100, k)):
        at = p[rows]
        qp = np.zeros_like(at)
        for j in range(k):
            qp += q[rows, :, j] * at[:, j : j + 1]
        pqp = np.zeros(len(rows))
        for t in range(k):
            pqp += at[:, t] * qp[:, t]
        error = np.abs(qp - pqp[:, None]).max(axis=1)
        open_ = ~(error < 0.005 / k)
        rows, at, qp, pqp = rows[open_], at[open_], qp[open_], pqp[open_]
        if not rows.size:
            break
        p[rows] = _step(at, qp, pqp, q[rows], k)
    return p


def _step(p: Array, qp: Array, pqp: Array, q: Array, k: int) -> Array:
    """One round over the classes; `p`, `qp` and `pqp` are the caller's to lose."""
    for t in range(k):
        diff = (-qp[:, t] + pqp) / q[:, t, t]
        p[:, t] += diff
        grown = diff * (diff * q[:, t, t] + 2 * qp[:, t])
        pqp = (pqp + grown) / (1 + diff) / (1 + diff)
        qp = (qp + diff[:, None] * q[:, t]) / (1 + diff)[:, None]
        p /= (1 + diff)[:, None]
    return p


OPERATORS: tuple[Op, ...] = (
    Op("couple", "both", "opaque", _couple_type, _couple, {"classes": "int"}),
)
