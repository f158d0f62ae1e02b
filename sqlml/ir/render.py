"""`render`: a Program as text, one line per node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.ir.trees import Ensemble

if TYPE_CHECKING:  # a Program prints itself by `render`
    from sqlml.ir.program import Program

FEW_NODES = 6
"""Inner nodes of an ensemble whose thresholds are written out."""

FEW_SETS = 4
"""Targets whose classes are written out."""

MOST_TEXT = 80
"""Characters of an attribute that is written out."""


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
        if node.op in ("tree_ensemble", "tree_contributions"):
            known = Ensemble.__dataclass_fields__
            args.append(_trees(Ensemble.of({k: v for k, v in node.attrs.items() if k in known})))
            args += [f"{k}={_short(v)}" for k, v in node.attrs.items() if k not in known]
        else:
            hidden = ("dtype", "width") if node.op == "input" else ()
            args += [f"{k}={_short(v)}" for k, v in node.attrs.items() if k not in hidden]
        lines.append(" ".join([f"%{i} {node.type!r} =", node.op, *args]))
    tail = " ".join(f"{name}=%{i}" for name, i in program.outputs.items())
    if program.labels:
        sets = [_short(labels.values) for labels in program.labels[:FEW_SETS]]
        if len(program.labels) > FEW_SETS:
            sets.append(f".. {len(program.labels)} targets")
        tail += f" labels={'; '.join(sets)}"
    return "\n".join([*lines, f"return {tail}"])


def _trees(e: Ensemble) -> str:
    kinds = " categorical" if e.has_categories else ""
    tests = f" threshold={_short(e.threshold)}" if 0 < e.nodes <= FEW_NODES else ""
    sides = {"left" if left else "right" for left in np.unique(e.default_left)}
    missing = f" missing={'/'.join(sorted(sides))}" if sides else ""
    known = [name for name in ("cover", "gain") if getattr(e, name) is not None]
    statistics = f" statistics={'/'.join(known)}" if known else ""
    return (
        f"trees={e.trees} nodes={e.nodes} depth={e.depth} compare={e.compare}{missing}"
        f" values={e.leaf_values.dtype}x{e.leaf_values.shape[1]}{kinds}{tests}{statistics}"
    )


def _short(value: Any, most: int = 6) -> str:
    """`value` as Python writes it; arrays of many numbers as dtype and shape, long texts cut."""
    if isinstance(value, np.ndarray):
        written = repr(value.tolist()) if value.size <= most else ""
        if written and len(written) <= MOST_TEXT:
            return written
        dtype = "string" if value.dtype == object else value.dtype
        return f"{dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        room = MOST_TEXT // most
        items = [_cut(item, room if len(value) > 1 else MOST_TEXT) for item in value[:most]]
        more = [f".. {len(value)}"] if len(value) > most else []
        return f"({', '.join([*items, *more])}{',' if len(value) == 1 else ''})"
    return _cut(value, MOST_TEXT)


def _cut(value: Any, room: int) -> str:
    if isinstance(value, str) and len(value) > room:
        return f"{value[:room]!r}.."
    return repr(value)
