"""Reconstruction losses of decompositions and autoencoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sqlml.bounded_cache import cache_by_program
from sqlml.errors import UnsupportedModelError
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.ops import verify
from sqlml.ir.program import Node, Program

LOSSES: Literal["losses"] = "losses"
"""The name of the output with the mean absolute error, the mean squared error and the mean squared
logarithmic error of each row's reconstruction."""


def find_projection(program: Program) -> Node | None:
    """Return the linear operator of a decomposition, which may be scaled by a constant."""
    if "transform" not in program.outputs or program.labels:
        return None
    node = program.nodes[program.outputs["transform"]]
    if node.op == "div" and program.nodes[node.inputs[1]].op == "constant":
        node = program.nodes[node.inputs[0]]
    return node if node.op == "linear" else None


@cache_by_program
def add_losses(program: Program) -> Program:
    """Return `program` with the output LOSSES, over the columns that the last step of it reads."""
    builder, values = Builder(), list[Value]()
    for node in program.nodes:
        values.append(copy_retyped(builder, node, [values[i] for i in node.inputs]))
    pair = _restore_rows(program, builder, values)
    if pair is None:
        raise UnsupportedModelError(
            "only autoencoders and decompositions such as PCA can restore rows; models that an "
            "earlier sqlml registered must be registered again"
        )
    x, restored = (builder.cast(value, "float64") for value in pair)
    op, count = builder.op, float(x.type.width)
    error = op("sub", restored, x)
    # As in Keras, negative numbers count as 0 in the logarithms.
    logarithms = [op("log1p", op("maximum", value, 0.0)) for value in (restored, x)]
    log_error = op("sub", *logarithms)
    errors = [op("abs", error), op("square", error), op("square", log_error)]
    means = [op("div", op("sum", value, axis=1), count) for value in errors]
    outputs = {name: values[i] for name, i in program.outputs.items()}
    outputs[LOSSES] = builder.concat(means)
    return verify(builder.build(outputs, program.labels, tuple(program.inputs)))


def _restore_rows(
    program: Program, builder: Builder, values: Sequence[Value]
) -> tuple[Value, Value] | None:
    """Return the rows that the last step reads, and their reconstruction, or None."""
    projection = find_projection(program)
    if projection is not None and "mean" in projection.attrs:
        x = values[projection.inputs[0]]
        if x.type.sparse:
            x = builder.op("densify", x, fill=0.0)
        components, mean = projection.attrs["weights"].T, projection.attrs["mean"]
        transformed = values[program.outputs["transform"]]
        if program.nodes[program.outputs["transform"]] is not projection:  # It is whitened.
            components = np.sqrt(projection.attrs["explained_variance"])[:, None] * components
        return x, builder.linear(transformed, components, mean)
    if "transform" not in program.outputs or "samples" not in program.outputs:
        return None
    index = program.outputs["samples"]  # An autoencoder has -sum((restored - x) ** 2) / width.
    for op in ("div", "sum", "mul"):
        if program.nodes[index].op != op:
            return None
        index = program.nodes[index].inputs[0]
    residual = program.nodes[index]
    if residual.op != "sub":
        return None
    restored, x = (values[i] for i in residual.inputs)
    return (x, restored) if x.type == restored.type and x.type.rowwise else None
