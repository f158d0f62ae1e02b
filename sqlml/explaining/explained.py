"""`explained`: a Program that also gives the contributions of a model's inputs, exact ones.

What is explained is the model's score, where it has one (the margin of boosted trees, a decision
function), else its probabilities or its value. Where that is a monotone function of a sum, such as
exp, the sum is explained: the contributions add up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.bounded_cache import of_programs
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.additive import Additive
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value, copy
from sqlml.ir.operators.contributions import MOST_BACKGROUND, MOST_ORDERS
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.order import only, run
from sqlml.types import NESTED, Array

# `sampled_blocks`: the contributions of any Program, estimated against background rows.


_PAIRS, _EACH = 64, 2
"""Pairs of orders that are tried for each row, and at least for each background row."""

LINKS = frozenset({"sigmoid", "exp", "exp2", "expm1", "softmax", "tanh", "ndtr"})
"""Functions of a score that rise with it, and that explanations leave out."""


def explained_output(program: Program) -> str | None:
    """The output that explanations are of: the score, where there is one, else probabilities or a
    value; None for a model that gives none of these."""
    name = next((n for n in ("score", "samples", "proba", "label") if n in program.outputs), None)
    return None if name == "label" and program.labels else name


def sampled_blocks(
    program: Program, b: Builder, background: Mapping[str, Array], pairs: int | None = None
) -> Value | None:
    """(n, width * (2 inputs + 1)): for each column of what is explained the contributions of the
    inputs, the mean over the background rows, and the contributions' standard errors.

    Args:
        b: holds the nodes of `program`, its inputs among them.
        pairs: of orders for each background row; None: a number for a first look.

    Raises:
        UnsupportedModelError: an input is a list or a map.
    """
    name = explained_output(program)
    if name is None:
        return None
    kinds = [program.input_type(i).dtype for i in program.inputs]
    if any(kind in NESTED for kind in kinds):
        raise UnsupportedModelError("explain cannot replace lists and maps, which this model reads")
    inputs = [b.input_of(program.nodes[i]) for i in program.inputs.values()]
    width, players = program.output_type(name).width, len(inputs)
    rows = len(next(iter(background.values())))
    numbers, texts = np.zeros((rows, players)), np.full((rows, players), "", object)
    missing = np.zeros((rows, players), bool)
    for k, (own, kind) in enumerate(zip(program.inputs, kinds, strict=True)):
        values = np.asarray(background[own]).reshape(rows)
        if kind == "string":
            missing[:, k] = [value is None for value in values]
            texts[:, k] = ["" if value is None else str(value) for value in values]
        else:
            numbers[:, k] = values.astype(np.float64)
    return b.op(
        "sampled_contributions",
        *inputs,
        program=np.frombuffer(store.dumps(_alone(program, name)), np.uint8),
        numbers=numbers,
        texts=texts.ravel(),
        missing=missing,
        width=width,
        orders=max(_EACH, -(-_PAIRS // rows)) if pairs is None else pairs,
        seed=0,
    )


def _alone(program: Program, name: str) -> Program:
    """One output of a Program as `y`, of inputs `x0`, `x1`, .., after the passes."""
    part = run(only(program, [name]))
    b, values = Builder(), list[Value]()
    places = {own: f"x{k}" for k, own in enumerate(program.inputs)}
    for node in part.nodes:
        if node.op == "input":
            own = places[str(node.attrs["name"])]
            values.append(b.input_of(node, own))
        else:
            values.append(copy(b, node, [values[i] for i in node.inputs]))
    return b.build({"y": values[part.outputs[name]]})


# `Classes`: from the contributions to what a classifier says to those to its classes.
#
# A block has a number for each input, then what is expected of a row of which nothing is known,
# and, where the contributions are estimates, the standard error of each.


OWN: Literal["contributions"] = "contributions"
BY_CLASS = "class_contributions"
"""Outputs: the contributions to what a model says of a row, and to each of its classes.

OWN has a block for each target: for a classifier that of the second of two classes, or of the class
that is predicted. BY_CLASS, of a classifier of one target, has a block for each class.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """A classifier whose nodes are `values` in a builder, and the numbers of a block."""

    program: Program
    b: Builder
    values: list[Value]
    block: int

    def outputs(self, blocks: Value) -> dict[str, Value]:
        """OWN and BY_CLASS, from the blocks of the explained output.

        Raises:
            UnsupportedModelError: its numbers are not those of the classes.
        """
        sizes = [len(labels) for labels in self.program.labels]
        given = blocks.type.width // self.block
        if len(sizes) > 1:
            return {OWN: self._of_targets(blocks, sizes, given)}
        (classes,) = sizes
        if given == 1 and classes == 1:
            return {OWN: blocks, BY_CLASS: blocks}
        if given == 1 and classes == 2:
            return {OWN: blocks, BY_CLASS: self.b.op("concat", self._other(blocks), blocks)}
        if given != classes or not self._are_of_classes():
            raise UnsupportedModelError("explain cannot match the model's scores to its classes")
        own = self._picked(blocks, 1, 1) if classes == 2 else self._predicted(blocks, classes, 0)
        return {OWN: own, BY_CLASS: blocks}

    def _of_targets(self, blocks: Value, sizes: list[int], given: int) -> Value:
        """A block for each target."""
        if given == len(sizes) and self.program.one_probability:
            return blocks
        if given != sum(sizes):
            raise UnsupportedModelError("explain cannot match the model's scores to its classes")
        parts, first = list[Value](), 0
        for target, size in enumerate(sizes):
            own = self._picked(blocks, first, size)
            parts.append(
                self._picked(own, 1, 1) if size == 2 else self._predicted(own, size, target)
            )
            first += size
        return self.b.beside(parts)

    def _picked(self, blocks: Value, first: int, count: int) -> Value:
        places = np.arange(first * self.block, (first + count) * self.block)
        return self.b.op("select", blocks, indices=places)

    def _other(self, blocks: Value) -> Value:
        """The first of two classes from the second: the opposite, or what is left to 1."""
        inputs = len(self.program.inputs)
        whole, sign = np.zeros(self.block), np.ones(self.block)
        sign[: inputs + 1] = -1
        whole[inputs] = 1 if explained_output(self.program) == "proba" else 0
        return self.b.op("add", whole, self.b.op("mul", blocks, sign))

    def _predicted(self, blocks: Value, classes: int, target: int) -> Value:
        """The block of the class that is predicted of a row."""
        if "label" not in self.program.outputs:
            raise UnsupportedModelError("explain cannot match the model's scores to its classes")
        label = self.values[self.program.outputs["label"]]
        if label.type.width > 1:
            label = self.b.op("select", label, indices=np.array([target]))
        chosen = self.b.op("one_hot", label, width=classes, dtype="float64")
        each = self.b.linear(chosen, np.repeat(np.eye(classes), self.block, axis=1))
        product = self.b.op("mul", each, blocks)
        return self.b.linear(product, np.tile(np.eye(self.block), (classes, 1)))

    def _are_of_classes(self) -> bool:
        """Whether the explained numbers are those that the label is the greatest of: scores of
        pairs of classes are as many, where there are three."""
        name = explained_output(self.program)
        if name == "proba" or "label" not in self.program.outputs:
            return name == "proba"
        at, score = self.program.outputs["label"], self.program.outputs["score"]
        while at != score:
            node = self.program.nodes[at]
            rows = [j for j in node.inputs if self.program.nodes[j].type.rowwise]
            if len(rows) != 1 or node.op not in (*LINKS, "argmax", "cast", "div", "mul"):
                return False
            at = rows[0]
        return True


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

    Of models that are no sum the contributions are estimated (`ir/operators/contributions.py`).

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
