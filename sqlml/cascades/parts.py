"""Programs made of parts of a model: the columns that its last estimator reads, the model with some
of them shuffled, and the model with another last estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.cascades.last_estimator import LastEstimator
from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.registry import imported_onto
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.ir.rewrite import copy
from sqlml.passes.push_selection import push_selection
from sqlml.types import Array

FEATURES = "transform"
"""The output of `features`."""

CONFIDENCE = "score"
"""The output of a small model that says how sure it is."""

SHUFFLED = "{} (shuffled)"
"""How `shuffled` calls the second copy of an input."""


def features(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """The columns at `places` of the last estimator's matrix; maybe sparse rows (`ir/csr.py`)."""
    b = Builder(program.nodes)
    return push_selection(b.build({FEATURES: _chosen(b, _matrix(b, last), places)}))


def shuffled(program: Program, last: LastEstimator, places: Sequence[int]) -> Program:
    """The model, in which the columns at `places` are computed from other rows.

    Its inputs come twice: under their own names, and as `SHUFFLED` for those columns.
    """
    b = Builder(program.nodes)
    again: dict[int, Value] = {}
    for i in program.live(last.values):
        node = program.nodes[i]
        if node.op == "input":
            again[i] = b.input_of(node, SHUFFLED.format(node.attrs["name"]))
        elif node.type.rowwise:
            held = [again.get(j, b.value(j)) for j in node.inputs]
            again[i] = copy(b, node, held)
    own, other = _matrix(b, last), b.beside([again[i] for i in last.values])
    kept = sorted(set(range(own.type.width)) - set(places))
    mixed = b.beside(
        [_chosen(b, own, kept), _chosen(b, other, sorted(places))] if kept else [other]
    )
    order = np.argsort([*kept, *sorted(places)])
    return _ending(b, program, last, _chosen(b, mixed, order))


def with_estimator(
    program: Program, last: LastEstimator, places: Sequence[int], estimator: Any, sparse: bool
) -> tuple[Builder, Outputs]:
    """What a fitted `estimator` makes of the columns at `places`, as nodes after the model's own.

    Args:
        sparse: it was fitted on sparse rows.

    Raises:
        UnsupportedModelError: it is of a class that sqlml does not import, or predicts nothing.
    """
    b = Builder(program.nodes)
    matrix = _chosen(b, _matrix(b, last), places)
    made = imported_onto(estimator, replace(Frame.of(b, matrix), sparse=sparse))
    if not isinstance(made, Outputs):
        raise UnsupportedModelError(f"a {type(estimator).__name__} predicts nothing")
    return b, made


def _matrix(b: Builder, last: LastEstimator) -> Value:
    return b.beside([b.value(i) for i in last.values])


def _chosen(b: Builder, x: Value, places: Sequence[int] | Array) -> Value:
    indices = np.asarray(places, np.int64)
    whole = np.array_equal(indices, np.arange(x.type.width))
    return x if whole else b.op("select", x, indices=indices)


def _ending(b: Builder, program: Program, last: LastEstimator, matrix: Value) -> Program:
    """The model from its last estimator on, over another matrix."""
    values: dict[int, Value] = {}
    first = 0
    for i in last.values:
        width = program.nodes[i].type.width
        values[i] = _chosen(b, matrix, np.arange(first, first + width))
        first += width
    wanted = [n for n in ("label", "proba", "score") if n in program.outputs]
    for i in program.live([program.outputs[n] for n in wanted]):
        node = program.nodes[i]
        if i not in values and node.type.rowwise and any(j in values for j in node.inputs):
            values[i] = copy(b, node, [values.get(j, b.value(j)) for j in node.inputs])
    ends = {n: values.get(program.outputs[n], b.value(program.outputs[n])) for n in wanted}
    return b.build(ends, program.labels)
