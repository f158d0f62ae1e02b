"""`NativeBackend`: run Programs on the CPU, in one kernel or step by step.

While kernels are still being compiled, the reference interpreter scores (`no_wait.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.backends.base import Filler, explain_unsupported, require_support
from sqlml.backends.native.jit.background_compiler import count_pending
from sqlml.backends.native.partitions import PartitionScorer, Prepare
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.step_filler import StagedFiller, StepFiller, TextFiller, TreeFiller
from sqlml.backends.native.stepwise import StepRunner
from sqlml.backends.native.vm.whole_output import VmFiller
from sqlml.backends.no_wait import NotReady, waits_for_kernels
from sqlml.backends.row_blocks import Batch, allocate_results, collect_columns
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators.opaque import OWNING_BACKENDS
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import TEXTUAL, Array

REFERENCE_ROWS = 1024
"""Rows that the reference interpreter scores before kernels are requested again."""

BACK_OFF_FACTOR = 10
"""Pause after a failed attempt to get kernels, as a multiple of the attempt's duration."""


class NativeCompiled:
    """A Program compiled by the native backend. Thread-safe. Pickled as the Program."""

    def __init__(
        self, program: Program, strategy: str = "traverse", prepare: Prepare | None = None
    ) -> None:
        self.program = program
        self._strategy = strategy
        self._prepare = prepare
        self._kernels: _Kernels | None = None
        self._lock = threading.Lock()
        self._next_attempt = 0.0

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Score a batch with one kernel per output, or step by step if an output has no kernel."""
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        try:
            return self._get_kernels().run(inputs, names)
        except NotReady:
            return self._run_without_waiting(inputs, names)

    def _run_without_waiting(self, inputs: Batch, names: tuple[str, ...]) -> dict[str, Array]:
        """Score with the reference interpreter until the kernels are ready."""
        arrays, num_rows = collect_columns(inputs, [n for n in self.program.inputs if n in inputs])
        results = allocate_results(self.program, names, num_rows)
        start = 0
        while start < max(num_rows, 1):
            stop = start + REFERENCE_ROWS
            reference_results = reference.run(self.program, _slice_rows(arrays, start, stop), names)
            for name, result in results.items():
                result[start:stop] = reference_results[name]
            start = stop
            with suppress(NotReady):
                if start < num_rows:
                    remaining_rows = _slice_rows(arrays, start, num_rows)
                    remaining_results = self._get_kernels().run(remaining_rows, names)
                    for name, result in results.items():
                        result[start:] = remaining_results[name]
                    break
        return results

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        """Return a Filler of `output`, or None if kernels cannot fill it; may raise NotReady."""
        return self._get_kernels().filler(output, columns, width)

    def text_filler(self, output: str) -> TextFiller | None:
        """Return a TextFiller of `output`, or None if kernels cannot fill it."""
        return self._get_kernels().text_filler(output)

    def _get_kernels(self) -> _Kernels:
        if self._kernels is None:
            with self._lock:
                if self._kernels is None:
                    self._kernels = self._make_kernels()
        return self._kernels

    def _make_kernels(self) -> _Kernels:
        """Return the kernels; raise NotReady if some are still being compiled.

        After a failed attempt, NotReady is also raised for a while, because preparing a long
        Program takes longer than scoring a batch of rows.
        """
        start = time.monotonic()
        if start < self._next_attempt and count_pending() and not waits_for_kernels():
            raise NotReady
        try:
            return _Kernels(self.program, self._strategy, self._prepare)
        except NotReady:
            now = time.monotonic()
            self._next_attempt = now + BACK_OFF_FACTOR * (now - start)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return (NativeCompiled, (self.program, self._strategy, self._prepare))


def _slice_rows(arrays: Batch, start: int, stop: int) -> dict[str, Array]:
    return {name: array[start:stop] for name, array in arrays.items()}


class _Kernels:
    """The kernels of a Program. Thread-safe. Every method may raise NotReady."""

    def __init__(self, program: Program, strategy: str, prepare: Prepare | None) -> None:
        self.program = program
        self._strategy = strategy
        self._prepare = prepare
        self._vm_fillers = {name: VmFiller.of(program, name) for name in program.outputs}
        self._text_fillers: dict[str, TextFiller | None] = {}
        self._lock = threading.Lock()
        self._steps = None if all(self._vm_fillers.values()) else self._make_steps()

    def run(self, inputs: Batch, names: tuple[str, ...]) -> dict[str, Array]:
        if self._steps is not None and not all(self._vm_fillers[name] for name in names):
            result = self._run_texts(inputs, names[0]) if len(names) == 1 else None
            return self._steps.run(inputs, names) if result is None else {names[0]: result}
        results: dict[str, Array] = {}
        for name in names:
            vm_filler = self._vm_fillers[name]
            assert vm_filler is not None
            x = reference.convert_input(vm_filler.node, inputs)
            x = x if x.flags.aligned else x.copy()
            out = np.empty((x.shape[0], vm_filler.width), vm_filler.dtype)
            failed_row = vm_filler.fill(x, out)
            if failed_row >= 0:
                remaining_rows = {vm_filler.name: x[failed_row:]}
                reference.run(self.program, remaining_rows, names)  # This raises the row's error.
                return self._get_steps().run(inputs, names)
            results[name] = out
        return results

    def _run_texts(self, inputs: Batch, output: str) -> Array | None:
        """Score an output of string columns, or return None if kernel calls cannot score it.

        Rows that the kernels reject are scored step by step.
        """
        filler = self.text_filler(output)
        if filler is None or not filler.texts:
            return None
        nodes = self.program.nodes
        input_nodes = self._get_steps().schedule_of((output,)).inputs
        arrays, num_rows = collect_columns(inputs, input_nodes)
        if filler.reads_rows:
            x = np.ascontiguousarray(reference.convert_input(nodes[filler.rows], arrays))
        else:
            x = np.empty((num_rows, filler.columns), filler.input)
        text_inputs = (reference.convert_input(nodes[i], arrays) for i in filler.texts)
        texts = list(map(TextColumn.from_values, text_inputs))
        runner = filler.get_runner(num_rows)
        if runner is None or any(text.missing.any() for text in texts):
            return None
        addresses = np.stack([end for text in texts for end in text.addresses()])
        out = np.empty((num_rows, filler.width), filler.dtype)
        rejected, row = list[int](), 0
        while (row := runner.run(x, addresses, out, row, num_rows, runner.block)) < num_rows:
            stop = min(row + runner.block, num_rows)
            while (row := runner.run(x, addresses, out, row, stop, 1)) < stop:
                rejected.append(row)
                row += 1
        if rejected:
            rejected_rows = {name: array[np.array(rejected)] for name, array in arrays.items()}
            out[rejected] = self._get_steps().run(rejected_rows, (output,))[output]
        return out

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        vm_filler = self._vm_fillers.get(output)
        if vm_filler is not None:
            return vm_filler.select_columns(columns, width)
        input_types = [self.program.nodes[i].type for i in self.program.inputs.values()]
        if len(input_types) != 1 or input_types[0].dtype in TEXTUAL or not columns:
            return None
        steps = self._get_steps()
        tree_filler = TreeFiller.of(steps, output, columns, width)
        if tree_filler is not None:
            return tree_filler
        reads_all = list(columns) == list(range(width))
        stages = Stages.of(steps, output) if reads_all else None
        if stages is None:
            return StepFiller(steps, output, columns, width)
        return StagedFiller(steps, output, columns, width, stages)

    def text_filler(self, output: str) -> TextFiller | None:
        if output not in self._text_fillers:
            steps = self._get_steps()
            stages = Stages.of(steps, output)
            filler = None if stages is None else TextFiller(steps, output, stages)
            self._text_fillers[output] = filler
        return self._text_fillers[output]

    def _get_steps(self) -> StepRunner:
        with self._lock:
            if self._steps is None:
                self._steps = self._make_steps()
            return self._steps

    def _make_steps(self) -> StepRunner:
        prepare = self._prepare
        if prepare is None:
            return StepRunner(self.program, self._strategy)
        return StepRunner(
            self.program,
            self._strategy,
            lambda attrs: PartitionScorer(attrs, prepare, NativeCompiled),
        )


class NativeBackend:
    """Runs every operator of the IR, with compiled kernels where these are faster than numpy."""

    def supports(self, program: Program) -> str | None:
        """Return the reason why an operator cannot run, or None if all operators can run."""
        operators = (set(reference.FUNCTIONS) | {"input"}) - set(OWNING_BACKENDS)
        return explain_unsupported(program, operators)

    def compile(
        self,
        program: Program,
        *,
        device: str = "cpu",
        strategy: str = "traverse",
        prepare: Prepare | None = None,
    ) -> NativeCompiled:
        """Compile a Program; `prepare` prepares the Programs of partitions for kernels."""
        require_support("native", self.supports(program))
        if device not in ("cpu", "auto"):
            raise BackendError(
                f"the native backend runs on the cpu, not on {device!r}; "
                "leave device out, or choose backend='torch'"
            )
        return NativeCompiled(program, strategy, prepare)
