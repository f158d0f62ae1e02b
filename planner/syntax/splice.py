"""`splice`: a statement's own text with calls and other parts replaced, else byte for byte."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlml.parsing.places import Span
from sqlml.planner.syntax.outline import ModelCall


def inner_first(calls: Iterable[ModelCall]) -> list[ModelCall]:
    """The calls, sorted so that those others may depend on come first: nested queries, FROM
    clauses, arguments of calls.

    Brackets do not suffice: `SELECT max(f(x.*)) FROM (SELECT f(..) ..) x` has both calls in one.
    """
    return sorted(calls, key=lambda c: (-c.queries, c.clause != "FROM", -c.depth, c.span.start))


def splice(
    sql: str,
    replaced: Mapping[ModelCall, str],
    patches: Mapping[Span, str],
    span: Span,
    insertions: Mapping[int, str] | None = None,
    sources: Mapping[Span, str] | None = None,
) -> str:
    """sql[span] with calls, `sources` and other places (`patches`) replaced.

    `insertions` puts text after a character.
    """
    edits = [(c.span.start, c.span.end, text) for c, text in replaced.items()]
    edits += [(s.start, s.end, text) for s, text in patches.items()]
    edits += [(s.start, s.end, text) for s, text in (sources or {}).items()]
    edits += [(at, at, text) for at, text in (insertions or {}).items()]
    edits = [e for e in edits if span.start <= e[0] and e[1] <= span.end]
    pieces, at = [], span.start
    for start, end, text in sorted(edits, key=lambda e: (e[0], -e[1])):
        if start < at:  # inside a call that has been replaced as a whole
            continue
        before = _gap(sql[max(0, start - 1) : start], text[:1])
        pieces += [sql[at:start], before, text, _gap(text[-1:], sql[end : end + 1])]
        at = end
    return "".join([*pieces, sql[at : span.end]])


def _gap(left: str, right: str) -> str:
    """A blank between two characters that would else make one word: `END` and `as`, `$1` and `AND`.

    >>> _gap("D", "a"), _gap(")", "a"), _gap("D", "")
    (' ', '', '')
    """
    return " " if all(c.isalnum() or c in ("_", "$") for c in (left, right)) else ""
