"""`explain_model`: what EXPLAIN MODEL tells of a model, without a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.ir.program import Program
from sqlml.passes.order import MODEL_PASSES, run
from sqlml.planner.binding.requested_output import OUTPUTS_OF
from sqlml.planner.choice.choose import choose
from sqlml.planner.plan.text import duration
from sqlml.planner.program.function_names import Output, Part
from sqlml.planner.program.prepare import chosen, prepare


def explain_model(program: Program, options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Titles and texts: the Program as it is stored, and for each of its outputs the passes that
    change it, what they make of it, what is read, and the ways to run it with their estimated cost.

    Args:
        options: those of the model, which the choice follows.

    Raises:
        ConfigError, BackendError: the options leave no way to run it.
    """
    rows = [("program", str(program))]
    for output in (o for group in OUTPUTS_OF.values() for o in group if o in program.outputs):
        prepared = prepare(program, output)
        rows += [
            (f"{output}: passes", _passes(program, output)),
            (f"{output}: program", str(prepared.program)),
            (f"{output}: reads", ", ".join(prepared.program.inputs) or "nothing"),
            (f"{output}: strategies", _strategies(prepared.split.core, options)),
        ]
    return rows


def _passes(program: Program, output: Output) -> str:
    """A line for each pass that changes something."""
    made = chosen(program, (Part(output),))
    lines = []
    for apply in MODEL_PASSES:
        after = run(made, passes=(apply,))
        if after.hash != made.hash:
            lines.append(f"{apply.__name__}: {_size(made)} -> {_size(after)}")
        made = after
    return "\n".join(lines) or "none changes it"


def _size(program: Program) -> str:
    return f"{len(program.nodes)} nodes of {len(program.inputs)} columns"


def _strategies(core: Program, options: Mapping[str, Any]) -> str:
    """The choice, and what was weighed against it."""
    choice = choose(core, options)
    if not choice.estimates:
        return f"{choice.backend}/{choice.strategy} on {choice.device}: {choice.reason}"
    times = [f"{e.name}: {duration(e.start + e.seconds)}" for e in choice.estimates]
    return "\n".join([f"{times[0]} for {choice.rows:,} rows on one thread", *times[1:]])
