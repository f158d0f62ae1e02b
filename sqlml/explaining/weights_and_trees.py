"""The inner structure of a model as table rows: linear weights and the nodes of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.explaining.explained import LINKS, explained_output
from sqlml.explaining.owners import find_owners
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one column for one output of a linear model.

    Attributes:
        feature: the input; None for the intercept.
        column: the column of an input that was encoded into several: its category, a word,
            `MISSING`, or its number if it has no such name. None for an input with a single unnamed
            column.
    """

    feature: str | None
    column: str | None
    output: int
    weight: float


def weights(program: Program) -> list[Weight] | None:
    """Return the weights of the linear sum behind the explained output.

    Returns:
        None if there is no such sum, or its columns depend on several inputs.
    """
    owner = find_owners(program)
    inputs = list(program.inputs)
    node = _find_last_sum(program)
    if node is not None and not (owner[node.inputs[0]] < 0).any():
        owner_of_column = owner[node.inputs[0]]
        names = column_names(program, node.inputs[0])
        unnamed = np.array([name is None for name in names], bool)
        counts = np.bincount(owner_of_column[unnamed], minlength=len(inputs))
        rows = []
        for output in range(node.attrs["weights"].shape[1]):
            rows.append(Weight(None, None, output, float(node.attrs["bias"][output])))
            for j, weight in enumerate(node.attrs["weights"][:, output].tolist()):
                column = names[j]
                if column is None and counts[owner_of_column[j]] > 1:
                    column = str(
                        int((unnamed[:j] & (owner_of_column[:j] == owner_of_column[j])).sum()) + 1
                    )
                rows.append(Weight(inputs[owner_of_column[j]], column, output, float(weight)))
        return rows
    return None


def _find_last_sum(program: Program) -> Node | None:
    """Return the weighted sum that the explained output is, looking through links and casts."""
    name = explained_output(program)
    index = None if name is None else program.outputs[name]
    while index is not None:
        node = program.nodes[index]
        if node.op == "linear":
            return node
        rows = [j for j in node.inputs if program.nodes[j].type.rowwise]
        can_follow = node.op in (*LINKS, "cast", "select") and len(rows) == 1
        index = rows[0] if can_follow else None
    return None


MISSING = "missing"
"""The name of a column that is 1 where the input is missing."""


def column_names(program: Program, i: int) -> list[str | None]:
    """Return a name per column of node i, such as its category or word; None if it has none."""
    node = program.nodes[i]
    if node.op == "concat":
        return [name for j in node.inputs for name in column_names(program, j)]
    if node.op == "select":
        inner = column_names(program, node.inputs[0])
        return [inner[int(k)] for k in node.attrs["indices"]]
    if node.op == "one_hot":
        return _one_hot_names(program, node)
    if node.op in ("count_tokens", "has_items"):
        return list(_vocabulary(node))
    width = node.type.width
    if node.op == "isnan":
        return [MISSING] * width
    if len(node.inputs) and program.nodes[node.inputs[0]].type.rowwise:
        below = program.nodes[node.inputs[0]].type
        if below.width == width and below.shape == node.type.shape:
            return column_names(program, node.inputs[0])
    return [None] * width


def _one_hot_names(program: Program, node: Node) -> list[str | None]:
    """Return the categories of a one-hot encoding, from the encoder below it, with "NULL" for
    missing."""
    below, width = program.nodes[node.inputs[0]], node.type.width
    while below.op not in ("encode", "input") and below.inputs:
        below = program.nodes[below.inputs[0]]
    if below.op != "encode":
        return [None] * width
    names: list[str | None] = [str(value) for value in below.attrs["categories"].tolist()]
    if below.attrs["missing"] == len(names):
        names.append("NULL")
    return names if len(names) == width else [None] * width


def _vocabulary(node: Node) -> list[str | None]:
    words: Array = node.attrs["words"]
    text = words.tobytes() if words.dtype == np.uint8 else None
    ends = node.attrs["ends"]
    if text is None or ends.size != node.type.width:
        return [None] * node.type.width
    starts = [0, *ends.tolist()[:-1]]
    return [
        text[a:b].decode("utf-8", "replace") for a, b in zip(starts, ends.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of a decision tree; number 0 is the root. A leaf has `values` instead of a test.

    Attributes:
        output: the first of the outputs that the tree adds to.
        feature, column: the tested input, and its column as in `Weight`.
        operator: "<", "<=" or "in".
        threshold: the threshold for "<" and "<=".
        categories: the category codes for "in".
        yes, no, missing: the numbers of the child nodes for rows that pass, do not pass, and lack
            the value.
        cover, gain: the source's statistics, as in `Ensemble`.
    """

    node: int
    depth: int
    output: int
    feature: str | None = None
    column: str | None = None
    operator: str | None = None
    threshold: float | None = None
    categories: tuple[str, ...] | None = None
    yes: int | None = None
    no: int | None = None
    missing: int | None = None
    cover: float | None = None
    gain: float | None = None
    values: tuple[float, ...] | None = None


def count_trees(program: Program) -> int:
    """Return the number of trees of a model."""
    return sum(Ensemble.of(n.attrs).trees for n in program.nodes if n.op == "tree_ensemble")


def tree_nodes(program: Program, tree: int) -> list[TreeNode]:
    """Return the nodes of tree number `tree` (from 0, over all ensembles), level by level."""
    for node in program.nodes:
        if node.op != "tree_ensemble":
            continue
        e = Ensemble.of(node.attrs)
        if tree < e.trees:
            return _list_tree_nodes(program, node.inputs[0], e, tree)
        tree -= e.trees
    return []


def _list_tree_nodes(program: Program, x: int, e: Ensemble, tree: int) -> list[TreeNode]:
    """List the nodes of a tree whose input rows are node x of the Program."""
    owner, names = find_owners(program)[x], column_names(program, x)
    inputs, nodes = list(program.inputs), list[TreeNode]()
    queue, numbers = [(int(e.roots[tree]), 0)], {int(e.roots[tree]): 0}
    for index, depth in queue:
        common: dict[str, Any] = {"depth": depth, "output": int(e.target[tree])}
        if index < 0:
            values = tuple(e.leaf_values[~index].astype(np.float64).tolist())
            cover = None if e.leaf_cover is None else float(e.leaf_cover[~index])
            nodes.append(TreeNode(numbers[index], cover=cover, values=values, **common))
            continue
        for child in (int(e.left[index]), int(e.right[index])):
            numbers[child] = len(numbers)
            queue.append((child, depth + 1))
        k, is_set = int(e.feature[index]), e.categorical is not None and bool(e.categorical[index])
        yes, no = numbers[int(e.left[index])], numbers[int(e.right[index])]
        test = TreeNode(
            numbers[index],
            feature=inputs[owner[k]] if owner[k] >= 0 else None,
            column=names[k],
            operator="in" if is_set else "<" if e.compare == "lt" else "<=",
            threshold=None if is_set else float(e.threshold[index]),
            categories=_set_codes(e, index) if is_set else None,
            yes=yes,
            no=no,
            missing=yes if e.default_left[index] else no,
            cover=None if e.cover is None else float(e.cover[index]),
            gain=None if e.gain is None else float(e.gain[index]),
            **common,
        )
        nodes.append(test)
    return nodes


def _set_codes(e: Ensemble, index: int) -> tuple[str, ...]:
    if e.set_offsets is None or e.set_words is None:
        return ()
    words = e.set_words[e.set_offsets[index] : e.set_offsets[index + 1]]
    codes = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return tuple(map(str, codes.tolist()))
