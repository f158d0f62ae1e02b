"""Functions in pieces, one per column, in torch; see `ir/operators/piecewise.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from sqlml.ir.operators.piecewise import pieces
from sqlml.ir.program import Node
from sqlml.types import Array

Put = Callable[[Array], Tensor]
Function = Callable[..., Tensor]
Bind = Callable[[Node, Put], Function]


def _columns(node: Node, put: Put, name: str) -> list[Tensor]:
    return [put(part) for part in pieces(node.attrs[name], node.attrs["offsets"])]


def _search_sorted(node: Node, put: Put) -> Function:
    edges, right = _columns(node, put, "edges"), node.attrs["side"] == "right"

    def search(x: Tensor) -> Tensor:
        found = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        for j, own in enumerate(edges):
            found[:, j] = torch.searchsorted(own, x[:, j].contiguous(), right=right)
        return found

    return search


def _interpolate(node: Node, put: Put) -> Function:
    points, values = _columns(node, put, "points"), _columns(node, put, "values")

    def interpolate(x: Tensor) -> Tensor:
        made = torch.empty_like(x)
        for j in range(len(points)):
            made[:, j] = _interpolated(x[:, j].contiguous(), points[j], values[j])
        return made

    return interpolate


def _interpolated(x: Tensor, points: Tensor, values: Tensor) -> Tensor:
    """As `np.interp`: the line to the right of the last point that is not above x."""
    at = torch.searchsorted(points, x, right=True) - 1
    low = at.clamp(0, max(0, points.shape[0] - 2))
    high = (low + 1).clamp(max=points.shape[0] - 1)
    left, bottom, width = points[low], values[low], points[high] - points[low]
    slope = (values[high] - bottom) / torch.where(width == 0, torch.ones_like(width), width)
    line = torch.where(x == left, bottom, slope * (x - left) + bottom)
    line = torch.where(at < 0, values[0], line)
    line = torch.where(at >= points.shape[0] - 1, values[-1], line)
    return torch.where(torch.isnan(x), x, line)


def _bspline(node: Node, put: Put) -> Function:
    degree: int = node.attrs["degree"]
    knots = [put(row) for row in node.attrs["knots"]]
    each = node.type.width // max(1, len(knots))

    def bspline(x: Tensor) -> Tensor:
        made = torch.zeros((x.shape[0], len(knots), each), dtype=x.dtype, device=x.device)
        step = torch.arange(degree + 1, device=x.device)
        for j, t in enumerate(knots):
            at = x[:, j].contiguous()
            gone = torch.isnan(at)
            sought = torch.where(gone, torch.full_like(at, -np.inf), at)
            span = degree + torch.searchsorted(t[degree + 1 : each], sought, right=True)
            made[:, j].scatter_(1, span[:, None] - degree + step, _de_boor(t, at, span, degree))
            made[:, j][gone] = np.nan
        return made.reshape(x.shape[0], node.type.width)

    return bspline


def _de_boor(t: Tensor, x: Tensor, span: Tensor, degree: int) -> Tensor:
    zero = torch.zeros_like(x)
    h = [torch.ones_like(x)]
    for j in range(1, degree + 1):
        before, h = h, [zero]
        for n in range(1, j + 1):
            high, low = t[span + n], t[span + n - j]
            width = high - low
            none = width == 0
            share = before[n - 1] / torch.where(none, torch.ones_like(width), width)
            h[n - 1] = h[n - 1] + torch.where(none, zero, share * (high - x))
            h.append(torch.where(none, zero, share * (x - low)))
    return torch.stack(h, dim=1)


FUNCTIONS: Mapping[str, Bind] = MappingProxyType(
    {
        "search_sorted": _search_sorted,
        "interpolate": _interpolate,
        "bspline": _bspline,
    }
)
