"""Spans: the positions of sqlglot's tree nodes in the text.

sqlglot keeps only the positions of names and literals. Here, the methods of the parser mark their
results with the first and last token that they consumed. The span of any clause is therefore exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.parser import Parser


class ModelName(exp.Expression):
    """The argument `MODEL m` at the start of a call; `this` is the SQL that names the model."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class WrappedStatement(exp.Expression):
    """PREPARE name AS statement, or EXPLAIN statement; `kind` is the keyword."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class PipedQuery(exp.Expression, exp.Query):
    """A query with Spark's pipe steps: query |> step |> step."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True, "with_": False}


class Step(exp.Expression):
    """A pipe step in Spark, with its keyword, its expressions, and the name that `AS` defines."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "alias": False}


class OtherType(exp.Expression):
    """CREATE TYPE name AS ENUM (query); `this` is the query."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


_SPAN_KEY = "sqlml_place"
_CHILDREN_KEY = "sqlml_hull"
_UNKNOWN: Any = object()

_MARKED_RULES = (
    "alias assignment bracket case column comparison conjunction create cte delete disjunction "
    "equality expression from function_call group having id_var insert join lambda lateral limit "
    "merge named_window offset on_conflict order ordered pivot placeholder primary qualify range "
    "returning select simplified_pivot statement table table_alias type unary update value "
    "when_matched where window with"
).split()
"""The parser methods (`_parse_alias`, ...) whose results are marked."""


@dataclass(frozen=True, slots=True)
class Span:
    """The characters sql[start:end]."""

    start: int
    end: int

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


def find_outermost(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that are not inside another one of `spans`, in the order of the text."""
    outermost: list[Span] = []
    for candidate in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not outermost or candidate.start >= outermost[-1].end:
            outermost.append(candidate)
    return outermost


def overlaps(candidate: Span, ordered: Sequence[Span]) -> bool:
    """Return whether a span overlaps any of the `ordered` spans that `find_outermost` returned."""
    index = bisect_right(ordered, candidate.start, key=lambda other: other.end)
    return index < len(ordered) and ordered[index].start < candidate.end


def span(node: exp.Expr) -> Span | None:
    """Return the span of a node or of all its children, or None if no child has a span."""
    marked = node.meta.get(_SPAN_KEY)
    if marked is not None:
        return Span(*marked)
    if "start" in node.meta:
        return Span(node.meta["start"], node.meta["end"] + 1)
    cached: Span | None = node.meta.get(_CHILDREN_KEY, _UNKNOWN)
    if cached is _UNKNOWN:  # The span is cached, because long sums are deep trees.
        cached = node.meta[_CHILDREN_KEY] = merge_spans(node.iter_expressions())
    return cached


def is_in_text(node: exp.Expr) -> bool:
    """Return whether a node occurs in the text, unlike the star that `FROM t` implies."""
    return _SPAN_KEY in node.meta


def merge_spans(nodes: Iterable[exp.Expr | None]) -> Span | None:
    """Return the smallest span that contains the spans of all `nodes`, or None without spans."""
    spans = [part for node in nodes if node is not None and (part := span(node)) is not None]
    return Span(min(p.start for p in spans), max(p.end for p in spans)) if spans else None


def mark_span(parser: Any, node: Any, first_token: int) -> Any:
    """Mark `node` with the span of the tokens that the parser consumed since `first_token`."""
    last_token = parser._index - 1
    if isinstance(node, exp.Expr) and last_token >= first_token:
        start, end = parser._tokens[first_token].start, parser._tokens[last_token].end + 1
        marked = node.meta.get(_SPAN_KEY)
        if marked is not None:
            start, end = min(start, marked[0]), max(end, marked[1])
        node.meta[_SPAN_KEY] = start, end
    return node


def make_span_parser(base: type[Parser]) -> type[Parser]:
    """Return a subclass of the parser `base` that marks results with their spans."""
    method_names = [f"_parse_{name}" for name in _MARKED_RULES]
    methods = {name: _mark_result(getattr(base, name)) for name in method_names}
    methods["_parse_select_query"] = _mark_query(base)
    methods["_parse_set_operations"] = _mark_set_operation(base)
    return type(f"{base.__name__}WithPlaces", (base,), methods)


def _mark_result(rule: Callable[..., Any]) -> Callable[..., Any]:
    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        first_token = self._index
        return mark_span(self, rule(self, *args, **kwargs), first_token)

    return parse


def _mark_query(base: Any) -> Callable[..., Any]:
    """Wrap the rule for queries to record where each query starts, for `_mark_set_operation`."""

    def parse_query(self: Any, *args: Any, **kwargs: Any) -> Any:
        first_token = self._index
        start_indexes = self.__dict__.setdefault("_start_indexes", [])
        start_indexes.append(first_token)
        try:
            return mark_span(self, base._parse_select_query(self, *args, **kwargs), first_token)
        finally:
            start_indexes.pop()

    return parse_query


def _mark_set_operation(base: Any) -> Callable[..., Any]:
    """Wrap the rule for set operations to mark the left operand of UNION and EXCEPT."""

    def parse_set_operations(self: Any, operand: Any) -> Any:
        start_indexes = self.__dict__.get("_start_indexes")
        if start_indexes and isinstance(operand, exp.Expr) and not is_in_text(operand):
            mark_span(self, operand, start_indexes[-1])
        first_token = self._index
        return mark_span(self, base._parse_set_operations(self, operand), first_token)

    return parse_set_operations
