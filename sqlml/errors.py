"""Every error that sqlml raises, as one tree:

```text
SqlmlError
├── ConfigError              a setting or option has an unknown name or value
├── StatementError           the text of a statement
│   ├── ParseError             it does not follow the documented syntax
│   ├── NotYetError            it is reserved for a later version
│   └── BindError              a call does not fit its model or its table
│       ├── MissingColumnError   the table lacks a feature of the model
│       ├── MissingOutputError   the model does not give what is asked for
│       ├── AmbiguousColumnError two tables have the same feature
│       ├── ArityError           too many or too few positional arguments
│       ├── ColumnOrderError     positional arguments are features in another order
│       └── ColumnTypeError      a column's type does not feed the feature
├── CatalogError             the model catalog
│   ├── UnknownModelError
│   ├── ModelExistsError
│   └── ConflictError          another transaction changes the same models
├── ModelError               a trained object or an artifact
│   ├── UnsupportedModelError  an estimator, parameter or operator that we do not cover
│   ├── ArtifactError          a damaged or hostile file or catalog row
│   ├── VerificationError      the stored model predicts differently from its source
│   └── UntrustedArtifactError the file would execute code without permission
├── ProgramError             a Program that breaks the rules of the IR (a bug in sqlml)
├── BackendError             a backend cannot run this Program
│   └── MissingDependencyError an optional library is not installed
└── ScoringError             the rows of a batch
    ├── InputTypeError         the batch has another type or shape than the model
    ├── MissingValueError      NULL, NaN or infinity where the model accepts none
    └── UnknownCategoryError   a category that the model has never seen
```
"""

from __future__ import annotations

import re
from copy import copy

MOST = 2000
"""Characters of a message that is shown as it is."""

_LONG = re.compile(r"'[^']{201,}'|\"[^\"]{201,}\"|\S{201,}")


def _shortened(message: str) -> str:
    """Return a message in which very long names, and the middle of a very long text, are cut."""
    if len(message) <= MOST:
        return message
    message = _LONG.sub(lambda name: f"{name[0][:120]}...{name[0][-40:]}", message)
    return message if len(message) <= 2 * MOST else f"{message[:MOST]} ... {message[-MOST:]}"


class SqlmlError(Exception):
    """Base of all errors of sqlml; the message names the fix.

    `sql` is the statement's text and `offset` the 0-based character where the trouble starts, if
    that is known; with both, the text ends with line, column and a caret, as DuckDB's errors do.
    """

    def __init__(self, message: str, sql: str | None = None, offset: int | None = None) -> None:
        self.message = message = _shortened(message)
        self.sql = sql
        self.offset = offset
        if sql is not None and offset is not None:
            message = f"{message}\n\n{excerpt(sql, offset)}"
        super().__init__(message)

    def at(self, sql: str, offset: int, before: str = "") -> SqlmlError:
        """Return a copy that shows `offset` in `sql`, with `before` in front of its message."""
        made = copy(self)
        SqlmlError.__init__(made, before + self.message, sql, offset)
        return made


class ConfigError(SqlmlError):
    """A setting or option has an unknown name or value."""


class StatementError(SqlmlError):
    """An error in the text of a SQL statement."""


class ParseError(StatementError):
    """A statement about models that is not written as the grammar says."""


class NotYetError(StatementError):
    """A statement or function that is reserved for a later version."""


class BindError(StatementError):
    """A model call that does not fit its model or its table."""


class MissingColumnError(BindError):
    """The call's arguments lack a feature of the model."""


class MissingOutputError(BindError):
    """The call asks for what the model does not give, such as probabilities of a regression."""


class AmbiguousColumnError(BindError):
    """Two tables in scope have a column with the name of the same feature."""


class ArityError(BindError):
    """A positional call has more or fewer arguments than the model has features."""


class ColumnOrderError(BindError):
    """Positional arguments are the model's features, but in another order."""


class ColumnTypeError(BindError):
    """A column has a type that cannot feed its feature."""


class CatalogError(SqlmlError):
    """The model catalog of a database."""


class UnknownModelError(CatalogError, StatementError):
    """Unknown model or version."""


class ModelExistsError(CatalogError, StatementError):
    """CREATE MODEL without OR REPLACE on a name that is taken."""


class ConflictError(CatalogError):
    """Another transaction changes the same models at the same time: roll back and try again."""


class ModelError(SqlmlError):
    """A trained object or an artifact."""


class UnsupportedModelError(ModelError):
    """An estimator, parameter or operator that sqlml does not cover; the message says why."""


class ArtifactError(ModelError):
    """A file or catalog row that is damaged, hostile or of another format."""


class VerificationError(ModelError):
    """A model whose numbers differ from its source's by more than docs/exactness.md allows."""


class UntrustedArtifactError(ModelError):
    """Reading the file would execute code, which the user has not allowed."""


class ProgramError(SqlmlError):
    """A Program that breaks the rules of the IR."""


class BackendError(SqlmlError):
    """A backend cannot run this Program."""


class MissingDependencyError(BackendError):
    """An optional library is not installed; the message names the extra."""


class ScoringError(SqlmlError):
    """The rows of a batch cannot be scored."""


class InputTypeError(ScoringError):
    """A batch has another type or shape than the model."""


class MissingValueError(ScoringError):
    """NULL, NaN or infinity where the model accepts none."""


class UnknownCategoryError(ScoringError):
    """A category that the model has never seen, where the model is told to raise.

    `feature` is the column and `step` what refuses the category, where they are known.
    """

    def __init__(self, message: str, feature: str | None = None, step: str | None = None) -> None:
        self.feature = feature
        self.step = step
        super().__init__(message)


class TrainingWarning(UserWarning):
    """What may be unintended about the rows that a model was trained on."""


def named(name: str, message: str) -> SqlmlError | None:
    """The error of the class `name` of this module, as another process tells it; None if it has no
    such class."""
    kind = globals().get(name)
    return kind(message) if isinstance(kind, type) and issubclass(kind, SqlmlError) else None


def excerpt(sql: str, offset: int) -> str:
    """The line of `sql` that holds `offset`, with a caret below the place."""
    offset = max(0, min(offset, len(sql)))
    line_start = sql.rfind("\n", 0, offset) + 1
    line_end = sql.find("\n", offset)
    line = sql[line_start : len(sql) if line_end < 0 else line_end]
    number = sql.count("\n", 0, offset) + 1
    column = offset - line_start
    start = max(0, column - 60)
    shown = line[start : start + 120].replace("\t", " ")
    head = f"LINE {number}: " + ("..." if start else "")
    return f"{head}{shown}\n{' ' * (len(head) + column - start)}^ column {column + 1}"
