"""`weights`: the coefficients of a linear model, each with the column that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.explaining.owners import owners
from sqlml.explaining.sampled_blocks import LINKS, explained_output
from sqlml.ir.program import Node, Program
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of one column for one output.

    `column` is what a step before has made of the input: the category of a one-hot column, the
    word of a text, `MISSING` of an indicator of missing values, or its number among the input's
    columns without such a name; None where only one has none, as of a number itself. The intercept
    belongs to no feature.
    """

    feature: str | None
    column: str | None
    output: int
    weight: float


def weights(program: Program) -> list[Weight] | None:
    """The weights of the sum that the model's score is, or rises with; None if it is none, or its
    columns are not made of one input each."""
    owner = owners(program)
    inputs = list(program.inputs)
    node = _last_sum(program)
    if node is not None and not (owner[node.inputs[0]] < 0).any():
        own = owner[node.inputs[0]]
        names = column_names(program, node.inputs[0])
        unnamed = np.array([name is None for name in names], bool)
        counts = np.bincount(own[unnamed], minlength=len(inputs))
        made = []
        for output in range(node.attrs["weights"].shape[1]):
            made.append(Weight(None, None, output, float(node.attrs["bias"][output])))
            for j, weight in enumerate(node.attrs["weights"][:, output].tolist()):
                column = names[j]
                if column is None and counts[own[j]] > 1:
                    column = str(int((unnamed[:j] & (own[:j] == own[j])).sum()) + 1)
                made.append(Weight(inputs[own[j]], column, output, float(weight)))
        return made
    return None


def _last_sum(program: Program) -> Node | None:
    """The weighted sum that the explained output is, but for links and casts."""
    name = explained_output(program)
    at = None if name is None else program.outputs[name]
    while at is not None:
        node = program.nodes[at]
        if node.op == "linear":
            return node
        rows = [j for j in node.inputs if program.nodes[j].type.rowwise]
        followed = node.op in (*LINKS, "cast", "select") and len(rows) == 1
        at = rows[0] if followed else None
    return None


MISSING = "missing"
"""The name of a column that is 1 where the input has no value."""


def column_names(program: Program, i: int) -> list[str | None]:
    """Return what each column of node i stands for, such as a category or a word; None where it has
    no name."""
    node = program.nodes[i]
    if node.op == "concat":
        return [name for j in node.inputs for name in column_names(program, j)]
    if node.op == "select":
        inner = column_names(program, node.inputs[0])
        return [inner[int(k)] for k in node.attrs["indices"]]
    if node.op == "one_hot":
        return _categories(program, node)
    if node.op in ("count_tokens", "has_items"):
        return list(_words(node))
    width = node.type.width
    if node.op == "isnan":
        return [MISSING] * width
    if len(node.inputs) and program.nodes[node.inputs[0]].type.rowwise:
        below = program.nodes[node.inputs[0]].type
        if below.width == width and below.shape == node.type.shape:
            return column_names(program, node.inputs[0])
    return [None] * width


def _categories(program: Program, node: Node) -> list[str | None]:
    """The categories of a one-hot encoding, from the encoder below it; NULL if it has a column."""
    below, width = program.nodes[node.inputs[0]], node.type.width
    while below.op not in ("encode", "input") and below.inputs:
        below = program.nodes[below.inputs[0]]
    if below.op != "encode":
        return [None] * width
    made: list[str | None] = [str(value) for value in below.attrs["categories"].tolist()]
    if below.attrs["missing"] == len(made):
        made.append("NULL")
    return made if len(made) == width else [None] * width


def _words(node: Node) -> list[str | None]:
    """The words of a vocabulary, by their columns."""
    words: Array = node.attrs["words"]
    text = words.tobytes() if words.dtype == np.uint8 else None
    ends = node.attrs["ends"]
    if text is None or ends.size != node.type.width:
        return [None] * node.type.width
    starts = [0, *ends.tolist()[:-1]]
    return [
        text[a:b].decode("utf-8", "replace") for a, b in zip(starts, ends.tolist(), strict=True)
    ]
