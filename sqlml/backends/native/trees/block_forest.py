"""`BlockForest`: an Ensemble ready for a kernel that scores a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class BlockForest:
    """An Ensemble compiled for input of one dtype. Thread-safe.

    `wide` says that bins and cursors take two bytes.
    """

    base: Array
    wide: bool
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.kernel(x, *self.arguments, self.base, out)
        return out
