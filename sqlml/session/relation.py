"""Relations whose results raise sqlml's errors, and the notebook output of sessions and plans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from sqlml import html
from sqlml.errors import SqlmlError
from sqlml.interruption import Stop
from sqlml.session.engine_errors import user_errors
from sqlml.terminal import escape_controls
from sqlml.udfs.duckdb.user_frame import ObjectWrapper

if TYPE_CHECKING:
    from sqlml.session.session import Session

MAX_ROWS = 20  # Maximum rows that a notebook shows.

_NUMBER_TYPES = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*")
"""Columns of these types are aligned to the right."""

_MODEL_COLUMNS = ("name", "version", "versions", "library", "features", "comment", "created_at")
"""Columns of SHOW MODELS that a session shows in a notebook."""


class Relation(ObjectWrapper):
    """A wrapper that delegates everything to a DuckDBPyRelation and raises sqlml's errors.

    `native` is the wrapped relation, for functions that require the DuckDB class. `stop` is the
    `interrupt` method of the connection.
    """

    def __init__(self, native: Any, stop: Stop) -> None:
        super().__init__()
        self.native = native
        self._stop = stop

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """The class DuckDBPyRelation, for `isinstance` checks in other libraries."""
        return duckdb.DuckDBPyRelation

    def __getattr__(self, name: str) -> Any:
        if name == "__arrow_c_stream__":
            # DuckDB 1.5 would scan the stream on the connection that is already scanning, and hang:
            # https://github.com/duckdb/duckdb-python/issues/85
            raise AttributeError(name)
        value = getattr(self.native, name)
        return _translate_errors(value, self._stop) if callable(value) else value

    def __dir__(self) -> list[str]:
        return sorted({"batches", "native", *dir(self.native)} - {"__arrow_c_stream__"})

    def __len__(self) -> int:
        with user_errors(self._stop):
            return len(self.native)

    def __getitem__(self, key: Any) -> Any:
        return wrap(self.native[key], self._stop)

    def __contains__(self, key: Any) -> bool:
        return key in self.native

    def __str__(self) -> str:
        with user_errors(self._stop):
            return escape_controls(str(self.native))

    def __repr__(self) -> str:
        with user_errors(self._stop):
            return escape_controls(repr(self.native))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the output for a notebook: a plan, DuckDB 2.0's table, or the first rows."""
        is_plan = list(self.columns) == ["explain_key", "explain_value"]
        if not is_plan and hasattr(self.native, "_repr_mimebundle_"):
            with user_errors(self._stop):
                bundle: dict[str, str] = self.native._repr_mimebundle_(include, exclude)
            return {**bundle, "text/html": html.shorten_cells(bundle["text/html"])}
        if is_plan:
            text = "\n\n".join(str(text) for _, text in self.fetchall())
            return {"text/plain": text, "text/html": html.text(text)}
        return {"text/plain": str(self), "text/html": self._format_first_rows()}

    def _format_first_rows(self) -> str:
        names, types = list(self.columns), [str(sql_type) for sql_type in self.types]
        rows = self.limit(MAX_ROWS + 1).project("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
        are_numbers = [_NUMBER_TYPES.fullmatch(sql_type) is not None for sql_type in types]
        caption = f"the first {MAX_ROWS} rows; there are more" if len(rows) > MAX_ROWS else ""
        return html.table(names, rows[:MAX_ROWS], are_numbers, caption, types)

    def arrow(self) -> pa.Table:
        """Return the result as a pyarrow Table. This method works on every version of DuckDB."""
        with user_errors(self._stop):
            is_new = hasattr(self.native, "to_arrow_table")
            return getattr(self.native, "to_arrow_table" if is_new else "fetch_arrow_table")()

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield pyarrow RecordBatches of about `rows` rows while the result is computed."""
        reader = self.to_arrow_reader(rows)
        while True:
            with user_errors(self._stop):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except (OSError, pa.ArrowInvalid) as error:  # Arrow wraps errors of DuckDB.
                    raise duckdb.Error(str(error)) from None
            yield batch


def _translate_errors(method: Callable[..., Any], stop: Stop) -> Callable[..., Any]:
    def call_method(*args: Any, **kwargs: Any) -> Any:
        texts = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, str)]
        with user_errors(stop, texts):
            result = method(*map(unwrap, args), **{key: unwrap(v) for key, v in kwargs.items()})
            return wrap(result, stop)

    return call_method


def wrap(value: Any, stop: Stop) -> Any:
    return Relation(value, stop) if type(value) is duckdb.DuckDBPyRelation else value


def unwrap(value: Any) -> Any:
    return value.native if type(value) is Relation else value


class PlanText(str):
    """The text of a plan. A Python prompt shows the lines of the text instead of a literal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return escape_controls(str(self))

    def _repr_html_(self) -> str:
        return html.text(self)


def render_session_html(session: Session) -> str:
    """Render the databases, and the committed models of the current database, as HTML."""
    try:
        with session.cursor() as cursor:
            databases = cursor.connection.execute(
                "SELECT database_name, coalesce(path, 'in memory') "
                "FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY ALL"
            ).fetchall()
            models = cursor.execute("SHOW MODELS").fetchmany(MAX_ROWS + 1)
            names = [column[0] for column in cursor.description]
    except (duckdb.Error, SqlmlError) as error:
        return html.text(f"a session of sqlml: {error}")
    indices = [names.index(column) for column in _MODEL_COLUMNS]
    rows = [[None if row[i] is None else str(row[i]) for i in indices] for row in models]
    paths = ", ".join(f"{name} ({path})" for name, path in databases)
    limit_note = f"; the first {MAX_ROWS} models are shown" if len(rows) > MAX_ROWS else ""
    caption = f"DuckDB {duckdb.__version__}: {paths}{limit_note if rows else '; no models yet'}"
    return html.table(_MODEL_COLUMNS, rows[:MAX_ROWS], below=caption)
