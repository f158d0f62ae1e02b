"""Small models in front of a version, cascades and top-K filters, and their measurements."""

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

    Attributes:
        inside: whether steps of the model compute them, such as a vectorizer.
        cost: nanoseconds per row.
        importance: the loss when the group is shuffled among rows: of accuracy, or the mean square
            of the change in score.
        chosen: whether the small model reads the group.
    """

    name: str
    features: tuple[str, ...]
    inside: bool
    cost: float
    importance: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The measurements of a small model's training.

    Attributes:
        query: the query for the training rows.
        trained, held_out: numbers of rows.
        exact_ns, expected_ns: nanoseconds per row of a query without it, and with it.
        groups: the groups of the model's features.
        unique_keys: columns that are unique in every table that a query joins on them, although the
            engine does not know it; the columns of a composite key are separated by commas.
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
        """Return the folded columns of each of `unique_keys`."""
        return tuple(frozenset(fold(c.strip()) for c in k.split(",")) for k in self.unique_keys)

    @property
    def gain(self) -> float:
        """Return the expected speedup of a query."""
        return self.exact_ns / self.expected_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeFacts(Facts):
    """The measurements of a cascade.

    Attributes:
        label: the column of the true labels.
        accuracy_loss: the allowed loss of accuracy.
        threshold: the small model decides rows for which its confidence is above this.
        confident: the share of such rows.
        accuracy: the full model's accuracy on the held-out rows.
        loss, most_loss: the measured loss of accuracy, and its upper bound at 97.5% confidence.
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
    """The measurements of a top-K filter.

    Attributes:
        output, column: the score that queries order by: an output of the model and its column.
        chosen: the class of that column as SQL; empty for a number.
        k: the most rows that a query may request, including its OFFSET.
        precision: the required share of them among the full model's best k.
        ratio: the full model ranks the small model's best `ratio` * k rows.
        rows: the number of rows in the tables tried.
        trials, failures: the queries tried, and those that were less precise than required.
        low, high: the 95% confidence interval of the share of queries that are precise enough.
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
    """A small classifier, whose `label` is -1 for rows that the full model decides."""

    small: Program
    facts: CascadeFacts

    def fits(self, program: Program) -> bool:
        """Return whether it can run before a Program."""
        has_label = "label" in self.small.outputs and self.small.labels == program.labels
        return has_label and _reads_inputs_of(self.small, program)


@dataclass(frozen=True, slots=True, eq=False)
class TopKFilter:
    """A small model, whose `score` (n, 1) selects the rows that may be among the best."""

    small: Program
    facts: FilterFacts

    def fits(self, program: Program) -> bool:
        """Return whether it can run before a Program."""
        facts, small = self.facts, self.small
        if facts.output not in program.outputs or "score" not in small.outputs:
            return False
        width = program.output_type(facts.output).width
        return _reads_inputs_of(small, program) and 0 <= facts.column < width


SmallModel = Cascade | TopKFilter

KINDS: Mapping[str, tuple[type[Any], type[Any], str]] = MappingProxyType(
    {
        "cascade": (Cascade, CascadeFacts, "CASCADE"),
        "top_k": (TopKFilter, FilterFacts, "TOP_K FILTER"),
    }
)
"""Kind -> its class, the class of its facts, and its name in statements."""


def with_unique_keys(small: SmallModel, keys: tuple[str, ...]) -> SmallModel:
    """Return a copy of a small model with other unique keys of joined tables."""
    if isinstance(small, Cascade):
        return replace(small, facts=replace(small.facts, unique_keys=keys))
    return replace(small, facts=replace(small.facts, unique_keys=keys))


def kind_of(small: SmallModel) -> str:
    return next(kind for kind, (class_, _, _) in KINDS.items() if isinstance(small, class_))


def _reads_inputs_of(small: Program, program: Program) -> bool:
    """Return whether all inputs of `small` are inputs of `program` with the same types."""
    return all(
        name in program.inputs and small.input_type(name) == program.input_type(name)
        for name in small.inputs
    )


def dumps(facts: Facts) -> str:
    """Return the facts as the catalog stores them."""
    return json.dumps(asdict(facts), sort_keys=True)


def loads(kind: str, small: Program, text: Any, program: Program, name: str) -> Any:
    """Read a small model in front of `program`, with facts that `dumps` wrote.

    Raises:
        ArtifactError: the facts are damaged, or the small model does not fit the Program.
    """
    class_, facts_class, statement_words = KINDS[kind]
    advice = f"ALTER MODEL ... DROP {statement_words} removes it"
    try:
        stored = json.loads(text)
        groups = tuple(_read_fields(FeatureGroup, group) for group in stored.pop("groups"))
        small_model = class_(small, _read_fields(facts_class, {**stored, "groups": groups}))
    except (TypeError, ValueError, KeyError, AttributeError, *_LIMIT_ERRORS) as error:
        raise ArtifactError(
            f"the {statement_words.lower()} of model {name!r} is damaged ({error}); {advice}"
        ) from None
    if not small_model.fits(program):
        raise ArtifactError(
            f"the {statement_words.lower()} of model {name!r} does not fit it; {advice}"
        )
    return small_model


def _read_fields(class_: Any, stored: Mapping[str, Any]) -> Any:
    """Return a dataclass whose fields are all present and have their types."""
    values: dict[str, Any] = {}
    for field in fields(class_):
        value = stored[field.name] if field.default is MISSING else stored.get(field.name, ())
        types = _FIELD_TYPES[str(field.type)]
        if isinstance(value, list):
            value = tuple(value)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise TypeError(f"{field.name} cannot be {value!r}")
        if field.type == "float" and isinstance(value, int | float):
            value = float(value)
            if not math.isfinite(value) or (field.name == "expected_ns" and value <= 0):
                raise ValueError(f"{field.name} cannot be {value!r}")
        is_text_tuple = field.type == "tuple[str, ...]"
        if is_text_tuple and not all(isinstance(item, str) for item in value):
            raise TypeError(f"{field.name} cannot be {value!r}")
        values[field.name] = value
    return class_(**values)


_LIMIT_ERRORS = (RecursionError, OverflowError)
"""The errors for texts that are nested too deeply and numbers that are too large."""

_FIELD_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "str": (str,),
        "bool": (bool,),
        "int": (int,),
        "float": (float, int),
        "tuple[str, ...]": (tuple,),
        "tuple[FeatureGroup, ...]": (tuple,),
    }
)
"""The annotation of a field -> the types of its value."""
