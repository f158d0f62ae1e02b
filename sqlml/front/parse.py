"""SQL text as Statements: those that concern models by their grammar, the others as Query.

A text without a word of ours is never tokenized; see `mentions_models`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sqlml.errors import ParseError
from sqlml.front.grammar import read_statement
from sqlml.front.statements import Explain, Query, Statement
from sqlml.parsing.tokens import statements, tokenize

_WORDS = ("predict", "transform", "model", "sqlml_")
_GAP = r"(?:\s|/\*.*?\*/|--[^\n]*\n)"
_HINT = re.compile(
    r"\b(?:predict|predict_proba|predict_score|transform|ml_predict)" + _GAP + r"*\("
    r"|\bml" + _GAP + r"*\." + _GAP + r"*predict\b"
    r"|\b(?:create|replace|drop|show|describe|desc|explain|alter|export|verify|on|in)"
    + _GAP
    + r"+models?\b"
    r"|\b(?:set|reset)" + _GAP + r"+(?:\w+" + _GAP + r"+)?sqlml_",
    re.IGNORECASE | re.DOTALL,
)


def mentions_models(sql: str) -> bool:
    """Whether `sql` may concern models: the cheap test before anything else is done to it.

    >>> mentions_models("SELECT 1"), mentions_models("SELECT predict('m', *) FROM t")
    (False, True)
    """
    lowered = sql.lower()  # 50 times as quick as the expression, and most texts end here
    return any(word in lowered for word in _WORDS) and _HINT.search(sql) is not None


@lru_cache(maxsize=256)
def parse(sql: str, dialect: str = "duckdb") -> tuple[Statement, ...]:
    """The statements of `sql`, in order; those that do not concern models are Query.

    DuckDB takes a text of several statements that do not concern models as it is; Spark takes one
    at a time, of which one may be a script in BEGIN and END.

    Raises:
        ParseError: a statement about models breaks the grammar; the error shows the place.
    """
    one_at_a_time = dialect != "duckdb"
    if not mentions_models(sql):
        return _cut(sql, dialect) if one_at_a_time and ";" in sql else (Query(sql),)
    tokens = tokenize(sql, dialect)
    ranges = statements(tokens)
    if one_at_a_time and (not ranges or tokens[0].upper == "BEGIN"):
        return (Query(sql),)
    found = [read_statement(sql, tokens[a:b]) for a, b in ranges]
    if all(isinstance(s, Query) for s in found) and len(found) == 1:
        (start, end), *_ = ranges
        return (Query(sql[tokens[start].start : tokens[end - 1].end] if one_at_a_time else sql),)
    if one_at_a_time:
        texts = [sql[tokens[a].start : tokens[b - 1].end] for a, b in ranges]
    else:  # where the engine cuts, before the first word of a statement: nothing is left out
        starts = [0, *(tokens[a].start for a, _ in ranges[1:]), len(sql)]
        texts = [sql[start:end] for start, end in zip(starts, starts[1:], strict=False)]
    return tuple(
        replace(one, sql=text) if isinstance(one, Query | Explain) else one
        for one, text in zip(found, texts, strict=False)
    )


def _cut(sql: str, dialect: str) -> tuple[Statement, ...]:
    """The statements of a text without models; all of it where it cannot be read."""
    try:
        tokens = tokenize(sql, dialect)
    except ParseError:
        return (Query(sql),)
    ranges = statements(tokens)
    if not ranges or tokens[0].upper == "BEGIN":
        return (Query(sql),)
    return tuple(Query(sql[tokens[a].start : tokens[b - 1].end]) for a, b in ranges)
