"""`learn_cascade`: a small model and its threshold for a classifier (Willump, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.cascades.feature_groups import NOTHING, Group, Sources, feature_groups
from sqlml.cascades.feature_matrix import Rows, feature_ns
from sqlml.cascades.intervals import LEVEL
from sqlml.cascades.knapsack import most_important
from sqlml.cascades.last_estimator import LastEstimator, last_estimator
from sqlml.cascades.parts import CONFIDENCE, SHUFFLED, shuffled
from sqlml.cascades.recipe import Recipe
from sqlml.cascades.small_model import confident, small_classifier
from sqlml.cascades.threshold import lowest_threshold, rows_needed
from sqlml.cascades.timing import answers, row_ns
from sqlml.catalog.cascade import Cascade, CascadeFacts, FeatureGroup
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.passes.order import run
from sqlml.types import Array

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Parts of the cost of all features that those of a small model may cost."""

HELD_OUT = 0.25
"""The part of the rows on which nothing is trained."""


LEAST_GAIN = 1.05
"""A smaller gain may be but noise of the measurement."""


@dataclass(frozen=True, slots=True)
class NoGain:
    """Why no cascade is worth having."""

    reason: str
    groups: tuple[FeatureGroup, ...]


def learn_cascade(
    program: Program,
    recipe: Recipe,
    rows: Rows,
    labels: Array,
    *,
    query: str,
    label: str,
    loss: float,
    sources: Sources = NOTHING,
    base_ns: float = 0.0,
    seed: int = 0,
) -> Cascade | NoGain:
    """The cascade with the least expected time whose accuracy is within `loss` of the model's.

    The expected time differs from Willump's equation 1: the full model computes the small one's
    features again, so that the rows left to it pay for both.

    Args:
        rows: input of the model -> (n,) values.
        labels: (n,) int, the place of each row's true label among the model's.
        query: what gave the rows; label: its column of labels.
        loss: of accuracy, e.g. 0.001.
        base_ns: nanoseconds a row of the query besides `sources` and model.

    Raises:
        ConfigError: all features belong to one group, or there are too few rows.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    level = 1 - (1 - LEVEL) / len(BUDGETS)
    needed = rows_needed(loss, level)
    random = np.random.default_rng(seed)
    train, held = _split(labels.size, random)
    if held.size < needed:
        raise ConfigError(
            f"{labels.size:,} rows cannot show a loss of accuracy as small as {loss:g}: a quarter "
            f"of them is held out for that; give at least {math.ceil(needed / HELD_OUT):,} rows, "
            "or a larger accuracy_loss"
        )
    trained, kept = _taken(rows, train), _taken(rows, held)
    last = last_estimator(program)
    groups = _weighed(program, last, sources, trained, kept, labels[held], random)
    full_right = answers(program, "label", kept)[:, 0] == labels[held]
    full_ns = row_ns(program, "label", trained) + sources.cost(sources.costs)
    best: Cascade | None = None
    why = "no small model is sure enough of any row"
    for chosen in _candidates(groups):
        places = sorted(place for i in chosen for place in groups[i].places)
        small = run(small_classifier(program, last, places, recipe, trained, labels[train]))
        sure = answers(small, CONFIDENCE, kept)[:, 0]
        right = answers(small, "label", kept)[:, 0] == labels[held]
        threshold = lowest_threshold(sure, right, full_right, loss, level)
        if threshold is None:
            continue
        made = run(confident(small, threshold.confidence, program.labels))
        behind = frozenset[str]().union(*(groups[i].sources for i in chosen))
        ready_ns = row_ns(made, "label", trained) + sources.cost(behind)
        rest_ns = (1 - threshold.confident) * (full_ns - sources.cost(behind))
        facts = CascadeFacts(
            query=query,
            label=label,
            accuracy_loss=loss,
            threshold=threshold.confidence,
            confident=threshold.confident,
            accuracy=float(full_right.mean()),
            loss=threshold.loss,
            most_loss=threshold.most_loss,
            trained=train.size,
            held_out=held.size,
            exact_ns=base_ns + full_ns,
            expected_ns=base_ns + ready_ns + rest_ns,
            groups=tuple(group.facts(i in chosen) for i, group in enumerate(groups)),
        )
        why = f"a query would take {1 / facts.gain:.2f} of the time without it"
        if best is None or facts.expected_ns < best.facts.expected_ns:
            best = Cascade(made, facts)
    if best is None or best.facts.gain < LEAST_GAIN:
        return NoGain(why, tuple(group.facts(False) for group in groups))
    return best


def _split(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Places of rows to train on, and of those held out."""
    order = random.permutation(n)
    kept = round(n * HELD_OUT)
    return np.sort(order[kept:]), np.sort(order[:kept])


def _taken(rows: Rows, places: Array) -> dict[str, Array]:
    return {name: values[places] for name, values in rows.items()}


def _weighed(
    program: Program,
    last: LastEstimator,
    sources: Sources,
    trained: Rows,
    kept: Rows,
    labels: Array,
    random: np.random.Generator,
) -> tuple[Group, ...]:
    """The feature groups with their costs and importances (Willump, 4.1.2)."""
    groups = feature_groups(
        program, last, sources, lambda places: feature_ns(program, last, places, trained)
    )
    if len(groups) < 2:
        raise ConfigError(
            "all features of the model are computed together "
            f"({groups[0].name}), so that no small model can do without some"
        )
    accuracy = float((answers(program, "label", kept)[:, 0] == labels).mean())
    order = random.permutation(labels.size)
    other = {SHUFFLED.format(name): values[order] for name, values in kept.items()}
    return tuple(
        replace(
            group,
            importance=accuracy
            - float(
                (
                    answers(shuffled(program, last, group.places), "label", {**kept, **other})[:, 0]
                    == labels
                ).mean()
            ),
        )
        for group in groups
    )


def _candidates(groups: Sequence[Group]) -> list[frozenset[int]]:
    """Sets of groups that small models may read: some of them, not all, each set once."""
    costs = [group.cost for group in groups]
    worth = [group.importance for group in groups]
    found: list[frozenset[int]] = []
    for part in BUDGETS:
        chosen = most_important(costs, worth, part * sum(costs))
        if chosen and len(chosen) < len(groups) and chosen not in found:
            found.append(chosen)
    return found
