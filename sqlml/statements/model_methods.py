"""`ModelMethods`: what a session does with models that are objects of Python, on either engine."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Self

from sqlml.catalog.model import parse_reference
from sqlml.errors import ConfigError, TrainingWarning
from sqlml.parsing.statements import Training
from sqlml.statements.build_version import Registration, whole_model
from sqlml.statements.create import add_object, create_from_object
from sqlml.statements.description import ModelDescription, describe
from sqlml.statements.export import export_model
from sqlml.statements.models import Models
from sqlml.statements.train import stored_estimator, train_object
from sqlml.terminal import escape_controls


class ModelMethods(ABC):
    """A part of each session: CREATE MODEL, ADD VERSION and EXPORT MODEL as methods."""

    _models: Models

    def create_model(
        self,
        name: str,
        model: Any,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Any,
    ) -> Self:
        """Register a fitted object, as CREATE MODEL does a file.

        Args:
            name: `model` or `database.model`.
            model: an estimator, pipeline, booster, module, .. (docs/operators.md lists them all).
            inputs: names of the columns in training order, or name -> SQL type, where the object
                was fitted without names.
            or_replace: if the model exists, add a version and make it the default.
            if_not_exists: if the model exists, do nothing.
            comment: a text that SHOW MODELS and DESCRIBE MODEL repeat.
            options: those of a model (`on_null`, `positive_class`, `backend`, ..); and `verify`:
                True compares the stored model with the object on rows made for that, and refuses
                one that answers otherwise, "record" only keeps what was found, False compares
                nothing.

        Returns:
            The session.

        Raises:
            UnsupportedModelError: sqlml cannot reproduce the object; the message says what of it.
            ModelExistsError: the name is taken.
            ConfigError: an unknown option, or a value that it does not have.
            VerificationError: the stored model answers otherwise than the object.
        """
        with self._calling():
            self._before_change()
            wanted = Registration(
                whole_model(name),
                inputs,
                comment=comment,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                options=options,
            )
            create_from_object(self._models, model, wanted)
        return self

    def add_version(
        self,
        name: str,
        model: Any,
        *,
        number: int | None = None,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        comment: str | None = None,
        **options: Any,
    ) -> Self:
        """Add a version to a model, as ALTER MODEL .. ADD VERSION does; the default one stays.

        Args:
            name: `model` or `database.model`.
            model: a fitted object.
            number: of the version; None: one more than the last one ever made.
            inputs: as `create_model` takes them.
            comment: of the version.
            options: as `create_model` takes them.

        Returns:
            The session.

        Raises:
            UnknownModelError: no such model.
            UnsupportedModelError: sqlml cannot reproduce the object.
            ModelExistsError: the model has a version of this number.
            ConfigError: an unknown option, or a value that it does not have.
        """
        with self._calling():
            self._before_change()
            wanted = Registration(
                whole_model(name), inputs, comment=comment, number=number, options=options
            )
            add_object(self._models, model, wanted)
        return self

    def train(
        self,
        name: str,
        what: Any,
        query: str,
        *,
        label: str | None = None,
        parameters: Any = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Any,
    ) -> Self:
        """Train a model on the rows of a query, as CREATE MODEL .. AS SELECT does.

        Args:
            name: `model` or `database.model`.
            what: the name of a model type ("boosted_tree_classifier"), or an estimator that is not
                fitted (also a pipeline or a search); a clone of it is fitted to a pandas frame.
            query: a SELECT whose rows the model learns from.
            label: the column to predict.
            parameters: values of the query's parameters.
            or_replace: if the model exists, add a version and make it the default.
            if_not_exists: if the model exists, do nothing.
            comment: a text that SHOW MODELS and DESCRIBE MODEL repeat.
            options: those of OPTIONS (..); with an estimator only sqlml's own.

        Returns:
            The session. What may be unintended about the rows is told by a `TrainingWarning`.

        Raises:
            ConfigError: an option or the rows do not suit the model.
            MissingColumnError: an option names a column that the query lacks.
            MissingDependencyError: the library is not installed.
            ModelExistsError: the name is taken.
            UnsupportedModelError: sqlml cannot reproduce the fitted estimator.
            VerificationError: the stored model answers otherwise than the estimator.
            ParseError: the query is none.
        """
        if not isinstance(query, str):
            raise ConfigError(
                "train takes the text of a query; a frame has a name after con.register('rows', "
                "frame), as in SELECT * FROM rows"
            )
        given = {**options, **({} if label is None else {"label": label})}
        with self._calling():
            self._before_change()
            host = self._models.host
            query = host.with_values(query, parameters) if parameters else query
            training = Training(query, MappingProxyType(given), None, comment)
            found = train_object(
                self._models,
                whole_model(name),
                what,
                training,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
            )
        for notice in found:
            text = escape_controls(f"model {name}: {notice}")
            warnings.warn(text, TrainingWarning, stacklevel=2)
        return self

    def estimator(self, name: str) -> Any:
        """The fitted object of a model that was trained by `train` or CREATE MODEL .. AS SELECT.

        Args:
            name: `model` or `database.model`, also of a version: `model/2`.

        Returns:
            An estimator or a pipeline of scikit-learn's kind, with `predict`.

        Raises:
            UntrustedArtifactError: it would be unpickled, which executes code of the database, and
                the session was not opened with allow_pickle=True.
            CatalogError: it was not trained by sqlml, or with keep_estimator = false.
            UnknownModelError: no such model or version.
        """
        with self._calling():
            self._before_change()  # which lets go of an open result
            return stored_estimator(self._models, parse_reference(name))

    def models(self) -> Any:
        """The models of the current database, as SHOW MODELS tells of them: a relation."""
        return self.sql("SHOW MODELS")

    def model(self, name: str) -> ModelDescription:
        """What a model is and what it reads, as DESCRIBE MODEL tells of it.

        Args:
            name: `model` or `database.model`, also of a version: `model/2`, `model@alias`.

        Raises:
            UnknownModelError: no such model or version.
        """
        with self._calling():
            self._before_change()  # which lets go of an open result
            return describe(self._models, parse_reference(name))

    def export_model(
        self, name: str, path: str | os.PathLike[str], *, format: str | None = None
    ) -> Self:
        """Write a model to a file, as EXPORT MODEL does.

        Args:
            name: `model` or `database.model`, also of a version: `model/2`.
            path: of the file to write.
            format: "ONNX", "SQLML" or "SQL" (macros); by default what the ending of the path
                implies.

        Returns:
            The session.

        Raises:
            UnknownModelError: no such model or version.
            ConfigError: an unknown format, or the ending implies none.
            BackendError: that format cannot express the model; the message says why.
        """
        with self._calling():
            self._before_change()
            export_model(self._models, parse_reference(name), os.fspath(path), format)
        return self

    @abstractmethod
    def sql(self, query: Any, *args: Any, **options: Any) -> Any:
        """A query as a lazy relation of the engine."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @abstractmethod
    def _calling(self) -> AbstractContextManager[object]:
        """What holds while a user's call is carried out."""

    @abstractmethod
    def _before_change(self) -> None:
        """What comes before a change: it may be refused, or an open result be in its way."""
