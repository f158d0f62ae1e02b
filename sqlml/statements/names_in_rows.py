"""`names_in_rows`: the models that the rows of a query name, for the planner."""

from __future__ import annotations

import weakref
from typing import Protocol

from sqlml.host import Host


class Queries(Protocol):
    """A session's queries."""

    host: Host

    def runnable(self, sql: str) -> str:
        """A query that may call models as the engine runs it."""
        ...


def names_in_rows(queries: weakref.ref[Queries], query: str) -> tuple[str, ...]:
    """The texts that a query of one column gives; it may call models.

    The planner holds `queries` weakly: a session that nobody holds goes at once, and lets go of its
    file.
    """
    own = queries()
    assert own is not None, "it is planning"
    return tuple(sorted(str(name) for (name,) in own.host.read(own.runnable(query))))
