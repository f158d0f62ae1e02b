"""`Relation`: DuckDB's lazy relation, whose results raise sqlml's own typed errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa

from sqlml import html
from sqlml.errors import SqlmlError
from sqlml.interruption import Stop
from sqlml.session.engine_errors import user_errors
from sqlml.terminal import escape_controls
from sqlml.udfs.duckdb.user_frame import Wrapper

SHOWN = 20
"""How many rows a notebook shows."""

NUMBERS = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT "
    "DOUBLE".split()
)
"""Types whose columns stand at the right."""


class Relation(Wrapper):
    """A DuckDBPyRelation; everything it does is delegated to it.

    `native` is the relation itself, for functions that insist on DuckDB's own class.

    Args:
        stop: the `interrupt` of its connection.
    """

    def __init__(self, native: Any, stop: Stop) -> None:
        super().__init__()
        self.native = native
        self._stop = stop

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """DuckDB's class, for tools that ask `isinstance` whether they have a relation."""
        return duckdb.DuckDBPyRelation

    def __getattr__(self, name: str) -> Any:
        if name == "__arrow_c_stream__":
            # DuckDB 1.5 would scan it through the connection that is scanning, and hang, as in
            # https://github.com/duckdb/duckdb-python/issues/85
            raise AttributeError(name)
        value = getattr(self.native, name)
        return _guarded(value, self._stop) if callable(value) else value

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
        """Return what a notebook shows: DuckDB's own table, where it has one (2.0), or a plan."""
        is_plan = list(self.columns) == ["explain_key", "explain_value"]
        if not is_plan and hasattr(self.native, "_repr_mimebundle_"):
            with user_errors(self._stop):
                bundle: dict[str, str] = self.native._repr_mimebundle_(include, exclude)
            return {**bundle, "text/html": html.shorten_cells(bundle["text/html"])}
        if is_plan:
            text = "\n\n".join(str(text) for _, text in self.fetchall())
            return {"text/plain": text, "text/html": html.text(text)}
        return {"text/plain": str(self), "text/html": self._first_rows()}

    def _first_rows(self) -> str:
        names, types = list(self.columns), [str(kind) for kind in self.types]
        texts = self.limit(SHOWN + 1).project("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
        numbers = [kind in NUMBERS or kind.startswith("DECIMAL") for kind in types]
        below = f"the first {SHOWN} rows; there are more" if len(texts) > SHOWN else ""
        return html.table(names, texts[:SHOWN], numbers, below, types)

    def arrow(self) -> Any:
        """The result as a pyarrow Table, on every version of DuckDB."""
        with user_errors(self._stop):
            if hasattr(self.native, "to_arrow_table"):
                return self.native.to_arrow_table()
            return self.native.fetch_arrow_table()

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """The result as pyarrow RecordBatches of about so many rows, as the engine makes them."""
        reader = self.to_arrow_reader(rows)
        while True:
            with user_errors(self._stop):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except (OSError, pa.ArrowInvalid) as error:  # the engine's, in Arrow's words
                    raise duckdb.Error(str(error)) from None
            yield batch


def _guarded(method: Callable[..., Any], stop: Stop) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        texts = [a for a in (*args, *kwargs.values()) if isinstance(a, str)]
        with user_errors(stop, texts):
            made = method(*map(unwrap, args), **{k: unwrap(v) for k, v in kwargs.items()})
            return wrap(made, stop)

    return call


def wrap(value: Any, stop: Stop) -> Any:
    """A relation of DuckDB's as a Relation; anything else as it is."""
    return Relation(value, stop) if type(value) is duckdb.DuckDBPyRelation else value


def unwrap(value: Any) -> Any:
    """A Relation as DuckDB's own; anything else as it is."""
    return value.native if type(value) is Relation else value


# How a session and its plans show themselves at a prompt and in a notebook.


COLUMNS = ("name", "version", "versions", "library", "features", "comment", "created_at")
"""What is told of each model."""


class PlanText(str):
    """The text of a plan, which a prompt shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return escape_controls(str(self))

    def _repr_html_(self) -> str:
        return html.text(self)


def session_html(session: Any) -> str:
    """The databases of a session and the models of the current one, as they are committed.

    A cursor is asked, since a result may be open.
    """
    try:
        with session.cursor() as beside:
            found = beside.connection.execute(
                "SELECT database_name, coalesce(path, 'in memory') "
                "FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY ALL"
            ).fetchall()
            listed = beside.execute("SHOW MODELS").fetchmany(SHOWN + 1)
            names = [column[0] for column in beside.description]
    except (duckdb.Error, SqlmlError) as error:
        return html.text(f"a session of sqlml: {error}")
    places = [names.index(column) for column in COLUMNS]
    rows = [[None if row[p] is None else str(row[p]) for p in places] for row in listed]
    at = ", ".join(f"{name} ({path})" for name, path in found)
    more = f"; the first {SHOWN} models are shown" if len(rows) > SHOWN else ""
    below = f"DuckDB {duckdb.__version__}: {at}{more}"
    return html.table(COLUMNS, rows[:SHOWN], below=below if rows else f"{below}; no models yet")
