"""`fit_xgboost`: trees, or a linear model, by XGBoost."""

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
from sqlml.training.fitting.checkpoint import Fitting, in_segments
from sqlml.training.model_types import makes_bins
from sqlml.training.storage.row_store import Part, StoredRows, VanishingFolder, blocks_of


def fit_xgboost(fitting: Fitting) -> Any:
    """By XGBoost's own train, from a matrix that it makes block by block."""
    with ExitStack() as stack:
        return _fit(_folder_of_bins(fitting, stack), fitting)


def _fit(folder: str | None, fitting: Fitting) -> Any:
    import xgboost
    from xgboost.callback import EarlyStopping, TrainingCallback

    log, data, held_out = fitting.log, fitting.fitted, fitting.held_out

    class Logging(TrainingCallback):
        """A round is logged with the losses that XGBoost has computed."""

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
    options = _options_of_xgboost(estimator, fitting)
    types = parameters.get("feature_types")
    matrix = _xgboost_matrix(data, types, estimator, folder)
    sides = [(matrix, "training")]
    if held_out is not None:
        sides.append((_xgboost_matrix(held_out, types, estimator, folder, matrix), "held_out"))
    if not fitting.request.trainer.stops_early:  # a forest is made in one round
        sides = []

    def segment(number: int, rounds: int, model: Any) -> Any:
        callbacks: list[Any] = [Logging()]
        if fitting.patience is not None:
            stop = EarlyStopping(rounds=fitting.patience)
            for epoch, past in enumerate(log.rounds):  # as if it had seen them
                seen: Any = {"held_out": {log.metric: [past.eval_loss]}}
                stop.after_iteration(model, epoch, seen)
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

    def load(content: bytes) -> Any:
        return xgboost.Booster(options, model_file=bytearray(content))

    rounds = estimator.get_num_boosting_rounds()
    checkpoint = fitting.checkpoint if sides else None
    booster = in_segments(checkpoint, log, rounds, segment, _ubjson, load, "xgboost")
    # Without early_stopping_rounds, so that a clone can be fitted with no rows held out.
    estimator.load_model(booster.save_raw("ubj"))
    return estimator


def _ubjson(booster: Any) -> bytes:
    return bytes(booster.save_raw("ubj"))


def _options_of_xgboost(estimator: Any, fitting: Fitting) -> dict[str, Any]:
    """The parameters as the estimator's own fit hands them to train."""
    options: dict[str, Any] = estimator.get_xgb_params()
    if fitting.classes == 2 and options.get("objective") is None:
        options["objective"] = "binary:logistic"
    if fitting.classes > 2:
        if options.get("objective") != "multi:softmax":
            options["objective"] = "multi:softprob"
        options["num_class"] = fitting.classes
    return options


def _xgboost_matrix(
    part: Part, types: Any, estimator: Any, folder: str | None, reference: Any = None
) -> Any:
    """The rows as XGBoost's estimators hold them: a byte a number where it counts in bins.

    Args:
        folder: for files of bins; None: they are kept in memory.
    """
    import xgboost

    options = {"nthread": estimator.n_jobs, "enable_categorical": types is not None}
    of_rows = {"label": part.y, "weight": part.weight, "qid": part.group}
    given = {name: v for name, v in of_rows.items() if v is not None}
    if not makes_bins(estimator.get_xgb_params()):
        return xgboost.DMatrix(part.X, feature_types=types, **given, **options)

    class Rows(xgboost.DataIter):
        """The rows, as often as XGBoost asks for them."""

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
            own = {name: v[rows] for name, v in given.items()}
            input_data(data=_columns(block), feature_types=types, **own)
            return True

    bins = getattr(estimator, "max_bin", None)
    kind = xgboost.QuantileDMatrix if folder is None else xgboost.ExtMemQuantileDMatrix
    # XGBoost calls `next` from native code, where Python would print a Ctrl-C and forget it, so
    # that the matrix would lack the rows that follow.
    with interruption_after() as interruption:
        matrix = kind(Rows(), max_bin=bins, ref=reference, **options)
    matrix.feature_names = None
    return matrix


def _columns(block: Any) -> Any:
    """Rows as columns of Arrow, which XGBoost reads in less time; sparse ones as they are."""
    import pyarrow as pa

    if not isinstance(block, np.ndarray):
        return block
    columns = [pa.array(column) for column in np.ascontiguousarray(block.T)]
    return pa.table(columns, names=[f"f{k}" for k in range(len(columns))])


_BYTES_OF_BINS = 2
"""Bytes that XGBoost keeps of a number: its bin, by rows and by columns."""

_BYTES_OF_A_ROW = 8
"""Bytes that XGBoost's files have for a row besides."""

_SHARE_OF_BINS = 0.25
"""Of memory_limit that bins may take in memory."""


def _folder_of_bins(fitting: Fitting, stack: ExitStack) -> str | None:
    """Where bins are kept that do not fit into memory; None: they do.

    The folder goes when the stack is left.

    Raises:
        ConfigError: there is no room for them, of which XGBoost would abort the process.
    """
    X, held_out = fitting.fitted.X, fitting.held_out
    if not isinstance(X, StoredRows) or not sys.executable:
        return None
    nbytes = X.shape[0] * X.shape[1] * _BYTES_OF_BINS
    if not fitting.request.out_of_core and nbytes <= _SHARE_OF_BINS * fitting.memory_limit:
        return None
    rows = len(X) + (0 if held_out is None else len(held_out.X))
    wide = fitting.parameters.get("max_bin", 0) > 256  # two bytes each
    needed = 1.1 * rows * (X.shape[1] * _BYTES_OF_BINS * (2 if wide else 1) + _BYTES_OF_A_ROW)
    folder = X.store.folder or tempfile.gettempdir()
    if shutil.disk_usage(folder).free < needed:
        raise ConfigError(
            f"training needs {needed / 2**20:,.0f} MiB in {folder} for the binned data of XGBoost: "
            "free some space there, set temp_directory, or raise memory_limit"
        )
    return stack.enter_context(VanishingFolder(folder)).path
