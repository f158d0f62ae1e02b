"""The leaves that rows reach, and the scores of the first trees, as the source library has them.

`add_leaves` gives a model of trees the output `LEAF`, as `apply` or `pred_leaf` of the libraries.
`keep_stages` keeps the first boosting iterations, or the first trees of a forest, as the libraries'
`staged_predict` or `iteration_range`. Both need what importers record in `Ensemble`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from sqlml.bounded_cache import cache_by_program
from sqlml.errors import UnsupportedModelError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.ops import OPS, OUTPUTS
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble

LEAF: Literal["leaf"] = "leaf"
"""The output with the library's number of the leaf in each tree, float64 (n, trees)."""

_CALIBRATING = ("interpolate", "search_sorted")
"""Opaque operators that may follow trees, as in isotonic calibration."""

_NO_TREES = "it is not a single ensemble of trees"
_IMPORT_AGAIN = "create the model again from the fitted object or the library's own file"


@cache_by_program
def add_leaves(program: Program) -> Program:
    """Return `program` with the output `LEAF`; raise UnsupportedModelError without numbers."""
    index = _find_trees(program)
    if index is None:
        raise UnsupportedModelError(_NO_TREES)
    ensemble = _read_ensemble(program, index)
    if not ensemble.trees:
        raise UnsupportedModelError("it has no trees")
    if ensemble.leaf_number is None:
        raise UnsupportedModelError(
            "it lacks its library's numbers of the leaves, since an older sqlml stored it: "
            f"{_IMPORT_AGAIN}"
        )
    num_trees = ensemble.trees
    numbered = replace(
        ensemble,
        leaf_values=ensemble.leaf_number.astype(np.float64)[:, None],
        target=np.arange(num_trees, dtype=np.int32),
        base=np.zeros(num_trees),
        leaf_number=None,
        stage_ends=None,
        stage_mean=None,
    )
    builder, values = Builder(), list[Value]()
    for node in program.nodes:
        values.append(builder.copy_node(node, [values[i] for i in node.inputs]))
    x = values[program.nodes[index].inputs[0]]
    outputs = {name: values[i] for name, i in program.outputs.items()}
    outputs[LEAF] = builder.op("tree_ensemble", x, **numbered.attrs())
    return builder.build(outputs, program.labels, tuple(program.inputs))


@cache_by_program
def keep_stages(program: Program, count: int) -> Program:
    """Return the model that scores with its first `count` stages.

    Raises UnsupportedModelError if the model has no stages, or not as many.
    """
    index = _find_trees(program)
    if index is None:
        raise UnsupportedModelError(_NO_TREES)
    ensemble = _read_ensemble(program, index)
    stage_ends = ensemble.stage_ends
    if stage_ends is None:
        raise UnsupportedModelError(
            "its library does not score with the first trees, or an older sqlml stored it: in the "
            f"latter case, {_IMPORT_AGAIN}"
        )
    if not 1 <= count <= stage_ends.size:
        is_forest = ensemble.stage_mean and stage_ends.size == ensemble.trees
        unit = "trees" if is_forest else "boosting iterations"
        raise UnsupportedModelError(f"it has {stage_ends.size} {unit}")
    num_trees = int(stage_ends[count - 1])
    linear_leaves = next((n for n in program.nodes if _reads_leaves(program, n, index)), None)
    sum_node = linear_leaves or program.nodes[index]

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node is program.nodes[index]:
            first_trees = ensemble.keep_trees(np.arange(num_trees))
            first_trees = first_trees.with_stages(stage_ends[:count], bool(ensemble.stage_mean))
            return builder.op("tree_ensemble", inputs[0], **first_trees.attrs())
        if node is linear_leaves:
            leaves = builder.op("select", inputs[0], indices=np.arange(num_trees))
            attrs = {**node.attrs, "target": node.attrs["target"][:num_trees]}
            return builder.op("linear_leaves", leaves, inputs[1], **attrs)
        if ensemble.stage_mean and node.op == "div" and program.nodes[node.inputs[0]] is sum_node:
            return builder.op("div", inputs[0], float(count))
        return None

    return rewrite(program, rule, keep_inputs=True)


def _read_ensemble(program: Program, index: int) -> Ensemble:
    return Ensemble.of(program.nodes[index].attrs)


def _reads_leaves(program: Program, node: Node, index: int) -> bool:
    """Return whether `node` has the linear models in the leaves of the ensemble."""
    return node.op == "linear_leaves" and program.nodes[node.inputs[0]].inputs == (index,)


def _find_trees(program: Program) -> int | None:
    """Return the index of the only ensemble from which the main output is computed.

    Return None if something else contributes, such as another model. The input of the ensemble may
    contain anything, such as the trees of a RandomTreesEmbedding.
    """
    main_output = next((name for name in OUTPUTS if name in program.outputs), None)
    pending = [] if main_output is None else [program.outputs[main_output]]
    visited, ensembles = set[int](), list[int]()
    while pending:
        index = pending.pop()
        if index in visited:
            continue
        visited.add(index)
        node = program.nodes[index]
        if node.op == "tree_ensemble":
            ensembles.append(index)
        elif node.op == "linear" and (stages := _find_added_stages(program, node)) is not None:
            ensembles.append(stages)
        elif node.op == "linear_leaves":
            pending.append(node.inputs[0])
        elif node.op in _CALIBRATING or OPS[node.op].group in ("injective", "reduction"):
            pending += node.inputs
        elif node.op != "constant":
            return None
    return ensembles[0] if len(ensembles) == 1 else None


def _find_added_stages(program: Program, node: Node) -> int | None:
    """Return the ensemble whose stages a linear operator adds to the score of another model.

    So GradientBoosting does with an estimator as `init`.
    """
    concat = program.nodes[node.inputs[0]]
    last = program.nodes[concat.inputs[-1]] if concat.op == "concat" else node
    is_sum = last.op == "tree_ensemble" and np.isin(node.attrs["weights"], (0, 1)).all()
    return concat.inputs[-1] if is_sum and "stage_ends" in last.attrs else None
