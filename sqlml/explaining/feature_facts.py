"""`feature_facts`: what a Program by itself says of the values that its features had in training.

That is what its steps learned of them: the categories of encoders, the means and deviations of a
StandardScaler, the least and greatest numbers that LightGBM writes down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.explaining.owners import owners
from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Of one input; None is not known.

    Attributes:
        feature: its name.
        kind: "number", "string" or another kind of a feature.
        categories: how many an encoder knows.
    """

    feature: str
    kind: str
    least: float | None = None
    most: float | None = None
    mean: float | None = None
    stddev: float | None = None
    categories: int | None = None


def feature_facts(program: Program) -> list[FeatureFacts]:
    """One for each input, in their order."""
    kinds = {feature.name: feature.kind for feature in program.features}
    made = [FeatureFacts(name, kinds.get(name, "number")) for name in program.inputs]
    owner = owners(program)
    for node in program.nodes:
        for name, values, columns in _told(program, node):
            for column, value in zip(columns, values, strict=True):
                k = int(owner[column[0]][column[1]])
                if k >= 0 and getattr(made[k], name) is None:
                    made[k] = replace(made[k], **{name: value})
    return made


Told = list[tuple[str, Sequence[Any], Sequence[tuple[int, int]]]]
"""Facts by name: the values, and the node and column that each is about."""


def _told(program: Program, node: Node) -> Told:
    """What a node says of the columns that it reads, where these are as they came."""
    if node.op == "encode":
        return [("categories", [len(node.attrs["categories"])], [(node.inputs[0], 0)])]
    if node.op in ("sub", "div"):
        return _of_scaler(program, node)
    if node.op == "tree_ensemble":
        ensemble, read = Ensemble.of(node.attrs), node.inputs[0]
        if ensemble.input_least is None or not _is_plain(program, read):
            return []
        columns = [(read, j) for j in range(len(ensemble.input_least))]
        bounds = (("least", ensemble.input_least), ("most", ensemble.input_most))
        return [(name, _numbers(found), columns) for name, found in bounds if found is not None]
    return []


def _of_scaler(program: Program, node: Node) -> Told:
    """The means that a StandardScaler takes away, or the deviations that it divides by."""
    read, constant = (program.nodes[k] for k in node.inputs)
    at = node.inputs[0]
    if node.op == "div" and read.op == "sub":
        at = read.inputs[0]
    source = program.nodes[at]
    scales = source.op == "require_finite" and source.attrs["step"] == "StandardScaler"
    if not scales or constant.op != "constant" or not _is_plain(program, at):
        return []
    values = np.ravel(constant.attrs["value"])
    name = "mean" if node.op == "sub" else "stddev"
    return [(name, _numbers(values), [(at, j) for j in range(len(values))])]


def _is_plain(program: Program, at: int) -> bool:
    """Whether a node has the features as they came, but for checks and filled gaps."""
    node = program.nodes[at]
    if node.op == "input":
        return True
    through = node.op in ("require_finite", "impute", "concat", "select", "cast")
    return through and all(_is_plain(program, k) for k in node.inputs)


def _numbers(values: Array) -> list[float | None]:
    """Numbers, with None for NaN."""
    return [None if np.isnan(v) else float(v) for v in values]
