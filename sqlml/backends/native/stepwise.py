"""`StepRunner`: run the steps of a Program block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sqlml.backends.native.operators import KERNELS, BoundOperator, bind_trees
from sqlml.backends.native.partitions import PartitionScorer
from sqlml.backends.native.vm.whole_output import TreeTail
from sqlml.backends.row_blocks import Batch, Schedules, Step, measure_row_bytes, run_blocks
from sqlml.ir import reference, store
from sqlml.ir.operators.contributions import sample_contributions
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array

FRESH = frozenset({*UFUNCS, "linear"})
"""Operators whose result is a new array, and never a view of an input."""


def find_in_place_operators(program: Program) -> dict[int, Callable[..., Array]]:
    """Map nodes to functions that write the node's value over one of its inputs.

    If only one operator reads a value, and the result has the same type, the result reuses the
    value's memory (T. Chen, "Scalable and Intelligent Learning Systems", section 3.2). So a chain
    of operators works in one cached buffer.
    """
    use_counts = Counter(j for node in program.nodes for j in node.inputs)
    use_counts.update(program.outputs.values())
    functions: dict[int, Callable[..., Array]] = {}
    for i, node in enumerate(program.nodes):
        ufunc = UFUNCS.get(node.op)
        if ufunc is None:
            continue
        for position, j in enumerate(node.inputs):
            source = program.nodes[j]
            is_read_once = use_counts[j] == 1 and node.type.rowwise
            if is_read_once and source.op in FRESH and source.type == node.type:
                functions[i] = _make_in_place_function(ufunc, position)
                break
    return functions


def _make_in_place_function(ufunc: np.ufunc, position: int) -> Callable[..., Any]:
    return lambda *args: ufunc(*args, out=args[position])


BLOCK_BYTES = 4 << 20
"""Bytes of the intermediate values of one block.

The values stay in the processor's cache from one operator to the next, which is the purpose of
fusing injective operators (Chen's thesis, section 4.2). Compared with blocks of 16 MB, 20 kinds of
models ran 0.97 to 1.6 times as fast, 1.13 on average. With fusing, the factor was 0.95 to 1.1."""

FEWEST_ROWS, FEWEST_BYTES = 16, 16 << 20
"""Blocks of wide rows have at least FEWEST_ROWS rows, unless the rows exceed FEWEST_BYTES."""

TREE_ROWS = 512
"""The fewest rows of a block with trees. Tree kernels process this many rows at a time."""

MOST_ROWS = 1 << 15

MakePartitionScorer = Callable[[Attrs], PartitionScorer]
"""Makes the function of an operator `by_partition`, given its attributes."""


class StepRunner:
    """A Program whose operators are bound to kernels or to numpy. Thread-safe.

    A block has up to `rows` rows. `constants` are the values of nodes that do not depend on rows.
    """

    def __init__(
        self,
        program: Program,
        strategy: str = "traverse",
        make_partition_scorer: MakePartitionScorer | None = None,
    ) -> None:
        self.program = program
        row_bytes = measure_row_bytes(program)
        has_trees = any(node.op == "tree_ensemble" for node in program.nodes)
        min_rows = min(TREE_ROWS if has_trees else FEWEST_ROWS, FEWEST_BYTES // row_bytes)
        self.rows: int = int(np.clip(BLOCK_BYTES // row_bytes, max(1, min_rows), MOST_ROWS))
        self.constants: dict[int, Array] = {}
        steps: dict[int, Step] = {}
        in_place = find_in_place_operators(program)
        for i, node in enumerate(program.nodes):
            if node.op == "input":
                continue
            if i in in_place:
                bound = BoundOperator(node.inputs, in_place[i])
            else:
                bound = bind_node(program, i, strategy, make_partition_scorer)
            if node.type.rowwise:
                steps[i] = Step(i, bound.inputs, bound.function)
            else:
                with np.errstate(all="ignore"):
                    self.constants[i] = bound.function(*[self.constants[j] for j in bound.inputs])
        for name, i in program.outputs.items():
            tail = TreeTail.of(program, name)
            if tail is not None:
                steps[i] = Step(i, (tail.trees,), tail)
        self.schedule_of = Schedules(program, steps, self.constants).find

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        schedule = self.schedule_of(names)

        def run_block(arrays: Batch) -> dict[str, Array]:
            values = dict(self.constants)
            for i in schedule.inputs.values():
                array = reference.convert_input(self.program.nodes[i], arrays)
                is_text = isinstance(array, TextColumn)
                values[i] = array if is_text or array.flags.aligned else array.copy()
            with np.errstate(all="ignore"):
                schedule.run(values)
            return {name: values[self.program.outputs[name]] for name in names}

        return run_blocks(self.program, inputs, schedule.inputs, names, self.rows, run_block)


def _make_sampler(node: Node) -> Callable[..., Array]:
    steps = StepRunner(store.loads(node.attrs["program"].tobytes()))
    return lambda *args: sample_contributions(lambda rows: steps.run(rows)["y"], args, node.attrs)


def bind_node(
    program: Program,
    i: int,
    strategy: str = "traverse",
    make_partition_scorer: MakePartitionScorer | None = None,
) -> BoundOperator:
    """Return a function of numpy arrays that computes node i; `strategy` names a tree kernel.

    Without `make_partition_scorer`, the reference interpreter scores partitions.
    """
    node = program.nodes[i]
    bind_kernel = KERNELS.get(node.op)
    if node.op == "tree_ensemble":
        bind_kernel = partial(bind_trees, strategy=strategy)
    if node.op == "sampled_contributions":
        return BoundOperator(node.inputs, _make_sampler(node))
    if node.op == "by_partition" and make_partition_scorer is not None:
        return BoundOperator(node.inputs, make_partition_scorer(node.attrs))
    bound = None if bind_kernel is None else bind_kernel(program, i)
    if bound is not None:
        return bound
    function, attrs = reference.FUNCTIONS[node.op], node.attrs
    return BoundOperator(node.inputs, lambda *args: function(args, attrs))
