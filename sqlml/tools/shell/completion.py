"""Complete what is typed at the prompt: words of SQL, names, options, settings and their values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document

from sqlml.dialects import DUCKDB
from sqlml.errors import SqlmlError
from sqlml.planner.program.choose import SETTINGS
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.statements import model_options
from sqlml.tools.shell.dot_commands import COMMANDS
from sqlml.tools.shell.output_modes import MODES
from sqlml.training.model_types import MODEL_TYPES
from sqlml.training.options.estimator_parameters import parameter_names
from sqlml.training.options.sqlml_options import ALIASES, TRAINING_OPTIONS
from sqlml.types import fold

FUNCTIONS = frozenset(
    {"predict", "predict_proba", "predict_score", "transform", "explain"}
    | {f"ml_{name}" for name in FORMS}
)
"""Functions of models, in lower case."""

KEYWORDS = frozenset(
    "MODEL MODELS VERSION VERSIONS OPTIONS INPUT OUTPUT VERIFY EXPORT ALIAS TAGS CASCADE "
    "RETRAIN PROMOTE".split()
)
"""Words of statements about models that DuckDB's own list lacks."""


_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_QUOTED = r'"(?:[^"]|"")*"'
_NAME = rf"({_QUOTED}|\w+)"
_BEFORE_QUOTE = re.compile(rf"(?:[^'\"]|'(?:[^']|'')*'|{_QUOTED})*")
"""Matches the longest beginning of a text in which all quotes are closed."""
_WORD = re.compile(r"\w*$")
_QUALIFIER = re.compile(rf"{_NAME}\.$")
_OF_FUNCTION = re.compile(r"\b(\w+)\s*\(\s*$")
_AFTER_MODEL = re.compile(r"\bmodel\s+(?:if\s+(?:not\s+)?exists\s+)?$", re.IGNORECASE)
_SOURCES = re.compile(
    rf"\b(?:from|join|into|update|table)\s+{_NAME}(?:\s+(?:as\s+)?{_NAME})?", re.IGNORECASE
)
_IN_OPTIONS = re.compile(r"\boptions\s*\(((?:[^()']|'[^']*'|\([^()]*\))*)$", re.IGNORECASE)
_ITEM = re.compile(r"\s*(\w+)\s*(?:=|:=)\s*[\[({]?\s*$")
_SETTING = re.compile(
    r"(?:^|;)\s*(?:set|reset)\s+(?:(?:session|global|local)\s+)?(?:(\w+)\s*(?:=|\bto\b)\s*)?$",
    re.IGNORECASE,
)
_MODEL_TYPE = re.compile(r"\bmodel_type\s*:?=\s*'(\w+)'", re.IGNORECASE)

_COLUMN_OPTIONS = ("label", "weight", "group", "split_column")
"""Options whose value is a column name."""

_VALUES: Mapping[str, Sequence[str]] = {
    **SETTINGS,
    "model_type": tuple(MODEL_TYPES),
    "library": tuple(
        dict.fromkeys(name for kind in MODEL_TYPES.values() for name in kind.trainers)
    ),
    "split": ("auto", "random", "seq", "custom", "none"),
    "encoding": ("one_hot", "target"),
    "class_weights": ("balanced",),
    "leaks": ("warn", "error"),
    "on_null": ("error", "null"),
    "on_missing_column": ("error", "null"),
}
"""Words that an option or setting accepts."""

_BOOLEAN = frozenset(
    {name for name, (types, _) in TRAINING_OPTIONS.items() if types == (bool,)}
    | {"allow_pickle", "approximate"}
)
"""Options that are true or false, without quotes."""

Candidate = tuple[str, str]
"""A completion and its kind."""


@dataclass(frozen=True)
class Names:
    """The names that a session knew when they were last read.

    Attributes:
        tables: table or view -> its columns.
        models: models, each followed by its aliases (`churn@champion`).
        functions: the engine's functions and macros.
        keywords: the engine's keywords, in capitals.
        reserved: those keywords, folded, that are names only in quotes.
        settings: the engine's settings.
    """

    tables: Mapping[str, Sequence[str]] = field(default_factory=dict)
    models: Sequence[str] = ()
    functions: Sequence[str] = ()
    keywords: Sequence[str] = ()
    reserved: frozenset[str] = frozenset()
    settings: Sequence[str] = ()

    def quoted(self, name: str) -> str:
        """Return a name as SQL needs it: quoted if it is reserved or not a plain word."""
        is_plain = _PLAIN.fullmatch(fold(name)) and fold(name) not in self.reserved
        return name if is_plain else DUCKDB.quote_name(name)


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
        keywords = ask(
            "SELECT keyword_name, keyword_category FROM system.main.duckdb_keywords()"
        ).fetchall()
        settings = ask("SELECT name FROM system.main.duckdb_settings() ORDER BY name")
        return Names(
            tables,
            tuple(_models(session)),
            tuple(str(name) for (name,) in functions.fetchall() if _PLAIN.fullmatch(str(name))),
            tuple(str(word).upper() for word, _ in keywords),
            frozenset(fold(str(word)) for word, category in keywords if category == "reserved"),
            tuple(str(name) for (name,) in settings.fetchall()),
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
    """Return references to the versions of a model, such as `churn/3`; empty if it is unknown."""
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
        """Read the names again later, since a statement may have changed them."""
        self._names = None

    def get_completions(self, document: Document, _: object) -> Iterable[Completion]:
        """Yield completions for the cursor."""
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
        start = _bare(word)
        seen = set()
        for name, meta in found:
            if _bare(name).startswith(start) and fold(name) not in seen:
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


def _bare(name: str) -> str:
    """Return a name in the form to compare with typed text: folded and without quotes."""
    return fold(name.strip("\"'")).replace('""', '"')


def candidates(before: str, whole: str, names: Names) -> tuple[str, list[Candidate]]:
    """Return the word at the cursor, and what may stand there.

    Args:
        before: the text before the cursor.
        whole: the whole text.
    """
    closed = _BEFORE_QUOTE.match(before)
    open_quote = before[closed.end() :] if closed is not None else ""
    if open_quote.startswith("'"):
        rest, word = before[: -len(open_quote)], open_quote[1:]
        function = _OF_FUNCTION.search(rest)
        if function is not None and function[1].lower() in FUNCTIONS:
            return word, [(name, "model") for name in names.models]
        texts = _option_values(rest, whole, names) or _setting_values(rest) or ()
        return word, [(text[1:-1], meta) for text, meta in texts if text.startswith("'")]
    match = _WORD.search(before)
    word = open_quote or ("" if match is None else match[0])
    rest = before[: len(before) - len(word)]
    if _AFTER_MODEL.search(rest) is not None:
        models = [name for name in names.models if "/" not in name and "@" not in name]
        return word, [(names.quoted(name), "model") for name in models]
    for found in (
        _option_values(rest, whole, names),
        _option_names(rest, whole),
        _setting_values(rest),
        _setting_names(rest, names),
    ):
        if found is not None:
            return word, found
    sources = _sources(whole, names)
    qualifier = _QUALIFIER.search(rest)
    if qualifier is not None:
        tables = {fold(table): columns for table, columns in names.tables.items()}
        table = _bare(qualifier[1])
        columns = sources.get(table, tables.get(table, ()))
        return word, [(names.quoted(column), "column") for column in columns]
    return word, _names_in_scope(word, sources, names) if word else []


def _names_in_scope(
    word: str, sources: Mapping[str, Sequence[str]], names: Names
) -> list[Candidate]:
    """Return columns, tables, functions and keywords."""
    in_scope = sources or names.tables  # before FROM is typed, any table may be meant
    found = [(names.quoted(c), "column") for columns in in_scope.values() for c in columns]
    found += [(names.quoted(table), "table") for table in names.tables]
    found += [(f"{name}(", "model function") for name in sorted(FUNCTIONS)]
    keywords = {*names.keywords, *KEYWORDS}
    is_lower = word.islower()
    found += [(k.lower() if is_lower else k, "keyword") for k in sorted(keywords)]
    found += [(f"{name}(", "function") for name in sorted(names.functions)]
    return found


def _option_names(rest: str, whole: str) -> list[Candidate] | None:
    """Return the names of options in OPTIONS (..); None elsewhere."""
    inside = _IN_OPTIONS.search(rest)
    if inside is None:
        return None
    if inside[1].strip() and not inside[1].rstrip().endswith(","):
        return []  # an option comes behind a comma
    found = [(name, "option") for name in TRAINING_OPTIONS]
    found += [(name, "parameter") for name in _parameters(whole)]
    found += [(name, "option") for name in (*model_options.STORED, *model_options.AT_CREATION)]
    found += [(name, f"option: {own}") for name, own in ALIASES.items()]
    return [(f"{name} = ", meta) for name, meta in found]


def _parameters(whole: str) -> list[str]:
    """Return the parameters of the model type that a text names.

    A library's own are known once it is imported, which would take seconds here.
    """
    named = _MODEL_TYPE.search(whole)
    kind = None if named is None else MODEL_TYPES.get(named[1].lower())
    found: list[str] = []
    for trainer in () if kind is None else kind.trainers.values():
        found += trainer.names
        if trainer.package in sys.modules:
            found += sorted(parameter_names(trainer))
    return found


def _option_values(rest: str, whole: str, names: Names) -> list[Candidate] | None:
    """Return the values of an option, behind its name and =; None elsewhere."""
    inside = _IN_OPTIONS.search(rest)
    item = None if inside is None else _ITEM.fullmatch(inside[1].rpartition(",")[2])
    if item is None:
        return None
    option = ALIASES.get(item[1].lower(), item[1].lower())
    if option in _COLUMN_OPTIONS:
        in_scope = _sources(whole, names) or names.tables
        found = [column for columns in in_scope.values() for column in columns]
        return [(DUCKDB.quote_string(column), "column") for column in found]
    if option in _BOOLEAN:
        return [("true", "value"), ("false", "value")]
    return [(DUCKDB.quote_string(value), option) for value in _VALUES.get(option, ())]


def _setting_names(rest: str, names: Names) -> list[Candidate] | None:
    """Return the names of settings behind SET and RESET; None elsewhere."""
    found = _SETTING.search(rest)
    if found is None or found[1] is not None:
        return None
    return [
        *((f"sqlml_{name}", "setting of models") for name in SETTINGS),
        *((name, "setting") for name in names.settings),
    ]


def _setting_values(rest: str) -> list[Candidate] | None:
    """Return the values of a setting of models behind its name; None elsewhere."""
    found = _SETTING.search(rest)
    if found is None or found[1] is None:
        return None
    setting = found[1].lower().removeprefix("sqlml_")
    return [(DUCKDB.quote_string(value), "value") for value in SETTINGS.get(setting, ())]


def _sources(text: str, names: Names) -> Mapping[str, Sequence[str]]:
    """Return the tables that a statement reads, by their names and aliases, and their columns."""
    columns = {fold(table): found for table, found in names.tables.items()}
    sources: dict[str, Sequence[str]] = {}
    for table, alias in _SOURCES.findall(text):
        found = columns.get(_bare(table))
        if found is not None:
            sources[_bare(table)] = found
            if alias:
                sources[_bare(alias)] = found
    return sources
