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
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.step_filler import StagedFiller, StepFiller, TextFiller, TreeFiller
from sqlml.backends.native.stepwise import Stepwise
from sqlml.backends.native.vm.whole_output import Fused
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
"""Length of the pause after a failed attempt to get kernels, in multiples of the attempt's time."""


class NativeCompiled:
    """A Program compiled by the native backend. It is thread-safe, and pickled as its Program."""

    def __init__(self, program: Program, strategy: str = "traverse") -> None:
        self.program = program
        self._strategy = strategy
        self._kernels: _Kernels | None = None
        self._lock = threading.Lock()
        self._next_attempt = 0.0

    def run(self, inputs: Batch, outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Score a batch with one kernel per output, or step by step if an output has no kernel."""
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        try:
            return self._get_kernels().run(inputs, names)
        except NotReady:
            return self._run_meanwhile(inputs, names)

    def _run_meanwhile(self, inputs: Batch, names: tuple[str, ...]) -> dict[str, Array]:
        """Score with the reference interpreter until kernels are ready, then with kernels."""
        arrays, rows = collect_columns(inputs, [n for n in self.program.inputs if n in inputs])
        results = allocate_results(self.program, names, rows)
        start = 0
        while start < max(rows, 1):
            stop = start + REFERENCE_ROWS
            reference_results = reference.run(self.program, _slice_rows(arrays, start, stop), names)
            for name, result in results.items():
                result[start:stop] = reference_results[name]
            start = stop
            with suppress(NotReady):
                if start < rows:
                    remaining = self._get_kernels().run(_slice_rows(arrays, start, rows), names)
                    for name, result in results.items():
                        result[start:] = remaining[name]
                    break
        return results

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        """Return a Filler of `output`, or None if kernels cannot fill it; may raise NotReady."""
        return self._get_kernels().filler(output, columns, width)

    def text_filler(self, output: str) -> TextFiller | None:
        """Return a filler of `output` from a matrix and strings; None if kernels cannot fill it."""
        return self._get_kernels().text_filler(output)

    def _get_kernels(self) -> _Kernels:
        if self._kernels is None:
            with self._lock:
                if self._kernels is None:
                    self._kernels = self._make_kernels()
        return self._kernels

    def _make_kernels(self) -> _Kernels:
        """Return the kernels; raise NotReady if some are still being compiled.

        Also raises NotReady for a while after a failed attempt, since preparing a long Program
        takes longer than scoring a batch of rows.
        """
        start = time.monotonic()
        if start < self._next_attempt and count_pending() and not waits_for_kernels():
            raise NotReady
        try:
            return _Kernels(self.program, self._strategy)
        except NotReady:
            now = time.monotonic()
            self._next_attempt = now + BACK_OFF_FACTOR * (now - start)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return (NativeCompiled, (self.program, self._strategy))


def _slice_rows(arrays: Batch, start: int, stop: int) -> dict[str, Array]:
    return {name: array[start:stop] for name, array in arrays.items()}


class _Kernels:
    """The kernels of a Program. Thread-safe; every method may raise NotReady."""

    def __init__(self, program: Program, strategy: str) -> None:
        self.program = program
        self._strategy = strategy
        self._fused = {name: Fused.of(program, name) for name in program.outputs}
        self._text_fillers: dict[str, TextFiller | None] = {}
        self._lock = threading.Lock()
        self._steps = None if all(self._fused.values()) else Stepwise(program, strategy)

    def run(self, inputs: Batch, names: tuple[str, ...]) -> dict[str, Array]:
        if self._steps is not None and not all(self._fused[name] for name in names):
            result = self._run_texts(inputs, names[0]) if len(names) == 1 else None
            return self._steps.run(inputs, names) if result is None else {names[0]: result}
        results: dict[str, Array] = {}
        for name in names:
            fused = self._fused[name]
            assert fused is not None
            x = reference.convert_input(fused.node, inputs)
            x = x if x.flags.aligned else x.copy()
            out = np.empty((x.shape[0], fused.width), fused.dtype)
            failed_row = fused.fill(x, out)
            if failed_row >= 0:
                block = {fused.name: x[failed_row:]}
                reference.run(self.program, block, names)  # This raises the row's error.
                return self._get_stepwise().run(inputs, names)
            results[name] = out
        return results

    def _run_texts(self, inputs: Batch, output: str) -> Array | None:
        """Score an output of string columns with kernel calls; score rejected rows step by step.

        Returns None if kernel calls cannot score the output.
        """
        filler = self.text_filler(output)
        if filler is None or not filler.texts:
            return None
        nodes = self.program.nodes
        arrays, rows = collect_columns(inputs, self._get_stepwise().schedule_of((output,)).inputs)
        if filler.reads_rows:
            x = np.ascontiguousarray(reference.convert_input(nodes[filler.rows], arrays))
        else:
            x = np.empty((rows, filler.columns), filler.input)
        columns = [reference.convert_input(nodes[i], arrays) for i in filler.texts]
        texts = [TextColumn.from_values(column) for column in columns]
        follower = filler.follower(rows)
        if follower is None or any(text.missing.any() for text in texts):
            return None
        addresses = np.stack([end for text in texts for end in text.addresses()])
        out = np.empty((rows, filler.width), filler.dtype)
        rejected, row = list[int](), 0
        while (row := follower.run(x, addresses, out, row, rows, follower.block)) < rows:
            stop = min(row + follower.block, rows)
            while (row := follower.run(x, addresses, out, row, stop, 1)) < stop:
                rejected.append(row)
                row += 1
        if rejected:
            rejected_rows = {name: array[np.array(rejected)] for name, array in arrays.items()}
            out[rejected] = self._get_stepwise().run(rejected_rows, (output,))[output]
        return out

    def filler(self, output: str, columns: Sequence[int], width: int) -> Filler | None:
        fused = self._fused.get(output)
        if fused is not None:
            return fused.select_columns(columns, width)
        input_types = [self.program.nodes[i].type for i in self.program.inputs.values()]
        if len(input_types) != 1 or input_types[0].dtype in TEXTUAL or not columns:
            return None
        steps = self._get_stepwise()
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
            steps = self._get_stepwise()
            stages = Stages.of(steps, output)
            filler = None if stages is None else TextFiller(steps, output, stages)
            self._text_fillers[output] = filler
        return self._text_fillers[output]

    def _get_stepwise(self) -> Stepwise:
        with self._lock:
            if self._steps is None:
                self._steps = Stepwise(self.program, self._strategy)
            return self._steps


class NativeBackend:
    """Runs every operator of the IR, with compiled kernels where they pay, otherwise with numpy."""

    def supports(self, program: Program) -> str | None:
        """Return the reason why an operator cannot run, or None if all operators can run."""
        operators = (set(reference.FUNCTIONS) | {"input"}) - set(OWNING_BACKENDS)
        return explain_unsupported(program, operators)

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> NativeCompiled:
        require_support("native", self.supports(program))
        if device not in ("cpu", "auto"):
            raise BackendError(
                f"the native backend runs on the cpu, not on {device!r}; "
                "leave device out, or choose backend='torch'"
            )
        return NativeCompiled(program, strategy)
