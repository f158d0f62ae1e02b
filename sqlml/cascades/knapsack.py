"""`most_important`: the features worth most that cost no more than so much (Willump, 4.1.3)."""

from __future__ import annotations

from collections.abc import Sequence


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
