"""Trees as nested CASEs: a few small ones as an expression, or each as columns of queries.

A row goes right if a test does not hold, as a comparison of NULL or NaN does not in SQL. In
`print_tree_columns`, a deep tree takes several columns: a row passes some levels in each, from
subtree to subtree, until it reaches a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, Printing, Value
from sqlml.dialects.portable import Portable
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble

MOST_NODES = 5000
"""Most inner nodes of one expression; the engine takes milliseconds to bind a hundred."""

DEEPEST = 200
"""Most levels of a tree, which leaves some of the engine's nesting limit to other operators."""


def print_trees(p: Printing) -> Value:
    """Return the sums of the leaf values in their dtype, from the first tree to the last."""
    e = Ensemble.of(p.attrs)
    if e.has_categories:
        raise BackendError("trees that test category sets are not printed as SQL")
    if e.nodes > MOST_NODES or e.depth > DEEPEST:
        raise BackendError(
            f"{e.nodes} nodes in trees of depth {e.depth} are too many for an expression: at most "
            f"{MOST_NODES}, of depth {DEEPEST}"
        )
    x = p.bind(p.values[0])
    dtype, leaf_dtype = str(e.base.dtype), str(e.leaf_values.dtype)
    values = e.leaf_values.shape[1]
    sums: list[list[str]] = [[p.number(b, dtype)] for b in e.base.tolist()]
    texts = [[p.number(v, leaf_dtype) for v in row] for row in e.leaf_values.tolist()]
    leaves = dict(enumerate(row[0] if values == 1 else p.dialect.array(row) for row in texts))
    for root, first in zip(e.roots.tolist(), e.target.tolist(), strict=True):
        sql = print_node(p, e, root, x, leaves)
        if values == 1:
            sums[first].append(sql)
            continue
        name = p.bindings.name(sql)
        for k in range(values):
            sums[first + k].append(p.dialect.at(name, k + 1))
    return tuple(Expression(p.total(s), nan=not np.isfinite(e.leaf_values).all()) for s in sums)


def print_node(
    p: Printing,
    e: Ensemble,
    at: int,
    x: Value,
    leaves: Mapping[int, str],
    levels: int = DEEPEST + 1,
    below: Callable[[int], str] = str,
) -> str:
    """Return `levels` levels of a subtree as nested CASEs; `below` prints the nodes under them."""
    if at < 0:
        return leaves[~at]
    if levels == 0:
        return below(at)
    left, right = (
        print_node(p, e, int(side[at]), x, leaves, levels - 1, below) for side in (e.left, e.right)
    )
    above = _print_right_test(p, e, at, x)
    if above is not None:
        return f"CASE WHEN {above} THEN {right} ELSE {left} END"
    return f"CASE WHEN {_print_left_test(p, e, at, x)} THEN {left} ELSE {right} END"


def _print_right_test(p: Printing, e: Ensemble, index: int, x: Value) -> str | None:
    """Return one comparison that sends a row right, if missing numbers are NULL and go left."""
    column, threshold = x[int(e.feature[index])], float(e.threshold[index])
    tests_set = e.categorical is not None and e.categorical[index]
    goes_left = bool(e.default_left[index]) and column.nan and p.dialect.missing_is_null
    if not goes_left or tests_set or not np.isfinite(threshold):
        return None
    symbol = ">=" if e.compare == "lt" else ">"
    return f"{column.sql} {symbol} {p.number(threshold, p.operand)}"


def _print_left_test(p: Printing, e: Ensemble, index: int, x: Value) -> str:
    column = x[int(e.feature[index])]
    threshold = float(e.threshold[index])
    symbol = "<" if e.compare == "lt" else "<="
    number = column.raw or column.sql
    if e.categorical is not None and e.categorical[index]:
        test = _print_member_test(e, index, column.sql)
    elif threshold != threshold:  # No number goes left.
        test = "1 = 0" if p.dialect.missing_is_null else "false"
    elif p.dialect.missing_is_null and np.isinf(threshold):  # Few databases have infinity.
        test = _compare_with_infinity(p, number, symbol, threshold)
    else:
        # In the engine, NaN is greater than all numbers, including infinity.
        test = f"{number} {symbol} {p.number(threshold, p.operand)}"
    if e.default_left[index] and column.raw is not None:
        test = f"({test} OR {number} IS NULL OR {p.dialect.call('isnan', number)})"
    elif e.default_left[index] and column.nan:
        test = f"({test} OR {p.missing(column)})"
    return test


def _print_member_test(e: Ensemble, index: int, number: str) -> str:
    """Return the condition that a number without its fraction is in the node's set."""
    codes = e.set_members(index)
    if not codes.size:
        return "1 = 0"
    return f"({number} >= 0 AND floor({number}) IN ({', '.join(map(str, codes.tolist()))}))"


def _compare_with_infinity(p: Printing, number: str, symbol: str, threshold: float) -> str:
    largest = float(np.finfo("float64").max)
    match symbol, threshold > 0:
        case "<", True:
            return f"{number} <= {p.number(largest, 'float64')}"
        case "<=", True:
            return f"{number} IS NOT NULL"
        case "<=", False:
            return f"{number} < {p.number(-largest, 'float64')}"
    return "1 = 0"


WAYS = 8
"""Branches per level in a search by the number of a leaf."""


def print_tree_columns(p: Printing) -> Value:
    """Return the sums of the leaf values in their dtype, from the first tree to the last."""
    e = Ensemble.of(p.attrs)
    x = p.bind(p.values[0])
    if p.bindings.sum_trees is not None:
        name = p.bindings.name(p.bindings.sum_trees(e, x))
        return tuple(Expression(p.dialect.at(name, k + 1)) for k in range(len(e.base)))
    dtype, leaf_dtype = str(e.base.dtype), str(e.leaf_values.dtype)
    sums: list[list[str]] = [[p.number(b, dtype)] for b in e.base.tolist()]
    for root, first in zip(e.roots.tolist(), e.target.tolist(), strict=True):
        leaves = _list_leaves(e, root)
        texts = [[p.number(v, leaf_dtype) for v in e.leaf_values[leaf].tolist()] for leaf in leaves]
        position = _bind_leaf_positions(p, e, root, x, leaves)
        for k in range(e.leaf_values.shape[1]):
            values = [text[k] for text in texts]
            if position is None:
                sql = print_node(p, e, root, x, dict(zip(leaves, values, strict=True)))
            else:
                sql = _select_by_number(position, values, 0)
            sums[first + k].append(p.bindings.name(sql))
    nan = not np.isfinite(e.leaf_values).all()
    return tuple(Expression(p.total(s), nan=nan) for s in sums)


def _bind_leaf_positions(
    p: Printing, e: Ensemble, root: int, x: Value, leaves: Sequence[int]
) -> str | None:
    """Return the column with the position of a row's leaf in `leaves`; None for a shallow tree."""
    numbers = {leaf: str(position) for position, leaf in enumerate(leaves)}
    assert isinstance(p.dialect, Portable)
    levels = p.dialect.levels
    position = None
    subtrees = [root]
    while subtrees:
        below: list[int] = []

        def number_subtree(part: int, below: list[int] = below) -> str:
            below.append(part)
            return str(len(leaves) + len(below) - 1)

        printed = [print_node(p, e, part, x, numbers, levels, number_subtree) for part in subtrees]
        if position is None and not below:
            return None
        if position is None:
            position = p.bindings.name(printed[0])
        else:
            further = _select_by_number(position, printed, len(leaves))
            position = p.bindings.name(
                f"CASE WHEN {position} < {len(leaves)} THEN {position} ELSE {further} END"
            )
        subtrees = below
    return position


def _select_by_number(column: str, texts: Sequence[str], first: int) -> str:
    """Return SQL that selects among `texts`, the first of which has the number `first`."""
    if len(texts) == 1:
        return texts[0]
    size = 1
    while size * WAYS < len(texts):
        size *= WAYS
    *groups, last = (
        _select_by_number(column, texts[k : k + size], first + k)
        for k in range(0, len(texts), size)
    )
    whens = (f"WHEN {column} < {first + (k + 1) * size} THEN {m}" for k, m in enumerate(groups))
    return f"CASE {' '.join(whens)} ELSE {last} END"


def _list_leaves(e: Ensemble, root: int) -> list[int]:
    leaves, stack = [], [root]
    while stack:
        index = stack.pop()
        if index < 0:
            leaves.append(~index)
        else:
            stack += [int(e.right[index]), int(e.left[index])]
    return leaves
