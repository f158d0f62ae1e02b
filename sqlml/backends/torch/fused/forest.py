"""`bind`: a tree_ensemble as two kernel launches a block of rows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from sqlml.backends.torch.fused.columns import columns
from sqlml.backends.torch.fused.layout import layout
from sqlml.errors import BackendError
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

Put = Callable[[Array], Tensor]
"""A numpy array as a tensor on the device."""

WARPS = 4
_LAUNCHING = threading.Lock()
"""Triton compiles a kernel at its first launch; two threads must not do so at once."""

COLUMNS = 32
"""Columns that one program makes ranks of, so that it reads its rows from memory once."""
TILE = 8192
"""Most sums that one program of the kernel holds, which is 64 registers a thread."""

ROWS = ((1 << 18, 512), (1 << 16, 256), (0, 128))
"""From how many rows of a batch on a program takes how many: small batches fill more of the
GPU's processors, large ones read the trees less often."""


def interpreted() -> bool:
    """Whether Triton's kernels are run by its interpreter, on the CPU: slow, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unavailable() -> str | None:
    """Why no fused kernel can run here, and what to do; None when one can."""
    if find_spec("triton") is None:
        return "strategy fused needs triton, which pip install 'sqlml[gpu]' brings on Linux"
    if not interpreted() and not torch.cuda.is_available():
        return "strategy fused needs a GPU, and torch sees none; use strategy='tt' or 'ptt'"
    return None


def bind(node: Node, put: Put) -> Callable[[Tensor], Tensor]:
    """(n, F) -> (n, K): a tree_ensemble node made ready, its arrays on the device.

    Raises:
        BackendError: Triton is missing, or the device is not a GPU.
    """
    e = Ensemble.of(node.attrs)
    base = put(e.base)
    reason = unavailable()
    if reason is None and not (base.is_cuda or interpreted()):
        reason = "strategy fused runs only on a GPU; use device='cuda'"
    if reason is not None:
        raise BackendError(f"tree_ensemble must be lowered for this device: {reason}")
    # Triton is available only with a GPU.
    from sqlml.backends.torch.fused.triton_kernels import rank_columns, sum_trees

    c = columns(e)
    made = layout(e, c)
    count, dtype = c.feature.size, torch.int16 if c.narrow else torch.int32
    tests = [put(array) for array in (c.feature, c.negated, c.size, c.edges)]
    arrays = [
        put(array)
        for array in (
            made.node,
            made.child,
            c.words.view("int32"),
            made.depth,
            made.first_slot,
            made.first_value,
            made.values,
            made.output,
            made.count,
            made.begin,
            made.terms,
        )
    ]
    groups = made.output.size
    width = 1 << (int(made.count.max(initial=1)) - 1).bit_length()

    def run(x: Tensor) -> Tensor:
        n = x.shape[0]
        out = base.repeat(n, 1)  # outputs that no tree adds to keep their base
        if not n or not groups:
            return out
        tile = min(next(tile for least, tile in ROWS if n >= least), TILE // width)
        blocks = -(-n // tile)
        staged = torch.empty((blocks, max(1, count), tile), dtype=dtype, device=x.device)
        with _LAUNCHING:
            rank_columns[(blocks, -(-count // COLUMNS) or 1)](
                x.contiguous(),
                n,
                x.shape[1],
                count,
                *tests,
                staged,
                MISSING=c.missing,
                SETS=e.has_categories,
                STEPS=c.steps,
                EACH=COLUMNS,
                ROWS=tile,
                num_warps=WARPS,
            )
            sum_trees[(blocks * groups,)](
                staged,
                n,
                count,
                *arrays,
                base,
                out,
                e.leaf_values.shape[1],
                e.outputs,
                groups,
                PERFECT=made.perfect,
                SETS=e.has_categories,
                PACKED=arrays[0].dtype == torch.int32,
                WIDTH=width,
                ROWS=tile,
                num_warps=WARPS,
            )
        return out

    return run
