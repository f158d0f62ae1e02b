"""Trees as nested CASEs: a few small trees as an expression, or each tree as columns of queries.

A row goes right if a test does not hold; in SQL, a comparison of NULL or NaN does not hold. In
`print_tree_columns`, a deep tree needs several columns: in each of them, a row passes some levels,
from subtree to subtree, until it reaches a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.backends.sql.expression import Expression, Printing, Value
from sqlml.dialects.portable import Portable
from sqlml.errors import BackendError
from sqlml.ir.trees import Ensemble

MAX_NODES = 5000
"""Maximum number of inner nodes in one expression; the engine takes milliseconds to bind a hundred.
"""

MAX_LEVELS = 200
"""Maximum number of levels of a tree, to leave some of the engine's nesting limit."""


def print_trees(printing: Printing) -> Value:
    """Return the sums of the leaf values in their dtype, from the first tree to the last."""
    ensemble = Ensemble.of(printing.attrs)
    if ensemble.has_categories:
        raise BackendError("trees that test category sets are not printed as SQL")
    if ensemble.nodes > MAX_NODES or ensemble.depth > MAX_LEVELS:
        raise BackendError(
            f"{ensemble.nodes} nodes in trees of depth {ensemble.depth} are too many for an "
            f"expression: at most {MAX_NODES}, of depth {MAX_LEVELS}"
        )
    x = printing.bind(printing.values[0])
    dtype, leaf_dtype = str(ensemble.base.dtype), str(ensemble.leaf_values.dtype)
    values_per_leaf = ensemble.leaf_values.shape[1]
    sums: list[list[str]] = [
        [printing.number(base_value, dtype)] for base_value in ensemble.base.tolist()
    ]
    literals = [
        [printing.number(value, leaf_dtype) for value in row]
        for row in ensemble.leaf_values.tolist()
    ]
    leaves = dict(
        enumerate(
            row[0] if values_per_leaf == 1 else printing.dialect.array(row) for row in literals
        )
    )
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        sql = print_node(printing, ensemble, root, x, leaves)
        if values_per_leaf == 1:
            sums[first_output].append(sql)
            continue
        name = printing.bindings.name(sql)
        for k in range(values_per_leaf):
            sums[first_output + k].append(printing.dialect.at(name, k + 1))
    return tuple(
        Expression(printing.total(terms), nan=not np.isfinite(ensemble.leaf_values).all())
        for terms in sums
    )


def print_node(
    printing: Printing,
    ensemble: Ensemble,
    index: int,
    x: Value,
    leaves: Mapping[int, str],
    levels: int = MAX_LEVELS + 1,
    print_rest: Callable[[int], str] = str,
) -> str:
    """Print `levels` levels of a subtree as nested CASEs; `print_rest` prints the nodes below them.

    `leaves` has the SQL of each leaf.
    """
    if index < 0:
        return leaves[~index]
    if levels == 0:
        return print_rest(index)
    left, right = (
        print_node(printing, ensemble, int(side[index]), x, leaves, levels - 1, print_rest)
        for side in (ensemble.left, ensemble.right)
    )
    right_test = _print_right_test(printing, ensemble, index, x)
    if right_test is not None:
        return f"CASE WHEN {right_test} THEN {right} ELSE {left} END"
    return (
        f"CASE WHEN {_print_left_test(printing, ensemble, index, x)} THEN {left} ELSE {right} END"
    )


def _print_right_test(printing: Printing, ensemble: Ensemble, index: int, x: Value) -> str | None:
    """Return a comparison that holds for rows that go right.

    Return None unless missing numbers are NULL and go left.
    """
    column, threshold = x[int(ensemble.feature[index])], float(ensemble.threshold[index])
    tests_set = ensemble.categorical is not None and ensemble.categorical[index]
    goes_left = (
        bool(ensemble.default_left[index]) and column.nan and printing.dialect.missing_is_null
    )
    if not goes_left or tests_set or not np.isfinite(threshold):
        return None
    symbol = ">=" if ensemble.compare == "lt" else ">"
    return f"{column.sql} {symbol} {printing.number(threshold, printing.operand)}"


def _print_left_test(printing: Printing, ensemble: Ensemble, index: int, x: Value) -> str:
    column = x[int(ensemble.feature[index])]
    threshold = float(ensemble.threshold[index])
    symbol = "<" if ensemble.compare == "lt" else "<="
    number = column.raw or column.sql
    if ensemble.categorical is not None and ensemble.categorical[index]:
        test = _print_member_test(ensemble, index, column.sql)
    elif threshold != threshold:  # No number goes left.
        test = "1 = 0" if printing.dialect.missing_is_null else "false"
    elif printing.dialect.missing_is_null and np.isinf(threshold):  # Few databases have infinity.
        test = _compare_with_infinity(printing, number, symbol, threshold)
    else:
        # In the engine, NaN is greater than all numbers, including infinity.
        test = f"{number} {symbol} {printing.number(threshold, printing.operand)}"
    if ensemble.default_left[index] and column.raw is not None:
        test = f"({test} OR {number} IS NULL OR {printing.dialect.call('isnan', number)})"
    elif ensemble.default_left[index] and column.nan:
        test = f"({test} OR {printing.missing(column)})"
    return test


def _print_member_test(ensemble: Ensemble, index: int, number: str) -> str:
    """Return the condition that a number, without its fraction, is in the node's set."""
    codes = ensemble.set_members(index)
    if not codes.size:
        return "1 = 0"
    return f"({number} >= 0 AND floor({number}) IN ({', '.join(map(str, codes.tolist()))}))"


def _compare_with_infinity(printing: Printing, number: str, symbol: str, threshold: float) -> str:
    largest = float(np.finfo("float64").max)
    match symbol, threshold > 0:
        case "<", True:
            return f"{number} <= {printing.number(largest, 'float64')}"
        case "<=", True:
            return f"{number} IS NOT NULL"
        case "<=", False:
            return f"{number} < {printing.number(-largest, 'float64')}"
    return "1 = 0"


BRANCHES = 8
"""Number of branches per level in a search for the number of a leaf."""


def print_tree_columns(printing: Printing) -> Value:
    """Return the sums of the leaf values in their dtype, from the first tree to the last."""
    ensemble = Ensemble.of(printing.attrs)
    x = printing.bind(printing.values[0])
    if printing.bindings.sum_trees is not None:
        name = printing.bindings.name(printing.bindings.sum_trees(ensemble, x))
        return tuple(
            Expression(printing.dialect.at(name, k + 1)) for k in range(len(ensemble.base))
        )
    dtype, leaf_dtype = str(ensemble.base.dtype), str(ensemble.leaf_values.dtype)
    sums: list[list[str]] = [[printing.number(b, dtype)] for b in ensemble.base.tolist()]
    for root, first_output in zip(ensemble.roots.tolist(), ensemble.target.tolist(), strict=True):
        leaves = _list_leaves(ensemble, root)
        literals = [
            [printing.number(v, leaf_dtype) for v in ensemble.leaf_values[leaf].tolist()]
            for leaf in leaves
        ]
        position = _bind_leaf_positions(printing, ensemble, root, x, leaves)
        for k in range(ensemble.leaf_values.shape[1]):
            values = [literals_of_leaf[k] for literals_of_leaf in literals]
            if position is None:
                sql = print_node(
                    printing, ensemble, root, x, dict(zip(leaves, values, strict=True))
                )
            else:
                sql = _select_by_number(position, values, 0)
            sums[first_output + k].append(printing.bindings.name(sql))
    nan = not np.isfinite(ensemble.leaf_values).all()
    return tuple(Expression(printing.total(terms), nan=nan) for terms in sums)


def _bind_leaf_positions(
    printing: Printing, ensemble: Ensemble, root: int, x: Value, leaves: Sequence[int]
) -> str | None:
    """Bind the position of a row's leaf in `leaves`, and return the column with it.

    Return None for a tree that is shallow enough for one expression.
    """
    numbers = {leaf: str(position) for position, leaf in enumerate(leaves)}
    assert isinstance(printing.dialect, Portable)
    levels = printing.dialect.levels
    position = None
    subtrees = [root]
    while subtrees:
        deeper_subtrees: list[int] = []

        def number_subtree(subtree: int, deeper_subtrees: list[int] = deeper_subtrees) -> str:
            deeper_subtrees.append(subtree)
            return str(len(leaves) + len(deeper_subtrees) - 1)

        printed = [
            print_node(printing, ensemble, subtree, x, numbers, levels, number_subtree)
            for subtree in subtrees
        ]
        if position is None and not deeper_subtrees:
            return None
        if position is None:
            position = printing.bindings.name(printed[0])
        else:
            position_in_deeper_levels = _select_by_number(position, printed, len(leaves))
            position = printing.bindings.name(
                f"CASE WHEN {position} < {len(leaves)} THEN {position} "
                f"ELSE {position_in_deeper_levels} END"
            )
        subtrees = deeper_subtrees
    return position


def _select_by_number(column: str, expressions: Sequence[str], first: int) -> str:
    """Return SQL that selects one of `expressions` by number; the first one has number `first`."""
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
