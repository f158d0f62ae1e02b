"""Partial evaluation of a model for literal arguments. Exact in labels and margins.

In `predict('m', *, plan := 'pro')` the plan is the same for every row, so trees keep only the
branches that plan = 'pro' can reach. `inject_selection` then drops columns without tests. A linear
model adds known columns to its bias, unless a class label depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.forests import goes_left
from sqlml.ir.operators.imputation import find_out_of_bounds
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.types import TEXTUAL, Array, numpy_dtype

_CHECKS = ("require_finite", "require_known")


def fold_arguments(
    program: Program, arguments: Mapping[str, float | str | None], sums: bool = True
) -> Program:
    """Specialize `program` for rows whose inputs in `arguments` have these values (None is NULL).

    The caller must still pass this value to an input that remains. If `sums`, known columns of
    linear models are added to the bias, which rounds differently.
    """
    unknown = sorted(set(arguments) - set(program.inputs))
    if unknown:
        raise ConfigError(f"the model has no input {unknown[0]!r}")
    if any(node.type.sparse for node in program.nodes):
        return program  # Sparse rows have no array of values to follow.
    known_columns_of = _find_known_columns(program, arguments)
    values_of = _compute_values(program, arguments)
    index_of = {id(node): i for i, node in enumerate(program.nodes)}

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op not in ("tree_ensemble", "linear"):
            return None
        input_index = program.nodes[index_of[id(node)]].inputs[0]
        is_known, row_values = known_columns_of[input_index], values_of[input_index][0]
        if not is_known.any():
            return None
        if node.op == "tree_ensemble":
            pruned = specialize_trees(Ensemble.of(node.attrs), is_known, row_values)
            return b.op("tree_ensemble", inputs[0], **pruned.attrs())
        if not sums or (program.labels and "label" in program.outputs):
            return None
        weights: Array = node.attrs["weights"]
        bias = node.attrs["bias"] + (row_values[is_known, None] * weights[is_known]).sum(axis=0)
        remaining = np.flatnonzero(~is_known)
        x = b.op("select", inputs[0], indices=remaining)
        return b.op("linear", x, weights=weights[remaining], bias=bias)

    return rewrite(program, rule)


def rejects_arguments(program: Program, arguments: Mapping[str, float | str | None]) -> bool:
    """Return whether a check of `program` rejects one of the arguments."""
    known_columns_of = _find_known_columns(program, arguments)
    values_of = _compute_values(program, arguments)
    for node in program.nodes:
        if node.op not in _CHECKS:
            continue
        input_index = node.inputs[0]
        x = values_of[input_index][0]
        is_bad = x < 0 if node.op == "require_known" else find_out_of_bounds(x, node.attrs)
        if (is_bad & known_columns_of[input_index]).any():
            return True
    return False


def _compute_values(program: Program, arguments: Mapping[str, float | str | None]) -> list[Array]:
    """Return the value of every node for one row; only known columns are meaningful."""
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for node in program.nodes:
            if node.op == "input":
                is_text = node.type.dtype in TEXTUAL
                value = arguments.get(str(node.attrs["name"]))
                if value is None and not is_text:
                    value = float("nan") if node.type.dtype.startswith("float") else 0
                dtype = numpy_dtype(node.type.dtype)
                values.append(np.array([[value] * node.type.width], dtype))
            elif node.op in _CHECKS:
                values.append(values[node.inputs[0]])
            else:
                function = reference.FUNCTIONS[node.op]
                values.append(function([values[j] for j in node.inputs], node.attrs))
    return values


def _find_known_columns(
    program: Program, arguments: Mapping[str, float | str | None]
) -> list[Array]:
    """Return, for every node, which of its columns the arguments determine, bool (width,)."""
    known_columns_of: list[Array] = []
    for node in program.nodes:
        width = node.type.width if len(node.type.shape) == 2 else 1
        known_inputs = [known_columns_of[j] for j in node.inputs]
        if node.op == "input":
            known_columns_of.append(np.full(width, node.attrs["name"] in arguments))
        elif node.op == "constant":
            known_columns_of.append(np.full(width, True))
        elif node.op == "concat":
            known_columns_of.append(np.concatenate(known_inputs))
        elif node.op == "select":
            known_columns_of.append(known_inputs[0][node.attrs["indices"]])
        elif OPS[node.op].group == "injective" and len(node.type.shape) == 2:
            broadcast_inputs = [
                k if k.size == width else np.full(width, k.all()) for k in known_inputs
            ]
            known_columns_of.append(np.logical_and.reduce(broadcast_inputs))
        else:
            known_columns_of.append(np.full(width, all(k.all() for k in known_inputs)))
    return known_columns_of


def specialize_trees(ensemble: Ensemble, columns: Array, row: Array) -> Ensemble:
    """Specialize `ensemble` for rows with the values `row` in the features `columns` (bool)."""
    decided_nodes = (
        np.flatnonzero(columns[ensemble.feature]) if ensemble.nodes else np.zeros(0, np.int64)
    )
    value = row[ensemble.feature[decided_nodes]].astype(ensemble.threshold.dtype)
    chosen_child = np.where(
        goes_left(ensemble, decided_nodes, value),
        ensemble.left[decided_nodes],
        ensemble.right[decided_nodes],
    )
    # A child has a higher number than its parent, so its target is already known.
    final_target = np.arange(ensemble.nodes)
    for node, child in zip(decided_nodes[::-1].tolist(), chosen_child[::-1].tolist(), strict=True):
        final_target[node] = child if child < 0 else final_target[child]

    def follow(child: Array) -> Array:
        """Return the numbers of children for RawTrees, in which leaf k has the number M + k."""
        target = np.where(child >= 0, final_target[np.maximum(child, 0)], child)
        return np.where(target >= 0, target, ensemble.nodes + ~target)

    if not decided_nodes.size:
        return ensemble
    num_leaves = ensemble.leaf_values.shape[0]
    padding = np.zeros(num_leaves, np.int64)
    categorical = np.zeros(0, bool) if ensemble.categorical is None else ensemble.categorical
    sets = {node: ensemble.set_members(node) for node in np.flatnonzero(categorical).tolist()}
    raw = RawTrees(
        roots=follow(ensemble.roots),
        feature=np.concatenate([ensemble.feature, padding]),
        threshold=np.concatenate([ensemble.threshold, padding.astype(ensemble.threshold.dtype)]),
        left=np.concatenate([follow(ensemble.left), padding]),
        right=np.concatenate([follow(ensemble.right), padding]),
        leaf=np.concatenate([np.zeros(ensemble.nodes, bool), np.ones(num_leaves, bool)]),
        default_left=np.concatenate([ensemble.default_left, padding.astype(bool)]),
        value=np.concatenate(
            [np.zeros((ensemble.nodes, ensemble.leaf_values.shape[1])), ensemble.leaf_values]
        ),
        sets=sets,
    )
    return build_ensemble(raw, target=ensemble.target, base=ensemble.base, compare=ensemble.compare)
