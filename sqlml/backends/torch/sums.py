"""`accumulate` in torch: the trees' values added in the source's order, each sum rounded.

No sum of torch has that order, and an addition a tree costs a call a tree, most of the time of a
small batch. On the CPU numpy's `add.reduce` over the outer axis of (trees, rows) is one call: it
adds whole rows of that array one after the other (numpy adds in pairs only along the fast axis; so
a single row of data goes through `add.accumulate`, which never does). Measured with 100 trees
and one thread: 1 row 4 us (241 by additions), 1,000 rows 65 (292), 3,000 rows 205 (437).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sqlml.ir.program import Node
from sqlml.types import Array

Terms = tuple["slice | Array | None", ...]
"""For each output the columns of (n, trees * values) that it adds, in order; None for none."""


def accumulate(node: Node, put: Any) -> Callable[[Tensor], Tensor]:
    """(n, trees, values) -> (n, outputs), as `accumulate` of `ir/operators/forests.py`."""
    host_base: Array = node.attrs["base"]
    target: Array = node.attrs["target"]
    base = put(host_base)
    terms_of = lru_cache(maxsize=1)(lambda values: _terms(target, values, host_base.size))
    runs_of = lru_cache(maxsize=1)(lambda values: _runs(target, values))

    def by_runs(x: Tensor) -> Tensor:
        # Trees first, so that the values of one tree for all rows lie together.
        trees = x.permute(1, 2, 0).contiguous()
        out: Tensor = base.reshape(-1, 1).repeat(1, x.shape[0])
        for start, stop in runs_of(x.shape[2]):
            first = int(target[start])
            added = trees[start:stop].flatten(0, 1)
            out[first : first + added.shape[0]] += added
        return out.transpose(0, 1)

    def by_outputs(x: Tensor) -> Tensor:
        rows, trees, values = x.shape
        own = torch.empty((trees, values, rows), dtype=x.dtype).copy_(x.permute(1, 2, 0))
        lines = own.flatten(0, 1).numpy()
        out = np.empty((host_base.size, rows), lines.dtype)
        for k, terms in enumerate(terms_of(values)):
            if terms is None:
                out[k] = host_base[k]
                continue
            chosen = lines[terms]
            chosen[0] += host_base[k]
            if rows == 1:
                out[k] = np.add.accumulate(chosen, axis=0)[-1]
            else:
                np.add.reduce(chosen, axis=0, out=out[k])
        return torch.from_numpy(out).transpose(0, 1)

    def on_the_host(x: Tensor) -> Tensor:
        fewer_runs = len(runs_of(x.shape[2])) < host_base.size
        with np.errstate(all="ignore"):
            return by_runs(x) if fewer_runs else by_outputs(x)

    return on_the_host if base.device.type == "cpu" else by_runs


def _runs(target: Array, values: int) -> list[tuple[int, int]]:
    """Trees in a row whose targets follow each other; one addition serves them all."""
    edges = np.flatnonzero(np.diff(target) != values) + 1
    return list(zip([0, *edges], [*edges, target.size], strict=True)) if target.size else []


def _terms(target: Array, values: int, outputs: int) -> Terms:
    owner = (target[:, None] + np.arange(values)).ravel()
    found: list[slice | Array | None] = []
    for k in range(outputs):
        own = np.flatnonzero(owner == k)
        steps = np.unique(np.diff(own))
        if not own.size:
            found.append(None)
        elif steps.size > 1:
            found.append(own)
        else:  # a slice is not a copy
            found.append(slice(own[0], own[-1] + 1, int(steps[0]) if steps.size else 1))
    return tuple(found)
