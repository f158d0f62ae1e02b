"""Fit an estimator as its library does it, with rows held out and rounds logged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.long_work import stage
from sqlml.training.fitting.checkpoint import Fitting, in_segments
from sqlml.training.fitting.fit_lightgbm import fit_lightgbm
from sqlml.training.fitting.fit_xgboost import fit_xgboost
from sqlml.training.model_types import BlockEstimator, block_estimator
from sqlml.training.storage.row_store import Blocks, Part, sample
from sqlml.types import Array

# `fit_catboost`: trees by CatBoost.


def fit_catboost(fitting: Fitting) -> Any:
    """Trees by CatBoost, from a Pool that knows its categories."""
    import catboost

    log, held_out = fitting.log, fitting.held_out
    raised: list[BaseException] = []

    class Logging:
        """A round is logged with the losses that CatBoost has computed."""

        def after_iteration(self, info: Any) -> bool:
            last = {
                side: list(metrics.items())[0] for side, metrics in info.metrics.items() if metrics
            }
            log.metric = next(iter(last.values()))[0] if last else ""
            losses = {side: values[-1] for side, (_, values) in last.items()}
            try:
                log.round(losses.get("learn"), losses.get("validation"))
            except BaseException as error:  # which CatBoost would wrap
                raised.append(error)
            return not raised

    def pool(part: Part) -> Any:
        options = {} if part.group is None else {"group_id": part.group}
        names = fitting.categories
        return catboost.Pool(part.X, part.y, cat_features=names, weight=part.weight, **options)

    parameters = dict(fitting.parameters)
    if fitting.categories:
        # A clone of the estimator is fitted to a frame, which does not say which columns these are.
        # CatBoost copies a list, which scikit-learn's clone refuses.
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


# `fit_by_blocks`: an estimator of scikit-learn learns from rows block by block, by partial_fit.


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


# `fit_sklearn`: whatever scikit-learn trains.


def fit_sklearn(fitting: Fitting) -> Any:
    """An estimator of scikit-learn, or what learns from blocks in its place."""
    data, held_out = fitting.fitted, fitting.held_out
    if isinstance(data.X, Blocks):
        return fit_by_blocks(fitting)
    kind = fitting.request.trainer.estimator_class()
    parameters, options = dict(fitting.parameters), {}
    histograms = fitting.request.trainer.stops_early
    if histograms:
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
    if histograms and fitting.patience is not None:
        for loss, eval_loss in zip(
            estimator.train_score_[1:], estimator.validation_score_[1:], strict=True
        ):
            fitting.log.metric = "loss"
            fitting.log.past(-float(loss), -float(eval_loss))
    return estimator


# `fit_torch`: networks by torch.


def fit_torch(fitting: Fitting) -> Any:
    """A network by torch, epoch by epoch."""
    from sqlml.training.estimators.dnn import Epochs

    data, held_out = fitting.fitted, fitting.held_out
    fitting.log.metric = "loss"
    estimator = fitting.request.trainer.estimator_class()(**fitting.parameters)
    rest = None if held_out is None else (held_out.X, held_out.y, held_out.weight)
    told = fitting.patience, fitting.log.round

    def segment(number: int, rounds: int, state: Any) -> Any:
        epochs = None if fitting.checkpoint is None else Epochs(number, rounds, state)
        return estimator.fit(data.X, data.y, data.weight, rest, *told, epochs)

    if fitting.checkpoint is None:
        return segment(0, estimator.max_epochs, None)
    state = in_segments(
        fitting.checkpoint,
        fitting.log,
        estimator.max_epochs,
        segment,
        lambda made: bytes(made.state_),
        lambda state: state,
        package="torch",
        growth=0,
        least=1,
    )
    made = segment(0, 0, state)
    del made.state_  # which only another part would need
    return made


# `cannot_be_trained`: what a library says of a training that failed, in one line.


def cannot_be_trained(kind: str, error: BaseException, hint: str = "") -> ConfigError:
    """Return the error of a training that the library has ended.

    Args:
        kind: the name of the estimator. error: whatever the library has raised. hint: what to do.
    """
    message = f"{kind} cannot be trained: {type(error).__name__}: {reason(str(error))}"
    return ConfigError(f"{message.removesuffix('.')}; {hint}" if hint else message)


def reason(text: str) -> str:
    """A library's message in one line, without times, source files and stack traces.

    >>> reason("[16:50:03] /workspace/src/gbm/gbm.cc:24: Unknown gbm type DART\\nStack trace:\\n..")
    'Unknown gbm type DART'
    >>> reason("Check failed: (bagging_fraction) <= (1.0) at /src/io/config_auto.cpp, line 375 .")
    'bagging_fraction must be <= 1.0'
    >>> reason("catboost/libs/options.cpp:128: Maximum tree depth is 16")
    'Maximum tree depth is 16'
    """
    text = text.split("\nStack trace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    # what fits several times quotes what the fits have raised, the exception last
    line = lines[-1] if "Traceback (most recent call last)" in text else lines[0]
    for pattern, instead in _CUT:
        line = pattern.sub(instead, line).strip()
    return line


_CUT = (
    (re.compile(r"\[\d\d:\d\d:\d\d\]\s*"), ""),
    (re.compile(r"\S*\.(?:c|cc|cpp|cu|cuh|h|hpp):\d+:\s*"), ""),
    (re.compile(r"\s+at \S+, line \d+\s*\.?$"), ""),
    (re.compile(r"Check failed: \((.+?)\) ([<>=!]+) \((.+?)\)$"), r"\1 must be \2 \3"),
    (re.compile(r"Check failed: (?:[^:]|::)*:\s*(?=\S)"), ""),
)
"""What is cut from a line -> what stands in its place."""


def fit(fitting: Fitting) -> Any:
    """Return the fitted estimator.

    Raises:
        Exception: whatever the library raises.
    """
    names = ("n_estimators", "iterations", "max_iter", "max_epochs")
    rounds = next((fitting.parameters[n] for n in names if n in fitting.parameters), None)
    fitting.log.start(rounds)
    made = FITTERS[fitting.request.trainer.package](fitting)
    stage("measuring it")
    if fitting.checkpoint is not None:
        fitting.checkpoint.remove()
    return made


FITTERS: Mapping[str, Callable[[Fitting], Any]] = MappingProxyType(
    {
        "xgboost": fit_xgboost,
        "lightgbm": fit_lightgbm,
        "catboost": fit_catboost,
        "sklearn": fit_sklearn,
        "torch": fit_torch,
    }
)
"""Package of an estimator -> what fits it."""
