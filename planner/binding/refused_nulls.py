"""Rows without an answer: those that lack a value the model needs, and those that are not rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from sqlml.backends.sql import Linear, expressions, linear_sql
from sqlml.bounded_cache import of_programs
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError, MissingValueError, SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.program.function_names import REFUSED_TEXT
from sqlml.planner.program.prepare import Prepared
from sqlml.planner.program.sample_rows import samples
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array

# What the engine is to compute for a model: the function's arguments, or the model itself.


def texts(prepared: Prepared, bounds: Mapping[str, Bound], dialect: Dialect = DUCKDB) -> str:
    """The argument after the numbers, if the function is given whole texts."""
    own = whole_texts(prepared, bounds)
    return f", {dialect.text_arguments(own)}" if own else ""


def whole_texts(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str]:
    """The texts that the function is given as they are."""
    return [bounds[name].sql for name in prepared.split.whole]


def columns(prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect) -> str:
    """The arguments of a function that is called by column: numbers of one kind, then texts."""
    whole = [_as(bounds[name], "VARCHAR") for name in prepared.split.whole]
    # To fold the cast of a parameter that has the type takes DuckDB 16 us.
    own = {f"CAST({b.sql} AS {b.type})": b.sql for b in bounds.values() if _is_parameter(b.sql)}
    made = [*numbers(prepared, bounds, kind, dialect), *whole]
    return ", ".join(own.get(argument, argument) for argument in made)


def _is_parameter(sql: str) -> bool:
    return re.fullmatch(r"\(\$\d+\)", sql) is not None


def linear(prepared: Prepared, bounds: Mapping[str, Bound]) -> Linear | None:
    """The model as an expression, where it is a linear one of plain columns."""
    if plain_columns(prepared, bounds) is None:
        return None
    columns = [_as(bounds[c.name], "DOUBLE") for c in prepared.split.columns if not c.encoded]
    return linear_sql(prepared.split.core, columns)


def plain_columns(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str] | None:
    """The columns of the packed matrix as SQL; None if one of them is not a plain column."""
    columns = [bounds[c.name].sql for c in prepared.split.columns if not c.encoded]
    whole = len(columns) == len(prepared.split.columns) and all(map(plain, columns))
    return columns if whole else None


def plain(sql: str) -> bool:
    """Whether an expression may be written several times: it is cheap, and the same each time."""
    return _COLUMN.fullmatch(sql) is not None


_COLUMN = re.compile(
    r'(\w+|"([^"]|"")*"|`([^`]|``)*`)(\.(\w+|"([^"]|"")*"|`([^`]|``)*`))*'
    r"|\(-?\d+(\.\d*)?([eE][+-]?\d+)?\)"
    r"|system\.main\.struct_extract\(sqlml_n, 'c\d+'\)"
)
"""A column, a number as `bracket` writes it, or a field of `refused_nulls.Once`."""


def packed(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> str:
    """The argument of the engine function that has all columns, as numbers of one kind."""
    return dialect.number_arguments(numbers(prepared, bounds, kind, dialect), kind)


def numbers(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> list[str]:
    """All columns that the engine function reads, as numbers of one kind.

    A text that the model refuses has a code that stands for it, in engines that ask a function
    about no other texts.
    """
    encoded: dict[str, str] = {}
    if prepared.split.encoders is not None:
        strings = {n: bounds[n].sql for n in prepared.split.encoders.inputs}
        unknown = {}
        if dialect.lazy_calls:
            names = {c.name for c in prepared.split.given if c.strict}
            unknown = dict.fromkeys(names, dialect.scorer(REFUSED_TEXT))
        encoded = expressions(prepared.split.encoders, strings, dialect, unknown)
    return [
        f"CAST({encoded[c.name]} AS {kind})" if c.encoded else _as(bounds[c.name], kind)
        for c in prepared.split.given
    ] or [f"CAST(0 AS {kind})"]


def _as(bound: Bound, kind: str) -> str:
    """The expression as a `kind`: a column that is one goes as it is, which binds sooner."""
    column = plain(bound.sql) and not bound.sql.startswith("(") and bound.sql.upper() != "NULL"
    own = bound.type == kind and column
    return bound.sql if own else f"CAST({bound.sql} AS {kind})"


_TRIED = 32
"""Rows that are tried to find one that the model takes."""


def refused(options: Mapping[str, Any], program: Program) -> frozenset[str]:
    """The inputs in which a NULL is to give NULL: those it refuses, where `on_null` is 'null'.

    Raises:
        ConfigError: it cannot be told which these are.
    """
    return _refusing(program) if options.get("on_null") == "null" else frozenset()


def any_missing(
    bounds: Mapping[str, Bound], names: Iterable[str], dialect: Dialect = DUCKDB
) -> str | None:
    """Whether one of these columns has no value, as SQL; None if there are no such columns."""
    tests = []
    for name in names:
        bound = bounds[name]
        tests.append(f"{bound.sql} IS NULL")
        if bound.type in ("FLOAT", "DOUBLE"):
            tests.append(dialect.call("isnan", bound.sql))
    return " OR ".join(tests) or None


def no_row(call: ModelCall, sql: str) -> str | None:
    """Whether a row's result is discarded, as SQL, in ON CONFLICT's SET and in MERGE; None
    elsewhere.

    The engine evaluates SET for all rows, with the columns NULL of the side that has none.
    """
    if call.block is None or call.block.changed is None:
        return None
    changed, matches = call.block.changed, call.block.matches
    test = f"{sql[changed.start : changed.end]}.rowid IS NULL"
    if matches is not None:
        test += f" OR ({sql[matches.start : matches.end]}) IS NOT TRUE"
    return test


def either(*tests: str | None) -> str | None:
    """Whether one of the tests holds, as SQL; None if there are no tests."""
    return " OR ".join(test for test in tests if test is not None) or None


@dataclass(frozen=True, slots=True)
class Once:
    """Columns of which some are expressions: they are evaluated once, and read as `fields`.

    A test for NULL and the call itself would else see two values of random(), and nested calls
    would be written out again and again.
    """

    bounds: dict[str, Bound]
    fields: dict[str, Bound]
    dialect: Dialect

    @classmethod
    def of(cls, bounds: dict[str, Bound], dialect: Dialect) -> Once | None:
        """None if all columns may be written several times."""
        if all(plain(bound.sql) for bound in bounds.values()):
            return None
        fields = {
            n: Bound(dialect.member("sqlml_n", f"c{k}"), b.type)
            for k, (n, b) in enumerate(bounds.items())
        }
        return cls(bounds, fields, dialect)

    def around(self, value: str) -> str:
        """`value` of the fields, as an expression of the columns."""
        made = {f"c{k}": b.sql for k, b in enumerate(self.bounds.values())}
        return self.dialect.let("sqlml_n", self.dialect.struct(made), value)


def unless(missing: str | None, value: str) -> str:
    """`value`, or NULL for rows of which `missing` is true."""
    return value if missing is None else f"CASE WHEN {missing} THEN NULL ELSE {value} END"


@of_programs
def _refusing(program: Program) -> frozenset[str]:
    """The inputs that must have a value: asked of the reference with one row."""
    row = _accepted(program)
    if row is None:
        raise ConfigError(
            "on_null = 'null' is not available for this model: no row was found that it accepts, "
            "so sqlml cannot tell which columns need a value; replace NULL in the query"
        )
    found = set()
    for name, kind in ((f.name, f.kind) for f in program.features):
        gone = np.array([None], object) if kind == "string" else np.array([np.nan])
        try:
            reference.run(program, {**row, name: gone})
        except (MissingValueError, UnknownCategoryError):
            found.add(name)
        except SqlmlError:
            continue  # what else is wrong is said when it is scored
    return frozenset(found)


def _accepted(program: Program) -> dict[str, Array] | None:
    """One row of which the model knows an answer; None: none was found."""
    for frame in islice(samples(program, program.features), 2):
        for i in range(_TRIED):
            row = {name: frame[name].to_numpy()[i : i + 1] for name in program.inputs}
            try:
                reference.run(program, row)
            except (SqlmlError, KeyError):
                continue
            return row
    return None
