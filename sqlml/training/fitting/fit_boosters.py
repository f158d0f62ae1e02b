"""Fit trees or linear models with XGBoost, LightGBM and CatBoost, and log each round's losses.

XGBoost and LightGBM also read rows from a file block by block, and fit in saved segments.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.interruption import interruption_after
from sqlml.training.fitting.checkpoint import FitArguments, ModelFormat, fit_in_segments
from sqlml.training.model_types import uses_bins
from sqlml.training.progress import TrainingLog
from sqlml.training.row_store import EstimatorRows, StoredRows, open_vanishing_folder, read_blocks
from sqlml.types import Array


def fit_xgboost(fitting: FitArguments) -> Any:
    """Fit an estimator with `xgboost.train`, from a matrix that is built block by block."""
    with _open_bin_folder(fitting) as folder:
        return _fit_with_xgboost(folder, fitting)


def _fit_with_xgboost(folder: str | None, fitting: FitArguments) -> Any:
    import xgboost

    fitted, held_out = fitting.fitted, fitting.held_out
    parameters = dict(fitting.parameters)
    feature_types = None
    if fitting.categories:
        feature_types = ["c" if k in fitting.categories else "q" for k in range(fitted.X.shape[1])]
        parameters["feature_types"] = feature_types
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    options = _build_train_options(estimator, fitting)
    matrix = _build_matrix(fitted, feature_types, estimator, folder)
    evals = [(matrix, "training")]
    if held_out is not None:
        held_out_matrix = _build_matrix(held_out, feature_types, estimator, folder, matrix)
        evals.append((held_out_matrix, "held_out"))
    if not fitting.request.trainer.stops_early:  # A forest is fitted in one round.
        evals = []

    def fit_segment(number: int, rounds: int, model: Any) -> Any:
        return xgboost.train(
            {**options, "random_state": fitting.request.seed + number},
            matrix,
            rounds,
            evals=evals,
            callbacks=_make_callbacks(fitting, model),
            verbose_eval=False,
            xgb_model=model,
        )

    def dump(booster: Any) -> bytes:
        return bytes(booster.save_raw("ubj"))

    def load(content: bytes) -> Any:
        return xgboost.Booster(options, model_file=bytearray(content))

    rounds = estimator.get_num_boosting_rounds()
    checkpoint = fitting.checkpoint if evals else None
    model_format = ModelFormat("xgboost", dump, load)
    booster = fit_in_segments(checkpoint, fitting.log, rounds, fit_segment, model_format)
    # early_stopping_rounds is not set, so that a clone can be fitted without held-out rows.
    estimator.load_model(booster.save_raw("ubj"))
    return estimator


def _make_callbacks(fitting: FitArguments, model: Any) -> list[Any]:
    from xgboost.callback import EarlyStopping, TrainingCallback

    log = fitting.log

    class RoundLogger(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            metric_values = [list(metrics.items())[-1] for metrics in evals_log.values()]
            log.metric = metric_values[-1][0] if metric_values else ""
            losses = [float(np.atleast_1d(values[-1])[0]) for _, values in metric_values]
            log.add_round(losses[0] if losses else None, losses[1] if len(losses) > 1 else None)
            return False

    if fitting.patience is None:
        return [RoundLogger()]
    early_stopping = EarlyStopping(rounds=fitting.patience)
    for epoch, past_round in enumerate(log.rounds):  # Replay the rounds of earlier segments.
        losses: Any = {"held_out": {log.metric: [past_round.eval_loss]}}
        early_stopping.after_iteration(model, epoch, losses)
    return [RoundLogger(), early_stopping]


def _build_train_options(estimator: Any, fitting: FitArguments) -> dict[str, Any]:
    options: dict[str, Any] = estimator.get_xgb_params()
    if fitting.n_classes == 2 and options.get("objective") is None:
        options["objective"] = "binary:logistic"
    if fitting.n_classes > 2:
        if options.get("objective") != "multi:softmax":
            options["objective"] = "multi:softprob"
        options["num_class"] = fitting.n_classes
    return options


def _build_matrix(
    part: EstimatorRows,
    feature_types: Any,
    estimator: Any,
    folder: str | None,
    reference: Any = None,
) -> Any:
    """Build the XGBoost matrix of `part`, quantized to bins if the estimator trains on bins.

    A matrix of held-out rows uses the bins of `reference`, the matrix of the fitted rows. The bins
    are stored in `folder`, or in memory if `folder` is None.
    """
    import xgboost

    options = {"nthread": estimator.n_jobs, "enable_categorical": feature_types is not None}
    columns = {"label": part.y, "weight": part.weight, "qid": part.group}
    row_columns = {name: values for name, values in columns.items() if values is not None}
    if not uses_bins(estimator.get_xgb_params()):
        return xgboost.DMatrix(part.X, feature_types=feature_types, **row_columns, **options)

    class Rows(xgboost.DataIter):
        """An iterator over the rows, which XGBoost restarts as needed."""

        def __init__(self) -> None:
            prefix = None if folder is None else os.path.join(folder, "bins")
            super().__init__(prefix, release_data=True, on_host=False)
            self.reset()

        def reset(self) -> None:
            self._blocks = read_blocks(part.X)
            self._row = 0

        def next(self, input_data: Any) -> bool:
            if interruption.is_held_back:
                raise InterruptedError
            block = next(self._blocks, None)
            if block is None:
                return False
            rows = slice(self._row, self._row + len(block))
            self._row = rows.stop
            block_columns = {name: values[rows] for name, values in row_columns.items()}
            input_data(data=_to_arrow(block), feature_types=feature_types, **block_columns)
            return True

    max_bin = getattr(estimator, "max_bin", None)
    matrix_class = xgboost.QuantileDMatrix if folder is None else xgboost.ExtMemQuantileDMatrix
    # XGBoost calls `next` from native code. Python would print a KeyboardInterrupt there and
    # continue, and the matrix would lack the remaining rows.
    with interruption_after() as interruption:
        matrix = matrix_class(Rows(), max_bin=max_bin, ref=reference, **options)
    matrix.feature_names = None
    return matrix


def _to_arrow(block: Any) -> Any:
    """Convert dense rows to Arrow columns, which XGBoost reads faster than arrays."""
    import pyarrow as pa

    if not isinstance(block, np.ndarray):
        return block
    columns = [pa.array(column) for column in np.ascontiguousarray(block.T)]
    return pa.table(columns, names=[f"f{k}" for k in range(len(columns))])


_BYTES_PER_BIN = 2
"""Bytes that XGBoost stores per number: the bin, once by rows and once by columns."""

_EXTRA_ROW_BYTES = 8
"""Further bytes per row in XGBoost's files."""

_BIN_MEMORY_SHARE = 0.25


def _open_bin_folder(fitting: FitArguments) -> AbstractContextManager[str | None]:
    """Open a temporary folder for bins that do not fit into memory; yield None if they fit.

    If the disk is too full, ConfigError is raised, because XGBoost would abort the process.
    """
    X, held_out = fitting.fitted.X, fitting.held_out
    if not isinstance(X, StoredRows) or not sys.executable:
        return nullcontext()
    nbytes = X.shape[0] * X.shape[1] * _BYTES_PER_BIN
    if not fitting.request.out_of_core and nbytes <= _BIN_MEMORY_SHARE * fitting.memory_limit:
        return nullcontext()
    row_count = len(X) + (0 if held_out is None else len(held_out.X))
    bin_bytes = 2 if fitting.parameters.get("max_bin", 0) > 256 else 1
    row_bytes = X.shape[1] * _BYTES_PER_BIN * bin_bytes + _EXTRA_ROW_BYTES
    mebibytes = 1.1 * row_count * row_bytes / 2**20
    folder = X.store.folder or tempfile.gettempdir()
    if shutil.disk_usage(folder).free / 2**20 < mebibytes:
        raise ConfigError(
            f"training needs {mebibytes:,.0f} MiB in {folder} for the binned data of XGBoost: free "
            "some space there, set temp_directory, or raise memory_limit"
        )
    return open_vanishing_folder(folder)


def fit_lightgbm(fitting: FitArguments) -> Any:
    """Fit a LightGBM estimator; if rows are in a file or rounds are saved, use `lightgbm.train`."""
    import lightgbm

    log, fitted, held_out = fitting.log, fitting.fitted, fitting.held_out

    def log_round(environment: Any) -> None:
        losses = {name: value for name, _, value, *_ in environment.evaluation_result_list}
        metrics = [metric for _, metric, *_ in environment.evaluation_result_list]
        log.metric = metrics[-1] if metrics else ""
        log.add_round(losses.get("training"), losses.get("held out"))

    parameters = dict(fitting.parameters)
    if fitting.categories:
        parameters["categorical_column"] = fitting.categories
    if isinstance(fitted.X, StoredRows) and "force_row_wise" not in fitting.request.options:
        del parameters["force_row_wise"]  # It would store the bins twice.
        parameters["force_col_wise"] = True
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    if isinstance(fitted.X, StoredRows) or fitting.checkpoint is not None:
        return _fit_with_lightgbm(fitting, estimator, log_round)
    eval_sets = {"training": fitted, **({} if held_out is None else {"held out": held_out})}
    callbacks: list[Any] = [log_round]
    if fitting.patience is not None:
        callbacks.append(lightgbm.early_stopping(fitting.patience, verbose=False))
    options: dict[str, Any] = {"eval_names": list(eval_sets), "callbacks": callbacks}
    if "eval_X" in inspect.signature(estimator.fit).parameters:  # LightGBM 4.7 and later
        options["eval_X"] = tuple(part.X for part in eval_sets.values())
        options["eval_y"] = tuple(part.y for part in eval_sets.values())
    else:
        options["eval_set"] = [(part.X, part.y) for part in eval_sets.values()]
    if fitted.weight is not None:
        options["sample_weight"] = fitted.weight
        options["eval_sample_weight"] = [part.weight for part in eval_sets.values()]
    if fitted.group is not None:
        groups = [part.group for part in eval_sets.values() if part.group is not None]
        options["group"] = _compute_group_sizes(fitted.group)
        options["eval_group"] = list(map(_compute_group_sizes, groups))
    return estimator.fit(fitted.X, fitted.y, **options)


def _fit_with_lightgbm(fitting: FitArguments, estimator: Any, log_round: Any) -> Any:
    import lightgbm
    from lightgbm.callback import EarlyStopException

    log, fitted, held_out = fitting.log, fitting.fitted, fitting.held_out
    n_classes = max(fitting.n_classes, 1)
    # A fit on zeros sets the estimator's parameters and all attributes except its trees.
    estimator.fit(np.zeros((2 * n_classes, fitted.X.shape[1])), np.repeat(np.arange(n_classes), 2))
    options = dict(estimator.booster_.params)
    rounds = options.pop("num_iterations")
    # Each segment of a checkpoint reads the raw rows again.
    dataset_options = {"params": options, "free_raw_data": fitting.checkpoint is None}
    datasets = {"training": _make_dataset(fitted, **dataset_options)}
    if held_out is not None:
        datasets["held out"] = _make_dataset(
            held_out, reference=datasets["training"], **dataset_options
        )

    def stop_early(environment: Any) -> None:
        """Stop early like the callback of LightGBM, but count the rounds of all segments."""
        if fitting.patience is not None:
            best_round = _find_best_round(log)
            if len(log.rounds) - 1 - best_round >= fitting.patience:
                raise EarlyStopException(best_round, [])

    def fit_segment(number: int, rounds: int, model: Any) -> Any:
        return lightgbm.train(
            {**options, "random_state": fitting.request.seed + number},
            datasets["training"],
            rounds,
            valid_sets=list(datasets.values()),
            valid_names=list(datasets),
            init_model=model,
            callbacks=[log_round, stop_early],
        )

    def dump(model: Any) -> bytes:
        return str(model.model_to_string(num_iteration=-1)).encode()

    def load(content: bytes) -> Any:
        return lightgbm.Booster(model_str=content.decode())

    model_format = ModelFormat("lightgbm", dump, load)
    booster = fit_in_segments(fitting.checkpoint, log, rounds, fit_segment, model_format)
    estimator._Booster = load(dump(booster))
    if fitting.patience is not None:
        estimator._Booster.best_iteration = estimator._best_iteration = _find_best_round(log) + 1
    return estimator


def _make_dataset(part: EstimatorRows, **options: Any) -> Any:
    import lightgbm

    class Rows(lightgbm.Sequence):
        """Rows that LightGBM reads: single rows to find bins, then all rows in blocks."""

        def __init__(self, rows: StoredRows) -> None:
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

    rows = Rows(part.X) if isinstance(part.X, StoredRows) else part.X
    return lightgbm.Dataset(rows, label=part.y, weight=part.weight, **options)


def _find_best_round(log: TrainingLog) -> int:
    losses = [np.nan if r.eval_loss is None else r.eval_loss for r in log.rounds]
    is_maximized = log.metric.startswith(("auc", "average_precision", "map@", "ndcg@", "r2"))
    return int((np.nanargmax if is_maximized else np.nanargmin)(losses))


def _compute_group_sizes(group: Array) -> Array:
    return np.diff(np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [len(group)]]))


def fit_catboost(fitting: FitArguments) -> Any:
    """Fit a CatBoost estimator to a Pool that declares the categorical columns."""
    import catboost

    log, held_out = fitting.log, fitting.held_out
    errors: list[BaseException] = []

    class RoundLogger:
        def after_iteration(self, info: Any) -> bool:
            metrics = {dataset: next(iter(m.items())) for dataset, m in info.metrics.items() if m}
            log.metric = next(iter(metrics.values()))[0] if metrics else ""
            losses = {dataset: values[-1] for dataset, (_, values) in metrics.items()}
            try:
                log.add_round(losses.get("learn"), losses.get("validation"))
            except BaseException as error:
                errors.append(error)  # CatBoost would wrap it, so it is raised after the fit.
            return not errors

    def make_pool(part: EstimatorRows) -> Any:
        pool_options = {"cat_features": fitting.categories, "weight": part.weight}
        if part.group is not None:
            pool_options["group_id"] = part.group
        return catboost.Pool(part.X, part.y, **pool_options)

    parameters = dict(fitting.parameters)
    if fitting.categories:
        # A clone of the estimator is fitted to a frame, which does not declare categories.
        # CatBoost would copy a list, and scikit-learn's clone rejects copied parameters.
        parameters["cat_features"] = tuple(fitting.categories)
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    options: dict[str, Any] = {}
    if held_out is not None:
        options["eval_set"] = make_pool(held_out)
        options["early_stopping_rounds"] = fitting.patience
        options["use_best_model"] = fitting.patience is not None
    estimator.fit(make_pool(fitting.fitted), callbacks=[RoundLogger()], **options)
    if errors:
        raise errors[0]
    return estimator
