"""`NativeBackend`: Programs at model level on the CPU, in one kernel or step by step.

While kernels are still to be compiled, the reference interpreter scores (`no_wait.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.backends.base import explain_unsupported
from sqlml.backends.native.jit.compile_beside import pending
from sqlml.backends.native.stages import Stages
from sqlml.backends.native.step_filler import StagedFiller, StepFiller, TextFiller
from sqlml.backends.native.stepwise import Stepwise, bind
from sqlml.backends.native.trees.filler import TreeFiller
from sqlml.backends.native.vm.whole_output import Fused
from sqlml.backends.no_wait import NotReady, waits_for_kernels
from sqlml.backends.row_blocks import allocate_results, collect_columns
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators.opaque import OWNING_BACKENDS
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import TEXTUAL, Array

__all__ = ["NativeBackend", "NativeCompiled", "bind"]


MEANWHILE_ROWS = 1024
"""Rows that the reference scores before kernels are asked for again."""


PAUSES = 10
"""How many times as long as a vain try for kernels took there is none again while any compile."""


class NativeCompiled:
    """A Program that the native backend runs. Thread-safe; it pickles as its Program."""

    def __init__(self, program: Program, strategy: str = "traverse") -> None:
        self.program = program
        self._strategy = strategy
        self._kernels: _Kernels | None = None
        self._lock = threading.Lock()
        self._again = 0.0

    def run(
        self, inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
    ) -> dict[str, Array]:
        """Score columns: one kernel an output if all that are asked for have one, else in steps.

        `Compiled.run` describes arguments and result.
        """
        names = tuple(self.program.outputs) if outputs is None else tuple(outputs)
        try:
            return self._made().run(inputs, names)
        except NotReady:
            return self._run_meanwhile(inputs, names)

    def _run_meanwhile(
        self, inputs: Mapping[str, Array], names: tuple[str, ...]
    ) -> dict[str, Array]:
        """Score by the reference while kernels compile, and by them as soon as they are there."""
        arrays, rows = collect_columns(
            inputs, [name for name in self.program.inputs if name in inputs]
        )
        results = allocate_results(self.program, names, rows)
        start = 0
        while start < max(rows, 1):
            stop = start + MEANWHILE_ROWS
            made = reference.run(self.program, _rows(arrays, start, stop), names)
            for name, result in results.items():
                result[start:stop] = made[name]
            start = stop
            with suppress(NotReady):
                if start < rows:
                    rest = self._made().run(_rows(arrays, start, rows), names)
                    for name, result in results.items():
                        result[start:] = rest[name]
                    break
        return results

    def filler(
        self, output: str, columns: Sequence[int], width: int
    ) -> Fused | TreeFiller | StepFiller | None:
        """What writes an output where it shall be, reading some of the `width` columns of rows.

        Raises:
            NotReady.
        """
        return self._made().filler(output, columns, width)

    def text_filler(self, output: str) -> TextFiller | None:
        """What writes an output of a matrix and columns of texts, if kernels make all of it.

        Raises:
            NotReady.
        """
        return self._made().text_filler(output)

    def _made(self) -> _Kernels:
        made = self._kernels
        if made is None:
            with self._lock:
                made = self._kernels
                if made is None:
                    made = self._kernels = self._tried()
        return made

    def _tried(self) -> _Kernels:
        """The kernels, unless it was tried a moment ago and some still compile: to lay out a long
        Program takes longer than a batch of rows."""
        begun = time.monotonic()
        if begun < self._again and pending() and not waits_for_kernels():
            raise NotReady
        try:
            return _Kernels(self.program, self._strategy)
        except NotReady:
            now = time.monotonic()
            self._again = now + PAUSES * (now - begun)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return (NativeCompiled, (self.program, self._strategy))


def _rows(arrays: Mapping[str, Array], start: int, stop: int) -> dict[str, Array]:
    return {name: array[start:stop] for name, array in arrays.items()}


class _Kernels:
    """A Program's kernels. Thread-safe.

    Raises:
        NotReady: one of them is being compiled, and the caller need not wait; so do all methods.
    """

    def __init__(self, program: Program, strategy: str) -> None:
        self.program = program
        self._strategy = strategy
        self._fused = {name: Fused.of(program, name) for name in program.outputs}
        self._with_texts: dict[str, TextFiller | None] = {}
        self._lock = threading.Lock()
        self._steps = None if all(self._fused.values()) else Stepwise(program, strategy)

    def run(self, inputs: Mapping[str, Array], names: tuple[str, ...]) -> dict[str, Array]:
        """What `NativeCompiled.run` does."""
        if self._steps is not None and not all(self._fused[name] for name in names):
            made = self._run_texts(inputs, names[0]) if len(names) == 1 else None
            return self._steps.run(inputs, names) if made is None else {names[0]: made}
        results: dict[str, Array] = {}
        for name in names:
            fused = self._fused[name]
            assert fused is not None
            x = reference.convert_input(fused.node, inputs)
            x = x if x.flags.aligned else x.copy()
            out = np.empty((x.shape[0], fused.width), fused.dtype)
            failed = fused.fill(x, out)
            if failed >= 0:
                block = {fused.name: x[failed:]}
                reference.run(self.program, block, names)  # says what is wrong with which row
                return self._stepwise().run(inputs, names)
            results[name] = out
        return results

    def _run_texts(self, inputs: Mapping[str, Array], output: str) -> Array | None:
        """An output of texts by calls of kernels, of rows that they refuse in steps; or None."""
        filler = self.text_filler(output)
        if filler is None or not filler.texts:
            return None
        nodes = self.program.nodes
        arrays, rows = collect_columns(inputs, self._stepwise().schedule_of((output,)).inputs)
        if filler.reads_rows:
            x = np.ascontiguousarray(reference.convert_input(nodes[filler.rows], arrays))
        else:
            x = np.empty((rows, filler.columns), filler.input)
        texts = [
            TextColumn.from_values(reference.convert_input(nodes[i], arrays)) for i in filler.texts
        ]
        follower = filler.follower(rows)
        if follower is None or any(t.missing.any() for t in texts):
            return None
        ends = np.stack([end for t in texts for end in t.addresses()])
        out = np.empty((rows, filler.width), filler.dtype)
        refused, first = list[int](), 0
        while (first := follower.run(x, ends, out, first, rows, follower.block)) < rows:
            stop = min(first + follower.block, rows)
            while (first := follower.run(x, ends, out, first, stop, 1)) < stop:
                refused.append(first)
                first += 1
        if refused:
            some = {name: array[np.array(refused)] for name, array in arrays.items()}
            out[refused] = self._stepwise().run(some, (output,))[output]
        return out

    def filler(
        self, output: str, columns: Sequence[int], width: int
    ) -> Fused | TreeFiller | StepFiller | None:
        """What `NativeCompiled.filler` does."""
        fused = self._fused.get(output)
        if fused is not None:
            return fused.reading(columns, width)
        kinds = [self.program.nodes[i].type for i in self.program.inputs.values()]
        if len(kinds) != 1 or kinds[0].dtype in TEXTUAL or not columns:
            return None
        steps = self._stepwise()
        by_trees = TreeFiller.of(steps, output, columns, width)
        if by_trees is not None:
            return by_trees
        whole = list(columns) == list(range(width))
        stages = Stages.of(steps, output) if whole else None
        if stages is None:
            return StepFiller(steps, output, columns, width)
        return StagedFiller(steps, output, columns, width, stages)

    def text_filler(self, output: str) -> TextFiller | None:
        """What `NativeCompiled.text_filler` does."""
        try:
            return self._with_texts[output]
        except KeyError:
            steps = self._stepwise()
            stages = Stages.of(steps, output)
            made = None if stages is None else TextFiller(steps, output, stages)
            self._with_texts[output] = made
            return made

    def _stepwise(self) -> Stepwise:
        with self._lock:
            if self._steps is None:
                self._steps = Stepwise(self.program, self._strategy)
            return self._steps


class NativeBackend:
    """Runs every operator of the IR: its own kernels where they pay, numpy for the rest."""

    def supports(self, program: Program) -> str | None:
        """Return why some operator cannot run; None: all can."""
        return explain_unsupported(
            program, (set(reference.FUNCTIONS) | {"input"}) - set(OWNING_BACKENDS)
        )

    def compile(
        self, program: Program, *, device: str = "cpu", strategy: str = "traverse"
    ) -> NativeCompiled:
        """Prepare a Program for the CPU; kernels compile when they are first called."""
        reason = self.supports(program)
        if reason is not None:
            raise BackendError(f"the native backend cannot run this model: {reason}")
        if device not in ("cpu", "auto"):
            raise BackendError(
                f"the native backend runs on the cpu, not on {device!r}; "
                "leave device out, or choose backend='torch'"
            )
        return NativeCompiled(program, strategy)
