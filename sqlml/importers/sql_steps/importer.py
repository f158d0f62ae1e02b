"""`register_step`: the SQL of the user's own transformer, or of a FunctionTransformer's function.

A class may also provide its SQL with a method `to_sql(self, columns)`.
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
from sqlml.importers.sql_steps.sql_expressions import (
    compile_expressions,
    find_texts,
    parse_expression,
)
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.types import DATETIME, Array, Kind

Sql = str | Mapping[str, str]
"""An expression, or new column -> expression; `{column}` in a text stands for each column."""
SqlOf = Callable[[Any, Sequence[str]], Sql]
"""A function from the fitted step and its quoted columns to its SQL."""

EACH = "{column}"

_OF_A_STEP = ("to_sql", "fit", "transform")
"""Methods that show that a class with `to_sql` is a step; pandas frames have two of them."""

_BRACES = re.compile(r"\{\w*\}")


@dataclass(frozen=True, slots=True)
class SqlStep:
    """The SQL that was registered for a class or a function.

    Attributes:
        verify: compare the SQL with the object at each import.
    """

    sql: Sql | SqlOf
    verify: bool


_STEPS: dict[Any, SqlStep] = {}
_LOCK = threading.Lock()


def register_step(step: Any, sql: Sql | SqlOf, *, verify: bool = True) -> None:
    """Register the SQL of your own transformer, so that models that contain it can be imported.

    >>> import numpy as np
    >>> import sqlml
    >>> def per_month(X):
    ...     return np.log1p(X) / 12
    >>> sqlml.register_step(per_month, sql="ln({column} + 1) / 12")

    Args:
        step: the class, or the function that a FunctionTransformer calls.
        sql: an expression in DuckDB's SQL over the step's columns, by name; if it contains
            `{column}`, it applies to each of them. Or a dict of the names and expressions of the
            columns that the step returns, in order. Or a function of the fitted step and its
            columns (quoted names, such as '"age"') that returns either.
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
        registered_sql = check_sql(sql)
        for text in (
            [registered_sql] if isinstance(registered_sql, str) else registered_sql.values()
        ):
            odd = _BRACES.search(text.replace(EACH, ""))
            if odd is not None:
                raise ConfigError(
                    f"unknown placeholder {odd[0]} in {text!r}; there is {EACH} alone"
                )
            parse_expression(text.replace(EACH, "x"))
    with _LOCK:
        _STEPS[step] = SqlStep(sql, verify)


def find_registered(step: Any) -> SqlStep | None:
    """Return the SQL that is registered for an object's class, or its `to_sql`, or None.

    A subclass of a registered class is not registered, because it may compute something else.
    """
    try:
        sql = _STEPS.get(type(step)) or _STEPS.get(step)
    except TypeError:  # unhashable objects are never registered
        sql = _STEPS.get(type(step))
    if sql is None and all(callable(getattr(type(step), name, None)) for name in _OF_A_STEP):
        return SqlStep(lambda step, columns: step.to_sql(columns), True)
    return sql


def build_sql(registration: SqlStep, step: Any, names: Sequence[str]) -> dict[str, str]:
    """Return the expressions of the columns that a step returns.

    Args:
        registration: the registered SQL.
        step: the fitted step.
        names: of the columns that the step reads.

    Raises:
        UnsupportedModelError: its function fails, or does not return SQL.
    """
    quoted_names = [DUCKDB.quote_name(name) for name in names]
    sql: Any = registration.sql
    if callable(sql):
        try:
            sql = sql(step, quoted_names)
        except Exception as error:  # the code is the user's
            raise UnsupportedModelError(
                f"the SQL of {_name(step)} failed: {type(error).__name__}: {error}"
            ) from error
    try:
        sql = check_sql(sql)
    except ConfigError as error:
        raise UnsupportedModelError(f"the SQL of {_name(step)}: {error.message}") from None
    if isinstance(sql, Mapping):
        return {_unquote(name): text for name, text in sql.items()}
    if EACH in sql:
        return {n: sql.replace(EACH, o) for n, o in zip(names, quoted_names, strict=True)}
    return {_name(step).lower(): sql}


def check_sql(sql: Any) -> Sql:
    """Check SQL in the forms that `register_step` accepts.

    Raises:
        ConfigError: another form.
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


def _unquote(name: str) -> str:
    """Return a column's name if a function returned one of the quoted names."""
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def _name(step: Any) -> str:
    return getattr(step, "__name__", None) or type(step).__name__


ROWS = 64

RELATIVE = 1e-9
"""The largest relative difference: `ln(1 + x)` differs from log1p in the last bits."""


def check_step(step: Any, expressions: Mapping[str, str], frame: Frame) -> None:
    """Compare the outputs of a step with its expressions on generated rows.

    Rows that the step rejects are omitted: first those with missing values, then those with
    negative numbers. Columns of texts that are passed on unchanged are not compared.

    Raises:
        UnsupportedModelError: outputs differ, or the step rejects all rows.
    """
    builder = Builder()
    outputs = compile_expressions(expressions, Frame.raw(builder, frame.names))
    compared = [i for i, part in enumerate(outputs) if not isinstance(part.blocks[0], RawColumn)]
    values = {str(i): outputs[i].matrix() for i in compared}
    program = builder.build(values)
    kinds = {f.name: f.kind for f in program.features}
    failure: Exception | None = None
    outcome = False
    for columns in _generate_rows(frame.names, kinds, find_texts(expressions.values())):
        theirs, error = _call_step(step, columns)
        if theirs is None:
            failure = failure or error
            continue
        outcome = True
        if theirs.shape != (ROWS, len(outputs)):
            raise UnsupportedModelError(
                f"its SQL makes {len(outputs)} columns, but its transform made an array of shape "
                f"{theirs.shape} of {ROWS} rows"
            )
        ours = reference.run(program, {n: _convert_input(columns[n]) for n in program.inputs})
        for i in compared:
            name = list(expressions)[i]
            _compare(name, ours[str(i)][:, 0], theirs[:, i], columns)
    if not outcome:
        reason = f"{type(failure).__name__}: {failure}"
        raise UnsupportedModelError(
            f"its SQL cannot be compared with its transform, which fails on made-up rows "
            f"({reason:.200}); register it with verify=False to trust the SQL"
        )


def _generate_rows(
    names: tuple[str, ...], kinds: Mapping[str, Kind], values: list[str]
) -> Iterator[dict[str, Array]]:
    """Return columns of `ROWS` values, (n,) each: with missing values, without, and positive."""
    rng = np.random.default_rng(0)
    plain: dict[str, Array] = {}
    is_missing: dict[str, Array] = {}
    positive: dict[str, Array] = {}
    words = np.array([*values, "\N{SNOWMAN} another"], object)
    for name in names:
        lacks = rng.random(ROWS) < 0.2
        if kinds.get(name) == DATETIME:
            moments = rng.integers(-(10**15), 2 * 10**15, ROWS).astype("datetime64[us]")
            positive[name] = plain[name] = moments
            is_missing[name] = np.where(lacks, np.datetime64("NaT"), moments)
            continue
        if kinds.get(name) == "string":
            positive[name] = plain[name] = rng.choice(words, ROWS)
            is_missing[name] = plain[name].copy()
            is_missing[name][lacks] = None
            continue
        numbers = np.concatenate(
            [rng.normal(size=ROWS), rng.normal(size=ROWS) * 30 + 40, rng.integers(-2, 6, ROWS)]
        )
        plain[name] = rng.choice(numbers, ROWS)
        is_missing[name] = np.where(lacks, np.nan, plain[name])
        positive[name] = np.abs(plain[name]) + 0.5
    yield is_missing
    yield plain
    yield positive


def _convert_input(column: Array) -> Array:
    """Return a column in the form of a Program's input: dates as microseconds."""
    if column.dtype.kind != "M":
        return column
    return np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))


def _call_step(step: Any, columns: Mapping[str, Array]) -> tuple[Array | None, Exception | None]:
    """Call the step on a frame, or on a matrix if it rejects frames; return its error, if any."""
    transform = step if not hasattr(step, "transform") else step.transform
    failure: Exception | None = None
    for rows in _list_input_forms(columns):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                outputs = transform(rows)
            outputs = outputs.toarray() if hasattr(outputs, "toarray") else np.asarray(outputs)
            return (outputs.reshape(-1, 1) if outputs.ndim == 1 else outputs), None
        except Exception as error:  # the code is the user's
            failure = failure or error
    return None, failure


def _list_input_forms(columns: Mapping[str, Array]) -> Iterator[Any]:
    with suppress(ImportError):
        import pandas as pd

        yield pd.DataFrame(dict(columns))
    yield np.column_stack(list(columns.values()))


def _compare(name: str, ours: Array, theirs: Array, columns: Mapping[str, Array]) -> None:
    try:
        expected = theirs.astype(np.float64)
    except (TypeError, ValueError):
        raise UnsupportedModelError(
            f"its SQL makes numbers of its column {name!r}, but its transform made "
            f"{theirs[0]!r:.80}"
        ) from None
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(ours), np.abs(expected))
        near = np.abs(ours - expected) <= np.maximum(RELATIVE * size, RELATIVE**2)
    same = near | (ours == expected) | (np.isnan(ours) & np.isnan(expected))
    if same.all():
        return
    row = int(np.flatnonzero(~same)[0])
    inputs = ", ".join(f"{n} = {columns[n][row]!s:.40}" for n in list(columns)[:6])
    raise UnsupportedModelError(
        f"the SQL of its column {name!r} gives {_format_values(ours[row])} where its transform "
        f"gives {_format_values(expected[row])} ({inputs}); correct the SQL"
    )


def _format_values(value: float) -> str:
    return "NULL" if np.isnan(value) else str(value)


def sql_step(step: Any, frame: Frame, registered_sql: SqlStep) -> Frame:
    """Import a step by the expressions of its columns.

    Args:
        step: the fitted transformer, or the function of a FunctionTransformer.
        frame: the columns that it reads.
        registered_sql: the registered SQL.

    Raises:
        UnsupportedModelError: its SQL has no operators, or the step computes something else.
    """
    expressions = build_sql(registered_sql, step, frame.names)
    columns = compile_expressions(expressions, frame)
    if registered_sql.verify:
        check_step(step, expressions, frame)
    return Frame.hstack(frame.builder, columns)
