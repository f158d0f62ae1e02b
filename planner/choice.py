"""Choose backend, strategy and device for a Program: the user's options, else a default.

The cost model of kernels.md replaces `_auto_strategy`; what is decided here is written in the
Plan together with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.backends.base import BACKENDS, load
from sqlml.errors import ConfigError
from sqlml.ir.operators.opaque import OWNERS
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble

OPTIONS = ("backend", "strategy", "device")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Choice:
    """How a Program is run, and why."""

    backend: str
    strategy: str
    device: str
    reason: str


def choose(program: Program, options: Mapping[str, Any]) -> Choice:
    """Resolve `backend`, `strategy` and `device` ("auto" by default) for `program`.

    Raises:
        ConfigError: an unknown name, or a strategy that the backend does not have.
        MissingDependencyError: the backend's library is not installed.
    """
    backend = str(options.get("backend", "auto")).lower()
    strategy = str(options.get("strategy", "auto")).lower()
    device = str(options.get("device", "auto")).lower()
    if device not in DEVICES:
        raise ConfigError(f"no device {device!r}; there are {', '.join(DEVICES)}")
    if backend == "auto":
        wants_torch = device == "cuda" or strategy in ("gemm", "tt", "ptt")
        owner = next((OWNERS[n.op] for n in program.nodes if n.op in OWNERS), None)
        backend = owner or ("torch" if wants_torch else "native")
        why = f"{'device' if device == 'cuda' else 'strategy'} asked for" if wants_torch else "cpu"
        why = why if owner is None else "the one backend that runs this kind of model"
    else:
        why = "option"
    strategies = load(backend).strategies
    if strategy == "auto":
        strategy = _auto_strategy(program, strategies)
        why += "; strategy by tree depth" if len(strategies) > 1 else ""
    elif strategy not in strategies:
        raise ConfigError(
            f"backend {backend!r} has no strategy {strategy!r}; it has {', '.join(strategies)}, "
            f"and auto (backends: {', '.join(BACKENDS)})"
        )
    return Choice(backend, strategy, "cpu" if device == "auto" else device, why)


def _auto_strategy(program: Program, strategies: tuple[str, ...]) -> str:
    """Paper 000, section 5.1: GEMM for shallow trees, PTT up to depth 10, TT beyond."""
    ensembles = [Ensemble.of(n.attrs) for n in program.nodes if n.op == "tree_ensemble"]
    sets = any(e.has_categories for e in ensembles)
    if "gemm" not in strategies or (strategies[0] == "traverse" and not sets):
        return strategies[0]
    depth = max((e.depth for e in ensembles), default=0)
    return "gemm" if depth <= 3 else "ptt" if depth <= 10 else "tt"
