"""`Cascade`: a small model that stands before a version of a model, as the catalog keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlml.errors import ArtifactError
from sqlml.ir.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGroup:
    """Features that are computed together.

    cost: nanoseconds a row. importance: what the model's accuracy loses where the group is shuffled
    among rows. chosen: the small model reads it.
    """

    name: str
    features: tuple[str, ...]
    cost: float
    importance: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeFacts:
    """What was measured when a cascade was learned.

    Attributes:
        query: what gave the rows to learn from.
        label: its column of the true labels.
        accuracy_loss: what the accuracy may fall by.
        threshold: the small model answers where it is surer than that.
        confident: the share of rows of which it is.
        accuracy: of the full model on the rows held out.
        loss: by how much it fell there; most_loss: at most, with a certainty of 97.5%.
        trained, held_out: numbers of rows.
        exact_ns, expected_ns: nanoseconds a row of a query without it, and with it.
        groups: of the model's features.
    """

    query: str
    label: str
    accuracy_loss: float
    threshold: float
    confident: float
    accuracy: float
    loss: float
    most_loss: float
    trained: int
    held_out: int
    exact_ns: float
    expected_ns: float
    groups: tuple[FeatureGroup, ...]

    @property
    def gain(self) -> float:
        """How many times as fast a query is expected to be."""
        return self.exact_ns / self.expected_ns


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """A small model, whose `label` is -1 where the full one is to answer."""

    small: Program
    facts: CascadeFacts

    def fits(self, program: Program) -> bool:
        """Whether the small model can stand before a Program: it reads some of the same features,
        and has the same labels."""
        small, known = self.small, program
        reads = all(
            name in known.inputs and small.input_type(name) == known.input_type(name)
            for name in small.inputs
        )
        return reads and "label" in small.outputs and small.labels == known.labels


def dumps(facts: CascadeFacts) -> str:
    """As the catalog keeps it."""
    return json.dumps(asdict(facts), sort_keys=True)


def loads(text: Any, name: str) -> CascadeFacts:
    """What `dumps` wrote for the model called `name`.

    Raises:
        ArtifactError: it is damaged, or somebody else wrote it.
    """
    try:
        told = json.loads(text)
        groups = tuple(_checked(FeatureGroup, group) for group in told.pop("groups"))
        facts: CascadeFacts = _checked(CascadeFacts, {**told, "groups": groups})
        return facts
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"the cascade of model {name!r} is damaged ({error}); ALTER MODEL .. DROP CASCADE "
            "removes it"
        ) from None


def _checked(kind: Any, told: Mapping[str, Any]) -> Any:
    """A value of a dataclass of ours whose fields are all there, of their types."""
    made: dict[str, Any] = {}
    for field in fields(kind):
        value = told[field.name]
        wanted = _TYPES[str(field.type)]
        if isinstance(value, list):
            value = tuple(value)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise TypeError(f"{field.name} cannot be {value!r}")
        if field.name == "features" and not all(isinstance(item, str) for item in told["features"]):
            raise TypeError(f"{field.name} cannot be {value!r}")
        made[field.name] = value
    return kind(**made)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "tuple[str, ...]": (tuple,),
    "tuple[FeatureGroup, ...]": (tuple,),
}
