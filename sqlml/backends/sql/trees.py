"""A few small trees as nested CASEs.

A test that does not hold sends a row right, and so does one of NULL or NaN, for which a comparison
with a number does not hold in SQL either; where the missing go left, the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, Printing, Value
from sqlml.dialects.portable import Portable
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble

MOST_NODES = 5000
"""Inner nodes of all trees of one expression; the engine takes milliseconds to bind a hundred."""

DEEPEST = 200
"""Levels of a tree: a tenth of what the engine can nest is left for the rest."""


def print_trees(p: Printing) -> Value:
    """The sums of the leaves' values, tree by tree from left to right, in the leaves' dtype."""
    e = Ensemble.of(p.attrs)
    if e.has_categories:
        raise BackendError("trees that test category sets are not printed as SQL")
    if e.nodes > MOST_NODES or e.depth > DEEPEST:
        raise BackendError(
            f"{e.nodes} nodes in trees of depth {e.depth} are too many for an expression: at most "
            f"{MOST_NODES}, of depth {DEEPEST}"
        )
    x = p.bind(p.values[0])
    dtype, own = str(e.base.dtype), str(e.leaf_values.dtype)
    values = e.leaf_values.shape[1]
    sums: list[list[str]] = [[p.number(b, dtype)] for b in e.base.tolist()]
    for t in range(e.trees):
        leaves: Mapping[int, str]
        if values == 1:
            leaves = {k: p.number(v, own) for k, v in enumerate(e.leaf_values[:, 0].tolist())}
            sums[int(e.target[t])].append(node(p, e, int(e.roots[t]), x, leaves))
            continue
        leaves = {
            k: p.dialect.array([p.number(v, own) for v in row])
            for k, row in enumerate(e.leaf_values.tolist())
        }
        name = p.bindings.name(node(p, e, int(e.roots[t]), x, leaves))
        for k in range(values):
            sums[int(e.target[t]) + k].append(p.dialect.at(name, k + 1))
    return tuple(Expression(p.total(s), nan=not np.isfinite(e.leaf_values).all()) for s in sums)


def node(
    p: Printing,
    e: Ensemble,
    at: int,
    x: Value,
    leaves: Mapping[int, str],
    levels: int = DEEPEST + 1,
    below: Callable[[int], str] = str,
) -> str:
    """A node and what is below it, as nested CASEs.

    Args:
        leaves: the text of each leaf.
        levels: how many are written; `below` gives the text for a node under them.
    """
    if at < 0:
        return leaves[~at]
    if levels == 0:
        return below(at)
    left, right = (
        node(p, e, int(side[at]), x, leaves, levels - 1, below) for side in (e.left, e.right)
    )
    above = _above(p, e, at, x)
    if above is not None:
        return f"CASE WHEN {above} THEN {right} ELSE {left} END"
    return f"CASE WHEN {_test(p, e, at, x)} THEN {left} ELSE {right} END"


def _above(p: Printing, e: Ensemble, at: int, x: Value) -> str | None:
    """Whether a row goes right at a node where a missing number goes left: a comparison alone
    says so where that number is NULL; None: it does not."""
    column, threshold = x[int(e.feature[at])], float(e.threshold[at])
    of_set = e.categorical is not None and e.categorical[at]
    goes_left = bool(e.default_left[at]) and column.nan and p.dialect.missing_is_null
    if not goes_left or of_set or not np.isfinite(threshold):
        return None
    symbol = ">=" if e.compare == "lt" else ">"
    return f"{column.sql} {symbol} {p.number(threshold, p.operand)}"


def _test(p: Printing, e: Ensemble, at: int, x: Value) -> str:
    """Whether a row goes left at a node."""
    column = x[int(e.feature[at])]
    threshold = float(e.threshold[at])
    symbol = "<" if e.compare == "lt" else "<="
    below = column.raw or column.sql
    if e.categorical is not None and e.categorical[at]:
        test = _is_member(e, at, column.sql)
    elif threshold != threshold:  # no number goes left
        test = "1 = 0" if p.dialect.missing_is_null else "false"
    elif p.dialect.missing_is_null and np.isinf(threshold):  # a number that few databases have
        test = _below_infinity(p, below, symbol, threshold)
    else:
        # To the engine NaN is greater than +inf, as than all numbers.
        test = f"{below} {symbol} {p.number(threshold, p.operand)}"
    if e.default_left[at] and column.raw is not None:
        test = f"({test} OR {below} IS NULL OR {p.dialect.call('isnan', below)})"
    elif e.default_left[at] and column.nan:
        test = f"({test} OR {p.missing(column)})"
    return test


def _is_member(e: Ensemble, at: int, number: str) -> str:
    """Whether a number without its fraction is in the set of categories of a node."""
    assert e.set_offsets is not None and e.set_words is not None
    words = e.set_words[e.set_offsets[at] : e.set_offsets[at + 1]]
    codes = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    if not codes.size:
        return "1 = 0"
    return f"({number} >= 0 AND floor({number}) IN ({', '.join(map(str, codes.tolist()))}))"


def _below_infinity(p: Printing, number: str, symbol: str, threshold: float) -> str:
    largest = float(np.finfo("float64").max)
    if threshold > 0:
        return (
            f"{number} <= {p.number(largest, 'float64')}"
            if symbol == "<"
            else f"{number} IS NOT NULL"
        )
    return f"{number} < {p.number(-largest, 'float64')}" if symbol == "<=" else "1 = 0"


# Trees of any number and depth for databases: each tree is a column.
#
# A tree of many levels takes several: a row goes through some levels in each, from part to part
# of the tree, until it is at a leaf.


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
