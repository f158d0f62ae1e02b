"""`Cascade` and `TopKFilter`: small models before a version, as the catalog keeps them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from sqlml.errors import ArtifactError
from sqlml.ir.program import Program
from sqlml.types import fold


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGroup:
    """Features that are computed together.

    inside: whether the model has steps that make them, such as a vectorizer. cost: nanoseconds a
    row. importance: what the model loses where the group is shuffled among rows: accuracy, or the
    mean square by which its score changes. chosen: the small model reads it.
    """

    name: str
    features: tuple[str, ...]
    inside: bool
    cost: float
    importance: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was measured when a small model was learned.

    Attributes:
        query: what gave the rows to learn from.
        trained, held_out: numbers of rows.
        exact_ns, expected_ns: nanoseconds a row of a query without it, and with it.
        groups: of the model's features.
        unique_keys: columns that are unique in any table which a query joins on them, though the
            engine does not know; those of a key of several with commas between.
    """

    query: str
    trained: int
    held_out: int
    exact_ns: float
    expected_ns: float
    groups: tuple[FeatureGroup, ...]
    unique_keys: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[frozenset[str], ...]:
        """The columns of each of `unique_keys`, folded."""
        return tuple(frozenset(fold(c.strip()) for c in k.split(",")) for k in self.unique_keys)

    @property
    def gain(self) -> float:
        """How many times as fast a query is expected to be."""
        return self.exact_ns / self.expected_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeFacts(Facts):
    """What was measured of a cascade.

    Attributes:
        label: the column of the true labels.
        accuracy_loss: what the accuracy may fall by.
        threshold: the small model answers where it is surer than that.
        confident: the share of rows of which it is.
        accuracy: of the full model on the rows held out.
        loss: by how much it fell there; most_loss: at most, with a certainty of 97.5%.
    """

    label: str
    accuracy_loss: float
    threshold: float
    confident: float
    accuracy: float
    loss: float
    most_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterFacts(Facts):
    """What was measured of a top-K filter.

    Attributes:
        output, column: the score that queries order by: the model's output, and which of its
            columns. chosen: the class of that column as SQL writes it; empty for a number.
        k: the most rows that a query may ask for, its OFFSET included.
        precision: the share of them that shall be among the full model's best k.
        ratio: the full model ranks the small one's best `ratio` * k rows.
        rows: of the tables that were tried.
        trials, failures: queries that were tried, and those that were less precise.
        low, high: the 95% interval of the share of queries that are precise enough.
    """

    output: str
    column: int
    chosen: str
    k: int
    precision: float
    ratio: float
    rows: int
    trials: int
    failures: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """A small classifier, whose `label` is -1 where the full model is to answer."""

    small: Program
    facts: CascadeFacts

    def fits(self, program: Program) -> bool:
        """Whether it can stand before a Program."""
        answers = "label" in self.small.outputs and self.small.labels == program.labels
        return answers and _reads(self.small, program)


@dataclass(frozen=True, slots=True, eq=False)
class TopKFilter:
    """A small model, whose `score` (n, 1) says which rows may be among the best."""

    small: Program
    facts: FilterFacts

    def fits(self, program: Program) -> bool:
        """Whether it can stand before a Program."""
        facts, small = self.facts, self.small
        if facts.output not in program.outputs or "score" not in small.outputs:
            return False
        wide = program.output_type(facts.output).width
        return _reads(small, program) and 0 <= facts.column < wide


SmallModel = Cascade | TopKFilter

KINDS: Mapping[str, tuple[type[Any], type[Any], str]] = MappingProxyType(
    {
        "cascade": (Cascade, CascadeFacts, "CASCADE"),
        "top_k": (TopKFilter, FilterFacts, "TOP_K FILTER"),
    }
)
"""Kind -> its class, that of what is known of it, and its name in statements."""


def with_unique_keys(small: SmallModel, keys: tuple[str, ...]) -> SmallModel:
    """A copy of a small model that knows which keys of joined tables the user calls unique."""
    if isinstance(small, Cascade):
        return replace(small, facts=replace(small.facts, unique_keys=keys))
    return replace(small, facts=replace(small.facts, unique_keys=keys))


def kind_of(small: SmallModel) -> str:
    """The kind of a small model."""
    return next(kind for kind, (made, _, _) in KINDS.items() if isinstance(small, made))


def _reads(small: Program, program: Program) -> bool:
    """Whether a Program reads features of another, as that does."""
    return all(
        name in program.inputs and small.input_type(name) == program.input_type(name)
        for name in small.inputs
    )


def dumps(facts: Facts) -> str:
    """As the catalog keeps it."""
    return json.dumps(asdict(facts), sort_keys=True)


def loads(kind: str, small: Program, text: Any, program: Program, name: str) -> Any:
    """A small model of a kind that stands before `program`, with what `dumps` wrote of it.

    Raises:
        ArtifactError: it is damaged, somebody else wrote it, or it does not fit the Program.
    """
    made, facts, words = KINDS[kind]
    fix = f"ALTER MODEL .. DROP {words} removes it"
    try:
        told = json.loads(text)
        groups = tuple(_checked(FeatureGroup, group) for group in told.pop("groups"))
        found = made(small, _checked(facts, {**told, "groups": groups}))
    except (TypeError, ValueError, KeyError, AttributeError, *_BEYOND) as error:
        raise ArtifactError(
            f"the {words.lower()} of model {name!r} is damaged ({error}); {fix}"
        ) from None
    if not found.fits(program):
        raise ArtifactError(f"the {words.lower()} of model {name!r} does not fit it; {fix}")
    return found


def _checked(kind: Any, told: Mapping[str, Any]) -> Any:
    """A value of a dataclass of ours whose fields are all there, of their types."""
    made: dict[str, Any] = {}
    for field in fields(kind):
        value = told[field.name] if field.default is MISSING else told.get(field.name, ())
        wanted = _TYPES[str(field.type)]
        if isinstance(value, list):
            value = tuple(value)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise TypeError(f"{field.name} cannot be {value!r}")
        if field.type == "float" and isinstance(value, int | float):
            value = float(value)
            if not math.isfinite(value) or (field.name == "expected_ns" and value <= 0):
                raise ValueError(f"{field.name} cannot be {value!r}")
        texts = field.type == "tuple[str, ...]"
        if texts and not all(isinstance(item, str) for item in value):
            raise TypeError(f"{field.name} cannot be {value!r}")
        made[field.name] = value
    return kind(**made)


_BEYOND = (RecursionError, OverflowError)
"""What texts too deep and numbers too large raise."""

_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (float, int),
        "tuple[str, ...]": (tuple,),
        "tuple[FeatureGroup, ...]": (tuple,),
    }
)
"""The type of a field as it is written -> what its value may be."""
