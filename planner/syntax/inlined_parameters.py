"""`with_values`: a query with the values of its parameters written out, to be kept as a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlml.errors import ParseError
from sqlml.planner.syntax.arguments import parameters_of
from sqlml.planner.syntax.parameters import Parameters


def with_values(sql: str, values: Any, literal: Callable[[Any], str]) -> str:
    """The query without parameters.

    Args:
        values: a sequence for `?` and `$1`, a mapping for `$name`.
        literal: a value as SQL writes it.

    >>> with_values("SELECT * FROM t WHERE a < ? AND b = ?", [3, 4], str)
    'SELECT * FROM t WHERE a < 3 AND b = 4'

    Raises:
        ParseError: a parameter has no value, or there are more values than parameters.
    """
    written = parameters_of(sql)
    given = Parameters(written, values)
    made, end, used = [], 0, set()
    for parameter in written:
        found = given.value(parameter)
        if found is None:
            raise ParseError(
                f"no value is given for parameter {parameter.text}", sql, parameter.span.start
            )
        used.add(given.place(parameter))
        made += [sql[end : parameter.span.start], literal(found[0])]
        end = parameter.span.end
    if isinstance(values, Sequence | Mapping) and len(values) > len(used):
        values_are = "1 value is" if len(values) == 1 else f"{len(values)} values are"
        parameters = "no parameter" if not used else f"{len(used)} parameters"
        parameters = "1 parameter" if len(used) == 1 else parameters
        raise ParseError(f"{values_are} given for {parameters}")
    return "".join([*made, sql[end:]])
