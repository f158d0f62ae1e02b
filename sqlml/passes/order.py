"""The passes in their order, as one visible tuple; `run` stops after any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.ir.rewrite import rewrite
from sqlml.ir.spec import verify
from sqlml.passes.fold_layout import fold_layout
from sqlml.passes.inject_selection import inject_selection
from sqlml.passes.push_selection import push_selection

Pass = Callable[[Program], Program]

MODEL_PASSES: tuple[Pass, ...] = (inject_selection, push_selection, fold_layout)
"""Applied to a model once its outputs are chosen, before it is split between SQL and kernels."""


def run(
    program: Program, upto: str | None = None, passes: tuple[Pass, ...] = MODEL_PASSES
) -> Program:
    """Apply `passes` in order, each result verified; stop after the one named `upto`.

    Raises:
        ConfigError: no pass is called `upto`.
        ProgramError: a pass made an illegal Program (a bug in that pass).
    """
    names = [p.__name__ for p in passes]
    if upto is not None and upto not in names:
        raise ConfigError(f"no pass {upto!r}; there are {', '.join(names)}")
    for apply in passes:
        program = verify(apply(program))
        if apply.__name__ == upto:
            break
    return program


def only(program: Program, outputs: Sequence[str]) -> Program:
    """`program` with these outputs alone, and what they need."""
    return rewrite(program, lambda b, node, inputs: None, outputs)
