"""`in_place`: an operator that nobody else's input depends on writes over that input.

Chen's thesis, section 3.2: a value whose only reader makes a value of the same type gives it its
memory. A chain of such operators then works in one buffer, which stays in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.ir.program import Program
from sqlml.types import Array

UFUNCS: Mapping[str, np.ufunc] = MappingProxyType(
    {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "neg": np.negative,
        "abs": np.abs,
        "sign": np.sign,
        "square": np.square,
        "sqrt": np.sqrt,
        "log": np.log,
        "log1p": np.log1p,
        "expm1": np.expm1,
        "tanh": np.tanh,
        "trunc": np.trunc,
        "floor": np.floor,
        "ceil": np.ceil,
        "rint": np.rint,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
    }
)
"""Operators that are one ufunc, with any inputs; the reference's own."""

FRESH = frozenset({*UFUNCS, "linear"})
"""Operators whose result is an array of its own, and never a view of an input."""


def in_place(program: Program) -> dict[int, Callable[..., Array]]:
    """Node -> function of its inputs that returns one of them, written over."""
    uses = Counter(j for node in program.nodes for j in node.inputs)
    uses.update(program.outputs.values())
    made: dict[int, Callable[..., Array]] = {}
    for i, node in enumerate(program.nodes):
        ufunc = UFUNCS.get(node.op)
        if ufunc is None:
            continue
        for place, j in enumerate(node.inputs):
            below = program.nodes[j]
            if below.op in FRESH and below.type == node.type and node.type.rowwise and uses[j] == 1:
                made[i] = _over(ufunc, place)
                break
    return made


def _over(ufunc: np.ufunc, place: int) -> Callable[..., Any]:
    return lambda *args: ufunc(*args, out=args[place])
