"""`register_step`: the SQL of the user's own transformer, or of a FunctionTransformer's function.

A class may instead return SQL from a method `to_sql(self, columns)`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError, ProgramError, UnsupportedModelError
from sqlml.importers.expressions.compiler import ExpressionCompiler, format_columns, format_tree
from sqlml.importers.expressions.functions import SQL_FUNCTIONS, Column, Date, Null, Text
from sqlml.importers.frame import Frame, RawColumn
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.parsing.sqlglot_dialects import DIALECTS
from sqlml.types import DATETIME, Array, Kind

Sql = str | Mapping[str, str]
"""An expression, or a map of new columns to expressions; `{column}` stands for each column."""
SqlFunction = Callable[[Any, Sequence[str]], Sql]
"""A function that returns the SQL of a fitted step, given the step and quoted column names."""

PLACEHOLDER = "{column}"

_STEP_METHODS = ("to_sql", "fit", "transform")
"""The methods of a step that provides SQL; a pandas frame, for example, has no fit."""

_BRACES = re.compile(r"\{\w*\}")


@dataclass(frozen=True, slots=True)
class SqlStep:
    """The SQL of a transformer; if `verify` is true, each import compares SQL and object."""

    sql: Sql | SqlFunction
    verify: bool


_STEPS: dict[Any, SqlStep] = {}


def register_step(step: Any, sql: Sql | SqlFunction, *, verify: bool = True) -> None:
    """Register the SQL of your own transformer, so that models that contain it can be imported.

    >>> import numpy as np
    >>> import sqlml
    >>> def per_month(X):
    ...     return np.log1p(X) / 12
    >>> sqlml.register_step(per_month, sql="ln({column} + 1) / 12")

    Args:
        step: the class, or the function that a FunctionTransformer calls.
        sql: an expression in DuckDB's SQL over the names of the step's columns; if it contains
            `{column}`, it is applied to each column. Or a dict that maps the columns that the step
            returns, in order, to expressions. Or a function that returns an expression or a dict,
            given the fitted step and the quoted names of its columns, such as '"age"'.
        verify: compare the SQL with the step's `transform` each time a step is imported.

    Raises:
        ConfigError: `step` is neither a class nor a function, `sql` has another type, or it
            contains another placeholder.
        UnsupportedModelError: an expression is not valid SQL.
    """
    if isinstance(step, str) or not callable(step):
        raise ConfigError(
            f"register_step takes a class or a function, not a {type(step).__name__}: "
            f"register_step({type(step).__name__}, sql=...)"
        )
    if not isinstance(verify, bool):
        raise ConfigError(f"verify must be True or False, not {verify!r}")
    if not callable(sql):
        valid_sql = _validate_sql(sql)
        for text in [valid_sql] if isinstance(valid_sql, str) else valid_sql.values():
            placeholder = _BRACES.search(text.replace(PLACEHOLDER, ""))
            if placeholder is not None:
                raise ConfigError(
                    f"unknown placeholder {placeholder[0]} in {text!r}; use only {PLACEHOLDER}"
                )
            parse_expression(text.replace(PLACEHOLDER, "x"))
    _STEPS[step] = SqlStep(sql, verify)


def find_registered(step: Any) -> SqlStep | None:
    """Return the SQL registered for `step` or the class of `step`, or returned by `step.to_sql`.

    Return None if there is no SQL. The SQL of a base class does not count, because a subclass may
    compute something else.
    """
    try:
        registration = _STEPS.get(type(step)) or _STEPS.get(step)
    except TypeError:  # Unhashable objects are never registered.
        registration = _STEPS.get(type(step))
    methods = (getattr(type(step), name, None) for name in _STEP_METHODS)
    if registration is None and all(map(callable, methods)):
        return SqlStep(lambda step, columns: step.to_sql(columns), True)
    return registration


def import_sql_step(step: Any, frame: Frame, registration: SqlStep) -> Frame:
    """Compile the SQL of a step to columns; verify them if `registration` says so."""
    expressions = _build_expressions(registration, step, frame.names)
    columns = compile_expressions(expressions, frame)
    if registration.verify:
        _compare_with_step(step, expressions, frame)
    return Frame.hstack(frame.builder, columns)


def _build_expressions(registration: SqlStep, step: Any, names: Sequence[str]) -> dict[str, str]:
    step_name = getattr(step, "__name__", None) or type(step).__name__
    quoted_names = [DUCKDB.quote_name(name) for name in names]
    sql: Any = registration.sql
    if callable(sql):
        try:
            sql = sql(step, quoted_names)
        except Exception as error:  # User code may raise any exception.
            raise UnsupportedModelError(
                f"the SQL of {step_name} failed: {type(error).__name__}: {error}"
            ) from error
    try:
        sql = _validate_sql(sql)
    except ConfigError as error:
        raise UnsupportedModelError(f"the SQL of {step_name}: {error.message}") from None
    if isinstance(sql, Mapping):
        return {_unquote_name(name): text for name, text in sql.items()}
    if PLACEHOLDER in sql:
        return {n: sql.replace(PLACEHOLDER, q) for n, q in zip(names, quoted_names, strict=True)}
    return {step_name.lower(): sql}


def _validate_sql(sql: Any) -> Sql:
    if isinstance(sql, str):
        return sql
    if isinstance(sql, Mapping) and sql:
        strings = [text for pair in sql.items() for text in pair]
        if all(isinstance(text, str) for text in strings):
            return sql
    raise ConfigError(
        "sql must be an expression, a dict of column names and expressions, or a function that "
        f"returns either, not {sql!r:.100}"
    )


def _unquote_name(name: str) -> str:
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name


def parse_expression(sql: str) -> exp.Expr:
    if "np.float" in sql or "np.int" in sql:
        raise UnsupportedModelError(
            f"{sql!r} contains the repr of a numpy number; convert it with float() or str()"
        )
    try:
        tree = sqlglot.parse_one(f"SELECT {sql}\n", dialect=DIALECTS["duckdb"])
    except (SqlglotError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression: {reason}") from None
    clauses = {name for name, clause in tree.args.items() if clause}
    if not isinstance(tree, exp.Select) or clauses - {"expressions", "kind"}:
        raise UnsupportedModelError(f"{sql!r} is not an SQL expression over one row")
    if len(tree.expressions) != 1:
        raise UnsupportedModelError(f"{sql!r} is not one SQL expression but several")
    expression: exp.Expr = tree.expressions[0].unalias()
    return expression


def compile_expressions(expressions: Mapping[str, str], frame: Frame) -> list[Frame]:
    """Compile each SQL expression to a float64 column, in which NaN stands for NULL.

    An expression that is only a column name returns that column unchanged.
    """
    compiler = ExpressionCompiler(frame, SQL_FUNCTIONS)
    trees = {name: parse_expression(sql) for name, sql in expressions.items()}
    for tree in trees.values():
        compiler.decide_column_types(tree)
    columns = []
    for name, tree in trees.items():
        try:
            columns.append(_compile_column(name, tree, compiler, frame))
        except (ProgramError, UnsupportedModelError) as error:
            raise UnsupportedModelError(f"the SQL of its column {name!r}: {error}") from None
    return columns


def _compile_column(name: str, tree: exp.Expr, compiler: ExpressionCompiler, frame: Frame) -> Frame:
    operand = compiler.compile(tree)
    if isinstance(operand, Column):
        return Frame(frame.builder, frame.select([operand.index]).blocks, (name,))
    if isinstance(operand, Text | Null | Date):
        raise UnsupportedModelError(
            f"{format_tree(tree)} returns a string, a date or NULL; a step's SQL must return "
            "numbers"
        )
    numbers = compiler.to_number(operand).value
    if not numbers.type.rowwise:
        raise UnsupportedModelError(
            f"{format_tree(tree)} reads none of the columns {format_columns(frame)}"
        )
    return Frame.from_value(frame.builder, numbers, (name,))


TEST_ROW_COUNT = 64
TOLERANCE = 1e-9
"""The largest accepted relative difference; for example, ln(1 + x) is less exact than np.log1p."""


def _compare_with_step(step: Any, expressions: Mapping[str, str], frame: Frame) -> None:
    """Check that a step and its SQL return the same columns for test rows."""
    builder = Builder()
    outputs = compile_expressions(expressions, Frame.raw(builder, frame.names))
    are_raw = [isinstance(output.blocks[0], RawColumn) for output in outputs]
    compared_outputs = {name: i for i, name in enumerate(expressions) if not are_raw[i]}
    program = builder.build({str(i): outputs[i].matrix() for i in compared_outputs.values()})
    kind_by_name = {f.name: f.kind for f in program.features}
    errors: list[Exception] = []
    trees = map(parse_expression, expressions.values())
    literals = [literal for tree in trees for literal in tree.find_all(exp.Literal)]
    strings = list(dict.fromkeys(literal.this for literal in literals if literal.is_string))
    tables = _generate_tables(frame.names, kind_by_name, strings)
    for columns in tables:
        expected = _call_step(step, columns)
        if isinstance(expected, Exception):
            errors.append(expected)
            continue
        if expected.shape != (TEST_ROW_COUNT, len(outputs)):
            raise UnsupportedModelError(
                f"its SQL returns {len(outputs)} columns, but its transform returned an array of "
                f"shape {expected.shape} for {TEST_ROW_COUNT} rows"
            )
        actual = reference.run(program, {n: _convert_dates(columns[n]) for n in program.inputs})
        for name, i in compared_outputs.items():
            _compare_column(name, actual[str(i)][:, 0], expected[:, i], columns)
    if len(errors) == len(tables):
        reason = f"{type(errors[0]).__name__}: {errors[0]}"
        raise UnsupportedModelError(
            f"its SQL cannot be compared with its transform, which fails on generated rows "
            f"({reason:.200}); register it with verify=False to trust the SQL"
        )


def _generate_tables(
    names: tuple[str, ...], kind_by_name: Mapping[str, Kind], strings: list[str]
) -> list[dict[str, Array]]:
    """Return three test tables: with NULL, without NULL, and with positive numbers only."""
    rng = np.random.default_rng(0)
    tables: list[dict[str, Array]] = [{}, {}, {}]
    with_missing, without_missing, positive = tables
    choices = np.array([*strings, "\N{SNOWMAN} another"], object)
    for name in names:
        is_missing = rng.random(TEST_ROW_COUNT) < 0.2
        if kind_by_name.get(name) == DATETIME:
            moments = rng.integers(-(10**15), 2 * 10**15, TEST_ROW_COUNT).astype("datetime64[us]")
            positive[name] = without_missing[name] = moments
            with_missing[name] = np.where(is_missing, np.datetime64("NaT"), moments)
        elif kind_by_name.get(name) == "string":
            positive[name] = without_missing[name] = rng.choice(choices, TEST_ROW_COUNT)
            with_missing[name] = without_missing[name].copy()
            with_missing[name][is_missing] = None
        else:
            standard = rng.normal(size=TEST_ROW_COUNT)
            spread = rng.normal(size=TEST_ROW_COUNT) * 30 + 40
            pool = np.concatenate([standard, spread, rng.integers(-2, 6, TEST_ROW_COUNT)])
            without_missing[name] = rng.choice(pool, TEST_ROW_COUNT)
            with_missing[name] = np.where(is_missing, np.nan, without_missing[name])
            positive[name] = np.abs(without_missing[name]) + 0.5
    return tables


def _convert_dates(column: Array) -> Array:
    """Convert dates to float64 microseconds, with NaN for NaT; keep any other column."""
    if column.dtype.kind != "M":
        return column
    return np.where(np.isnat(column), np.nan, column.astype(np.int64).astype(np.float64))


def _call_step(step: Any, columns: Mapping[str, Array]) -> Array | Exception:
    """Call the step on a pandas frame or a matrix; return the output or the first error."""
    transform = getattr(step, "transform", step)
    errors = []
    for rows in _make_step_inputs(columns):
        try:
            with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
                outputs = transform(rows)
            outputs = outputs.toarray() if hasattr(outputs, "toarray") else np.asarray(outputs)
            return np.asarray(outputs.reshape(-1, 1) if outputs.ndim == 1 else outputs)
        except Exception as error:  # User code may raise any exception.
            errors.append(error)
    return errors[0]


def _make_step_inputs(columns: Mapping[str, Array]) -> Iterator[Any]:
    with suppress(ImportError):
        import pandas as pd

        yield pd.DataFrame(dict(columns))
    yield np.column_stack(list(columns.values()))


def _compare_column(name: str, actual: Array, output: Array, columns: Mapping[str, Array]) -> None:
    try:
        expected = output.astype(np.float64)
    except (TypeError, ValueError):
        raise UnsupportedModelError(
            f"its SQL returns numbers for its column {name!r}, but its transform returned "
            f"{output[0]!r:.80}"
        ) from None
    with np.errstate(all="ignore"):
        magnitude = np.maximum(np.abs(actual), np.abs(expected))
        is_close = np.abs(actual - expected) <= np.maximum(TOLERANCE * magnitude, TOLERANCE**2)
    differs = ~(is_close | (actual == expected) | (np.isnan(actual) & np.isnan(expected)))
    if not differs.any():
        return
    row_index = int(np.argmax(differs))
    shown_inputs = ", ".join(f"{n} = {columns[n][row_index]!s:.40}" for n in list(columns)[:6])
    raise UnsupportedModelError(
        f"the SQL of its column {name!r} gives {_format_value(actual[row_index])} where its "
        f"transform gives {_format_value(expected[row_index])} ({shown_inputs}); correct the SQL"
    )


def _format_value(value: float) -> str:
    return "NULL" if np.isnan(value) else str(value)
