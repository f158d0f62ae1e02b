"""Passes: rewrites from a Program to an equivalent Program.

`run` applies `MODEL_PASSES` to a model once its outputs are chosen, and verifies the result.
`split.split` then divides a Program into encoders that run as SQL and a core that runs as a
kernel, and `lower.lower` writes the core as tensor operators for torch and onnxruntime.

Nearly every pass is a rule for `ir.builder.rewrite`; `fold_layout.py` is a small example, whose
helpers other passes use. All are exact, except `fold_scaling`, whose docstring bounds its rounding.
To add a pass, write a module with a function from Program to Program, name it in `MODEL_PASSES`,
`KERNEL_PASSES` or `TENSOR_PASSES`, and add a golden rewrite to `tests/unit/passes/test_golden.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from sqlml.bounded_cache import cache_by_program
from sqlml.errors import ConfigError
from sqlml.ir.builder import rewrite
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.passes.fold_into_leaves import fold_into_leaves
from sqlml.passes.fold_into_trees import fold_into_trees
from sqlml.passes.fold_layout import fold_layout
from sqlml.passes.fold_missing_zeros import fold_missing_zeros
from sqlml.passes.fold_monotone import compare_margins, fold_monotone
from sqlml.passes.fold_one_hot import fold_one_hot
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
    fold_missing_zeros,
    fold_into_leaves,
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

KERNEL_PASSES: tuple[Pass, ...] = (fold_one_hot,)
"""Passes on a Program that native kernels run; see `prepare_for_kernels`."""

TENSOR_PASSES: tuple[Pass, ...] = (sparse_weights, narrow_dtypes)
"""Passes on a Program that is lowered for a tensor backend."""


def run(
    program: Program, passes: tuple[Pass, ...] = MODEL_PASSES, without: Collection[str] = ()
) -> Program:
    """Apply `passes` in order, except those named in `without`, and verify the result."""
    names = [p.__name__ for p in passes]
    for name in without:
        if name not in names:
            raise ConfigError(f"unknown pass {name!r}; passes: {', '.join(names)}")
    rewritten = program
    for apply in passes:
        if apply.__name__ not in without:
            rewritten = apply(rewritten)
    return rewritten if rewritten is program else verify(rewritten)


@cache_by_program
def prepare_for_kernels(program: Program) -> Program:
    return run(program, KERNEL_PASSES)


def select_outputs(program: Program, outputs: Sequence[str]) -> Program:
    return rewrite(program, lambda builder, node, inputs: None, outputs, ops=())
