"""Rules that let calls share evaluations, and let FROM compute columns that several calls read.

`shared_calls`: calls of one model on the same row share one function, which computes all their
outputs. The engine evaluates equal calls of one projection once. WHERE and ON are evaluated earlier
by another operator. For these clauses, the function remembers the rows that it scored last, unless
`models_in_from` lets FROM call it. Calls that the engine compares must be written alike. A query
that groups may write the same row in several ways, as in `SELECT predict('m', t.*) FROM t GROUP BY
predict('m', a, b)`, so all calls of one model in its output share one function.

`models_in_from`: the engine would evaluate a call in WHERE and in SELECT twice, and it also repeats
a column of FROM in the filter unless its function is volatile. So, with a volatile f::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(...) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

DuckDB still pushes filters that do not need the column below it. Spark does not, so there `b` goes
into the inner query. The rule applies if FROM is one table, file or subquery and nothing sees its
new column, if the engine's binder finds the same columns as before, and if WHERE asks for each row:
`a IS NULL OR predict('m', *) = 1` keeps rows from a model that might reject them.

`rows_in_from`: FROM packs the numbers of a row, which the call then reads as one column::

    SELECT a, predict('m', *) FROM t
    SELECT a, f(r, r) FROM (SELECT *, array(...) AS r FROM t) AS t

Spark copies each column of the rows that it passes to Python several times, and does not repeat the
expression of a column that is used twice.

`rows_by_model`: rows of many models or partitions are sorted by model before they are scored::

    SELECT id, predict(shop, *) FROM t WHERE a
    SELECT id, f FROM (SELECT * EXCLUDE (n) FROM (SELECT *, f(shop, ...) AS f FROM (
        SELECT *, row_number() OVER () AS n FROM t WHERE a ORDER BY shop) AS t) ORDER BY n) AS t

The engine passes 2,048 rows at a time, and each model among them is called separately, which is
slow if the model has left the processor's caches. 200,000 rows for 60 models of 100 trees take
0.07 s instead of 0.18 s; for 60 models of 20 trees, sorting does not pay (0.06 s, not 0.05 s).
Rows that already lie together in a table or in files are not sorted. If the query only computes
aggregates that need no order, as in `SELECT shop, avg(predict(shop, *)) FROM t GROUP BY shop`, the
rows keep the order of the models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlml.dialects.duckdb import builtin
from sqlml.ir.partition_programs import count_partitions, find_partition_columns
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.program.prepare_program import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.widened_from import find_row_source, find_source
from sqlml.planner.syntax.outline import ModelCall, Outline, WidenableSource

MAX_UNSORTED_MODELS, MAX_UNSORTED_BYTES = 256, 4 << 20
"""Rows are sorted by model if their models exceed this number or this total size in bytes."""

_EARLY_CLAUSES = frozenset({"WHERE", "FROM"})
"""Clauses that filter rows before other clauses see them."""


def shared_calls(draft: Draft) -> Draft:
    """Determine the outputs that each function computes for all calls that share the function."""
    unshared = draft.targets.keys() - draft.shareable_calls.keys()
    shared = {call: SharedParts(parts=(draft.targets[call].part,)) for call in unshared}
    for calls in group_sharing_calls(draft):
        parts = tuple(sorted({draft.targets[call].part for call in calls}, key=str))
        again = len({call.clause in _EARLY_CLAUSES for call in calls}) > 1
        shared |= dict.fromkeys(calls, SharedParts(parts=parts, calls=len(calls), again=again))
    return replace(draft, shared=shared)


def group_sharing_calls(draft: Draft) -> list[list[ModelCall]]:
    targets = draft.shareable_calls
    return _group_by_key((make_sharing_key(c, t, draft.outline), c) for c, t in targets.items())


def group_comparable_calls(draft: Draft) -> list[list[ModelCall]]:
    """Group the calls that the engine may compare. The calls of a group must be written alike.

    The engine does not compare WHERE, ON and other parts of FROM with other expressions, so each
    call there is a group.
    """
    return _group_by_key((_make_comparable_key(draft, call), call) for call in draft.targets)


def make_sharing_key(call: ModelCall, target: Target, outline: Outline) -> Any:
    """Return a key that is equal for calls that share one function. A lone call is its own key.

    Calls share a function if they call one model version with the same written arguments in one
    query. In the output of a query that groups, all calls of a version share a function.
    """
    model, block = target.model, call.block
    if len(model.program.labels) > 1:
        return call  # Several targets are returned as separate lists.
    version = model.database, model.name, model.version, model.program.hash, target.variant
    if block is not None and block.output in outline.comparing_outputs:
        return block.output, version
    if call.uses_select_names:
        return call  # Names in its arguments may mean other columns.
    return None if block is None else block.span, version, call.written_arguments


def _make_comparable_key(draft: Draft, call: ModelCall) -> Any:
    if call.output is None:
        return call
    models = frozenset(target.model.program.hash for target in draft.list_targets(call))
    is_comparing = call.output in draft.outline.comparing_outputs
    models_key = models, draft.targets[call].variant
    return call.output, models_key, None if is_comparing else call.written_arguments


def _group_by_key(keyed_calls: Iterable[tuple[Any, ModelCall]]) -> list[list[ModelCall]]:
    groups: dict[Any, list[ModelCall]] = {}
    for key, call in keyed_calls:
        groups.setdefault(key, []).append(call)
    return list(groups.values())


def models_in_from(draft: Draft) -> Draft:
    """Let FROM compute results that a call in WHERE shares with calls in other clauses."""
    shared: dict[ModelCall, SharedParts] = {}
    sources: dict[ModelCall, WidenableSource] = {}
    for calls in group_sharing_calls(draft):
        shared_parts = draft.find_shared(calls[0])
        filters_rows = any(call.clause == "WHERE" and call.is_always_evaluated for call in calls)
        if not shared_parts.again or not filters_rows or not _have_same_row(calls):
            continue
        source = find_source(calls[0], draft.outline)
        if source is not None:
            shared_parts = replace(shared_parts, again=False, once=True, in_from=True)
            shared |= dict.fromkeys(calls, shared_parts)
            sources |= dict.fromkeys(calls, source)
    if not sources:
        return draft
    return replace(draft, shared={**draft.shared, **shared}, model_source_of=sources)


def _have_same_row(calls: Sequence[ModelCall]) -> bool:
    """Return whether all calls score the same row, so that one column can replace the calls."""
    rows = {(call.block and call.block.span, call.written_arguments) for call in calls}
    return len(rows) == 1 and not any(call.uses_select_names for call in calls)


def rows_in_from(draft: Draft) -> Draft:
    """Let FROM filter and pack rows on engines for which this is faster."""
    if not draft.dialect.copies_rows:
        return draft
    sources: dict[ModelCall, WidenableSource] = {}
    shareable, known_sources = draft.shareable_calls, draft.model_source_of
    for calls in group_comparable_calls(draft):  # Calls of one group must be written alike.
        call_sources = {known_sources.get(c) or find_row_source(c, draft.outline) for c in calls}
        source = call_sources.pop()
        if source is not None and not call_sources and all(call in shareable for call in calls):
            sources |= dict.fromkeys(calls, source)
    return replace(draft, row_source_of=sources, filters_first=True)


def rows_by_model(draft: Draft) -> Draft:
    """Let FROM sort rows by their models if the rows name many models."""
    if not draft.dialect.lazy_calls:
        return draft
    sources = {
        call: source
        for call, models in draft.models_of_rows.items()
        if (source := _find_sortable_source(draft, call)) is not None
        and _should_sort_rows(draft.context, models)
    }
    shared = {call: replace(draft.find_shared(call), in_from=True) for call in sources}
    for calls in group_sharing_calls(draft):
        source = _find_sortable_source(draft, calls[0])
        can_sort = all(_find_sortable_source(draft, call) is not None for call in calls[1:])
        if source is None or not can_sort or not _are_partitions_mixed(draft, calls[0], source):
            continue
        parts = replace(draft.find_shared(calls[0]), in_from=True, by_partition=True)
        shared |= dict.fromkeys(calls, parts)
        sources |= dict.fromkeys(calls, source)
    if not sources:
        return draft
    model_source_of = {**draft.model_source_of, **sources}
    return replace(draft, shared={**draft.shared, **shared}, model_source_of=model_source_of)


def sorts_rows(draft: Draft) -> bool:
    """Return whether FROM sorts rows by their models or partitions."""
    sorts_partitions = any(shared.by_partition for shared in draft.shared.values())
    return sorts_partitions or bool(draft.models_of_rows.keys() & draft.model_source_of)


def _are_partitions_mixed(draft: Draft, call: ModelCall, source: WidenableSource) -> bool:
    """Return whether the rows of many partitions seem to be mixed in a table or file.

    Its first rows are asked how often the partition changes from one row to the next.
    """
    program, dialect = draft.targets[call].model.program, draft.dialect
    is_small = program.nbytes <= MAX_UNSORTED_BYTES
    if count_partitions(program) <= MAX_UNSORTED_MODELS and is_small:
        return False
    source_sql = draft.text[source.span.start : source.span.end]
    if source_sql.startswith("(") or any(argument.star is None for argument in call.arguments):
        return False
    # With LIMIT, the engine may stop after a few rows, unless it needs all of them for aggregates.
    if source.aggregates is None and _LIMIT.search(draft.text) is not None:
        return False
    key = dialect.row(", ".join(map(dialect.quote_name, find_partition_columns(program))))
    rows = f"(SELECT {key} AS sqlml_key FROM {source_sql} LIMIT {_SAMPLED_ROWS}) AS sqlml_rows"
    previous = f"{builtin('lag')}(sqlml_key) OVER ()"
    pairs = f"(SELECT sqlml_key, {previous} AS sqlml_previous FROM {rows}) AS sqlml_pairs"
    changes = f"{dialect.call('count', '*')} FILTER (sqlml_key IS DISTINCT FROM sqlml_previous)"
    share = dialect.operator("*", changes, str(_ROWS_OF_RUN))
    query = f"SELECT CAST({share} > {dialect.call('count', '*')} AS VARCHAR) FROM {pairs}"
    try:
        draft.context.describe(query)
    except ProbeError:  # The columns are expressions, or the source is a CTE.
        return False
    return list(draft.context.read_names(query)) == ["true"]


_LIMIT = re.compile(r"\b(limit|fetch)\b", re.IGNORECASE)

_SAMPLED_ROWS, _ROWS_OF_RUN = 8192, 8
"""Rows are sorted if, among the first 8,192, fewer than 8 rows of a partition lie together."""


def _should_sort_rows(context: Context, models_of_rows: ModelsOfRows) -> bool:
    sizes = [target.model.program.nbytes for target in models_of_rows.targets.values()]
    if len(sizes) <= MAX_UNSORTED_MODELS and sum(sizes) <= MAX_UNSORTED_BYTES:
        return False
    return not _lie_together(context, models_of_rows)


def _lie_together(context: Context, models_of_rows: ModelsOfRows) -> bool:
    """Return whether the rows of each model are known to follow one another."""
    if models_of_rows.range_query is None:
        return False
    probe, query = models_of_rows.range_query
    try:
        context.describe(probe)
    except ProbeError:  # The rows have no numbers.
        return False
    return context.are_disjoint(query)


def _find_sortable_source(draft: Draft, call: ModelCall) -> WidenableSource | None:
    """Return the FROM clause that can sort exactly the rows that a call scores, or None."""
    if call.clause != "SELECT" or not call.is_always_evaluated or call.in_try or call.block is None:
        return None
    source, where = find_source(call, draft.outline), call.block.where
    if source is None or (where is not None and len(source.filters) < len(call.block.filters)):
        return None
    return source if where is None or call.block.filters else None
