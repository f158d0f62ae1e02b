"""Elementary functions in torch, each computed in float64 and rounded once, as the reference does.

Rounding to integers is exact in any float, so it stays in its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from sqlml.ir.program import Node
from sqlml.types import Array

Function = Callable[..., Tensor]
Put = Callable[[Array], Tensor]
Bind = Callable[[Node, Put], Function]


def _own(function: Callable[..., Tensor]) -> Bind:
    return lambda node, put: function


def _wide(function: Callable[..., Tensor]) -> Bind:
    def compute(*args: Tensor) -> Tensor:
        return function(*[x.to(torch.float64) for x in args]).to(args[0].dtype)

    return lambda node, put: compute


def _cbrt(x: Tensor) -> Tensor:
    """The power, and one step of Newton's method where that cannot overflow or vanish."""
    root = torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)
    better = root - (root * root * root - x) / (3 * root * root)
    fine = (torch.abs(x) > 1e-280) & torch.isfinite(x)
    return torch.where(fine, better, root)


def _ndtr(x: Tensor) -> Tensor:
    twice: Tensor = torch.special.erfc(-x * 0.5**0.5)
    return 0.5 * twice


FUNCTIONS: Mapping[str, Bind] = MappingProxyType(
    {
        "floor": _own(torch.floor),
        "ceil": _own(torch.ceil),
        "rint": _own(torch.round),
        "exp2": _wide(torch.exp2),
        "log2": _wide(torch.log2),
        "log10": _wide(torch.log10),
        "cbrt": _wide(_cbrt),
        "sin": _wide(torch.sin),
        "cos": _wide(torch.cos),
        "tan": _wide(torch.tan),
        "arcsin": _wide(torch.asin),
        "arccos": _wide(torch.acos),
        "arctan": _wide(torch.atan),
        "sinh": _wide(torch.sinh),
        "cosh": _wide(torch.cosh),
        "arcsinh": _wide(torch.asinh),
        "arccosh": _wide(torch.acosh),
        "arctanh": _wide(torch.atanh),
        "ndtr": _wide(_ndtr),
        "ndtri": _wide(torch.special.ndtri),
        "pow": _wide(torch.pow),
    }
)
