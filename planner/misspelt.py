"""A statement that the engine refuses because a function of ours is misspelt, or out of place."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from sqlml.errors import ParseError
from sqlml.front.lexer import tokenize
from sqlml.planner.calls import FUNCTIONS
from sqlml.types import fold

_NEAR = 0.75
"""How like one of ours a name must be (difflib's ratio); below, it is most likely another's."""


def hint(sql: str, message: str, is_function: Callable[[str], bool]) -> str | None:
    """What to say beside the engine's `message` about `sql`; None where it has other reasons.

    A call is taken for ours when its name is near one of ours and its first argument is one
    string; the engine refuses it since it knows no such function, or since an argument is a star.

    Args:
        is_function: whether the engine has a function or macro of this name.

    >>> missing = "Catalog Error: Scalar Function with name predict_prob does not exist!"
    >>> hint("SELECT predict_prob('m', a) FROM t", missing, lambda name: False)
    "did you mean predict_proba('m', ..)?"
    """
    starred = "STAR expression" in message
    if not starred and "does not exist" not in message:
        return None
    try:
        tokens = tokenize(sql)
    except ParseError:
        return None
    around = zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)
    for dot, word, opening, model in around if starred else ():
        ours = fold(word.text) in FUNCTIONS and opening.is_symbol("(") and model.kind == "string"
        if ours and dot.is_symbol("."):
            return f"write {word.text}('{model.text}', ..) without the schema"
    calls = [
        (fold(name.text), f"('{model.text}', ..)")
        for name, opening, model, after in zip(
            tokens, tokens[1:], tokens[2:], tokens[3:], strict=False
        )
        if name.is_identifier and opening.is_symbol("(") and model.kind == "string"
        if after.is_symbol(",") or after.is_symbol(")")
        if starred or f"name {fold(name.text)} does not exist" in message.lower()
    ]
    for name, rest in calls:
        near = difflib.get_close_matches(name, FUNCTIONS, 1, _NEAR)
        if name not in FUNCTIONS and near and not is_function(name):
            return f"did you mean {near[0]}{rest}?"
    for name, rest in calls:
        if name in FUNCTIONS and not is_function(name):
            return (
                f"{name}{rest} calls a model in a query alone, con.sql('SELECT .. FROM ..'), and "
                "not in a relation's own methods"
            )
    return None
