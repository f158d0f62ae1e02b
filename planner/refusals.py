"""Calls whose model may refuse a row, and where the engine must not ask them about rows of its own.

To find out whether a LEFT JOIN may become an inner one, DuckDB evaluates the filters above it for a
row of NULLs that no query asks for, and an error about that row ends the query. It leaves a
volatile function alone, so a call that may be part of such a filter has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.front.lexer import Token, brackets_around, queries_around, starts_query
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.planner.blocks import block_tokens, clause_at, query_around
from sqlml.planner.select_items import select_item
from sqlml.recent import of_programs
from sqlml.types import fold

_REQUIREMENTS = frozenset({"require", "require_finite", "require_finite_stored", "require_known"})
_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""What CREATE makes of expressions that may stand where the engine takes nothing volatile."""


@of_programs
def refuses_rows(program: Program) -> bool:
    """Whether some row may be an error to the model and not a value."""
    return any(n.op in _REQUIREMENTS or OPS[n.op].group == "opaque" for n in program.nodes)


def guarded(tokens: Sequence[Token], place: int) -> bool:
    """Whether the call at token `place` is to have a volatile function."""
    return _filters_rows(tokens, place) and _may_be_volatile(tokens, place)


def in_try(tokens: Sequence[Token], place: int) -> bool:
    """Whether token `place` stands in `TRY(..)`."""
    return any(tokens[i - 1].upper == "TRY" for i in brackets_around(tokens, place) if i)


def _filters_rows(tokens: Sequence[Token], place: int) -> bool:
    """Whether a filter, or a column that one may test, holds what stands at token `place`."""
    if clause_at(tokens, place) in _FILTERS:
        return True
    return bool(queries_around(tokens, place)) or _created(tokens) == "VIEW"


def _may_be_volatile(tokens: Sequence[Token], place: int) -> bool:
    """Whether the engine takes a volatile function at token `place`.

    It takes none in TRY, in an index, in what a window is ordered or divided by, and in a select
    item whose name another clause or item uses; a subquery in such an item is part of it.
    """
    if in_try(tokens, place) or _created(tokens) in _STORED:
        return False
    filters = clause_at(tokens, place) in _FILTERS
    queries = [i for i in brackets_around(tokens, place) if starts_query(tokens, i + 1)]
    items = [i for i in queries if select_item(tokens, i) is not None]
    return all(_item_may_be_volatile(tokens, i) for i in [*items, *[place] * (not filters)])


def _item_may_be_volatile(tokens: Sequence[Token], place: int) -> bool:
    windows = any(tokens[i].upper in ("OVER", "QUALIFY") for i in block_tokens(tokens, place))
    return not windows and not _is_named_elsewhere(tokens, place)


def _is_named_elsewhere(tokens: Sequence[Token], place: int) -> bool:
    """Whether the query around token `place` may use the name of the select item that holds it."""
    item = select_item(tokens, place)
    if item is None:
        return False
    names = {fold(tokens[i].text) for i in (item[0], item[1] - 1) if tokens[i].is_identifier}
    start, end = query_around(tokens, place)
    around = (*range(start, item[0]), *range(item[1], end))
    return any(tokens[i].is_identifier and fold(tokens[i].text) in names for i in around)


def _created(tokens: Sequence[Token]) -> str:
    """What a statement creates, of what holds expressions: VIEW, INDEX, MACRO ..; or ""."""
    words = [t.upper for t in tokens[:6]]
    if words[:1] != ["CREATE"]:
        return ""
    return next((w for w in words if w in ("VIEW", "TABLE", *_STORED)), "")
