"""`tuned`: parameters that are searched for, by optuna, on the rows held out.

Each trial fits the estimator; trials that are worse than the median of others after as many rounds
end early. What a trial draws depends on its number and on the trials before, so that a search that
was interrupted and goes on, with a checkpoint, makes those that an undisturbed one makes.
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
from sqlml.training.fitting.checkpoint import Checkpoint, Saved, TrainingLog
from sqlml.training.model_types import LOWER_IS_BETTER, METRICS
from sqlml.training.options.estimator_parameters import Candidates, Searched
from sqlml.training.options.request import Request

STARTING_TRIALS = 5
"""Trials that are all made before others are compared with them."""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fitted estimator with its metrics and rounds."""

    estimator: Any
    metrics: Metrics
    log: TrainingLog


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """The best fit, its parameters, and all trials as `TrainingFacts.trials` has them."""

    fit: Fit
    parameters: Mapping[str, Any]
    trials: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A trial that has ended.

    drawn: what optuna has drawn, by parameter: a number, or the place of a candidate. status:
    succeeded, pruned or fail. value: of the objective, if it has succeeded. losses: of the rows
    held out after each round. reason: why it has failed.
    """

    drawn: Mapping[str, Any]
    status: str = "succeeded"
    value: float | None = None
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    reason: str = ""


Fitter = Callable[[Mapping[str, Any], TrainingLog], Fit]
"""Parameters, and where the rounds go -> a fit."""


def tuned(
    fitter: Fitter, request: Request, log: TrainingLog, checkpoint: Checkpoint | None
) -> Tuned:
    """Search for the parameters that the request leaves open.

    Args:
        log: shows the progress. checkpoint: where trials are saved as they end.

    Raises:
        ConfigError: an unknown objective, all trials have failed, or the checkpoint is damaged.
        MissingDependencyError: optuna is not installed.
    """
    optuna = _optuna()
    objective = _objective(request)
    trials = [] if checkpoint is None else _saved_trials(checkpoint)[: request.num_trials]
    study = _study(optuna, request, objective)
    for trial in trials:
        study.add_trial(_known(optuna, trial, request))
    best: tuple[int, Fit] | None = None
    while len(trials) < request.num_trials:
        study.sampler = _sampler(optuna, request.seed, len(trials))
        trial, fit = _made(optuna, study, fitter, request, log, objective)
        trials.append(trial)
        if fit is not None and _best(trials, objective) == len(trials) - 1:
            best = len(trials) - 1, fit
        if checkpoint is not None:
            checkpoint.save(_as_saved(trials))
    chosen = _best(trials, objective)
    if chosen is None:
        reason = next((t.reason for t in reversed(trials) if t.reason), "")
        raise ConfigError(f"no trial was completed; the last error: {reason}")
    parameters = request.parameters_with(_values(trials[chosen].drawn, request))
    if best is not None and best[0] == chosen:
        fit = best[1]
    else:
        fit = fitter(parameters, TrainingLog(log.progress))
    if checkpoint is not None:
        checkpoint.remove()
    told = [_told(n, t, chosen, request) for n, t in enumerate(trials)]
    return Tuned(fit, parameters, tuple(told))


def _made(
    optuna: Any,
    study: Any,
    fitter: Fitter,
    request: Request,
    log: TrainingLog,
    objective: str,
) -> tuple[Trial, Fit | None]:
    """The next trial, and its fit if it has succeeded."""
    drawing = study.ask({n: _distribution(optuna, s) for n, s in request.searched.items()})
    made = Trial(dict(drawing.params))
    rounds = _Pruned(optuna, drawing, log)
    start = time.perf_counter()
    fit = None
    state = optuna.trial.TrialState
    try:
        fit = fitter(request.parameters_with(_values(made.drawn, request)), rounds)
        value = fit.metrics.get(objective)
        if value is None or math.isnan(value):
            fit = None
            raise ConfigError(f"the rows held out do not define {objective}")
        study.tell(drawing, value)
        made = replace(made, value=value)
    except ConfigError as error:
        study.tell(drawing, state=state.FAIL)
        made = replace(made, status="fail", reason=str(error))
    except optuna.TrialPruned:
        study.tell(drawing, state=state.PRUNED)
        made = replace(made, status="pruned")
    seconds = time.perf_counter() - start
    return replace(made, losses=tuple(rounds.reported), seconds=seconds), fit


def _best(trials: list[Trial], objective: str) -> int | None:
    """The place of the best trial, the first of equal ones; None if none has succeeded."""
    sign = 1 if objective in LOWER_IS_BETTER else -1
    found = [(sign * t.value, n) for n, t in enumerate(trials) if t.value is not None]
    return min(found)[1] if found else None


def _objective(request: Request) -> str:
    """The metric that is made as good as possible."""
    known = METRICS[request.task]
    defaults = {"classify": "log_loss", "regress": "r2_score"}
    objective = request.objective or defaults.get(request.task, known[0])
    if objective not in known:
        raise ConfigError(f"unknown objective {objective!r}; objectives: {', '.join(known)}")
    return objective


def _study(optuna: Any, request: Request, objective: str) -> Any:
    """A study that knows no trial yet."""
    return optuna.create_study(
        sampler=_sampler(optuna, request.seed, 0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTING_TRIALS),
        direction="minimize" if objective in LOWER_IS_BETTER else "maximize",
    )


def _sampler(optuna: Any, seed: int, number: int) -> Any:
    """What draws a trial: it knows nothing but the trials before."""
    (own,) = np.random.SeedSequence([seed, number]).generate_state(1)
    return optuna.samplers.TPESampler(seed=int(own))


def _distribution(optuna: Any, searched: Searched) -> Any:
    """What optuna draws: a number, or the place of a candidate."""
    kinds = optuna.distributions
    if isinstance(searched, Candidates):
        return kinds.CategoricalDistribution(range(len(searched.values)))
    low, high = searched.low, searched.high
    if isinstance(low, int) and isinstance(high, int):
        return kinds.IntDistribution(low, high)
    return kinds.FloatDistribution(low, high, log=searched.is_wide)


def _values(drawn: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The values of the parameters that were drawn."""
    made = {}
    for name, value in drawn.items():
        searched = request.searched[name]
        made[name] = searched.values[value] if isinstance(searched, Candidates) else value
    return made


def _known(optuna: Any, trial: Trial, request: Request) -> Any:
    """A trial as optuna has it."""
    states = optuna.trial.TrialState
    state = {"succeeded": states.COMPLETE, "pruned": states.PRUNED, "fail": states.FAIL}
    last = trial.losses[-1] if trial.losses and trial.status == "pruned" else None
    return optuna.trial.create_trial(
        state=state[trial.status],
        params=dict(trial.drawn),
        distributions={n: _distribution(optuna, s) for n, s in request.searched.items()},
        value=trial.value if trial.status == "succeeded" else last,
        intermediate_values={n + 1: loss for n, loss in enumerate(trial.losses)},
    )


def _as_saved(trials: list[Trial]) -> Saved:
    told = [[dict(t.drawn), t.status, t.value, list(t.losses), t.seconds, t.reason] for t in trials]
    return Saved("trials", (), json.dumps(told).encode())


def _saved_trials(checkpoint: Checkpoint) -> list[Trial]:
    """The trials that the checkpoint has.

    Raises:
        ConfigError: it is damaged.
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


class _Pruned(TrainingLog):
    """The rounds of a trial, which ends early where it is worse than others were."""

    def __init__(self, optuna: Any, trial: Any, log: TrainingLog) -> None:
        super().__init__(log.progress)
        self._optuna = optuna
        self._trial = trial
        self.reported: list[float] = []

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """A round has ended.

        Raises:
            optuna.TrialPruned: others were better after as many rounds.
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
    """Whether it ends a trial that is worse than others, or wraps what does."""
    inner: BaseException | None = error
    while inner is not None:
        if type(inner).__name__ == "TrialPruned":
            return True
        inner = inner.__cause__ or inner.__context__
    return False


def _told(number: int, trial: Trial, best: int, request: Request) -> tuple[Any, ...]:
    parameters = json.dumps(_values(trial.drawn, request))
    ended = trial.value, trial.status, trial.seconds
    return (number + 1, parameters, *ended, number == best)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingDependencyError(
            "searching for parameters needs optuna, which is not installed: "
            "pip install 'sqlml[train]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
