"""Learn the small models of cascades and of top-K filters (Willump, sections 4.1 and 4.2).

Several sets of cheap features are tried. A small model is trained on each set, and its errors are
bounded on held-out rows. The model with the lowest expected time is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

from sqlml.catalog.small_models import Cascade, CascadeFacts, FeatureGroup, FilterFacts, TopKFilter
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.passes import run
from sqlml.training.cascades.feature_groups import NO_SOURCES, Group, Sources, find_feature_groups
from sqlml.training.cascades.last_estimator import (
    CONFIDENCE,
    SHUFFLED,
    LastEstimator,
    Rows,
    build_shuffled_model,
    compute_output,
    find_last_estimator,
    measure_feature_ns,
    measure_row_ns,
)
from sqlml.training.cascades.recipe import Recipe
from sqlml.training.cascades.small_model import (
    reject_uncertain_labels,
    train_small_classifier,
    train_small_scorer,
)
from sqlml.training.cascades.threshold import (
    LEVEL,
    MAX_QUERIES,
    MIN_QUERIES,
    bound_loss,
    count_needed_rows,
    find_lowest_threshold,
    find_smallest_ratio,
)
from sqlml.types import Array

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""Budgets for the cost of a small model's features, as shares of the cost of all features."""

HELD_OUT_SHARE = 0.25

FILTER_HELD_OUT = 0.5
"""Share of the rows that is held out from training a filter, to try queries on many tables."""

MIN_ROWS_PER_K = 20
"""Minimum rows of a table on which a top-K query is tried, per requested row."""

MIN_GAIN = 1.05
"""Minimum speedup; a smaller one may be noise in the measurements."""


@dataclass(frozen=True, slots=True, eq=False)
class LearningTask:
    """A model, and the rows of a query from which a small model for it is learned.

    recipe: the recipe of the small model. rows: maps the model's inputs to values (n,). sources:
    the expensive parts of the query. base_ns: nanoseconds per row of the query without `sources`
    and the model.
    """

    program: Program
    recipe: Recipe
    rows: Rows
    query: str
    sources: Sources = NO_SOURCES
    base_ns: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RankingGoal:
    """The kind of queries that a filter serves, and their required precision.

    output, column: the output and the column of the score that queries order by. chosen: the class
    of the score, as SQL. k: the maximum number of rows that a query may request. precision: the
    share of these rows that must be correct.
    """

    output: str
    column: int
    chosen: str
    k: int
    precision: float


@dataclass(frozen=True, slots=True)
class NoGain:
    """The reason why no small model is worth storing."""

    reason: str
    groups: tuple[FeatureGroup, ...]


def learn_cascade(task: LearningTask, labels: Array, label: str, loss: float) -> Cascade | NoGain:
    """Return the cascade with the lowest expected time that loses at most `loss` of accuracy.

    `labels`, from the column `label`, are (n,) indices into the model's labels. The expected time
    differs from Willump's equation 1, because the full model computes the small model's features
    again: the rows that it scores pay for both models.
    """
    level = 1 - (1 - LEVEL) / len(BUDGETS)
    min_rows = count_needed_rows(loss, level)
    random = np.random.default_rng(task.seed)
    row_indices = _split_rows(labels.size, HELD_OUT_SHARE, random)
    train_labels, held_out_labels = (labels[indices] for indices in row_indices)
    if held_out_labels.size < min_rows:
        raise ConfigError(
            f"{labels.size:,} rows cannot show a loss of accuracy as small as {loss:g}: a quarter "
            f"of them is held out for that; give at least {math.ceil(min_rows / HELD_OUT_SHARE):,} "
            "rows, or a larger accuracy_loss"
        )

    def make_loss_function(train_rows: Rows) -> LossFunction:
        accuracy = _find_correct_rows(task.program, train_rows, train_labels).mean()
        return lambda model, rows: float(
            accuracy - _find_correct_rows(model, rows, train_labels).mean()
        )

    candidates = _find_candidates(task, "label", row_indices, random, make_loss_function)
    held_out_rows = candidates.held_out_rows
    full_correct = _find_correct_rows(task.program, held_out_rows, held_out_labels)

    def learn(chosen: frozenset[int]) -> Cascade | None:
        columns = candidates.list_columns(chosen)
        rows = candidates.train_rows
        small = train_small_classifier(candidates.last, columns, task.recipe, rows, train_labels)
        small = run(small)
        confidence = compute_output(small, CONFIDENCE, held_out_rows)[:, 0]
        small_correct = _find_correct_rows(small, held_out_rows, held_out_labels)
        threshold = find_lowest_threshold(confidence, small_correct, full_correct, loss, level)
        if threshold is None:
            return None
        small = run(reject_uncertain_labels(small, threshold.confidence, task.program.labels))
        full_ns = candidates.full_ns - candidates.compute_source_ns(chosen)
        rest_ns = (1 - threshold.confident) * full_ns
        cascade_facts = CascadeFacts(
            label=label,
            accuracy_loss=loss,
            threshold=threshold.confidence,
            confident=threshold.confident,
            accuracy=float(full_correct.mean()),
            loss=threshold.loss,
            most_loss=threshold.max_loss,
            **candidates.measure_facts(chosen, small, "label", rest_ns),
        )
        return Cascade(small, cascade_facts)

    cascades = [cascade for chosen in candidates if (cascade := learn(chosen)) is not None]
    return _choose_fastest(cascades, candidates, "no small model is sure enough of any row")


def learn_filter(task: LearningTask, goal: RankingGoal) -> TopKFilter | NoGain:
    """Return the filter with the lowest expected time whose top-K queries are precise enough.

    The small model is a regression. It learns the full model's scores instead of labels, because
    only the agreement of the two rankings matters.
    """
    k = goal.k
    n = len(next(iter(task.rows.values())))
    random = np.random.default_rng(task.seed)
    row_indices = _split_rows(n, FILTER_HELD_OUT, random)
    held_out_count = row_indices[1].size
    table_rows = max(MIN_ROWS_PER_K * k, held_out_count // MAX_QUERIES)
    if held_out_count < MIN_QUERIES * table_rows:
        raise ConfigError(
            f"{n:,} rows are too few to try top-{k} queries: {MIN_QUERIES} tables of "
            f"{MIN_ROWS_PER_K * k:,} rows are held out for that; give at least "
            f"{2 * MIN_QUERIES * MIN_ROWS_PER_K * k:,} rows"
        )

    def score(model: Program, rows: Rows) -> Array:
        return np.asarray(compute_output(model, goal.output, rows)[:, goal.column], np.float64)

    def make_loss_function(train_rows: Rows) -> LossFunction:
        scores = score(task.program, train_rows)
        return lambda model, rows: float(np.mean((score(model, rows) - scores) ** 2))

    candidates = _find_candidates(task, goal.output, row_indices, random, make_loss_function)
    train_rows, held_out_rows = candidates.train_rows, candidates.held_out_rows
    train_scores, full_scores = (score(task.program, x) for x in (train_rows, held_out_rows))

    def learn(chosen: frozenset[int]) -> TopKFilter:
        columns = candidates.list_columns(chosen)
        recipe = task.recipe
        small = train_small_scorer(candidates.last, columns, recipe, train_rows, train_scores)
        small = run(small)
        small_scores = compute_output(small, CONFIDENCE, held_out_rows)[:, 0]
        limits: dict[str, Any] = {"k": k, "rows": table_rows, "precision": goal.precision}
        ratio = find_smallest_ratio(small_scores, full_scores, **limits, random=random)
        rest_ns = min(ratio.ratio * k / table_rows, 1.0) * candidates.full_ns
        filter_facts = FilterFacts(
            **asdict(goal),
            ratio=ratio.ratio,
            rows=table_rows,
            trials=ratio.trials,
            failures=ratio.failures,
            low=ratio.interval[0],
            high=ratio.interval[1],
            **candidates.measure_facts(chosen, small, CONFIDENCE, rest_ns),
        )
        return TopKFilter(small, filter_facts)

    return _choose_fastest(map(learn, candidates), candidates, "no features are cheap enough")


def _split_rows(n: int, share: float, random: np.random.Generator) -> tuple[Array, Array]:
    order = random.permutation(n)
    held_out_count = round(n * share)
    return np.sort(order[held_out_count:]), np.sort(order[:held_out_count])


def _find_correct_rows(model: Program, rows: Rows, labels: Array) -> Array:
    return np.asarray(compute_output(model, "label", rows)[:, 0] == labels)


LossFunction = Callable[[Program, Rows], float]
"""A function that measures the loss of a model on some rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Groups of a model's features (Willump, 4.1.2), and the sets of groups to try.

    train_rows, held_out_rows: map the model's inputs to values (n,). sizes: the numbers of these
    rows. full_ns: nanoseconds per row of the full model and all sources.
    """

    task: LearningTask
    last: LastEstimator
    groups: tuple[Group, ...]
    train_rows: Rows
    held_out_rows: Rows
    sizes: tuple[int, int]
    full_ns: float

    def __iter__(self) -> Iterator[frozenset[int]]:
        """Yield distinct sets of groups, each the most important set within a budget."""
        costs = [group.cost for group in self.groups]
        importances = [group.importance for group in self.groups]
        budgets = (share * sum(costs) for share in BUDGETS)
        for chosen in dict.fromkeys(choose_most_important(costs, importances, b) for b in budgets):
            if 0 < len(chosen) < len(self.groups):
                yield chosen

    def list_columns(self, chosen: frozenset[int]) -> list[int]:
        return sorted(column_index for i in chosen for column_index in self.groups[i].columns)

    def compute_source_ns(self, chosen: frozenset[int]) -> float:
        needed_sources = frozenset[str]().union(*(self.groups[i].sources for i in chosen))
        return self.task.sources.cost(needed_sources)

    def measure_facts(
        self, chosen: frozenset[int], small_model: Program, output: str, rest_ns: float
    ) -> dict[str, Any]:
        """Measure the facts of any small model; `rest_ns` is the full model's time per row."""
        source_ns = self.compute_source_ns(chosen)
        small_ns = measure_row_ns(small_model, output, self.train_rows) + source_ns
        return {
            "query": self.task.query,
            "trained": self.sizes[0],
            "held_out": self.sizes[1],
            "exact_ns": self.task.base_ns + self.full_ns,
            "expected_ns": self.task.base_ns + small_ns + rest_ns,
            "groups": self.describe_groups(chosen),
        }

    def describe_groups(self, chosen: frozenset[int] = frozenset()) -> tuple[FeatureGroup, ...]:
        return tuple(group.to_feature_group(i in chosen) for i, group in enumerate(self.groups))


def _find_candidates(
    task: LearningTask,
    output: str,
    row_indices: tuple[Array, Array],
    random: np.random.Generator,
    make_loss_function: Callable[[Rows], LossFunction],
) -> Candidates:
    """Group the features, and measure the groups on the training rows.

    The held-out rows do not influence which groups are tried, so results on them are unbiased.
    """
    train_rows, held_out_rows = (
        {name: values[indices] for name, values in task.rows.items()} for indices in row_indices
    )
    last_estimator = find_last_estimator(task.program)

    def measure_cost(column_indices: Sequence[int]) -> float:
        return measure_feature_ns(last_estimator, column_indices, train_rows)

    groups = find_feature_groups(last_estimator, task.sources, measure_cost)
    if len(groups) < 2:
        raise ConfigError(
            f"all features of the model are computed together ({groups[0].name}), so no small "
            "model can leave some of them out"
        )
    sizes = (row_indices[0].size, row_indices[1].size)
    order = random.permutation(sizes[0])
    shuffled_rows = {SHUFFLED.format(name): values[order] for name, values in train_rows.items()}
    measure_loss = make_loss_function(train_rows)
    all_rows = {**train_rows, **shuffled_rows}
    losses = [
        measure_loss(build_shuffled_model(last_estimator, g.columns), all_rows) for g in groups
    ]
    groups = tuple(replace(g, importance=loss) for g, loss in zip(groups, losses, strict=True))
    source_ns = task.sources.cost(task.sources.costs)
    full_ns = measure_row_ns(task.program, output, train_rows) + source_ns
    return Candidates(task, last_estimator, groups, train_rows, held_out_rows, sizes, full_ns)


def choose_most_important(
    costs: Sequence[float], importances: Sequence[float], budget: float
) -> frozenset[int]:
    """Return the indices of the items with the largest total importance within a budget.

    This 0/1 knapsack (Willump, 4.1.3) is solved by dynamic programming over the undominated sets
    (Nemhauser and Ullmann, 1969). Free items are always included, and useless items never.

    >>> sorted(choose_most_important([48, 30, 22, 0], [5.0, 3.0, 3.0, 0.1], 60))
    [1, 2, 3]
    """
    free_indices = frozenset(i for i, cost in enumerate(costs) if cost <= 0)
    best: list[tuple[float, float, frozenset[int]]] = [(0.0, 0.0, free_indices)]
    for i, (cost, importance) in enumerate(zip(costs, importances, strict=True)):
        if i in free_indices or importance <= 0:
            continue
        extended = [(c + cost, w + importance, s | {i}) for c, w, s in best if c + cost <= budget]
        candidates = sorted([*best, *extended], key=lambda candidate: (candidate[0], -candidate[1]))
        best = []
        for candidate in candidates:
            if not best or candidate[1] > best[-1][1]:
                best.append(candidate)
    return best[-1][2]


_SmallModel = TypeVar("_SmallModel", Cascade, TopKFilter)


def _choose_fastest(
    small_models: Iterable[_SmallModel], candidates: Candidates, reason: str
) -> _SmallModel | NoGain:
    """Return the fastest small model, or `NoGain`, with `reason` if `small_models` is empty."""
    fastest = min(small_models, key=lambda small_model: small_model.facts.expected_ns, default=None)
    if fastest is not None and fastest.facts.gain >= MIN_GAIN:
        return fastest
    if fastest is not None:
        reason = f"a query would take {1 / fastest.facts.gain:.2f} of the time without it"
    return NoGain(reason, candidates.describe_groups())


@dataclass(frozen=True, slots=True)
class RealLoss:
    """The errors of a small model on some rows.

    loss: the loss of accuracy, or the share of the best K rows that are missing. allowed: the
    promised loss. differing: the number of predictions that differ from the full model. agrees:
    whether the loss is not significantly larger than promised.
    """

    rows: int
    loss: float
    allowed: float
    differing: int
    agrees: bool


def measure_cascade_loss(program: Program, cascade: Cascade, rows: Rows, labels: Array) -> RealLoss:
    """Measure how much a cascade lowers a model's accuracy; `labels` are (n,) class indices."""
    small_labels = compute_output(cascade.small, "label", rows)[:, 0]
    full_labels = compute_output(program, "label", rows)[:, 0]
    combined_labels = np.where(small_labels < 0, full_labels, small_labels)
    lost_count = int(((full_labels == labels) & (combined_labels != labels)).sum())
    won_count = int(((full_labels != labels) & (combined_labels == labels)).sum())
    n = labels.size
    allowed = cascade.facts.accuracy_loss
    num_differing = int((combined_labels != full_labels).sum())
    agrees = -bound_loss(won_count, lost_count, n) <= allowed  # The lower bound of the loss.
    return RealLoss(n, (lost_count - won_count) / n, allowed, num_differing, agrees)


def measure_filter_loss(program: Program, top_k_filter: TopKFilter, rows: Rows) -> RealLoss:
    """Measure the share of a model's best K rows that a filter leaves out."""
    facts = top_k_filter.facts
    full_scores = compute_output(program, facts.output, rows)[:, facts.column]
    small_scores = compute_output(top_k_filter.small, CONFIDENCE, rows)[:, 0]
    k = min(facts.k, full_scores.size)
    kept_share = facts.ratio * facts.k / facts.rows
    kept_count = max(math.ceil(facts.ratio * facts.k), math.ceil(kept_share * full_scores.size))
    kept_indices = np.argsort(-small_scores, kind="stable")[:kept_count]
    kth_score = np.partition(full_scores, -k)[-k]  # Rows that tie with the k-th are as good.
    missed = k - min(k, int((full_scores[kept_indices] >= kth_score).sum()))
    allowed = 1 - facts.precision
    agrees = k - missed >= facts.precision * k
    return RealLoss(full_scores.size, missed / k, allowed, missed, agrees)
