"""The SQL that turns the result of an engine function into the user's: labels, maps, lists.

A model of one target returns a label, a MAP of probabilities, or a number. A model of several
targets returns a list of these, or a struct with the fields t0, t1, ... if the labels of its
targets differ in type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.backends.sql.expression import string_literal
from sqlml.dialects import DUCKDB, Dialect
from sqlml.explaining.explained import OWN, block_of, ensure_explained
from sqlml.ir.program import Program
from sqlml.types import Labels

ChosenClass = tuple[int | None, ...]
"""The requested class, as its number in each target; None for a target that lacks it."""

_LABEL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "float64": "DOUBLE"}


def result_type(program: Program, output: str, chosen: ChosenClass | None) -> str:
    labels = program.labels
    if output == OWN:
        return "MAP(VARCHAR, DOUBLE)" + "[]" * (_count_explained(program, chosen) > 1)
    if output == "label" and labels:
        return _collect_types([label_type(s) for s in labels])
    if output == "proba" and labels and chosen is None:
        return _collect_types([f"MAP({label_type(s)}, DOUBLE)" for s in labels])
    single = len(labels) == 1 if output == "proba" else program.output_type(output).width == 1
    return "DOUBLE" if single else "DOUBLE[]"


def label_type(labels: Labels) -> str:
    """Return the SQL type of a label, as DuckDB spells it.

    >>> label_type(Labels("int64", (0, 1))), label_type(Labels("int64", (0, 1), "TINYINT"))
    ('BIGINT', 'TINYINT')
    """
    return labels.sql_type or _LABEL_TYPES[labels.kind]


def _collect_types(types: Sequence[str]) -> str:
    if len(types) == 1:
        return types[0]
    if len(set(types)) == 1:
        return f"{types[0]}[]"
    return f"STRUCT({', '.join(f't{t} {kind}' for t, kind in enumerate(types))})"


def decode_result(
    call: str,
    program: Program,
    output: str,
    chosen: ChosenClass | None,
    dialect: Dialect = DUCKDB,
    baseline: bool = False,
    errors: bool = False,
) -> str:
    """Return the user's value of a function's `call`; with `errors`, these are standard errors."""
    labels = program.labels
    if output == OWN:
        values = _count_explained(program, chosen)
        if errors:
            return _map_errors(call, program, values, dialect)
        return _map_contributions(call, program, values, baseline, dialect)
    if output == "label" and labels:
        if len(labels) == 1:
            # A CASE would call the function too often: DuckDB evaluates its operand for a row of
            # NULLs under a LEFT JOIN, and Spark once for each WHEN.
            array = label_array(labels[0], dialect)
            return dialect.at(f"({array})", dialect.operator("+", call, "1"))
        return _decode_labels(call, labels, dialect)
    if output == "proba" and len(labels) == 1 and chosen is None:
        return dialect.map(label_array(labels[0], dialect), call)
    if output == "proba" and len(labels) > 1:
        if chosen is not None:
            return _pick_class(call, program, chosen, dialect)
        return _map_probabilities(call, labels, program.has_one_probability_per_target, dialect)
    return call


def _count_explained(program: Program, chosen: ChosenClass | None) -> int:
    explained = ensure_explained(program, OWN)
    return 1 if chosen is not None else explained.output_type(OWN).width // block_of(explained)


def _map_contributions(
    call: str, program: Program, values: int, baseline: bool, dialect: Dialect
) -> str:
    key = "(baseline)" if "baseline" in program.inputs else "baseline"
    names = [*program.inputs, *([key] if baseline else [])]
    keys, block = dialect.texts(names), block_of(ensure_explained(program, OWN))
    if values == 1:
        is_whole_list = len(names) == block
        return dialect.map(keys, call if is_whole_list else dialect.part(call, 1, len(names)))
    firsts = range(1, values * block, block)
    maps = [dialect.map(keys, dialect.part("p", k, k + len(names) - 1)) for k in firsts]
    return dialect.let("p", call, dialect.array(maps))


def _map_errors(call: str, program: Program, values: int, dialect: Dialect) -> str:
    inputs, block = len(program.inputs), block_of(ensure_explained(program, OWN))
    keys, zeros = dialect.texts(list(program.inputs)), dialect.array(["CAST(0 AS DOUBLE)"] * inputs)
    has_errors = block > inputs + 1
    maps = [
        dialect.map(keys, dialect.part("p", first + inputs + 1, first + 2 * inputs))
        if has_errors
        else f"CASE WHEN p IS NOT NULL THEN {dialect.map(keys, zeros)} END"
        for first in range(1, values * block, block)
    ]
    return dialect.let("p", call, maps[0] if values == 1 else dialect.array(maps))


def first_positions(labels: Sequence[Labels]) -> tuple[int, ...]:
    """Return the position, from 1, of the first class of each target among all classes."""
    sizes = [len(s) for s in labels]
    return tuple(int(n) for n in np.cumsum([1, *sizes[:-1]]))


def _decode_labels(call: str, labels: Sequence[Labels], dialect: Dialect) -> str:
    if _have_same_type(labels):
        all_labels = dialect.array([v for s in labels for v in _literals(s, dialect)])
        return dialect.pick(all_labels, call)
    parts = []
    for t, (s, first) in enumerate(zip(labels, first_positions(labels), strict=True), 1):
        position = dialect.operator("-", dialect.at("p", t), str(first - 1))
        parts.append(dialect.at(f"({label_array(s, dialect)})", position))
    return _combine_in_struct(call, parts, dialect)


def _map_probabilities(
    call: str, labels: Sequence[Labels], has_one_probability: bool, dialect: Dialect
) -> str:
    """Return a MAP of probabilities per target; `call` may return those of second classes only."""

    def map_target(s: Labels, p: str) -> str:
        both = dialect.array([dialect.operator("-", "1", p), p]) if has_one_probability else p
        return dialect.map(label_array(s, dialect), both)

    has_one_type = _have_same_type(labels)
    if has_one_type and len({s.values for s in labels}) == 1:
        return dialect.each(call, "p", map_target(labels[0], "p"))
    parts = [map_target(s, dialect.at("p", t)) for t, s in enumerate(labels, 1)]
    if has_one_type:
        return dialect.let("p", call, dialect.array(parts))
    return _combine_in_struct(call, parts, dialect)


def _pick_class(call: str, program: Program, chosen: ChosenClass, dialect: Dialect) -> str:
    parts = []
    for t, k in enumerate(chosen, 1):
        p = dialect.at("p", t)
        if k is None:
            parts.append("CAST(NULL AS DOUBLE)")
        elif program.has_one_probability_per_target:
            parts.append(p if k else dialect.operator("-", "1", p))
        else:
            parts.append(dialect.at(p, k + 1))
    return dialect.let("p", call, dialect.array(parts))


def _combine_in_struct(call: str, parts: Sequence[str], dialect: Dialect) -> str:
    """Return a struct of `parts`, in which `p` stands for the result of `call`, which runs once."""
    return dialect.let("p", call, dialect.struct({f"t{t}": p for t, p in enumerate(parts)}))


def _have_same_type(labels: Sequence[Labels]) -> bool:
    return len({s.kind for s in labels}) == 1


_MAX_LITERALS = 16


def label_array(labels: Labels, dialect: Dialect = DUCKDB) -> str:
    if labels.kind == "string" and not any("\0" in str(v) for v in labels.values):
        array = dialect.texts(list(map(str, labels.values)))
    elif labels.kind == "int64" and len(labels) > _MAX_LITERALS and dialect is DUCKDB:
        array = f"CAST({dialect.texts([str(int(v)) for v in labels.values])} AS BIGINT[])"
    else:
        array = dialect.array(_literals(labels, dialect))
    if not labels.sql_type:
        return array
    return f"CAST({array} AS {dialect.type(f'{label_type(labels)}[]')})"


def _literals(labels: Labels, dialect: Dialect) -> list[str]:
    return [label_literal(v, labels.kind, dialect) for v in labels.values]


def label_literal(value: Any, kind: str, dialect: Dialect = DUCKDB) -> str:
    if kind == "string":
        return string_literal(str(value), dialect)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64":
        return f"'{int(value)}'::BIGINT"  # -2^63 is only valid in quotes.
    return f"'{float(value)!r}'::DOUBLE"
