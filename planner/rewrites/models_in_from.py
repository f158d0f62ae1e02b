"""`models_in_from`: a model that WHERE and other clauses ask is evaluated once, in FROM.

The engine evaluates WHERE in one operator and SELECT in another, so that a call in both is made
twice, and a column that is computed in FROM is computed again in the filter, unless its function
is called volatile. So, where f is volatile::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(..) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

Filters that do not need the column still go below it, and into the scan: DuckDB sees to that
itself, and for Spark, which leaves them above a volatile column, `b` goes into the inner query.
This is done where FROM is one table, file or subquery, and where nobody can see that it has another
column now: stars leave it out, and nobody takes whole rows. The engine's binder has the last word:
the rewritten block must bind, with columns of the same names and types. And only where WHERE asks
for each row: `a IS NULL OR predict('m', *) = 1` keeps rows from the model that it might refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlml.planner.program.shared import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.shared_calls import sharing_groups
from sqlml.planner.rewrites.widened_from import Source, source_of
from sqlml.planner.syntax.outline import ModelCall


def models_in_from(draft: Draft) -> Draft:
    """The statement in which FROM may make what calls in WHERE share with others."""
    shared: dict[ModelCall, Shared] = {}
    sources: dict[ModelCall, Source] = {}
    for calls in sharing_groups(draft):
        together = draft.together(calls[0])
        if not together.again or not any(map(_filters, calls)) or not _are_alike(calls):
            continue
        source = source_of(calls[0], draft.outline)
        if source is None:
            continue
        made = replace(together, again=False, once=True, in_from=True)
        shared |= dict.fromkeys(calls, made)
        sources |= dict.fromkeys(calls, source)
    if not sources:
        return draft
    return replace(draft, shared={**draft.shared, **shared}, models_from=sources)


def _are_alike(calls: Sequence[ModelCall]) -> bool:
    """Whether the calls score the same row: one column of FROM can stand for all of them."""
    rows = {(call.block and call.block.span, call.spelled) for call in calls}
    return len(rows) == 1 and not any(call.means_outputs for call in calls)


def _filters(call: ModelCall) -> bool:
    """Whether WHERE asks the call for each row."""
    return call.clause == "WHERE" and call.always_asked
