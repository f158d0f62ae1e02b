"""Name the value that `require_known` refused: it sees only codes, all of them below 0.

Only after the error: the codes are computed once more, by the reference, to find the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import SqlmlError, UnknownCategoryError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import unknown_category
from sqlml.ir.program import Program
from sqlml.types import Array

_LONGEST_QUERY = 2000
_LONGEST_VALUE = 60
"""Characters of a message."""

Read = Callable[[str, int], tuple[Any] | None]
"""Column and row -> the value there, in a tuple; None if it is unavailable."""


def named(
    error: UnknownCategoryError,
    core: Program,
    inputs: Mapping[str, Any],
    read: Read,
    encoders: Program | None = None,
    dialect: Dialect = DUCKDB,
) -> UnknownCategoryError:
    """`error` with the first value that is refused, or with the query that finds it.

    Args:
        core: the Program that raised it, over `inputs`.
        encoders: what turned strings into codes earlier, if the strings are no longer available.
        dialect: of the query.
    """
    if error.feature is None or error.step is None:
        return error
    try:
        row = _row(core, inputs, error.feature, error.step)
        value = None if row is None else read(error.feature, row)
    except SqlmlError:  # another check stands before this one, or a column holds odd values
        return error
    if value is not None:
        return unknown_category(error.feature, error.step, shown(value[0]))
    if encoders is None or error.feature not in encoders.inputs:
        return error
    refuses_null = _code_of_null(encoders, error.feature) < 0
    found = "a category (or NULL)" if refuses_null else "a category"
    query = _query(encoders, error.feature, refuses_null, dialect)
    return unknown_category(error.feature, error.step, found, query)


def shown(value: Any) -> str:
    """A value as a message has it: quoted and not too long; NULL for a missing one."""
    if value is None or value != value:
        return "NULL"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]}..{text[0]}"


def _row(core: Program, inputs: Mapping[str, Any], feature: str, step: str) -> int | None:
    """The first row of which a code is refused."""
    b = Builder()
    values: list[Value] = []
    codes: dict[str, Value] = {}
    for node in core.nodes:
        before = [values[i] for i in node.inputs]
        if node.op == "require_known" and node.attrs["feature"] == feature:
            if node.attrs["step"] == step:
                codes[str(len(codes))] = before[0]
        values.append(b.again(node, before))
    if not codes:
        return None
    made = reference.run(b.build(codes), inputs)
    refused = np.concatenate([c.reshape(len(c), -1) < 0 for c in made.values()], axis=1).any(axis=1)
    return int(refused.argmax()) if refused.any() else None


def made_of(encoders: Program, feature: str) -> list[str]:
    """The outputs of `encoders` that only `feature` makes."""
    reads: list[frozenset[str]] = []
    for node in encoders.nodes:
        own = {str(node.attrs["name"])} if node.op == "input" else set()
        reads.append(frozenset(own.union(*(reads[i] for i in node.inputs))))
    return [name for name, i in encoders.outputs.items() if reads[i] == {feature}]


def _codes_of(encoders: Program, feature: str) -> Program:
    b = Builder()
    values: list[Value] = []
    for node in encoders.nodes:
        values.append(b.again(node, [values[i] for i in node.inputs]))
    return b.build({n: values[encoders.outputs[n]] for n in made_of(encoders, feature)})


def _code_of_null(encoders: Program, feature: str) -> int:
    """The least code that a missing value has."""
    missing: Array = np.array([[None]], object)
    made = reference.run(_codes_of(encoders, feature), {feature: missing})
    return min((int(c.min()) for c in made.values()), default=0)


def _query(encoders: Program, feature: str, refuses_null: bool, dialect: Dialect) -> str:
    """SQL that finds what the encoders of `feature` do not know; "" where that is too long."""
    sets = [n.attrs["categories"] for n in _codes_of(encoders, feature).nodes if n.op == "encode"]
    known = {str(c) for c in sets[0]}.intersection(*sets) if sets else set()
    listed = ", ".join(map(dialect.quote_string, sorted(known)))
    if "\0" in listed or not known or len(listed) > _LONGEST_QUERY:
        return ""
    column = dialect.quote_name(feature)
    null = f" OR {column} IS NULL" if refuses_null else ""
    return f"SELECT DISTINCT {column} FROM .. WHERE {column} NOT IN ({listed}){null}"
