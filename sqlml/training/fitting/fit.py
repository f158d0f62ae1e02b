"""Fit an estimator by its library, log its rounds, and describe the errors of libraries.

`FITTERS` maps each library to its function; those of XGBoost and LightGBM have files of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.long_work import show_stage
from sqlml.training.fitting.checkpoint import Fitting, ModelFormat, fit_in_segments
from sqlml.training.fitting.fit_lightgbm import fit_lightgbm
from sqlml.training.fitting.fit_xgboost import fit_xgboost
from sqlml.training.model_types import BlockEstimator, find_block_estimator
from sqlml.training.row_store import Blocks, Part, sample
from sqlml.types import Array


def fit_catboost(fitting: Fitting) -> Any:
    """Fit an estimator of CatBoost to a Pool that declares its categories."""
    import catboost

    log, held_out = fitting.log, fitting.held_out
    raised: list[BaseException] = []

    class Logging:
        """A callback that logs the losses of each round."""

        def after_iteration(self, info: Any) -> bool:
            last = {
                side: list(metrics.items())[0] for side, metrics in info.metrics.items() if metrics
            }
            log.metric = next(iter(last.values()))[0] if last else ""
            losses = {side: values[-1] for side, (_, values) in last.items()}
            try:
                log.round(losses.get("learn"), losses.get("validation"))
            except BaseException as error:
                raised.append(error)  # CatBoost would wrap it, so it is raised after the fit.
            return not raised

    def pool(part: Part) -> Any:
        options = {} if part.group is None else {"group_id": part.group}
        names = fitting.categories
        return catboost.Pool(part.X, part.y, cat_features=names, weight=part.weight, **options)

    parameters = dict(fitting.parameters)
    if fitting.categories:
        # A clone of the estimator is fitted to a frame, which does not declare categories.
        # CatBoost would copy a list, and scikit-learn's clone rejects copied parameters.
        parameters["cat_features"] = tuple(fitting.categories)
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    options: dict[str, Any] = {}
    if held_out is not None:
        options["eval_set"] = pool(held_out)
        options["early_stopping_rounds"] = fitting.patience
        options["use_best_model"] = fitting.patience is not None
    estimator.fit(pool(fitting.fitted), callbacks=[Logging()], **options)
    if raised:
        raise raised[0]
    return estimator


MAX_PASSES = 20
"""Upper bound on the passes over the rows unless max_iter is set."""

_PASS_OPTIONS = ("max_iter", "max_iterations")

MIN_GAIN = 1e-3
"""Share by which a pass must reduce the loss unless tol is set; two idle passes in a row end the
fit."""

BLOCK_STRETCHES = 16
"""Stretches of neighbouring rows in a block; several of them counter a misleading order of the
rows."""

_LOSS_ROWS = 20_000
"""Rows on which the loss is measured after each pass."""


def fit_by_blocks(fitting: Fitting) -> Any:
    """Fit the estimator that replaces the requested one for blocks of rows, by partial_fit.

    Each pass reads the rows in a different order, in blocks of stretches that lie apart. After each
    pass the loss of a sample is logged; the fit ends when it hardly decreases twice.
    """
    request, data, log = fitting.request, fitting.fitted, fitting.log
    parameters, rows = fitting.parameters, data.X.shape[0]
    replacement = find_block_estimator(request.trainer.path, parameters)
    assert replacement is not None
    # Ignore the default that a solver has for max_iter.
    has_option = not request.given.keys().isdisjoint(_PASS_OPTIONS)
    max_passes = parameters["max_iter"] if has_option else MAX_PASSES
    passes = max(max_passes, 1) if replacement.gains_by_passes else 1
    log.start(passes)
    estimator = _make_block_estimator(
        replacement, {"random_state": request.seed, **parameters}, rows
    )
    random = np.random.default_rng(request.seed)
    samples = [sample(part, _LOSS_ROWS) for part in (data, fitting.held_out) if part is not None]
    idle = 0
    for number in range(passes):
        for X, y, weight in _shuffle_blocks(data, random):
            if number == 0 and hasattr(estimator, "eta0") and not hasattr(estimator, "t_"):
                estimator.set_params(eta0=_first_step(X))
            arguments: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
            if fitting.classes:
                arguments["classes"] = np.arange(fitting.classes)
            estimator.partial_fit(X, *(() if y is None else (y,)), **arguments)
        losses = [_compute_loss(estimator, part, fitting.classes) for part in samples]
        log.metric = _name_loss(fitting)
        log.round(losses[0], losses[1] if len(losses) > 1 else None)
        idle = 0 if _has_gained(fitting, parameters.get("tol", MIN_GAIN)) else idle + 1
        if idle == 2:
            break
    return estimator


def _make_block_estimator(replacement: BlockEstimator, parameters: Any, rows: int) -> Any:
    module, _, name = replacement.path.rpartition(".")
    return getattr(import_module(module), name)(**replacement.parameters(parameters, rows))


def _shuffle_blocks(part: Part, random: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
    """Yield all rows in blocks of stretches that lie apart: X, y or None, weight or None."""
    size = max(part.X.block_rows // BLOCK_STRETCHES, 1)
    starts = random.permutation(np.arange(0, len(part.X), size))
    for first in range(0, len(starts), BLOCK_STRETCHES):
        stretches = [
            (s, min(s + size, len(part.X))) for s in starts[first : first + BLOCK_STRETCHES]
        ]
        targets_and_weights = (
            None if v is None else np.concatenate([v[a:b] for a, b in stretches])
            for v in (part.y, part.weight)
        )
        yield (part.X.stretches(stretches), *targets_and_weights)


def _first_step(X: Any) -> float:
    """Return the first step of a gradient descent.

    A step of more than twice this length could overshoot with a squared loss (Bottou, Stochastic
    gradient descent tricks, 2012).
    """
    squares = X.multiply(X).sum(axis=1) if hasattr(X, "multiply") else np.square(X).sum(axis=1)
    return float(0.5 / max(np.mean(squares), 1.0))


def _name_loss(fitting: Fitting) -> str:
    tasks = {"classify": "log_loss", "regress": "mean_squared_error"}
    return tasks.get(fitting.request.task, "mean_squared_distance")


def _compute_loss(estimator: Any, part: Part, classes: int) -> float:
    """Return the mean loss of some rows, by the objective of the estimator."""
    from sklearn import metrics

    if classes:
        codes = np.arange(classes)
        proba = estimator.predict_proba(part.X)
        return float(metrics.log_loss(part.y, proba, sample_weight=part.weight, labels=codes))
    if part.y is not None:
        predictions = estimator.predict(part.X)
        return float(metrics.mean_squared_error(part.y, predictions, sample_weight=part.weight))
    if hasattr(estimator, "inertia_"):
        return float(-estimator.score(part.X) / part.X.shape[0])
    restored: Array = estimator.inverse_transform(estimator.transform(part.X))
    return float(np.mean(np.square(np.asarray(part.X) - restored).sum(axis=1)))


def _has_gained(fitting: Fitting, least: float) -> bool:
    """Return whether the last pass reduced the loss by this share of the best loss before it."""
    losses = [r.loss for r in fitting.log.rounds if r.loss is not None]
    return len(losses) < 2 or losses[-1] < min(losses[:-1]) * (1 - least)


def fit_sklearn(fitting: Fitting) -> Any:
    """Fit an estimator of scikit-learn, or its replacement if the rows are in blocks."""
    data, held_out = fitting.fitted, fitting.held_out
    if isinstance(data.X, Blocks):
        return fit_by_blocks(fitting)
    kind = fitting.request.trainer.estimator_class()
    parameters, options = dict(fitting.parameters), {}
    has_rounds = fitting.request.trainer.stops_early
    if has_rounds:
        parameters["categorical_features"] = fitting.categories or None
        parameters["early_stopping"] = fitting.patience is not None
        if fitting.patience is not None and held_out is not None:
            parameters["n_iter_no_change"] = fitting.patience
            options = {"X_val": held_out.X, "y_val": held_out.y}
            if held_out.weight is not None:
                options["sample_weight_val"] = held_out.weight
    if data.weight is not None:
        options["sample_weight"] = data.weight
    estimator = kind(**parameters)
    arguments = (data.X,) if data.y is None else (data.X, data.y)
    estimator.fit(*arguments, **options)
    if has_rounds and fitting.patience is not None:
        for loss, eval_loss in zip(
            estimator.train_score_[1:], estimator.validation_score_[1:], strict=True
        ):
            fitting.log.metric = "loss"
            fitting.log.add_past(-float(loss), -float(eval_loss))
    return estimator


def fit_torch(fitting: Fitting) -> Any:
    """Fit a network of torch, epoch by epoch."""
    from sqlml.training.estimators.dnn import Epochs

    data, held_out = fitting.fitted, fitting.held_out
    fitting.log.metric = "loss"
    estimator = fitting.request.trainer.estimator_class()(**fitting.parameters)
    holdout = None if held_out is None else (held_out.X, held_out.y, held_out.weight)
    stopping = fitting.patience, fitting.log.round

    def segment(number: int, rounds: int, state: Any) -> Any:
        epochs = None if fitting.checkpoint is None else Epochs(number, rounds, state)
        return estimator.fit(data.X, data.y, data.weight, holdout, *stopping, epochs)

    if fitting.checkpoint is None:
        return segment(0, estimator.max_epochs, None)
    state = fit_in_segments(
        fitting.checkpoint,
        fitting.log,
        estimator.max_epochs,
        segment,
        ModelFormat("torch", lambda made: bytes(made.state_), bytes, growth=0, least=1),
    )
    network = segment(0, 0, state)
    del network.state_  # Only a further segment would need it.
    return network


def cannot_be_trained(kind: str, error: BaseException, hint: str = "") -> ConfigError:
    """Return the error for a training that its library has ended.

    Args:
        kind: the name of the estimator.
        error: raised by the library.
        hint: advice to the user.
    """
    message = f"{kind} cannot be trained: {type(error).__name__}: {shorten_message(str(error))}"
    return ConfigError(f"{message.removesuffix('.')}; {hint}" if hint else message)


def shorten_message(text: str) -> str:
    """Shorten a library's message to one line without times, source files and stack traces.

    >>> shorten_message("[16:50:03] /src/gbm/gbm.cc:24: Unknown gbm type DART\\nStack trace:\\n..")
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
"""Patterns in a message -> their replacements."""


def fit(fitting: Fitting) -> Any:
    """Fit the estimator of a request, and return it.

    Raises:
        Exception: any exception of the library.
    """
    names = ("n_estimators", "iterations", "max_iter", "max_epochs")
    rounds = next((fitting.parameters[n] for n in names if n in fitting.parameters), None)
    fitting.log.start(rounds)
    estimator = FITTERS[fitting.request.trainer.package](fitting)
    show_stage("measuring it")
    if fitting.checkpoint is not None:
        fitting.checkpoint.remove()
    return estimator


FITTERS: Mapping[str, Callable[[Fitting], Any]] = MappingProxyType(
    {
        "xgboost": fit_xgboost,
        "lightgbm": fit_lightgbm,
        "catboost": fit_catboost,
        "sklearn": fit_sklearn,
        "torch": fit_torch,
    }
)
"""Package of an estimator -> the function that fits it."""
