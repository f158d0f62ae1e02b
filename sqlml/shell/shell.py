"""`Shell`: one session, how its results are written, and where to."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TextIO

import duckdb

from sqlml.errors import SqlmlError
from sqlml.session.relation import Relation, unwrap
from sqlml.session.session import Session
from sqlml.shell import terminal_box
from sqlml.shell.answers import answered
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

    def run(self, text: str, file: str = "") -> int:
        """Run each statement and dot command of a text, and write what they give.

        Args:
            file: where the text stands; errors name it, and the line.

        Returns:
            The exit status: 0, 1 after an error, which ends the text, 130 after Ctrl-C.

        Raises:
            Leave: a dot command asks to leave.
            BrokenPipeError: nobody reads the results any more.
        """
        try:
            self.run_all(text, file)
        except UsageError as error:
            print("\n".join([f"sqlml: {error}", *_places(error)]), file=sys.stderr)
            return 1
        except BrokenPipeError:
            raise
        except (SqlmlError, duckdb.Error, OSError, RuntimeError, KeyboardInterrupt) as error:
            if _is_interruption(error):
                print("Interrupted", file=sys.stderr)
                return INTERRUPTED
            if type(error) is RuntimeError:
                raise
            told = f"{type(error).__name__}: {error}"
            print("\n".join([told, *_places(error)]), file=sys.stderr)
            return 1
        return 0

    def run_all(self, text: str, file: str = "") -> None:
        """Run each statement and dot command of a text; the first error is raised, with a note
        where in the file the text went wrong."""
        for piece in pieces(text):
            try:
                if is_command(piece.text):
                    run_command(self, piece.text)
                else:
                    self.statement(piece.text)
            except (UsageError, SqlmlError, duckdb.Error, OSError, RuntimeError) as error:
                if file:
                    error.add_note(f"in {file}, line {piece.line}")
                raise

    def statement(self, sql: str) -> None:
        """Run one statement and write its result, if it has one."""
        began = time.perf_counter()
        text = self._ran(sql)
        seconds = time.perf_counter() - began  # without those that a person spends in the pager
        self._show(text)
        if self.display.timer:
            self.say(f"{seconds:.3f} s")

    def _ran(self, sql: str) -> str:
        """What a terminal is to show of a statement; empty where all is written already."""
        with self._progress(sql):
            found = answered(self.session, sql, self.session.sql)
        return self._answer(found) if isinstance(found, str) else self._result(found, sql)

    def write(self, relation: Any) -> None:
        """Write a result as `.mode` says, to where `.output` and `.once` say."""
        self._show(self._result(relation))

    def _result(self, relation: Any, sql: str = "") -> str:
        """What a terminal is to show of a result; one that goes elsewhere is written."""
        out, self.once = self.once or self.out, None
        relation = Relation(unwrap(relation), self.session.connection.interrupt)
        is_shown = self.is_watched and out is self._usual
        try:
            if relation.columns == ["explain_key", "explain_value"]:
                with self._progress(sql):
                    found = relation.fetchall()
                if is_shown:
                    return self._plans(found, sql)
                out.write("".join(f"{text}\n" for _, text in found))
            elif is_shown and self.display.mode == "box":
                with self._progress(sql):
                    return terminal_box.drawn(relation, self.display.pager)
            else:
                with nullcontext() if is_shown else self._progress(sql):
                    MODES[self.display.mode].write(relation, self.display, out)
            out.flush()
            return ""
        finally:
            if out not in (self.out, self._usual):
                out.close()

    def _progress(self, sql: str) -> AbstractContextManager[None]:
        return progress_bar(self.session, sql) if self.is_watched and sql else nullcontext()

    def _show(self, text: str) -> None:
        if text:
            terminal_box.show(text, self.display.pager, self._usual)

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
        """Print a message: to the terminal, or to standard error where results are piped."""
        print(text, file=self._usual if self.is_watched else sys.stderr)

    def _answer(self, text: str) -> str:
        return f"{text}\n" if self.is_watched and text else ""

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
        made = self._connect(database)  # if that fails, this one stays open
        self.session.close()
        self.session = made

    def close(self) -> None:
        """Close the session and the files that results went to."""
        self.redirect(None)
        if self.once is not None:
            self.once.close()
        self.session.close()


def _places(error: BaseException) -> list[str]:
    """The files and lines in which a text went wrong, the innermost first."""
    return getattr(error, "__notes__", [])


def _is_interruption(error: BaseException) -> bool:
    """Ctrl-C, in whatever error the engine wraps it."""
    if isinstance(error, KeyboardInterrupt | duckdb.InterruptException):
        return True
    text = str(error)
    return "KeyboardInterrupt" in text or (type(error) is RuntimeError and "nterrupt" in text)
