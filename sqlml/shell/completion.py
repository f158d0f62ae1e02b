"""`Completer`: what may come next: keywords, functions, models, versions, tables and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document

from sqlml.dialects import DUCKDB
from sqlml.errors import SqlmlError
from sqlml.shell.dot_commands import COMMANDS
from sqlml.shell.output_modes import MODES
from sqlml.shell.vocabulary import FUNCTIONS, KEYWORDS
from sqlml.types import fold

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"[\w\"]*$")
_QUALIFIED = re.compile(r"([\w]+)\.\"?(\w*)$")
_IN_QUOTES = re.compile(r"\b(\w+)\s*\(\s*'([^']*)$")
_AFTER_MODEL = re.compile(r"\bmodel\s+(?:if\s+(?:not\s+)?exists\s+)?(\w*)$", re.IGNORECASE)
_SOURCES = re.compile(
    r"\b(?:from|join|into|update|table)\s+\"?(\w+)\"?(?:\s+(?:as\s+)?(\w+))?", re.IGNORECASE
)


@dataclass(frozen=True)
class Names:
    """What a session has names for, when they were last read.

    Attributes:
        tables: table or view -> its columns.
        models: models, each followed by its aliases (`churn@champion`).
        functions: the engine's functions and macros.
        keywords: the engine's keywords, in capitals.
    """

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    models: Sequence[str] = ()
    functions: Sequence[str] = ()
    keywords: Sequence[str] = ()


def names_of(session: Any) -> Names:
    """The names of a session; none in a transaction that has failed.

    The questions read the engine's own tables, by names that no file can shadow.
    """
    ask = session.connection.sql
    try:
        tables: dict[str, list[str]] = {}
        for table, column in ask(
            "SELECT table_name, column_name FROM system.main.duckdb_columns() "
            "WHERE NOT internal AND schema_name <> 'sqlml' ORDER BY column_index"
        ).fetchall():
            tables.setdefault(str(table), []).append(str(column))
        functions = ask("SELECT DISTINCT function_name FROM system.main.duckdb_functions()")
        keywords = ask("SELECT keyword_name FROM system.main.duckdb_keywords()")
        return Names(
            tables,
            tuple(_models(session)),
            tuple(str(name) for (name,) in functions.fetchall() if _PLAIN.fullmatch(str(name))),
            tuple(str(word).upper() for (word,) in keywords.fetchall()),
        )
    except (duckdb.Error, SqlmlError):
        return Names()


def _models(session: Any) -> Iterator[str]:
    listed = session.sql("SHOW MODELS")
    names, aliases = (listed.columns.index(name) for name in ("name", "aliases"))
    for row in listed.fetchall():
        yield str(row[names])
        yield from (f"{row[names]}@{alias}" for alias in row[aliases] or ())


def versions_of(session: Any, model: str) -> list[str]:
    """References to the versions of a model, such as `churn/3`; empty if there is no such model."""
    try:
        listed = session.sql(f"SHOW VERSIONS IN MODEL {DUCKDB.quote_name(model)}")
    except (duckdb.Error, SqlmlError):
        return []
    return [f"{model}/{row[0]}" for row in listed.fetchall()]


class ModelCompleter(Completer):
    """Completes a statement or dot command from what the session has names for.

    Names are read again after each statement, when the first completion is asked for.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self._names: Names | None = None

    def forget(self) -> None:
        """Read the names again: a statement may have changed them."""
        self._names = None

    def get_completions(self, document: Document, _: object) -> Iterable[Completion]:
        """What may stand at the cursor."""
        before = document.text_before_cursor
        if self._names is None:
            self._names = names_of(self.session)
        if before.startswith("."):
            yield from _of_command(before)
            return
        word, found = candidates(before, document.text, self._names)
        model, slash, _ = word.partition("/")
        if slash:
            found = [(name, "model") for name in versions_of(self.session, model)]
        start = fold(word.replace('"', ""))
        seen = set()
        for name, meta in found:
            if fold(name).startswith(start) and fold(name) not in seen:
                seen.add(fold(name))
                yield Completion(name, -len(word), display_meta=meta)


def _of_command(before: str) -> Iterator[Completion]:
    name, space, rest = before[1:].partition(" ")
    if not space:
        for known, command in COMMANDS.items():
            if known.startswith(name):
                yield Completion(known, -len(name), display_meta=command.about)
    elif name == "mode":
        for mode, kind in MODES.items():
            if mode.startswith(rest):
                yield Completion(mode, -len(rest), display_meta=kind.about)


def candidates(before: str, whole: str, names: Names) -> tuple[str, list[tuple[str, str]]]:
    """The word at the cursor, and the names that may stand there, each with what it is."""
    quoted = _IN_QUOTES.search(before)
    if quoted is not None and quoted[1].lower() in FUNCTIONS:
        return quoted[2], [(name, "model") for name in names.models]
    after_model = _AFTER_MODEL.search(before)
    if after_model is not None:
        models = [name for name in names.models if "/" not in name and "@" not in name]
        return after_model[1], [(_quoted(name), "model") for name in models]
    sources = _sources(whole, names)
    qualified = _QUALIFIED.search(before)
    if qualified is not None:
        tables = {fold(table): found for table, found in names.tables.items()}
        columns = sources.get(fold(qualified[1]), tables.get(fold(qualified[1]), ()))
        return qualified[2], [(_quoted(column), "column") for column in columns]
    match = _WORD.search(before)
    word = "" if match is None else match[0]
    if not word:
        return "", []
    in_scope = sources or names.tables  # before FROM is typed, any table may be meant
    found = [(_quoted(c), "column") for columns in in_scope.values() for c in columns]
    found += [(_quoted(table), "table") for table in names.tables]
    found += [(f"{name}(", "model function") for name in sorted(FUNCTIONS)]
    keywords = {*names.keywords, *KEYWORDS}
    is_lower = word.islower()
    found += [(k.lower() if is_lower else k, "keyword") for k in sorted(keywords)]
    found += [(f"{name}(", "function") for name in sorted(names.functions)]
    return word, found


def _sources(text: str, names: Names) -> Mapping[str, Sequence[str]]:
    """The tables that a statement reads, by their names and aliases, and their columns."""
    columns = {fold(table): found for table, found in names.tables.items()}
    made: dict[str, Sequence[str]] = {}
    for table, alias in _SOURCES.findall(text):
        found = columns.get(fold(table))
        if found is not None:
            made[fold(table)] = found
            if alias:
                made[fold(alias)] = found
    return made


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(fold(name)) else DUCKDB.quote_name(name)
