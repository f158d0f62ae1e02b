"""Small models that are added to a version: cascades, top-K filters, calibrations and folds.

A cascade or top-K filter is a small model in front of the version's model. A calibration is the
version's model with prediction intervals or sets as an additional output. The models of the folds
of a cross-validation are one Program. Each is stored as a Program with the facts of how it was
learned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, TypeVar

from sqlml.errors import ArtifactError
from sqlml.ir.program import Program
from sqlml.types import fold

Dataclass = TypeVar("Dataclass")

DAMAGE_ERRORS = (TypeError, ValueError, KeyError, AttributeError, RecursionError, OverflowError)
"""Python's errors for stored JSON that sqlml did not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGroup:
    """A group of features that are computed together.

    `inside` is set if steps of the model, such as a vectorizer, compute the features. `cost` is in
    nanoseconds per row. `importance` is the effect of shuffling the group among rows: the lost
    accuracy, or the mean squared change of the score. `chosen` is set if the small model reads the
    group.
    """

    name: str
    features: tuple[str, ...]
    inside: bool
    cost: float
    importance: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallModelFacts:
    """The measurements of a small model's training.

    exact_ns, expected_ns: the time of a query in ns per row without and with the small model.
    unique_keys: undeclared unique keys of the tables that a query joins. The columns of a composite
    key are separated by commas.
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
        """The case-folded columns of each of `unique_keys`."""
        return tuple(frozenset(fold(c.strip()) for c in key.split(",")) for key in self.unique_keys)

    @property
    def gain(self) -> float:
        return self.exact_ns / self.expected_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeFacts(SmallModelFacts):
    """The measurements of a cascade.

    label: the column of the true labels. accuracy_loss: the allowed loss of accuracy. threshold:
    the confidence above which the small model decides a row. confident: the share of rows that the
    small model decides. accuracy: the full model's accuracy on the held-out rows. loss: the
    measured loss of accuracy. most_loss: the upper bound of the loss at 97.5% confidence.
    """

    label: str
    accuracy_loss: float
    threshold: float
    confident: float
    accuracy: float
    loss: float
    most_loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterFacts(SmallModelFacts):
    """The measurements of a top-K filter.

    output, column: the model output and its column by which queries order. chosen: the class of
    this column as SQL, or "" for a number. k: the maximum number of rows that a query may request,
    including its OFFSET. precision: the share of the full model's best k rows that a query must
    return. ratio: the full model ranks the small model's best `ratio` * k rows. rows: the number of
    rows in a tested table. trials: the number of tested queries. failures: the number of queries
    with too little precision. low, high: the 95% confidence interval of the share of queries with
    sufficient precision.
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


COVERAGE = "(coverage)"
"""The input of a calibrated Program with the requested coverage, between 0 and 1."""

DEFAULT_COVERAGE = 0.9
"""The coverage of intervals and sets for which none is requested."""


def format_coverage(coverage: float) -> str:
    """Format the highest coverage of a calibration, rounded down.

    >>> format_coverage(86 / 87), format_coverage(0.9)
    ('0.988505', '0.9')
    """
    rounded = f"{coverage:.6f}"
    if float(rounded) > coverage:
        rounded = f"{float(rounded) - 1e-6:.6f}"
    return rounded.rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFacts:
    """The definition and the size of a version's calibration.

    Attributes:
        query: the query for the calibration rows, or "" for those that training held out.
        method: "split", "normalized" or "cqr" for intervals; "lac" or "aps" for sets.
        label: the column of the true labels.
        by: the column whose values divide the rows into groups, or "" for one group. If it is
            `label`, each class is a group.
        weight: the column of the weights, or "" if all rows weigh alike.
        difficulty: the model that predicts how wide an interval must be (normalized), or "".
        beta: the number that is added to the predicted difficulty.
        lower, upper: the models that predict the quantiles (cqr), or "".
        symmetric: both ends of an interval are moved by the same amount.
        rows: the number of calibration rows.
        groups: the number of groups among the calibration rows.
        smallest: the number of rows in the smallest group.
        highest: the highest coverage that some group has enough rows to promise.
    """

    query: str
    method: str
    label: str
    by: str
    weight: str
    difficulty: str
    beta: float
    lower: str
    upper: str
    symmetric: bool
    rows: int
    groups: int
    smallest: int
    highest: float


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The model with an additional output: `interval` (n, 2), or `set` (n, classes) of 0 and 1.

    The Program also reads the input `COVERAGE`, and the columns of `by` and of further models.
    """

    small: Program
    facts: CalibrationFacts

    @property
    def output(self) -> Literal["interval", "set"]:
        """The name of the additional output."""
        return "interval" if "interval" in self.small.outputs else "set"

    def fits(self, program: Program) -> bool:
        small = self.small
        width = len(program.labels[0]) if len(program.labels) == 1 else 2
        if self.output not in small.outputs or small.output_type(self.output).width != width:
            return False
        if COVERAGE not in small.inputs or (self.output == "set") != bool(program.labels):
            return False
        kinds = {feature.name: feature.kind for feature in program.features}
        are_alike = all(kinds.get(f.name, f.kind) == f.kind for f in small.features)
        return small.labels == program.labels and are_alike


FOLD = "(fold)"
"""The input of `FoldModels` with the number of the fold, from 1, whose model predicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFacts:
    """The folds of a cross-validation, and the metrics of their models.

    Attributes:
        method, column, bounds: how rows are divided into folds, as in `FoldRule.select_fold`.
        seed: the seed of the hashes.
        metrics: the names of the metrics.
        folds: for each fold, the number of rows its model was fitted to and the number of rows it
            was measured on, followed by the values of the metrics.
    """

    method: str
    column: str
    seed: int
    bounds: tuple[str, ...]
    metrics: tuple[str, ...]
    folds: tuple[tuple[Any, ...], ...]

    def list_values(self, metric: str) -> list[float | None]:
        """Return the values of a metric in all folds."""
        index = 2 + self.metrics.index(metric)
        return [fold[index] for fold in self.folds]


@dataclass(frozen=True, slots=True, eq=False)
class FoldModels:
    """The models of all folds, with the outputs `label` and `proba` for the fold in `FOLD`."""

    small: Program
    facts: FoldFacts

    def fits(self, program: Program) -> bool:
        facts, small = self.facts, self.small
        is_time = facts.method == "time"
        has_bounds = len(facts.bounds) == len(facts.folds) - (not is_time)
        rows_fit = all(
            len(fold) == 2 + len(facts.metrics)
            and all(type(count) is int for count in fold[:2])
            and all(value is None or type(value) in (int, float) for value in fold[2:])
            for fold in facts.folds
        )
        kinds = {feature.name: feature.kind for feature in program.features}
        are_alike = all(kinds.get(f.name, f.kind) == f.kind for f in small.features)
        has_outputs = small.labels == program.labels and small.outputs.keys() <= {"label", "proba"}
        is_known = facts.method in ("random", "group", "time")
        is_known &= bool(facts.column) == (facts.method != "random")
        return bool(FOLD in small.inputs and are_alike and has_outputs and has_bounds) and (
            bool(facts.folds) and rows_fit and is_known
        )


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """A small classifier, whose `label` is -1 for rows that the full model decides."""

    small: Program
    facts: CascadeFacts

    def fits(self, program: Program) -> bool:
        has_label = "label" in self.small.outputs and self.small.labels == program.labels
        return has_label and _reads_inputs_of(self.small, program)


@dataclass(frozen=True, slots=True, eq=False)
class TopKFilter:
    """A small model, whose `score` (n, 1) selects the rows that may be among the best."""

    small: Program
    facts: FilterFacts

    def fits(self, program: Program) -> bool:
        facts = self.facts
        if facts.output not in program.outputs or "score" not in self.small.outputs:
            return False
        width = program.output_type(facts.output).width
        return _reads_inputs_of(self.small, program) and 0 <= facts.column < width


SmallModel = Cascade | TopKFilter | Calibration | FoldModels

KINDS: Mapping[str, tuple[type[Any], type[Any], str]] = {
    "cascade": (Cascade, CascadeFacts, "CASCADE"),
    "top_k": (TopKFilter, FilterFacts, "TOP_K FILTER"),
    "calibration": (Calibration, CalibrationFacts, "CALIBRATION"),
    "folds": (FoldModels, FoldFacts, "CROSS-VALIDATION"),
}
"""Maps a kind to its class, the class of its facts, and its name in statements."""


def find_kind(small_model: SmallModel) -> str:
    return next(kind for kind, (class_, _, _) in KINDS.items() if isinstance(small_model, class_))


def _reads_inputs_of(small_program: Program, program: Program) -> bool:
    types = {name: small_program.input_type(name) for name in small_program.inputs}
    return all(n in program.inputs and t == program.input_type(n) for n, t in types.items())


def dump_facts(facts: SmallModelFacts | CalibrationFacts | FoldFacts) -> str:
    return json.dumps(asdict(facts), sort_keys=True)


def load_small_model(
    kind: str, small_program: Program, text: Any, program: Program, name: str
) -> Any:
    """Build what a version has of a kind, such as a cascade, from its stored Program and facts.

    `text` is the result of `dump_facts`, and `program` is the full model, which is called `name`.
    If the facts are damaged or do not fit the full model, ArtifactError is raised.
    """
    model_class, facts_class, statement_words = KINDS[kind]
    advice = f"ALTER MODEL ... DROP {statement_words} removes it"
    if model_class is FoldModels:
        advice = "train the model again"
    try:
        stored = json.loads(text)
        if issubclass(facts_class, SmallModelFacts):
            groups = tuple(read_fields(FeatureGroup, group) for group in stored.pop("groups"))
            stored = {**stored, "groups": groups}
        facts = read_fields(facts_class, stored)
        if isinstance(facts, SmallModelFacts) and facts.expected_ns <= 0:
            raise ValueError(f"expected_ns cannot be {facts.expected_ns!r}")
        small_model = model_class(small_program, facts)
    except DAMAGE_ERRORS as error:
        message = f"the {statement_words.lower()} of model {name!r} is damaged ({error}); {advice}"
        raise ArtifactError(message) from None
    if not small_model.fits(program):
        message = f"the {statement_words.lower()} of model {name!r} does not fit it; {advice}"
        raise ArtifactError(message)
    return small_model


def read_fields(dataclass_type: type[Dataclass], stored: Mapping[str, Any]) -> Dataclass:
    """Create a dataclass from a stored mapping of its fields; lists become tuples.

    If a field is missing, has the wrong type or is not finite, one of `DAMAGE_ERRORS` is raised.
    """
    values: dict[str, Any] = {}
    for field in fields(dataclass_type):  # type: ignore[arg-type]
        has_default = field.default is not MISSING
        value = stored.get(field.name, field.default) if has_default else stored[field.name]
        if isinstance(value, list):
            value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
        types, element_types = _FIELD_TYPES[str(field.type)]
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise TypeError(f"{field.name} cannot be {value!r:.80}")
        elements = value.values() if isinstance(value, dict) else value
        if element_types is not None and value is not None:
            for item in elements:
                if not isinstance(item, element_types):
                    raise TypeError(f"{field.name} cannot contain {item!r:.80}")
        if types is _NUMBER:
            value = float(value)
            if not math.isfinite(value):
                raise ValueError(f"{field.name} cannot be {value!r}")
        values[field.name] = value
    return dataclass_type(**values)


_NUMBER = float | int
_FIELD_TYPES: dict[str, tuple[Any, Any]] = {
    "str": (str, None),
    "bool": (bool, None),
    "int": (int, None),
    "float": (_NUMBER, None),
    "Mapping[str, Any]": (dict, None),
    "Mapping[str, str]": (dict, str),
    "Mapping[str, float | None]": (dict, float | int | None),
    "tuple[str, ...]": (tuple, str),
    "tuple[str, ...] | None": (tuple | None, str),
    "tuple[tuple[Any, ...], ...]": (tuple, tuple),
    "tuple[Mapping[str, Any], ...]": (tuple, dict),
    "tuple[FeatureGroup, ...]": (tuple, FeatureGroup),
}
"""Maps the annotation of a field to the types of its value, and the types of the value's items."""
