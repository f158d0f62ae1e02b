"""`learn_cascade`: a small model and its threshold for a classifier (Willump, algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.catalog.small_models import Cascade, CascadeFacts, FeatureGroup, FilterFacts, TopKFilter
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.passes.order import run
from sqlml.training.cascades.candidates import (
    BUDGETS,
    HELD_OUT,
    LEAST_GAIN,
    Harm,
    candidates,
    split,
)
from sqlml.training.cascades.feature_groups import NOTHING, Sources
from sqlml.training.cascades.parts import CONFIDENCE, Rows, answers, row_ns
from sqlml.training.cascades.recipe import Recipe
from sqlml.training.cascades.small_model import confident, small_classifier, small_scorer
from sqlml.training.cascades.threshold import (
    FEWEST,
    LEVEL,
    TRIALS,
    lowest_threshold,
    rows_needed,
    smallest_ratio,
)
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class NoGain:
    """Why no small model is worth having."""

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
    train, held = parts = split(labels.size, random)
    if held.size < needed:
        raise ConfigError(
            f"{labels.size:,} rows cannot show a loss of accuracy as small as {loss:g}: a quarter "
            f"of them is held out for that; give at least {math.ceil(needed / HELD_OUT):,} rows, "
            "or a larger accuracy_loss"
        )

    def right(model: Program, of: Rows, places: Array = held) -> Array:
        return np.asarray(answers(model, "label", of)[:, 0] == labels[places])

    def harm(trained: Rows) -> Harm:
        full = right(program, trained, train).mean()
        return lambda model, of: float(full - right(model, of, train).mean())

    found = candidates(program, rows, parts, sources, random, harm)
    full_right = right(program, found.kept)
    full_ns = row_ns(program, "label", found.trained) + sources.cost(sources.costs)
    best: Cascade | None = None
    why = "no small model is sure enough of any row"
    for chosen in found:
        small = run(
            small_classifier(
                program, found.last, found.places(chosen), recipe, found.trained, labels[train]
            )
        )
        sure = answers(small, CONFIDENCE, found.kept)[:, 0]
        threshold = lowest_threshold(sure, right(small, found.kept), full_right, loss, level)
        if threshold is None:
            continue
        made = run(confident(small, threshold.confidence, program.labels))
        ready_ns = row_ns(made, "label", found.trained) + found.source_ns(chosen)
        rest_ns = (1 - threshold.confident) * (full_ns - found.source_ns(chosen))
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
            groups=tuple(group.facts(i in chosen) for i, group in enumerate(found.groups)),
        )
        why = f"a query would take {1 / facts.gain:.2f} of the time without it"
        if best is None or facts.expected_ns < best.facts.expected_ns:
            best = Cascade(made, facts)
    if best is None or best.facts.gain < LEAST_GAIN:
        return NoGain(why, tuple(group.facts(False) for group in found.groups))
    return best


# `learn_filter`: a small model that says which rows may be among the best (Willump, 4.2).


FILTER_HELD_OUT = 0.5
"""The part of the rows on which nothing is trained: queries over many tables are tried on them."""

LEAST_ROWS = 20
"""A table that is tried has so many rows for each of the k."""


def learn_filter(
    program: Program,
    recipe: Recipe,
    rows: Rows,
    *,
    query: str,
    output: str,
    column: int,
    chosen: str,
    k: int,
    precision: float,
    sources: Sources = NOTHING,
    base_ns: float = 0.0,
    seed: int = 0,
) -> TopKFilter | NoGain:
    """The filter with the least expected time with which top-K queries are precise enough.

    Its small model follows the full model's own scores, and no labels: how the two rank rows is all
    that counts.

    Args:
        recipe: of a regression.
        rows: input of the model -> (n,) values.
        query: what gave the rows.
        output, column: the score that queries order by; chosen: its class as SQL writes it.
        k: the most rows that a query may ask for.
        precision: the share of them that shall be right.
        base_ns: nanoseconds a row of the query besides `sources` and model.

    Raises:
        ConfigError: all features belong to one group, or there are too few rows.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    n = len(next(iter(rows.values())))
    random = np.random.default_rng(seed)
    train, held = parts = split(n, random, FILTER_HELD_OUT)
    tried = max(LEAST_ROWS * k, held.size // TRIALS)
    if held.size < FEWEST * tried:
        raise ConfigError(
            f"{n:,} rows are too few to try top-{k} queries: {FEWEST} tables of {LEAST_ROWS * k:,} "
            f"rows are held out for that; give at least {2 * FEWEST * LEAST_ROWS * k:,} rows"
        )

    def score(model: Program, of: Rows) -> Array:
        return np.asarray(answers(model, output, of)[:, column], np.float64)

    def harm(trained: Rows) -> Harm:
        full = score(program, trained)
        return lambda model, of: float(np.mean((score(model, of) - full) ** 2))

    found = candidates(program, rows, parts, sources, random, harm)
    target, full = score(program, found.trained), score(program, found.kept)
    full_ns = row_ns(program, output, found.trained) + sources.cost(sources.costs)
    best: TopKFilter | None = None
    for groups in found:
        small = run(
            small_scorer(program, found.last, found.places(groups), recipe, found.trained, target)
        )
        guess = answers(small, CONFIDENCE, found.kept)[:, 0]
        ratio = smallest_ratio(guess, full, k=k, rows=tried, precision=precision, random=random)
        ready_ns = row_ns(small, CONFIDENCE, found.trained) + found.source_ns(groups)
        share = min(ratio.ratio * k / tried, 1.0)
        facts = FilterFacts(
            query=query,
            output=output,
            column=column,
            chosen=chosen,
            k=k,
            precision=precision,
            ratio=ratio.ratio,
            rows=tried,
            trials=ratio.trials,
            failures=ratio.failures,
            low=ratio.interval[0],
            high=ratio.interval[1],
            trained=train.size,
            held_out=held.size,
            exact_ns=base_ns + full_ns,
            expected_ns=base_ns + ready_ns + share * full_ns,
            groups=tuple(group.facts(i in groups) for i, group in enumerate(found.groups)),
        )
        if best is None or facts.expected_ns < best.facts.expected_ns:
            best = TopKFilter(small, facts)
    if best is None or best.facts.gain < LEAST_GAIN:
        why = (
            "no features are cheap enough"
            if best is None
            else f"a query would take {1 / best.facts.gain:.2f} of the time without it"
        )
        return NoGain(why, tuple(group.facts(False) for group in found.groups))
    return best
