"""`Part`: rows as an estimator takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows as an estimator takes them: X (n, k), y (n,), weight (n,), group (n,), or None each."""

    X: Any
    y: Array | None
    weight: Array | None
    group: Array | None
