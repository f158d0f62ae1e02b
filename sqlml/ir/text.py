"""`render`: a Program as text, one line per node."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble


def render(program: Program) -> str:
    """One line per node: number, type, operator, inputs, attributes in short.

    >>> from sqlml.ir.builder import Builder
    >>> b = Builder()
    >>> print(render(b.build({"label": b.op("neg", b.input("x", "float64"))})))
    %0 float64[n,1] = input name='x'
    %1 float64[n,1] = neg %0
    return label=%1
    """
    lines = []
    for i, node in enumerate(program.nodes):
        args = [f"%{j}" for j in node.inputs]
        if node.op == "tree_ensemble":
            args.append(_trees(Ensemble.of(node.attrs)))
        else:
            hidden = ("dtype", "width") if node.op == "input" else ()
            args += [f"{k}={_short(v)}" for k, v in node.attrs.items() if k not in hidden]
        lines.append(" ".join([f"%{i} {node.type!r} =", node.op, *args]))
    tail = " ".join(f"{name}=%{i}" for name, i in program.outputs.items())
    if program.labels is not None:
        tail += f" labels={_short(program.labels.values)}"
    return "\n".join([*lines, f"return {tail}"])


def _trees(e: Ensemble) -> str:
    kinds = " categorical" if e.has_categories else ""
    return (
        f"trees={e.trees} nodes={e.nodes} depth={e.depth} compare={e.compare}"
        f" values={e.leaf_values.dtype}x{e.leaf_values.shape[1]}{kinds}"
    )


def _short(value: Any, most: int = 6) -> str:
    if isinstance(value, np.ndarray):
        if value.size > most:
            return f"{value.dtype}{list(value.shape)}"
        return repr(value.tolist())
    if isinstance(value, tuple) and len(value) > most:
        return f"({', '.join(map(repr, value[:most]))}, .. {len(value)})"
    return repr(value)
