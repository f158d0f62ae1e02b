"""`fit_sklearn`: whatever scikit-learn trains."""

from __future__ import annotations

from typing import Any

from sqlml.training.fitting.block_fitting import fit_by_blocks
from sqlml.training.fitting.fitting import Fitting
from sqlml.training.storage.blocks import Blocks


def fit_sklearn(fitting: Fitting) -> Any:
    """An estimator of scikit-learn, or what learns from blocks in its place."""
    data, held_out = fitting.fitted, fitting.held_out
    if isinstance(data.X, Blocks):
        return fit_by_blocks(fitting)
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
