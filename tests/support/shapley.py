"""Shapley values by their definition: all subsets of a few players."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from sqlml.ir.operators.forests import goes_left
from sqlml.ir.trees import Ensemble

Worth = Callable[[frozenset[int]], np.ndarray]
"""What a set of players is worth: any array of numbers, of one shape for all sets."""


def by_definition(worth: Worth, players: int) -> np.ndarray:
    """(players, ..): the mean of what a player adds, over all orders in which they may come."""
    known = {
        frozenset(some): worth(frozenset(some))
        for size in range(players + 1)
        for some in itertools.combinations(range(players), size)
    }
    values = []
    for k in range(players):
        total = np.zeros_like(known[frozenset()])
        for some, value in known.items():
            if k not in some:
                ways = math.factorial(len(some)) * math.factorial(players - len(some) - 1)
                total = total + ways / math.factorial(players) * (known[some | {k}] - value)
        values.append(total)
    return np.array(values)


def expected_of_trees(e: Ensemble, row: np.ndarray) -> Worth:
    """What the trees are expected to give a row of which some columns are known: by the covers."""

    def below(node: int, known: frozenset[int]) -> np.ndarray:
        if node < 0:
            return e.leaf_values[~node].astype(np.float64)
        left, right = int(e.left[node]), int(e.right[node])
        k = int(e.feature[node])
        if k in known:
            goes = bool(goes_left(e, np.array([node]), row[k : k + 1])[0])
            return below(left if goes else right, known)
        weights = [
            float(e.cover[child] if child >= 0 else e.leaf_cover[~child]) for child in (left, right)
        ]
        whole = float(e.cover[node])
        first, second = (w / whole if whole > 0 else 0.5 for w in weights)
        return first * below(left, known) + second * below(right, known)

    def worth(known: frozenset[int]) -> np.ndarray:
        made = e.base.astype(np.float64).copy()
        for tree, root in enumerate(e.roots.tolist()):
            first = int(e.target[tree])
            made[first : first + e.leaf_values.shape[1]] += below(root, known)
        return made

    return worth
