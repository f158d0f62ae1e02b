"""Hyperparameter search with optuna on the held-out rows.

A trial ends early if it is worse than the median of the other trials after as many rounds. The
draws of a trial depend only on its number and on the previous trials. A search that resumes from a
checkpoint therefore runs the same trials as an uninterrupted search.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.scorer.evaluate import Metrics
from sqlml.training.fitting.checkpoint import Checkpoint, SavedProgress
from sqlml.training.model_types import LOWER_IS_BETTER, METRICS, MeasuredRows
from sqlml.training.options.estimator_parameters import Candidates, SearchSpace
from sqlml.training.options.request import Request
from sqlml.training.progress import TrainingLog


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """A fitted estimator with its metrics, rounds, and predictions for the measured rows."""

    estimator: Any
    metrics: Metrics
    log: TrainingLog
    measured: MeasuredRows | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A finished trial.

    drawn: maps parameters to the values that optuna drew, numbers or indices of candidates. status:
    succeeded, pruned or fail. value: the value of the objective, if the trial succeeded. losses:
    the losses on the held-out rows after each round. reason: the reason for a failure.
    """

    drawn: Mapping[str, Any]
    status: str = "succeeded"
    value: float | None = None
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    reason: str = ""


Trials = tuple[tuple[Any, ...], ...]
"""The trials as in `TrainingFacts.trials`."""

Fitter = Callable[[Mapping[str, Any], TrainingLog], FitResult]
"""A function that fits an estimator with the given parameters, and logs the rounds."""


def tune(
    fit: Fitter, request: Request, log: TrainingLog, checkpoint: Checkpoint | None
) -> tuple[FitResult, Trials]:
    """Search for the parameters that `request` leaves open; return the best fit and all trials."""
    search = _Search(_import_optuna(), fit, request, _choose_objective(request), log)
    trials = [] if checkpoint is None else _load_trials(checkpoint)[: request.num_trials]
    study = search.create_study(trials)
    best: tuple[int, FitResult] | None = None
    while len(trials) < request.num_trials:
        trial, trial_fit = search.run_trial(study, len(trials))
        trials.append(trial)
        if trial_fit is not None and search.find_best(trials) == len(trials) - 1:
            best = len(trials) - 1, trial_fit
        if checkpoint is not None:
            content = json.dumps([*map(astuple, trials)]).encode()
            checkpoint.save(SavedProgress("trials", (), content))
    best_index = search.find_best(trials)
    if best_index is None:
        reason = next((t.reason for t in reversed(trials) if t.reason), "")
        raise ConfigError(f"no trial was completed; the last error: {reason}")
    parameters = request.make_parameters(search.values(trials[best_index]))
    if best is not None and best[0] == best_index:
        best_fit = best[1]
    else:
        best_fit = fit(parameters, TrainingLog(log.progress))
    if checkpoint is not None:
        checkpoint.remove()
    descriptions = (
        (n + 1, json.dumps(search.values(t)), t.value, t.status, t.seconds, n == best_index)
        for n, t in enumerate(trials)
    )
    return best_fit, tuple(descriptions)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search for parameters. optuna: the module. log: the log whose progress bar is shown."""

    optuna: Any
    fitter: Fitter
    request: Request
    objective: str
    log: TrainingLog

    def create_study(self, trials: Sequence[Trial]) -> Any:
        # The first trials are completed before later ones are compared with them.
        pruner = self.optuna.pruners.MedianPruner(n_startup_trials=5)
        direction = "minimize" if self.objective in LOWER_IS_BETTER else "maximize"
        sampler = self._create_sampler(0)
        study = self.optuna.create_study(sampler=sampler, pruner=pruner, direction=direction)
        for trial in trials:
            study.add_trial(self._restore_trial(trial))
        return study

    def _create_sampler(self, trial_index: int) -> Any:
        seeds = np.random.SeedSequence([self.request.seed, trial_index]).generate_state(1)
        return self.optuna.samplers.TPESampler(seed=int(seeds[0]))

    def _make_distributions(self) -> dict[str, Any]:
        spaces = self.request.searched
        return {name: self._make_distribution(space) for name, space in spaces.items()}

    def _make_distribution(self, space: SearchSpace) -> Any:
        distributions = self.optuna.distributions
        if isinstance(space, Candidates):
            return distributions.CategoricalDistribution(range(len(space.values)))
        if isinstance(space.low, int) and isinstance(space.high, int):
            return distributions.IntDistribution(space.low, space.high)
        return distributions.FloatDistribution(space.low, space.high, log=space.is_wide)

    def _restore_trial(self, trial: Trial) -> Any:
        states = {"succeeded": "COMPLETE", "pruned": "PRUNED", "fail": "FAIL"}
        last_loss = trial.losses[-1] if trial.losses and trial.status == "pruned" else None
        return self.optuna.trial.create_trial(
            state=self.optuna.trial.TrialState[states[trial.status]],
            params=dict(trial.drawn),
            distributions=self._make_distributions(),
            value=trial.value if trial.status == "succeeded" else last_loss,
            intermediate_values=dict(enumerate(trial.losses, 1)),
        )

    def run_trial(self, study: Any, trial_index: int) -> tuple[Trial, FitResult | None]:
        """Fit a model with drawn parameters; return the trial, and the fit or None if it failed."""
        study.sampler = self._create_sampler(trial_index)
        optuna_trial = study.ask(self._make_distributions())
        trial = Trial(dict(optuna_trial.params))
        trial_log = _TrialLog(self.optuna, optuna_trial, self.log)
        start = time.perf_counter()
        fit = None
        states = self.optuna.trial.TrialState
        try:
            fit = self.fitter(self.request.make_parameters(self.values(trial)), trial_log)
            value = fit.metrics.get(self.objective)
            if value is None or math.isnan(value):
                fit = None
                raise ConfigError(f"the held-out rows do not define {self.objective}")
            study.tell(optuna_trial, value)
            trial = replace(trial, value=value)
        except ConfigError as error:
            study.tell(optuna_trial, state=states.FAIL)
            trial = replace(trial, status="fail", reason=str(error))
        except self.optuna.TrialPruned:
            study.tell(optuna_trial, state=states.PRUNED)
            trial = replace(trial, status="pruned")
        seconds = time.perf_counter() - start
        return replace(trial, losses=tuple(trial_log.reported), seconds=seconds), fit

    def values(self, trial: Trial) -> dict[str, Any]:
        values = {}
        for name, drawn in trial.drawn.items():
            space = self.request.searched[name]
            values[name] = space.values[drawn] if isinstance(space, Candidates) else drawn
        return values

    def find_best(self, trials: Sequence[Trial]) -> int | None:
        """Return the index of the first of the best trials, or None if all trials failed."""
        sign = 1 if self.objective in LOWER_IS_BETTER else -1
        scores = [(sign * t.value, n) for n, t in enumerate(trials) if t.value is not None]
        return min(scores)[1] if scores else None


def _choose_objective(request: Request) -> str:
    metrics = METRICS[request.task]
    defaults = {"classify": "log_loss", "regress": "r2_score"}
    objective = request.objective or defaults.get(request.task, metrics[0])
    if objective not in metrics:
        raise ConfigError(f"unknown objective {objective!r}; objectives: {', '.join(metrics)}")
    return objective


def _load_trials(checkpoint: Checkpoint) -> list[Trial]:
    saved = checkpoint.load()
    if saved is not None:
        return [Trial(*fields) for fields in json.loads(saved.content)]
    if checkpoint.path.exists():
        fault = f"the file {str(checkpoint.path)!r} is damaged"
        raise ConfigError(f"option checkpoint: {fault}; remove it, and the search starts over")
    return []


class _TrialLog(TrainingLog):
    """The log of a trial, which raises TrialPruned if other trials were better after a round."""

    def __init__(self, optuna: Any, trial: Any, log: TrainingLog) -> None:
        super().__init__(log.progress)
        self._optuna = optuna
        self._trial = trial
        self.reported: list[float] = []

    def add_round(self, loss: float | None, eval_loss: float | None) -> None:
        super().add_round(loss, eval_loss)
        if eval_loss is None:
            return
        is_minimized = self._trial.study.direction == self._optuna.study.StudyDirection.MINIMIZE
        self.reported.append(eval_loss if is_minimized else -eval_loss)
        self._trial.report(self.reported[-1], len(self.reported))
        if self._trial.should_prune():
            raise self._optuna.TrialPruned


def is_end_of_trial(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ == "TrialPruned":
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        fault = "searching for parameters needs optuna, which is not installed"
        raise MissingDependencyError(f"{fault}: pip install 'sqlml[train]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
