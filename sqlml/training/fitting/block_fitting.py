"""`fit_by_blocks`: an estimator of scikit-learn learns from rows block by block, by partial_fit."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from sqlml.training.block_estimators import BlockEstimator, block_estimator
from sqlml.training.fitting.fitting import Fitting
from sqlml.training.storage.part import Part, sample
from sqlml.types import Array

PASSES = 20
"""Over the rows at most, unless max_iter says otherwise."""

_NAMES_OF_PASSES = ("max_iter", "max_iterations")

GAIN = 1e-3
"""A pass that lowers the loss by a smaller share is idle, and two in a row are the last; `tol` says
it otherwise."""

SEGMENTS = 16
"""Stretches of neighbouring rows that make a block: rows may be in an order that misleads."""

_MEASURED = 20_000
"""Rows that the loss is measured on after each pass."""


def fit_by_blocks(fitting: Fitting) -> Any:
    """The estimator that learns in place of the one that was asked for.

    In each pass the rows come in another order: blocks are put together from stretches of rows that
    lie apart. After it, the loss of a sample is logged; passes end when it hardly falls twice.
    """
    request, data, log = fitting.request, fitting.fitted, fitting.log
    given, rows = fitting.parameters, data.X.shape[0]
    kind = block_estimator(request.trainer.path, given)
    assert kind is not None
    named = not request.given.keys().isdisjoint(_NAMES_OF_PASSES)  # not a default of a solver
    asked = given["max_iter"] if named else PASSES
    passes = max(asked, 1) if kind.passes else 1
    log.start(passes)
    made = _estimator(kind, {"random_state": request.seed, **given}, rows)
    draw = np.random.default_rng(request.seed)
    measured = [sample(part, _MEASURED) for part in (data, fitting.held_out) if part is not None]
    idle = 0
    for number in range(passes):
        for X, y, weight in _shuffled(data, draw):
            if number == 0 and hasattr(made, "eta0") and not hasattr(made, "t_"):
                made.set_params(eta0=_step(X))
            arguments: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
            if fitting.classes:
                arguments["classes"] = np.arange(fitting.classes)
            made.partial_fit(X, *(() if y is None else (y,)), **arguments)
        losses = [_loss(made, part, fitting.classes) for part in measured]
        log.metric = _metric(fitting)
        log.round(losses[0], losses[1] if len(losses) > 1 else None)
        idle = 0 if _gains(fitting, given.get("tol", GAIN)) else idle + 1
        if idle == 2:
            break
    return made


def _estimator(kind: BlockEstimator, given: Any, rows: int) -> Any:
    module, _, name = kind.path.rpartition(".")
    return getattr(import_module(module), name)(**kind.parameters(given, rows))


def _shuffled(part: Part, draw: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
    """All rows in blocks, each of stretches that lie apart: X, y or None, weight or None."""
    size = max(part.X.block_rows // SEGMENTS, 1)
    starts = draw.permutation(np.arange(0, len(part.X), size))
    for first in range(0, len(starts), SEGMENTS):
        places = [(s, min(s + size, len(part.X))) for s in starts[first : first + SEGMENTS]]
        others = (
            None if v is None else np.concatenate([v[a:b] for a, b in places])
            for v in (part.y, part.weight)
        )
        yield (part.X.stretches(places), *others)


def _step(X: Any) -> float:
    """The first step of a descent: a longer one than twice this could overshoot for a square loss
    (Bottou, Stochastic gradient descent tricks, 2012)."""
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.square(X).sum(axis=1)
    return float(0.5 / max(np.mean(squares), 1.0))


def _metric(fitting: Fitting) -> str:
    tasks = {"classify": "log_loss", "regress": "mean_squared_error"}
    return tasks.get(fitting.request.task, "mean_squared_distance")


def _loss(estimator: Any, part: Part, classes: int) -> float:
    """Of some rows, by the mean of what the estimator lowers."""
    from sklearn import metrics

    if classes:
        known = np.arange(classes)
        proba = estimator.predict_proba(part.X)
        return float(metrics.log_loss(part.y, proba, sample_weight=part.weight, labels=known))
    if part.y is not None:
        told = estimator.predict(part.X)
        return float(metrics.mean_squared_error(part.y, told, sample_weight=part.weight))
    if hasattr(estimator, "inertia_"):
        return float(-estimator.score(part.X) / part.X.shape[0])
    back: Array = estimator.inverse_transform(estimator.transform(part.X))
    return float(np.mean(np.square(np.asarray(part.X) - back).sum(axis=1)))


def _gains(fitting: Fitting, least: float) -> bool:
    """Whether the last pass has lowered the loss by this share of the best before."""
    losses = [r.loss for r in fitting.log.rounds if r.loss is not None]
    return len(losses) < 2 or losses[-1] < min(losses[:-1]) * (1 - least)
