"""`learn_cascade`: a small model and its threshold for a classifier (Willump, algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.cascades.candidates import BUDGETS, HELD_OUT, LEAST_GAIN, Harm, candidates, split
from sqlml.cascades.feature_groups import NOTHING, Sources
from sqlml.cascades.feature_matrix import Rows
from sqlml.cascades.intervals import LEVEL
from sqlml.cascades.parts import CONFIDENCE
from sqlml.cascades.recipe import Recipe
from sqlml.cascades.small_model import confident, small_classifier
from sqlml.cascades.threshold import lowest_threshold, rows_needed
from sqlml.cascades.timing import answers, row_ns
from sqlml.catalog.small_models import Cascade, CascadeFacts, FeatureGroup
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.passes.order import run
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
