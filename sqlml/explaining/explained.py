"""`explained`: a Program that also gives the contributions of a model's inputs, exact ones.

What is explained is the model's score, where it has one (the margin of boosted trees, a decision
function), else its probabilities or its value. Where that is a monotone function of a sum, such as
exp, the sum is explained: the contributions add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.additive import Additive
from sqlml.explaining.classes import BY_CLASS, OWN, Classes
from sqlml.explaining.sampled_blocks import LINKS, explained_output, sampled_blocks
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sampled import MOST_BACKGROUND, MOST_ORDERS
from sqlml.ir.program import Program
from sqlml.ir.rewrite import copy
from sqlml.ir.spec import verify
from sqlml.types import Array


@of_programs
def explained(program: Program) -> Program:
    """`program` with the outputs OWN and, for a classifier of one target, BY_CLASS besides its own.

    Raises:
        UnsupportedModelError: the model is no sum of what single columns contribute.
    """
    return _explained(program, None, None)


def explained_against(
    program: Program, background: Mapping[str, Array], pairs: int | None = None
) -> Program:
    """`explained`, where what is expected is the mean over some background rows.

    Of models that are no sum the contributions are estimated (`ir/operators/sampled.py`).

    Args:
        background: the rows, as the inputs of `program`, by name.
        pairs: of orders that an estimate tries for each background row.

    Raises:
        UnsupportedModelError: the model predicts nothing, or reads lists or maps.
        ConfigError: no background rows, or too many, or such a number of orders.
    """
    if pairs is not None and not 1 <= pairs <= MOST_ORDERS:
        raise ConfigError(f"permutations must be from 1 to {MOST_ORDERS:,}")
    rows = len(next(iter(background.values()))) if background else 0
    if not rows:
        raise ConfigError("the background has no rows: explain compares rows with those")
    if rows > MOST_BACKGROUND:
        raise ConfigError(
            f"explain takes at most {MOST_BACKGROUND:,} background rows; take a sample, as in "
            "background := (FROM t USING SAMPLE 100)"
        )
    return _explained(program, background, pairs)


def _explained(
    program: Program, background: Mapping[str, Array] | None, pairs: int | None
) -> Program:
    b = Builder()
    values: list[Value] = []
    for node in program.nodes:
        values.append(copy(b, node, [values[i] for i in node.inputs]))
    additive = Additive(program, b, values, background)
    blocks = _blocks(program, b, additive)
    block = additive.block
    if blocks is None and background is not None:
        blocks, block = sampled_blocks(program, b, background, pairs), 2 * block - 1
    if blocks is None:
        raise UnsupportedModelError(_why(program, additive))
    own = {name: values[i] for name, i in program.outputs.items()}
    made: dict[str, Value] = {OWN: blocks}
    if program.labels:
        made = Classes(program, b, values, block).outputs(blocks)
    return verify(b.build({**own, **made}, program.labels, tuple(program.inputs)))


def block_of(program: Program) -> int:
    """How many numbers a block of an explained Program has."""
    estimated = any(node.op == "sampled_contributions" for node in program.nodes)
    return (2 if estimated else 1) * len(program.inputs) + 1


def holding(program: Program, output: str) -> Program:
    """`program`, explained if it is asked for an output that only then it has.

    Raises:
        UnsupportedModelError: as `explained` does.
    """
    wanted = output in (OWN, BY_CLASS) and OWN not in program.outputs
    return explained(program) if wanted else program


def _blocks(program: Program, b: Builder, additive: Additive) -> Value | None:
    """The blocks of the explained value; where that falls as a sum rises, of the sum's opposite."""
    name = explained_output(program)
    if name is None:
        return None
    at, rises = program.outputs[name], True
    if name == "proba" and [len(labels) for labels in program.labels] == [2]:
        if additive.whole(at) is None:
            return None
        return additive.columns(at, np.array([1]))  # the first is what is left to 1
    while (found := additive.whole(at)) is None:
        below = _below(program, at)
        if below is None:
            return None
        at, rises = below[0], rises == below[1]
    return found if rises else b.op("neg", found)


def _below(program: Program, at: int) -> tuple[int, bool] | None:
    """What a node is a function of, and whether that rises everywhere; None if it is neither."""
    node = program.nodes[at]
    rows = [j for j in node.inputs if program.nodes[j].type.rowwise]
    if len(rows) != 1:
        return None
    if node.op in LINKS or node.op == "cast":
        return rows[0], True
    if node.op == "neg":
        return rows[0], False
    if node.op not in ("add", "sub", "mul", "div"):
        return None
    others = [program.nodes[j] for j in node.inputs if j != rows[0]]
    if len(others) != 1 or others[0].op != "constant":
        return None
    first = node.inputs[0] != rows[0]  # the constant comes first
    value = np.asarray(others[0].attrs["value"])
    if node.op in ("add", "sub"):
        return rows[0], not (node.op == "sub" and first)
    if (value > 0).all() or (value < 0).all():
        return rows[0], bool((value > 0).all()) != (node.op == "div" and first)
    return None


def _why(program: Program, additive: Additive) -> str:
    """The message of the error for a model without exact contributions: the cause and the fix."""
    if explained_output(program) is None:
        return "explain needs a model that gives a number or probabilities, and this one does not"
    if additive.lacks_cover:
        return (
            "this model lacks the number of training rows per tree node, which explain needs: an "
            "older sqlml stored it, or its file has none; create it again from the fitted object "
            "or the library's own file"
        )
    if additive.is_too_wide:
        return (
            f"the exact contributions of this model of {len(program.inputs):,} columns take more "
            "memory than explain uses: give it rows to compare with, as in background := "
            "(FROM t USING SAMPLE 10), for estimates"
        )
    return (
        "explain is exact for sums of trees and for linear models whose features each come from "
        "one column; this model is neither: give it rows to compare with, as in background := "
        "(FROM t USING SAMPLE 100)"
    )
