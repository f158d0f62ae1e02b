"""The arguments of scoring functions as SQL, and the rows whose result is NULL.

A result is NULL for rows without a value that the model needs, if `on_null` says so, and for rows
that an engine evaluates but discards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from sqlml.backends.sql.linear_sql import LinearSql, print_linear
from sqlml.backends.sql.printer import print_encoders
from sqlml.bounded_cache import cache_by_program
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError, MissingValueError, SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.program.function_spec import REFUSED_TEXT
from sqlml.planner.program.prepare_program import PreparedProgram
from sqlml.planner.program.verification_rows import make_sample_frames
from sqlml.planner.syntax.outline import ModelCall
from sqlml.types import Array


def build_text_argument(
    prepared: PreparedProgram, bound_inputs: Mapping[str, BoundInput], dialect: Dialect = DUCKDB
) -> str:
    """Build the SQL for the string argument after the numeric argument of a call: `, <strings>`.

    Return "" if the numeric argument already encodes all string columns.
    """
    string_columns = list_string_columns(prepared, bound_inputs)
    return f", {dialect.text_arguments(string_columns)}" if string_columns else ""


def list_string_columns(
    prepared: PreparedProgram, bound_inputs: Mapping[str, BoundInput]
) -> list[str]:
    return [bound_inputs[name].sql for name in prepared.split.text_inputs]


def build_column_arguments(
    prepared: PreparedProgram,
    bound_inputs: Mapping[str, BoundInput],
    number_type: str,
    dialect: Dialect,
) -> str:
    """Build the SQL of the arguments for a function that has one parameter per column.

    The numbers, cast to `number_type`, come before the string columns.
    """
    string_sql = [_build_cast(bound_inputs[name], "VARCHAR") for name in prepared.split.text_inputs]
    # A cast of a parameter to its own type costs DuckDB 16 us to fold.
    uncast_parameters = {
        f"CAST({bound.sql} AS {bound.type})": bound.sql
        for bound in bound_inputs.values()
        if _PARAMETER.fullmatch(bound.sql) is not None
    }
    arguments = [*list_numbers(prepared, bound_inputs, number_type, dialect), *string_sql]
    return ", ".join(uncast_parameters.get(argument, argument) for argument in arguments)


_PARAMETER = re.compile(r"\(\$\d+\)")


def find_linear_model(
    prepared: PreparedProgram, bound_inputs: Mapping[str, BoundInput]
) -> LinearSql | None:
    """Return the SQL of a linear model whose inputs are plain columns, or None for other models."""
    if find_plain_columns(prepared, bound_inputs) is None:
        return None
    columns = [_build_cast(bound_inputs[c.name], "DOUBLE") for c in prepared.split.columns]
    return print_linear(prepared.split.core, columns)


def find_plain_columns(
    prepared: PreparedProgram, bound_inputs: Mapping[str, BoundInput]
) -> list[str] | None:
    """Return the SQL of the columns in the packed matrix, or None unless all are plain columns."""
    columns = [bound_inputs[c.name].sql for c in prepared.split.columns if not c.is_encoded]
    are_plain = len(columns) == len(prepared.split.columns) and all(map(is_plain, columns))
    return columns if are_plain else None


def is_plain(sql: str) -> bool:
    """Return whether `sql` may be repeated because it is cheap and always has the same value."""
    return _COLUMN.fullmatch(sql) is not None


_COLUMN = re.compile(
    r'(\w+|"([^"]|"")*"|`([^`]|``)*`)(\.(\w+|"([^"]|"")*"|`([^`]|``)*`))*'
    r"|\(-?\d+(\.\d*)?([eE][+-]?\d+)?\)"
    r"|system\.main\.struct_extract\(sqlml_n, 'c\d+'\)"
)
"""A column, a number in brackets, or a field of `EvaluatedOnce`."""


def build_packed_numbers(
    prepared: PreparedProgram,
    bound_inputs: Mapping[str, BoundInput],
    number_type: str,
    dialect: Dialect = DUCKDB,
) -> str:
    """Build the argument of a function that takes all columns as one array of `number_type`."""
    numbers = list_numbers(prepared, bound_inputs, number_type, dialect)
    return dialect.number_arguments(numbers, number_type)


def list_numbers(
    prepared: PreparedProgram,
    bound_inputs: Mapping[str, BoundInput],
    number_type: str,
    dialect: Dialect = DUCKDB,
) -> list[str]:
    """Return the SQL of the columns that a function reads, cast to `number_type`.

    In engines that evaluate calls lazily, a special code marks strings that the model rejects.
    """
    code_sql: dict[str, str] = {}
    encoders, packed_columns = prepared.split.encoders, prepared.split.packed_columns
    if encoders is not None:
        string_sql = {n: bound_inputs[n].sql for n in encoders.inputs}
        strict_columns = [c.name for c in packed_columns if c.is_strict and dialect.lazy_calls]
        unknown_codes = dict.fromkeys(strict_columns, dialect.scorer(REFUSED_TEXT))
        code_sql = print_encoders(encoders, string_sql, dialect, unknown_codes)
    return [
        f"CAST({code_sql[c.name]} AS {number_type})"
        if c.is_encoded
        else _build_cast(bound_inputs[c.name], number_type)
        for c in packed_columns
    ] or [f"CAST(0 AS {number_type})"]


def _build_cast(bound: BoundInput, sql_type: str) -> str:
    """Cast an input to `sql_type`, unless it is a plain column of that type: casts bind slowly."""
    is_column = is_plain(bound.sql) and bound.sql[0] != "(" and bound.sql.upper() != "NULL"
    if is_column and bound.type == sql_type:
        return bound.sql
    return f"CAST({bound.sql} AS {sql_type})"


def find_null_inputs(options: Mapping[str, Any], program: Program) -> frozenset[str]:
    """Return the inputs that reject NULL if the option `on_null` is 'null', or else an empty set.

    Raises ConfigError if the inputs cannot be determined.
    """
    return _find_required_inputs(program) if options.get("on_null") == "null" else frozenset()


def build_missing_test(
    bound_inputs: Mapping[str, BoundInput], names: Iterable[str], dialect: Dialect = DUCKDB
) -> str | None:
    """Build SQL that is true if an input in `names` is NULL or NaN, or None without names."""
    conditions = []
    for name in names:
        bound = bound_inputs[name]
        conditions.append(f"{bound.sql} IS NULL")
        if bound.type in ("FLOAT", "DOUBLE"):
            conditions.append(dialect.call("isnan", bound.sql))
    return " OR ".join(conditions) or None


def build_discarded_test(call: ModelCall, sql: str) -> str | None:
    """Build SQL that is true for rows whose result the engine discards, or None if there are none.

    In MERGE and ON CONFLICT, the engine also evaluates SET for rows without a partner in the other
    table, whose columns are then NULL.
    """
    if call.block is None or call.block.changed_table is None:
        return None
    changed_table, merge_condition = call.block.changed_table, call.block.merge_condition
    condition = f"{sql[changed_table.start : changed_table.end]}.rowid IS NULL"
    if merge_condition is not None:
        condition += f" OR ({sql[merge_condition.start : merge_condition.end]}) IS NOT TRUE"
    return condition


def combine_conditions(*conditions: str | None) -> str | None:
    """Combine SQL conditions with OR, ignoring None, or return None if no condition remains."""
    return " OR ".join(condition for condition in conditions if condition is not None) or None


@dataclass(frozen=True, slots=True)
class EvaluatedOnce:
    """Inputs of a call that are evaluated once into a struct, whose `fields` replace the inputs.

    Otherwise the test for NULL and the call itself would see two values of random(), and deeply
    nested calls would be repeated many times.
    """

    bound_inputs: dict[str, BoundInput]
    fields: dict[str, BoundInput]
    dialect: Dialect

    @classmethod
    def create(cls, bound_inputs: dict[str, BoundInput], dialect: Dialect) -> EvaluatedOnce | None:
        """Return the struct for `bound_inputs`, or None if all inputs may be evaluated twice."""
        if all(is_plain(bound.sql) for bound in bound_inputs.values()):
            return None
        fields = {
            n: BoundInput(dialect.member("sqlml_n", f"c{k}"), b.type)
            for k, (n, b) in enumerate(bound_inputs.items())
        }
        return cls(bound_inputs, fields, dialect)

    def wrap(self, value_sql: str) -> str:
        """Return SQL that evaluates the struct once, and then `value_sql`, which reads it."""
        struct_fields = {f"c{k}": b.sql for k, b in enumerate(self.bound_inputs.values())}
        return self.dialect.let("sqlml_n", self.dialect.struct(struct_fields), value_sql)


def build_null_if(null_condition: str | None, value_sql: str) -> str:
    """Build SQL that is NULL for rows that meet `null_condition`, and otherwise `value_sql`."""
    if null_condition is None:
        return value_sql
    return f"CASE WHEN {null_condition} THEN NULL ELSE {value_sql} END"


@cache_by_program
def _find_required_inputs(program: Program) -> frozenset[str]:
    """Find the inputs without which the reference interpreter rejects an otherwise valid row."""
    row = find_accepted_row(program)
    if row is None:
        raise ConfigError(
            "on_null = 'null' is not available for this model: no row was found that it accepts, "
            "so sqlml cannot tell which columns need a value; replace NULL in the query"
        )
    required_inputs = set()
    for feature in program.features:
        missing_value = np.array([None], object) if feature.kind == "string" else np.array([np.nan])
        try:
            reference.run(program, {**row, feature.name: missing_value})
        except (MissingValueError, UnknownCategoryError):
            required_inputs.add(feature.name)
        except SqlmlError:
            continue  # Other errors are reported when rows are scored.
    return frozenset(required_inputs)


def find_accepted_row(
    program: Program, run: Callable[[Program, dict[str, Array]], object] = reference.run
) -> dict[str, Array] | None:
    """Return a row that the model accepts, or None if it rejects 32 rows of each of two samples.

    `run` raises an error about a row that the model rejects.
    """
    for frame in islice(make_sample_frames(program, program.features), 2):
        for i in range(32):
            row = {
                name: _read_numbers(frame[name].to_numpy()[i : i + 1]) for name in program.inputs
            }
            try:
                run(program, row)
            except (SqlmlError, KeyError):
                continue
            return row
    return None


def _read_numbers(values: Array) -> Array:
    """Convert dates to microseconds since 1970, as Programs read them; return others unchanged."""
    if values.dtype.kind != "M":
        return values
    microseconds = values.astype("datetime64[us]").astype(np.float64)
    return np.where(np.isnat(values), np.nan, microseconds)
