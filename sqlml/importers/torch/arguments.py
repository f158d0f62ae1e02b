"""The arguments of an aten operator, by name: what a rule reads them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.importers.torch.tensors import Maker
from sqlml.types import Array

Arguments = Mapping[str, Any]
Rule = Callable[[Maker, Arguments], Any]
"""Arguments by name -> the result, or a tuple of results; None if nothing reads it."""


def rows(a: Arguments, name: str) -> Rows:
    """Argument `name`, which must be a tensor with rows."""
    x = a[name]
    if not isinstance(x, Rows):
        raise Uncovered("an operator on constants only")
    return x


def constant(a: Arguments, name: str) -> Array | None:
    """Argument `name`, which must be a tensor without rows, or None."""
    x = a.get(name)
    if isinstance(x, Rows):
        raise Uncovered(f"argument {name} that depends on the rows")
    return None if x is None else np.asarray(x)
