"""Groups of features: what is shared, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.training.cascades.feature_groups import NO_SOURCES, Group, Sources, find_feature_groups
from sqlml.training.cascades.last_estimator import LastEstimator, find_last_estimator
from tests.unit.training.cascades.models import fitted


def grouped(name: str, sources: Sources = NO_SOURCES, heavy_ns: float = 100.0) -> tuple[Group, ...]:
    """The groups of a model, of whose steps only the expensive ones cost anything."""
    program: Program = import_model(fitted(name)).program
    last: LastEstimator = find_last_estimator(program)

    def cost(places: Sequence[int]) -> float:
        expected = [b for b in last.blocks if set(b.columns) & set(places)]
        nodes = frozenset[int]().union(*(b.nodes for b in expected))
        ops = [program.nodes[i].op for i in nodes]
        return heavy_ns * sum(op in ("count_tokens", "tree_ensemble", "nearest") for op in ops)

    return find_feature_groups(last, sources, cost)


def test_vectorizers_are_groups_and_the_other_columns_cost_nothing() -> None:
    groups = {group.name: group for group in grouped("texts")}
    assert set(groups) == {"c, x, y, z", "words of t", "characters of t"}
    assert groups["c, x, y, z"].cost == 0
    assert groups["words of t"].cost == groups["characters of t"].cost == 100
    assert groups["words of t"].inputs == {"t"}
    assert len(groups["words of t"].columns) == 16


def test_members_of_a_stack_are_groups() -> None:
    assert [group.cost for group in grouped("stack")] == [100, 100]


def test_columns_that_one_table_brings_share_a_group() -> None:
    joined = frozenset({"join artists"})
    sources = Sources({"x": joined, "z": joined}, {"join artists": 40.0})
    groups = grouped("boosted", sources)
    assert [(g.inputs, g.cost) for g in groups] == [({"y"}, 0), ({"x", "z"}, 40.0)]
    assert groups[1].name == "join artists" and groups[1].sources == joined


@pytest.mark.parametrize(("table_ns", "count"), [(48.0, 1), (0.5, 2)])
def test_features_go_together_if_what_they_share_costs_more_than_one_of_them(
    table_ns: float, count: int
) -> None:
    """As in figure 4: a preprocessing of 48 before two features of 1 each, or a cheap one."""
    shared = frozenset({"read"})
    sources = Sources(
        {"x": shared | {"first"}, "y": shared | {"second"}},
        {"read": table_ns, "first": 1.0, "second": 1.0},
    )
    dear = [group for group in grouped("boosted", sources) if group.cost > 0]
    assert len(dear) == count
    assert [group.cost for group in dear] == ([50.0] if count == 1 else [1.5, 1.5])
