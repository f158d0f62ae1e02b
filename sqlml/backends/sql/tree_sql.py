"""Trees as nested CASEs: a few small trees as an expression, or each tree as columns of queries.

If a test does not hold, a row goes right; in SQL, a comparison of NULL or NaN does not hold.
`print_tree_columns` splits a deep tree into several columns. Each column descends some levels, to a
leaf or to a subtree from which the next column continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, NodePrinter, Value
from sqlml.dialects.portable import Portable
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble

MAX_NODES = 5000
"""Maximum number of inner nodes in one expression; the engine binds 100 nodes in milliseconds."""

MAX_LEVELS = 200
"""Maximum number of levels of a tree, well below the engine's limit on nesting."""


def print_trees(printer: NodePrinter) -> Value:
    """Print the sum of each output, in the order of the trees and in the dtype of the leaves."""
    ensemble = Ensemble.of(printer.attrs)
    if ensemble.has_categories:
        raise BackendError("trees that test category sets are not printed as SQL")
    if ensemble.nodes > MAX_NODES or ensemble.depth > MAX_LEVELS:
        raise BackendError(
            f"the trees are too large for a SQL expression: {ensemble.nodes} nodes, depth "
            f"{ensemble.depth} (the limits are {MAX_NODES} nodes and depth {MAX_LEVELS})"
        )
    x = printer.bind(printer.values[0])
    sums, rows = _print_base_and_leaves(printer, ensemble)
    values_per_leaf = ensemble.leaf_values.shape[1]
    array = printer.dialect.array
    leaf_sql = dict(enumerate(row[0] if values_per_leaf == 1 else array(row) for row in rows))
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        sql = print_node(printer, ensemble, root, x, leaf_sql)
        if values_per_leaf == 1:
            sums[first_output].append(sql)
            continue
        name = printer.bindings.name(sql)
        for k in range(values_per_leaf):
            sums[first_output + k].append(printer.dialect.at(name, k + 1))
    nan = not np.isfinite(ensemble.leaf_values).all()
    return tuple(Expression(printer.total(terms), nan=nan) for terms in sums)


def _print_base_and_leaves(
    printer: NodePrinter, ensemble: Ensemble
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the base of each output, in a list of one, and the values of each leaf as literals."""
    dtype, leaf_dtype = str(ensemble.base.dtype), str(ensemble.leaf_values.dtype)
    leaf_values = ensemble.leaf_values.tolist()
    return (
        [[printer.number(base, dtype)] for base in ensemble.base.tolist()],
        [[printer.number(value, leaf_dtype) for value in row] for row in leaf_values],
    )


def print_node(
    printer: NodePrinter,
    ensemble: Ensemble,
    index: int,
    x: Value,
    leaf_sql: Mapping[int, str],
    levels: int = MAX_LEVELS + 1,
    print_rest: Callable[[int], str] = str,
) -> str:
    """Print the upper `levels` levels of the subtree at node `index`, or at ~leaf, as nested CASEs.

    `leaf_sql` maps leaves to SQL. `print_rest` prints the nodes below the upper levels.
    """
    if index < 0:
        return leaf_sql[~index]
    if levels == 0:
        return print_rest(index)
    left, right = (
        print_node(printer, ensemble, int(side[index]), x, leaf_sql, levels - 1, print_rest)
        for side in (ensemble.left, ensemble.right)
    )
    right_test = _print_right_test(printer, ensemble, index, x)
    if right_test is not None:
        return f"CASE WHEN {right_test} THEN {right} ELSE {left} END"
    return f"CASE WHEN {_print_left_test(printer, ensemble, index, x)} THEN {left} ELSE {right} END"


def _print_right_test(printer: NodePrinter, ensemble: Ensemble, index: int, x: Value) -> str | None:
    """Return a test that holds for rows that go right, or None to use `_print_left_test`.

    If missing numbers are NULL and go left, this test is shorter: no comparison holds for NULL.
    """
    column, threshold = x[int(ensemble.feature[index])], float(ensemble.threshold[index])
    tests_set = ensemble.categorical is not None and ensemble.categorical[index]
    may_be_null = column.nan and printer.dialect.missing_is_null
    null_goes_left = may_be_null and ensemble.default_left[index]
    if not null_goes_left or tests_set or not np.isfinite(threshold):
        return None
    symbol = ">=" if ensemble.compare == "lt" else ">"
    return f"{column.sql} {symbol} {printer.number(threshold, printer.operand)}"


def _print_left_test(printer: NodePrinter, ensemble: Ensemble, index: int, x: Value) -> str:
    column = x[int(ensemble.feature[index])]
    threshold = float(ensemble.threshold[index])
    symbol = "<" if ensemble.compare == "lt" else "<="
    number = column.raw or column.sql
    if ensemble.categorical is not None and ensemble.categorical[index]:
        test = _print_member_test(ensemble, index, column.sql)
    elif threshold != threshold:  # No number goes left.
        test = "1 = 0" if printer.dialect.missing_is_null else "false"
    elif printer.dialect.missing_is_null and np.isinf(threshold):  # Few databases have infinity.
        test = _print_infinite_test(printer, number, symbol, threshold)
    else:
        # In the engine, NaN is greater than all numbers, including infinity.
        test = f"{number} {symbol} {printer.number(threshold, printer.operand)}"
    if ensemble.default_left[index] and column.raw is not None:
        test = f"({test} OR {number} IS NULL OR {printer.dialect.call('isnan', number)})"
    elif ensemble.default_left[index] and column.nan:
        test = f"({test} OR {printer.missing(column)})"
    return test


def _print_member_test(ensemble: Ensemble, index: int, number: str) -> str:
    codes = ensemble.set_members(index)
    if not codes.size:
        return "1 = 0"
    return f"({number} >= 0 AND floor({number}) IN ({', '.join(map(str, codes.tolist()))}))"


def _print_infinite_test(printer: NodePrinter, number: str, symbol: str, threshold: float) -> str:
    largest = float(np.finfo("float64").max)
    match symbol, threshold > 0:
        case "<", True:
            return f"{number} <= {printer.number(largest, 'float64')}"
        case "<=", True:
            return f"{number} IS NOT NULL"
        case "<=", False:
            return f"{number} < {printer.number(-largest, 'float64')}"
    return "1 = 0"


BRANCHES = 8
"""Maximum number of branches of a CASE in `_print_selection`."""


def print_tree_columns(printer: NodePrinter) -> Value:
    """Print trees as `print_trees` does, but compute each tree in columns of queries."""
    ensemble = Ensemble.of(printer.attrs)
    x = printer.bind(printer.values[0])
    if printer.bindings.sum_trees is not None:
        name = printer.bindings.name(printer.bindings.sum_trees(ensemble, x))
        sums_of_row = [printer.dialect.at(name, k + 1) for k in range(len(ensemble.base))]
        return tuple(map(Expression, sums_of_row))
    sums, rows = _print_base_and_leaves(printer, ensemble)
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        leaves = _list_leaves(ensemble, root)
        position = _bind_leaf_positions(printer, ensemble, root, x, leaves)
        for k in range(ensemble.leaf_values.shape[1]):
            leaf_sql = {leaf: rows[leaf][k] for leaf in leaves}
            if position is None:
                sql = print_node(printer, ensemble, root, x, leaf_sql)
            else:
                sql = _print_selection(position, list(leaf_sql.values()), 0)
            sums[first_output + k].append(printer.bindings.name(sql))
    nan = not np.isfinite(ensemble.leaf_values).all()
    return tuple(Expression(printer.total(terms), nan=nan) for terms in sums)


def _bind_leaf_positions(
    printer: NodePrinter, ensemble: Ensemble, root: int, x: Value, leaves: Sequence[int]
) -> str | None:
    """Bind columns for the position of a row's leaf in `leaves`; return the last column's name.

    Return None if the tree is so low that one expression suffices. A column that has not reached a
    leaf is `len(leaves)` plus the index of the subtree from which the next column continues.
    """
    positions = {leaf: str(position) for position, leaf in enumerate(leaves)}
    assert isinstance(printer.dialect, Portable)
    levels = printer.dialect.levels
    position = None
    subtrees = [root]
    while subtrees:
        deeper_subtrees: list[int] = []

        def defer(subtree: int, deeper_subtrees: list[int] = deeper_subtrees) -> str:
            deeper_subtrees.append(subtree)
            return str(len(leaves) + len(deeper_subtrees) - 1)

        printed = [print_node(printer, ensemble, s, x, positions, levels, defer) for s in subtrees]
        if position is None and not deeper_subtrees:
            return None
        if position is None:
            position = printer.bindings.name(printed[0])
        else:
            deeper_sql = _print_selection(position, printed, len(leaves))
            sql = f"CASE WHEN {position} < {len(leaves)} THEN {position} ELSE {deeper_sql} END"
            position = printer.bindings.name(sql)
        subtrees = deeper_subtrees
    return position


def _print_selection(column: str, expressions: Sequence[str], first: int) -> str:
    """Return CASEs that select expression number `column`, counted from `first`."""
    if len(expressions) == 1:
        return expressions[0]
    size = 1
    while size * BRANCHES < len(expressions):
        size *= BRANCHES
    groups = [
        _print_selection(column, expressions[k : k + size], first + k)
        for k in range(0, len(expressions), size)
    ]
    bounds = range(first + size, first + len(expressions), size)
    branches = [f"WHEN {column} < {k} THEN {sql}" for k, sql in zip(bounds, groups, strict=False)]
    return f"CASE {' '.join(branches)} ELSE {groups[-1]} END"


def _list_leaves(ensemble: Ensemble, root: int) -> list[int]:
    leaves, stack = [], [root]
    while stack:
        index = stack.pop()
        if index < 0:
            leaves.append(~index)
        else:
            stack += [int(ensemble.right[index]), int(ensemble.left[index])]
    return leaves
