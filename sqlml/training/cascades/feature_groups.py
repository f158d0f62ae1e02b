"""Groups of features that are computed independently (Willump, 4.1.1), and their costs in a
query."""

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
"""Columns of the last estimator's matrix -> nanoseconds per row to compute them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Features that are computed together.

    places: their columns in the last estimator's matrix. inputs: the model's features that they
    depend on. sources: what the query computes for them alone. inside: the model has steps of their
    own. cost: nanoseconds per row, in the query and in the model. importance: the loss of the
    model's score without them.
    """

    name: str
    places: tuple[int, ...]
    inputs: frozenset[str]
    sources: frozenset[str]
    inside: bool
    cost: float
    importance: float = 0.0

    def facts(self, chosen: bool) -> FeatureGroup:
        """Return the facts that the catalog stores."""
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

    of: a feature of the model -> the names of the sources that it needs. costs: name -> nanoseconds
    per row.
    """

    of: Mapping[str, frozenset[str]]
    costs: Mapping[str, float]

    def behind(self, features: Iterable[str]) -> frozenset[str]:
        """Return the sources that some features need."""
        return frozenset(s for f in features for s in self.of.get(f, ()))

    def cost(self, sources: Iterable[str]) -> float:
        """Return the nanoseconds per row of some sources together."""
        return sum(self.costs[s] for s in sources)


NO_SOURCES = Sources(MappingProxyType({}), MappingProxyType({}))
"""The sources of a query that only reads tables."""


@dataclass(slots=True)
class _BlockSet:
    """Blocks of columns that need the same expensive steps and sources."""

    blocks: list[Block]
    heavy: frozenset[int]
    sources: frozenset[str]

    @property
    def places(self) -> list[int]:
        return [place for block in self.blocks for place in block.places]


def feature_groups(
    program: Program, last: LastEstimator, sources: Sources, cost: Cost
) -> tuple[Group, ...]:
    """Return the groups, the cheapest first.

    Two features share a group if their common work costs more than the remaining work of one of
    them.
    """
    block_sets = _split_blocks(program, last, sources)
    costs_inside = [cost(p.places) if p.heavy else 0.0 for p in block_sets]
    roots = list(range(len(block_sets)))
    for i, first in enumerate(block_sets):
        for j, second in enumerate(block_sets[:i]):
            shared = sources.cost(first.sources & second.sources)
            if first.heavy & second.heavy:
                shared += costs_inside[i] + costs_inside[j] - cost([*first.places, *second.places])
            remaining = [
                costs_inside[k] + sources.cost(part.sources) - shared
                for k, part in ((i, first), (j, second))
            ]
            if shared > 0 and shared > min(remaining):
                _unite(roots, i, j)
    members_of: dict[int, list[int]] = {}
    for i in range(len(block_sets)):
        members_of.setdefault(_find_root(roots, i), []).append(i)
    groups = []
    for members in members_of.values():
        blocks = [block for i in members for block in block_sets[i].blocks]
        places = sorted(place for block in blocks for place in block.places)
        needed = frozenset[str]().union(*(block_sets[i].sources for i in members))
        inputs = frozenset[str]().union(*(block.inputs for block in blocks))
        steps = frozenset[int]().union(*(block_sets[i].heavy for i in members))
        total_cost = sources.cost(needed) + (cost(places) if steps else 0.0)
        name = _describe_group(program, last, places, steps, needed, inputs)
        groups.append(Group(name, tuple(places), inputs, needed, bool(steps), total_cost))
    return tuple(sorted(groups, key=lambda group: group.cost))


def _split_blocks(program: Program, last: LastEstimator, sources: Sources) -> list[_BlockSet]:
    """Collect the blocks that need the same expensive steps and sources."""
    block_sets: dict[tuple[frozenset[int], frozenset[str]], _BlockSet] = {}
    for block in last.blocks:
        heavy = frozenset(i for i in block.nodes if OPS[program.nodes[i].op].group in MIXING)
        needed = sources.behind(block.inputs)
        block_sets.setdefault((heavy, needed), _BlockSet([], heavy, needed)).blocks.append(block)
    return list(block_sets.values())


def _find_root(leads: list[int], i: int) -> int:
    while leads[i] != i:
        i = leads[i]
    return i


def _unite(leads: list[int], i: int, j: int) -> None:
    first, second = sorted((_find_root(leads, i), _find_root(leads, j)))
    leads[second] = first


def _describe_group(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    heavy: frozenset[int],
    sources: frozenset[str],
    inputs: frozenset[str],
) -> str:
    """Return the name of a group in EXPLAIN: the sources and steps that compute it, or its
    columns."""
    steps = [_describe_step(program, i) for i in sorted(heavy)]
    step_names = list(dict.fromkeys(step for step in steps if step))
    makers = [*sorted(sources), *step_names]
    if makers:
        return ", ".join(makers)
    columns = _column_names(program, last, places) if heavy else sorted(inputs)
    return ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if columns[8:] else "")


def _describe_step(program: Program, i: int) -> str:
    """Return a vectorizer and its column, or "" for another step."""
    node = program.nodes[i]
    if node.op not in ("count_tokens", "hash_tokens"):
        return ""
    kind = {"word": "words", "char": "characters", "char_wb": "characters"}[node.attrs["analyzer"]]
    return f"{kind} of {', '.join(node.attrs['features'])}"


def _column_names(program: Program, last: LastEstimator, places: Sequence[int]) -> list[str]:
    """Return the names of the last estimator's columns, or their positions if it has none."""
    node = program.nodes[last.values[0]]
    names = node.attrs.get("features", ())
    if len(last.values) == 1 and len(names) == node.type.width:
        return [str(names[place]) for place in places]
    return [f"column {place}" for place in places]


ENOUGH = 1.0
"""Seconds after which no further round of measurements starts."""

Needs = Mapping[str, frozenset[FeatureSource]]
"""A feature of the model -> what the query computes for it."""


def measure_source_costs(
    query: str, needs: Needs, run: Callable[[str], object], rows: int
) -> tuple[Sources, float]:
    """Measure the cost of each source, and of the rest of the query, in nanoseconds per row.

    The cost of a source is the time that the query saves if the joined table is empty, or the
    function is called for no row; all calls of a function with the same arguments are one source.
    Queries run several times in turn, so that other load on the machine is not mistaken for a cost.

    Args:
        run: runs a query and fetches its rows.
        rows: the number of its rows.
    """
    sources = frozenset[FeatureSource]().union(*needs.values())
    if not sources:
        return Sources({}, {}), 0.0
    names = {s.name: frozenset(t for t in sources if t.name == s.name) for s in sources}
    idle = [frozenset[FeatureSource](), sources, *names.values()]
    seconds = dict.fromkeys(idle, float("inf"))
    start = time.perf_counter()
    for _ in range(ROUNDS):
        for disabled in seconds:
            seconds[disabled] = min(seconds[disabled], _time_query(query, disabled, run))
        if time.perf_counter() - start > ENOUGH:
            break
    total = seconds[frozenset()]
    costs = {
        name: max(total - seconds[disabled], 0.0) / rows * 1e9 for name, disabled in names.items()
    }
    rest = seconds[sources] / rows * 1e9
    of = {feature: frozenset(s.name for s in needed) for feature, needed in needs.items()}
    return Sources(of, costs), rest


def disable_sources(query: str, idle: Collection[FeatureSource]) -> str:
    """Return a query in which some sources are disabled."""
    patches = {source.span: source.idle_sql(query) for source in idle}
    return splice(query, {}, patches, Span(0, len(query)))


def _time_query(query: str, idle: Collection[FeatureSource], run: Callable[[str], object]) -> float:
    """Return the seconds of a query with some sources disabled."""
    patched = disable_sources(query, idle)
    start = time.perf_counter()
    run(patched)
    return time.perf_counter() - start
