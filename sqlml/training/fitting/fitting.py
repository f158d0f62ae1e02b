"""`Fitting`: what a library fits to what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlml.training.fitting.checkpoint import Checkpoint
from sqlml.training.fitting.training_log import TrainingLog
from sqlml.training.options.request import Request
from sqlml.training.storage.part import Part


@dataclass(frozen=True, slots=True, eq=False)
class Fitting:
    """What is fitted to what.

    parameters: of the estimator. categories: places of the columns of X that are categories.
    held_out: None if no rows are. memory_limit: the engine's, in bytes. classes: how many the label
    has. checkpoint: where rounds are saved, or None.
    """

    request: Request
    parameters: dict[str, Any]
    categories: list[int]
    fitted: Part
    held_out: Part | None
    log: TrainingLog
    memory_limit: float
    classes: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def patience(self) -> int | None:
        """The rounds without a gain after which training ends; None: all rounds are made."""
        return None if self.held_out is None else self.request.early_stopping_rounds
