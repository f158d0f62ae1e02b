"""`tuned`: parameters that are searched for, by optuna, on the rows held out.

Each trial fits the estimator; trials that are worse than the median of others after as many rounds
end early. With a folder, a search that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.training.metrics import LOWER_IS_BETTER, METRICS, Metrics
from sqlml.training.request import Request
from sqlml.training.searched_values import Candidates, Searched
from sqlml.training.training_log import TrainingLog

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


Fitter = Callable[[Mapping[str, Any], TrainingLog], Fit]
"""Parameters, and where the rounds go -> a fit."""


def tuned(fitter: Fitter, request: Request, log: TrainingLog, identity: str) -> Tuned:
    """Search for the parameters that the request leaves open.

    Args:
        log: shows the progress. identity: what the trials depend on besides; a study in the folder
            that has another one is not continued.

    Raises:
        ConfigError: an unknown objective, or all trials have failed.
        MissingDependencyError: optuna is not installed.
    """
    optuna = _optuna()
    objective = _objective(request)
    study = _study(optuna, request, objective, identity)
    best: dict[int, Fit] = {}

    def trial(trial: Any) -> float:
        parameters = {n: _suggested(trial, n, s) for n, s in request.searched.items()}
        own = _Pruned(optuna, trial, log)
        made = fitter({**request.parameters, **parameters}, own)
        value = made.metrics.get(objective)
        if value is None:
            raise ConfigError(f"the rows held out do not define {objective}")
        if not best or _is_better(value, study, objective):
            best.clear()
            best[trial.number] = made
        return value

    left = request.num_trials - sum(t.state.is_finished() for t in study.trials)
    if left > 0:
        study.optimize(trial, n_trials=left, catch=(ConfigError,))
    finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if not finished:
        raise ConfigError("no trial was completed: the library refused all parameters")
    chosen = study.best_trial
    parameters = {**request.parameters, **chosen.params}
    fit = best.get(chosen.number) or fitter(parameters, TrainingLog(log.progress))
    ended = [t for t in study.trials if t.state.is_finished()]
    return Tuned(fit, parameters, tuple(_told(t, chosen) for t in ended))


def _is_better(value: float, study: Any, objective: str) -> bool:
    try:
        known = study.best_value
    except ValueError:  # none is complete yet
        return True
    return bool(value < known if objective in LOWER_IS_BETTER else value > known)


def _objective(request: Request) -> str:
    """The metric that is made as good as possible."""
    known = METRICS[request.task]
    defaults = {"classify": "log_loss", "regress": "r2_score"}
    objective = request.objective or defaults.get(request.task, known[0])
    if objective not in known:
        raise ConfigError(f"unknown objective {objective!r}; objectives: {', '.join(known)}")
    return objective


def _study(optuna: Any, request: Request, objective: str, identity: str) -> Any:
    """A study, which goes on with the trials that the folder has of it."""
    storage = None
    if request.checkpoint is not None:
        folder = Path(request.checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "trials.log"))
        storage = optuna.storages.JournalStorage(backend)
    told = json.dumps([identity, objective, repr(sorted(request.searched.items()))])
    study = optuna.create_study(
        storage=storage,
        sampler=optuna.samplers.TPESampler(seed=request.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTING_TRIALS),
        study_name=sha256(told.encode()).hexdigest(),
        direction="minimize" if objective in LOWER_IS_BETTER else "maximize",
        load_if_exists=True,
    )
    # A sampler draws the same again, whatever trials it knows: go on behind those.
    study.sampler = optuna.samplers.TPESampler(seed=request.seed + len(study.trials))
    return study


def _suggested(trial: Any, name: str, searched: Searched) -> Any:
    if isinstance(searched, Candidates):
        return trial.suggest_categorical(name, list(searched.values))
    low, high = searched.low, searched.high
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high)
    return trial.suggest_float(name, low, high, log=searched.is_wide)


class _Pruned(TrainingLog):
    """The rounds of a trial, which ends early where it is worse than others were."""

    def __init__(self, optuna: Any, trial: Any, log: TrainingLog) -> None:
        super().__init__(log.progress)
        self._optuna = optuna
        self._trial = trial

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """A round has ended.

        Raises:
            optuna.TrialPruned: others were better after as many rounds.
        """
        super().round(loss, eval_loss)
        if eval_loss is None:
            return
        minimized = self._trial.study.direction == self._optuna.study.StudyDirection.MINIMIZE
        self._trial.report(eval_loss if minimized else -eval_loss, len(self.rounds))
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


def _told(trial: Any, best: Any) -> tuple[Any, ...]:
    state = trial.state.name.lower()
    seconds = trial.duration.total_seconds() if trial.duration is not None else None
    complete = state == "complete"
    return (
        trial.number + 1,
        json.dumps(trial.params),
        trial.value if complete else None,
        "succeeded" if complete else state,
        seconds,
        trial.number == best.number,
    )


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
