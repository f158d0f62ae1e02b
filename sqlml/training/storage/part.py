"""`Part`: rows as an estimator takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.training.storage.blocks import Blocks, block_rows
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows as an estimator takes them: X (n, k), y (n,), weight (n,), group (n,), or None each.

    X is an array, a sparse matrix, a pandas frame, or `Blocks`.
    """

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None


def sample(part: Part, most: int) -> Part:
    """So many rows at most, evenly spaced, in memory; all of them if they are in groups."""
    count = part.X.shape[0]
    chosen = None
    if count > most and part.group is None:
        chosen = np.linspace(0, count - 1, most).astype(np.int64)
    X = part.X
    if isinstance(X, Blocks):
        X = stacked(list(_chosen(X, chosen)))
    elif chosen is not None:
        X = X.iloc[chosen] if hasattr(X, "iloc") else X[chosen]
    if chosen is None:
        return replace(part, X=X)
    y, weight = (None if v is None else v[chosen] for v in (part.y, part.weight))
    return Part(X, y, weight, None)


def _chosen(X: Blocks, places: Array | None) -> Iterator[Any]:
    """The rows at some places, (n,) in order, or all, block by block."""
    row = 0
    for block in X.blocks():
        end = row + block.shape[0]
        yield block if places is None else block[places[(places >= row) & (places < end)] - row]
        row = end


def blocks_of(X: Any) -> Iterator[Any]:
    """The rows of a matrix, some at a time."""
    if isinstance(X, Blocks):
        yield from X.blocks()
        return
    step = block_rows(X.shape[1] * X.dtype.itemsize)
    for start in range(0, X.shape[0], step):
        yield X[start : start + step]


def stacked(parts: Sequence[Any]) -> Any:
    """Blocks one below another: arrays or sparse matrices."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack(parts, format="csr")
