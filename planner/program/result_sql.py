"""From what an engine function returns to what the user sees: labels, maps of probabilities, lists.

A model of one target gives a label, a MAP of probabilities, or a number. One of several targets
gives a list of them, one per target; where the labels of its targets differ in type, which a list
cannot hold, a struct with the fields t0, t1, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.backends.sql import string_literal
from sqlml.dialects import DUCKDB, Dialect
from sqlml.explaining.explained import OWN, block_of, holding
from sqlml.ir.program import Program
from sqlml.types import Labels

Chosen = tuple[int | None, ...]
"""The class that a call asks for, as its number in each target; None if a target lacks it."""

_LABEL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "float64": "DOUBLE"}


def result_type(program: Program, output: str, chosen: Chosen | None) -> str:
    """The SQL type of a call that asks for `output` of `program`."""
    labels = program.labels
    if output == OWN:
        return "MAP(VARCHAR, DOUBLE)" + "[]" * (_explained(program, chosen) > 1)
    if output == "label" and labels:
        return _several([label_type(s) for s in labels])
    if output == "proba" and labels and chosen is None:
        return _several([f"MAP({label_type(s)}, DOUBLE)" for s in labels])
    single = len(labels) == 1 if output == "proba" else program.output_type(output).width == 1
    return "DOUBLE" if single else "DOUBLE[]"


def label_type(labels: Labels) -> str:
    """The SQL type of one label, as DuckDB spells it.

    >>> label_type(Labels("int64", (0, 1))), label_type(Labels("int64", (0, 1), "TINYINT"))
    ('BIGINT', 'TINYINT')
    """
    return labels.sql_type or _LABEL_TYPES[labels.kind]


def _several(types: Sequence[str]) -> str:
    if len(types) == 1:
        return types[0]
    if len(set(types)) == 1:
        return f"{types[0]}[]"
    return f"STRUCT({', '.join(f't{t} {kind}' for t, kind in enumerate(types))})"


def decoded(
    call: str,
    program: Program,
    output: str,
    chosen: Chosen | None,
    dialect: Dialect = DUCKDB,
    baseline: bool = False,
    errors: bool = False,
) -> str:
    """The result of `call`, an expression that calls an engine function, as the user's type.

    Contributions come with their `baseline`, if that is asked for, or as standard `errors`.
    """
    labels = program.labels
    if output == OWN:
        values = _explained(program, chosen)
        if errors:
            return _errors(call, program, values, dialect)
        return _contributions(call, program, values, baseline, dialect)
    if output == "label" and labels:
        if len(labels) == 1:
            return _label(call, labels[0], dialect)
        return _several_labels(call, labels, dialect)
    if output == "proba" and len(labels) == 1 and chosen is None:
        return dialect.map(label_array(labels[0], dialect), call)
    if output == "proba" and len(labels) > 1:
        if chosen is not None:
            return _chosen(call, program, chosen, dialect)
        return _maps(call, labels, program.one_probability, dialect)
    return call


def baseline_key(program: Program) -> str:
    """The key of what a model is expected to say of a row of which nothing is known."""
    return "baseline" if "baseline" not in program.inputs else "(baseline)"


def _explained(program: Program, chosen: Chosen | None) -> int:
    """How many values of a row are explained."""
    made = holding(program, OWN)
    return 1 if chosen is not None else made.output_type(OWN).width // block_of(made)


def _contributions(
    call: str, program: Program, values: int, baseline: bool, dialect: Dialect
) -> str:
    """A MAP from each input to its contribution, or a list of them."""
    names = [*program.inputs, *([baseline_key(program)] if baseline else [])]
    keys, block = dialect.texts(names), block_of(holding(program, OWN))
    if values == 1:
        whole = len(names) == block
        return dialect.map(keys, call if whole else dialect.part(call, 1, len(names)))
    firsts = range(1, values * block, block)
    maps = [dialect.map(keys, dialect.part("p", k, k + len(names) - 1)) for k in firsts]
    return dialect.let("p", call, dialect.array(maps))


def _errors(call: str, program: Program, values: int, dialect: Dialect) -> str:
    """A MAP from each input to the standard error of its contribution, or a list of them."""
    inputs, block = len(program.inputs), block_of(holding(program, OWN))
    keys, none = dialect.texts(list(program.inputs)), dialect.array(["CAST(0 AS DOUBLE)"] * inputs)
    estimated = block > inputs + 1
    maps = [
        dialect.map(keys, dialect.part("p", first + inputs + 1, first + 2 * inputs))
        if estimated
        else f"CASE WHEN p IS NOT NULL THEN {dialect.map(keys, none)} END"
        for first in range(1, values * block, block)
    ]
    return dialect.let("p", call, maps[0] if values == 1 else dialect.array(maps))


def first_positions(labels: Sequence[Labels]) -> tuple[int, ...]:
    """The place, from 1, that the first class of each target has among the classes of all.

    A function that returns labels of several targets returns such places.
    """
    sizes = [len(s) for s in labels]
    return tuple(int(n) for n in np.cumsum([1, *sizes[:-1]]))


def _label(call: str, labels: Labels, dialect: Dialect) -> str:
    """An element of a list, since both engines call what CASE compares more often than needed.

    DuckDB evaluates it for a row of NULLs under a LEFT JOIN, Spark once for each WHEN.
    """
    return dialect.at(f"({label_array(labels, dialect)})", dialect.operator("+", call, "1"))


def _several_labels(call: str, labels: Sequence[Labels], dialect: Dialect) -> str:
    if _alike(labels):
        everything = dialect.array([v for s in labels for v in _literals(s, dialect)])
        return dialect.pick(everything, call)
    parts = []
    for t, (s, first) in enumerate(zip(labels, first_positions(labels), strict=True), 1):
        place = dialect.operator("-", dialect.at("p", t), str(first - 1))
        parts.append(dialect.at(f"({label_array(s, dialect)})", place))
    return _struct(call, parts, dialect)


def _maps(call: str, labels: Sequence[Labels], one: bool, dialect: Dialect) -> str:
    """`call` returns one list per target, with the probability of each class; or (`one`) one number
    per target, the probability of the second of its two classes."""

    def made(s: Labels, p: str) -> str:
        both = dialect.array([dialect.operator("-", "1", p), p]) if one else p
        return dialect.map(label_array(s, dialect), both)

    if _equal(labels):
        return dialect.each(call, "p", made(labels[0], "p"))
    parts = [made(s, dialect.at("p", t)) for t, s in enumerate(labels, 1)]
    return _together(call, parts, labels, dialect)


def _together(call: str, parts: Sequence[str], labels: Sequence[Labels], dialect: Dialect) -> str:
    """A list of `parts`, or a struct where a list cannot hold them; p stands for `call`."""
    if _alike(labels):
        return dialect.let("p", call, dialect.array(parts))
    return _struct(call, parts, dialect)


def _chosen(call: str, program: Program, chosen: Chosen, dialect: Dialect) -> str:
    parts = []
    for t, k in enumerate(chosen, 1):
        p = dialect.at("p", t)
        if k is None:
            parts.append("CAST(NULL AS DOUBLE)")
        elif program.one_probability:
            parts.append(p if k else dialect.operator("-", "1", p))
        else:
            parts.append(dialect.at(p, k + 1))
    return dialect.let("p", call, dialect.array(parts))


def _struct(call: str, parts: Sequence[str], dialect: Dialect) -> str:
    """A struct of `parts`, in which p stands for the result of `call`, which runs once."""
    return dialect.let("p", call, dialect.struct({f"t{t}": p for t, p in enumerate(parts)}))


def _alike(labels: Sequence[Labels]) -> bool:
    return len({s.kind for s in labels}) == 1


def _equal(labels: Sequence[Labels]) -> bool:
    return _alike(labels) and len({s.values for s in labels}) == 1


_FEW = 16
"""Integers that are written one by one."""


def label_array(labels: Labels, dialect: Dialect = DUCKDB) -> str:
    """A list of the labels, of their own type."""
    made = _plain_array(labels, dialect)
    if not labels.sql_type:
        return made
    return f"CAST({made} AS {dialect.type(f'{label_type(labels)}[]')})"


def _plain_array(labels: Labels, dialect: Dialect) -> str:
    if labels.kind == "string" and not any("\0" in str(v) for v in labels.values):
        return dialect.texts(list(map(str, labels.values)))
    if labels.kind == "int64" and len(labels) > _FEW and dialect is DUCKDB:
        return f"CAST({dialect.texts([str(int(v)) for v in labels.values])} AS BIGINT[])"
    return dialect.array(_literals(labels, dialect))


def _literals(labels: Labels, dialect: Dialect) -> list[str]:
    return [label_literal(v, labels.kind, dialect) for v in labels.values]


def label_literal(value: Any, kind: str, dialect: Dialect = DUCKDB) -> str:
    """A class label as a SQL literal of its own type."""
    if kind == "string":
        return string_literal(str(value), dialect)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64":
        return f"'{int(value)}'::BIGINT"  # quoted: -2^63 has no literal of its own
    return f"'{float(value)!r}'::DOUBLE"
