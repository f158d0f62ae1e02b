"""`Rows`: how many rows reach a call, as the engine estimates it.

The engine is asked what it would estimate for `SELECT 1 FROM <the call's own FROM>`, with its
WHERE where no model is called there. It costs several times what binding costs, so it is asked
only by EXPLAIN, and where the choice of a way to run depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.probe_queries import ProbeError, Text, row_queries
from sqlml.planner.binding.scope import Scope
from sqlml.planner.choice.cost import ROWS
from sqlml.planner.syntax.outline import Block, ModelCall

AskRows = Callable[[str], int | None]
"""The engine's estimate of the rows of a query, or None. Raises ProbeError."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The queries that have as many rows as reach a call, the likeliest first.

    `queries` writes them, since few are ever asked. `estimate` is the engine's, once it was
    `asked`, or None. `chosen_by` says that the way to run rests on it.
    """

    queries: Callable[[], Iterable[str]] = tuple
    asked: bool = False
    estimate: int | None = None
    chosen_by: bool = False

    @property
    def count(self) -> int:
        """The estimate, or what is assumed without one."""
        return ROWS if self.estimate is None else self.estimate

    @property
    def rounded(self) -> int:
        """The nearest power of ten, so that the choice stays as it is while a table grows a bit.

        >>> [Rows(estimate=n).rounded for n in (1, 3, 4, 250_000, 400_000)]
        [1, 1, 10, 100000, 1000000]
        """
        return int(10 ** round(math.log10(max(1, self.count))))

    def ask(self, ask: AskRows) -> Rows:
        """These rows with the engine's estimate.

        An estimate of 0 means that nothing can match, perhaps because of the NULLs that stand for
        calls and parameters, so it is ignored.
        """
        for query in self.queries():
            try:
                estimate = ask(query)
            except ProbeError:
                continue
            return replace(self, asked=True, estimate=estimate or None)
        return replace(self, asked=True)


def rows_of(call: ModelCall, scope: Scope) -> Rows:
    """What to ask for `call`, in its scope.

    Nothing where a parameter stands in FROM: in a probe that is a NULL, which mostly fits no row.
    """
    parameters = [parameter.span for parameter in scope.outline.parameters]
    if parameters and any(overlaps(place, parameters) for place in _read(scope.block)):
        return Rows()
    where = None if scope.block is None else scope.block.where
    if where is not None and (
        overlaps(where, parameters) or overlaps(where, scope.outline.outer_calls)
    ):
        where = None
    return Rows(partial(_queries, scope.block, scope.probed, where))


def _queries(block: Block | None, text: Text, where: Span | None) -> Iterator[str]:
    if where is not None:  # it may name a select item, and then does not bind here
        yield from row_queries(block, text, text(where))
    yield from row_queries(block, text)


def _read(block: Block | None) -> Iterator[Span]:
    """What a block reads: its FROM, all that is around it, and what their WITH clauses define."""
    while block is not None:
        yield from block.sources
        yield from (cte.span for cte in block.ctes)
        block = block.parent
