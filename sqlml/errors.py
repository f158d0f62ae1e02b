"""All errors that sqlml raises:

```text
SqlmlError
├── ConfigError              a setting or option has an unknown name or value
├── StatementError           the text of a statement
│   ├── ParseError             it does not follow the documented syntax
│   ├── NotYetError            it is reserved for a later version
│   └── BindError              a call does not fit its model or its table
│       ├── MissingColumnError   the table lacks a feature of the model
│       ├── MissingOutputError   the model lacks the requested output
│       ├── AmbiguousColumnError two tables have the same feature
│       ├── ArityError           too many or too few positional arguments
│       ├── ColumnOrderError     positional arguments are features in another order
│       └── ColumnTypeError      a column's type does not feed the feature
├── CatalogError             the model catalog
│   ├── UnknownModelError
│   ├── ModelExistsError
│   └── ConflictError          another transaction changes the same models
├── ModelError               a trained object or an artifact
│   ├── UnsupportedModelError  an estimator, parameter or operator that is not supported
│   ├── ArtifactError          a damaged or hostile file or catalog row
│   ├── VerificationError      the stored model predicts differently from its source
│   └── UntrustedArtifactError the file would execute code without permission
├── ProgramError             a Program that breaks the rules of the IR (a bug in sqlml)
├── BackendError             a backend cannot run this Program
├── MissingDependencyError   an optional library is not installed
└── ScoringError             the rows of a batch
    ├── InputTypeError         the batch has another type or shape than the model
    ├── MissingValueError      NULL, NaN or infinity where the model accepts none
    └── UnknownCategoryError   a category that the model has never seen
```
"""

from __future__ import annotations

import re
from copy import copy

MAX_CHARACTERS = 2000
"""Length of the longest message that is shown unchanged."""

_LONG_NAME = re.compile(r"'[^']{201,}'|\"[^\"]{201,}\"|\S{201,}")


def _shorten(message: str) -> str:
    """Shorten very long names in a message, then the middle of a message that is still too long."""
    if len(message) <= MAX_CHARACTERS:
        return message
    message = _LONG_NAME.sub(lambda match: f"{match[0][:120]}...{match[0][-40:]}", message)
    if len(message) <= 2 * MAX_CHARACTERS:
        return message
    return f"{message[:MAX_CHARACTERS]} ... {message[-MAX_CHARACTERS:]}"


class SqlmlError(Exception):
    """Base of all errors of sqlml.

    Args:
        message: what is wrong, and how to fix it.
        sql: the text of the statement, if the error is about one.
        offset: the 0-based character in `sql` at which the error starts. With both, the text of
            the error ends with line, column and a caret, as DuckDB's errors do.
    """

    def __init__(self, message: str, sql: str | None = None, offset: int | None = None) -> None:
        self.message: str = _shorten(message)
        self.sql = sql
        self.offset = offset
        if sql is None or offset is None:
            super().__init__(self.message)
        else:
            super().__init__(f"{self.message}\n\n{excerpt(sql, offset)}")

    def at(self, sql: str, offset: int, before: str = "") -> SqlmlError:
        """Return a copy that points to `offset` in `sql`, with `before` in front of its message."""
        error = copy(self)
        SqlmlError.__init__(error, before + self.message, sql, offset)
        return error


class ConfigError(SqlmlError):
    """A setting or option has an unknown name or value."""


class StatementError(SqlmlError):
    """An error in the text of a SQL statement."""


class ParseError(StatementError):
    """A statement about models that breaks the grammar."""


class NotYetError(StatementError):
    """A statement or function that is reserved for a later version."""


class BindError(StatementError):
    """A model call that does not fit its model or its table."""


class MissingColumnError(BindError):
    """The call's arguments lack a feature of the model."""


class MissingOutputError(BindError):
    """The call requests an output that the model lacks, such as probabilities of a regression."""


class AmbiguousColumnError(BindError):
    """Two tables in scope have a column with the name of the same feature."""


class ArityError(BindError):
    """A positional call has more or fewer arguments than the model has features."""


class ColumnOrderError(BindError):
    """Positional arguments are the model's features, but in another order."""


class ColumnTypeError(BindError):
    """A column has a type that cannot feed its feature."""


class CatalogError(SqlmlError):
    """An error in the model catalog of a database."""


class UnknownModelError(CatalogError, StatementError):
    """Unknown model or version."""


class ModelExistsError(CatalogError, StatementError):
    """CREATE MODEL without OR REPLACE on a name that is taken."""


class ConflictError(CatalogError):
    """Another transaction changes the same models at the same time: roll back and try again."""


class ModelError(SqlmlError):
    """An error about a trained object or an artifact."""


class UnsupportedModelError(ModelError):
    """An estimator, parameter or operator that sqlml does not support; the message says why."""


class ArtifactError(ModelError):
    """A file or catalog row that is damaged, hostile or of another format."""


class VerificationError(ModelError):
    """The predictions of a model differ from its source by more than docs/exactness.md allows."""


class UntrustedArtifactError(ModelError):
    """Reading the file would execute code, which the user has not allowed."""


class ProgramError(SqlmlError):
    """A Program that breaks the rules of the IR."""


class BackendError(SqlmlError):
    """A backend cannot run this Program."""


class MissingDependencyError(SqlmlError):
    """An optional library is not installed; the message names the extra."""


class ScoringError(SqlmlError):
    """The rows of a batch cannot be scored."""


class InputTypeError(ScoringError):
    """A batch has another type or shape than the model."""


class MissingValueError(ScoringError):
    """NULL, NaN or infinity where the model accepts none."""


class UnknownCategoryError(ScoringError):
    """A category that the model has never seen, if the model must reject it.

    Attributes:
        feature: the column, if it is known.
        step: the step of the model that rejects the category, if it is known.
    """

    def __init__(self, message: str, feature: str | None = None, step: str | None = None) -> None:
        self.feature = feature
        self.step = step
        super().__init__(message)


class TrainingWarning(UserWarning):
    """Something that may be unintended in the rows that a model was trained on."""


def make_error(name: str, message: str) -> SqlmlError | None:
    """Recreate an error that another process raised; None if `name` is not an sqlml error class."""
    cls = globals().get(name)
    return cls(message) if isinstance(cls, type) and issubclass(cls, SqlmlError) else None


def excerpt(sql: str, offset: int) -> str:
    """Return the line of `sql` that contains `offset`, with a caret below that character."""
    offset = max(0, min(offset, len(sql)))
    line_start = sql.rfind("\n", 0, offset) + 1
    line_end = sql.find("\n", offset)
    line = sql[line_start : len(sql) if line_end < 0 else line_end]
    line_number = sql.count("\n", 0, offset) + 1
    column = offset - line_start
    start = max(0, column - 60)
    visible = line[start : start + 120].replace("\t", " ")
    prefix = f"LINE {line_number}: " + ("..." if start else "")
    return f"{prefix}{visible}\n{' ' * (len(prefix) + column - start)}^ column {column + 1}"
