"""`cascaded_calls`: calls that may be approximated ask a small model first.

::

    SELECT predict('m', *, approximate := true) FROM t
    SELECT coalesce(small(..), full(..)) FROM t

The engine evaluates what follows in a coalesce, arguments included, only for the rows of which the
small model is not sure (Willump, figure 3).
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.catalog.cascade import Cascade
from sqlml.planner.choice.settings import may_approximate
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall


def cascaded_calls(draft: Draft) -> Draft:
    """The statement with the cascades of its calls, or why a call that asks for one has none."""
    found: dict[ModelCall, Cascade] = {}
    exact: dict[ModelCall, str] = {}
    for call, target in draft.targets.items():
        model = target.model
        if not may_approximate({**model.options, **draft.context.settings}, call.approximate):
            continue
        if not draft.dialect.lazy_calls:
            exact[call] = "this engine evaluates both models for every row"
        elif target.output != "label":
            exact[call] = "a cascade answers predict(..) alone"
        elif (cascade := draft.context.cascade(model)) is None:
            exact[call] = f"version {model.version} has no cascade: ALTER MODEL .. ADD CASCADE"
        else:
            found[call] = cascade
    return replace(draft, cascades=found, exact=exact) if found or exact else draft
