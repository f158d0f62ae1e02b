"""Learn the small models of cascades and of top-K filters (Willump, algorithm 1 and section 4.2).

Both try several sets of cheap features, train a small model on each, bound its errors on held-out
rows, and choose the one with the least expected time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sqlml.catalog.small_models import Cascade, CascadeFacts, FeatureGroup, FilterFacts, TopKFilter
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.passes.order import run
from sqlml.training.cascades.candidates import (
    BUDGETS,
    HELD_OUT_SHARE,
    LEAST_GAIN,
    Candidates,
    Harm,
    find_candidates,
    split,
)
from sqlml.training.cascades.feature_groups import NO_SOURCES, Sources
from sqlml.training.cascades.last_estimator import CONFIDENCE, Rows, answers, row_ns
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

FILTER_HELD_OUT = 0.5
"""Share of the rows that a filter is not trained on: queries over many tables are tried on them."""

LEAST_ROWS = 20
"""Rows of a table on which a query is tried, for each of the k best."""


@dataclass(frozen=True, slots=True)
class NoGain:
    """The reason why no small model is worth storing."""

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
    sources: Sources = NO_SOURCES,
    base_ns: float = 0.0,
    seed: int = 0,
) -> Cascade | NoGain:
    """Return the cascade with the least expected time that loses at most `loss` of accuracy.

    The expected time differs from Willump's equation 1: the full model computes the small one's
    features again, so that the rows left to it pay for both.

    Args:
        rows: input of the model -> (n,) values.
        labels: (n,) int, the index of each row's true label among the model's.
        query: the source of the rows.
        label: the column of labels in the query.
        loss: of accuracy, for example 0.001.
        base_ns: nanoseconds per row of the query besides `sources` and the model.

    Raises:
        ConfigError: all features belong to one group, or there are too few rows.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    level = 1 - (1 - LEVEL) / len(BUDGETS)
    needed = rows_needed(loss, level)
    random = np.random.default_rng(seed)
    positions = split(labels.size, random)
    train_labels, held_out_labels = (labels[side] for side in positions)
    if held_out_labels.size < needed:
        raise ConfigError(
            f"{labels.size:,} rows cannot show a loss of accuracy as small as {loss:g}: a quarter "
            f"of them is held out for that; give at least {math.ceil(needed / HELD_OUT_SHARE):,} "
            "rows, or a larger accuracy_loss"
        )

    def make_harm(train_rows: Rows) -> Harm:
        accuracy = _is_correct(program, train_rows, train_labels).mean()
        return lambda model, of: float(accuracy - _is_correct(model, of, train_labels).mean())

    candidates = find_candidates(program, rows, positions, sources, random, make_harm)
    full_correct = _is_correct(program, candidates.held_out_rows, held_out_labels)
    full_ns = _measure_full_model(program, "label", candidates)
    learned = []
    for chosen in candidates:
        small = small_classifier(
            program,
            candidates.last,
            candidates.places(chosen),
            recipe,
            candidates.train_rows,
            train_labels,
        )
        small = run(small)
        confidence = answers(small, CONFIDENCE, candidates.held_out_rows)[:, 0]
        small_correct = _is_correct(small, candidates.held_out_rows, held_out_labels)
        threshold = lowest_threshold(confidence, small_correct, full_correct, loss, level)
        if threshold is None:
            continue
        small = run(confident(small, threshold.confidence, program.labels))
        small_ns = row_ns(small, "label", candidates.train_rows) + candidates.source_ns(chosen)
        rest_ns = (1 - threshold.confident) * (full_ns - candidates.source_ns(chosen))
        facts = CascadeFacts(
            query=query,
            label=label,
            accuracy_loss=loss,
            threshold=threshold.confidence,
            confident=threshold.confident,
            accuracy=float(full_correct.mean()),
            loss=threshold.loss,
            most_loss=threshold.most_loss,
            trained=train_labels.size,
            held_out=held_out_labels.size,
            exact_ns=base_ns + full_ns,
            expected_ns=base_ns + small_ns + rest_ns,
            groups=_describe_groups(candidates, chosen),
        )
        learned.append(Cascade(small, facts))
    return _choose_fastest(learned, candidates, "no small model is sure enough of any row")


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
    sources: Sources = NO_SOURCES,
    base_ns: float = 0.0,
    seed: int = 0,
) -> TopKFilter | NoGain:
    """Return the filter with the least expected time whose top-K queries are precise enough.

    Its small model is trained on the full model's scores instead of labels, because only the
    agreement of the two rankings matters.

    Args:
        recipe: of a regression.
        rows: input of the model -> (n,) values.
        query: the source of the rows.
        output, column: the score that queries order by.
        chosen: the class of the score as SQL writes it.
        k: the most rows that a query may ask for.
        precision: the share of these rows that must be right.
        base_ns: nanoseconds per row of the query besides `sources` and the model.

    Raises:
        ConfigError: all features belong to one group, or there are too few rows.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    n = len(next(iter(rows.values())))
    random = np.random.default_rng(seed)
    positions = train, held_out = split(n, random, FILTER_HELD_OUT)
    table_rows = max(LEAST_ROWS * k, held_out.size // TRIALS)
    if held_out.size < FEWEST * table_rows:
        raise ConfigError(
            f"{n:,} rows are too few to try top-{k} queries: {FEWEST} tables of {LEAST_ROWS * k:,} "
            f"rows are held out for that; give at least {2 * FEWEST * LEAST_ROWS * k:,} rows"
        )

    def score(model: Program, of: Rows) -> Array:
        return np.asarray(answers(model, output, of)[:, column], np.float64)

    def make_harm(train_rows: Rows) -> Harm:
        scores = score(program, train_rows)
        return lambda model, of: float(np.mean((score(model, of) - scores) ** 2))

    candidates = find_candidates(program, rows, positions, sources, random, make_harm)
    train_scores = score(program, candidates.train_rows)
    full_scores = score(program, candidates.held_out_rows)
    full_ns = _measure_full_model(program, output, candidates)
    learned = []
    for groups in candidates:
        small = small_scorer(
            program,
            candidates.last,
            candidates.places(groups),
            recipe,
            candidates.train_rows,
            train_scores,
        )
        small = run(small)
        small_scores = answers(small, CONFIDENCE, candidates.held_out_rows)[:, 0]
        ratio = smallest_ratio(
            small_scores, full_scores, k=k, rows=table_rows, precision=precision, random=random
        )
        small_ns = row_ns(small, CONFIDENCE, candidates.train_rows) + candidates.source_ns(groups)
        remaining = min(ratio.ratio * k / table_rows, 1.0)
        facts = FilterFacts(
            query=query,
            output=output,
            column=column,
            chosen=chosen,
            k=k,
            precision=precision,
            ratio=ratio.ratio,
            rows=table_rows,
            trials=ratio.trials,
            failures=ratio.failures,
            low=ratio.interval[0],
            high=ratio.interval[1],
            trained=train.size,
            held_out=held_out.size,
            exact_ns=base_ns + full_ns,
            expected_ns=base_ns + small_ns + remaining * full_ns,
            groups=_describe_groups(candidates, groups),
        )
        learned.append(TopKFilter(small, facts))
    return _choose_fastest(learned, candidates, "no features are cheap enough")


def _is_correct(model: Program, rows: Rows, labels: Array) -> Array:
    """Return which of a classifier's predictions equal the labels, (n,) bool."""
    return np.asarray(answers(model, "label", rows)[:, 0] == labels)


def _measure_full_model(program: Program, output: str, candidates: Candidates) -> float:
    """Return the nanoseconds per row of the full model and of all sources of the query."""
    sources = candidates.sources
    return row_ns(program, output, candidates.train_rows) + sources.cost(sources.costs)


def _describe_groups(
    candidates: Candidates, chosen: frozenset[int] = frozenset()
) -> tuple[FeatureGroup, ...]:
    return tuple(group.facts(i in chosen) for i, group in enumerate(candidates.groups))


_SmallModel = TypeVar("_SmallModel", Cascade, TopKFilter)


def _choose_fastest(
    learned: Iterable[_SmallModel], candidates: Candidates, failure: str
) -> _SmallModel | NoGain:
    """Return the small model with the least expected time, or the reason why none gains enough.

    Args:
        failure: the reason if no small model was learned.
    """
    fastest = min(learned, key=lambda small: small.facts.expected_ns, default=None)
    if fastest is None:
        return NoGain(failure, _describe_groups(candidates))
    if fastest.facts.gain < LEAST_GAIN:
        reason = f"a query would take {1 / fastest.facts.gain:.2f} of the time without it"
        return NoGain(reason, _describe_groups(candidates))
    return fastest
