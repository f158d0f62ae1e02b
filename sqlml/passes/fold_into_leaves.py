"""Fold results of single trees into their leaves, and add trees up in one ensemble.

Exact, except that a zero may become positive. Each row of such a result is one of as many values as
the tree has leaves, so it is computed once per leaf. Boosted trees in ONNX files, for example, vote
in ten operators per tree. An addition of a tree to trees of the same columns then becomes the next
tree of their ensemble, which adds its trees in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.types import FLOATS, Array

MAX_LEAF_NUMBERS = 1 << 20
"""The most numbers in the leaves of a tree for which the leaves are computed anew."""


def fold_into_leaves(program: Program) -> Program:
    """Compute results of single trees in their leaves, and merge trees that are added up."""
    users = _find_users(program)
    results = _find_results(program, users)
    sums = _find_sums(program, users, results)
    if not results and not sums:
        return program
    builder, values = Builder(), list[Value]()
    has_changed = False
    for i, node in enumerate(program.nodes):
        value: Value | None = None
        if i in results:
            value = _compute_leaves(builder, program, results[i], i, values)
        elif i in sums:
            value = _merge_trees(builder, [values[j] for j in sums[i]])
        has_changed = has_changed or value is not None
        inputs = [values[j] for j in node.inputs]
        values.append(copy_retyped(builder, node, inputs) if value is None else value)
    if not has_changed:
        return program
    outputs = {name: values[i] for name, i in program.outputs.items()}
    return builder.build(outputs, program.labels)


def _find_users(program: Program) -> list[set[int]]:
    """Return the nodes that read each node; an output counts as the reader -1."""
    users: list[set[int]] = [set() for _ in program.nodes]
    for i in program.outputs.values():
        users[i].add(-1)
    for i, node in enumerate(program.nodes):
        for j in node.inputs:
            users[j].add(i)
    return users


def _find_results(program: Program, users: Sequence[set[int]]) -> Mapping[int, int]:
    """Map each node whose values are to become leaves to the tree that these depend on.

    Everything else that depends on the tree alone must serve only to compute this node, so that the
    rows do not pass through the tree twice.
    """
    trees = _find_trees(program)
    exits: dict[int, list[int]] = {}
    for i, tree in trees.items():
        if any(trees.get(user) != tree for user in users[i]):
            exits.setdefault(tree, []).append(i)
    return {
        last: tree
        for tree, (last, *others) in exits.items()
        if not others and last != tree and _can_be_leaves(program, tree, last)
    }


def _find_trees(program: Program) -> Mapping[int, int]:
    """Map each node that depends on nothing but a single tree, and constants, to this tree."""
    trees: dict[int, int] = {}
    for i, node in enumerate(program.nodes):
        if node.op == "tree_ensemble":
            if Ensemble.of(node.attrs).trees == 1:
                trees[i] = i
            continue
        row_inputs = [j for j in node.inputs if program.nodes[j].type.rowwise]
        sources = {trees.get(j, -1) for j in row_inputs}
        if len(sources) == 1 and not node.op.startswith("require"):
            (source,) = sources
            if source >= 0:
                trees[i] = source
    return trees


def _can_be_leaves(program: Program, tree: int, node: int) -> bool:
    result_type = program.nodes[node].type
    if result_type.dtype not in FLOATS or len(result_type.shape) != 2 or result_type.sparse:
        return False
    leaves: int = program.nodes[tree].attrs["leaf_values"].shape[0]
    return 0 < leaves * result_type.width <= MAX_LEAF_NUMBERS


def _compute_leaves(
    builder: Builder, program: Program, tree: int, node: int, values: list[Value]
) -> Value | None:
    """Return the tree with the values of `node` as leaves, or None if they cannot be computed."""
    ensemble = Ensemble.of(program.nodes[tree].attrs)
    first, width = int(ensemble.target[0]), ensemble.leaf_values.shape[1]
    margins = np.tile(ensemble.base, (ensemble.leaf_values.shape[0], 1))
    margins[:, first : first + width] += ensemble.leaf_values
    leaves = reference.compute_node(program, {tree: margins}, node)
    result_type = program.nodes[node].type
    if leaves is None or leaves.shape != (len(margins), result_type.width):
        return None
    attrs = replace(
        ensemble,
        leaf_values=np.ascontiguousarray(leaves),
        target=np.zeros(1, np.int32),
        base=np.zeros(result_type.width, leaves.dtype),
    ).attrs()
    return builder.op("tree_ensemble", values[program.nodes[tree].inputs[0]], **attrs)


def _find_sums(
    program: Program, users: Sequence[set[int]], results: Mapping[int, int]
) -> Mapping[int, list[int]]:
    """Map the last of a chain of additions to the values that the chain adds, in order.

    A chain stops at `results`, whose own additions become leaves.
    """
    chains: dict[int, list[int]] = {}

    def continues(i: int) -> bool:
        return i in chains and i not in results and len(users[i]) == 1

    for i, node in enumerate(program.nodes):
        if node.op != "add":
            continue
        first, second = node.inputs
        if continues(second) and not continues(first):  # Addition is commutative.
            first, second = second, first
        if continues(first):
            chains[i] = chains.pop(first)
            chains[i].append(second)
        else:
            chains[i] = [first, second]
    return chains


def _merge_trees(builder: Builder, summands: Sequence[Value]) -> Value | None:
    """Return the ensemble of trees that are added up, or None if not all are trees.

    The trees must read the same columns. All but the first are single trees without a base.
    """
    nodes = [builder.node(value) for value in summands]
    first = nodes[0]
    if any(node.op != "tree_ensemble" or node.inputs != first.inputs for node in nodes):
        return None
    ensembles = [Ensemble.of(node.attrs) for node in nodes]
    if len({_describe_layout(ensemble) for ensemble in ensembles}) > 1:
        return None
    if any(e.has_categories for e in ensembles):
        return None
    if any(e.trees != 1 or e.base.any() for e in ensembles[1:]):
        return None
    first_nodes = np.cumsum([0, *(e.nodes for e in ensembles)])
    first_leaves = np.cumsum([0, *(e.leaf_values.shape[0] for e in ensembles)])

    def join(name: str) -> Array:
        return np.concatenate([getattr(e, name) for e in ensembles])

    def join_children(name: str) -> Array:
        shifted = [
            np.where(children >= 0, children + node, children - leaf)
            for children, node, leaf in zip(
                (getattr(e, name) for e in ensembles), first_nodes, first_leaves, strict=False
            )
        ]
        return np.concatenate(shifted).astype(np.int32)

    plain = ("feature", "threshold", "default_left", "leaf_values", "target")
    arrays = {name: join(name) for name in plain}
    children = {name: join_children(name) for name in ("roots", "left", "right")}
    attrs = {**arrays, **children, "base": ensembles[0].base, "compare": ensembles[0].compare}
    return builder.op("tree_ensemble", builder.value(first.inputs[0]), **attrs)


def _describe_layout(ensemble: Ensemble) -> tuple[object, ...]:
    """Return what must be equal in ensembles that are merged."""
    leaves = ensemble.leaf_values
    dtypes = (ensemble.threshold.dtype, leaves.dtype)
    return ensemble.compare, *dtypes, ensemble.outputs, leaves.shape[1]
