"""Partial evaluation of a model for literal arguments. Exact in labels and margins.

In `predict('m', *, plan := 'pro')`, the plan is the same in every row, so trees keep only the
branches that rows of plan 'pro' can reach. `inject_selection` then drops columns without tests. The
terms of known columns are added to the bias of a linear model, unless the model has class labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.forests import goes_left
from sqlml.ir.operators.imputation import find_out_of_bounds
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble, build_ensemble
from sqlml.types import TEXTUAL, Array, numpy_dtype

_CHECKS = ("require_finite", "require_known")
_PASSED = (*_CHECKS, "require")
"""Operators that return their input, unless they reject the row."""


Arguments = Mapping[str, float | str | None]


def fold_arguments(program: Program, arguments: Arguments, sums: bool = True) -> Program:
    """Specialize `program` for rows in which inputs have the values `arguments`; None means NULL.

    An input that remains must still get the same value. If `sums`, the terms of known columns in
    linear models are added to the bias, which rounds differently.
    """
    unknown = sorted(set(arguments) - set(program.inputs))
    if unknown:
        raise ConfigError(f"the model has no input {unknown[0]!r}")
    if any(node.type.sparse for node in program.nodes):
        return program  # Sparse rows are not followed.
    known_columns = _find_known_columns(program, arguments)
    node_values = _compute_values(program, arguments)
    index_by_id = {id(node): i for i, node in enumerate(program.nodes)}

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op not in ("tree_ensemble", "linear"):
            return None
        input_index = program.nodes[index_by_id[id(node)]].inputs[0]
        is_known, row_values = known_columns[input_index], node_values[input_index][0]
        if not is_known.any():
            return None
        if node.op == "tree_ensemble":
            pruned = specialize_trees(Ensemble.of(node.attrs), is_known, row_values)
            return builder.op("tree_ensemble", inputs[0], **pruned.attrs())
        if not sums or (program.labels and "label" in program.outputs):
            return None
        weights: Array = node.attrs["weights"]
        bias = node.attrs["bias"] + (row_values[is_known, None] * weights[is_known]).sum(axis=0)
        remaining = np.flatnonzero(~is_known)
        x = builder.op("select", inputs[0], indices=remaining)
        return builder.op("linear", x, weights=weights[remaining], bias=bias)

    return rewrite(program, rule)


def fold_input(program: Program, name: str, value: float) -> Program:
    """Evaluate the steps that read only the input `name`, which is `value` in each row. Exact.

    Steps that read the results must accept constants, as elementwise operators do.
    """
    read_names: list[frozenset[str]] = []
    rows: dict[int, Array] = {}
    for i, node in enumerate(program.nodes):
        names = frozenset().union(*(read_names[j] for j in node.inputs))
        if node.op == "input":
            names = frozenset({str(node.attrs["name"])})
            if names == {name}:
                rows[i] = np.array([[value]], numpy_dtype(node.type.dtype))
        elif node.op == "constant":
            rows[i] = node.attrs["value"]
        elif names == {name} and all(j in rows for j in node.inputs):
            rows[i] = reference.FUNCTIONS[node.op]([rows[j] for j in node.inputs], node.attrs)
        read_names.append(names)
    index_by_id = {id(node): i for i, node in enumerate(program.nodes)}

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        i = index_by_id[id(node)]
        is_folded = read_names[i] == {name} and node.type.rowwise and i in rows
        return builder.constant(rows[i][0]) if is_folded else None

    return rewrite(program, rule)


def rejects_arguments(program: Program, arguments: Arguments) -> bool:
    """Return whether a check in `program` rejects one of `arguments`."""
    known_columns = _find_known_columns(program, arguments)
    node_values = _compute_values(program, arguments)

    def rejects(node: Node) -> bool:
        row = node_values[node.inputs[0]][0]
        is_rejected = row < 0 if node.op == "require_known" else find_out_of_bounds(row, node.attrs)
        return bool((is_rejected & known_columns[node.inputs[0]]).any())

    return any(rejects(node) for node in program.nodes if node.op in _CHECKS)


def _compute_values(program: Program, arguments: Arguments) -> list[Array]:
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for node in program.nodes:
            if node.op == "input":
                is_text = node.type.dtype in TEXTUAL
                value = arguments.get(str(node.attrs["name"]))
                if value is None and not is_text:
                    value = float("nan") if node.type.dtype.startswith("float") else 0
                values.append(np.array([[value] * node.type.width], numpy_dtype(node.type.dtype)))
            elif node.op in _PASSED:
                values.append(values[node.inputs[0]])
            else:
                function = reference.FUNCTIONS[node.op]
                values.append(function([values[j] for j in node.inputs], node.attrs))
    return values


def _find_known_columns(program: Program, arguments: Arguments) -> list[Array]:
    """Return a mask for each node, bool (width,): the columns that the arguments determine."""
    known_columns: list[Array] = []
    for node in program.nodes:
        width = node.type.width if len(node.type.shape) == 2 else 1
        known_inputs = [known_columns[j] for j in node.inputs]
        if node.op == "input":
            is_known = np.full(width, node.attrs["name"] in arguments)
        elif node.op == "concat":
            is_known = np.concatenate(known_inputs)
        elif node.op == "select":
            is_known = known_inputs[0][node.attrs["indices"]]
        else:  # A constant has no inputs, so all of its columns are known.
            by_column = OPS[node.op].group == "injective" and len(node.type.shape) == 2
            is_known = np.full(width, True)
            for columns in known_inputs:
                is_known &= columns if by_column and columns.size == width else columns.all()
        known_columns.append(is_known)
    return known_columns


def specialize_trees(ensemble: Ensemble, is_known: Array, row_values: Array) -> Ensemble:
    """Specialize `ensemble` for rows with `row_values` in the features that `is_known` marks."""
    decided_nodes = np.flatnonzero(is_known[ensemble.feature])
    if not decided_nodes.size:
        return ensemble
    values = row_values[ensemble.feature[decided_nodes]].astype(ensemble.threshold.dtype)
    is_left = goes_left(ensemble, decided_nodes, values)
    chosen_child = np.where(is_left, ensemble.left[decided_nodes], ensemble.right[decided_nodes])
    # A child has a higher number than the parent, so the target of the child is already known.
    final_target = np.arange(ensemble.nodes)
    for node, child in zip(decided_nodes[::-1].tolist(), chosen_child[::-1].tolist(), strict=True):
        final_target[node] = child if child < 0 else final_target[child]

    def resolve_children(children: Array) -> Array:
        return np.where(children >= 0, final_target[np.maximum(children, 0)], children)

    raw = replace(
        replace(
            ensemble,
            roots=resolve_children(ensemble.roots),
            left=resolve_children(ensemble.left),
            right=resolve_children(ensemble.right),
        ).to_raw_trees(),
        # The training rows of a node say nothing about the remaining rows.
        cover=None,
        gain=None,
    )
    return build_ensemble(raw, target=ensemble.target, base=ensemble.base, compare=ensemble.compare)
