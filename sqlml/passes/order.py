"""The passes in their order, and `run`, which applies them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlml.errors import ConfigError
from sqlml.ir.builder import rewrite
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.fold_into_trees import fold_into_trees
from sqlml.passes.fold_layout import fold_layout
from sqlml.passes.fold_monotone import compare_margins, fold_monotone
from sqlml.passes.fold_scaling import fold_scaling
from sqlml.passes.narrow_dtypes import narrow_dtypes
from sqlml.passes.selection import inject_selection, push_selection
from sqlml.passes.share_work import fold_constants, merge_linears, share_work
from sqlml.passes.simplify_trees import drop_statistics, settle_missing
from sqlml.passes.sink_checks import sink_checks
from sqlml.passes.sparse_weights import sparse_weights, take_categories

Pass = Callable[[Program], Program]

MODEL_PASSES: tuple[Pass, ...] = (
    drop_statistics,
    fold_constants,
    fold_monotone,
    compare_margins,
    inject_selection,
    push_selection,
    sink_checks,
    fold_scaling,
    fold_into_trees,
    settle_missing,
    share_work,
    merge_linears,
    take_categories,
    fold_layout,
)
"""Passes on a model once its outputs are chosen, before it is split between SQL and kernels."""

TENSOR_PASSES: tuple[Pass, ...] = (sparse_weights, narrow_dtypes)
"""Passes on a Program that is lowered for a backend of tensors."""


def run(
    program: Program,
    upto: str | None = None,
    passes: tuple[Pass, ...] = MODEL_PASSES,
    without: Collection[str] = (),
) -> Program:
    """Apply `passes` in order and verify the result.

    Args:
        upto: name of the last pass to apply (default: all).
        without: names of passes to leave out, for example fold_scaling, the only one that rounds
            differently.

    Raises:
        ConfigError: `upto` or `without` names an unknown pass.
        ProgramError: a pass returned an illegal Program (a bug in that pass).
    """
    names = [p.__name__ for p in passes]
    for name in (*([] if upto is None else [upto]), *without):
        if name not in names:
            raise ConfigError(f"unknown pass {name!r}; passes: {', '.join(names)}")
    result = program
    for apply in passes:
        if apply.__name__ not in without:
            result = apply(result)
        if apply.__name__ == upto:
            break
    return result if result is program else verify(result)


def select_outputs(program: Program, outputs: Sequence[str]) -> Program:
    """Return `program` with only these outputs and the nodes that they need."""
    return rewrite(program, lambda b, node, inputs: None, outputs, ops=())
