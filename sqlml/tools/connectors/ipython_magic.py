"""The magics `%sqlml` and `%%sqlml` for notebooks, after `%load_ext sqlml`."""

from __future__ import annotations

from functools import partial
from typing import Any

import duckdb
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from sqlml.errors import SqlmlError
from sqlml.open_session import attach, connect, unwrap_connection
from sqlml.session.relation import Relation, unwrap
from sqlml.session.session import Session
from sqlml.terminal import escape_controls
from sqlml.tools.shell.shell import progress_bar, run_sql, split_pieces


@magics_class
class SqlmlMagics(Magics):
    """The magics, which share a session. The first session has a database in memory."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._session: Session | None = None

    @magic_arguments()
    @argument(
        "database",
        nargs="?",
        help="a DuckDB file, or the name of a variable: a session, or a connection of DuckDB, "
        "SQLAlchemy or ibis; later cells use the same session",
    )
    @argument("-o", "--out", metavar="NAME", help="store the result in a variable; show nothing")
    @line_cell_magic
    def sqlml(self, line: str, cell: str | None = None) -> Any:
        """Run a cell of SQL in a session of sqlml, and show the last result.

        `%sqlml shop.duckdb` opens a database for the following cells, and `%sqlml` shows the
        session. Data frames are available as tables: `FROM my_frame`.
        """
        arguments = parse_argstring(self.sqlml, line)
        if arguments.database is not None:
            self._session = self._open_session(arguments.database)
        session = self._session = self._session or connect()
        if cell is None:
            return session
        result: Any = None
        statements = list(split_pieces(cell))
        for statement in statements:
            try:
                result = self._run_statement(session, statement.text)
            except (SqlmlError, duckdb.Error) as error:
                if len(statements) > 1:
                    error.add_note(f"in line {statement.line} of the cell")
                raise _hide_traceback(error) from None
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = result
            return None
        return result

    def _open_session(self, database: str) -> Session:
        connection = unwrap_connection(self.shell.user_ns.get(database))
        if connection is None:
            return connect(database)
        try:
            return attach(connection)
        except (TypeError, SqlmlError) as error:
            raise UsageError(f"{database}: {error}") from None

    def _run_statement(self, session: Session, sql: str) -> Any:
        with progress_bar(session, sql):
            result = run_sql(session, sql, partial(self._run_in_scope, session))
        if not isinstance(result, str):
            return Relation(unwrap(result), session.connection.interrupt)
        if result:
            print(result)
        return None

    def _run_in_scope(self, session: Session, sql: str) -> Any:
        """Run a statement in the notebook's scope, so that DuckDB finds the user's data frames."""
        return eval("__sqlml__()", self.shell.user_ns, {"__sqlml__": partial(session.sql, sql)})


def _hide_traceback(error: Exception) -> Exception:
    """Make IPython show only the message of an error, because the traceback is inside sqlml."""
    text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    lines = [escape_controls(text)]
    vars(error)["_render_traceback_"] = lambda: lines  # IPython calls this attribute.
    return error
