"""`Shell`: one session, how its results are written, and where to."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TextIO

import duckdb

from sqlml.errors import SqlmlError
from sqlml.parsing import statements
from sqlml.planner.syntax.text import text_of
from sqlml.session.relation import Relation, unwrap
from sqlml.session.session import Session
from sqlml.shell import terminal_box
from sqlml.shell.display import Display
from sqlml.shell.dot_commands import UsageError, run_command
from sqlml.shell.output_modes import MODES
from sqlml.shell.plan_tree import as_json, folded_lines, plan_tree
from sqlml.shell.progress_bar import progress_bar
from sqlml.shell.script import is_command, pieces

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


class Shell:
    """What runs statements and dot commands, and writes what they give.

    Args:
        session: what statements run on; `.open` replaces it.
        display: how results are written.
        connect: opens a database file.
        out: where results go.
        is_watched: a person sees the output in a terminal: it is fitted to the screen, and each
            statement is answered.
    """

    def __init__(
        self,
        session: Session,
        display: Display,
        connect: Callable[[str], Session],
        out: TextIO,
        is_watched: bool,
    ) -> None:
        self.session = session
        self.display = display
        self.is_watched = is_watched
        self.out = out
        self.once: TextIO | None = None
        self._usual = out
        self._connect = connect

    def run(self, text: str) -> int:
        """Run each statement and dot command of a text, and write what they give.

        Returns:
            The exit status: 0, 1 after an error, which ends the text, 130 after Ctrl-C.

        Raises:
            Leave: a dot command asks to leave.
        """
        try:
            self.run_all(text)
        except UsageError as error:
            print(f"sqlml: {error}", file=sys.stderr)
            return 1
        except (SqlmlError, duckdb.Error, OSError, RuntimeError, KeyboardInterrupt) as error:
            if _is_interruption(error):
                print("Interrupted", file=sys.stderr)
                return INTERRUPTED
            if type(error) is RuntimeError:
                raise
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        return 0

    def run_all(self, text: str) -> None:
        """Run each statement and dot command of a text; the first error is raised."""
        for piece in pieces(text):
            if is_command(piece):
                run_command(self, piece)
            else:
                self._timed(piece)

    def _timed(self, sql: str) -> None:
        began = time.perf_counter()
        self.statement(sql)
        if self.display.timer:
            self.say(f"{time.perf_counter() - began:.3f} s")

    def statement(self, sql: str) -> None:
        """Run one statement and write its result, if it has one."""
        with ExitStack() as stack:
            if self.is_watched:
                stack.enter_context(progress_bar(self.session, sql))
            relation = self.session.sql(sql)
            if relation is None or relation.columns == ["Success"]:
                rows = () if relation is None else relation.fetchall()
                if not rows:  # the engine's answer to what has no result
                    self._answer(_done(sql))
                    return
            if relation.columns == ["Count"] and _changes_rows(self.session, sql):
                for (count,) in relation.fetchall():
                    self._answer(f"{count:,} {'row' if count == 1 else 'rows'}")
                return
            self.write(relation, sql)

    def write(self, relation: Any, sql: str = "") -> None:
        """Write the result of a statement as `.mode` says, to where `.output` and `.once` say."""
        out, self.once = self.once or self.out, None
        relation = Relation(unwrap(relation), self.session.connection.interrupt)
        try:
            is_shown = self.is_watched and out is self._usual
            if relation.columns == ["explain_key", "explain_value"]:
                found = relation.fetchall()
                if is_shown:
                    terminal_box.show_text(self._plans(found, sql), self.display.pager, out)
                else:
                    out.write("".join(f"{text}\n" for _, text in found))
            elif is_shown and self.display.mode == "box":
                terminal_box.show(relation, self.display.pager, out)
            else:
                MODES[self.display.mode].write(relation, self.display, out)
            out.flush()
        finally:
            if out not in (self.out, self._usual):
                out.close()

    def _plans(self, found: Sequence[tuple[str, str]], sql: str) -> str:
        """The texts of EXPLAIN; the engine's plan as a tree, if the screen is narrower than it."""
        width = shutil.get_terminal_size().columns
        again = as_json(sql)
        made = []
        for place, (_, text) in enumerate(found):
            if max(map(len, text.splitlines()), default=0) > width and again is not None:
                last = place == len(found) - 1
                text = (
                    plan_tree(self.session.sql(again).fetchall()[-1][1], width)
                    if last
                    else folded_lines(text, width)
                )
            made.append(f"{text}\n")
        return "".join(made)

    def say(self, text: str) -> None:
        """Tell something that is no result: to the person who watches, or beside the results."""
        print(text, file=self._usual if self.is_watched else sys.stderr)

    def _answer(self, text: str) -> None:
        if self.is_watched and text:
            self.say(text)

    def change(self, **settings: Any) -> None:
        """Write results in another way from now on."""
        self.display = replace(self.display, **settings)

    def redirect(self, path: str | None) -> None:
        """Write results to a file from now on, or (None) again to where they went first."""
        made = self._usual if path is None else open(path, "w", encoding="utf-8", newline="")
        if self.out is not self._usual:
            self.out.close()
        self.out = made

    def open(self, database: str) -> None:
        """Leave this database and open another."""
        self.session.close()
        self.session = self._connect(database)

    def close(self) -> None:
        """Close the session and the files that results went to."""
        self.redirect(None)
        if self.once is not None:
            self.once.close()
        self.session.close()


def _is_interruption(error: BaseException) -> bool:
    """Ctrl-C, in whatever error the engine wraps it."""
    if isinstance(error, KeyboardInterrupt | duckdb.InterruptException):
        return True
    text = str(error)
    return "KeyboardInterrupt" in text or (type(error) is RuntimeError and "nterrupt" in text)


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
    if len(made) != 1:
        return ""
    what = _DONE.get(type(made[0]))
    return "" if what is None else f"{what} model {made[0].name.name}"  # type: ignore[attr-defined]


_DONE = {
    statements.CreateModel: "created",
    statements.AlterModel: "changed",
    statements.DropModel: "dropped",
    statements.CommentOn: "commented on",
    statements.ExportModel: "exported",
}
