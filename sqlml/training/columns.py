"""`columns_of`: what the columns of a training query are to a model, by their SQL types."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.type_names import NUMBERS
from sqlml.errors import ConfigError
from sqlml.training.request import Request
from sqlml.types import fold

Role = Literal["number", "category"]
"""A feature that is a number (NULL is NaN), or one of several names (NULL is a name of its own, or
missing, as the estimator has it)."""

_WIDE = re.compile(r"DECIMAL\(.*\)|U?HUGEINT|UBIGINT|BIGNUM|VARINT")
"""Numbers that numpy has no type for, or a pandas frame no column."""

_NAMES = re.compile(r"(VARCHAR( COLLATE \w+)?|ENUM\(.*\)|UUID)", re.DOTALL)
_TEXTS = re.compile(r"(DATE|UUID|TIMESTAMP( WITH TIME ZONE)?|ENUM\(.*\)|VARCHAR.*)", re.DOTALL)
"""Types of labels whose values are kept as texts."""


@dataclass(frozen=True, slots=True)
class TrainingColumn:
    """A column of the query that a model is trained on.

    name, type: in the engine. role: None for one that the model does not learn from.
    """

    name: str
    type: str
    role: Role | None

    @property
    def sql(self) -> str:
        """The expression that reads it."""
        quoted = DUCKDB.quote_name(self.name)
        if self.role is None:
            return quoted
        if self.type == "BOOLEAN":
            return f"CAST({quoted} AS UTINYINT)"
        if _WIDE.fullmatch(self.type):
            return f"CAST({quoted} AS DOUBLE)"
        if self.role == "category" and self.type == "UUID":
            return f"CAST({quoted} AS VARCHAR)"
        return quoted

    @property
    def hashed(self) -> str:
        """The expression whose hash helps to decide whether a row is held out: an ENUM is the text
        that it would be in a file, and not its number."""
        quoted = DUCKDB.quote_name(self.name)
        return f"CAST({quoted} AS VARCHAR)" if self.type.startswith("ENUM(") else quoted


def columns_of(
    described: Sequence[tuple[str, str]], request: Request
) -> tuple[tuple[TrainingColumn, ...], Request]:
    """The columns of a query, and the request with the columns' names as the query spells them.

    Args:
        described: name and type of each.

    Raises:
        ConfigError: two columns of one name, or no features at all.
        MissingColumnError: the query lacks the label, or another column that options name.
    """
    counted = Counter(fold(name) for name, _ in described)
    twice = next((name for name, _ in described if counted[fold(name)] > 1), None)
    if twice is not None:
        raise ConfigError(
            f"the query has several columns {twice!r}; give each a name of its own with AS"
        )
    request = request.with_columns({fold(name): name for name, _ in described})
    others = request.other_columns
    made = tuple(
        TrainingColumn(name, kind, None if name in others else _role(kind))
        for name, kind in described
    )
    if not any(column.role for column in made):
        raise ConfigError("the query has no column that a model can learn from")
    return made, request


def _role(kind: str) -> Role | None:
    if NUMBERS.fullmatch(kind):
        return "number"
    return "category" if _NAMES.fullmatch(kind) else None


def label_sql(name: str, kind: str, request: Request) -> str:
    """The expression that reads the label.

    Raises:
        ConfigError: a label of this type does not fit the type of model.
    """
    quoted = DUCKDB.quote_name(name)
    if request.task != "classify":
        if not NUMBERS.fullmatch(kind):
            raise ConfigError(
                f"{request.model_type} models predict numbers, and column {name!r} has type {kind}"
            )
        return f"CAST({quoted} AS DOUBLE)"
    if kind == "BOOLEAN" or re.fullmatch(r"U?(TINYINT|SMALLINT|INTEGER)|BIGINT", kind):
        return quoted
    if NUMBERS.fullmatch(kind):
        return f"CAST({quoted} AS DOUBLE)"
    if _TEXTS.fullmatch(kind):
        return f"CAST({quoted} AS VARCHAR)"
    raise ConfigError(
        f"classes cannot have type {kind}; cast column {name!r} to VARCHAR in the query"
    )
