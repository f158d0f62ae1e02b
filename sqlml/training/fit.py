"""`fit`: an estimator is fitted as its library does it, with rows held out and rounds logged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.training.checkpoint import Checkpoint, in_segments
from sqlml.training.part import Part, blocks_of
from sqlml.training.request import Request
from sqlml.training.row_store import BLOCK, StoredRows
from sqlml.training.training_log import TrainingLog
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Fitting:
    """What is fitted to what.

    parameters: of the estimator. categories: places of the columns of X that are categories.
    held_out: None if no rows are. classes: how many the label has. checkpoint: where
    rounds are saved, or None.
    """

    request: Request
    parameters: dict[str, Any]
    categories: list[int]
    fitted: Part
    held_out: Part | None
    log: TrainingLog
    classes: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def patience(self) -> int | None:
        """The rounds without a gain after which training ends; None: all rounds are made."""
        return None if self.held_out is None else self.request.early_stopping_rounds


def fit(fitting: Fitting) -> Any:
    """The fitted estimator.

    Raises:
        Exception: whatever the library raises.
    """
    names = ("n_estimators", "iterations", "max_iter", "max_epochs")
    rounds = next((fitting.parameters[n] for n in names if n in fitting.parameters), None)
    fitting.log.start(rounds)
    made = FITTERS[fitting.request.trainer.package](fitting)
    if fitting.checkpoint is not None:
        fitting.checkpoint.remove()
    return made


def _fit_xgboost(fitting: Fitting) -> Any:
    """By XGBoost's own train, from a matrix that it makes block by block."""
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
    estimator = kind(**parameters, early_stopping_rounds=fitting.patience)
    options = _options_of_xgboost(estimator, fitting)
    types = parameters.get("feature_types")
    matrix = _xgboost_matrix(data, types, estimator)
    sides = [(matrix, "training")]
    if held_out is not None:
        sides.append((_xgboost_matrix(held_out, types, estimator, matrix), "held_out"))
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
    booster = in_segments(checkpoint, log, rounds, segment, _ubjson, load)
    made = kind(**parameters, early_stopping_rounds=fitting.patience)
    made.load_model(booster.save_raw("ubj"))
    return made


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


def _xgboost_matrix(part: Part, types: Any, estimator: Any, reference: Any = None) -> Any:
    """The rows as XGBoost's estimators hold them: a byte a number where it counts in bins."""
    import xgboost

    options = {"nthread": estimator.n_jobs, "enable_categorical": types is not None}
    of_rows = {"label": part.y, "weight": part.weight, "qid": part.group}
    given = {name: v for name, v in of_rows.items() if v is not None}
    if estimator.booster == "gblinear" or estimator.tree_method not in _BINNED:
        X = part.X.array() if isinstance(part.X, StoredRows) else part.X
        return xgboost.DMatrix(X, feature_types=types, **given, **options)

    class Blocks(xgboost.DataIter):
        """The rows, as often as XGBoost asks for them."""

        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def reset(self) -> None:
            self._blocks = blocks_of(part.X)
            self._row = 0

        def next(self, input_data: Any) -> bool:
            block = next(self._blocks, None)
            if block is None:
                return False
            rows = slice(self._row, self._row + len(block))
            self._row = rows.stop
            own = {name: v[rows] for name, v in given.items()}
            input_data(data=block, feature_types=types, **own)
            return True

    bins = getattr(estimator, "max_bin", None)
    return xgboost.QuantileDMatrix(Blocks(), max_bin=bins, ref=reference, **options)


_BINNED = ("hist", "auto", None)
"""Values of tree_method that count in bins."""


def _fit_lightgbm(fitting: Fitting) -> Any:
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
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    if isinstance(data.X, StoredRows) or fitting.checkpoint is not None:
        return _fit_lightgbm_by_train(fitting, estimator, logging)
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


def _fit_lightgbm_by_train(fitting: Fitting, estimator: Any, logging: Any) -> Any:
    """By LightGBM's own train, from rows that it reads from a file, or in segments."""
    import lightgbm
    from lightgbm.callback import EarlyStopException

    class Rows(lightgbm.Sequence):
        """Rows that LightGBM asks for: single ones to find bins, then all in blocks."""

        def __init__(self, rows: Any) -> None:
            self.batch_size = BLOCK
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

    booster = in_segments(fitting.checkpoint, fitting.log, rounds, segment, dump, load)
    estimator._Booster = load(dump(booster))
    if fitting.patience is not None:
        estimator._Booster.best_iteration = estimator._best_iteration = best() + 1
    return estimator


_RISES = ("auc", "average_precision", "map@", "ndcg@", "r2")
"""How the names of LightGBM's metrics begin of which more is better."""


def _fit_catboost(fitting: Fitting) -> Any:
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

    estimator = fitting.request.trainer.estimator_class()(**fitting.parameters)
    options: dict[str, Any] = {}
    if held_out is not None:
        options["eval_set"] = pool(held_out)
        options["early_stopping_rounds"] = fitting.patience
        options["use_best_model"] = fitting.patience is not None
    estimator.fit(pool(fitting.fitted), callbacks=[Logging()], **options)
    if raised:
        raise raised[0]
    return estimator


def _fit_torch(fitting: Fitting) -> Any:
    from sqlml.training.dnn import Epochs

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
        growth=0,
        least=1,
    )
    made = segment(0, 0, state)
    del made.state_  # which only another part would need
    return made


def _fit_sklearn(fitting: Fitting) -> Any:
    data, held_out = fitting.fitted, fitting.held_out
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


def _sizes(group: Array) -> Array:
    """(g,) the numbers of neighbours with equal ids (n,)."""
    ends = np.flatnonzero(np.diff(group)) + 1
    made: Array = np.diff(np.concatenate([[0], ends, [len(group)]]))
    return made


FITTERS: Mapping[str, Callable[[Fitting], Any]] = MappingProxyType(
    {
        "xgboost": _fit_xgboost,
        "lightgbm": _fit_lightgbm,
        "catboost": _fit_catboost,
        "sklearn": _fit_sklearn,
        "torch": _fit_torch,
    }
)
"""Package of an estimator -> what fits it."""
