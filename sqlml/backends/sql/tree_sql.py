"""Trees as nested CASEs: a few small trees as an expression, or each tree as columns of queries.

A row goes right if a test does not hold; in SQL, a comparison of NULL or NaN does not hold.
`print_tree_columns` splits a deep tree into several columns. Each column takes the row some levels
down, to a leaf or to a subtree that the next column continues from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, NodePrinter, Value
from sqlml.dialects.portable import Portable
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble

MAX_NODES = 5000
"""Maximum number of inner nodes in one expression; the engine binds a hundred in milliseconds."""

MAX_LEVELS = 200
"""Maximum number of levels of a tree, to leave some of the engine's nesting limit."""


def print_trees(context: NodePrinter) -> Value:
    """Print the sum of each output, added from the first tree to the last in the leaves' dtype."""
    ensemble = Ensemble.of(context.attrs)
    if ensemble.has_categories:
        raise BackendError("trees that test category sets are not printed as SQL")
    if ensemble.nodes > MAX_NODES or ensemble.depth > MAX_LEVELS:
        raise BackendError(
            f"the trees are too large for a SQL expression: {ensemble.nodes} nodes, depth "
            f"{ensemble.depth} (the limits are {MAX_NODES} nodes and depth {MAX_LEVELS})"
        )
    x = context.bind(context.values[0])
    sums, literals = _list_literals(context, ensemble)
    values_per_leaf = ensemble.leaf_values.shape[1]
    array = context.dialect.array
    leaves = dict(enumerate(row[0] if values_per_leaf == 1 else array(row) for row in literals))
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        sql = print_node(context, ensemble, root, x, leaves)
        if values_per_leaf == 1:
            sums[first_output].append(sql)
            continue
        name = context.bindings.name(sql)
        for k in range(values_per_leaf):
            sums[first_output + k].append(context.dialect.at(name, k + 1))
    nan = not np.isfinite(ensemble.leaf_values).all()
    return tuple(Expression(context.total(terms), nan=nan) for terms in sums)


def _list_literals(
    context: NodePrinter, ensemble: Ensemble
) -> tuple[list[list[str]], list[list[str]]]:
    """Return literals: for each output a list with its base, and for each leaf a list of values."""
    dtype, leaf_dtype = str(ensemble.base.dtype), str(ensemble.leaf_values.dtype)
    leaf_values = ensemble.leaf_values.tolist()
    return (
        [[context.number(base, dtype)] for base in ensemble.base.tolist()],
        [[context.number(value, leaf_dtype) for value in row] for row in leaf_values],
    )


def print_node(
    context: NodePrinter,
    ensemble: Ensemble,
    index: int,
    x: Value,
    leaves: Mapping[int, str],
    levels: int = MAX_LEVELS + 1,
    print_rest: Callable[[int], str] = str,
) -> str:
    """Print the upper `levels` levels of the subtree at node `index`, or at ~leaf, as nested CASEs.

    `leaves` maps leaves to their SQL. `print_rest` prints the nodes below the upper levels.
    """
    if index < 0:
        return leaves[~index]
    if levels == 0:
        return print_rest(index)
    left, right = (
        print_node(context, ensemble, int(side[index]), x, leaves, levels - 1, print_rest)
        for side in (ensemble.left, ensemble.right)
    )
    right_test = _right_test_sql(context, ensemble, index, x)
    if right_test is not None:
        return f"CASE WHEN {right_test} THEN {right} ELSE {left} END"
    left_test = _left_test_sql(context, ensemble, index, x)
    return f"CASE WHEN {left_test} THEN {left} ELSE {right} END"


def _right_test_sql(context: NodePrinter, ensemble: Ensemble, index: int, x: Value) -> str | None:
    """Return a test that holds for rows that go right; None if `_left_test_sql` must be used.

    If missing numbers are NULL and go left, a test for right is shorter: it never holds for NULL.
    """
    column, threshold = x[int(ensemble.feature[index])], float(ensemble.threshold[index])
    tests_set = ensemble.categorical is not None and ensemble.categorical[index]
    may_be_null = column.nan and context.dialect.missing_is_null
    null_goes_left = may_be_null and ensemble.default_left[index]
    if not null_goes_left or tests_set or not np.isfinite(threshold):
        return None
    symbol = ">=" if ensemble.compare == "lt" else ">"
    return f"{column.sql} {symbol} {context.number(threshold, context.operand)}"


def _left_test_sql(context: NodePrinter, ensemble: Ensemble, index: int, x: Value) -> str:
    """Return a test that holds for the rows that go left at node `index`."""
    column = x[int(ensemble.feature[index])]
    threshold = float(ensemble.threshold[index])
    symbol = "<" if ensemble.compare == "lt" else "<="
    number = column.raw or column.sql
    if ensemble.categorical is not None and ensemble.categorical[index]:
        test = _member_test_sql(ensemble, index, column.sql)
    elif threshold != threshold:  # No number goes left.
        test = "1 = 0" if context.dialect.missing_is_null else "false"
    elif context.dialect.missing_is_null and np.isinf(threshold):  # Few databases have infinity.
        test = _compare_with_infinity(context, number, symbol, threshold)
    else:
        # In the engine, NaN is greater than all numbers, including infinity.
        test = f"{number} {symbol} {context.number(threshold, context.operand)}"
    if ensemble.default_left[index] and column.raw is not None:
        test = f"({test} OR {number} IS NULL OR {context.dialect.call('isnan', number)})"
    elif ensemble.default_left[index] and column.nan:
        test = f"({test} OR {context.missing(column)})"
    return test


def _member_test_sql(ensemble: Ensemble, index: int, number: str) -> str:
    """Return a condition that holds if trunc(`number`) is in the category set of node `index`."""
    codes = ensemble.set_members(index)
    if not codes.size:
        return "1 = 0"
    return f"({number} >= 0 AND floor({number}) IN ({', '.join(map(str, codes.tolist()))}))"


def _compare_with_infinity(context: NodePrinter, number: str, symbol: str, threshold: float) -> str:
    """Return a comparison of `number` with an infinite threshold, without a literal infinity."""
    largest = float(np.finfo("float64").max)
    match symbol, threshold > 0:
        case "<", True:
            return f"{number} <= {context.number(largest, 'float64')}"
        case "<=", True:
            return f"{number} IS NOT NULL"
        case "<=", False:
            return f"{number} < {context.number(-largest, 'float64')}"
    return "1 = 0"


BRANCHES = 8
"""Number of branches of each CASE in `_select_by_number`."""


def print_tree_columns(context: NodePrinter) -> Value:
    """Print trees as `print_trees` does, but compute each tree in columns of queries."""
    ensemble = Ensemble.of(context.attrs)
    x = context.bind(context.values[0])
    if context.bindings.sum_trees is not None:
        name = context.bindings.name(context.bindings.sum_trees(ensemble, x))
        sums_of_row = [context.dialect.at(name, k + 1) for k in range(len(ensemble.base))]
        return tuple(map(Expression, sums_of_row))
    sums, literals = _list_literals(context, ensemble)
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        leaves = _list_leaves(ensemble, root)
        position = _bind_leaf_positions(context, ensemble, root, x, leaves)
        for k in range(ensemble.leaf_values.shape[1]):
            values = {leaf: literals[leaf][k] for leaf in leaves}
            if position is None:
                sql = print_node(context, ensemble, root, x, values)
            else:
                sql = _select_by_number(position, list(values.values()), 0)
            sums[first_output + k].append(context.bindings.name(sql))
    nan = not np.isfinite(ensemble.leaf_values).all()
    return tuple(Expression(context.total(terms), nan=nan) for terms in sums)


def _bind_leaf_positions(
    context: NodePrinter, ensemble: Ensemble, root: int, x: Value, leaves: Sequence[int]
) -> str | None:
    """Bind the position of a row's leaf in `leaves` to columns; return the name of the last column.

    Return None if the tree is so low that one expression suffices. A column that has not reached a
    leaf holds `len(leaves)` plus the index of the subtree from which the next column continues.
    """
    positions = {leaf: str(position) for position, leaf in enumerate(leaves)}
    assert isinstance(context.dialect, Portable)
    levels = context.dialect.levels
    position = None
    subtrees = [root]
    while subtrees:
        deeper_subtrees: list[int] = []

        def defer(subtree: int, deeper_subtrees: list[int] = deeper_subtrees) -> str:
            deeper_subtrees.append(subtree)
            return str(len(leaves) + len(deeper_subtrees) - 1)

        printed = [print_node(context, ensemble, s, x, positions, levels, defer) for s in subtrees]
        if position is None and not deeper_subtrees:
            return None
        if position is None:
            position = context.bindings.name(printed[0])
        else:
            deeper = _select_by_number(position, printed, len(leaves))
            test = f"{position} < {len(leaves)}"
            sql = f"CASE WHEN {test} THEN {position} ELSE {deeper} END"
            position = context.bindings.name(sql)
        subtrees = deeper_subtrees
    return position


def _select_by_number(column: str, expressions: Sequence[str], first: int) -> str:
    """Return CASEs that select the expression whose number, counted from `first`, is `column`."""
    if len(expressions) == 1:
        return expressions[0]
    size = 1
    while size * BRANCHES < len(expressions):
        size *= BRANCHES
    *groups, last_group = (
        _select_by_number(column, expressions[k : k + size], first + k)
        for k in range(0, len(expressions), size)
    )
    branches = (f"WHEN {column} < {first + (k + 1) * size} THEN {m}" for k, m in enumerate(groups))
    return f"CASE {' '.join(branches)} ELSE {last_group} END"


def _list_leaves(ensemble: Ensemble, root: int) -> list[int]:
    leaves, stack = [], [root]
    while stack:
        index = stack.pop()
        if index < 0:
            leaves.append(~index)
        else:
            stack += [int(ensemble.right[index]), int(ensemble.left[index])]
    return leaves
