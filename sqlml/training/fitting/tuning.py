"""Hyperparameter search by optuna, on the held-out rows.

Each trial fits the estimator. A trial ends early if it is worse than the median of other trials
after as many rounds. The draws of a trial depend on its number and on the previous trials only, so
that a search that resumes from a checkpoint makes the trials of an undisturbed one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.scorer.evaluate import Metrics
from sqlml.training.fitting.checkpoint import Checkpoint, Saved
from sqlml.training.model_types import LOWER_IS_BETTER, METRICS
from sqlml.training.options.estimator_parameters import Candidates, SearchSpace
from sqlml.training.options.request import Request
from sqlml.training.progress import TrainingLog

STARTING_TRIALS = 5
"""Trials that are completed before later ones are compared with them."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fitted estimator with its metrics and rounds."""

    estimator: Any
    metrics: Metrics
    log: TrainingLog


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The result of a search: the best fit, its parameters, and all trials as in
    `TrainingFacts.trials`."""

    fit: Fit
    parameters: Mapping[str, Any]
    trials: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A finished trial.

    drawn: parameter -> the value that optuna has drawn: a number, or the index of a candidate.
    status: succeeded, pruned or fail. value: of the objective, if it has succeeded. losses: on the
    held-out rows after each round. reason: of the failure.
    """

    drawn: Mapping[str, Any]
    status: str = "succeeded"
    value: float | None = None
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    reason: str = ""


Fitter = Callable[[Mapping[str, Any], TrainingLog], Fit]
"""Parameters, and the log of the rounds -> a fit."""


def tune(
    fitter: Fitter, request: Request, log: TrainingLog, checkpoint: Checkpoint | None
) -> Tuned:
    """Search for the parameters that the request leaves open.

    Args:
        log: its progress bar shows the search.
        checkpoint: saves the trials as they end.

    Raises:
        ConfigError: the objective is unknown, all trials have failed, or the checkpoint is damaged.
        MissingDependencyError: optuna is not installed.
    """
    optuna = _import_optuna()
    objective = _choose_objective(request)
    trials = [] if checkpoint is None else _load_trials(checkpoint)[: request.num_trials]
    study = _create_study(optuna, request, objective)
    for trial in trials:
        study.add_trial(_restore_trial(optuna, trial, request))
    best: tuple[int, Fit] | None = None
    while len(trials) < request.num_trials:
        study.sampler = _create_sampler(optuna, request.seed, len(trials))
        trial, fit = _run_trial(optuna, study, fitter, request, log, objective)
        trials.append(trial)
        if fit is not None and _find_best(trials, objective) == len(trials) - 1:
            best = len(trials) - 1, fit
        if checkpoint is not None:
            checkpoint.save(_encode_trials(trials))
    best_index = _find_best(trials, objective)
    if best_index is None:
        reason = next((t.reason for t in reversed(trials) if t.reason), "")
        raise ConfigError(f"no trial was completed; the last error: {reason}")
    parameters = request.trial_parameters(_parameter_values(trials[best_index].drawn, request))
    if best is not None and best[0] == best_index:
        fit = best[1]
    else:
        fit = fitter(parameters, TrainingLog(log.progress))
    if checkpoint is not None:
        checkpoint.remove()
    descriptions = [_describe_trial(n, t, best_index, request) for n, t in enumerate(trials)]
    return Tuned(fit, parameters, tuple(descriptions))


def _run_trial(
    optuna: Any,
    study: Any,
    fitter: Fitter,
    request: Request,
    log: TrainingLog,
    objective: str,
) -> tuple[Trial, Fit | None]:
    """Run the next trial; return it, and its fit if it has succeeded."""
    optuna_trial = study.ask(
        {n: _make_distribution(optuna, s) for n, s in request.searched.items()}
    )
    trial = Trial(dict(optuna_trial.params))
    trial_log = _TrialLog(optuna, optuna_trial, log)
    start = time.perf_counter()
    fit = None
    state = optuna.trial.TrialState
    try:
        fit = fitter(request.trial_parameters(_parameter_values(trial.drawn, request)), trial_log)
        value = fit.metrics.get(objective)
        if value is None or math.isnan(value):
            fit = None
            raise ConfigError(f"the rows held out do not define {objective}")
        study.tell(optuna_trial, value)
        trial = replace(trial, value=value)
    except ConfigError as error:
        study.tell(optuna_trial, state=state.FAIL)
        trial = replace(trial, status="fail", reason=str(error))
    except optuna.TrialPruned:
        study.tell(optuna_trial, state=state.PRUNED)
        trial = replace(trial, status="pruned")
    seconds = time.perf_counter() - start
    return replace(trial, losses=tuple(trial_log.reported), seconds=seconds), fit


def _find_best(trials: list[Trial], objective: str) -> int | None:
    """Return the index of the best trial, the first of equal ones; None if none has succeeded."""
    sign = 1 if objective in LOWER_IS_BETTER else -1
    scores = [(sign * t.value, n) for n, t in enumerate(trials) if t.value is not None]
    return min(scores)[1] if scores else None


def _choose_objective(request: Request) -> str:
    """Return the metric that the search optimizes."""
    metrics = METRICS[request.task]
    defaults = {"classify": "log_loss", "regress": "r2_score"}
    objective = request.objective or defaults.get(request.task, metrics[0])
    if objective not in metrics:
        raise ConfigError(f"unknown objective {objective!r}; objectives: {', '.join(metrics)}")
    return objective


def _create_study(optuna: Any, request: Request, objective: str) -> Any:
    return optuna.create_study(
        sampler=_create_sampler(optuna, request.seed, 0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTING_TRIALS),
        direction="minimize" if objective in LOWER_IS_BETTER else "maximize",
    )


def _create_sampler(optuna: Any, seed: int, number: int) -> Any:
    """Return the sampler of a trial, which depends on the seed and the number of the trial only."""
    (trial_seed,) = np.random.SeedSequence([seed, number]).generate_state(1)
    return optuna.samplers.TPESampler(seed=int(trial_seed))


def _make_distribution(optuna: Any, searched: SearchSpace) -> Any:
    """Return the distribution that optuna draws from: of numbers, or of the indices of
    candidates."""
    kinds = optuna.distributions
    if isinstance(searched, Candidates):
        return kinds.CategoricalDistribution(range(len(searched.values)))
    low, high = searched.low, searched.high
    if isinstance(low, int) and isinstance(high, int):
        return kinds.IntDistribution(low, high)
    return kinds.FloatDistribution(low, high, log=searched.is_wide)


def _parameter_values(drawn: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """Return the values of the parameters that were drawn."""
    values = {}
    for name, value in drawn.items():
        searched = request.searched[name]
        values[name] = searched.values[value] if isinstance(searched, Candidates) else value
    return values


def _restore_trial(optuna: Any, trial: Trial, request: Request) -> Any:
    """Convert a finished trial to optuna's."""
    states = optuna.trial.TrialState
    state = {"succeeded": states.COMPLETE, "pruned": states.PRUNED, "fail": states.FAIL}
    last = trial.losses[-1] if trial.losses and trial.status == "pruned" else None
    return optuna.trial.create_trial(
        state=state[trial.status],
        params=dict(trial.drawn),
        distributions={n: _make_distribution(optuna, s) for n, s in request.searched.items()},
        value=trial.value if trial.status == "succeeded" else last,
        intermediate_values={n + 1: loss for n, loss in enumerate(trial.losses)},
    )


def _encode_trials(trials: list[Trial]) -> Saved:
    records = [
        [dict(t.drawn), t.status, t.value, list(t.losses), t.seconds, t.reason] for t in trials
    ]
    return Saved("trials", (), json.dumps(records).encode())


def _load_trials(checkpoint: Checkpoint) -> list[Trial]:
    """Return the trials of the checkpoint.

    Raises:
        ConfigError: the checkpoint is damaged.
    """
    saved = checkpoint.load()
    if saved is None:
        if checkpoint.path.exists():
            raise ConfigError(
                f"option checkpoint: the file {str(checkpoint.path)!r} is damaged; remove it, and "
                "the search starts over"
            )
        return []
    return [
        Trial(drawn, status, value, tuple(losses), seconds, reason)
        for drawn, status, value, losses, seconds, reason in json.loads(saved.content)
    ]


class _TrialLog(TrainingLog):
    """The rounds of a trial, which ends early if other trials were better."""

    def __init__(self, optuna: Any, trial: Any, log: TrainingLog) -> None:
        super().__init__(log.progress)
        self._optuna = optuna
        self._trial = trial
        self.reported: list[float] = []

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """Log a round that has just ended.

        Raises:
            optuna.TrialPruned: other trials were better after as many rounds.
        """
        super().round(loss, eval_loss)
        if eval_loss is None:
            return
        minimized = self._trial.study.direction == self._optuna.study.StudyDirection.MINIMIZE
        self.reported.append(eval_loss if minimized else -eval_loss)
        self._trial.report(self.reported[-1], len(self.reported))
        if self._trial.should_prune():
            raise self._optuna.TrialPruned


def is_end_of_trial(error: BaseException) -> bool:
    """Return whether an error ends a trial early, or wraps an error that does."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "TrialPruned":
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _describe_trial(number: int, trial: Trial, best: int, request: Request) -> tuple[Any, ...]:
    parameters = json.dumps(_parameter_values(trial.drawn, request))
    outcome = trial.value, trial.status, trial.seconds
    return (number + 1, parameters, *outcome, number == best)


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingDependencyError(
            "searching for parameters needs optuna, which is not installed: "
            "pip install 'sqlml[train]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
