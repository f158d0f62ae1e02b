"""Distances and rules for rows in torch.

The searches with rules for ties, and the coupling, run in numpy wherever the tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from sqlml.ir import reference
from sqlml.ir.operators.distances import distances
from sqlml.ir.program import Node

Function = Callable[..., Tensor]
Bind = Callable[[Node, Any], Function]


def _pairwise(node: Node, put: Any) -> Function:
    attrs = node.attrs
    if attrs.get("expanded", False):  # rounded as numpy rounds it, or not at all
        return _on_host(node, put)
    points = put(attrs["points"])
    weights = put(attrs["weights"]) if "weights" in attrs else None
    inverse = put(attrs["inverse"]) if "inverse" in attrs else None
    metric, p = attrs["metric"], attrs.get("p", 0.0)

    def pairwise(x: Tensor) -> Tensor:
        made: Tensor = distances(torch, x, points, metric, p, weights, inverse)
        return made.to(x.dtype)

    return pairwise


def _require(node: Node, put: Any) -> Function:
    explain, attrs = reference.FUNCTIONS["require"], node.attrs

    def require(x: Tensor, fine: Tensor) -> Tensor:
        if not bool(fine.all()):
            explain([x.cpu().numpy(), fine.cpu().numpy()], attrs)  # it raises, and says why
        return x

    return require


def _on_host(node: Node, put: Any) -> Function:
    function = reference.FUNCTIONS[node.op]
    return lambda x: put(function([x.cpu().numpy()], node.attrs))


FUNCTIONS: Mapping[str, Bind] = MappingProxyType(
    {
        "pairwise": _pairwise,
        "nearest": _on_host,
        "couple": _on_host,
        "require": _require,
    }
)
