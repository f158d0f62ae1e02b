"""`in_place`: an operator that nobody else's input depends on writes over that input.

Chen's thesis, section 3.2: a value whose only reader makes a value of the same type gives it its
memory. A chain of such operators then works in one buffer, which stays in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Program
from sqlml.types import Array

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
