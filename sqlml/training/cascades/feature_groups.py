"""Groups of features that are computed independently (Willump, 4.1.1), and their costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sqlml.catalog.small_models import FeatureGroup
from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.parsing.places import Span
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.outline import splice
from sqlml.training.cascades.last_estimator import MIXING, ROUNDS, Block, LastEstimator

Cost = Callable[[Sequence[int]], float]
"""A function from columns of the last estimator's matrix to their cost in nanoseconds per row."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of features that are computed together.

    columns: the group's columns in the last estimator's matrix. inputs: the model features on which
    the columns depend. sources: parts of the query that compute only these features. inside:
    whether the model has steps for this group alone. cost: nanoseconds per row in the query and the
    model. importance: the loss if the group's values are shuffled among the rows.
    """

    name: str
    columns: tuple[int, ...]
    inputs: frozenset[str]
    sources: frozenset[str]
    inside: bool
    cost: float
    importance: float = 0.0

    def to_feature_group(self, chosen: bool) -> FeatureGroup:
        return FeatureGroup(
            name=self.name,
            features=tuple(sorted(self.inputs)),
            inside=self.inside,
            cost=self.cost,
            importance=self.importance,
            chosen=chosen,
        )


@dataclass(frozen=True, slots=True)
class Sources:
    """Expensive parts of a query: joined tables, and functions of columns.

    sources_of: maps a feature of the model to the names of the sources that it needs. costs: maps
    the name of a source to nanoseconds per row.
    """

    sources_of: Mapping[str, frozenset[str]]
    costs: Mapping[str, float]

    def find_needed(self, features: Iterable[str]) -> frozenset[str]:
        return frozenset(source for f in features for source in self.sources_of.get(f, ()))

    def cost(self, sources: Iterable[str]) -> float:
        return sum(self.costs[source] for source in sources)


NO_SOURCES = Sources(MappingProxyType({}), MappingProxyType({}))


@dataclass(slots=True)
class _BlockSet:
    """Blocks of columns that need the same expensive steps and sources."""

    blocks: list[Block]
    steps: frozenset[int]
    sources: frozenset[str]

    @property
    def columns(self) -> list[int]:
        return [index for block in self.blocks for index in block.columns]


def find_feature_groups(
    last_estimator: LastEstimator, sources: Sources, measure_cost: Cost
) -> tuple[Group, ...]:
    """Return the groups of features that are computed together, the cheapest group first.

    Two features share a group if the work that both need costs more than the remaining work for
    one of the features. `measure_cost` measures columns of the last estimator's matrix.
    """
    block_sets = _collect_block_sets(last_estimator, sources)
    inner_costs = [measure_cost(p.columns) if p.steps else 0.0 for p in block_sets]
    # The leader of a block set is the first block set of the same group.
    leaders = list(range(len(block_sets)))
    for i, block_set in enumerate(block_sets):
        for j, other_set in enumerate(block_sets[:i]):
            shared_cost = sources.cost(block_set.sources & other_set.sources)
            if block_set.steps & other_set.steps:
                joint_cost = measure_cost([*block_set.columns, *other_set.columns])
                shared_cost += inner_costs[i] + inner_costs[j] - joint_cost
            costs = [inner_costs[k] + sources.cost(block_sets[k].sources) for k in (i, j)]
            if shared_cost > 0 and shared_cost > min(costs) - shared_cost:
                leader, follower = sorted((leaders[i], leaders[j]))
                leaders = [leader if other == follower else other for other in leaders]
    groups = []
    for leader in dict.fromkeys(leaders):
        members = [block_sets[i] for i, other in enumerate(leaders) if other == leader]
        blocks = [block for member in members for block in member.blocks]
        column_indices = sorted(index for block in blocks for index in block.columns)
        needed = frozenset[str]().union(*(member.sources for member in members))
        inputs = frozenset[str]().union(*(block.inputs for block in blocks))
        steps = frozenset[int]().union(*(member.steps for member in members))
        total_cost = sources.cost(needed) + (measure_cost(column_indices) if steps else 0.0)
        name = _describe_group(last_estimator, column_indices, steps, needed, inputs)
        groups.append(Group(name, tuple(column_indices), inputs, needed, bool(steps), total_cost))
    return tuple(sorted(groups, key=lambda group: group.cost))


def _collect_block_sets(last_estimator: LastEstimator, sources: Sources) -> list[_BlockSet]:
    block_sets: dict[tuple[frozenset[int], frozenset[str]], _BlockSet] = {}
    for block in last_estimator.blocks:
        steps = frozenset(
            i for i in block.nodes if OPS[last_estimator.program.nodes[i].op].group in MIXING
        )
        needed_sources = sources.find_needed(block.inputs)
        empty_set = _BlockSet([], steps, needed_sources)
        block_sets.setdefault((steps, needed_sources), empty_set).blocks.append(block)
    return list(block_sets.values())


def _describe_group(
    last_estimator: LastEstimator,
    column_indices: Sequence[int],
    steps: frozenset[int],
    sources: frozenset[str],
    inputs: frozenset[str],
) -> str:
    descriptions = [_describe_step(last_estimator.program, i) for i in sorted(steps)]
    producers = [*sorted(sources), *dict.fromkeys(step for step in descriptions if step)]
    if producers:
        return ", ".join(producers)
    names = _name_columns(last_estimator, column_indices) if steps else sorted(inputs)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if names[8:] else "")


def _describe_step(program: Program, i: int) -> str:
    node = program.nodes[i]
    if node.op not in ("count_tokens", "hash_tokens"):
        return ""
    token_kind = "words" if node.attrs["analyzer"] == "word" else "characters"
    return f"{token_kind} of {', '.join(node.attrs['features'])}"


def _name_columns(last_estimator: LastEstimator, column_indices: Sequence[int]) -> list[str]:
    node = last_estimator.program.nodes[last_estimator.values[0]]
    names = node.attrs.get("features", ())
    if len(last_estimator.values) == 1 and len(names) == node.type.width:
        return [str(names[index]) for index in column_indices]
    return [f"column {index}" for index in column_indices]


Needs = Mapping[str, frozenset[FeatureSource]]
"""Maps a feature of the model to the sources in the query that compute it."""


def measure_source_costs(
    query: str, needs: Needs, run: Callable[[str], object], row_count: int
) -> tuple[Sources, float]:
    """Measure the cost of each source, and of the rest of the query, in nanoseconds per row.

    The cost of a source is the time that the query saves if the joined table is empty, or if the
    function is never called. All queries run several times in turn, so that other load on the
    machine is not mistaken for a cost.
    """
    sources = frozenset[FeatureSource]().union(*needs.values())
    if not sources:
        return Sources({}, {}), 0.0
    sources_by_name = {s.name: frozenset(t for t in sources if t.name == s.name) for s in sources}
    disabled_sets = [frozenset[FeatureSource](), sources, *sources_by_name.values()]
    seconds = dict.fromkeys(disabled_sets, float("inf"))
    start = time.perf_counter()
    for _ in range(ROUNDS):
        for disabled in seconds:
            patched_query = disable_sources(query, disabled)
            query_start = time.perf_counter()
            run(patched_query)
            seconds[disabled] = min(seconds[disabled], time.perf_counter() - query_start)
        if time.perf_counter() - start > 1:
            break

    def to_ns(duration: float) -> float:
        return max(duration, 0.0) / row_count * 1e9

    all_seconds = seconds[frozenset()]
    costs = {name: to_ns(all_seconds - seconds[named]) for name, named in sources_by_name.items()}
    sources_of = {feature: frozenset(s.name for s in needed) for feature, needed in needs.items()}
    return Sources(sources_of, costs), to_ns(seconds[sources])


def disable_sources(query: str, idle: Collection[FeatureSource]) -> str:
    patches = {source.span: source.build_idle_sql(query) for source in idle}
    return splice(query, {}, patches, Span(0, len(query)))
