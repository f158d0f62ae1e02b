"""`BlockForest`: an Ensemble ready for a kernel that scores a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
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

    @classmethod
    def of(
        cls,
        score: Callable[..., Any],
        base: Array,
        source: np.dtype[Any],
        cursors: np.dtype[Any],
        arguments: tuple[Any, ...],
    ) -> BlockForest:
        """Compile `score` for input of dtype `source`, and bins and cursors of dtype `cursors`.

        arguments: what it takes between the rows and `base`.
        """
        given, base_and_out = kinds_of(*arguments), (*kinds_of(base), writes(base.dtype, 2))
        kernel = specialise(score, (reads(source, 2), *given, *base_and_out))
        return cls(base, cursors == np.uint16, kernel, arguments)

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.kernel(x, *self.arguments, self.base, out)
        return out

    def calls(self, x: Rows, out: Rows) -> tuple[Call, ...]:
        """The call that writes the scores of rows `x` to `out`."""
        return (Call(self.kernel, (x, *self.arguments, self.base, out)),)
