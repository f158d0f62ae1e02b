"""`small_model`: a model of the same class as another, over some of its features."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.cascades.closed_forms import closed_form
from sqlml.cascades.feature_matrix import Rows, feature_matrix
from sqlml.cascades.last_estimator import LastEstimator
from sqlml.cascades.parts import CONFIDENCE, with_estimator
from sqlml.cascades.recipe import Recipe
from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.frame import Outputs
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program
from sqlml.ir.spec import verify
from sqlml.types import Array, Labels


def small_classifier(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    recipe: Recipe,
    rows: Rows,
    labels: Array,
) -> Program:
    """A classifier of the same labels over the columns at `places`, with outputs `label`, the place
    of a label among the model's, and `CONFIDENCE`.

    Args:
        rows: to train on.
        labels: (n,) int, the place of each row's label among the model's.

    Raises:
        UnsupportedModelError: it cannot be trained, or sqlml cannot import it.
        MissingDependencyError: its library is not installed.
    """
    matrix = feature_matrix(program, last, places, rows)
    known, codes = np.unique(labels, return_inverse=True)
    estimator = _fitted(recipe, matrix, codes)
    b, made = with_estimator(program, last, places, estimator, not isinstance(matrix, np.ndarray))
    label = made.values["label"]
    if known.size < len(program.labels[0]) or not np.array_equal(known, np.arange(known.size)):
        label = b.op("reshape", b.op("take", known.astype(np.int64)[:, None], label), shape=(1,))
    return verify(b.build({"label": label, CONFIDENCE: _confidence(b, made)}))


def small_scorer(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    recipe: Recipe,
    rows: Rows,
    scores: Array,
) -> Program:
    """A regression of `scores` (n,) over the columns at `places`, with the one output `score`.

    Raises:
        UnsupportedModelError, MissingDependencyError: as `small_classifier`.
    """
    matrix = feature_matrix(program, last, places, rows)
    estimator = _fitted(recipe, matrix, scores)
    b, made = with_estimator(program, last, places, estimator, not isinstance(matrix, np.ndarray))
    return verify(b.build({CONFIDENCE: b.cast(made.values["label"], "float64")}))


def _fitted(recipe: Recipe, matrix: Any, target: Array) -> Any:
    try:
        estimator = recipe.estimator()
    except MissingDependencyError:
        made = closed_form(recipe.path, recipe.parameters, matrix, target)
        if made is None:
            raise
        return made
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return estimator.fit(matrix, target)
    except Exception as error:  # a library raises what it likes
        reason = (str(error).splitlines() or [""])[0]
        raise UnsupportedModelError(
            f"no small {type(estimator).__name__} can be trained on these features: "
            f"{type(error).__name__}: {reason}"
        ) from error


def _confidence(b: Builder, made: Outputs) -> Value:
    """How sure a classifier is: its largest probability; without probabilities its distance from
    the other class, or the largest score."""
    if "proba" in made.values:
        return b.cast(b.op("max", made.values["proba"], axis=1), "float64")
    if "score" not in made.values:
        raise UnsupportedModelError(
            "the model gives neither probabilities nor scores, so that nobody knows how sure a "
            "small one is"
        )
    score = made.values["score"]
    sure = b.op("abs", score) if score.type.width == 1 else b.op("max", score, axis=1)
    return b.cast(sure, "float64")


def confident(small: Program, threshold: float, labels: tuple[Labels, ...]) -> Program:
    """A small classifier whose label is -1 unless it is surer than `threshold`."""
    b = Builder(small.nodes)
    label, sure = (b.value(small.outputs[name]) for name in ("label", CONFIDENCE))
    unsure = b.constant(np.full(1, -1, np.int64))
    made = b.op("where", b.op("gt", sure, threshold), label, unsure)
    return b.build({"label": made}, labels)
