"""Pipes: Spark's `FROM t |> WHERE .. |> EXTEND .. |> SELECT ..`, whose steps see what came before.

A step sees the columns that the steps before it make. While these only choose rows and join tables,
those are the FROM clause itself and the joins, with the names of their tables; else they are the
result of the last step that made columns, which has the name that `|> AS name` gives to it, and the
joins behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.front.lexer import Token

_CHOOSE_ROWS = frozenset("WHERE ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET TABLESAMPLE".split())
_JOIN = frozenset("JOIN INNER LEFT RIGHT FULL CROSS NATURAL SEMI ANTI".split())


@dataclass(frozen=True, slots=True)
class Step:
    """The step of a pipe around a place.

    own: its tokens; first: those of the pipe's first step. end: the token behind the last step that
    made columns. plain: whether that is the first one. name: what it is called (`|> AS`), or "".
    joins: the tokens of the joins since, of its own, too.
    """

    own: list[int]
    first: list[int]
    end: int
    plain: bool
    name: str
    joins: list[list[int]]


def step_at(tokens: Sequence[Token], level: list[int], place: int) -> Step | None:
    """The step around token `place` of a query whose tokens, outside of brackets, are `level`.

    None where there is no pipe.

    >>> from sqlml.front.lexer import tokenize
    >>> tokens = tokenize("FROM t |> AS c |> WHERE a |> JOIN u |> LIMIT 1 |> SELECT b", "spark")
    >>> step = step_at(tokens, list(range(len(tokens))), 18)
    >>> [tokens[i].text for i in step.own], tokens[step.end - 1].text, step.plain, step.name
    (['SELECT', 'b'], 'c', False, 'c')
    >>> [[tokens[i].text for i in join] for join in step.joins]
    [['JOIN', 'u']]
    """
    steps: list[list[int]] = [[]]
    for i in level:
        if tokens[i].is_symbol("|>"):
            steps.append([])
        else:
            steps[-1].append(i)
    if len(steps) == 1 or not all(steps):
        return None
    words = [tokens[step[0]].upper for step in steps]
    at = max(k for k, step in enumerate(steps) if step[0] <= place or k == 0)
    if at == 0:
        return Step(steps[0], steps[0], steps[1][0] - 1, True, "", [])
    last = max((k for k in range(1, at) if words[k] not in _CHOOSE_ROWS | _JOIN), default=0)
    joins = [steps[k] for k in range(last + 1, at + 1) if words[k] in _JOIN]
    name = tokens[steps[last][-1]].text if words[last] == "AS" else ""
    return Step(steps[at], steps[0], steps[last + 1][0] - 1, last == 0, name, joins)
