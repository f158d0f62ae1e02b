"""`Schedule`: which steps of a compiled Program a set of outputs needs, and when values may go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.ir.program import Program


@dataclass(frozen=True, slots=True)
class Step:
    """One node made ready: the nodes whose values it reads, and what to call on them."""

    node: int
    inputs: tuple[int, ...]
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in order; `inputs` maps the names of the inputs needed to their nodes.

    `done[i]` are the nodes whose values nobody reads after the i-th step.
    """

    steps: tuple[Step, ...]
    inputs: Mapping[str, int]
    done: tuple[tuple[int, ...], ...]

    def run(self, values: dict[int, Any]) -> None:
        """Run all steps; `values` holds the inputs and constants, and then the results."""
        for step, done in zip(self.steps, self.done, strict=True):
            values[step.node] = step.function(*[values[j] for j in step.inputs])
            for j in done:
                del values[j]


def schedule(
    program: Program, steps: Mapping[int, Step], outputs: Sequence[str], constants: Collection[int]
) -> Schedule:
    """The schedule for `outputs`; a step may read past nodes, which then do not run."""
    kept = {program.outputs[name] for name in outputs}
    live = set(kept)
    chosen: list[Step] = []
    done: list[tuple[int, ...]] = []
    for i in range(len(program.nodes) - 1, -1, -1):
        step = steps.get(i)
        if i not in live or step is None:
            continue
        reads = set(step.inputs)
        chosen.append(step)
        done.append(tuple(sorted(reads - live - set(constants))))
        live |= reads
    return Schedule(
        tuple(reversed(chosen)),
        {name: i for name, i in program.inputs.items() if i in live},
        tuple(reversed(done)),
    )
