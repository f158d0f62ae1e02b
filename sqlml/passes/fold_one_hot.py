"""Fold one-hot columns in front of trees into tests of the category's code. Exact.

A tree tests the one-hot column of a category to tell this category from all others. The same test
of the code is whether it belongs to the set of this one category. So a forest reads a column of
codes for each feature, in place of a column for each of thousands of categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass
from sqlml.ir.program import Node
from sqlml.ir.trees import MAX_CATEGORY, Ensemble
from sqlml.passes.selection import push_down
from sqlml.types import Array


@make_pass("tree_ensemble")
def fold_one_hot(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Make trees read codes in place of the one-hot columns of these codes."""
    (x,) = inputs
    ensemble = Ensemble.of(node.attrs)
    width = x.type.width
    sources = find_one_hot_sources(builder, x, np.arange(width))
    if ensemble.has_categories or (sources.codes < 0).all():
        return None
    is_plain = sources.codes < 0
    codes, code_columns = np.unique(sources.codes[~is_plain], return_inverse=True)
    plain_columns = np.flatnonzero(is_plain)
    new_columns = np.empty(width, np.int64)
    new_columns[is_plain] = np.arange(plain_columns.size)
    new_columns[~is_plain] = plain_columns.size + code_columns
    parts = [builder.cast(builder.value(i), x.type.dtype) for i in codes.tolist()]
    if plain_columns.size:
        parts.insert(0, push_down(builder, x, plain_columns))
    tests = _test_codes(ensemble, sources)
    attrs = {**node.attrs, **tests, "feature": new_columns[ensemble.feature].astype(np.int32)}
    return builder.op("tree_ensemble", builder.concat(parts), **attrs)


@dataclass(frozen=True, slots=True, eq=False)
class OneHotSources:
    """The sources of k columns: nodes with codes, int64 (k,), and the categories, int64 (k,).

    The column is 1 in rows with this category, and 0 in others. The node is -1 for other columns.
    """

    codes: Array
    categories: Array


def find_one_hot_sources(builder: Builder, x: Value, columns: Array) -> OneHotSources:
    """Find the sources of the given columns of `x`, before select, concat and cast."""
    node = builder.node(x)
    nowhere = np.full(columns.size, -1, np.int64)
    if node.op == "one_hot" and node.attrs["width"] < MAX_CATEGORY:
        return OneHotSources(np.full(columns.size, node.inputs[0], np.int64), columns)
    if node.op == "cast":
        return find_one_hot_sources(builder, builder.value(node.inputs[0]), columns)
    if node.op == "select":
        source = builder.value(node.inputs[0])
        return find_one_hot_sources(builder, source, node.attrs["indices"][columns])
    if node.op == "concat" and not x.type.sparse:
        sources = OneHotSources(nowhere, nowhere.copy())
        first_columns = builder.first_columns(x)
        part_of_column = np.searchsorted(first_columns, columns, "right") - 1
        for part in np.unique(part_of_column).tolist():
            is_inside = part_of_column == part
            operand = builder.value(node.inputs[part])
            part_columns = columns[is_inside] - first_columns[part]
            part_sources = find_one_hot_sources(builder, operand, part_columns)
            sources.codes[is_inside] = part_sources.codes
            sources.categories[is_inside] = part_sources.categories
        return sources
    return OneHotSources(nowhere, nowhere)


def _test_codes(ensemble: Ensemble, sources: OneHotSources) -> dict[str, Array]:
    """Return the attributes of `ensemble` whose tests of one-hot columns test codes instead.

    A row goes left if its code is the node's threshold. The children of most nodes are swapped,
    because a one-hot column is at most 0.5 in rows of all other categories. If a test treats 0 and
    1 alike, the node's set is empty.
    """
    tests_code = sources.codes[ensemble.feature] >= 0
    left_at_zero, left_at_one = find_sides_of_zero_and_one(ensemble)
    is_single = tests_code & (left_at_zero != left_at_one)
    is_swapped = tests_code & left_at_zero
    thresholds = np.where(tests_code, 0, ensemble.threshold)
    thresholds[is_single] = sources.categories[ensemble.feature[is_single]]
    return {
        "threshold": thresholds.astype(ensemble.threshold.dtype),
        "left": np.where(is_swapped, ensemble.right, ensemble.left),
        "right": np.where(is_swapped, ensemble.left, ensemble.right),
        "default_left": ensemble.default_left & ~tests_code,
        "categorical": tests_code,
        "single": is_single,
        "set_offsets": np.zeros(ensemble.nodes + 1, np.int32),
        "set_words": np.zeros(0, np.uint32),
    }


def find_sides_of_zero_and_one(ensemble: Ensemble) -> tuple[Array, Array]:
    """Return for each node whether the number 0 goes left, and whether the number 1 does."""
    zero, one = (np.array(number, ensemble.threshold.dtype) for number in (0, 1))
    if ensemble.compare == "lt":
        return zero < ensemble.threshold, one < ensemble.threshold
    return zero <= ensemble.threshold, one <= ensemble.threshold
