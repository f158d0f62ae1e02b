"""`tree_nodes`: the nodes of one tree of a model, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.explaining.owners import owners
from sqlml.explaining.weights import column_names
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node: number 0 is the root, and a leaf has `values` in place of a test.

    Attributes:
        output: the first of the outputs that the tree adds to.
        feature: the input that is tested. column: what of it, as `weights.Weight` has it.
        operator: "<", "<=" or "in". threshold of the first two; categories of the last: codes.
        yes, no, missing: the numbers of the nodes for rows that pass, that do not, and that have no
            value.
        cover, gain: what the source says, as `Ensemble` has it.
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


def trees_of(program: Program) -> int:
    """How many trees a model has."""
    return sum(Ensemble.of(n.attrs).trees for n in program.nodes if n.op == "tree_ensemble")


def tree_nodes(program: Program, tree: int) -> list[TreeNode]:
    """The nodes of a tree, by its number from 0 among all trees of the model, level by level."""
    for node in program.nodes:
        if node.op != "tree_ensemble":
            continue
        e = Ensemble.of(node.attrs)
        if tree < e.trees:
            return _nodes(program, node.inputs[0], e, tree)
        tree -= e.trees
    return []


def _nodes(program: Program, x: int, e: Ensemble, tree: int) -> list[TreeNode]:
    """The nodes of a tree whose rows are node x of the Program."""
    owner, names = owners(program)[x], column_names(program, x)
    inputs, made = list(program.inputs), list[TreeNode]()
    waiting, numbers = [(int(e.roots[tree]), 0)], {int(e.roots[tree]): 0}
    for at, depth in waiting:
        own: dict[str, Any] = {"depth": depth, "output": int(e.target[tree])}
        if at < 0:
            values = tuple(e.leaf_values[~at].astype(np.float64).tolist())
            cover = None if e.leaf_cover is None else float(e.leaf_cover[~at])
            made.append(TreeNode(numbers[at], cover=cover, values=values, **own))
            continue
        for child in (int(e.left[at]), int(e.right[at])):
            numbers[child] = len(numbers)
            waiting.append((child, depth + 1))
        k, is_set = int(e.feature[at]), e.categorical is not None and bool(e.categorical[at])
        yes, no = numbers[int(e.left[at])], numbers[int(e.right[at])]
        test = TreeNode(
            numbers[at],
            feature=inputs[owner[k]] if owner[k] >= 0 else None,
            column=names[k],
            operator="in" if is_set else "<" if e.compare == "lt" else "<=",
            threshold=None if is_set else float(e.threshold[at]),
            categories=_members(e, at) if is_set else None,
            yes=yes,
            no=no,
            missing=yes if e.default_left[at] else no,
            cover=None if e.cover is None else float(e.cover[at]),
            gain=None if e.gain is None else float(e.gain[at]),
            **own,
        )
        made.append(test)
    return made


def _members(e: Ensemble, at: int) -> tuple[str, ...]:
    """The codes of a node's set."""
    if e.set_offsets is None or e.set_words is None:
        return ()
    words = e.set_words[e.set_offsets[at] : e.set_offsets[at + 1]]
    codes = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
    return tuple(map(str, codes.tolist()))
