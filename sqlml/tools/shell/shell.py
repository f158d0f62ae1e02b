"""The shell: runs texts of statements and dot commands on one session, and writes the results."""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TextIO

import duckdb
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError, SqlmlError
from sqlml.long_work import watched_stream
from sqlml.parsing import statements
from sqlml.parsing.parse import split_tokens
from sqlml.parsing.statements import Query
from sqlml.parsing.tokens import raw_tokens
from sqlml.planner.syntax.statement_text import text_of
from sqlml.session.relation import Relation, unwrap
from sqlml.session.session import Session
from sqlml.tools.shell import output_modes
from sqlml.tools.shell.dot_commands import UsageError, run_command
from sqlml.tools.shell.output_modes import MODES, Display, as_json, folded_lines, plan_tree


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
    """Return whether a statement's result is the number of changed rows."""
    if "returning" in sql.lower():
        return False
    try:
        (found,) = session.connection.extract_statements(sql)
    except (duckdb.Error, ValueError):
        return False
    return duckdb.ExpectedResultType.CHANGED_ROWS in found.expected_result_type


def _done(sql: str) -> str:
    """Describe what a statement about a model has done; empty for other statements."""
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


FIRST, NEXT = "sqlml> ", "   ..> "
"""Prompts for the first line of a statement, and for the others."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""Matches a line; `splitlines` would also split at other characters, such as a form feed."""

WORDS = frozenset({"exit", "quit", "help"})
"""Words that people type to leave or to get help; they are no SQL statements."""


class Piece(NamedTuple):
    """A statement without its semicolons, or a dot command; `line` counts from 1."""

    text: str
    line: int


def pieces(text: str) -> Iterator[Piece]:
    """Statements, and dot commands, each a line of its own.

    >>> [tuple(piece) for piece in pieces("SELECT 1;\\n.mode csv\\nSELECT\\n.5")]
    [('SELECT 1', 1), ('.mode csv', 2), ('SELECT\\n.5', 3)]

    Raises:
        ParseError: what follows the last semicolon has no tokens.
    """
    waiting, first = "", 1
    for number, line in enumerate(_LINE.findall(text), 1):
        if not waiting.strip() and is_command(line):
            yield Piece(line.strip(), number)
            waiting = ""
            continue
        if not waiting:
            first = number
        waiting += line
        if ";" in line and is_complete(waiting):
            yield from _statements(waiting, first)
            waiting = ""
    if waiting.strip():
        yield from _statements(waiting, first)


def _statements(text: str, first: int) -> Iterator[Piece]:
    """Yield the statements of a text that begins in line `first`."""
    for piece in split_tokens(text, "duckdb"):
        start = piece.tokens[0].start
        yield Piece(text[start : piece.tokens[-1].end + 1], first + text.count("\n", 0, start))


def is_command(line: str) -> bool:
    """Return whether a first line is a dot command, one of psql's, or a word for one."""
    return line.startswith((".", "\\")) or line.strip().rstrip(";").lower() in WORDS


def is_complete(text: str) -> bool:
    """Return whether a statement ends here: its last token is a semicolon, outside of quotes.

    >>> is_complete("SELECT 1;  -- done"), is_complete("SELECT ';"), is_complete("SELECT 1")
    (True, False, False)
    """
    try:
        tokens = raw_tokens(text, "duckdb")
    except ParseError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON


PATIENCE = 2.0
"""Seconds before the progress bar of a query appears."""

_LOOK = 0.2
"""Seconds between two updates of the progress."""


@contextmanager
def progress_bar(session: Any, sql: str) -> Iterator[None]:
    """Draw the progress of a query while the block runs.

    Nothing is drawn without tqdm (the extras `cli` and `notebook`), where nobody sees it, or for
    statements about models: training draws a bar of its own.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    others = [s for s in text_of(sql).statements if not isinstance(s, Query)]
    stream = watched_stream()
    if others or stream is None:
        yield
        return
    done = threading.Event()
    watching = threading.Thread(
        target=_watch, args=(session.connection, done, partial(tqdm, file=stream)), daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()


def _watch(connection: duckdb.DuckDBPyConnection, done: threading.Event, make_bar: Any) -> None:
    if done.wait(PATIENCE):
        return
    shape = "{percentage:3.0f}% |{bar}| {elapsed}"
    with make_bar(total=100.0, leave=False, bar_format=shape) as bar:
        while not done.wait(_LOOK):
            bar.n = max(bar.n, min(100.0, _percentage(connection)))
            bar.refresh()


def _percentage(connection: duckdb.DuckDBPyConnection) -> float:
    """Return the engine's progress in percent; 0 if unknown."""
    try:
        return max(0.0, float(connection.query_progress()))
    except (duckdb.Error, TypeError):
        return 0.0


INTERRUPTED = 130
"""Exit status after Ctrl-C."""


class Shell:
    """Runs statements and dot commands, and writes their results.

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
        """Run each statement of a text; raise the first error, with a note on its file and line."""
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
        """Return the text for the terminal about a statement; empty if everything is written
        already.
        """
        with self._progress(sql):
            found = answered(self.session, sql, self.session.sql)
        return self._answer(found) if isinstance(found, str) else self._result(found, sql)

    def write(self, relation: Any) -> None:
        """Write a result in the mode and to the target that the user has set."""
        self._show(self._result(relation))

    def _result(self, relation: Any, sql: str = "") -> str:
        """Return the text for the terminal of a result; a result with another target is written."""
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
                    return output_modes.drawn(relation, self.display.pager)
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
            output_modes.show(text, self.display.pager, self._usual)

    def _plans(self, found: Sequence[tuple[str, str]], sql: str) -> str:
        """Return the texts of EXPLAIN, with the engine's plan as a tree if the screen is too
        narrow.
        """
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
        """Print a message to the terminal, or to standard error where results are piped."""
        print(text, file=self._usual if self.is_watched else sys.stderr)

    def _answer(self, text: str) -> str:
        return f"{text}\n" if self.is_watched and text else ""

    def change(self, **settings: Any) -> None:
        """Change how results are written."""
        self.display = replace(self.display, **settings)

    def redirect(self, path: str | None) -> None:
        """Write results to a file from now on; None restores the first target."""
        made = self._usual if path is None else open(path, "w", encoding="utf-8", newline="")
        if self.out is not self._usual:
            self.out.close()
        self.out = made

    def open(self, database: str) -> None:
        """Close this database and open another."""
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
    """Return the files and lines in which a text failed, the innermost first."""
    return getattr(error, "__notes__", [])


def _is_interruption(error: BaseException) -> bool:
    """Raise KeyboardInterrupt for a Ctrl-C, whatever error the engine wraps it in."""
    if isinstance(error, KeyboardInterrupt | duckdb.InterruptException):
        return True
    text = str(error)
    return "KeyboardInterrupt" in text or (type(error) is RuntimeError and "nterrupt" in text)
