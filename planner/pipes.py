"""Pipes: Spark's `FROM t |> WHERE .. |> EXTEND .. |> SELECT ..`, whose steps see what came before.

A step sees the columns that the steps before it make. While these only choose rows, that is the
FROM clause itself, with the names of its tables; else it is their result, which has the name that
the last `|> AS name` gives to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.front.lexer import Token

_CHOOSE_ROWS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE".split())


@dataclass(frozen=True, slots=True)
class Step:
    """The step of a pipe around a place.

    own: its tokens; first: those of the pipe's first step. before: the token behind the steps
    before it. chooses: whether those that follow the first only choose rows. name: what `|> AS`
    calls their result, or "".
    """

    own: list[int]
    first: list[int]
    before: int
    chooses: bool
    name: str


def step_at(tokens: Sequence[Token], level: list[int], place: int) -> Step | None:
    """The step around token `place` of a query whose tokens, outside of brackets, are `level`.

    None where there is no pipe.

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("FROM t |> WHERE a |> AS c |> LIMIT 1 |> SELECT b", "spark")
    >>> step = step_at(tokens, list(range(len(tokens))), 14)
    >>> [tokens[i].text for i in step.own], tokens[step.before].text, step.chooses, step.name
    (['SELECT', 'b'], '|>', False, 'c')
    """
    steps: list[list[int]] = [[]]
    for i in level:
        if tokens[i].is_symbol("|>"):
            steps.append([])
        else:
            steps[-1].append(i)
    if len(steps) == 1 or not all(steps):
        return None
    at = max(k for k, step in enumerate(steps) if step[0] <= place or k == 0)
    between = [tokens[step[0]].upper for step in steps[1:at]]
    name = ""
    for step, word in zip(steps[1:at], between, strict=True):
        if word == "AS":
            name = tokens[step[-1]].text
        elif word not in _CHOOSE_ROWS:
            name = ""
    chooses = _CHOOSE_ROWS.issuperset(between)
    return Step(steps[at], steps[0], steps[at][0] - 1, chooses, name)
