"""`fit_torch`: networks by torch."""

from __future__ import annotations

from typing import Any

from sqlml.training.fitting.checkpoint import in_segments
from sqlml.training.fitting.fitting import Fitting


def fit_torch(fitting: Fitting) -> Any:
    """A network by torch, epoch by epoch."""
    from sqlml.training.estimators.dnn import Epochs

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
        package="torch",
        growth=0,
        least=1,
    )
    made = segment(0, 0, state)
    del made.state_  # which only another part would need
    return made
