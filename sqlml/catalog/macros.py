"""Macros with which an unmodified client of the database scores: `predict('churn', t)`.

The engine binds every branch of a CASE, also where it needs columns that the table lacks, and gives
all of them one type. Of the overloads of a macro it binds only the one that the arguments' types
choose, so the model's name becomes a type, the length of an array::

    predict(m, r)                        in schema sqlml, and in main where no other has that name
      CASE WHEN m IS NULL THEN NULL
      ELSE sqlml.choose_<digest>(struct_extract({'churn': NULL::BOOLEAN[1], ..}, m), r, m) END
    sqlml.choose_<digest>(n BOOLEAN[1], r, m) AS CASE .. sqlml.score_<digest>(r, m) END,
                         (n BOOLEAN[2], r, m) AS ..
    sqlml.score_<digest>(r, m)           one model's call, with r's fields as its columns

A `<digest>` is of the macro's own content: a macro of that name in another database, which the
engine may find first, does the same. `CASE WHEN m IS NULL` is folded away. It stops the engine
from looking for functions while it creates the macro, when a copy of the database that is being
imported has none of them yet.

A bare macro that its owner dropped, or replaced by a function of theirs, stays so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlml.catalog.connection import Connection

FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "predict": {"label": ""},
    "predict_proba": {"proba": "", "class": ", class"},
    "predict_score": {"score": ""},
    "transform": {"transform": ""},
}
"""Macro -> what it computes with which parameters after the model and the row."""

OURS = r"sqlml\.choose_[0-9a-f]{24}\("
"""A pattern (of Python and of the engine) that is in the definition of each of our macros."""

_TABLE = """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_calls (
        key VARCHAR,
        kind VARCHAR,
        macro VARCHAR NOT NULL,
        function VARCHAR,
        arguments VARCHAR[],
        result VARCHAR,
        PRIMARY KEY (key, kind)
    )
"""
_DEFINED = re.compile(
    r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:MACRO|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?"
    r"(?:(?:\w+|\"[^\"]*\")\s*\.\s*)?((?:\w+|\"[^\"]*\")\s*\.\s*)?"
    rf"\"?({'|'.join(FUNCTIONS)})\"?\s*\(",
    re.IGNORECASE,
)
_TYPED = (1, 4)
"""The storage version of the engine that first keeps the types of a macro's parameters."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What one model computes of the row `r`, as SQL, and the engine function in it.

    `kind` is one of those in `FUNCTIONS`; a "class" has the parameter `class`. `function` is None
    where `body` calls none. `helpers` are macros that `body` calls as `sqlml.<name>`: their names,
    made by `helper`, and what stands behind the name in CREATE MACRO.
    """

    kind: str
    body: str
    function: str | None = None
    arguments: tuple[str, ...] = ()
    result: str = ""
    helpers: tuple[tuple[str, str], ...] = ()


def helper(name: str, definition: str) -> tuple[str, str]:
    """A macro for bodies; its name is `name` and a digest of what it does."""
    return f"{name}_{_digest(definition)}", definition


class Macros:
    """Keeps the macros of the databases that one connection sees."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outdated: dict[str, str] = {}

    def keep(
        self,
        schema: str,
        database: str | None,
        key: str,
        calls: Sequence[ModelCall],
        shared: bool,
    ) -> None:
        """Make `calls` what the macros compute for the model `key`; none: forget the model.

        In a transaction that is the user's own (`shared`) the macros wait for its end, since two
        transactions that change one macro conflict.

        Args:
            schema: the catalog's schema, qualified and quoted.
            database: the database's name; None: the current one.
        """
        name = self._database(database)
        if not _keep(self._connection, schema, name, key, calls):
            return
        if shared:
            self._outdated[name] = schema
        else:
            _rebuild(self._connection, schema, name)

    @property
    def outdated(self) -> bool:
        """Whether macros wait for the end of the user's transaction."""
        return bool(self._outdated)

    def refresh(self) -> None:
        """Make the macros that wait for the end of the user's transaction, if it has ended."""
        if not self._outdated or self._connection.in_transaction():
            return
        for database, schema in list(self._outdated.items()):
            if self._connection.has_database(database):
                self._connection.atomic(partial(_rebuild, self._connection, schema, database))
            del self._outdated[database]

    def make_room(self, name: str) -> None:
        """Drop our bare macro `name`: the user is about to make a function of that name."""
        name = name.lower()
        if name not in FUNCTIONS:
            return
        database = self._database(None)
        found = self._connection.read(
            "SELECT 1 FROM duckdb_functions() WHERE database_name = ? AND schema_name = 'main' "
            "AND function_name = ? AND regexp_matches(coalesce(macro_definition, ''), ?)",
            [database, name, OURS],
        )
        if found:
            self._connection.write(f"DROP MACRO IF EXISTS {_quoted(database)}.main.{name}")

    def _database(self, name: str | None) -> str:
        """The name of a database (None: the current one) as the engine writes it."""
        rows = self._connection.read(
            "SELECT database_name FROM duckdb_databases() "
            "WHERE lower(database_name) = lower(coalesce(?, current_database()))",
            [name],
        )
        return str(rows[0][0])


def _keep(
    connection: Connection, schema: str, database: str, key: str, calls: Sequence[ModelCall]
) -> bool:
    """Write down `calls` as what the model `key` of a database computes; none: forget it.

    Args:
        schema: the catalog's schema, qualified and quoted.
        database: the database's name.

    Returns:
        Whether `_rebuild` has something to do.
    """
    if not calls and connection.columns(f"{schema}.catalog_calls") is None:
        return False
    if not _takes_types(connection, database):
        return False
    connection.write(_TABLE.format(schema=schema))
    connection.write(f"DELETE FROM {schema}.catalog_calls WHERE key = ?", [key])
    for name, definition in {h for call in calls for h in call.helpers}:
        connection.write(f"CREATE MACRO IF NOT EXISTS {schema}.{name}{definition}")
    for call in calls:
        macro = f"score_{_digest(call.kind, key, call.body)}"
        extra = ", class" if call.kind == "class" else ""
        connection.write(
            f"CREATE MACRO IF NOT EXISTS {schema}.{macro}(r, m{extra}) AS "
            f"CASE WHEN m IS NULL THEN NULL ELSE {call.body} END"
        )
        connection.write(
            f"INSERT INTO {schema}.catalog_calls VALUES (?, ?, ?, ?, ?, ?)",
            [key, call.kind, macro, call.function, list(call.arguments), call.result],
        )
    return True


def defined_functions(sql: str) -> list[str]:
    """Those of our names that a text gives to a function in the user's main schema.

    >>> defined_functions("CREATE OR REPLACE MACRO main.predict(a) AS a; CREATE MACRO f(b) AS b")
    ['predict']
    """
    found = [(place, name.lower()) for place, name in _DEFINED.findall(sql)]
    return [name for place, name in found if place.strip('". ').lower() in ("", "main")]


def _rebuild(connection: Connection, schema: str, database: str) -> None:
    """Make the macros of all models of a database again: two transactions that do so conflict."""
    if connection.columns(f"{schema}.catalog_calls") is None:
        return
    macros: dict[str, dict[str, str]] = {}
    for kind, key, macro in connection.read(
        f"SELECT kind, key, macro FROM {schema}.catalog_calls ORDER BY kind, key"
    ):
        macros.setdefault(str(kind), {})[str(key)] = str(macro)
    names = ", ".join(map(_text, FUNCTIONS))
    before = connection.read(
        f"SELECT database_name, schema_name, function_name, macro_definition "
        f"FROM duckdb_functions() WHERE function_name IN ({names}) OR schema_name = 'sqlml'"
    )
    own = {str(f) for d, s, f, _ in before if (d, s) == (database, "sqlml")}
    bare = {
        str(f)
        for d, s, f, definition in before
        if (d, s) == (database, "main") and re.search(OURS, str(definition))
    }
    taken = {str(f) for d, s, f, _ in before if s != "sqlml" and d in (database, "system", "temp")}
    free = bare | (set(FUNCTIONS) - taken - own)
    wanted = {m for models in macros.values() for m in models.values()}
    for function, kinds in FUNCTIONS.items():
        overloads = []
        for kind, extra in kinds.items():
            if kind not in macros:
                continue
            chooser, body = _chooser(macros[kind], extra)
            wanted.add(chooser)
            if chooser not in own:
                connection.write(f"CREATE MACRO {schema}.{chooser}{body}")
            overloads.append(_outer(macros[kind], chooser, extra))
        for place in (schema, *([f"{_quoted(database)}.main"] if function in free else [])):
            if overloads:
                made = ", ".join(overloads)
                connection.write(f"CREATE OR REPLACE MACRO {place}.{function}{made}")
            elif function in own:
                connection.write(f"DROP MACRO IF EXISTS {place}.{function}")
    for name in sorted(own - wanted):
        if name.startswith(("choose_", "score_")):
            connection.write(f"DROP MACRO IF EXISTS {schema}.{name}")


def _chooser(models: Mapping[str, str], extra: str) -> tuple[str, str]:
    """The name and the overloads of the macro that knows each model by its number."""
    body = ", ".join(
        f"(n BOOLEAN[{place}], r, m{extra}) AS "
        f"CASE WHEN m IS NULL THEN NULL ELSE sqlml.{macro}(r, m{extra}) END"
        for place, macro in enumerate(models.values(), 1)
    )
    return f"choose_{_digest(*models, body)}", body


def _outer(models: Mapping[str, str], chooser: str, extra: str) -> str:
    numbers = ", ".join(
        f"{_text(key)}: NULL::BOOLEAN[{place}]" for place, key in enumerate(models, 1)
    )
    return (
        f"(m, r{extra}) AS CASE WHEN m IS NULL THEN NULL ELSE "
        f"sqlml.{chooser}(struct_extract({{{numbers}}}, m), r, m{extra}) END"
    )


def _takes_types(connection: Connection, database: str) -> bool:
    """Whether macros of a database may have typed parameters, and the name sqlml means a schema."""
    if database.lower() == "sqlml":
        return False
    rows = connection.read(
        "SELECT path IS NULL, tags::VARCHAR FROM duckdb_databases() WHERE database_name = ?",
        [database],
    )
    for in_memory, tags in rows:
        found = re.search(r"v(\d+)\.(\d+)", str(tags))
        return bool(in_memory) if found is None else (int(found[1]), int(found[2])) >= _TYPED
    return False


def _digest(*content: str) -> str:
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:24]


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
