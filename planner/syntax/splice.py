"""`splice`: a statement's own text with calls and other parts replaced, else byte for byte."""

from __future__ import annotations

from bisect import bisect_left, insort
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
    edits = Edits(sql, {call.span: text for call, text in replaced.items()}, patches, sources or {})
    after = {Span(at, at): text for at, text in (insertions or {}).items()}
    return edits.text(span, after)


CALLS, BESIDE, PATCHES, SOURCES = range(4)
"""Layers of a draft's edits: its calls, what changes beside columns that FROM makes, other places,
and FROM clauses that make columns. Of two edits at one place the earlier layer's is taken."""

_LAST = 4
"""A layer behind all others."""


class Edits:
    """Texts that replace places of a statement, sorted, so that a part of it is written quickly."""

    def __init__(self, sql: str, *layers: Mapping[Span, str]) -> None:
        """Begin with the texts of `layers`."""
        self._sql = sql
        self._edits = sorted(
            _edit(place, layer, text)
            for layer, texts in enumerate(layers)
            for place, text in texts.items()
        )

    def put(self, texts: Mapping[Span, str], layer: int) -> None:
        """Add texts to one of the layers."""
        for place, text in texts.items():
            insort(self._edits, _edit(place, layer, text))

    def remove(self, texts: Mapping[Span, str], layer: int) -> None:
        """Take texts out of a layer that has them."""
        for place, text in texts.items():
            del self._edits[bisect_left(self._edits, _edit(place, layer, text))]

    def text(self, span: Span, more: Mapping[Span, str] | None = None) -> str:
        """Return sql[span] with all places in it replaced, also those of `more`."""
        sql, pieces, at = self._sql, [], span.start
        first = bisect_left(self._edits, (span.start,))
        edits = self._edits[first : bisect_left(self._edits, (span.end + 1,))]
        if more:
            edits = sorted([*edits, *(_edit(place, _LAST, text) for place, text in more.items())])
        for start, minus_end, _, text in edits:
            end = -minus_end
            if start < at or end > span.end:  # inside a call that has been replaced as a whole
                continue
            before = _gap(sql[max(0, start - 1) : start], text[:1])
            pieces += [sql[at:start], before, text, _gap(text[-1:], sql[end : end + 1])]
            at = end
        return "".join([*pieces, sql[at : span.end]])


def _edit(place: Span, layer: int, text: str) -> tuple[int, int, int, str]:
    """Return an edit, sorted by its beginning, and before all that it holds."""
    return place.start, -place.end, layer, text


def _gap(left: str, right: str) -> str:
    """A blank between two characters that would else make one word: `END` and `as`, `$1` and `AND`.

    >>> _gap("D", "a"), _gap(")", "a"), _gap("D", "")
    (' ', '', '')
    """
    return " " if all(c.isalnum() or c in ("_", "$") for c in (left, right)) else ""
