"""`feature_groups`: the features of a model in groups that are computed independently (Willump,
4.1.1).
"""

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
from sqlml.training.cascades.parts import MIXING, ROUNDS, Block, LastEstimator

Cost = Callable[[Sequence[int]], float]
"""Nanoseconds a row of what computes the columns at some places of the last estimator's matrix."""


@dataclass(frozen=True, slots=True)
class Group:
    """Features that are computed together.

    places: their columns in the last estimator's matrix. inputs: the model's features that they
    depend on. sources: what the query computes for them alone; inside: whether the model has steps
    of their own. cost: nanoseconds a row, of both. importance: what the model's score loses without
    them.
    """

    name: str
    places: tuple[int, ...]
    inputs: frozenset[str]
    sources: frozenset[str]
    inside: bool
    cost: float
    importance: float = 0.0

    def facts(self, chosen: bool) -> FeatureGroup:
        """As the catalog keeps it."""
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
    """What a query computes besides its tables' columns: joined tables, expensive expressions.

    of: a feature of the model -> the names of what brings or makes it. costs: name -> nanoseconds a
    row.
    """

    of: Mapping[str, frozenset[str]]
    costs: Mapping[str, float]

    def behind(self, features: Iterable[str]) -> frozenset[str]:
        """What some features need."""
        return frozenset(s for f in features for s in self.of.get(f, ()))

    def cost(self, sources: Iterable[str]) -> float:
        """Nanoseconds a row of some of them together."""
        return sum(self.costs[s] for s in sources)


NOTHING = Sources(MappingProxyType({}), MappingProxyType({}))
"""Of a query that only reads tables."""


@dataclass(slots=True)
class _Part:
    """Blocks of columns that belong together at least."""

    blocks: list[Block]
    heavy: frozenset[int]
    sources: frozenset[str]

    @property
    def places(self) -> list[int]:
        return [place for block in self.blocks for place in block.places]


def feature_groups(
    program: Program, last: LastEstimator, sources: Sources, cost: Cost
) -> tuple[Group, ...]:
    """The groups, the cheapest first.

    Two features share a group if what both of them need costs more than what one of them needs
    besides.
    """
    parts = _parts(program, last, sources)
    own = [cost(p.places) if p.heavy else 0.0 for p in parts]
    leads = list(range(len(parts)))
    for i, first in enumerate(parts):
        for j, second in enumerate(parts[:i]):
            shared = sources.cost(first.sources & second.sources)
            if first.heavy & second.heavy:
                shared += own[i] + own[j] - cost([*first.places, *second.places])
            alone = [
                own[k] + sources.cost(part.sources) - shared
                for k, part in ((i, first), (j, second))
            ]
            if shared > 0 and shared > min(alone):
                _join(leads, i, j)
    together: dict[int, list[int]] = {}
    for i in range(len(parts)):
        together.setdefault(_leader(leads, i), []).append(i)
    groups = []
    for members in together.values():
        blocks = [block for i in members for block in parts[i].blocks]
        places = sorted(place for block in blocks for place in block.places)
        needed = frozenset[str]().union(*(parts[i].sources for i in members))
        inputs = frozenset[str]().union(*(block.inputs for block in blocks))
        heavy = frozenset[int]().union(*(parts[i].heavy for i in members))
        costs = sources.cost(needed) + (cost(places) if heavy else 0.0)
        name = _name(program, last, places, heavy, needed, inputs)
        groups.append(Group(name, tuple(places), inputs, needed, bool(heavy), costs))
    return tuple(sorted(groups, key=lambda group: group.cost))


def _parts(program: Program, last: LastEstimator, sources: Sources) -> list[_Part]:
    """The blocks, those together that need the same expensive steps and tables."""
    parts: dict[tuple[frozenset[int], frozenset[str]], _Part] = {}
    for block in last.blocks:
        heavy = frozenset(i for i in block.nodes if OPS[program.nodes[i].op].group in MIXING)
        behind = sources.behind(block.inputs)
        parts.setdefault((heavy, behind), _Part([], heavy, behind)).blocks.append(block)
    return list(parts.values())


def _leader(leads: list[int], i: int) -> int:
    while leads[i] != i:
        i = leads[i]
    return i


def _join(leads: list[int], i: int, j: int) -> None:
    first, second = sorted((_leader(leads, i), _leader(leads, j)))
    leads[second] = first


def _name(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    heavy: frozenset[int],
    sources: frozenset[str],
    inputs: frozenset[str],
) -> str:
    """What EXPLAIN calls a group: by what makes it."""
    steps = [_step(program, i) for i in sorted(heavy)]
    named = list(dict.fromkeys(step for step in steps if step))
    said = [*sorted(sources), *named]
    if said:
        return ", ".join(said)
    columns = _columns(program, last, places) if heavy else sorted(inputs)
    return ", ".join(columns[:8]) + (f" and {len(columns) - 8} more" if columns[8:] else "")


def _step(program: Program, i: int) -> str:
    """A vectorizer with its column."""
    node = program.nodes[i]
    if node.op not in ("count_tokens", "hash_tokens"):
        return ""
    kind = {"word": "words", "char": "characters", "char_wb": "characters"}[node.attrs["analyzer"]]
    return f"{kind} of {', '.join(node.attrs['features'])}"


def _columns(program: Program, last: LastEstimator, places: Sequence[int]) -> list[str]:
    """The names of the last estimator's columns, where its check has them."""
    node = program.nodes[last.values[0]]
    names = node.attrs.get("features", ())
    if len(last.values) == 1 and len(names) == node.type.width:
        return [str(names[place]) for place in places]
    return [f"column {place}" for place in places]


# `source_costs`: what the joins and functions of a query cost that only some features need.


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
