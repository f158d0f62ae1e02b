"""Hints for statements in which the engine rejects a misspelt or misplaced function of sqlml."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlml.catalog.tables import VIEWS
from sqlml.planner.syntax.arguments import find_string_calls
from sqlml.planner.syntax.call_options import FUNCTIONS
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.suggestions import closest
from sqlml.types import fold

_MISSING_FUNCTION = re.compile(r"Table Function with name (ml_\w+) does not exist", re.IGNORECASE)

_STATEMENT_START = re.compile(r"(?:^|;)\s*(\w+)\s+(\w+)\b")
_VERBS = ("CREATE", "ALTER", "DROP", "SHOW", "DESCRIBE", "EXPORT", "VERIFY", "RETRAIN")
_NOUNS = ("MODEL", "MODELS")
"""The first and the second words of statements about models."""

_ROWS_WITHOUT_MODEL = re.compile(r"\b(ml_\w+)\s*\((?!\s*MODEL\b)[^()]*\bTABLE\b", re.IGNORECASE)
"""A table function with a TABLE argument whose first argument is not MODEL."""
_MISSING_VIEW = re.compile(
    rf'Table with name "?sqlml\.({"|".join(VIEWS)})"? does not exist because schema', re.IGNORECASE
)

_MIN_SIMILARITY = 0.75
"""The minimum similarity (difflib's ratio) at which a name counts as a misspelt name of sqlml."""


def suggest_fix(sql: str, message: str, is_function: Callable[[str], bool]) -> str | None:
    """Return a hint for the engine's error `message` about `sql`, or None if sqlml has no hint.

    A call is probably meant for sqlml if the name is similar and the first argument is a string.
    The engine rejects the call because the function does not exist or an argument is a star. If
    MODEL is missing before a column of model names, the call runs a macro for plain connections.

    >>> missing = "Catalog Error: Scalar Function with name predict_prob does not exist!"
    >>> suggest_fix("SELECT predict_prob('m', a) FROM t", missing, lambda name: False)
    "did you mean predict_proba('m', ..)?"
    """
    if _MISSING_VIEW.search(message) is not None:
        return (
            "this database has no models yet; CREATE MODEL or create_model() registers one, and "
            "makes this view"
        )
    if (match := _MISSING_FUNCTION.search(message)) is not None:
        return _suggest_table_form(fold(match[1]))
    for name in FUNCTIONS:
        rejects_arguments = f"Macro {name}() does not support the supplied arguments" in message
        if rejects_arguments and not is_function(name):
            return (
                f"write the name of a model in single quotes, {name}('m', ..); if a column names "
                f"the model, write {name}(MODEL (column), ..)"
            )
    if "syntax error" in message or "Table with name MOD" in message:
        match = _ROWS_WITHOUT_MODEL.search(sql)
        table_form_hint = None if match is None else _suggest_table_form(fold(match[1]))
        return _suggest_statement(sql) or table_form_hint
    has_star = "STAR expression" in message
    if not has_star and "does not exist" not in message:
        return None
    string_calls = find_string_calls(sql)
    for call in string_calls if has_star else ():
        if call.is_qualified and fold(call.name) in FUNCTIONS:
            return f"write {call.name}('{call.text}', ..) without the schema"
    calls = [
        (fold(call.name), f"('{call.text}', ..)")
        for call in string_calls
        if has_star or f"name {fold(call.name)} does not exist" in message.lower()
    ]
    calls = [(name, arguments) for name, arguments in calls if not is_function(name)]
    for name, arguments in calls:
        suggestion = closest(name, FUNCTIONS, _MIN_SIMILARITY)
        if name not in FUNCTIONS and suggestion is not None:
            return f"did you mean {suggestion}{arguments}?"
    for name, arguments in calls:
        if name in FUNCTIONS:
            return (
                f"{name}{arguments} calls a model only in a query, con.sql('SELECT .. FROM ..'), "
                "not in a relation's own methods"
            )
    return None


def _suggest_statement(sql: str) -> str | None:
    """Return a hint with the statement about models that `sql` probably means, or None.

    >>> _suggest_statement("RETRAN MODEL m"), _suggest_statement("DROP MODLE m")
    ('write ALTER MODEL m RETRAIN', 'did you mean DROP MODEL?')
    """
    for statement in _STATEMENT_START.finditer(sql):
        verb, noun = (word.upper() for word in statement.groups())
        meant_verb = closest(verb, _VERBS, _MIN_SIMILARITY)
        meant_noun = closest(noun, _NOUNS, _MIN_SIMILARITY)
        if meant_verb is None or meant_noun is None:
            continue
        if meant_verb == "RETRAIN":
            return "write ALTER MODEL m RETRAIN"
        if (verb, noun) != (meant_verb, meant_noun):
            return f"did you mean {meant_verb} {meant_noun}?"
    return None


def _suggest_table_form(name: str) -> str | None:
    """Return a hint with the table function whose name is most similar to `name`, or None.

    >>> _suggest_table_form("ml_evaluate")
    'write ml_evaluate(MODEL m, TABLE t)'
    """
    form = closest(name.removeprefix("ml_"), FORMS, _MIN_SIMILARITY)
    return None if form is None else f"write ml_{form}({FORMS[form].example})"
