"""Trees of any number and depth for databases: each tree is a column.

A tree of many levels takes several: a row goes through some levels in each, from part to part of
the tree, until it is at a leaf.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, Value
from sqlml.backends.sql.printing import Printing
from sqlml.backends.sql.trees import node
from sqlml.dialects.portable import Portable
from sqlml.ir.trees import Ensemble

WAYS = 8
"""The numbers of leaves are told apart by so many comparisons one after the other."""


def print_tree_columns(p: Printing) -> Value:
    """The sums of the leaves' values, tree by tree from left to right, in the leaves' dtype."""
    e = Ensemble.of(p.attrs)
    x = p.bind(p.values[0])
    if p.bindings.walked is not None:
        name = p.bindings.name(p.bindings.walked(e, x))
        return tuple(Expression(p.dialect.at(name, k + 1)) for k in range(len(e.base)))
    dtype, own = str(e.base.dtype), str(e.leaf_values.dtype)
    sums: list[list[str]] = [[p.number(b, dtype)] for b in e.base.tolist()]
    for root, first in zip(e.roots.tolist(), e.target.tolist(), strict=True):
        leaves = _leaves(e, root)
        texts = [[p.number(v, own) for v in e.leaf_values[leaf].tolist()] for leaf in leaves]
        place = _deep(p, e, root, x, leaves)
        for k in range(e.leaf_values.shape[1]):
            values = [text[k] for text in texts]
            if place is None:
                made = node(p, e, root, x, dict(zip(leaves, values, strict=True)))
            else:
                made = _by_number(place, values, 0)
            sums[first + k].append(p.bindings.name(made))
    nan = not np.isfinite(e.leaf_values).all()
    return tuple(Expression(p.total(s), nan=nan) for s in sums)


def _deep(p: Printing, e: Ensemble, root: int, x: Value, leaves: Sequence[int]) -> str | None:
    """The column with the place of a row's leaf among `leaves`; None for a tree of few levels."""
    numbers = {leaf: str(place) for place, leaf in enumerate(leaves)}
    assert isinstance(p.dialect, Portable)
    levels = p.dialect.levels
    place = None
    parts = [root]
    while parts:
        below: list[int] = []

        def numbered(part: int, below: list[int] = below) -> str:
            below.append(part)
            return str(len(leaves) + len(below) - 1)

        made = [node(p, e, part, x, numbers, levels, numbered) for part in parts]
        if place is None and not below:
            return None
        if place is None:
            place = p.bindings.name(made[0])
        else:
            further = _by_number(place, made, len(leaves))
            place = p.bindings.name(
                f"CASE WHEN {place} < {len(leaves)} THEN {place} ELSE {further} END"
            )
        parts = below
    return place


def _by_number(column: str, texts: Sequence[str], first: int) -> str:
    """The text that a number stands for, the first of them for `first`."""
    if len(texts) == 1:
        return texts[0]
    size = 1
    while size * WAYS < len(texts):
        size *= WAYS
    *made, last = (
        _by_number(column, texts[k : k + size], first + k) for k in range(0, len(texts), size)
    )
    whens = (f"WHEN {column} < {first + (k + 1) * size} THEN {m}" for k, m in enumerate(made))
    return f"CASE {' '.join(whens)} ELSE {last} END"


def _leaves(e: Ensemble, root: int) -> list[int]:
    """The leaves below a node, from left to right."""
    found, waiting = [], [root]
    while waiting:
        at = waiting.pop()
        if at < 0:
            found.append(~at)
        else:
            waiting += [int(e.right[at]), int(e.left[at])]
    return found
