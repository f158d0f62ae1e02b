"""Partial evaluation of a model for literal arguments. Exact in labels and margins.

In `predict('m', *, plan := 'pro')` the plan is the same for every row, so trees keep only the
branches that plan = 'pro' can reach; selection injection then drops columns without tests. A linear
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

    An input that is still used must be passed that value. If `sums`, known columns of linear models
    are added to the bias, which rounds differently.
    """
    unknown = sorted(set(arguments) - set(program.inputs))
    if unknown:
        raise ConfigError(f"the model has no input {unknown[0]!r}")
    if any(node.type.sparse for node in program.nodes):
        return program  # Sparse rows have no array of values to follow.
    is_known = _find_known_columns(program, arguments)
    values = _compute_values(program, arguments)
    index_of = {id(node): i for i, node in enumerate(program.nodes)}

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op not in ("tree_ensemble", "linear"):
            return None
        below = program.nodes[index_of[id(node)]].inputs[0]
        columns, row = is_known[below], values[below][0]
        if not columns.any():
            return None
        if node.op == "tree_ensemble":
            pruned = specialize_trees(Ensemble.of(node.attrs), columns, row)
            return b.op("tree_ensemble", inputs[0], **pruned.attrs())
        if not sums or (program.labels and "label" in program.outputs):
            return None
        weights: Array = node.attrs["weights"]
        bias = node.attrs["bias"] + (row[columns, None] * weights[columns]).sum(axis=0)
        rest = np.flatnonzero(~columns)
        x = b.op("select", inputs[0], indices=rest)
        return b.op("linear", x, weights=weights[rest], bias=bias)

    return rewrite(program, rule)


def rejects_arguments(program: Program, arguments: Mapping[str, float | str | None]) -> bool:
    """Return whether a check of `program` rejects one of these values."""
    is_known, values = _find_known_columns(program, arguments), _compute_values(program, arguments)
    for node in program.nodes:
        if node.op not in _CHECKS:
            continue
        below = node.inputs[0]
        x, is_known_column = values[below][0], is_known[below]
        is_bad = x < 0 if node.op == "require_known" else find_out_of_bounds(x, node.attrs)
        if (is_bad & is_known_column).any():
            return True
    return False


def _compute_values(program: Program, arguments: Mapping[str, float | str | None]) -> list[Array]:
    """Return the value of every node for one row; only known columns are meaningful."""
    values: list[Array] = []
    with np.errstate(all="ignore"):
        for node in program.nodes:
            if node.op == "input":
                strings = node.type.dtype in TEXTUAL
                value = arguments.get(str(node.attrs["name"]))
                if value is None and not strings:
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
    """Return for every node which columns the arguments determine, bool (width,)."""
    is_known: list[Array] = []
    for node in program.nodes:
        width = node.type.width if len(node.type.shape) == 2 else 1
        below = [is_known[j] for j in node.inputs]
        if node.op == "input":
            is_known.append(np.full(width, node.attrs["name"] in arguments))
        elif node.op == "constant":
            is_known.append(np.full(width, True))
        elif node.op == "concat":
            is_known.append(np.concatenate(below))
        elif node.op == "select":
            is_known.append(below[0][node.attrs["indices"]])
        elif OPS[node.op].group == "injective" and len(node.type.shape) == 2:
            every = [k if k.size == width else np.full(width, k.all()) for k in below]
            is_known.append(np.logical_and.reduce(every))
        else:
            is_known.append(np.full(width, all(k.all() for k in below)))
    return is_known


def specialize_trees(e: Ensemble, columns: Array, row: Array) -> Ensemble:
    """Specialize `e` for rows in which the features `columns` (bool) have the values `row`."""
    decided = np.flatnonzero(columns[e.feature]) if e.nodes else np.zeros(0, np.int64)
    value = row[e.feature[decided]].astype(e.threshold.dtype)
    chosen = np.where(goes_left(e, decided, value), e.left[decided], e.right[decided])
    # A child has a higher number than its parent, so going backwards its target is known.
    settled = np.arange(e.nodes)
    for node, child in zip(decided[::-1].tolist(), chosen[::-1].tolist(), strict=True):
        settled[node] = child if child < 0 else settled[child]

    def follow(child: Array) -> Array:
        """Return numbers for RawTrees, in which leaf k is number M + k."""
        target = np.where(child >= 0, settled[np.maximum(child, 0)], child)
        return np.where(target >= 0, target, e.nodes + ~target)

    if not decided.size:
        return e
    leaves = e.leaf_values.shape[0]
    blank = np.zeros(leaves, np.int64)
    categorical = np.zeros(0, bool) if e.categorical is None else e.categorical
    sets = {node: e.set_members(node) for node in np.flatnonzero(categorical).tolist()}
    raw = RawTrees(
        roots=follow(e.roots),
        feature=np.concatenate([e.feature, blank]),
        threshold=np.concatenate([e.threshold, blank.astype(e.threshold.dtype)]),
        left=np.concatenate([follow(e.left), blank]),
        right=np.concatenate([follow(e.right), blank]),
        leaf=np.concatenate([np.zeros(e.nodes, bool), np.ones(leaves, bool)]),
        default_left=np.concatenate([e.default_left, blank.astype(bool)]),
        value=np.concatenate([np.zeros((e.nodes, e.leaf_values.shape[1])), e.leaf_values]),
        sets=sets,
    )
    return build_ensemble(raw, target=e.target, base=e.base, compare=e.compare)
