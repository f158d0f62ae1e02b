"""`register_step`: the SQL of a transformer, or of a FunctionTransformer's function, of one's own.

A class may bring its SQL itself, by a method `to_sql(self, columns)`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.importers.sql_steps.expressions import parsed

Sql = str | Mapping[str, str]
"""One expression, or new column -> expression; `{column}` in a text stands for each column."""
SqlOf = Callable[[Any, Sequence[str]], Sql]
"""The fitted step, and its columns as quoted names -> its SQL."""

EACH = "{column}"

_OF_A_STEP = ("to_sql", "fit", "transform")
"""Methods of a class that brings its SQL; frames of pandas have two of them."""

_BRACES = re.compile(r"\{\w*\}")


@dataclass(frozen=True, slots=True)
class SqlStep:
    """What was registered for a class or a function.

    verify: whether its SQL is compared with the object whenever one is imported.
    """

    sql: Sql | SqlOf
    verify: bool


_STEPS: dict[Any, SqlStep] = {}
_LOCK = threading.Lock()


def register_step(step: Any, sql: Sql | SqlOf, *, verify: bool = True) -> None:
    """Say in SQL what a transformer of your own does, so that models that have it can be imported.

    >>> import numpy as np
    >>> import sqlml
    >>> def per_month(X):
    ...     return np.log1p(X) / 12
    >>> sqlml.register_step(per_month, sql="ln({column} + 1) / 12")

    Args:
        step: the class, or the function that a FunctionTransformer calls.
        sql: one expression in DuckDB's SQL over the step's columns, by name; with `{column}` in
            it, one for each of them. Or a dict of the names and expressions of the columns that
            the step makes, in order. Or a function of the fitted step and its columns (quoted
            names, such as '"age"') that returns either.
        verify: compare the SQL with the step's own `transform` each time that one is imported.

    Raises:
        ConfigError: `step` is neither a class nor a function, `sql` is none of these, or it has
            another placeholder.
        UnsupportedModelError: an expression is not valid SQL.
    """
    if isinstance(step, str) or not callable(step):
        raise ConfigError(
            f"register_step takes a class or a function, not a {type(step).__name__}: "
            f"register_step({type(step).__name__}, sql=..)"
        )
    if not isinstance(verify, bool):
        raise ConfigError(f"verify must be True or False, not {verify!r}")
    if not callable(sql):
        told = checked(sql)
        for text in [told] if isinstance(told, str) else told.values():
            odd = _BRACES.search(text.replace(EACH, ""))
            if odd is not None:
                raise ConfigError(
                    f"unknown placeholder {odd[0]} in {text!r}; there is {EACH} alone"
                )
            parsed(text.replace(EACH, "x"))
    with _LOCK:
        _STEPS[step] = SqlStep(sql, verify)


def registered(step: Any) -> SqlStep | None:
    """What is registered for an object's class, or what its `to_sql` is; None: nothing.

    A subclass of a registered class is not registered: it may compute something else.
    """
    try:
        found = _STEPS.get(type(step)) or _STEPS.get(step)
    except TypeError:  # what cannot be hashed is not registered
        found = _STEPS.get(type(step))
    if found is None and all(callable(getattr(type(step), name, None)) for name in _OF_A_STEP):
        return SqlStep(lambda step, columns: step.to_sql(columns), True)
    return found


def sql_of(kept: SqlStep, step: Any, names: Sequence[str]) -> dict[str, str]:
    """The columns that a step makes -> their expressions.

    Args:
        names: of the columns that it gets.

    Raises:
        UnsupportedModelError: its function fails, or returns something else than SQL.
    """
    own = [DUCKDB.quote_name(name) for name in names]
    told: Any = kept.sql
    if callable(told):
        try:
            told = told(step, own)
        except Exception as error:  # it is the user's own
            raise UnsupportedModelError(
                f"the SQL of {_name(step)} failed: {type(error).__name__}: {error}"
            ) from error
    try:
        told = checked(told)
    except ConfigError as error:
        raise UnsupportedModelError(f"the SQL of {_name(step)}: {error.message}") from None
    if isinstance(told, Mapping):
        return {_unquoted(name): text for name, text in told.items()}
    if EACH in told:
        return {n: told.replace(EACH, o) for n, o in zip(names, own, strict=True)}
    return {_name(step).lower(): told}


def checked(sql: Any) -> Sql:
    """SQL as `register_step` takes it.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(sql, str):
        return sql
    if (
        isinstance(sql, Mapping)
        and sql
        and all(isinstance(part, str) for item in sql.items() for part in item)
    ):
        return sql
    raise ConfigError(
        "sql must be an expression, a dict of column names and expressions, or a function that "
        f"returns either, not {sql!r:.100}"
    )


def _unquoted(name: str) -> str:
    """A column's name, where a function made it of one of the quoted names."""
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def _name(step: Any) -> str:
    return getattr(step, "__name__", None) or type(step).__name__
