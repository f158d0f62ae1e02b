"""`rewritten`: a statement by all rules, some of which are taken back where the engine disagrees.

A column that FROM makes may change what a name means: then the binder finds other columns, or none.
And views are opened where a cascade or a top-K filter saves more so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlml.errors import SqlmlError
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.models_in_from import models_in_from
from sqlml.planner.rewrites.opened_views import opened_views
from sqlml.planner.rewrites.order import Rule, run
from sqlml.planner.rewrites.rows_by_model import rows_by_model
from sqlml.planner.rewrites.rows_in_from import rows_in_from

TENTATIVE: tuple[tuple[Rule, Callable[[Draft], bool]], ...] = (
    (rows_in_from, lambda draft: draft.filters_first),
    (rows_by_model, lambda draft: not draft.named.keys().isdisjoint(draft.models_from)),
    (models_in_from, lambda draft: bool(draft.models_from)),
)
"""Rules whose work the engine's binder must confirm, and whether they did some.

They are given up in this order.
"""


def rewritten(draft: Draft, without: Collection[str] = ()) -> Draft:
    """The statement by all rules but those in `without`, and those that the binder gainsays."""
    made = _confirmed(draft, without)
    if not (made.cascades or made.filters):
        return made
    opened = opened_views(draft)
    if opened is draft:
        return made
    try:
        other = _confirmed(opened, without)
        return other if _saved(other) > _saved(made) and _binds_alike(made, other) else made
    except (SqlmlError, ProbeError):
        return made


def _saved(draft: Draft) -> int:
    """How many sources and tables few rows need."""
    return sum(len(p.idle) + (p.filtered is not None) for p in draft.planned.values())


def _binds_alike(one: Draft, other: Draft) -> bool:
    prefixes = [{} if d.outline.prefix is None else {d.outline.prefix: ""} for d in (one, other)]
    first, second = (one.probed(edits=prefixes[0]), other.probed(edits=prefixes[1]))
    return one.context.describe(first) == one.context.describe(second)


def _confirmed(draft: Draft, without: Collection[str]) -> Draft:
    """The statement by the rules, without those that the binder gainsays."""
    made = run(draft, without=without)
    for rule, has_changed in TENTATIVE:
        if not made.in_from or _binds_as_written(made):
            break
        without = (*without, rule.__name__)
        if has_changed(made):
            made = run(draft, without=without)
    return made


def _binds_as_written(draft: Draft) -> bool:
    """Whether the engine binds the statement with columns in FROM, to columns as without them."""
    prefix = {} if draft.outline.prefix is None else {draft.outline.prefix: ""}
    before = draft.probed(draft.names, prefix)
    after = draft.probed_with_columns(prefix)
    try:
        return draft.context.describe(before) == draft.context.describe(after)
    except ProbeError:
        return False
