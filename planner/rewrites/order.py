"""The rules by which a statement is rewritten, in their order, as one visible tuple.

A rule is a file with a function `Draft -> Draft`, and a golden file of titled statements (but for
`called_models`, which only finds out what the statement says). `planned_calls` is the step that
makes SQL of the calls as the rules before it left them; what follows changes that. The only rewrite
that is not a rule, `literal_arguments`, sees one call, and is a stage of `call/plan_call.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlml.errors import ConfigError, SqlmlError
from sqlml.planner.rewrites.cascaded_calls import called_models, cascaded_calls
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.gated_sources import gated_sources
from sqlml.planner.rewrites.models_in_from import models_in_from, rows_in_from, shared_calls
from sqlml.planner.rewrites.planned_calls import planned_calls
from sqlml.planner.rewrites.probability_comparisons import probability_comparisons
from sqlml.planner.rewrites.rows_by_model import rows_by_model
from sqlml.planner.rewrites.table_form import table_form
from sqlml.planner.rewrites.top_k_filters import top_k_filters
from sqlml.planner.rewrites.unneeded_joins import unneeded_joins
from sqlml.planner.rewrites.volatile_calls import volatile_calls

Rule = Callable[[Draft], Draft]

RULES: tuple[Rule, ...] = (
    table_form,
    called_models,
    cascaded_calls,
    probability_comparisons,
    shared_calls,
    volatile_calls,
    models_in_from,
    rows_in_from,
    rows_by_model,
    planned_calls,
    gated_sources,
    top_k_filters,
    unneeded_joins,
)


def run(draft: Draft, upto: str | None = None, without: Collection[str] = ()) -> Draft:
    """Apply the rules in order; stop after the one named `upto`, and leave some out.

    Raises:
        ConfigError: no rule is called `upto`, or a name in `without`.
        SqlmlError: as the rules say, with the place in the user's own text.
    """
    names = [rule.__name__ for rule in RULES]
    for name in (*([] if upto is None else [upto]), *without):
        if name not in names:
            raise ConfigError(f"unknown rule {name!r}; rules: {', '.join(names)}")
    for rule in RULES:
        if rule.__name__ not in without:
            draft = _applied(rule, draft)
        if rule.__name__ == upto:
            break
    return draft


def _applied(rule: Rule, draft: Draft) -> Draft:
    """What a rule makes of a statement; errors point at the user's own text."""
    try:
        return rule(draft)
    except SqlmlError as error:
        if draft.written_out is None:
            raise
        raise draft.written_out.located(error) from None
