"""The arguments of scoring functions as SQL, and the rows whose result is NULL.

A result is NULL for rows without a value that the model needs, if `on_null` says so, and for rows
that an engine evaluates but discards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from sqlml.backends.sql.linear_sql import Linear, print_linear
from sqlml.backends.sql.printer import print_encoders
from sqlml.bounded_cache import cache_by_program
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError, MissingValueError, SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.program.function_names import REFUSED_TEXT
from sqlml.planner.program.prepare import Prepared
from sqlml.planner.program.verification_rows import make_sample_frames
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array


def write_text_argument(
    prepared: Prepared, bounds: Mapping[str, Bound], dialect: Dialect = DUCKDB
) -> str:
    """Return the argument after the numbers if the function takes whole texts, otherwise ""."""
    values = find_whole_texts(prepared, bounds)
    return f", {dialect.text_arguments(values)}" if values else ""


def find_whole_texts(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str]:
    return [bounds[name].sql for name in prepared.split.text_inputs]


def write_column_arguments(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect
) -> str:
    """Return the arguments of a function that takes columns: numbers of one kind, then texts."""
    text_columns = [_cast(bounds[name], "VARCHAR") for name in prepared.split.text_inputs]
    # A cast of a parameter to its own type costs DuckDB 16 us to fold.
    uncast_parameters = {
        f"CAST({bound.sql} AS {bound.type})": bound.sql
        for bound in bounds.values()
        if _PARAMETER.fullmatch(bound.sql) is not None
    }
    arguments = [*list_numbers(prepared, bounds, kind, dialect), *text_columns]
    return ", ".join(uncast_parameters.get(argument, argument) for argument in arguments)


_PARAMETER = re.compile(r"\(\$\d+\)")


def find_linear_model(prepared: Prepared, bounds: Mapping[str, Bound]) -> Linear | None:
    """Return the model as an expression if it is a linear model of plain columns."""
    if find_plain_columns(prepared, bounds) is None:
        return None
    columns = [_cast(bounds[c.name], "DOUBLE") for c in prepared.split.columns if not c.is_encoded]
    return print_linear(prepared.split.core, columns)


def find_plain_columns(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str] | None:
    """Return the columns of the packed matrix as SQL; None if one of them is not a plain column."""
    columns = [bounds[c.name].sql for c in prepared.split.columns if not c.is_encoded]
    are_plain = len(columns) == len(prepared.split.columns) and all(map(is_plain, columns))
    return columns if are_plain else None


def is_plain(sql: str) -> bool:
    """Return whether an expression may be repeated: it is cheap and always has the same value."""
    return _COLUMN.fullmatch(sql) is not None


_COLUMN = re.compile(
    r'(\w+|"([^"]|"")*"|`([^`]|``)*`)(\.(\w+|"([^"]|"")*"|`([^`]|``)*`))*'
    r"|\(-?\d+(\.\d*)?([eE][+-]?\d+)?\)"
    r"|system\.main\.struct_extract\(sqlml_n, 'c\d+'\)"
)
"""A column, a number in brackets, or a field of `EvaluatedOnce`."""


def write_packed_numbers(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> str:
    """Return the argument of an engine function that takes all columns as numbers of one kind."""
    return dialect.number_arguments(list_numbers(prepared, bounds, kind, dialect), kind)


def list_numbers(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> list[str]:
    """Return all columns that the engine function reads, as numbers of one kind.

    In engines that evaluate calls lazily, texts that the model rejects get a code of their own.
    """
    encoded: dict[str, str] = {}
    encoders, columns = prepared.split.encoders, prepared.split.packed_columns
    if encoders is not None:
        strings = {n: bounds[n].sql for n in encoders.inputs}
        strict = [c.name for c in columns if c.is_strict] if dialect.lazy_calls else []
        unknown = dict.fromkeys(strict, dialect.scorer(REFUSED_TEXT))
        encoded = print_encoders(encoders, strings, dialect, unknown)
    return [
        f"CAST({encoded[c.name]} AS {kind})" if c.is_encoded else _cast(bounds[c.name], kind)
        for c in columns
    ] or [f"CAST(0 AS {kind})"]


def _cast(bound: Bound, kind: str) -> str:
    """Cast a column to `kind`; one that already has the type stays as it is, which binds faster."""
    is_column = is_plain(bound.sql) and bound.sql[0] != "(" and bound.sql.upper() != "NULL"
    has_type = bound.type == kind and is_column
    return bound.sql if has_type else f"CAST({bound.sql} AS {kind})"


def find_null_inputs(options: Mapping[str, Any], program: Program) -> frozenset[str]:
    """Return the inputs in which NULL yields NULL: those that reject it, if `on_null` is 'null'.

    Raises ConfigError if they cannot be determined.
    """
    return _find_required_inputs(program) if options.get("on_null") == "null" else frozenset()


def test_missing(
    bounds: Mapping[str, Bound], names: Iterable[str], dialect: Dialect = DUCKDB
) -> str | None:
    """Return a SQL test whether one of these columns has no value; None without columns."""
    tests = []
    for name in names:
        bound = bounds[name]
        tests.append(f"{bound.sql} IS NULL")
        if bound.type in ("FLOAT", "DOUBLE"):
            tests.append(dialect.call("isnan", bound.sql))
    return " OR ".join(tests) or None


def test_no_row(call: ModelCall, sql: str) -> str | None:
    """Return a SQL test whether a row's result is discarded; None if no result is.

    In MERGE and ON CONFLICT, the engine evaluates SET for a missing side, too, with NULL columns.
    """
    if call.block is None or call.block.changed_table is None:
        return None
    changed, matches = call.block.changed_table, call.block.merge_condition
    test = f"{sql[changed.start : changed.end]}.rowid IS NULL"
    if matches is not None:
        test += f" OR ({sql[matches.start : matches.end]}) IS NOT TRUE"
    return test


def combine_tests(*tests: str | None) -> str | None:
    """Return a SQL test whether one of the tests holds; None without tests."""
    return " OR ".join(test for test in tests if test is not None) or None


@dataclass(frozen=True, slots=True)
class EvaluatedOnce:
    """Columns that include expressions, which are evaluated once and read as `fields`.

    Otherwise the test for NULL and the call itself would see two values of random(), and nested
    calls would be repeated again and again.
    """

    bounds: dict[str, Bound]
    fields: dict[str, Bound]
    dialect: Dialect

    @classmethod
    def of(cls, bounds: dict[str, Bound], dialect: Dialect) -> EvaluatedOnce | None:
        """Return None if all columns may be repeated."""
        if all(is_plain(bound.sql) for bound in bounds.values()):
            return None
        fields = {
            n: Bound(dialect.member("sqlml_n", f"c{k}"), b.type)
            for k, (n, b) in enumerate(bounds.items())
        }
        return cls(bounds, fields, dialect)

    def wrap(self, value: str) -> str:
        """Return `value`, written with the fields, as an expression of the columns."""
        values = {f"c{k}": b.sql for k, b in enumerate(self.bounds.values())}
        return self.dialect.let("sqlml_n", self.dialect.struct(values), value)


def null_if(missing: str | None, value: str) -> str:
    """Return `value`, with NULL for rows for which the test `missing` is true."""
    return value if missing is None else f"CASE WHEN {missing} THEN NULL ELSE {value} END"


@cache_by_program
def _find_required_inputs(program: Program) -> frozenset[str]:
    """Return the inputs that must have a value, by running the reference backend on one row."""
    row = _find_accepted_row(program)
    if row is None:
        raise ConfigError(
            "on_null = 'null' is not available for this model: no row was found that it accepts, "
            "so sqlml cannot tell which columns need a value; replace NULL in the query"
        )
    required = set()
    for name, kind in ((f.name, f.kind) for f in program.features):
        missing = np.array([None], object) if kind == "string" else np.array([np.nan])
        try:
            reference.run(program, {**row, name: missing})
        except (MissingValueError, UnknownCategoryError):
            required.add(name)
        except SqlmlError:
            continue  # other errors are reported when rows are scored
    return frozenset(required)


def _find_accepted_row(program: Program) -> dict[str, Array] | None:
    """Return a row that the model accepts; None if 32 rows of each of two samples are rejected."""
    for frame in islice(make_sample_frames(program, program.features), 2):
        for i in range(32):
            row = {name: frame[name].to_numpy()[i : i + 1] for name in program.inputs}
            try:
                reference.run(program, row)
            except (SqlmlError, KeyError):
                continue
            return row
    return None
