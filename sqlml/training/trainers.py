"""`Trainers`: what trains models on the rows of a session's queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError
from sqlml.host import RowHost
from sqlml.training.compared_rows import compared_rows
from sqlml.training.options.request import Request
from sqlml.training.storage.part import Part
from sqlml.training.train import Trained, train
from sqlml.training.train_estimator import train_estimator


class Trainers(Protocol):
    """What trains models on the rows of a session's queries."""

    def by_type(self, query: str, request: Request, transform: Sequence[str] | None) -> Trained:
        """A model of a type, as `train` makes it.

        Args:
            transform: the items of TRANSFORM (..).
        """
        ...

    def by_estimator(self, query: str, estimator: Any, request: Request) -> Trained:
        """An estimator of Python's, as `train_estimator` fits it."""
        ...

    def held_out(self, query: str, trained: Trained, model: Model) -> Part:
        """The rows that a training held out, X a frame with the features of another model."""
        ...


@dataclass(frozen=True)
class RowTrainers:
    """Trains on the rows that a host reads."""

    host: RowHost

    def by_type(self, query: str, request: Request, transform: Sequence[str] | None) -> Trained:
        """A model of a type."""
        if request.num_workers is not None:
            raise ConfigError(
                "option num_workers applies only to boosted trees by xgboost in Spark"
            )
        return train(self.host, query, request, transform)

    def by_estimator(self, query: str, estimator: Any, request: Request) -> Trained:
        """An estimator of Python's."""
        return train_estimator(self.host, query, estimator, request)

    def held_out(self, query: str, trained: Trained, model: Model) -> Part:
        """The rows that a training held out, for another model."""
        made = any(column.expression is not None for column in trained.columns.features)
        if model.transform is not None or made:
            return compared_rows(self.host, query, trained, model)
        assert trained.held_out_rows is not None
        return trained.held_out_rows()
