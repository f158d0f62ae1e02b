"""`register_step`: the SQL of a transformer, or of a FunctionTransformer's function, of one's own.

A class may bring its SQL itself, by a method `to_sql(self, columns)`.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn
from sqlml.importers.sql_steps.expressions import operators_of, parsed, texts_in
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.types import DATETIME, Array, Kind

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


# `check_step`: the SQL of a step held against the step itself, on rows of our own making.


ROWS = 64

RELATIVE = 1e-9
"""How far the two may be from each other: `ln(1 + x)` is not log1p to the last bit."""


def check_step(step: Any, expressions: Mapping[str, str], frame: Frame) -> None:
    """Compare what a step makes of made-up rows with what its expressions make of them.

    Rows that the step refuses are left out: first those with missing values, then those with
    negative numbers. Columns that are handed on as they are and hold texts are not compared.

    Raises:
        UnsupportedModelError: they differ, or the step refuses all of these rows.
    """
    builder = Builder()
    made = operators_of(expressions, Frame.raw(builder, frame.names))
    compared = [i for i, part in enumerate(made) if not isinstance(part.blocks[0], RawColumn)]
    values = {str(i): made[i].matrix() for i in compared}
    program = builder.build(values)
    kinds = {f.name: f.kind for f in program.features}
    why: Exception | None = None
    asked = False
    for columns in _rows(frame.names, kinds, texts_in(expressions.values())):
        theirs, error = _asked(step, columns)
        if theirs is None:
            why = why or error
            continue
        asked = True
        if theirs.shape != (ROWS, len(made)):
            raise UnsupportedModelError(
                f"its SQL makes {len(made)} columns, but its transform made an array of shape "
                f"{theirs.shape} of {ROWS} rows"
            )
        ours = reference.run(program, {n: _input(columns[n]) for n in program.inputs})
        for i in compared:
            name = list(expressions)[i]
            _compare(name, ours[str(i)][:, 0], theirs[:, i], columns)
    if not asked:
        reason = f"{type(why).__name__}: {why}"
        raise UnsupportedModelError(
            f"its SQL cannot be compared with its transform, which fails on made-up rows "
            f"({reason:.200}); register it with verify=False to trust the SQL"
        )


def _rows(
    names: tuple[str, ...], kinds: Mapping[str, Kind], known: list[str]
) -> Iterator[dict[str, Array]]:
    """Columns of `ROWS` values, (n,) each: with missing ones, without, and of positive numbers."""
    rng = np.random.default_rng(0)
    plain: dict[str, Array] = {}
    gone: dict[str, Array] = {}
    positive: dict[str, Array] = {}
    words = np.array([*known, "\N{SNOWMAN} another"], object)
    for name in names:
        lacks = rng.random(ROWS) < 0.2
        if kinds.get(name) == DATETIME:
            moments = rng.integers(-(10**15), 2 * 10**15, ROWS).astype("datetime64[us]")
            positive[name] = plain[name] = moments
            gone[name] = np.where(lacks, np.datetime64("NaT"), moments)
            continue
        if kinds.get(name) == "string":
            positive[name] = plain[name] = rng.choice(words, ROWS)
            gone[name] = plain[name].copy()
            gone[name][lacks] = None
            continue
        numbers = np.concatenate(
            [rng.normal(size=ROWS), rng.normal(size=ROWS) * 30 + 40, rng.integers(-2, 6, ROWS)]
        )
        plain[name] = rng.choice(numbers, ROWS)
        gone[name] = np.where(lacks, np.nan, plain[name])
        positive[name] = np.abs(plain[name]) + 0.5
    yield gone
    yield plain
    yield positive


def _input(column: Array) -> Array:
    """A column as the Program takes it: dates as microseconds."""
    if column.dtype.kind != "M":
        return column
    return np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))


def _asked(step: Any, columns: Mapping[str, Array]) -> tuple[Array | None, Exception | None]:
    """What the step makes of a frame, or of a matrix where it takes no frame; else its error."""
    transform = step if not hasattr(step, "transform") else step.transform
    why: Exception | None = None
    for rows in _given(columns):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made = transform(rows)
            made = made.toarray() if hasattr(made, "toarray") else np.asarray(made)
            return (made.reshape(-1, 1) if made.ndim == 1 else made), None
        except Exception as error:  # it is the user's own
            why = why or error
    return None, why


def _given(columns: Mapping[str, Array]) -> Iterator[Any]:
    with suppress(ImportError):
        import pandas as pd

        yield pd.DataFrame(dict(columns))
    yield np.column_stack(list(columns.values()))


def _compare(name: str, ours: Array, theirs: Array, columns: Mapping[str, Array]) -> None:
    try:
        wanted = theirs.astype(np.float64)
    except (TypeError, ValueError):
        raise UnsupportedModelError(
            f"its SQL makes numbers of its column {name!r}, but its transform made "
            f"{theirs[0]!r:.80}"
        ) from None
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(ours), np.abs(wanted))
        near = np.abs(ours - wanted) <= np.maximum(RELATIVE * size, RELATIVE**2)
    same = near | (ours == wanted) | (np.isnan(ours) & np.isnan(wanted))
    if same.all():
        return
    row = int(np.flatnonzero(~same)[0])
    given = ", ".join(f"{n} = {columns[n][row]!s:.40}" for n in list(columns)[:6])
    raise UnsupportedModelError(
        f"the SQL of its column {name!r} gives {_shown(ours[row])} where its transform gives "
        f"{_shown(wanted[row])} ({given}); correct the SQL"
    )


def _shown(value: float) -> str:
    return "NULL" if np.isnan(value) else str(value)


# `sql_step`: a transformer of a user's own, by the SQL that says what it does.


def sql_step(step: Any, frame: Frame, kept: SqlStep) -> Frame:
    """The columns that a step makes, each by its expression.

    Args:
        step: the fitted transformer, or the function of a FunctionTransformer.
        kept: what is registered for it.

    Raises:
        UnsupportedModelError: its SQL has no operators, or the step computes something else.
    """
    expressions = sql_of(kept, step, frame.names)
    made = operators_of(expressions, frame)
    if kept.verify:
        check_step(step, expressions, frame)
    return Frame.hstack(frame.builder, made)
