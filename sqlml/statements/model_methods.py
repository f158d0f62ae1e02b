"""The methods by which sessions of both engines register, train, describe and export models."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from sqlml.catalog.model import parse_reference
from sqlml.errors import ConfigError, TrainingWarning
from sqlml.parsing.statements import Description, Training
from sqlml.statements.connection_models import Models
from sqlml.statements.create_model import (
    ModelRequest,
    add_object,
    create_from_object,
    parse_model_name,
)
from sqlml.statements.describe_model import ModelDescription, describe
from sqlml.statements.export_model import export_model
from sqlml.statements.model_options import ModelOptions, TrainingOptions
from sqlml.statements.train_model import load_estimator, train_and_create
from sqlml.terminal import escape_controls

Relation = TypeVar("Relation")
"""Type of a query's result: a relation of DuckDB, or a DataFrame of Spark."""


def _merge_options(
    what: object,
    options: Mapping[str, Any],
    label: str | None,
    library_options: Mapping[str, object],
) -> dict[str, Any]:
    merged_options = {**options, **({} if label is None else {"label": label})}
    for option, value in library_options.items():
        if merged_options.setdefault(option, value) is not value:
            raise ConfigError(f"option {option} is also among library_options; give it once")
    return {**merged_options, "model_type": what} if isinstance(what, str) else merged_options


class NewModel(ModelDescription):
    """The description of a model that was just registered.

    Earlier versions of sqlml returned the session instead. Code that calls a session method on the
    result still runs, with a DeprecationWarning.
    """

    __slots__ = ("_session",)

    _session: Any

    if not TYPE_CHECKING:  # Type checkers then report misspelt attributes.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or not hasattr(self._session, name):
                raise AttributeError(f"a model description has no attribute {name!r}")
            warnings.warn(
                f"create_model, add_version and train return a description of the model; call "
                f"{name} on the session",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(self._session, name)


class ModelMethods(ABC, Generic[Relation]):
    """The base class of sessions, with the methods that are the same on every engine."""

    _models: Models

    def create_model(
        self,
        name: str,
        model: object,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Unpack[ModelOptions],
    ) -> ModelDescription:
        """Register a fitted object as a model, like CREATE MODEL for a file.

        Args:
            name: `model` or `database.model`.
            model: a fitted estimator, pipeline, booster, module, ...; docs/operators.md lists all.
            inputs: the column names in training order, or a mapping of names to SQL types, if the
                object was fitted without names.
            or_replace: if the model exists, add a version and make it the default.
            if_not_exists: if the model exists, do nothing.
            comment: a text that SHOW MODELS and DESCRIBE MODEL show.
            options: options of the model (`on_null`, `positive_class`, `backend`, ...), and
                `verify`: `True` compares the stored model with the object on generated rows and
                rejects it if the predictions differ, `"record"` only stores the result of the
                comparison, and `False` skips the comparison.

        Returns:
            The description of the model's default version.

        Raises:
            UnsupportedModelError: sqlml cannot reproduce the object; the message says why.
            ModelExistsError: the name is taken.
            ConfigError: an option is unknown or has an invalid value.
            VerificationError: the stored model and the object predict differently.
        """
        with self._calling():
            self._before_change()
            request = ModelRequest(
                parse_model_name(name),
                inputs,
                description=Description.of(comment),
                or_replace=or_replace,
                if_not_exists=if_not_exists,
                options=options,
            )
            create_from_object(self._models, model, request)
            return self._describe_new(name)

    def add_version(
        self,
        name: str,
        model: object,
        *,
        number: int | None = None,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        comment: str | None = None,
        **options: Unpack[ModelOptions],
    ) -> ModelDescription:
        """Add a version to a model, like ALTER MODEL ... ADD VERSION.

        The default version does not change.

        Args:
            name: `model` or `database.model`.
            model: a fitted object, as for `create_model`.
            number: the number of the version; by default, one more than the highest number ever
                used.
            inputs: the column names, as for `create_model`.
            comment: a comment on the version.
            options: the same options as for `create_model`.

        Returns:
            The description of the new version.

        Raises:
            UnknownModelError: the model does not exist.
            UnsupportedModelError: sqlml cannot reproduce the object.
            ModelExistsError: the model already has a version with this number.
            ConfigError: an option is unknown or has an invalid value.
        """
        with self._calling():
            self._before_change()
            request = ModelRequest(
                parse_model_name(name),
                inputs,
                description=Description.of(comment),
                number=number,
                options=options,
            )
            add_object(self._models, model, request)
            return self._describe_new(f"{name}@last")

    def train(
        self,
        name: str,
        what: object,
        query: str,
        *,
        label: str | None = None,
        parameters: Sequence[object] | Mapping[str, object] | None = None,
        library_options: Mapping[str, object] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Unpack[TrainingOptions],
    ) -> ModelDescription:
        """Train a model on the rows of a query, like CREATE MODEL ... AS SELECT.

        Args:
            name: `model` or `database.model`.
            what: the name of a model type such as "boosted_tree_classifier", or an unfitted
                estimator, pipeline or search. A clone of it is fitted to a pandas frame.
            query: a SELECT that returns the training rows.
            label: the column to predict.
            parameters: values for the parameters of the query.
            library_options: more parameters of the library's estimator, by the library's names.
            or_replace: if the model exists, add a version and make it the default.
            if_not_exists: if the model exists, do nothing.
            comment: a text that SHOW MODELS and DESCRIBE MODEL show.
            options: the options that OPTIONS (...) accepts in SQL. An estimator accepts only the
                options of sqlml.

        Returns:
            The description of the model's default version, with its `metrics`. A `TrainingWarning`
            reports properties of the rows that may be unintended.

        Raises:
            ConfigError: an option or the training rows do not fit the model.
            MissingColumnError: an option names a column that the query does not return.
            MissingDependencyError: the library is not installed.
            ModelExistsError: the name is taken.
            UnsupportedModelError: sqlml cannot reproduce the fitted estimator.
            VerificationError: the stored model and the estimator predict differently.
            ParseError: `query` is not a query.
        """
        if not isinstance(query, str):
            advice = (
                "a frame has a name after con.register('rows', frame), as in SELECT * FROM rows"
            )
            raise ConfigError(f"train takes the text of a query; {advice}")
        all_options = _merge_options(what, options, label, library_options or {})
        with self._calling():
            self._before_change()
            if parameters:
                query = self._models.host.with_values(query, parameters)
            version = train_and_create(
                self._models,
                parse_model_name(name),
                Training(query, all_options, None, Description.of(comment)),
                None if isinstance(what, str) else what,
                or_replace=or_replace,
                if_not_exists=if_not_exists,
            )
            description = self._describe_new(name)
        for notice in version.training.notices if version and version.training else ():
            warnings.warn(escape_controls(f"model {name}: {notice}"), TrainingWarning, stacklevel=2)
        return description

    def estimator(self, name: str) -> Any:
        """Load the fitted object of a model that sqlml trained.

        Args:
            name: `model` or `database.model`, or a version of it: `model/2`.

        Returns:
            The fitted estimator or pipeline, an object of its library.

        Raises:
            UntrustedArtifactError: the object must be unpickled, which executes code from the
                database, and the session was not opened with allow_pickle=True.
            CatalogError: sqlml did not train the model, or trained it with keep_estimator = false.
            UnknownModelError: the model or version does not exist.
        """
        with self._calling():
            self._before_change()
            return load_estimator(self._models, parse_reference(name))

    def models(self) -> Relation:
        """List the models of the current database in a relation, like SHOW MODELS."""
        return self.sql("SHOW MODELS")

    def model(self, name: str) -> ModelDescription:
        """Describe the inputs, outputs and origin of a model, like DESCRIBE MODEL.

        Args:
            name: `model` or `database.model`, or a version of it: `model/2`, `model@alias`.

        Raises:
            UnknownModelError: the model or version does not exist.
        """
        with self._calling():
            self._before_change()
            return describe(self._models, parse_reference(name))

    def export_model(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        platform: str | None = None,
    ) -> Self:
        """Write a model to a file, like EXPORT MODEL.

        Args:
            name: `model` or `database.model`, or a version of it: `model/2`.
            path: the path of the file to write.
            format: "ONNX", "SQLML", "SQL" (macros) or "EXTENSION" (of DuckDB); by default, the
                extension of `path` implies the format.
            platform: the platform that an extension of DuckDB is for, by DuckDB's name of it, such
                as "linux_arm64"; by default, this platform.

        Returns:
            The session.

        Raises:
            UnknownModelError: the model or version does not exist.
            ConfigError: the format is unknown, or the extension does not imply a format.
            BackendError: the format cannot express the model; the message says why.
        """
        with self._calling():
            self._before_change()
            reference = parse_reference(name)
            export_model(self._models, reference, os.fspath(path), format, platform)
        return self

    @abstractmethod
    def sql(self, query: Any) -> Relation:
        """Make a lazy relation of the engine from a query."""

    @abstractmethod
    def close(self) -> None:
        """Close the session, and release its models and the resources of the engine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _describe_new(self, name: str) -> ModelDescription:
        description = describe(self._models, parse_reference(name))
        new_model = NewModel(*(getattr(description, field) for field in ModelDescription.__slots__))
        object.__setattr__(new_model, "_session", self)
        return new_model

    @abstractmethod
    def _calling(self) -> AbstractContextManager[object]:
        """Return a context manager that encloses a user's call of a method."""

    @abstractmethod
    def _before_change(self) -> None:
        """Check that models may be changed now, and finish an open query result."""
