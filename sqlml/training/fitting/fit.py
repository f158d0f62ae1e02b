"""Fit an estimator with its library, log its rounds, and describe the errors of libraries.

`FITTERS` maps each library to its function; the functions for boosters are in `fit_boosters.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.long_work import show_stage
from sqlml.training.fitting.checkpoint import FitArguments, ModelFormat, fit_in_segments
from sqlml.training.fitting.fit_boosters import fit_catboost, fit_lightgbm, fit_xgboost
from sqlml.training.model_types import find_block_estimator, import_class
from sqlml.training.row_store import BlockMatrix, EstimatorRows, sample_rows
from sqlml.types import Array

MAX_PASSES = 20
"""Upper bound on the passes over the rows unless max_iter is set."""

MIN_GAIN = 1e-3
"""Relative reduction of the best loss that a pass must achieve, unless tol is set. The fit ends if
two passes in a row fail to achieve this reduction."""

BLOCK_STRETCHES = 16
"""Number of stretches of neighboring rows in a block. Several stretches mix ordered rows."""


def fit_by_blocks(fitting: FitArguments) -> Any:
    """Fit the estimator that replaces the requested estimator, block by block with `partial_fit`.

    Each pass reads the rows in a different order. The fit ends when the loss on a sample hardly
    decreases in two passes.
    """
    request, fitted, log = fitting.request, fitting.fitted, fitting.log
    parameters = fitting.parameters
    replacement = find_block_estimator(request.trainer.path, parameters)
    assert replacement is not None
    # Ignore the default that a solver has for max_iter.
    has_option = not request.options.keys().isdisjoint(("max_iter", "max_iterations"))
    max_passes = parameters["max_iter"] if has_option else MAX_PASSES
    passes = max(max_passes, 1) if replacement.gains_by_passes else 1
    log.start(passes)
    requested = {"random_state": request.seed, **parameters}
    block_parameters = replacement.convert_parameters(requested, fitted.X.shape[0])
    estimator = import_class(replacement.path)(**block_parameters)
    random = np.random.default_rng(request.seed)
    parts = [fitted] if fitting.held_out is None else [fitted, fitting.held_out]
    samples = [sample_rows(part, 20_000) for part in parts]
    losses_by_task = {"classify": "log_loss", "regress": "mean_squared_error"}
    log.metric = losses_by_task.get(request.task, "mean_squared_distance")
    idle_passes = 0
    best_loss = float("inf")
    for pass_number in range(passes):
        for X, y, weight in _shuffle_blocks(fitted, random):
            if pass_number == 0 and hasattr(estimator, "eta0") and not hasattr(estimator, "t_"):
                estimator.set_params(eta0=_estimate_learning_rate(X))
            fit_arguments: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
            if fitting.n_classes:
                fit_arguments["classes"] = np.arange(fitting.n_classes)
            estimator.partial_fit(X, *(() if y is None else (y,)), **fit_arguments)
        losses = [_compute_loss(estimator, part, fitting.n_classes) for part in samples]
        log.add_round(losses[0], losses[1] if len(losses) > 1 else None)
        has_gained = losses[0] < best_loss * (1 - parameters.get("tol", MIN_GAIN))
        idle_passes = 0 if has_gained or pass_number == 0 else idle_passes + 1
        best_loss = min(best_loss, losses[0])
        if idle_passes == 2:
            break
    return estimator


def _shuffle_blocks(
    part: EstimatorRows, random: np.random.Generator
) -> Iterator[tuple[Any, Array | None, Array | None]]:
    stretch_rows = max(part.X.block_rows // BLOCK_STRETCHES, 1)
    starts = random.permutation(np.arange(0, len(part.X), stretch_rows))
    for block_start in range(0, len(starts), BLOCK_STRETCHES):
        block_starts = starts[block_start : block_start + BLOCK_STRETCHES]
        stretches = [(start, min(start + stretch_rows, len(part.X))) for start in block_starts]
        y, weight = (
            None if array is None else np.concatenate([array[i:j] for i, j in stretches])
            for array in (part.y, part.weight)
        )
        yield part.X.stretches(stretches), y, weight


def _estimate_learning_rate(X: Any) -> float:
    """Estimate a learning rate: half the largest step that cannot overshoot (Bottou, 2012)."""
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.square(X).sum(axis=1)
    return float(0.5 / max(np.mean(squares), 1.0))


def _compute_loss(estimator: Any, part: EstimatorRows, n_classes: int) -> float:
    from sklearn import metrics

    if n_classes:
        codes = np.arange(n_classes)
        proba = estimator.predict_proba(part.X)
        return float(metrics.log_loss(part.y, proba, sample_weight=part.weight, labels=codes))
    if part.y is not None:
        predictions = estimator.predict(part.X)
        return float(metrics.mean_squared_error(part.y, predictions, sample_weight=part.weight))
    if hasattr(estimator, "inertia_"):
        return float(-estimator.score(part.X) / part.X.shape[0])
    restored: Array = estimator.inverse_transform(estimator.transform(part.X))
    return float(np.mean(np.square(np.asarray(part.X) - restored).sum(axis=1)))


def fit_sklearn(fitting: FitArguments) -> Any:
    """Fit a scikit-learn estimator, or its replacement if the rows are in blocks."""
    fitted, held_out = fitting.fitted, fitting.held_out
    if isinstance(fitted.X, BlockMatrix):
        return fit_by_blocks(fitting)
    trainer = fitting.request.trainer
    parameters = dict(fitting.parameters)
    fit_arguments: dict[str, Any] = {}
    if trainer.stops_early:
        parameters["categorical_features"] = fitting.categories or None
        parameters["early_stopping"] = fitting.patience is not None
        if fitting.patience is not None and held_out is not None:
            parameters["n_iter_no_change"] = fitting.patience
            fit_arguments = {"X_val": held_out.X, "y_val": held_out.y}
            if held_out.weight is not None:
                fit_arguments["sample_weight_val"] = held_out.weight
    if fitted.weight is not None:
        fit_arguments["sample_weight"] = fitted.weight
    rows = (fitted.X,) if fitted.y is None else (fitted.X, fitted.y)
    estimator = trainer.estimator_class()(**parameters).fit(*rows, **fit_arguments)
    if trainer.stops_early and fitting.patience is not None:
        fitting.log.metric = "loss"
        scores = zip(estimator.train_score_[1:], estimator.validation_score_[1:], strict=True)
        for score, eval_score in scores:
            fitting.log.add_past(-float(score), -float(eval_score))
    return estimator


def fit_torch(fitting: FitArguments) -> Any:
    from sqlml.training.estimators.dnn import Epochs, Segment

    fitted, held_out, checkpoint = fitting.fitted, fitting.held_out, fitting.checkpoint
    fitting.log.metric = "loss"
    estimator = fitting.request.trainer.estimator_class()(**fitting.parameters)
    held_out_arrays = None if held_out is None else (held_out.X, held_out.y, held_out.weight)

    def fit_segment(number: int, rounds: int, state: Any) -> Any:
        segment = None if checkpoint is None else Segment(number, rounds, state)
        epochs = Epochs(fitting.patience, fitting.log.add_round, segment)
        return estimator.fit(fitted.X, fitted.y, fitted.weight, held_out_arrays, epochs)

    rounds = estimator.max_epochs
    if checkpoint is None:
        return fit_segment(0, rounds, None)
    state_format = ModelFormat("torch", lambda net: bytes(net.state_), bytes, 0, min_rounds=1)
    state = fit_in_segments(checkpoint, fitting.log, rounds, fit_segment, state_format)
    network = fit_segment(0, 0, state)
    del network.state_  # Only a further segment would need it.
    return network


def make_training_error(class_name: str, error: BaseException, hint: str = "") -> ConfigError:
    """Build the error to raise when a library fails during training; `hint` advises the user."""
    reason = shorten_message(str(error))
    message = f"{class_name} cannot be trained: {type(error).__name__}: {reason}"
    return ConfigError(f"{message.removesuffix('.')}; {hint}" if hint else message)


def shorten_message(text: str) -> str:
    """Shorten a library's message to one line without times, source files and stack traces.

    >>> shorten_message("[16:50:03] /src/gbm/gbm.cc:24: Unknown gbm type DART\\nStack trace:\\n...")
    'Unknown gbm type DART'
    >>> shorten_message("Check failed: (bagging_fraction) <= (1.0) at /src/config.cpp, line 375 .")
    'bagging_fraction must be <= 1.0'
    >>> shorten_message("catboost/libs/options.cpp:128: Maximum tree depth is 16")
    'Maximum tree depth is 16'
    """
    text = text.split("\nStack trace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    # An estimator that fits others quotes their tracebacks, which end with the exception.
    line = lines[-1] if "Traceback (most recent call last)" in text else lines[0]
    for pattern, replacement in _MESSAGE_RULES:
        line = pattern.sub(replacement, line).strip()
    return line


_MESSAGE_RULES = (
    (re.compile(r"\[\d\d:\d\d:\d\d\]\s*"), ""),
    (re.compile(r"\S*\.(?:c|cc|cpp|cu|cuh|h|hpp):\d+:\s*"), ""),
    (re.compile(r"\s+at \S+, line \d+\s*\.?$"), ""),
    (re.compile(r"Check failed: \((.+?)\) ([<>=!]+) \((.+?)\)$"), r"\1 must be \2 \3"),
    (re.compile(r"Check failed: (?:[^:]|::)*:\s*(?=\S)"), ""),
)


def fit(fitting: FitArguments) -> Any:
    round_options = ("n_estimators", "iterations", "max_iter", "max_epochs")
    rounds = [fitting.parameters[name] for name in round_options if name in fitting.parameters]
    fitting.log.start(rounds[0] if rounds else None)
    estimator = FITTERS[fitting.request.trainer.package](fitting)
    show_stage("measuring it")
    if fitting.checkpoint is not None:
        fitting.checkpoint.remove()
    return estimator


FITTERS: Mapping[str, Callable[[FitArguments], Any]] = {
    "xgboost": fit_xgboost,
    "lightgbm": fit_lightgbm,
    "catboost": fit_catboost,
    "sklearn": fit_sklearn,
    "torch": fit_torch,
}
