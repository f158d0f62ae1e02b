"""Run a Program in blocks of rows, so that intermediate values stay small.

A `Schedule` runs the steps that a set of outputs needs, and frees each value after the last use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array, TensorType, numpy_dtype

Batch = Mapping[str, Array]
"""The columns of a batch or block of rows by name, (n,) or (n, width)."""

ScoreBlock = Callable[[Batch], dict[str, Array]]
"""A function that scores one block and returns the outputs (n, k) by name."""


def measure_row_bytes(program: Program) -> int:
    """Return the peak memory of one row in bytes if each value is freed after the last use."""
    last_use = {j: i for i, node in enumerate(program.nodes) for j in node.inputs}
    last_use |= dict.fromkeys(program.outputs.values(), len(program.nodes))
    freed_after: Counter[int] = Counter()
    current_size, max_size = 0, 1
    for i, node in enumerate(program.nodes):
        value_size = _measure_value_bytes(node.type)
        current_size += value_size
        max_size = max(max_size, current_size)
        freed_after[last_use.get(i, i)] += value_size
        current_size -= freed_after[i]
    return max_size


def _measure_value_bytes(value: TensorType) -> int:
    if not value.rowwise:
        return 0
    if value.sparse:
        return 2048  # The size of a text with a few hundred words.
    return int(np.prod(value.shape[1:], dtype=np.int64)) * numpy_dtype(value.dtype).itemsize


def run_blocks(
    program: Program,
    inputs: Batch,
    needed: Iterable[str],
    outputs: Sequence[str],
    max_rows: int,
    score_block: ScoreBlock,
) -> dict[str, Array]:
    """Score a batch in blocks of up to `max_rows` rows; blocks do not affect the results."""
    arrays, num_rows = collect_columns(inputs, needed)
    if num_rows <= max_rows:
        return score_block(arrays)
    results = allocate_results(program, outputs, num_rows)
    for start in range(0, num_rows, max_rows):
        block_results = score_block({n: a[start : start + max_rows] for n, a in arrays.items()})
        for name, output_rows in results.items():
            output_rows[start : start + max_rows] = block_results[name]
    return results


def collect_columns(inputs: Batch, needed: Iterable[str]) -> tuple[dict[str, Any], int]:
    """Return the inputs named in `needed` as arrays or TextColumns, and the number of rows."""
    arrays: dict[str, Any] = {}
    for name in needed:
        if name not in inputs:
            raise InputTypeError(f"the batch has no column {name!r}")
        value: Any = inputs[name]
        arrays[name] = value if isinstance(value, TextColumn) else np.asarray(value)
    lengths = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(lengths) > 1:
        shapes = ", ".join(f"{n} has shape {array.shape}" for n, array in arrays.items())
        raise InputTypeError(f"the batch's columns differ in length: {shapes}")
    return arrays, lengths.pop() if lengths else 0


def allocate_results(program: Program, outputs: Sequence[str], rows: int) -> dict[str, Array]:
    types = {name: program.output_type(name) for name in outputs}
    return {name: np.empty((rows, *t.shape[1:]), numpy_dtype(t.dtype)) for name, t in types.items()}


@dataclass(frozen=True, slots=True)
class Step:
    """A compiled node: the nodes that it reads, and the function that computes its value."""

    node: int
    inputs: tuple[int, ...]
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps that compute some outputs; after step i, the values of `done[i]` are freed."""

    steps: tuple[Step, ...]
    inputs: Mapping[str, int]
    done: tuple[tuple[int, ...], ...]

    def run(self, values: dict[int, Any]) -> None:
        """Run all steps; `values` contains inputs and constants by node, and receives results."""
        for step, done in zip(self.steps, self.done, strict=True):
            values[step.node] = step.function(*[values[j] for j in step.inputs])
            for j in done:
                del values[j]


class Schedules:
    """The schedules of a Program; those of all outputs and of single outputs are cached."""

    def __init__(self, program: Program, steps: Mapping[int, Step], constants: Collection[int]):
        self._program, self._steps, self._constants = program, steps, constants
        output_sets = [tuple(program.outputs), *((name,) for name in program.outputs)]
        self._schedules = {outputs: self._make(outputs) for outputs in output_sets}

    def find(self, outputs: tuple[str, ...]) -> Schedule:
        return self._schedules.get(outputs) or self._make(outputs)

    def _make(self, outputs: tuple[str, ...]) -> Schedule:
        return make_schedule(self._program, self._steps, outputs, self._constants)


def make_schedule(
    program: Program, steps: Mapping[int, Step], outputs: Sequence[str], constants: Collection[int]
) -> Schedule:
    """Return a schedule of the steps that `outputs` need."""
    needed = {program.outputs[name] for name in outputs}
    chosen_steps: list[Step] = []
    freed_after_step: list[tuple[int, ...]] = []
    for i in range(len(program.nodes) - 1, -1, -1):
        step = steps.get(i)
        if i not in needed or step is None:
            continue
        read_nodes = set(step.inputs)
        chosen_steps.append(step)
        freed_after_step.append(tuple(sorted(read_nodes - needed - set(constants))))
        needed |= read_nodes
    inputs = {name: i for name, i in program.inputs.items() if i in needed}
    return Schedule(tuple(chosen_steps[::-1]), inputs, tuple(freed_after_step[::-1]))
