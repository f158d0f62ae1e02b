"""All rules in their order, as one tuple.

A rule is a function `Draft -> Draft` in a file with a golden file of titled statements (except
`called_models`, which changes nothing). `planned_calls` turns calls into SQL as the rules before it
left them; later rules change that SQL. The only rewrite that is not a rule, `literal_arguments`,
concerns one call and is a stage of `call/plan_call.py`.
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


def run(draft: Draft, last_rule: str | None = None, disabled: Collection[str] = ()) -> Draft:
    """Apply the rules in order, without those in `disabled`; stop after the one named `last_rule`.

    Raises:
        ConfigError: there is no rule of a given name.
        SqlmlError: an error of a rule, with its offset in the user's text.
    """
    names = [rule.__name__ for rule in RULES]
    for name in (*([] if last_rule is None else [last_rule]), *disabled):
        if name not in names:
            raise ConfigError(f"unknown rule {name!r}; rules: {', '.join(names)}")
    for rule in RULES:
        if rule.__name__ not in disabled:
            draft = _apply(rule, draft)
        if rule.__name__ == last_rule:
            break
    return draft


def _apply(rule: Rule, draft: Draft) -> Draft:
    """Apply a rule; errors point at the user's text."""
    try:
        return rule(draft)
    except SqlmlError as error:
        if draft.expanded is None:
            raise
        raise draft.expanded.locate_error(error) from None
