"""The knapsack, against all sets."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np

from sqlml.training.cascades.learn import choose_most_important


def test_no_other_set_within_the_budget_is_worth_more() -> None:
    random = np.random.default_rng(1)
    for _ in range(100):
        n = int(random.integers(1, 8))
        costs = random.choice([0.0, 0.1, 0.35, 0.6], n) * random.random(n)
        worth = random.normal(0.1, 0.2, n)
        chosen = choose_most_important(costs.tolist(), worth.tolist(), 1.0)
        subsets = chain.from_iterable(combinations(range(n), k) for k in range(n + 1))
        best = max(
            sum(max(worth[i], 0) if costs[i] == 0 else worth[i] for i in subset)
            for subset in subsets
            if costs[list(subset)].sum() <= 1 + 1e-9
        )
        assert costs[list(chosen)].sum() <= 1 + 1e-9
        total_worth = sum(max(worth[i], 0) if costs[i] == 0 else worth[i] for i in chosen)
        assert total_worth >= best - 1e-9


def test_free_features_are_always_taken_and_useless_ones_never() -> None:
    assert choose_most_important([0.0, 5.0, 1.0], [-1.0, 3.0, -0.1], 10.0) == {0, 1}
    assert choose_most_important([0.0, 5.0], [0.0, 3.0], 0.0) == {0}


def test_the_paper_s_example() -> None:
    """Figure 4: of groups 1, 2 and 3, the first and the third go into a budget of 60."""
    assert choose_most_important([50.0, 40.0, 10.0], [0.5, 0.3, 0.2], 60.0) == {0, 2}
