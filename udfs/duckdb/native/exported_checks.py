"""Find why a model refuses rows, for an extension: the checks and the messages of the errors.

The messages are those of the reference interpreter for a row with one bad value. All bad values are
tried together: a row that a check of the model refuses continues as the row that it accepts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.operators.categories import make_unknown_category_error
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import find_accepted_row
from sqlml.planner.binding.unknown_categories import find_known_categories
from sqlml.planner.program.prepare_program import PreparedProgram
from sqlml.types import DATETIME, Array
from sqlml.udfs.duckdb.native.extension_file import (
    INFINITE,
    MISSING,
    MISSING_TEXT,
    TOO_LARGE,
    UNKNOWN,
    UNKNOWN_NUMBER,
    Check,
)
from sqlml.udfs.make_function import format_value

_SENTINEL = "\x01"  # stands for the unknown category in a message
_ANY_CATEGORY = "\x02"  # is an unknown category that a message cannot quote
_UNKNOWN_NUMBER = -1234567.5  # is hardly a category
_BAD_NUMBERS = ((MISSING, np.nan), (INFINITE, np.inf), (INFINITE, -np.inf), (TOO_LARGE, 1e300))


def find_checks(prepared: PreparedProgram) -> tuple[Check, ...]:
    """Return the checks of the rows that a model refuses, in the order of the columns."""
    split = prepared.split
    row = find_accepted_row(prepared.program, _run_checks)
    if row is None:
        return ()
    known = _find_known_numbers(prepared.program)
    numbers = [(k, c.name) for k, c in enumerate(split.columns) if not c.is_looked_up]
    checks: list[Check] = []
    values: list[tuple[str, Any]] = []
    for k, name in numbers:
        if name in row:
            checks += [Check(kind, k, "") for kind, _ in _BAD_NUMBERS]
            values += [(name, number) for _, number in _BAD_NUMBERS]
        if name in row and name in known:
            checks.append(Check(UNKNOWN_NUMBER, k, "", known=known[name]))
            values.append((name, _UNKNOWN_NUMBER))
    for position, name in enumerate(split.text_inputs):
        if name not in row:
            continue
        checks.append(Check(MISSING_TEXT, -1, "", position))
        values.append((name, None))
        outputs = frozenset() if split.lookup is None else _list_outputs_of(split.lookup, name)
        for k, column in enumerate(split.columns):
            if column.is_looked_up and column.is_strict and column.name in outputs:
                checks.append(Check(UNKNOWN, k, "", position))
                values.append((name, _SENTINEL))
    if split.encoders is not None:
        # The code of an unknown category, or of a NULL that the model refuses, is below 0.
        for name in filter(row.__contains__, split.encoders.inputs):
            outputs = _list_outputs_of(split.encoders, name)
            for k, column in enumerate(split.packed_columns):
                if column.is_encoded and column.is_strict and column.name in outputs:
                    checks.append(Check(UNKNOWN, k, ""))
                    values.append((name, _ANY_CATEGORY))
    errors = _find_errors(prepared.program, row, values)
    date_names = {f.name for f in prepared.program.features if f.kind == DATETIME}
    return tuple(
        Check(
            check.kind,
            check.column,
            _format_message(error, value, name in date_names),
            check.quoted,
            check.known,
        )
        for check, (name, value), error in zip(checks, values, errors, strict=True)
        if error is not None
    )


_TEXT_CHECKS = ("count_tokens", "hash_tokens")
"""Operators that refuse NULL, besides those that only check."""


def _is_check(op: str) -> bool:
    return op.startswith("require") or op in _TEXT_CHECKS


def _list_checking_nodes(program: Program) -> list[int]:
    """Return the nodes that check rows, and those on which they depend."""
    checks = [i for i, node in enumerate(program.nodes) if _is_check(node.op)]
    return program.find_needed_nodes(checks)


def _run_checks(program: Program, row: Mapping[str, Array]) -> None:
    """Raise the error of the first check that refuses `row`; the rest of the model is not run."""
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for i in _list_checking_nodes(program):
            values[i] = _compute_node(program, i, values, row)


def _compute_node(
    program: Program, i: int, values: Mapping[int, Any], inputs: Mapping[str, Array]
) -> Any:
    node = program.nodes[i]
    if node.op == "input":
        return reference.convert_input(node, inputs)
    return reference.FUNCTIONS[node.op]([values[j] for j in node.inputs], node.attrs)


def _find_known_numbers(program: Program) -> Mapping[str, Array]:
    """Return the known numbers of each input that refuses others, if nothing is computed before."""
    try:
        categories = find_known_categories({"on_unknown": "null"}, program)
    except ConfigError:
        return {}
    return {name: known for name, known in categories.items() if known.dtype != object}


def _list_outputs_of(lookup: Program, name: str) -> frozenset[str]:
    """Return the outputs of `lookup` that encode the input `name`."""
    reads: list[bool] = []
    for node in lookup.nodes:
        reads.append(node.attrs.get("name") == name or any(reads[i] for i in node.inputs))
    return frozenset(output for output, i in lookup.outputs.items() if reads[i])


def _find_errors(
    program: Program, row: Mapping[str, Array], bad_values: Sequence[tuple[str, Any]]
) -> list[SqlmlError | None]:
    """Return the error about each row that has one of `bad_values` in an input, or None."""
    count = len(bad_values)
    inputs = {name: np.repeat(value, count + 1, axis=0) for name, value in row.items()}
    for r, (name, bad_value) in enumerate(bad_values):
        inputs[name][r] = bad_value
    errors: list[SqlmlError | None] = [None] * count
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for i in _list_checking_nodes(program):
            node = program.nodes[i]
            arguments = [values[j] for j in node.inputs]
            # Counts of tokens are sparse, and always valid.
            is_dense = all(isinstance(argument, np.ndarray) for argument in arguments)
            if _is_check(node.op) and is_dense:
                refused = dict(_find_refused(node, arguments, np.arange(count)))
                for r, error in refused.items():
                    errors[r] = errors[r] or error
                # The last row is the accepted one.
                source = np.arange(count + 1)
                source[list(refused)] = count
                values |= {j: values[j][source] for j in node.inputs}
            values[i] = _compute_node(program, i, values, inputs)
    return errors


def _find_refused(node: Any, arguments: Sequence[Any], rows: Array) -> list[tuple[int, SqlmlError]]:
    """Return the rows that a check refuses, each with the error about it alone."""
    if not rows.size:
        return []
    try:
        reference.FUNCTIONS[node.op]([argument[rows] for argument in arguments], node.attrs)
        return []
    except SqlmlError as error:
        if rows.size == 1:
            # The traceback would keep the Program alive in a cycle with the caller's variables.
            return [(int(rows[0]), error.with_traceback(None))]
    half = rows.size // 2
    return [
        *_find_refused(node, arguments, rows[:half]),
        *_find_refused(node, arguments, rows[half:]),
    ]


def _format_message(error: SqlmlError, bad_value: Any, is_date: bool) -> str:
    """Return the message of an error for C's printf, with %s for an unknown category.

    The message does not quote an unknown date.
    """
    if isinstance(error, UnknownCategoryError) and error.feature and error.step:
        is_unknown = bad_value in (_SENTINEL, _UNKNOWN_NUMBER)
        value = _SENTINEL if is_unknown else format_value(bad_value)
        value = "a category (or NULL)" if bad_value == _ANY_CATEGORY else value
        value = "a date" if is_date and is_unknown else value
        error = make_unknown_category_error(error.feature, error.step, value)
    return str(error).replace("%", "%%").replace(_SENTINEL, "%s")
