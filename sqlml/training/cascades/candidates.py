"""`Candidates`: the sets of features that small models may read, and the rows to try them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.training.cascades.feature_groups import Group, Sources, feature_groups
from sqlml.training.cascades.parts import (
    SHUFFLED,
    LastEstimator,
    Rows,
    feature_ns,
    last_estimator,
    shuffled,
)
from sqlml.types import Array

# `most_important`: the features worth most that cost no more than so much (Willump, 4.1.3).


def most_important(
    costs: Sequence[float], importances: Sequence[float], budget: float
) -> frozenset[int]:
    """The places of those things whose importances sum to the most, for at most `budget` in all.

    A 0/1 knapsack by dynamic programming over the sets that no cheaper one is worth as much as
    (Nemhauser and Ullmann, 1969). What costs nothing is always taken, and what is of no use never.

    >>> sorted(most_important([48, 30, 22, 0], [5.0, 3.0, 3.0, 0.1], 60))
    [1, 2, 3]
    """
    free = frozenset(i for i, cost in enumerate(costs) if cost <= 0)
    best: list[tuple[float, float, frozenset[int]]] = [(0.0, 0.0, free)]
    for i, (cost, worth) in enumerate(zip(costs, importances, strict=True)):
        if i in free or worth <= 0:
            continue
        with_it = [(c + cost, w + worth, s | {i}) for c, w, s in best if c + cost <= budget]
        merged, best, most = sorted([*best, *with_it], key=lambda b: (b[0], -b[1])), [], -1.0
        for held in merged:
            if held[1] > most:
                best.append(held)
                most = held[1]
    return best[-1][2]


BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Parts of the cost of all features that those of a small model may cost."""

HELD_OUT = 0.25
"""The part of the rows on which nothing is trained."""

LEAST_GAIN = 1.05
"""A smaller gain may be but noise of the measurement."""

Harm = Callable[[Program, Rows], float]
"""What a model loses that reads some features from other rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Groups of a model's features (Willump, 4.1.2), and the sets of them that are worth a try.

    train, held: the places of the rows to train on, and of those held out; trained, kept: the rows.
    """

    last: LastEstimator
    groups: tuple[Group, ...]
    sources: Sources
    train: Array
    held: Array
    trained: Rows
    kept: Rows

    def __iter__(self) -> Iterator[frozenset[int]]:
        """Sets of groups, each once: some of them and not all, worth the most for their cost."""
        costs = [group.cost for group in self.groups]
        worth = [group.importance for group in self.groups]
        tried = set[frozenset[int]]()
        for part in BUDGETS:
            chosen = most_important(costs, worth, part * sum(costs))
            if chosen and len(chosen) < len(self.groups) and chosen not in tried:
                tried.add(chosen)
                yield chosen

    def places(self, chosen: frozenset[int]) -> list[int]:
        """The columns of the last estimator's matrix that some groups have."""
        return sorted(place for i in chosen for place in self.groups[i].places)

    def source_ns(self, chosen: frozenset[int]) -> float:
        """Nanoseconds a row of what the query computes for some groups."""
        behind = frozenset[str]().union(*(self.groups[i].sources for i in chosen))
        return self.sources.cost(behind)


def split(n: int, random: np.random.Generator, held_out: float = HELD_OUT) -> tuple[Array, Array]:
    """The places of rows to train on, and of those held out."""
    order = random.permutation(n)
    kept = round(n * held_out)
    return np.sort(order[kept:]), np.sort(order[:kept])


def taken(rows: Rows, places: Array) -> dict[str, Array]:
    """Some of the rows."""
    return {name: values[places] for name, values in rows.items()}


def candidates(
    program: Program,
    rows: Rows,
    parts: tuple[Array, Array],
    sources: Sources,
    random: np.random.Generator,
    harm: Callable[[Rows], Harm],
) -> Candidates:
    """The groups with their costs and importances, measured on the rows to train on.

    The rows held out have no say in which groups are tried: what is shown on them holds then.

    Args:
        parts: as `split` makes them.
        harm: of the rows to train on, what a model loses there.

    Raises:
        ConfigError: all features belong to one group.
    """
    train, held = parts
    trained, kept = taken(rows, train), taken(rows, held)
    last = last_estimator(program)

    def cost(places: Sequence[int]) -> float:
        return feature_ns(program, last, places, trained)

    groups = feature_groups(program, last, sources, cost)
    if len(groups) < 2:
        raise ConfigError(
            f"all features of the model are computed together ({groups[0].name}), so that no small "
            "model can do without some"
        )
    order = random.permutation(train.size)
    other = {SHUFFLED.format(name): values[order] for name, values in trained.items()}
    lost = harm(trained)
    weighed = tuple(
        replace(group, importance=lost(shuffled(program, last, group.places), {**trained, **other}))
        for group in groups
    )
    return Candidates(last, weighed, sources, train, held, trained, kept)
