"""LightGBM: fit trees in memory by the estimator's fit, or from a file or a checkpoint by
`train`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from sqlml.training.fitting.checkpoint import Fitting, ModelFormat, fit_in_segments
from sqlml.training.row_store import Part, StoredRows
from sqlml.types import Array


def fit_lightgbm(fitting: Fitting) -> Any:
    """Fit an estimator of LightGBM: by `lightgbm.train` if rows are in a file or rounds are
    saved."""
    import lightgbm

    log, data, held_out = fitting.log, fitting.fitted, fitting.held_out

    def logging(environment: Any) -> None:
        """Log a round with the losses that LightGBM has computed."""
        losses = {side: value for side, _, value, *_ in environment.evaluation_result_list}
        metrics = [metric for _, metric, *_ in environment.evaluation_result_list]
        log.metric = metrics[-1] if metrics else ""
        log.round(losses.get("training"), losses.get("held out"))

    parameters = dict(fitting.parameters)
    if fitting.categories:
        parameters["categorical_column"] = fitting.categories
    if isinstance(data.X, StoredRows) and "force_row_wise" not in fitting.request.given:
        del parameters["force_row_wise"]  # It would store the bins twice.
        parameters["force_col_wise"] = True
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    if isinstance(data.X, StoredRows) or fitting.checkpoint is not None:
        return _fit_with_train(fitting, estimator, logging)
    sides = {"training": data} if held_out is None else {"training": data, "held out": held_out}
    callbacks: list[Any] = [logging]
    if fitting.patience is not None:
        callbacks.append(lightgbm.early_stopping(fitting.patience, verbose=False))
    options: dict[str, Any] = {"eval_names": list(sides), "callbacks": callbacks}
    if "eval_X" in inspect.signature(estimator.fit).parameters:  # LightGBM 4.7 and later
        options["eval_X"] = tuple(part.X for part in sides.values())
        options["eval_y"] = tuple(part.y for part in sides.values())
    else:
        options["eval_set"] = [(part.X, part.y) for part in sides.values()]
    if data.weight is not None:
        options["sample_weight"] = data.weight
        options["eval_sample_weight"] = [part.weight for part in sides.values()]
    if data.group is not None:
        options["group"] = _group_sizes(data.group)
        options["eval_group"] = [
            _group_sizes(part.group) for part in sides.values() if part.group is not None
        ]
    return estimator.fit(data.X, data.y, **options)


def _fit_with_train(fitting: Fitting, estimator: Any, logging: Any) -> Any:
    """Fit by LightGBM's own train, from rows in a file or in segments."""
    import lightgbm
    from lightgbm.callback import EarlyStopException

    class Rows(lightgbm.Sequence):
        """Rows that LightGBM reads: single ones to find bins, then all of them in blocks."""

        def __init__(self, rows: Any) -> None:
            self.batch_size = rows.store.block_rows
            self._rows = rows

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, slice):
                rows = self._rows.rows(index.start or 0, min(index.stop, len(self)))
            else:
                rows = self._rows.rows(index, index + 1)[0]
            return rows.astype(np.float64)

    data, held_out = fitting.fitted, fitting.held_out
    classes = max(fitting.classes, 1)
    # A fit on zeros sets the attributes of the estimator besides its trees, and its parameters.
    zeros = np.zeros((2 * classes, data.X.shape[1]))
    estimator.fit(zeros, np.repeat(np.arange(classes), 2))
    options = dict(estimator.booster_.params)
    rounds = options.pop("num_iterations")
    # Each segment of a checkpoint starts with the rows again.
    has_segments = fitting.checkpoint is not None

    def matrix(part: Part, reference: Any = None) -> Any:
        rows = Rows(part.X) if isinstance(part.X, StoredRows) else part.X
        return lightgbm.Dataset(
            rows,
            label=part.y,
            weight=part.weight,
            params=options,
            reference=reference,
            free_raw_data=not has_segments,
        )

    training_set = matrix(data)
    sides = {"training": training_set}
    if held_out is not None:
        sides["held out"] = matrix(held_out, training_set)

    def find_best_round() -> int:
        """Return the index of the round with the best loss on the held-out rows."""
        is_maximized = fitting.log.metric.startswith(_MAXIMIZED)
        losses = [np.nan if r.eval_loss is None else r.eval_loss for r in fitting.log.rounds]
        return int((np.nanargmax if is_maximized else np.nanargmin)(losses))

    def stop(environment: Any) -> None:
        """Stop early, as LightGBM's own callback does, but count the rounds of all segments."""
        if fitting.patience is None:
            return
        best_round = find_best_round()
        if len(fitting.log.rounds) - 1 - best_round >= fitting.patience:
            raise EarlyStopException(best_round, [])

    def segment(number: int, rounds: int, model: Any) -> Any:
        segment_options = {**options, "random_state": fitting.request.seed + number}
        return lightgbm.train(
            segment_options,
            training_set,
            rounds,
            valid_sets=list(sides.values()),
            valid_names=list(sides),
            init_model=model,
            callbacks=[logging, stop],
        )

    def dump(model: Any) -> bytes:
        text: str = model.model_to_string(num_iteration=-1)
        return text.encode()

    def load(content: bytes) -> Any:
        return lightgbm.Booster(model_str=content.decode())

    model_format = ModelFormat("lightgbm", dump, load)
    booster = fit_in_segments(fitting.checkpoint, fitting.log, rounds, segment, model_format)
    estimator._Booster = load(dump(booster))
    if fitting.patience is not None:
        estimator._Booster.best_iteration = estimator._best_iteration = find_best_round() + 1
    return estimator


_MAXIMIZED = ("auc", "average_precision", "map@", "ndcg@", "r2")
"""Prefixes of LightGBM's metrics that are better if larger."""


def _group_sizes(group: Array) -> Array:
    """Return the lengths, (g,), of runs of equal group ids (n,)."""
    ends = np.flatnonzero(np.diff(group)) + 1
    sizes: Array = np.diff(np.concatenate([[0], ends, [len(group)]]))
    return sizes
