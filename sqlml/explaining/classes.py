"""`Classes`: from the contributions to what a classifier says to those to its classes.

A block has a number for each input, then what is expected of a row of which nothing is known, and,
where the contributions are estimates, the standard error of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.explaining.sampled_blocks import LINKS, explained_output
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program

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
