"""What a text is about, told before anything is done to it: most are the engine's own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from sqlml.catalog.macros import defined_functions
from sqlml.errors import ParseError
from sqlml.front.parse import mentions_models, parse
from sqlml.front.statements import Query
from sqlml.parsing.tokens import tokenize

_WATCHED = (
    *("predict", "transform", "model", "sqlml_"),
    *("macro", "function", "attach", "import"),
    *("commit", "end", "rollback", "abort"),
)
"""Words of the texts that we may have to do with: calls and models, what brings or hides a function
or macro of ours, and what ends a transaction."""

_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_ENDS = re.compile(r"(?:^|;)\s*(?:COMMIT|END|ROLLBACK|ABORT)\b[\w\s]*[;\s]*$", re.IGNORECASE)


def is_the_engines(text: Any) -> bool:
    """Whether there is nothing to do about a text but to run it.

    >>> is_the_engines("SELECT 42"), is_the_engines("SELECT predict('m', *) FROM t")
    (True, False)
    """
    if not isinstance(text, str):
        return False
    lowered = text.lower()
    for word in _WATCHED:  # a generator would take as long as all else here
        if word in lowered:
            return False
    return True


@lru_cache(maxsize=256)
def is_one_query(text: str) -> bool:
    """Whether a text is one query of models, which defines no function: what dashboards repeat.

    >>> is_one_query("SELECT predict('m', *) FROM t"), is_one_query("DROP MODEL m")
    (True, False)
    """
    if not mentions_models(text) or defined_functions(text):
        return False
    try:
        found = parse(text)
    except ParseError:
        return False
    return len(found) == 1 and isinstance(found[0], Query)


def ends_a_transaction(text: Any) -> bool:
    """Whether the last statement of a text is COMMIT, ROLLBACK or another word for them.

    >>> ends_a_transaction("BEGIN; DROP MODEL m; -- so\\n commit;"), ends_a_transaction("SELECT 1")
    (True, False)
    >>> ends_a_transaction("SELECT '; commit'"), ends_a_transaction("COMMIT; SELECT 1")
    (False, False)
    """
    return isinstance(text, str) and _ENDS.search(_COMMENTS.sub(" ", text)) is not None


def brings_models(text: Any) -> bool:
    r"""Whether a statement of a text is ATTACH or IMPORT: views that call models may come with it.

    >>> brings_models("-- mine\nATTACH 'shop.db'"), brings_models("SELECT 1; import database 'd'")
    (True, True)
    >>> brings_models("SELECT '; attach', import FROM attach; SELECT 1 AS attach")
    False
    """
    if not isinstance(text, str) or not any(word in text.lower() for word in ("attach", "import")):
        return False
    try:
        tokens = tokenize(text)
    except ParseError:
        return False
    starts = [0, *(i + 1 for i, token in enumerate(tokens) if token.is_symbol(";"))]
    return any(t.upper in ("ATTACH", "IMPORT") for i in starts for t in tokens[i : i + 1])
