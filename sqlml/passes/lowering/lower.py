"""`lower`: from model operators to tensor operators, by the tree strategy of your choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.lowering import gemm, ptt
from sqlml.passes.lowering.exit_leaves import Shape, shape_of
from sqlml.passes.lowering.gemm import lower_gemm
from sqlml.passes.lowering.model_ops import lower_model_ops
from sqlml.passes.lowering.ptt import lower_ptt
from sqlml.passes.lowering.tt import lower_tt

STRATEGIES: Mapping[str, Callable[[Program], Program]] = MappingProxyType(
    {"gemm": lower_gemm, "tt": lower_tt, "ptt": lower_ptt}
)

REFUSALS: Mapping[str, Callable[[Shape], str | None]] = MappingProxyType(
    {"gemm": gemm.refusal, "ptt": ptt.refusal}
)
"""Strategies that do not suit all trees, and why not."""

WHOLE = ("traverse", "fused")
"""Strategies of backends that have a kernel for trees as they are."""


def refusal(program: Program, strategy: str) -> str | None:
    """Why `strategy` does not suit a tree of the program, before anything is lowered; None: it
    does."""
    why = REFUSALS.get(strategy)
    if why is None:
        return None
    trees = (Ensemble.of(n.attrs) for n in program.nodes if n.op == "tree_ensemble")
    return next((reason for e in trees if (reason := why(shape_of(e))) is not None), None)


def lower(program: Program, strategy: str) -> Program:
    """Lower all of `program` for a backend of tensors.

    Raises:
        ConfigError: unknown strategy.
        BackendError: the strategy does not suit a tree of the program; the message says why.
    """
    if strategy in WHOLE:
        return lower_model_ops(program)
    if strategy not in STRATEGIES:
        known = ", ".join(["traverse", *STRATEGIES, "fused"])
        raise ConfigError(f"unknown strategy {strategy!r}; strategies: {known}")
    return lower_model_ops(STRATEGIES[strategy](program))
