"""`span`: where in a text a node of sqlglot's tree stands.

sqlglot keeps only the places of names and literals. Here the parser's own methods mark what they
make with the first and the last token that they read, so that the place of a clause, a call or a
query is known for sure, whatever it consists of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parser import Parser

# Tree nodes for statements that sqlglot has no node for.


class ModelName(exp.Expression):
    """MODEL m, as the first argument of a call; `this` is the text that names the model."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class Kept(exp.Expression):
    """A statement in another: of PREPARE name AS .. and EXPLAIN .. (`kind`)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class Piped(exp.Expression, exp.Query):
    """Spark's query |> step |> step."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True, "with_": False}


class Step(exp.Expression):
    """One step of a pipe: its keyword, what it holds, and the name that `AS` gives."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "alias": False}


class OtherType(exp.Expression):
    """CREATE TYPE name AS ENUM (query)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


_PLACE = "sqlml_place"
_HULL = "sqlml_hull"
_UNKNOWN: Any = object()

_RULES = (
    "alias assignment bracket case column comparison conjunction create cte delete disjunction "
    "equality expression from function_call group having id_var insert join lambda lateral limit "
    "merge named_window offset on_conflict order ordered pivot placeholder primary qualify range "
    "returning select simplified_pivot statement table table_alias type unary update value "
    "when_matched where window with"
).split()
"""The parser's methods (`_parse_alias` ..) that mark what they make."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters sql[start:end]."""

    start: int
    end: int

    def holds(self, other: Span) -> bool:
        """Whether the other lies within."""
        return self.start <= other.start and other.end <= self.end


def outermost(places: Iterable[Span]) -> list[Span]:
    """Return the places that lie within no other one, in order."""
    outer: list[Span] = []
    for place in sorted(places, key=lambda p: (p.start, -p.end)):
        if not outer or place.start >= outer[-1].end:
            outer.append(place)
    return outer


def overlaps(place: Span, ordered: Sequence[Span]) -> bool:
    """Return whether a place has characters in common with one of `outermost` places."""
    first = bisect_right(ordered, place.start, key=lambda other: other.end)
    return first < len(ordered) and ordered[first].start < place.end


def span(node: exp.Expr) -> Span | None:
    """The place of a node; of one without a mark that of all in it, if there is any."""
    own = node.meta.get(_PLACE)
    if own is not None:
        return Span(*own)
    if "start" in node.meta:
        return Span(node.meta["start"], node.meta["end"] + 1)
    known: Span | None = node.meta.get(_HULL, _UNKNOWN)
    if known is _UNKNOWN:  # found once: sums of very many terms are deep
        known = node.meta[_HULL] = hull(node.iter_expressions())
    return known


def is_written(node: exp.Expr) -> bool:
    """Whether a node stands in the text; the parser puts others in, as the star of `FROM t`."""
    return _PLACE in node.meta


def hull(nodes: Iterable[exp.Expr | None]) -> Span | None:
    """From the beginning of the first node to the end of the last."""
    places = [place for n in nodes if n is not None and (place := span(n)) is not None]
    if not places:
        return None
    return Span(min(p.start for p in places), max(p.end for p in places))


def mark(parser: Any, node: Any, first: int) -> Any:
    """`node`, marked as what the parser has read since its token number `first`."""
    last = parser._index - 1
    if isinstance(node, exp.Expr) and last >= first:
        start, end = parser._tokens[first].start, parser._tokens[last].end + 1
        known = node.meta.get(_PLACE)
        if known is not None:
            start, end = min(start, known[0]), max(end, known[1])
        node.meta[_PLACE] = start, end
    return node


def keeping_places(base: type[Parser]) -> type[Parser]:
    """A parser like `base` whose nodes have places."""
    own = {f"_parse_{name}": _marking(getattr(base, f"_parse_{name}")) for name in _RULES}
    own["_parse_select_query"] = _selecting(base)
    own["_parse_set_operations"] = _combining(base)
    return type(f"{base.__name__}WithPlaces", (base,), own)


def _marking(rule: Callable[..., Any]) -> Callable[..., Any]:
    def parse(self: Any, *args: Any, **options: Any) -> Any:
        first = self._index
        return mark(self, rule(self, *args, **options), first)

    return parse


def _selecting(base: Any) -> Callable[..., Any]:
    """A query, whose first token its operands ask for."""

    def parse(self: Any, *args: Any, **options: Any) -> Any:
        first = self._index
        begun = self.__dict__.setdefault("_begun", [])
        begun.append(first)
        try:
            return mark(self, base._parse_select_query(self, *args, **options), first)
        finally:
            begun.pop()

    return parse


def _combining(base: Any) -> Callable[..., Any]:
    """What stands before UNION and the like ends here."""

    def parse(self: Any, this: Any) -> Any:
        begun = self.__dict__.get("_begun")
        if begun and isinstance(this, exp.Expr) and not is_written(this):
            mark(self, this, begun[-1])
        first = self._index
        return mark(self, base._parse_set_operations(self, this), first)

    return parse
