"""`explained`: a Program that also gives the contributions of a model's inputs, exact ones.

What is explained is the model's score, where it has one (the margin of boosted trees, a decision
function), else its probabilities or its value. Where that is a monotone function of a sum, such as
exp, the sum is explained: the contributions add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.additive import Additive
from sqlml.explaining.sampled_blocks import explained_output, sampled_blocks
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sampled import MOST_BACKGROUND
from sqlml.ir.program import Program
from sqlml.ir.rewrite import copy
from sqlml.ir.spec import verify
from sqlml.types import Array

OWN: Literal["contributions"] = "contributions"
BY_CLASS = "class_contributions"
"""Outputs: the contributions to what a model says of a row, and to each of its classes.

A block has a number for each input, then what is expected of a row of which nothing is known, and,
where the contributions are estimates, the standard error of each.
`contributions` has one block, or one for each target; for a classifier it is that of the second of
two classes, or of the class that is predicted. `class_contributions` has a block for each class.
"""

_LINKS = frozenset({"sigmoid", "exp", "exp2", "expm1", "softmax", "tanh", "square", "ndtr"})
"""Functions of a score that explanations leave out."""


@of_programs
def explained(program: Program) -> Program:
    """`program` with the outputs OWN and, for a classifier of one target, BY_CLASS besides its own.

    Raises:
        UnsupportedModelError: the model is no sum of what single columns contribute.
    """
    return _explained(program, None)


def explained_against(program: Program, background: Mapping[str, Array]) -> Program:
    """`explained`, where what is expected is the mean over some background rows.

    Of models that are no sum the contributions are estimated (`ir/operators/sampled.py`).

    Args:
        background: the rows, as the inputs of `program`, by name.

    Raises:
        UnsupportedModelError: the model predicts nothing, or reads lists or maps.
        ConfigError: no background rows, or too many.
    """
    rows = len(next(iter(background.values()))) if background else 0
    if not rows:
        raise ConfigError("the background has no rows: explain compares rows with those")
    if rows > MOST_BACKGROUND:
        raise ConfigError(
            f"explain takes at most {MOST_BACKGROUND:,} background rows; take a sample, as in "
            "background := (FROM t USING SAMPLE 100)"
        )
    return _explained(program, background)


def _explained(program: Program, background: Mapping[str, Array] | None) -> Program:
    b = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(copy(b, node, [values[i] for i in node.inputs]))
    additive = Additive(program, b, values, background)
    blocks = _blocks(program, additive)
    block = additive.block
    if blocks is None and background is not None:
        blocks, block = sampled_blocks(program, b, background), 2 * block - 1
    if blocks is None:
        raise UnsupportedModelError(_why(program, additive))
    made: dict[str, Value] = {OWN: blocks}
    if len(program.labels) == 1:
        made = _of_classes(program, b, values, blocks, block)
    own = {name: values[i] for name, i in program.outputs.items()}
    return verify(b.build({**own, **made}, program.labels, tuple(program.inputs)))


def block_of(program: Program) -> int:
    """How many numbers a block of an explained Program has."""
    values = 1 if program.labels else program.output_type("label").width
    return program.output_type(OWN).width // values


def holding(program: Program, output: str) -> Program:
    """`program`, explained if it is asked for an output that only then it has.

    Raises:
        UnsupportedModelError: as `explained` does.
    """
    wanted = output in (OWN, BY_CLASS) and OWN not in program.outputs
    return explained(program) if wanted else program


def _blocks(program: Program, additive: Additive) -> Value | None:
    """The blocks of the explained value."""
    name = explained_output(program)
    if name is None:
        return None
    at = program.outputs[name]
    if name == "proba" and [len(labels) for labels in program.labels] == [2]:
        return additive.columns(at, np.array([1]))  # the first is what is left to 1
    while (found := additive.of(at)) is None:
        node = program.nodes[at]
        if node.op not in (*_LINKS, "cast", "neg", "add", "sub", "mul", "div"):
            return None
        rows = [j for j in node.inputs if program.nodes[j].type.rowwise]
        if len(rows) != 1:
            return None
        at = rows[0]
    return found


def _of_classes(
    program: Program, b: Builder, values: list[Value], blocks: Value, block: int
) -> dict[str, Value]:
    """Both outputs of a classifier, from a block for each class, or for the second of two."""
    classes = len(program.labels[0])
    given, sure = blocks.type.width // block, explained_output(program) == "proba"
    if given == classes == 2:
        blocks, given = b.op("select", blocks, indices=np.arange(block, 2 * block)), 1
    if given == 1 and classes <= 2:
        inputs = len(program.inputs)
        whole, sign = np.zeros(block), np.where(np.arange(block) <= inputs, -1.0, 1.0)
        whole[inputs] = 1 if sure else 0  # of two probabilities, which add up to 1
        other = b.op("add", whole, b.op("mul", blocks, sign))
        return {OWN: blocks, BY_CLASS: b.op("concat", other, blocks)}
    if given != classes or "label" not in program.outputs:
        raise UnsupportedModelError("explain cannot tell which of the model's numbers is a class's")
    chosen = b.op("one_hot", values[program.outputs["label"]], width=classes, dtype="float64")
    each = b.linear(chosen, np.repeat(np.eye(classes), block, axis=1))
    own = b.linear(b.op("mul", each, blocks), np.tile(np.eye(block), (classes, 1)))
    return {OWN: own, BY_CLASS: blocks}


def _why(program: Program, additive: Additive) -> str:
    """Why there are no exact contributions, and what to do."""
    if explained_output(program) is None:
        return "explain needs a model that predicts; this one transforms its columns"
    if additive.lacks_cover:
        return (
            "this model does not say how many training rows reached each node of its trees, which "
            "explain needs: it was stored by an sqlml that did not keep them, or its file has "
            "none; create it again from the fitted object or the library's own file"
        )
    return (
        "explain gives exact contributions of sums of trees and linear models whose features are "
        "made of one column each; this model is none, and is compared with rows that you name, as "
        "in background := (FROM t USING SAMPLE 100)"
    )
