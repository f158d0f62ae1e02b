"""`fit_lightgbm`: trees by LightGBM."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from sqlml.training.fitting.checkpoint import Fitting, in_segments
from sqlml.training.storage.row_store import Part, StoredRows
from sqlml.types import Array


def fit_lightgbm(fitting: Fitting) -> Any:
    """Trees by LightGBM: by its `train` where rows are in a file, or rounds are saved."""
    import lightgbm

    log, data, held_out = fitting.log, fitting.fitted, fitting.held_out

    def logging(environment: Any) -> None:
        """A round is logged with the losses that LightGBM has computed."""
        found = {side: value for side, _, value, *_ in environment.evaluation_result_list}
        names = [metric for _, metric, *_ in environment.evaluation_result_list]
        log.metric = names[-1] if names else ""
        log.round(found.get("training"), found.get("held out"))

    parameters = dict(fitting.parameters)
    if fitting.categories:
        parameters["categorical_column"] = fitting.categories
    if isinstance(data.X, StoredRows) and "force_row_wise" not in fitting.request.given:
        del parameters["force_row_wise"]  # which would keep the bins twice
        parameters["force_col_wise"] = True
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    if isinstance(data.X, StoredRows) or fitting.checkpoint is not None:
        return _fit_by_train(fitting, estimator, logging)
    parts = {"training": data} if held_out is None else {"training": data, "held out": held_out}
    callbacks: list[Any] = [logging]
    if fitting.patience is not None:
        callbacks.append(lightgbm.early_stopping(fitting.patience, verbose=False))
    options: dict[str, Any] = {"eval_names": list(parts), "callbacks": callbacks}
    if "eval_X" in inspect.signature(estimator.fit).parameters:  # from 4.7
        options["eval_X"] = tuple(part.X for part in parts.values())
        options["eval_y"] = tuple(part.y for part in parts.values())
    else:
        options["eval_set"] = [(part.X, part.y) for part in parts.values()]
    if data.weight is not None:
        options["sample_weight"] = data.weight
        options["eval_sample_weight"] = [part.weight for part in parts.values()]
    if data.group is not None:
        options["group"] = _sizes(data.group)
        options["eval_group"] = [
            _sizes(part.group) for part in parts.values() if part.group is not None
        ]
    return estimator.fit(data.X, data.y, **options)


def _fit_by_train(fitting: Fitting, estimator: Any, logging: Any) -> Any:
    """By LightGBM's own train, from rows that it reads from a file, or in segments."""
    import lightgbm
    from lightgbm.callback import EarlyStopException

    class Rows(lightgbm.Sequence):
        """Rows that LightGBM asks for: single ones to find bins, then all in blocks."""

        def __init__(self, rows: Any) -> None:
            self.batch_size = rows.store.block_rows
            self._rows = rows

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, asked: Any) -> Any:
            if isinstance(asked, slice):
                found = self._rows.rows(asked.start or 0, min(asked.stop, len(self)))
            else:
                found = self._rows.rows(asked, asked + 1)[0]
            return found.astype(np.float64)

    data, held_out = fitting.fitted, fitting.held_out
    classes = max(fitting.classes, 1)
    # a fit of nothing sets what the estimator knows besides its trees, and its parameters
    nothing = np.zeros((2 * classes, data.X.shape[1]))
    estimator.fit(nothing, np.repeat(np.arange(classes), 2))
    options = dict(estimator.booster_.params)
    rounds = options.pop("num_iterations")

    keeps = fitting.checkpoint is not None  # the rows, to begin a segment

    def matrix(part: Part, reference: Any = None) -> Any:
        rows = Rows(part.X) if isinstance(part.X, StoredRows) else part.X
        return lightgbm.Dataset(
            rows,
            label=part.y,
            weight=part.weight,
            params=options,
            reference=reference,
            free_raw_data=not keeps,
        )

    whole = matrix(data)
    sides = {"training": whole}
    if held_out is not None:
        sides["held out"] = matrix(held_out, whole)

    def best() -> int:
        """The round with the best loss of the rows held out."""
        rises = fitting.log.metric.startswith(_RISES)
        losses = [np.nan if r.eval_loss is None else r.eval_loss for r in fitting.log.rounds]
        return int((np.nanargmax if rises else np.nanargmin)(losses))

    def stop(environment: Any) -> None:
        """As LightGBM's early stopping, which would not know of the segments before."""
        if (
            fitting.patience is not None
            and len(fitting.log.rounds) - 1 - best() >= fitting.patience
        ):
            raise EarlyStopException(best(), [])

    def segment(number: int, rounds: int, model: Any) -> Any:
        own = {**options, "random_state": fitting.request.seed + number}
        return lightgbm.train(
            own,
            whole,
            rounds,
            valid_sets=list(sides.values()),
            valid_names=list(sides),
            init_model=model,
            callbacks=[logging, stop],
        )

    def dump(model: Any) -> bytes:
        made: str = model.model_to_string(num_iteration=-1)
        return made.encode()

    def load(content: bytes) -> Any:
        return lightgbm.Booster(model_str=content.decode())

    booster = in_segments(fitting.checkpoint, fitting.log, rounds, segment, dump, load, "lightgbm")
    estimator._Booster = load(dump(booster))
    if fitting.patience is not None:
        estimator._Booster.best_iteration = estimator._best_iteration = best() + 1
    return estimator


_RISES = ("auc", "average_precision", "map@", "ndcg@", "r2")
"""How the names of LightGBM's metrics begin of which more is better."""


def _sizes(group: Array) -> Array:
    """(g,) the numbers of neighbours with equal ids (n,)."""
    ends = np.flatnonzero(np.diff(group)) + 1
    made: Array = np.diff(np.concatenate([[0], ends, [len(group)]]))
    return made
