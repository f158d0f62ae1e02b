"""XGBoost: fit trees, or a linear model, block by block, with the bins in memory or in a file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import ExitStack
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.interruption import interruption_after
from sqlml.training.fitting.checkpoint import Fitting, ModelFormat, fit_in_segments
from sqlml.training.model_types import uses_bins
from sqlml.training.row_store import Part, StoredRows, VanishingFolder, blocks_of


def fit_xgboost(fitting: Fitting) -> Any:
    """Fit an estimator of XGBoost by `xgboost.train`, from a matrix that is built block by
    block."""
    with ExitStack() as stack:
        return _fit_estimator(_open_bin_folder(fitting, stack), fitting)


def _fit_estimator(folder: str | None, fitting: Fitting) -> Any:
    import xgboost
    from xgboost.callback import EarlyStopping, TrainingCallback

    log, data, held_out = fitting.log, fitting.fitted, fitting.held_out

    class Logging(TrainingCallback):
        """A callback that logs the losses of each round."""

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            sides = [list(metrics.items())[-1] for metrics in evals_log.values()]
            log.metric = sides[-1][0] if sides else ""
            last = [float(np.atleast_1d(values[-1])[0]) for _, values in sides]
            log.round(last[0] if last else None, last[1] if len(last) > 1 else None)
            return False

    parameters = dict(fitting.parameters)
    if fitting.categories:
        width = data.X.shape[1]
        parameters["feature_types"] = [
            "c" if place in fitting.categories else "q" for place in range(width)
        ]
    kind = fitting.request.trainer.estimator_class()
    estimator = kind(**parameters)
    options = _train_options(estimator, fitting)
    types = parameters.get("feature_types")
    matrix = _build_matrix(data, types, estimator, folder)
    sides = [(matrix, "training")]
    if held_out is not None:
        sides.append((_build_matrix(held_out, types, estimator, folder, matrix), "held_out"))
    if not fitting.request.trainer.stops_early:  # A forest is fitted in one round.
        sides = []

    def segment(number: int, rounds: int, model: Any) -> Any:
        callbacks: list[Any] = [Logging()]
        if fitting.patience is not None:
            stop = EarlyStopping(rounds=fitting.patience)
            # Replay the rounds of earlier segments.
            for epoch, past_round in enumerate(log.rounds):
                losses: Any = {"held_out": {log.metric: [past_round.eval_loss]}}
                stop.after_iteration(model, epoch, losses)
            callbacks.append(stop)
        return xgboost.train(
            {**options, "random_state": fitting.request.seed + number},
            matrix,
            rounds,
            evals=sides,
            callbacks=callbacks,
            verbose_eval=False,
            xgb_model=model,
        )

    def dump(booster: Any) -> bytes:
        return bytes(booster.save_raw("ubj"))

    def load(content: bytes) -> Any:
        return xgboost.Booster(options, model_file=bytearray(content))

    rounds = estimator.get_num_boosting_rounds()
    checkpoint = fitting.checkpoint if sides else None
    model_format = ModelFormat("xgboost", dump, load)
    booster = fit_in_segments(checkpoint, log, rounds, segment, model_format)
    # Without early_stopping_rounds, so that a clone can be fitted with no rows held out.
    estimator.load_model(booster.save_raw("ubj"))
    return estimator


def _train_options(estimator: Any, fitting: Fitting) -> dict[str, Any]:
    """Return the parameters that the estimator's own fit passes to train."""
    options: dict[str, Any] = estimator.get_xgb_params()
    if fitting.classes == 2 and options.get("objective") is None:
        options["objective"] = "binary:logistic"
    if fitting.classes > 2:
        if options.get("objective") != "multi:softmax":
            options["objective"] = "multi:softprob"
        options["num_class"] = fitting.classes
    return options


def _build_matrix(
    part: Part, types: Any, estimator: Any, folder: str | None, reference: Any = None
) -> Any:
    """Build XGBoost's matrix of the rows: quantized, one byte per number, if the method uses bins.

    Args:
        types: of the features, or None.
        folder: the folder of the bins; None to store them in memory.
        reference: the matrix whose bins are used, or None.
    """
    import xgboost

    options = {"nthread": estimator.n_jobs, "enable_categorical": types is not None}
    columns = {"label": part.y, "weight": part.weight, "qid": part.group}
    row_columns = {name: v for name, v in columns.items() if v is not None}
    if not uses_bins(estimator.get_xgb_params()):
        return xgboost.DMatrix(part.X, feature_types=types, **row_columns, **options)

    class Rows(xgboost.DataIter):
        """An iterator over the rows, which XGBoost restarts as needed."""

        def __init__(self) -> None:
            prefix = None if folder is None else os.path.join(folder, "bins")
            super().__init__(prefix, release_data=True, on_host=False)
            self.reset()

        def reset(self) -> None:
            self._blocks = blocks_of(part.X)
            self._row = 0

        def next(self, input_data: Any) -> bool:
            if interruption.is_held_back:
                raise InterruptedError
            block = next(self._blocks, None)
            if block is None:
                return False
            rows = slice(self._row, self._row + len(block))
            self._row = rows.stop
            block_columns = {name: v[rows] for name, v in row_columns.items()}
            input_data(data=_to_arrow(block), feature_types=types, **block_columns)
            return True

    bins = getattr(estimator, "max_bin", None)
    kind = xgboost.QuantileDMatrix if folder is None else xgboost.ExtMemQuantileDMatrix
    # XGBoost calls `next` from native code. Python would print a KeyboardInterrupt there and
    # continue, and the matrix would lack the remaining rows.
    with interruption_after() as interruption:
        matrix = kind(Rows(), max_bin=bins, ref=reference, **options)
    matrix.feature_names = None
    return matrix


def _to_arrow(block: Any) -> Any:
    """Convert dense rows to Arrow columns, which XGBoost reads faster; return sparse rows
    unchanged."""
    import pyarrow as pa

    if not isinstance(block, np.ndarray):
        return block
    columns = [pa.array(column) for column in np.ascontiguousarray(block.T)]
    return pa.table(columns, names=[f"f{k}" for k in range(len(columns))])


_BIN_BYTES = 2
"""Bytes that XGBoost stores per number: its bin, by rows and by columns."""

_ROW_BYTES = 8
"""Further bytes per row in XGBoost's files."""

_BIN_MEMORY_SHARE = 0.25
"""Share of memory_limit that the bins may take in memory."""


def _open_bin_folder(fitting: Fitting, stack: ExitStack) -> str | None:
    """Return a folder for bins that do not fit into memory, or None if they fit.

    The folder is removed when the stack is closed.

    Raises:
        ConfigError: the disk has too little room, in which case XGBoost would abort the process.
    """
    X, held_out = fitting.fitted.X, fitting.held_out
    if not isinstance(X, StoredRows) or not sys.executable:
        return None
    nbytes = X.shape[0] * X.shape[1] * _BIN_BYTES
    if not fitting.request.out_of_core and nbytes <= _BIN_MEMORY_SHARE * fitting.memory_limit:
        return None
    rows = len(X) + (0 if held_out is None else len(held_out.X))
    width = 2 if fitting.parameters.get("max_bin", 0) > 256 else 1
    needed = 1.1 * rows * (X.shape[1] * _BIN_BYTES * width + _ROW_BYTES)
    folder = X.store.folder or tempfile.gettempdir()
    if shutil.disk_usage(folder).free < needed:
        raise ConfigError(
            f"training needs {needed / 2**20:,.0f} MiB in {folder} for the binned data of XGBoost: "
            "free some space there, set temp_directory, or raise memory_limit"
        )
    return stack.enter_context(VanishingFolder(folder)).path
