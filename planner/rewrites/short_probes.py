"""Short probes for long statements: stand-ins replace the queries that call models.

A probe contains the queries in its FROM clause and the CTEs that they read. In a chain of CTEs or
in deeply nested queries, planning would take time in proportion to the square of the statement's
length. A stand-in has the columns of its query, and is short.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from contextlib import suppress

from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import ProbeError, add_all_ctes
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import PATCHES, Block, Edits
from sqlml.planner.syntax.read_outline import find_enclosing_brackets

_FEW_QUERIES = 8  # The probes of fewer queries are short, and a stand-in takes two questions.
_MAX_NESTING = 20  # A stand-in that needs more other stand-ins first keeps its query.


class ShortProbes:
    """The text of a statement in probes, in which stand-ins replace queries that call models.

    A stand-in is made when a probe first contains the whole query. Queries that do not bind by
    themselves, and queries in a recursive WITH clause, keep their text.
    """

    def __init__(self, draft: Draft) -> None:
        self._dialect, self._describe = draft.dialect, draft.context.describe
        self._edits = Edits(draft.text, *draft.probe_layers)
        self._blocks = _find_queries(draft)
        self._ends = sorted((query.end, query.start) for query in self._blocks)
        self._nesting = 0

    def build(self, span: Span, extra: Mapping[Span, str] | None = None) -> str:
        """Return the text at `span` for a probe, with the edits in `extra`."""
        if self._ends and self._nesting < _MAX_NESTING:
            first = bisect_left(self._ends, (span.start, 0))
            # Inner queries and earlier CTEs come first, since other queries read them.
            for end, start in self._ends[first : bisect_right(self._ends, (span.end, span.end))]:
                if start >= span.start and Span(start, end) in self._blocks:
                    self._replace_query(Span(start, end))
        return self._edits.apply(span, extra)

    def _replace_query(self, query: Span) -> None:
        """Replace a query by its stand-in, if the engine binds both to the same columns."""
        self._ends.remove((query.end, query.start))
        outer_block: Block | None = self._blocks.pop(query)
        while outer_block is not None and query.contains(outer_block.span):
            outer_block = outer_block.parent
        if _is_recursive(outer_block):
            return
        self._nesting += 1
        with suppress(ProbeError):  # The query may read a column of an outer query, for example.
            query_sql = f"SELECT * FROM ({self._edits.apply(query)})"
            if outer_block is not None:
                query_sql = add_all_ctes(query_sql, outer_block, self.build)
            columns = self._describe(query_sql)
            stand_in = "SELECT " + ", ".join(
                f"CAST(NULL AS {column.type}) AS {self._dialect.quote_name(column.name)}"
                for column in columns
            )
            if self._describe(stand_in) == columns:
                self._edits.add({query: stand_in}, PATCHES)
        self._nesting -= 1


def _is_recursive(block: Block | None) -> bool:
    while block is not None:
        if block.is_recursive:
            return True
        block = block.parent
    return False


def _find_queries(draft: Draft) -> dict[Span, Block]:
    """Map each query in brackets that calls a model to a block in it; {} for few queries."""
    blocks = {call.block.span: call.block for call in draft.targets if call.block is not None}
    if len(blocks) < _FEW_QUERIES:
        return {}
    queries = find_enclosing_brackets(draft.text, draft.dialect.name, blocks)
    return {query: blocks[block_span] for block_span, query in queries.items()}
