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
from sqlml.ir.program import Program
from sqlml.types import Labels

Chosen = tuple[int | None, ...]
"""The class that a call asks for, as its number in each target; None where a target lacks it."""

_LABEL_TYPES = {"string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "float64": "DOUBLE"}
_CASES = 16
"""Most labels that are written as a CASE."""


def result_type(program: Program, output: str, chosen: Chosen | None) -> str:
    """The SQL type of a call that asks for `output` of `program`."""
    labels = program.labels
    if output == "label" and labels:
        return _several([_LABEL_TYPES[s.kind] for s in labels])
    if output == "proba" and labels and chosen is None:
        return _several([f"MAP({_LABEL_TYPES[s.kind]}, DOUBLE)" for s in labels])
    single = len(labels) == 1 if output == "proba" else program.output_type(output).width == 1
    return "DOUBLE" if single else "DOUBLE[]"


def _several(types: Sequence[str]) -> str:
    if len(types) == 1:
        return types[0]
    if len(set(types)) == 1:
        return f"{types[0]}[]"
    return f"STRUCT({', '.join(f't{t} {kind}' for t, kind in enumerate(types))})"


def decoded(call: str, program: Program, output: str, chosen: Chosen | None) -> str:
    """The result of `call`, an expression that calls an engine function, as the user's type."""
    labels = program.labels
    if output == "label" and labels:
        return _label(call, labels[0]) if len(labels) == 1 else _several_labels(call, labels)
    if output == "proba" and len(labels) == 1 and chosen is None:
        return f"MAP({_array(labels[0])}, {call})"
    if output == "proba" and len(labels) > 1:
        if chosen is not None:
            return _chosen(call, program, chosen)
        return _one_each(call, labels) if program.one_probability else _maps(call, labels)
    return call


def first_positions(labels: Sequence[Labels]) -> tuple[int, ...]:
    """The place, from 1, that the first class of each target has among the classes of all.

    A function that returns labels of several targets returns such places.
    """
    sizes = [len(s) for s in labels]
    return tuple(int(n) for n in np.cumsum([1, *sizes[:-1]]))


def _label(call: str, labels: Labels) -> str:
    values = _literals(labels)
    if len(values) <= _CASES:
        cases = " ".join(f"WHEN {i} THEN {v}" for i, v in enumerate(values))
        return f"CASE {call} {cases} END"
    return f"([{', '.join(values)}])[{call} + 1]"


def _several_labels(call: str, labels: Sequence[Labels]) -> str:
    if _alike(labels):
        everything = ", ".join(v for s in labels for v in _literals(s))
        return f"list_select([{everything}], {call})"
    firsts = first_positions(labels)
    return _struct(
        call,
        [f"({_array(s)})[p[{t}] - {firsts[t - 1] - 1}]" for t, s in enumerate(labels, 1)],
    )


def _maps(call: str, labels: Sequence[Labels]) -> str:
    """`call` returns one list per target, with the probability of each class."""
    if not _alike(labels):
        return _struct(call, [f"MAP({_array(s)}, p[{t}])" for t, s in enumerate(labels, 1)])
    keys, index = _keys(labels)
    return f"list_transform({call}, lambda {index}: MAP({keys}, p))"


def _one_each(call: str, labels: Sequence[Labels]) -> str:
    """`call` returns one number per target, the probability of the second of its two classes."""
    if not _alike(labels):
        parts = [f"MAP({_array(s)}, [1 - p[{t}], p[{t}]])" for t, s in enumerate(labels, 1)]
        return _struct(call, parts)
    keys, index = _keys(labels)
    return f"list_transform({call}, lambda {index}: MAP({keys}, [1 - p, p]))"


def _chosen(call: str, program: Program, chosen: Chosen) -> str:
    parts = []
    for t, k in enumerate(chosen, 1):
        if k is None:
            parts.append("NULL::DOUBLE")
        elif program.one_probability:
            parts.append(f"p[{t}]" if k else f"1 - p[{t}]")
        else:
            parts.append(f"p[{t}][{k + 1}]")
    return f"list_transform([{call}], lambda p: [{', '.join(parts)}])[1]"


def _struct(call: str, parts: Sequence[str]) -> str:
    """A struct of `parts`, in which p stands for the result of `call`, which runs once."""
    fields = ", ".join(f"'t{t}': {part}" for t, part in enumerate(parts))
    return f"list_transform([{call}], lambda p: {{{fields}}})[1]"


def _keys(labels: Sequence[Labels]) -> tuple[str, str]:
    """The keys of a target's MAP, and the parameters of the lambda that makes it."""
    if len({s.values for s in labels}) == 1:
        return _array(labels[0]), "p"
    return f"([{', '.join(_array(s) for s in labels)}])[i]", "p, i"


def _alike(labels: Sequence[Labels]) -> bool:
    return len({s.kind for s in labels}) == 1


def _array(labels: Labels) -> str:
    return f"[{', '.join(_literals(labels))}]"


def _literals(labels: Labels) -> list[str]:
    return [label_literal(v, labels.kind) for v in labels.values]


def label_literal(value: Any, kind: str) -> str:
    """A class label as a SQL literal of its own type."""
    if kind == "string":
        return string_literal(str(value))
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64":
        return f"'{int(value)}'::BIGINT"  # quoted: -2^63 has no literal of its own
    return f"'{float(value)!r}'::DOUBLE"
