"""`Part`: rows as an estimator takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.training.row_store import BLOCK, StoredRows
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows as an estimator takes them: X (n, k), y (n,), weight (n,), group (n,), or None each.

    X is an array, a sparse matrix, a pandas frame, or `StoredRows`.
    """

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None


def sample(part: Part, most: int) -> Part:
    """So many rows at most, evenly spaced."""
    count = len(part.X) if isinstance(part.X, StoredRows) else part.X.shape[0]
    if count <= most or part.group is not None:
        return part
    chosen = np.linspace(0, count - 1, most).astype(np.int64)
    if isinstance(part.X, StoredRows):
        X, row = [], 0
        for block in part.X.blocks():
            inside = chosen[(chosen >= row) & (chosen < row + len(block))]
            X.append(block[inside - row])
            row += len(block)
        made: Any = np.concatenate(X)
    else:
        made = part.X.iloc[chosen] if hasattr(part.X, "iloc") else part.X[chosen]
    y, weight = (None if v is None else v[chosen] for v in (part.y, part.weight))
    return Part(made, y, weight, None)


def blocks_of(X: Any) -> Iterator[Any]:
    """The rows of a matrix, some at a time."""
    if isinstance(X, StoredRows):
        yield from X.blocks()
        return
    for start in range(0, X.shape[0], BLOCK):
        yield X[start : start + BLOCK]
