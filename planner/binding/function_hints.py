"""A statement that the engine refuses because a function of ours is misspelt, or out of place."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlml.catalog.tables import VIEWS
from sqlml.planner.syntax.arguments import FUNCTIONS, calls_of_a_text
from sqlml.planner.syntax.forms import FORMS
from sqlml.suggestions import closest
from sqlml.types import fold

_NO_TABLE_FUNCTION = re.compile(r"Table Function with name (ml_\w+) does not exist", re.IGNORECASE)

_STATEMENT = re.compile(r"(?:^|;)\s*(\w+)\s+(\w+)\b")
_VERBS = ("CREATE", "ALTER", "DROP", "SHOW", "DESCRIBE", "EXPORT", "VERIFY", "RETRAIN")
_OBJECTS = ("MODEL", "MODELS")
"""The first two words of statements about models."""

_ROWS = re.compile(r"\b(ml_\w+)\s*\((?!\s*MODEL\b)[^()]*\bTABLE\b", re.IGNORECASE)
"""A table form that does not begin with MODEL, and has rows."""
_NO_MODELS = re.compile(
    rf'Table with name "?sqlml\.({"|".join(VIEWS)})"? does not exist because schema', re.IGNORECASE
)

_NEAR = 0.75
"""Least similarity of a name to one of ours (difflib's ratio); below, it is most likely not meant
as ours."""


def hint(sql: str, message: str, is_function: Callable[[str], bool]) -> str | None:
    """A hint to add to the engine's `message` about `sql`; None if the cause is another one.

    A call is taken for ours if its name is close to one of ours and its first argument is one
    string; the engine refuses it because it has no such function, or because an argument is a star.
    Our macros for plain connections are called by mistake where MODEL is left out before a column.

    Args:
        is_function: whether the engine has a function or macro of this name.

    >>> missing = "Catalog Error: Scalar Function with name predict_prob does not exist!"
    >>> hint("SELECT predict_prob('m', a) FROM t", missing, lambda name: False)
    "did you mean predict_proba('m', ..)?"
    """
    if _NO_MODELS.search(message) is not None:
        return (
            "this database has no models yet; CREATE MODEL or create_model() registers one, and "
            "makes this view"
        )
    if (missing := _NO_TABLE_FUNCTION.search(message)) is not None:
        return _of_table_form(fold(missing[1]))
    for name in FUNCTIONS:
        unfit = f"Macro {name}() does not support the supplied arguments" in message
        if unfit and not is_function(name):
            return (
                f"the name of a model stands in single quotes, {name}('m', ..); a model that a "
                f"column names is called by {name}(MODEL (column), ..)"
            )
    if "syntax error" in message or "Table with name MOD" in message:
        return _of_statement(sql) or _of_rows(sql)
    starred = "STAR expression" in message
    if not starred and "does not exist" not in message:
        return None
    found = calls_of_a_text(sql)
    for call in found if starred else ():
        if call.qualified and fold(call.name) in FUNCTIONS:
            return f"write {call.name}('{call.text}', ..) without the schema"
    calls = [
        (fold(call.name), f"('{call.text}', ..)")
        for call in found
        if starred or f"name {fold(call.name)} does not exist" in message.lower()
    ]
    for name, rest in calls:
        near = closest(name, FUNCTIONS, _NEAR)
        if name not in FUNCTIONS and near is not None and not is_function(name):
            return f"did you mean {near}{rest}?"
    for name, rest in calls:
        if name in FUNCTIONS and not is_function(name):
            return (
                f"{name}{rest} calls a model only in a query, con.sql('SELECT .. FROM ..'), not "
                "in a relation's own methods"
            )
    return None


def _of_statement(sql: str) -> str | None:
    """Return how to write the statement about models that `sql` most likely means, or None.

    >>> _of_statement("RETRAN MODEL m"), _of_statement("DROP MODLE m")
    ('write ALTER MODEL m RETRAIN', 'did you mean DROP MODEL?')
    """
    for statement in _STATEMENT.finditer(sql):
        verb, what = (word.upper() for word in statement.groups())
        near_verb, near_what = closest(verb, _VERBS, _NEAR), closest(what, _OBJECTS, _NEAR)
        if near_verb is None or near_what is None:
            continue
        if near_verb == "RETRAIN":
            return "write ALTER MODEL m RETRAIN"
        if (verb, what) != (near_verb, near_what):
            return f"did you mean {near_verb} {near_what}?"
    return None


def _of_rows(sql: str) -> str | None:
    """Return how to write the table form of which the engine cannot read the rows; None without."""
    found = _ROWS.search(sql)
    return None if found is None else _of_table_form(fold(found[1]))


def _of_table_form(name: str) -> str | None:
    """How to write the table form that is nearest to a name; None where none is near.

    >>> _of_table_form("ml_evaluate")
    'write ml_evaluate(MODEL m, TABLE t)'
    """
    near = closest(name.removeprefix("ml_"), FORMS, _NEAR)
    if near is None:
        return None
    form = FORMS[near]
    model = ["MODEL m"] if form.has_model else []
    return f"write ml_{near}({', '.join([*model, *('TABLE t', 'TABLE u')[: form.tables[1]]])})"
