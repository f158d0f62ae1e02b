"""`column_names`: select items keep the names that the engine gives to the user's own text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.planner.syntax.outline import ModelCall


def column_names(
    sql: str,
    calls: Iterable[ModelCall],
    column_name: Callable[[str], str | None],
    dialect: Dialect,
) -> dict[int, str]:
    """` AS "<the engine's name>"` for each select item with a call and without a name.

    The engine names a column after its expression, which would now be our rewritten text.

    Args:
        column_name: how the engine names an expression; None: as it is written.
    """
    names: dict[int, str] = {}
    for item in dict.fromkeys(item for call in calls for item in call.items):
        if item.name is None and not item.several:
            written = sql[item.span.start : item.span.end]
            name = column_name(written) or " ".join(written.split())
            with suppress(BindError):  # Spark's variable ${..}: its name is that of our text
                names[item.span.end] = f" AS {dialect.quote_name(name)}"
    return names
