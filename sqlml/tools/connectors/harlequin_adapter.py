"""The adapter for harlequin, a SQL editor in the terminal: `harlequin -a sqlml`.

Harlequin finds the adapter through the entry point `harlequin.adapter`. The adapter works like
harlequin's adapter for DuckDB, but on a Session. The catalog shows models above the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import duckdb
from harlequin.autocomplete.completion import HarlequinCompletion
from harlequin.catalog import (
    Catalog,
    CatalogItem,
    CatalogSearchKind,
    CatalogSearchResult,
    InteractiveCatalogItem,
)
from harlequin.driver import HarlequinDriver
from harlequin.exception import HarlequinQueryError
from harlequin.options import FlagOption
from harlequin_duckdb import DUCKDB_OPTIONS, DuckDbAdapter
from harlequin_duckdb.adapter import DuckDbConnection, DuckDbCursor
from harlequin_duckdb.catalog import DatabaseCatalogItem

from sqlml.dialects import DUCKDB
from sqlml.errors import SqlmlError
from sqlml.open_session import attach
from sqlml.parsing.parse import parse
from sqlml.parsing.statements import Query
from sqlml.planner.rewrites.table_form import replace_table_forms
from sqlml.session.session import Session
from sqlml.terminal import escape_controls
from sqlml.tools.shell.completion import FUNCTIONS, KEYWORDS

MODELS_LABEL = "models"

ALLOW_PICKLE = FlagOption(
    name="allow-pickle", description="Let CREATE MODEL read pickles, which execute code."
)


class SqlmlAdapter(DuckDbAdapter):
    """Harlequin's adapter for DuckDB, with a Session instead of a connection."""

    ADAPTER_OPTIONS = [*DUCKDB_OPTIONS, ALLOW_PICKLE]
    ADAPTER_DETAILS = "DuckDB with machine-learning models as statements and functions."

    def __init__(self, conn_str: Sequence[str], allow_pickle: Any = False, **options: Any) -> None:
        super().__init__(conn_str, **options)
        self.allow_pickle: bool = str(allow_pickle).lower() == "true"

    def connect(self) -> SqlmlConnection:
        """Open a Session on the connection of DuckDB's adapter."""
        connection = super().connect()
        session = attach(connection.conn, allow_pickle=self.allow_pickle)
        return SqlmlConnection(session, connection.init_message)


class SqlmlCursor(DuckDbCursor):
    """The result of a query. Errors of sqlml are converted to errors of harlequin."""

    def fetchall(self) -> Any:
        with _convert_errors():
            return super().fetchall()

    def fetchone(self) -> Any:
        with _convert_errors():
            return super().fetchone()


class SqlmlConnection(DuckDbConnection):
    """A connection of harlequin's DuckDB adapter that runs statements on a Session."""

    def __init__(self, session: Session, init_message: str = "") -> None:
        super().__init__(cast(Any, session), init_message)
        self.session = session

    def execute(self, query: str) -> SqlmlCursor | None:
        """Run a statement; return a cursor for the rows, or None if there is no result."""
        with _convert_errors():
            cursor = super().execute(query)
        return None if cursor is None else SqlmlCursor(self, cursor.relation)

    def validate_sql(self, text: str) -> str:
        """Return `text`, or "" if it contains an invalid statement."""
        try:
            statements = parse(text)
        except SqlmlError:
            return ""
        queries = [replace_table_forms(s.sql) for s in statements if isinstance(s, Query)]
        return text if all(map(super().validate_sql, queries)) else ""

    def get_catalog(self) -> Catalog:
        labels = [str(label) for (label,) in self._get_databases()]
        return Catalog([DatabaseItem.from_label(label, self) for label in labels])

    def search_catalog(
        self, term: str, kind: CatalogSearchKind = "all"
    ) -> list[CatalogSearchResult]:
        """Find entries, including models unless `kind` is "columns", with `term` in the name."""
        results = super().search_catalog(term, kind)
        if kind == "columns":
            return results
        return results + [
            CatalogSearchResult(model, (database.label, MODELS_LABEL))
            for database in self.get_catalog().items
            for model in self.models(database.label)
            if term.lower() in model.label.lower()
        ]

    def get_completions(self) -> list[HarlequinCompletion]:
        return [
            *super().get_completions(),
            *(HarlequinCompletion(name, "model fn", name, 500, None) for name in FUNCTIONS),
            *(HarlequinCompletion(word, "kw", word.lower(), 1000, None) for word in KEYWORDS),
            *(
                HarlequinCompletion(item.label, "model", item.query_name, 500, None)
                for (database,) in self._get_databases()
                for item in self.models(str(database))
            ),
        ]

    def models(self, database: str) -> list[ModelItem]:
        """Return the models of a database, or [] if they cannot be read."""
        with suppress(duckdb.Error, SqlmlError):
            cursor = self.session.cursor()
            query = "SELECT system.main.current_database()"
            ((current_database,),) = cursor.execute(query).fetchall()
            models = cursor.execute(f"SHOW MODELS FROM {DUCKDB.quote_name(database)}").fetchall()
            qualifier = None if database == current_database else database
            return [ModelItem.from_name(str(row[0]), qualifier, self) for row in models]
        return []


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert sqlml's errors to harlequin's errors, which harlequin shows instead of exiting."""
    try:
        yield
    except SqlmlError as error:
        title = f"{type(error).__name__}: sqlml could not run the statement."
        raise HarlequinQueryError(escape_controls(str(error)), title) from error


def describe(item: ModelItem, driver: HarlequinDriver) -> None:
    driver.insert_text_in_new_buffer(f"DESCRIBE MODEL {item.qualified_identifier}")


def show_create(item: ModelItem, driver: HarlequinDriver) -> None:
    driver.insert_text_in_new_buffer(f"SHOW CREATE MODEL {item.qualified_identifier}")


def score(item: ModelItem, driver: HarlequinDriver) -> None:
    driver.insert_text_in_new_buffer(f"SELECT *, predict({item.query_name}, *)\nFROM ")


def drop(item: ModelItem, driver: HarlequinDriver) -> None:
    """Drop the model after the user has confirmed."""

    def drop_model() -> None:
        if item.connection is not None:
            item.connection.execute(f"DROP MODEL {item.qualified_identifier}")
            driver.notify(f"Dropped model {item.label}")
            driver.refresh_catalog()

    driver.confirm_and_execute(drop_model)


@dataclass
class ModelItem(InteractiveCatalogItem[SqlmlConnection]):
    """A model in the catalog, with the input columns as children."""

    INTERACTIONS = [
        ("Score a Table", score),
        ("Describe", describe),
        ("Show DDL", show_create),
        ("Drop Model", drop),
    ]

    reference: str = ""

    @classmethod
    def from_name(cls, name: str, database: str | None, connection: SqlmlConnection) -> ModelItem:
        """Return the catalog item of a model; `database` is None for the current database."""
        identifiers = [name] if database is None else [database, name]
        reference = ".".join(identifiers)
        return cls(
            qualified_identifier=".".join(map(DUCKDB.quote_name, identifiers)),
            query_name=DUCKDB.quote_string(reference),
            label=escape_controls(name),
            type_label="m",
            type_name="model",
            connection=connection,
            reference=reference,
        )

    def fetch_children(self) -> Sequence[CatalogItem]:
        if self.connection is None:
            return []
        with suppress(duckdb.Error, SqlmlError):
            description = self.connection.session.cursor().model(self.reference)
            return [self._make_column(name, kind) for name, kind in description.inputs.items()]
        return []

    def _make_column(self, name: str, sql_type: str) -> CatalogItem:
        quoted_name = DUCKDB.quote_name(name)
        return CatalogItem(
            qualified_identifier=f"{self.qualified_identifier}.{quoted_name}",
            query_name=quoted_name,
            label=escape_controls(name),
            type_label=SqlmlConnection._short_column_type(sql_type),
            type_name=sql_type,
        )


@dataclass
class DatabaseItem(DatabaseCatalogItem):
    """A database in the catalog."""

    def fetch_children(self) -> list[Any]:
        """Return an item with the models of the database, if any, and the schemas."""
        schemas = super().fetch_children()
        assert isinstance(self.connection, SqlmlConnection)
        models = self.connection.models(self.label)
        if not models:
            return schemas
        name = f"{self.qualified_identifier}.{MODELS_LABEL}"
        return [CatalogItem(name, name, MODELS_LABEL, "", list(models)), *schemas]
