"""A few small trees as nested CASEs.

A test that does not hold sends a row right, and so does one of NULL or NaN, for which a comparison
with a number does not hold in SQL either; where the missing go left, the test says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlml.backends.sql.expression import Expression, Value
from sqlml.backends.sql.printing import Printing
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
    if p.dialect.missing_is_null:
        return _in_columns(p, e)
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
            sums[int(e.target[t])].append(_node(p, e, int(e.roots[t]), x, leaves))
            continue
        leaves = {
            k: p.dialect.array([p.number(v, own) for v in row])
            for k, row in enumerate(e.leaf_values.tolist())
        }
        name = p.bindings.name(_node(p, e, int(e.roots[t]), x, leaves))
        for k in range(values):
            sums[int(e.target[t]) + k].append(p.dialect.at(name, k + 1))
    return tuple(Expression(p.total(s), nan=not np.isfinite(e.leaf_values).all()) for s in sums)


def _in_columns(p: Printing, e: Ensemble) -> Value:
    """The same with a column for each tree, or for the number of its leaf, if a leaf has several
    values."""
    x = p.bind(p.values[0])
    dtype, own = str(e.base.dtype), str(e.leaf_values.dtype)
    sums: list[list[str]] = [[p.number(b, dtype)] for b in e.base.tolist()]
    texts = [[p.number(v, own) for v in row] for row in e.leaf_values.tolist()]
    for t in range(e.trees):
        root, first = int(e.roots[t]), int(e.target[t])
        if e.leaf_values.shape[1] == 1:
            values = {k: text[0] for k, text in enumerate(texts)}
            sums[first].append(p.bindings.name(_shallow(p, e, root, x, values)))
            continue
        numbers = {k: str(k) for k in range(len(texts))}
        leaf = p.bindings.name(_shallow(p, e, root, x, numbers))
        places = _leaves(e, root)
        for k in range(e.leaf_values.shape[1]):
            cases = " ".join(f"WHEN {place} THEN {texts[place][k]}" for place in places)
            sums[first + k].append(p.bindings.name(f"CASE {leaf} {cases} END"))
    nan = not np.isfinite(e.leaf_values).all()
    return tuple(Expression(p.total(s), nan=nan) for s in sums)


MOST_LEVELS = 9
"""Levels of a tree in one expression for other databases; SQL Server nests no more than ten."""


def _shallow(p: Printing, e: Ensemble, root: int, x: Value, leaves: Mapping[int, str]) -> str:
    """A tree as an expression; one of many levels by the parts of it that a row goes through."""
    cuts: list[int] = []
    made = _node(p, e, root, x, leaves, MOST_LEVELS, cuts)
    if not cuts:
        return made
    numbers = {k: str(k) for k in range(len(e.leaf_values))}
    cuts = []
    place = p.bindings.name(_node(p, e, root, x, numbers, MOST_LEVELS, cuts))
    while cuts:
        deeper: list[int] = []
        parts = [_node(p, e, cut, x, numbers, MOST_LEVELS - 1, deeper) for cut in cuts]
        whens = " ".join(f"WHEN {-1 - k} THEN {part}" for k, part in enumerate(parts))
        place = p.bindings.name(f"CASE {place} {whens} ELSE {place} END")
        cuts = deeper
    cases = " ".join(f"WHEN {leaf} THEN {leaves[leaf]}" for leaf in _leaves(e, root))
    return f"CASE {place} {cases} END"


def _leaves(e: Ensemble, root: int) -> list[int]:
    """The leaves below a node."""
    found, waiting = [], [root]
    while waiting:
        at = waiting.pop()
        if at < 0:
            found.append(~at)
        else:
            waiting += [int(e.right[at]), int(e.left[at])]
    return found


def _node(
    p: Printing,
    e: Ensemble,
    at: int,
    x: Value,
    leaves: Mapping[int, str],
    levels: int = DEEPEST + 1,
    cuts: list[int] | None = None,
) -> str:
    """A node and what is below it.

    Args:
        leaves: the text of each leaf.
        levels: how many are written; a node below them is put into `cuts`, and -1 stands for the
            first of these, -2 for the second.
    """
    if at < 0:
        return leaves[~at]
    if levels == 0 and cuts is not None:
        cuts.append(at)
        return str(-len(cuts))
    below = (levels - 1, cuts)
    left, right = (_node(p, e, int(side[at]), x, leaves, *below) for side in (e.left, e.right))
    return f"CASE WHEN {_test(p, e, at, x)} THEN {left} ELSE {right} END"


def _test(p: Printing, e: Ensemble, at: int, x: Value) -> str:
    """Whether a row goes left at a node."""
    column = x[int(e.feature[at])]
    threshold = float(e.threshold[at])
    symbol = "<" if e.compare == "lt" else "<="
    below = column.raw or column.sql
    if threshold != threshold:  # no number goes left
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


def _below_infinity(p: Printing, number: str, symbol: str, threshold: float) -> str:
    largest = float(np.finfo("float64").max)
    if threshold > 0:
        return (
            f"{number} <= {p.number(largest, 'float64')}"
            if symbol == "<"
            else f"{number} IS NOT NULL"
        )
    return f"{number} < {p.number(-largest, 'float64')}" if symbol == "<=" else "1 = 0"
