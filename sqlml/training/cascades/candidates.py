"""Candidate feature sets of small models, and the rows to try them on (Willump, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.training.cascades.feature_groups import Group, Sources, feature_groups
from sqlml.training.cascades.last_estimator import (
    SHUFFLED,
    LastEstimator,
    Rows,
    feature_ns,
    last_estimator,
    shuffled,
)
from sqlml.types import Array


def most_important(
    costs: Sequence[float], importances: Sequence[float], budget: float
) -> frozenset[int]:
    """Return the indices of the items with the largest total importance within a budget.

    A 0/1 knapsack (Willump, 4.1.3) by dynamic programming over the undominated sets (Nemhauser and
    Ullmann, 1969). Items without cost are always included, and useless ones never.

    >>> sorted(most_important([48, 30, 22, 0], [5.0, 3.0, 3.0, 0.1], 60))
    [1, 2, 3]
    """
    free = frozenset(i for i, cost in enumerate(costs) if cost <= 0)
    best: list[tuple[float, float, frozenset[int]]] = [(0.0, 0.0, free)]
    for i, (cost, importance) in enumerate(zip(costs, importances, strict=True)):
        if i in free or importance <= 0:
            continue
        extended = [(c + cost, w + importance, s | {i}) for c, w, s in best if c + cost <= budget]
        merged, best, largest = sorted([*best, *extended], key=lambda b: (b[0], -b[1])), [], -1.0
        for candidate in merged:
            if candidate[1] > largest:
                best.append(candidate)
                largest = candidate[1]
    return best[-1][2]


BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Costs of a small model's features that are tried, relative to those of all features."""

HELD_OUT_SHARE = 0.25
"""Share of the rows that nothing is trained on."""

LEAST_GAIN = 1.05
"""Minimum speedup; a smaller one may be noise in the measurements."""

Harm = Callable[[Program, Rows], float]
"""The loss of a model that reads some features from other rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Groups of a model's features (Willump, 4.1.2), and the sets of groups that are worth a try.

    train, held: positions of the rows to train on, and of those held out; train_rows,
    held_out_rows: these rows.
    """

    last: LastEstimator
    groups: tuple[Group, ...]
    sources: Sources
    train: Array
    held: Array
    train_rows: Rows
    held_out_rows: Rows

    def __iter__(self) -> Iterator[frozenset[int]]:
        """Yield distinct sets of groups, neither empty nor complete, of the largest importance in a
        budget."""
        costs = [group.cost for group in self.groups]
        importances = [group.importance for group in self.groups]
        tried = set[frozenset[int]]()
        for share in BUDGETS:
            chosen = most_important(costs, importances, share * sum(costs))
            if chosen and len(chosen) < len(self.groups) and chosen not in tried:
                tried.add(chosen)
                yield chosen

    def places(self, chosen: frozenset[int]) -> list[int]:
        """Return the columns of some groups in the last estimator's matrix."""
        return sorted(place for i in chosen for place in self.groups[i].places)

    def source_ns(self, chosen: frozenset[int]) -> float:
        """Return the nanoseconds per row that the query takes for some groups."""
        needed = frozenset[str]().union(*(self.groups[i].sources for i in chosen))
        return self.sources.cost(needed)


def split(
    n: int, random: np.random.Generator, held_out: float = HELD_OUT_SHARE
) -> tuple[Array, Array]:
    """Return the positions of rows to train on, and of those held out."""
    order = random.permutation(n)
    held_count = round(n * held_out)
    return np.sort(order[held_count:]), np.sort(order[:held_count])


def select_rows(rows: Rows, positions: Array) -> dict[str, Array]:
    """Return the rows at some positions."""
    return {name: values[positions] for name, values in rows.items()}


def find_candidates(
    program: Program,
    rows: Rows,
    positions: tuple[Array, Array],
    sources: Sources,
    random: np.random.Generator,
    harm: Callable[[Rows], Harm],
) -> Candidates:
    """Group the features, and measure the groups' costs and importances on the rows to train on.

    The held-out rows do not influence which groups are tried, so that results on them are unbiased.

    Args:
        positions: those that `split` returns.
        harm: from the rows to train on, the loss of a model there.

    Raises:
        ConfigError: all features belong to one group.
    """
    train, held_out = positions
    train_rows, held_out_rows = select_rows(rows, train), select_rows(rows, held_out)
    last = last_estimator(program)

    def cost(places: Sequence[int]) -> float:
        return feature_ns(program, last, places, train_rows)

    groups = feature_groups(program, last, sources, cost)
    if len(groups) < 2:
        raise ConfigError(
            f"all features of the model are computed together ({groups[0].name}), so that no small "
            "model can do without some"
        )
    order = random.permutation(train.size)
    shuffled_rows = {SHUFFLED.format(name): values[order] for name, values in train_rows.items()}
    measure_loss = harm(train_rows)
    weighted_groups = tuple(
        replace(
            group,
            importance=measure_loss(
                shuffled(program, last, group.places), {**train_rows, **shuffled_rows}
            ),
        )
        for group in groups
    )
    return Candidates(last, weighted_groups, sources, train, held_out, train_rows, held_out_rows)
