"""`source_costs`: what the joins and functions of a query cost that only some features need."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from sqlml.cascades.feature_groups import Sources
from sqlml.cascades.timing import ROUNDS
from sqlml.parsing.places import Span
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.splice import splice

ENOUGH = 1.0
"""Seconds after which no further round of measurements starts."""

Needs = Mapping[str, frozenset[FeatureSource]]
"""A feature of the model -> what the query computes for it."""


def source_costs(
    query: str, needs: Needs, run: Callable[[str], object], rows: int
) -> tuple[Sources, float]:
    """What each source costs, and the rest of the query, in nanoseconds a row.

    A source costs what the query takes less where the joined table is empty, or the function is
    called for no row; all calls of a function with the same arguments are one. Short queries run
    several times, in turn, so that what else the machine does is not taken for a cost.

    Args:
        run: runs a query and fetches its rows, `rows` of them.
    """
    sources = frozenset[FeatureSource]().union(*needs.values())
    if not sources:
        return Sources({}, {}), 0.0
    names = {s.name: frozenset(t for t in sources if t.name == s.name) for s in sources}
    idle = [frozenset[FeatureSource](), sources, *names.values()]
    least = dict.fromkeys(idle, float("inf"))
    start = time.perf_counter()
    for _ in range(ROUNDS):
        for some in least:
            least[some] = min(least[some], _seconds(query, some, run))
        if time.perf_counter() - start > ENOUGH:
            break
    whole = least[frozenset()]
    costs = {name: max(whole - least[own], 0.0) / rows * 1e9 for name, own in names.items()}
    rest = least[sources] / rows * 1e9
    of = {feature: frozenset(s.name for s in needed) for feature, needed in needs.items()}
    return Sources(of, costs), rest


def without(query: str, idle: Collection[FeatureSource]) -> str:
    """A query in which some of its sources are idle."""
    patches = {source.span: source.idle(query) for source in idle}
    return splice(query, {}, patches, Span(0, len(query)))


def _seconds(query: str, idle: Collection[FeatureSource], run: Callable[[str], object]) -> float:
    """What a query takes with some of its sources idle."""
    made = without(query, idle)
    start = time.perf_counter()
    run(made)
    return time.perf_counter() - start
