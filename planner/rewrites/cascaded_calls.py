"""`cascaded_calls`: calls that may be approximated ask a small model first.

::

    SELECT predict('m', *, approximate := true) FROM t
    SELECT coalesce(small(..), full(..)) FROM t

The engine evaluates what follows in a coalesce, arguments included, only for the rows of which the
small model is not sure (Willump, figure 3). What is ordered by a number or a probability may have a
top-K filter (`top_k_filters.py`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.choice.settings import may_approximate
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall


def cascaded_calls(draft: Draft) -> Draft:
    """The statement with the small models before its calls, or why a call that asks for one has
    none."""
    cascades: dict[ModelCall, Cascade] = {}
    filters: dict[ModelCall, TopKFilter] = {}
    exact: dict[ModelCall, str] = {}
    for call, target in draft.targets.items():
        model = target.model
        if call in draft.named:
            continue
        if not may_approximate({**model.options, **draft.context.settings}, call.approximate):
            continue
        if not draft.dialect.lazy_calls:
            exact[call] = "this engine evaluates both models for every row"
            continue
        small = draft.context.small_models(model)
        cascade, filtering = small.get("cascade"), small.get("top_k")
        if target.output == "label" and model.program.labels:
            if isinstance(cascade, Cascade):
                cascades[call] = cascade
            else:
                exact[call] = f"version {model.version} has no cascade: ALTER MODEL .. ADD CASCADE"
        elif not isinstance(filtering, TopKFilter):
            exact[call] = (
                f"version {model.version} has no top-K filter for its order: ALTER MODEL .. ADD "
                "TOP_K FILTER"
            )
        elif not _is_of(filtering, target):
            exact[call] = "the top-K filter is for the order by another class or output"
        else:
            filters[call] = filtering
    if not (cascades or filters or exact):
        return draft
    return replace(draft, cascades=cascades, filters=filters, exact=exact)


def _is_of(filtering: TopKFilter, target: Target) -> bool:
    """Whether a filter is for the order that a call makes."""
    facts, program = filtering.facts, target.model.program
    if target.output == facts.output:
        return facts.output == "label" or target.column == facts.column
    if target.output != "score" or facts.output != "proba" or len(program.labels) != 1:
        return False  # of two classes the score rises with the second one's probability
    return len(program.labels[0]) == 2 and program.output_type("score").width == 1 == facts.column
