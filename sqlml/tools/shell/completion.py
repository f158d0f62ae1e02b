"""Complete keywords, names, options and settings at the prompt."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import duckdb
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.document import Document

from sqlml.dialects import DUCKDB
from sqlml.errors import SqlmlError
from sqlml.planner.program.choose import SETTINGS
from sqlml.planner.syntax.call_options import FUNCTIONS as MODEL_FUNCTIONS
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.statements import model_options
from sqlml.tools.shell.dot_commands import COMMANDS
from sqlml.tools.shell.output_modes import MODES
from sqlml.training.model_types import MODEL_TYPES
from sqlml.training.options.estimator_parameters import list_parameter_names
from sqlml.training.options.sqlml_options import ALIASES, TRAINING_OPTIONS
from sqlml.types import fold

FUNCTIONS = frozenset(MODEL_FUNCTIONS) | {f"ml_{name}" for name in FORMS}

KEYWORDS = frozenset(
    "MODEL MODELS VERSION VERSIONS OPTIONS INPUT OUTPUT VERIFY EXPORT ALIAS TAGS CASCADE "
    "RETRAIN PROMOTE CALIBRATE CALIBRATION".split()
)
"""Keywords of statements about models that are missing from DuckDB's list of keywords."""


_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_QUOTED = r'"(?:[^"]|"")*"'
_NAME = rf"({_QUOTED}|\w+)"
_BEFORE_QUOTE = re.compile(rf"(?:[^'\"]|'(?:[^']|'')*'|{_QUOTED})*")
"""Matches the longest prefix of a text with closed quotes."""
_WORD = re.compile(r"\w*$")
_QUALIFIER = re.compile(rf"{_NAME}\.$")
_OPEN_FUNCTION = re.compile(r"\b(\w+)\s*\(\s*$")
_AFTER_MODEL = re.compile(r"\bmodel\s+(?:if\s+(?:not\s+)?exists\s+)?$", re.IGNORECASE)
_ALIAS = rf"(?:\s+(?:as\s+)?{_NAME})?"
_SOURCE_PATTERN = re.compile(rf"\b(?:from|join|into|update|table)\s+{_NAME}{_ALIAS}", re.IGNORECASE)
_IN_OPTIONS = re.compile(r"\boptions\s*\(((?:[^()']|'[^']*'|\([^()]*\))*)$", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"\s*(\w+)\s*(?:=|:=)\s*[\[({]?\s*$")
_SETTING = re.compile(
    r"(?:^|;)\s*(?:set|reset)\s+(?:(?:session|global|local)\s+)?(?:(\w+)\s*(?:=|\bto\b)\s*)?$",
    re.IGNORECASE,
)
_MODEL_TYPE = re.compile(r"\bmodel_type\s*:?=\s*'(\w+)'", re.IGNORECASE)

_COLUMN_OPTIONS = ("label", "weight", "group", "split_column")

_ACCEPTED_WORDS: Mapping[str, Sequence[str]] = {
    **SETTINGS,
    "model_type": tuple(MODEL_TYPES),
    "library": tuple(dict.fromkeys(name for t in MODEL_TYPES.values() for name in t.trainers)),
    "split": ("auto", "random", "seq", "custom", "none"),
    "encoding": ("one_hot", "target"),
    "class_weights": ("balanced",),
    "leaks": ("warn", "error"),
    "on_null": ("error", "null"),
    "on_missing_column": ("error", "null"),
}
"""Maps options and settings to accepted words."""

_BOOLEAN_OPTIONS = frozenset(
    {name for name, (types, _) in TRAINING_OPTIONS.items() if types == (bool,)}
    | {"allow_pickle", "approximate"}
)

Candidate = tuple[str, str]
"""A completion and the description for the menu."""
Sources = Mapping[str, Sequence[str]]
"""Maps tables and aliases to columns."""


@dataclass(frozen=True)
class CompletionNames:
    """The names in a session.

    `tables` maps each table or view to columns. `models` contains model names and aliases such as
    `churn@champion`. `keywords` are in upper case. `reserved` contains lower-case keywords that
    must be quoted if they are used as names.
    """

    tables: Sources = field(default_factory=dict)
    models: Sequence[str] = ()
    functions: Sequence[str] = ()
    keywords: Sequence[str] = ()
    reserved: frozenset[str] = frozenset()
    settings: Sequence[str] = ()

    def quote(self, name: str) -> str:
        """Quote `name` if it is a reserved keyword or not a plain identifier."""
        is_plain = _PLAIN_NAME.fullmatch(fold(name)) and fold(name) not in self.reserved
        return name if is_plain else DUCKDB.quote_name(name)


def read_names(session: Any) -> CompletionNames:
    """Read the names in a session. The result is empty if the session's transaction has failed."""
    run_query = session.connection.sql
    try:
        tables: dict[str, list[str]] = {}
        for table, column in run_query(
            "SELECT table_name, column_name FROM system.main.duckdb_columns() "
            "WHERE NOT internal AND schema_name <> 'sqlml' ORDER BY column_index"
        ).fetchall():
            tables.setdefault(str(table), []).append(str(column))
        functions = run_query("SELECT DISTINCT function_name FROM system.main.duckdb_functions()")
        keywords_sql = "SELECT keyword_name, keyword_category FROM system.main.duckdb_keywords()"
        keywords = run_query(keywords_sql).fetchall()
        settings = run_query("SELECT name FROM system.main.duckdb_settings() ORDER BY name")
        return CompletionNames(
            tables,
            tuple(_list_models(session)),
            tuple(name for (name,) in functions.fetchall() if _PLAIN_NAME.fullmatch(name)),
            tuple(str(word).upper() for word, _ in keywords),
            frozenset(fold(str(word)) for word, category in keywords if category == "reserved"),
            tuple(str(name) for (name,) in settings.fetchall()),
        )
    except (duckdb.Error, SqlmlError):
        return CompletionNames()


def _list_models(session: Any) -> Iterator[str]:
    for name, aliases in session.sql("SHOW MODELS").project("name, aliases").fetchall():
        yield str(name)
        yield from (f"{name}@{alias}" for alias in aliases or ())


def _list_versions(session: Any, model: str) -> list[str]:
    try:
        versions = session.sql(f"SHOW VERSIONS IN MODEL {DUCKDB.quote_name(model)}")
    except (duckdb.Error, SqlmlError):
        return []
    return [f"{model}/{row[0]}" for row in versions.fetchall()]


class ModelCompleter(Completer):
    """Completes statements and dot commands. The names of `session` are read when needed."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._names: CompletionNames | None = None

    def forget_names(self) -> None:
        """Clear the cached names, so the next completion reads them from the session."""
        self._names = None

    def get_completions(self, document: Document, _: object) -> Iterable[Completion]:
        text_before = document.text_before_cursor
        if self._names is None:
            self._names = read_names(self.session)
        if text_before.startswith("."):
            yield from _complete_command(text_before)
            return
        word, candidates = find_candidates(text_before, document.text, self._names)
        model, slash, _ = word.partition("/")
        if slash:
            candidates = [(name, "model") for name in _list_versions(self.session, model)]
        prefix = _fold_unquoted(word)
        seen_names = set()
        for name, description in candidates:
            if _fold_unquoted(name).startswith(prefix) and fold(name) not in seen_names:
                seen_names.add(fold(name))
                yield Completion(name, -len(word), display_meta=description)


def _complete_command(text_before: str) -> Iterator[Completion]:
    name, space, argument = text_before[1:].partition(" ")
    if space and name != "mode":
        return
    choices: Mapping[str, Any] = MODES if space else COMMANDS
    word = argument if space else name
    for choice, entry in choices.items():
        if choice.startswith(word):
            yield Completion(choice, -len(word), display_meta=entry.about)


def _fold_unquoted(name: str) -> str:
    """Remove the quotes of `name` and case-fold it, for comparison with typed text."""
    return fold(name.strip("\"'")).replace('""', '"')


def find_candidates(before: str, text: str, names: CompletionNames) -> tuple[str, list[Candidate]]:
    """Return the word that ends at the cursor, and the possible completions of this word.

    `before` is the part of `text` up to the cursor.
    """
    match = _BEFORE_QUOTE.match(before)
    open_quote = before[match.end() :] if match is not None else ""
    if open_quote.startswith("'"):
        prefix, word = before[: -len(open_quote)], open_quote[1:]
        function = _OPEN_FUNCTION.search(prefix)
        if function is not None and function[1].lower() in FUNCTIONS:
            return word, [(name, "model") for name in names.models]
        literals = _complete_option_value(prefix, text, names) or _complete_setting(prefix, names)
        return word, [(v[1:-1], about) for v, about in literals or () if v.startswith("'")]
    match = _WORD.search(before)
    word = open_quote or ("" if match is None else match[0])
    prefix = before[: len(before) - len(word)]
    if _AFTER_MODEL.search(prefix) is not None:
        models = [name for name in names.models if "/" not in name and "@" not in name]
        return word, [(names.quote(name), "model") for name in models]
    candidates = _complete_option_value(prefix, text, names)
    candidates = _complete_option_name(prefix, text) if candidates is None else candidates
    candidates = _complete_setting(prefix, names) if candidates is None else candidates
    if candidates is not None:
        return word, candidates
    sources = _find_sources(text, names)
    qualifier = _QUALIFIER.search(prefix)
    if qualifier is not None:
        tables = {fold(table): columns for table, columns in names.tables.items()}
        columns = {**tables, **sources}.get(_fold_unquoted(qualifier[1]), ())
        return word, [(names.quote(column), "column") for column in columns]
    return word, _list_query_candidates(word, sources, names) if word else []


def _list_query_candidates(word: str, sources: Sources, names: CompletionNames) -> list[Candidate]:
    """Return the completion candidates for `word` in a query. Candidates may not match `word`."""
    scope = sources or names.tables  # Before FROM is typed, all tables are candidates.
    keywords = sorted({*names.keywords, *KEYWORDS})
    return [
        *((names.quote(name), "column") for columns in scope.values() for name in columns),
        *((names.quote(table), "table") for table in names.tables),
        *((f"{name}(", "model function") for name in sorted(FUNCTIONS)),
        *((keyword.lower() if word.islower() else keyword, "keyword") for keyword in keywords),
        *((f"{name}(", "function") for name in sorted(names.functions)),
    ]


def _complete_option_name(prefix: str, text: str) -> list[Candidate] | None:
    """Return the names of options if `prefix` ends inside OPTIONS (...), or None."""
    clause = _IN_OPTIONS.search(prefix)
    if clause is None:
        return None
    if clause[1].strip() and not clause[1].rstrip().endswith(","):
        return []  # A comma must precede the next option.
    candidates = [
        *((name, "option") for name in TRAINING_OPTIONS),
        *((name, "parameter") for name in _list_parameters(text)),
        *((name, "option") for name in (*model_options.STORED, *model_options.AT_CREATION)),
        *((name, f"option: {option}") for name, option in ALIASES.items()),
    ]
    return [(f"{name} = ", description) for name, description in candidates]


def _list_parameters(text: str) -> list[str]:
    match = _MODEL_TYPE.search(text)
    model_type = None if match is None else MODEL_TYPES.get(match[1].lower())
    names: list[str] = []
    for trainer in () if model_type is None else model_type.trainers.values():
        names += trainer.names
        if trainer.package in sys.modules:  # An import would take seconds.
            names += sorted(list_parameter_names(trainer))
    return names


def _complete_option_value(
    prefix: str, text: str, names: CompletionNames
) -> list[Candidate] | None:
    """Return the values of an option if `prefix` ends with an option name and "=", or None."""
    clause = _IN_OPTIONS.search(prefix)
    assignment = None if clause is None else _ASSIGNMENT.fullmatch(clause[1].rpartition(",")[2])
    if assignment is None:
        return None
    option = ALIASES.get(assignment[1].lower(), assignment[1].lower())
    if option in _COLUMN_OPTIONS:
        tables_in_scope = _find_sources(text, names) or names.tables
        columns = chain.from_iterable(tables_in_scope.values())
        return [(DUCKDB.quote_string(column), "column") for column in columns]
    if option in _BOOLEAN_OPTIONS:
        return [("true", "value"), ("false", "value")]
    return [(DUCKDB.quote_string(value), option) for value in _ACCEPTED_WORDS.get(option, ())]


def _complete_setting(prefix: str, names: CompletionNames) -> list[Candidate] | None:
    """Return settings after SET or RESET, values after the name of a setting, or None."""
    match = _SETTING.search(prefix)
    if match is None:
        return None
    if match[1] is not None:
        setting = match[1].lower().removeprefix("sqlml_")
        return [(DUCKDB.quote_string(value), "value") for value in SETTINGS.get(setting, ())]
    return [
        *((f"sqlml_{name}", "setting of models") for name in SETTINGS),
        *((name, "setting") for name in names.settings),
    ]


def _find_sources(text: str, names: CompletionNames) -> Sources:
    columns_by_table = {fold(table): columns for table, columns in names.tables.items()}
    sources: dict[str, Sequence[str]] = {}
    for table_sql, alias_sql in _SOURCE_PATTERN.findall(text):
        table = _fold_unquoted(table_sql)
        if table in columns_by_table:
            sources[table] = columns_by_table[table]
            if alias_sql:
                sources[_fold_unquoted(alias_sql)] = columns_by_table[table]
    return sources
