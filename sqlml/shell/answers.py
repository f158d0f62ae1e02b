"""`answered`: runs a statement; one without rows answers with what it has done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from sqlml.parsing import statements
from sqlml.planner.syntax.text import text_of
from sqlml.session.session import Session


def answered(session: Session, sql: str, run: Callable[[str], Any]) -> Any:
    """The relation of a statement that has rows; of another one a text, which may be empty.

    Args:
        run: runs a statement, as `session.sql` does.
    """
    relation = run(sql)
    if relation is None or relation.columns == ["Success"]:
        rows = () if relation is None else relation.fetchall()
        if not rows:  # the engine's answer to what has no result
            return _done(sql)
    if relation.columns == ["Count"] and _changes_rows(session, sql):
        counts = [count for (count,) in relation.fetchall()]
        return "".join(f"{n:,} {'row' if n == 1 else 'rows'}" for n in counts)
    return relation


def _changes_rows(session: Session, sql: str) -> bool:
    """Whether a statement's result is the number of rows that it changed."""
    if "returning" in sql.lower():
        return False
    try:
        (found,) = session.connection.extract_statements(sql)
    except (duckdb.Error, ValueError):
        return False
    return duckdb.ExpectedResultType.CHANGED_ROWS in found.expected_result_type


def _done(sql: str) -> str:
    """What a statement about a model has done; empty for others."""
    made = text_of(sql).statements
    if len(made) != 1 or not isinstance(made[0], statements.OfModel):
        return ""
    what = _DONE.get(type(made[0]))
    may_be_idle = getattr(made[0], "if_exists", False) or getattr(made[0], "if_not_exists", False)
    return "" if what is None or may_be_idle else f"{what} model {made[0].name.name}"


_DONE = {
    statements.CreateModel: "created",
    statements.AlterModel: "changed",
    statements.DropModel: "dropped",
    statements.CommentOn: "commented on",
    statements.ExportModel: "exported",
}
