"""All errors that sqlml raises:

```text
SqlmlError
├── ConfigError              a setting or option has an unknown name or value
├── StatementError           the text of a statement
│   ├── ParseError             a statement does not follow the documented syntax
│   └── BindError              a call does not match the model or the table
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
│   ├── VerificationError      the stored model predicts differently from the source library
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
"""Maximum length of a message that is shown unchanged."""

_LONG_NAME = re.compile(r"'[^']{201,}'|\"[^\"]{201,}\"|\S{201,}")


def _shorten(message: str) -> str:
    """Shorten long names in a message. If the message is still too long, remove the middle."""
    if len(message) <= MAX_CHARACTERS:
        return message
    message = _LONG_NAME.sub(lambda match: f"{match[0][:120]}...{match[0][-40:]}", message)
    if len(message) <= 2 * MAX_CHARACTERS:
        return message
    return f"{message[:MAX_CHARACTERS]} ... {message[-MAX_CHARACTERS:]}"


class SqlmlError(Exception):
    """The base class of all errors that sqlml raises.

    If `sql` and `offset` are not None, the error text ends with a line, a column and a caret, as in
    the errors of DuckDB.

    Args:
        message: what is wrong, and how to fix it.
        sql: the text of the statement, if the error is about a statement.
        offset: the 0-based index of the character in `sql` at which the error starts.
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
        """Return a copy that points to `offset` in `sql`. `before` is prepended to the message."""
        error = copy(self)
        SqlmlError.__init__(error, before + self.message, sql, offset)
        return error


class ConfigError(SqlmlError):
    """A setting or option has an unknown name or value."""


class StatementError(SqlmlError):
    """An error in the text of a SQL statement."""


class ParseError(StatementError):
    """A statement about models does not follow the grammar."""


class BindError(StatementError):
    """A model call does not match the model or the table."""


class MissingColumnError(BindError):
    """The call's arguments lack a feature of the model."""


class MissingOutputError(BindError):
    """The call requests an output that the model lacks, such as probabilities of a regression."""


class AmbiguousColumnError(BindError):
    """Two tables in scope have a column with the name of the same feature."""


class ArityError(BindError):
    """A positional call has more or fewer arguments than the model has features."""


class ColumnOrderError(BindError):
    """The positional arguments are the features of the model in a different order."""


class ColumnTypeError(BindError):
    """A column has a type that the feature does not accept."""


class CatalogError(SqlmlError):
    """An error in the model catalog of a database."""


class UnknownModelError(CatalogError, StatementError):
    """The named model or version does not exist."""


class ModelExistsError(CatalogError, StatementError):
    """CREATE MODEL without OR REPLACE names a model that already exists."""


class ConflictError(CatalogError):
    """Another transaction changes the same models at the same time. Roll back and try again."""


class ModelError(SqlmlError):
    """An error about a trained object or an artifact."""


class UnsupportedModelError(ModelError):
    """sqlml does not support an estimator, parameter or operator. The message says why."""


class ArtifactError(ModelError):
    """A file or catalog row is damaged, hostile or in an unknown format."""


class VerificationError(ModelError):
    """Predictions differ from the source library by more than docs/exactness.md allows."""


class UntrustedArtifactError(ModelError):
    """Reading the file would execute code, which the user has not allowed."""


class ProgramError(SqlmlError):
    """A Program violates the rules of the intermediate representation (a bug in sqlml)."""


class BackendError(SqlmlError):
    """A backend cannot run this Program."""


class MissingDependencyError(SqlmlError):
    """An optional library is not installed. The message names the extra."""


class ScoringError(SqlmlError):
    """The rows of a batch cannot be scored."""


class InputTypeError(ScoringError):
    """A batch of rows has a type or shape that the model does not accept."""


class MissingValueError(ScoringError):
    """A value is NULL, NaN or infinite, which the model does not accept."""


class UnknownCategoryError(ScoringError):
    """A category is unknown to a model that rejects unknown categories.

    Attributes:
        feature: the column, or None if unknown.
        step: the step of the model that rejects the category, or None if unknown.
    """

    def __init__(self, message: str, feature: str | None = None, step: str | None = None) -> None:
        self.feature = feature
        self.step = step
        super().__init__(message)


class TrainingWarning(UserWarning):
    """A warning about a property of the training rows that may be unintended."""


def make_error(name: str, message: str) -> SqlmlError | None:
    """Recreate an error of another process, or return None if `name` is not a class of sqlml."""
    cls = globals().get(name)
    return cls(message) if isinstance(cls, type) and issubclass(cls, SqlmlError) else None


def excerpt(sql: str, offset: int) -> str:
    """Return the line of `sql` that contains `offset`, with a caret below the character."""
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
