"""Run scripts of SQL and dot commands in a session, and write the results."""

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
from sqlml.planner.syntax.statement_text import classify_text
from sqlml.session.relation import Relation, unwrap
from sqlml.session.session import Session
from sqlml.tools.shell import output_modes
from sqlml.tools.shell.dot_commands import UsageError, open_output, run_command
from sqlml.tools.shell.output_modes import MODES, DisplaySettings


def run_sql(session: Session, sql: str, run: Callable[[str], Any]) -> Any:
    """Run `sql` with `run`; return a relation, or a message if the statement has no result."""
    relation = run(sql)
    if relation is None or relation.columns == ["Success"]:
        rows = () if relation is None else relation.fetchall()
        if not rows:  # DuckDB returns an empty "Success" for statements without a result.
            return _describe_change(sql)
    if relation.columns == ["Count"] and _counts_changes(session, sql):
        counts = [count for (count,) in relation.fetchall()]
        return "".join(f"{n:,} {'row' if n == 1 else 'rows'}" for n in counts)
    return relation


def _counts_changes(session: Session, sql: str) -> bool:
    if "returning" in sql.lower():
        return False
    try:
        (statement,) = session.connection.extract_statements(sql)
    except (duckdb.Error, ValueError):
        return False
    return duckdb.ExpectedResultType.CHANGED_ROWS in statement.expected_result_type


def _describe_change(sql: str) -> str:
    """Return a message such as "created model churn" if `sql` changes one model, or ""."""
    parsed_statements = classify_text(sql).statements
    if len(parsed_statements) != 1:
        return ""
    (statement,) = parsed_statements
    verb = _VERBS.get(type(statement))
    may_do_nothing = any(getattr(statement, name, False) for name in ("if_exists", "if_not_exists"))
    if verb is None or may_do_nothing or not isinstance(statement, statements.OfModel):
        return ""
    return f"{verb} model {statement.name.name}"


_VERBS = {
    statements.CreateModel: "created",
    statements.AlterModel: "changed",
    statements.DropModel: "dropped",
    statements.CommentOn: "commented on",
    statements.ExportModel: "exported",
}


FIRST, NEXT = "sqlml> ", "   ..> "
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""Matches a line. Unlike `splitlines`, the pattern does not split at characters like form feeds."""

WORDS = frozenset({"exit", "quit", "help"})
"""Words that are not SQL, but leave the shell or show help."""


class ScriptPiece(NamedTuple):
    """A statement without the semicolon, or a dot command, and its 1-based line in the script."""

    text: str
    line: int


def split_pieces(text: str) -> Iterator[ScriptPiece]:
    """Split a script into statements and dot commands. A dot command ends at the end of the line.

    >>> [tuple(piece) for piece in split_pieces("SELECT 1;\\n.mode csv\\nSELECT\\n.5")]
    [('SELECT 1', 1), ('.mode csv', 2), ('SELECT\\n.5', 3)]
    """
    pending, first_line = "", 1
    for line_number, line in enumerate(_LINE.findall(text), 1):
        if not pending.strip() and is_command(line):
            yield ScriptPiece(line.strip(), line_number)
            pending = ""
            continue
        if not pending:
            first_line = line_number
        pending += line
        if ";" in line and is_complete(pending):
            yield from _split_statements(pending, first_line)
            pending = ""
    if pending.strip():
        yield from _split_statements(pending, first_line)


def _split_statements(text: str, first_line: int) -> Iterator[ScriptPiece]:
    for piece in split_tokens(text, "duckdb"):
        start = piece.tokens[0].start
        yield ScriptPiece(
            text[start : piece.tokens[-1].end + 1], first_line + text.count("\n", 0, start)
        )


def is_command(line: str) -> bool:
    """Return whether a line is a dot command, a psql command, or one of `WORDS`."""
    return line.startswith((".", "\\")) or line.strip().rstrip(";").lower() in WORDS


def is_complete(text: str) -> bool:
    """Return whether the last token of `text` is a semicolon.

    >>> is_complete("SELECT 1;  -- done"), is_complete("SELECT ';"), is_complete("SELECT 1")
    (True, False, False)
    """
    try:
        tokens = raw_tokens(text, "duckdb")
    except ParseError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON


PATIENCE, _INTERVAL = 2.0, 0.2
"""Seconds before the progress bar of a query appears, and between its updates."""


@contextmanager
def progress_bar(session: Any, sql: str) -> Iterator[None]:
    """Draw the progress of the query `sql`, which the `with` block runs.

    Nothing is drawn for statements about models, without tqdm, or without a terminal.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield
        return
    stream = watched_stream()
    # Statements about models report progress themselves, for example in training.
    parsed_statements = classify_text(sql).statements
    if stream is None or not all(isinstance(statement, Query) for statement in parsed_statements):
        yield
        return
    done = threading.Event()
    arguments = (session.connection, done, partial(tqdm, file=stream))
    thread = threading.Thread(target=_draw_progress, args=arguments, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _draw_progress(
    connection: duckdb.DuckDBPyConnection, done: threading.Event, make_bar: Any
) -> None:
    if done.wait(PATIENCE):
        return
    bar_format = "{percentage:3.0f}% |{bar}| {elapsed}"
    with make_bar(total=100.0, leave=False, bar_format=bar_format) as bar:
        while not done.wait(_INTERVAL):
            try:
                percentage = float(connection.query_progress())
            except (duckdb.Error, TypeError):
                percentage = 0.0
            bar.n = max(bar.n, min(100.0, percentage))
            bar.refresh()


INTERRUPTED = 130
"""Exit status after Ctrl-C."""

_ERRORS = (UsageError, SqlmlError, duckdb.Error, OSError, RuntimeError)


class Shell:
    """Runs statements and dot commands in `session`, and writes the results to `out`.

    If a user watches `out` in a terminal (`is_watched`), results are fitted to the screen, and a
    statement without a result prints a message. `once` replaces `out` for the next result.
    """

    def __init__(
        self,
        session: Session,
        display: DisplaySettings,
        connect: Callable[[str], Session],
        out: TextIO,
        is_watched: bool,
    ) -> None:
        self.session = session
        self.display = display
        self.is_watched = is_watched
        self.out = out
        self.once: TextIO | None = None
        self._standard_out = out
        self._connect = connect

    def run(self, text: str, file: str = "") -> int:
        """Run a script of statements and dot commands; return the exit status.

        The status is 0, 1 after an error, or 130 after Ctrl-C. An error ends the script. If the
        script comes from a `file`, error messages contain the line. `.exit` raises ExitShell.
        """
        try:
            self.run_all(text, file)
        except BrokenPipeError:
            raise
        except (*_ERRORS, KeyboardInterrupt) as error:
            if _is_interruption(error):
                print("Interrupted", file=sys.stderr)
                return INTERRUPTED
            if type(error) is RuntimeError:
                raise
            error_name = "sqlml" if isinstance(error, UsageError) else type(error).__name__
            notes = getattr(error, "__notes__", [])
            print("\n".join([f"{error_name}: {error}", *notes]), file=sys.stderr)
            return 1
        return 0

    def run_all(self, text: str, file: str = "") -> None:
        """Run a script; raise the first error, with the line number if there is a `file`."""
        for piece in split_pieces(text):
            try:
                if is_command(piece.text):
                    run_command(self, piece.text)
                else:
                    self.run_statement(piece.text)
            except _ERRORS as error:
                if file:
                    error.add_note(f"in {file}, line {piece.line}")
                raise

    def run_statement(self, sql: str) -> None:
        start_time = time.perf_counter()
        with self._progress(sql):
            result = run_sql(self.session, sql, self.session.sql)
        if not isinstance(result, str):
            text = self._write_result(result, sql)
        else:
            text = f"{result}\n" if self.is_watched and result else ""
        seconds = time.perf_counter() - start_time  # The time in the pager is excluded.
        self._show_text(text)
        if self.display.timer:
            self.print_message(f"{seconds:.3f} s")

    def write(self, relation: Any) -> None:
        """Write a result in the current output mode to the current target."""
        self._show_text(self._write_result(relation))

    def _write_result(self, relation: Any, sql: str = "") -> str:
        """Write a result to the current target, or return text to show in the terminal."""
        out, self.once = self.once or self.out, None
        relation = Relation(unwrap(relation), self.session.connection.interrupt)
        is_on_screen = self.is_watched and out is self._standard_out
        try:
            if relation.columns == ["explain_key", "explain_value"]:
                with self._progress(sql):
                    plans = relation.fetchall()
                if is_on_screen:
                    return self._fit_plans([text for _, text in plans], sql)
                out.write("".join(f"{text}\n" for _, text in plans))
            elif is_on_screen and self.display.mode == "box":
                with self._progress(sql):
                    return output_modes.draw_box(relation, self.display.pager)
            else:
                with nullcontext() if is_on_screen else self._progress(sql):
                    MODES[self.display.mode].write(relation, self.display, out)
            out.flush()
            return ""
        finally:
            if out not in (self.out, self._standard_out):
                out.close()

    def _progress(self, sql: str) -> AbstractContextManager[None]:
        return progress_bar(self.session, sql) if self.is_watched and sql else nullcontext()

    def _show_text(self, text: str) -> None:
        if text:
            output_modes.show_text(text, self.display.pager, self._standard_out)

    def _fit_plans(self, plans: Sequence[str], sql: str) -> str:
        """Fit the plans of EXPLAIN to the terminal: wrap sqlml's plan, and redraw DuckDB's plan."""
        width = shutil.get_terminal_size().columns
        json_query = output_modes.build_json_explain_sql(sql)
        fitted_plans = []
        for index, text in enumerate(plans):
            if json_query is not None and max(map(len, text.splitlines()), default=0) > width:
                if index == len(plans) - 1:
                    plan = self.session.sql(json_query).fetchall()[-1][1]
                    text = output_modes.draw_plan(plan, width)
                else:
                    text = output_modes.wrap_model_plan(text, width)
            fitted_plans.append(f"{text}\n")
        return "".join(fitted_plans)

    def print_message(self, text: str) -> None:
        """Print a message to the terminal, or to standard error if results are piped."""
        print(text, file=self._standard_out if self.is_watched else sys.stderr)

    def change_display(self, **settings: Any) -> None:
        self.display = replace(self.display, **settings)

    def redirect(self, path: str | None) -> None:
        """Write later results to a file, or to the standard output if `path` is None."""
        out = self._standard_out if path is None else open_output(path)
        if self.out is not self._standard_out:
            self.out.close()
        self.out = out

    def open(self, database: str) -> None:
        """Open another database, then close the current database."""
        session = self._connect(database)
        self.session.close()
        self.session = session

    def close(self) -> None:
        self.redirect(None)
        if self.once is not None:
            self.once.close()
        self.session.close()


def _is_interruption(error: BaseException) -> bool:
    """Return whether `error` was caused by Ctrl-C, even if DuckDB raised another type of error."""
    if isinstance(error, KeyboardInterrupt | duckdb.InterruptException):
        return True
    text = str(error)
    return "KeyboardInterrupt" in text or (type(error) is RuntimeError and "nterrupt" in text)
