"""Centroids of clusters and components of decompositions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.explaining.model_facts import Weight, find_columns, find_last_sum
from sqlml.explaining.reconstruction import find_projection
from sqlml.ir.program import Node, Program
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points in the space of a model's columns, such as centroids or components.

    columns: the input of each column, and its category, word or number if an input has several.
    values: (points, columns). explained_variance, variance_ratio: the variance of each component
    and its share of the total, or None if unknown.
    """

    columns: Sequence[tuple[str, str | None]]
    values: Array
    explained_variance: Array | None = None
    variance_ratio: Array | None = None


def read_centroids(program: Program) -> Points | None:
    """Return the centroids of a clustering model in the units of the inputs, or None.

    A value is NaN if the preprocessing of its column cannot be undone.
    """
    output = next((name for name in ("transform", "label") if name in program.outputs), None)
    if output is None or not program.labels:
        return None
    node, offsets = _find_linear(program, program.outputs[output])
    if node is None:
        return None
    centroids = node.attrs["weights"].T / -2.0
    norms = np.einsum("kf,kf->k", centroids, centroids)
    if not any(o.shape == norms.shape and np.allclose(o, norms) for o in offsets):
        return None  # These are no distances to centroids.
    columns = find_columns(program, node.inputs[0])
    if columns is None or len(centroids) != len(program.labels[0]):
        return None
    return Points(columns, _restore_units(program, node.inputs[0], centroids))


_DISTANCE_STEPS = frozenset({"sqrt", "maximum", "add", "neg", "argmax"})


def _find_linear(program: Program, i: int) -> tuple[Node | None, list[Array]]:
    """Return the linear operator from which distances are computed, and the numbers that are added.

    See `compute_distances` in `importers/sklearn/cluster.py`.
    """
    node = program.nodes[i]
    if node.op == "linear":
        return node, [node.attrs["bias"]]
    offsets: list[Array] = []
    linear: Node | None = None
    for j in node.inputs if node.op in _DISTANCE_STEPS else ():
        if program.nodes[j].op == "constant":
            offsets.append(np.ravel(program.nodes[j].attrs["value"]))
            continue
        inner_linear, further_offsets = _find_linear(program, j)
        linear = linear or inner_linear
        offsets += further_offsets
    return linear, offsets


def _restore_units(
    program: Program,
    i: int,
    values: Array,
    steps: Collection[str] = ("add", "sub", "mul", "div"),
) -> Array:
    """Undo the linear `steps` for `values`, (points, width), in the columns of node i.

    Columns of categories and words stay as they are. Others that were not scaled become NaN.
    """
    node = program.nodes[i]
    if node.op in ("input", "one_hot", "count_tokens", "has_items", "isnan"):
        return values
    if node.op == "concat":
        ends = np.cumsum([program.nodes[j].type.width for j in node.inputs])
        parts = np.split(values, ends[:-1], axis=1)
        pairs = zip(node.inputs, parts, strict=True)
        return np.hstack([_restore_units(program, j, part, steps) for j, part in pairs])
    if node.op == "select":
        indices = node.attrs["indices"]
        source = np.full((len(values), program.nodes[node.inputs[0]].type.width), np.nan)
        source[:, indices] = values
        return _restore_units(program, node.inputs[0], source, steps)[:, indices]
    if node.op in ("require_finite", "impute", "cast", "densify", "sparsify"):
        return _restore_units(program, node.inputs[0], values, steps)
    if node.op in ("add", "sub", "mul", "div"):
        source_index, operand_index = node.inputs
        operand, source_node = program.nodes[operand_index], program.nodes[source_index]
        if operand.op == "constant" and source_node.type.shape == node.type.shape:
            if node.op not in steps:
                return _restore_units(program, source_index, values, steps)
            undo = {"add": np.subtract, "sub": np.add, "mul": np.divide, "div": np.multiply}
            with np.errstate(all="ignore"):
                unscaled = undo[node.op](values, operand.attrs["value"])
            return _restore_units(program, source_index, unscaled, steps)
    return np.full_like(values, np.nan)


def rescale_weights(
    program: Program,
    weights: Sequence[Weight],
    spreads: Mapping[str, tuple[float, float]] | None,
) -> list[Weight]:
    """Return the `weights` of a linear model in the units of the inputs, or of their spreads.

    `spreads` maps inputs to the mean and standard deviation by which they are standardized.
    """
    shifts, scales = find_scaling(program)
    rescaled = list[Weight]()
    for output in range(max(weight.output for weight in weights) + 1):
        intercept, *own = (weight for weight in weights if weight.output == output)
        bias, columns = intercept.weight, list[Weight]()
        for weight, shift, scale in zip(own, shifts.tolist(), scales.tolist(), strict=True):
            value = weight.weight / scale
            bias -= value * shift
            if spreads is not None and weight.column is None and weight.feature is not None:
                if weight.feature not in spreads:
                    raise UnsupportedModelError(
                        f"does not record the mean and spread of {weight.feature!r}, by which to "
                        "standardize its weight"
                    )
                mean, spread = spreads[weight.feature]
                bias += value * mean
                value *= spread
            columns.append(replace(weight, weight=value))
        rescaled += [replace(intercept, weight=bias), *columns]
    return rescaled


def find_scaling(program: Program) -> tuple[Array, Array]:
    """Return the numbers that a linear model's steps subtract from its columns and divide by."""
    node = find_last_sum(program)
    assert node is not None, "a model with weights is linear"
    zeros = np.zeros((1, program.nodes[node.inputs[0]].type.width))
    shifts = _restore_units(program, node.inputs[0], zeros)[0]
    scales = _restore_units(program, node.inputs[0], zeros + 1.0, ("mul", "div"))[0]
    if not (np.isfinite(shifts).all() and np.isfinite(scales).all() and scales.all()):
        raise UnsupportedModelError("scales its inputs in a way that its weights cannot undo")
    return shifts, scales


def read_components(program: Program) -> Points | None:
    """Return the components of a linear decomposition such as PCA, or None for other models."""
    node = find_projection(program)
    columns = None if node is None else find_columns(program, node.inputs[0])
    if node is None or columns is None:
        return None
    facts = (node.attrs.get(name) for name in ("explained_variance", "variance_ratio"))
    return Points(columns, node.attrs["weights"].T, *facts)
