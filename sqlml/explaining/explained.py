"""Programs that also return the contributions of a model's inputs to its output.

The explained output is the score of the model. Without a score, it is the probabilities or the
predicted value. If the output is a monotone function of a sum, the sum is explained. Contributions
to sums of trees and linear terms are exact (`additive.py`). Other contributions are estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sqlml.bounded_cache import cache_by_program
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.additive import AdditiveContributions, Background
from sqlml.explaining.reconstruction import LOSSES, add_losses
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value, copy_retyped
from sqlml.ir.operators.contributions import MAX_BACKGROUND, MAX_ORDERS
from sqlml.ir.ops import verify
from sqlml.ir.partition_programs import load_program, pack_programs
from sqlml.ir.program import Program
from sqlml.passes import run, select_outputs
from sqlml.passes.tree_stages import LEAF, add_leaves
from sqlml.types import NESTED, Array

LINKS = frozenset({"sigmoid", "exp", "exp2", "expm1", "softmax", "tanh", "ndtr"})
"""Increasing functions of a score; the score is explained instead of the result."""


def find_explained_output(program: Program) -> str | None:
    """Return the name of the explained output, or None if no output can be explained."""
    name = next((n for n in ("score", "samples", "proba", "label") if n in program.outputs), None)
    return None if name == "label" and program.labels else name


def estimate_blocks(
    program: Program, builder: Builder, background: Mapping[str, Array], pairs: int | None = None
) -> Value | None:
    """Estimate the contributions to the explained output, relative to background rows.

    For each column of the output, the result has a block: the contributions of the inputs, the mean
    over the background rows, and the standard errors of the contributions. Return None if no output
    can be explained. `pairs` is the number of pairs of orders per background row.
    """
    name = find_explained_output(program)
    if name is None:
        return None
    dtypes = [program.input_type(i).dtype for i in program.inputs]
    if any(dtype in NESTED for dtype in dtypes):
        raise UnsupportedModelError("explain cannot replace lists and maps, which this model reads")
    inputs = [builder.input_of(program.nodes[i]) for i in program.inputs.values()]
    width, num_inputs = program.output_type(name).width, len(inputs)
    num_rows = len(next(iter(background.values())))
    numbers, strings = np.zeros((num_rows, num_inputs)), np.full((num_rows, num_inputs), "", object)
    missing = np.zeros((num_rows, num_inputs), bool)
    for column, (input_name, dtype) in enumerate(zip(program.inputs, dtypes, strict=True)):
        values = np.asarray(background[input_name]).reshape(num_rows)
        if dtype == "string":
            missing[:, column] = [value is None for value in values]
            strings[:, column] = ["" if value is None else str(value) for value in values]
        else:
            numbers[:, column] = values.astype(np.float64)
    if pairs is None:  # Use at least 64 pairs in all, and at least 2 per background row.
        pairs = max(2, -(-64 // num_rows))
    return builder.op(
        "sampled_contributions",
        *inputs,
        program=np.frombuffer(store.dumps(_isolate_output(program, name)), np.uint8),
        numbers=numbers,
        texts=strings.ravel(),
        missing=missing,
        width=width,
        orders=pairs,
        seed=0,
    )


def _isolate_output(program: Program, name: str) -> Program:
    """Return an optimized Program of output `name`, as `y`, with the inputs `x0`, `x1`, ..."""
    optimized = run(select_outputs(program, [name]))
    builder, values = Builder(), list[Value]()
    name_by_input = {input_name: f"x{k}" for k, input_name in enumerate(program.inputs)}
    for node in optimized.nodes:
        if node.op == "input":
            values.append(builder.input_of(node, name_by_input[str(node.attrs["name"])]))
        else:
            values.append(copy_retyped(builder, node, [values[i] for i in node.inputs]))
    return builder.build({"y": values[optimized.outputs[name]]})


OWN: Literal["contributions"] = "contributions"
BY_CLASS = "class_contributions"
"""The names of two outputs. OWN has the contributions to the prediction, one block per target; the
block of a classifier explains the second of two classes, or the predicted class. BY_CLASS has one
block per class. A block has a number per input, the expected value, and any standard errors."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassContributions:
    """Assigns the blocks of the explained output to classes.

    `values` are the nodes of `program` in `builder`. `block` is the size of a block.
    """

    program: Program
    builder: Builder
    values: list[Value]
    block: int

    def outputs(self, blocks: Value) -> dict[str, Value]:
        """Return the outputs OWN and BY_CLASS, selected from `blocks` of the explained output."""
        class_counts = [len(labels) for labels in self.program.labels]
        block_count = blocks.type.width // self.block
        if len(class_counts) > 1:
            return {OWN: self._select_blocks_of_targets(blocks, class_counts, block_count)}
        (num_classes,) = class_counts
        if block_count == 1 and num_classes == 1:
            return {OWN: blocks, BY_CLASS: blocks}
        if block_count == 1 and num_classes == 2:
            both_classes = self.builder.concat([self._complement(blocks), blocks])
            return {OWN: blocks, BY_CLASS: both_classes}
        if block_count != num_classes or not self._has_score_per_class():
            raise UnsupportedModelError(_NO_CLASS_MATCH)
        return {OWN: self._select_own_block(blocks, num_classes, 0), BY_CLASS: blocks}

    def _select_blocks_of_targets(self, blocks: Value, sizes: list[int], block_count: int) -> Value:
        if block_count == len(sizes) and self.program.has_one_probability_per_target:
            return blocks
        if block_count != sum(sizes):
            raise UnsupportedModelError(_NO_CLASS_MATCH)
        own_blocks, first_class = list[Value](), 0
        for target, num_classes in enumerate(sizes):
            target_blocks = self._select_blocks(blocks, first_class, num_classes)
            own_blocks.append(self._select_own_block(target_blocks, num_classes, target))
            first_class += num_classes
        return self.builder.concat(own_blocks)

    def _select_own_block(self, blocks: Value, num_classes: int, target: int) -> Value:
        """Return the block of the second of two classes, or of the predicted class."""
        if num_classes == 2:
            return self._select_blocks(blocks, 1, 1)
        return self._select_predicted_block(blocks, num_classes, target)

    def _select_blocks(self, blocks: Value, first_block: int, count: int) -> Value:
        columns = np.arange(first_block * self.block, (first_block + count) * self.block)
        return self.builder.op("select", blocks, indices=columns)

    def _complement(self, blocks: Value) -> Value:
        num_inputs = len(self.program.inputs)
        offsets, signs = np.zeros(self.block), np.ones(self.block)
        signs[: num_inputs + 1] = -1
        offsets[num_inputs] = 1 if find_explained_output(self.program) == "proba" else 0
        return self.builder.op("add", offsets, self.builder.op("mul", blocks, signs))

    def _select_predicted_block(self, blocks: Value, num_classes: int, target: int) -> Value:
        if "label" not in self.program.outputs:
            raise UnsupportedModelError(_NO_CLASS_MATCH)
        label = self.values[self.program.outputs["label"]]
        if label.type.width > 1:
            label = self.builder.op("select", label, indices=np.array([target]))
        # Multiply the other blocks by 0, and add all blocks.
        is_predicted = self.builder.op("one_hot", label, width=num_classes, dtype="float64")
        mask = self.builder.linear(is_predicted, np.repeat(np.eye(num_classes), self.block, axis=1))
        product = self.builder.op("mul", mask, blocks)
        return self.builder.linear(product, np.tile(np.eye(self.block), (num_classes, 1)))

    def _has_score_per_class(self) -> bool:
        """Return whether the label is the argmax of explained columns, one per class."""
        name = find_explained_output(self.program)
        if name == "proba" or "label" not in self.program.outputs:
            return name == "proba"
        index, score = self.program.outputs["label"], self.program.outputs["score"]
        while index != score:
            node = self.program.nodes[index]
            rowwise_inputs = [j for j in node.inputs if self.program.nodes[j].type.rowwise]
            if len(rowwise_inputs) != 1 or node.op not in (*LINKS, "argmax", "cast", "div", "mul"):
                return False
            index = rowwise_inputs[0]
        return True


_NO_CLASS_MATCH = "explain cannot match the model's scores to its classes"


@cache_by_program
def explain_program(program: Program) -> Program:
    """Return `program` with the output OWN, and BY_CLASS if it classifies a single target."""
    return _build_explained(program, None, None)


def needs_background(program: Program) -> bool:
    """Return whether contributions can only be estimated, by comparison with background rows."""
    try:
        explain_program(program)
    except UnsupportedModelError:
        return True
    return False


def explain_against_background(
    program: Program, background: Mapping[str, Array], pairs: int | None = None
) -> Program:
    """Return `program` with exact or estimated contributions relative to background rows."""
    if pairs is not None and not 1 <= pairs <= MAX_ORDERS:
        raise ConfigError(f"permutations must be from 1 to {MAX_ORDERS:,}")
    row_count = len(next(iter(background.values()))) if background else 0
    if not row_count:
        raise ConfigError(
            "the background has no rows, but explain needs at least one row to compare with"
        )
    if row_count > MAX_BACKGROUND:
        raise ConfigError(
            f"explain takes at most {MAX_BACKGROUND:,} background rows; take a sample, as in "
            "background := (FROM t USING SAMPLE 100)"
        )
    return _build_explained(program, background, pairs)


def _build_explained(program: Program, background: Background, pairs: int | None) -> Program:
    if background is None and any(node.op == "by_partition" for node in program.nodes):
        return _explain_partitions(program)
    builder, values = Builder(), list[Value]()
    for node in program.nodes:
        values.append(copy_retyped(builder, node, [values[i] for i in node.inputs]))
    additive = AdditiveContributions(program, builder, values, background)
    blocks = _compute_exact_blocks(program, builder, additive)
    block_size = additive.block
    if blocks is None and background is not None:
        blocks = estimate_blocks(program, builder, background, pairs)
        block_size = 2 * block_size - 1
    if blocks is None:
        raise UnsupportedModelError(_describe_failure(program, additive))
    outputs: dict[str, Value] = {name: values[i] for name, i in program.outputs.items()}
    contributions: dict[str, Value] = {OWN: blocks}
    if program.labels:
        contributions = ClassContributions(program, builder, values, block_size).outputs(blocks)
    outputs |= contributions
    return verify(builder.build(outputs, program.labels, tuple(program.inputs)))


def _explain_partitions(program: Program) -> Program:
    """Explain each row with the model of its partition; partition columns contribute 0."""
    name = find_explained_output(program)
    if name is None:
        raise UnsupportedModelError("explain needs a model that returns numbers or probabilities")
    node = program.nodes[program.outputs[name]]
    members = [
        _align_blocks(explain_program(load_program(node.attrs, index)), tuple(program.inputs))
        for index in range(len(node.attrs["ends"]))
    ]
    builder, values = Builder(program.nodes), dict[str, Value]()
    for output in (OWN, BY_CLASS):
        if not all(output in member.outputs for member in members):
            continue
        attrs = {**node.attrs, **pack_programs(members), "output": output, "dtype": "float64"}
        attrs["width"] = members[0].output_type(output).width
        inputs = [builder.value(j) for j in node.inputs]
        values[output] = builder.op("by_partition", *inputs, **attrs)
    outputs = {n: builder.value(i) for n, i in program.outputs.items()}
    return verify(builder.build({**outputs, **values}, program.labels, tuple(program.inputs)))


def _align_blocks(explained: Program, inputs: Sequence[str]) -> Program:
    """Return `explained` with contributions of all `inputs`, which are 0 for those it lacks."""
    positions = [*(inputs.index(name) for name in explained.inputs), len(inputs)]
    builder = Builder(explained.nodes)
    outputs = {name: builder.value(i) for name, i in explained.outputs.items()}
    for output in (OWN, BY_CLASS):
        if output not in outputs:
            continue
        num_blocks = outputs[output].type.width // len(positions)
        places = np.kron(np.eye(num_blocks), np.eye(len(inputs) + 1)[positions])
        outputs[output] = builder.linear(outputs[output], places)
    return builder.build(outputs, explained.labels, tuple(explained.inputs))


def find_block_size(program: Program) -> int:
    is_estimated = any(node.op == "sampled_contributions" for node in program.nodes)
    return (2 if is_estimated else 1) * len(program.inputs) + 1


def ensure_output(program: Program, output: str) -> Program:
    """Return `program`, with contributions, leaves or losses if these are the `output`."""
    if output == LOSSES:
        return program if LOSSES in program.outputs else add_losses(program)
    if output == LEAF:
        return program if LEAF in program.outputs else add_leaves(program)
    needs_explanation = output in (OWN, BY_CLASS) and OWN not in program.outputs
    return explain_program(program) if needs_explanation else program


def _compute_exact_blocks(
    program: Program, builder: Builder, additive: AdditiveContributions
) -> Value | None:
    """Return exact blocks, or None unless the output is a monotone function of a sum."""
    name = find_explained_output(program)
    if name is None:
        return None
    index, is_increasing = program.outputs[name], True
    if name == "proba" and [len(labels) for labels in program.labels] == [2]:
        is_additive = additive.explain_output(index) is not None
        # The first column is 1 minus this one.
        return additive.explain_columns(index, np.array([1])) if is_additive else None
    while (blocks := additive.explain_output(index)) is None:
        monotone_input = _step_through_monotone(program, index)
        if monotone_input is None:
            return None
        index, is_increasing = monotone_input[0], is_increasing == monotone_input[1]
    return blocks if is_increasing else builder.op("neg", blocks)


def _step_through_monotone(program: Program, index: int) -> tuple[int, bool] | None:
    """Return the input of a monotone function, and whether it increases; None for other nodes."""
    node = program.nodes[index]
    rowwise_inputs = [j for j in node.inputs if program.nodes[j].type.rowwise]
    if len(rowwise_inputs) != 1:
        return None
    if node.op in LINKS or node.op == "cast":
        return rowwise_inputs[0], True
    if node.op == "neg":
        return rowwise_inputs[0], False
    if node.op not in ("add", "sub", "mul", "div"):
        return None
    other_inputs = [program.nodes[j] for j in node.inputs if j != rowwise_inputs[0]]
    if len(other_inputs) != 1 or other_inputs[0].op != "constant":
        return None
    constant_is_first = node.inputs[0] != rowwise_inputs[0]
    factors = np.asarray(other_inputs[0].attrs["value"])
    reverses = constant_is_first and node.op in ("sub", "div")
    if node.op in ("add", "sub"):
        return rowwise_inputs[0], not reverses
    if (factors > 0).all() or (factors < 0).all():
        return rowwise_inputs[0], bool((factors > 0).all()) != reverses
    return None


def _describe_failure(program: Program, additive: AdditiveContributions) -> str:
    if find_explained_output(program) is None:
        return "explain needs a model that returns numbers or probabilities; this one does not"
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
