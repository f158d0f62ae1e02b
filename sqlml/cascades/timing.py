"""`row_ns`: how long a Program takes for a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.backends.no_wait import waiting
from sqlml.ir.program import Program
from sqlml.scorer.scorer import Scorer
from sqlml.types import Array

ROWS = 8_192
"""Most rows on which times are measured."""

ROUNDS = 3
"""Each measurement is the best of so many."""


def answers(program: Program, output: str, rows: Mapping[str, Array]) -> Array:
    """An output (n, k) for some rows, by input; of labels their places among the model's."""
    return _scorer(program)._values(output, _held(program, rows), {})


def row_ns(program: Program, output: str, rows: Mapping[str, Array]) -> float:
    """Nanoseconds a row on one thread, for one output."""
    held = {name: values[:ROWS] for name, values in _held(program, rows).items()}
    n = len(next(iter(held.values())))
    scorer = _scorer(program)
    return best_of(lambda: scorer._values(output, held, {"threads": 1})) / n


def best_of(work: Callable[[], Any]) -> float:
    """The nanoseconds of the fastest of a few runs, after one that may compile."""
    taken = []
    with waiting():
        work()
        for _ in range(ROUNDS):
            start = time.perf_counter_ns()
            work()
            taken.append(time.perf_counter_ns() - start)
    return float(min(taken))


def _scorer(program: Program) -> Scorer:
    unnamed = replace(program, labels=())
    return Scorer(unnamed, unnamed.features, {})


def _held(program: Program, rows: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(rows[name]) for name in program.inputs}
