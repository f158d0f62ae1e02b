"""`told`: what is known of small models, in words."""

from __future__ import annotations

from collections.abc import Mapping

from sqlml.catalog.small_models import (
    KINDS,
    CascadeFacts,
    FeatureGroup,
    FilterFacts,
    SmallModel,
)


def told(small_models: Mapping[str, SmallModel]) -> list[tuple[str, str]]:
    """What the small models before a version are, do and save, as properties of it."""
    return [
        (f"{KINDS[kind][2].lower()}: {name}", text)
        for kind, small in small_models.items()
        for name, text in of_facts(small.facts)
    ]


def of_facts(facts: CascadeFacts | FilterFacts) -> list[tuple[str, str]]:
    """What one small model is, does and saves."""
    measured = _cascade(facts) if isinstance(facts, CascadeFacts) else _filter(facts)
    return [
        ("small model reads", _names(facts.groups, True)),
        ("only the full model reads", _names(facts.groups, False)),
        *((("unique keys", "; ".join(facts.unique_keys)),) if facts.unique_keys else ()),
        *measured,
        (
            "expected",
            f"{facts.gain:.2f} times as fast: {facts.expected_ns:,.0f} ns a row in place of "
            f"{facts.exact_ns:,.0f}",
        ),
        *((f"group {n}", of_group(group)) for n, group in enumerate(facts.groups, 1)),
    ]


def of_group(group: FeatureGroup) -> str:
    """A group with its cost and importance."""
    reads = "; the small model reads it" if group.chosen else ""
    return f"{group.name}: {group.cost:,.0f} ns a row, importance {group.importance:.4f}{reads}"


def _names(groups: tuple[FeatureGroup, ...], chosen: bool) -> str:
    return "; ".join(group.name for group in groups if group.chosen == chosen)


def _cascade(facts: CascadeFacts) -> list[tuple[str, str]]:
    return [
        (
            "guarantee",
            f"accuracy falls by at most {facts.accuracy_loss:g} on rows like those of "
            f"column {facts.label} (97.5% sure)",
        ),
        (
            "measured",
            f"accuracy {facts.accuracy - facts.loss:.4f} instead of {facts.accuracy:.4f} on "
            f"{facts.held_out:,} rows held out; at most {facts.most_loss:.4f} is lost",
        ),
        ("confident", f"{facts.confident:.1%} of the rows, surer than {facts.threshold:.4f}"),
    ]


def _filter(facts: FilterFacts) -> list[tuple[str, str]]:
    return [
        (
            "guarantee",
            f"of the best {facts.k} rows at least {facts.precision:.0%} are right in 95% of "
            "queries (97.5% sure)",
        ),
        (
            "measured",
            f"{facts.trials - facts.failures} of {facts.trials} queries over {facts.rows:,} rows: "
            f"{facts.low:.1%} to {facts.high:.1%}",
        ),
        ("ratio", f"the full model ranks the best {facts.ratio:.2f} * {facts.k} rows"),
    ]
