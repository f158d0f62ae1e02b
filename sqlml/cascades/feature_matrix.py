"""`feature_matrix`: what a model's last estimator reads, for some rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.backends.base import Compiled, load
from sqlml.cascades.last_estimator import LastEstimator
from sqlml.cascades.parts import FEATURES, features
from sqlml.cascades.timing import ROWS, best_of
from sqlml.ir.csr import Csr
from sqlml.ir.program import Program
from sqlml.types import Array

Rows = Mapping[str, Array]
"""Input of a Program -> its values, (n,)."""

_AT_ONCE = 256
"""Rows that are computed at a time: sparse ones come from the backend in one block."""


def feature_matrix(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> Any:
    """The columns at `places` of the last estimator's matrix: an array (n, k), or a sparse matrix
    of scipy."""
    parts = list(_parts(_compiled(program, last, places), rows))
    if not isinstance(parts[0], Csr):
        return np.concatenate(parts)
    from scipy import sparse  # scikit-learn and the boosters bring it

    whole = sparse.vstack(
        [sparse.csr_matrix((p.data, p.indices, p.indptr), shape=p.shape) for p in parts],
        format="csr",
    )
    whole.eliminate_zeros()
    return whole


def feature_ns(program: Program, last: LastEstimator, places: Sequence[int], rows: Rows) -> float:
    """Nanoseconds a row of what computes the columns at `places`."""
    compiled = _compiled(program, last, places)
    few = {name: values[:ROWS] for name, values in rows.items()}
    n = len(next(iter(few.values())))
    return best_of(lambda: sum(1 for _ in _parts(compiled, few))) / n


def _compiled(program: Program, last: LastEstimator, places: Sequence[int]) -> Compiled:
    return load("native").compile(features(program, last, places))


def _parts(compiled: Compiled, rows: Rows) -> Iterator[Any]:
    """The features of some rows, part by part."""
    held = {name: rows[name] for name in compiled.program.inputs}
    n = len(next(iter(held.values())))
    for start in range(0, n, _AT_ONCE):
        part = {name: values[start : start + _AT_ONCE] for name, values in held.items()}
        yield compiled.run(part, (FEATURES,))[FEATURES]
