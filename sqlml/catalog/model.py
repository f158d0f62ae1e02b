"""The types of the catalog: a model's versions, how they were trained, and references to them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlml.catalog.row_expressions import Read, RowExpression, rewrite_stored
from sqlml.catalog.small_models import (
    COVERAGE,
    DAMAGE_ERRORS,
    Calibration,
    SmallModel,
    read_fields,
)
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.types import Feature, features_behind_blanks, fold


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """The definition of a version that sqlml trained, and the measurements of its training.

    model_type: the model type, or the class of an estimator from Python. query: the training query,
    with the values of its parameters. options: the options of the statement, under sqlml's names.
    split: the method, fraction and column of the held-out rows. metrics: the metrics on the
    held-out rows, or on the training rows if no rows were held out. loss: the library's name for
    the losses in `rounds`. rounds: iteration, loss, eval_loss and seconds of each round. features:
    the statistics of each training column. trials: number, parameters (JSON), objective, status and
    seconds of each trial, and whether the model uses its parameters. pipeline: the repr of the
    fitted object. partitions: the values of the partition columns, the numbers of fitted and
    held-out rows, the metrics and the seconds of each partition. inference: of each weight, the
    intercept first, the standard error and p-value in the units of the inputs and in the model's
    own, or () if they were not requested.
    """

    model_type: str
    library: str
    query: str
    options: Mapping[str, Any]
    transform: tuple[str, ...] | None
    split: Mapping[str, Any]
    seed: int
    rows: int
    held_out: int
    metrics: Mapping[str, float | None]
    loss: str
    rounds: tuple[tuple[Any, ...], ...]
    features: tuple[Mapping[str, Any], ...]
    trials: tuple[tuple[Any, ...], ...]
    pipeline: str
    notices: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float
    inference: tuple[tuple[Any, ...], ...] = ()
    partitions: tuple[tuple[Any, ...], ...] = ()

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns, or () without PARTITION BY."""
        names = self.options.get("partition_by", ())
        names = (names,) if isinstance(names, str) else names
        return tuple(name for name in names if isinstance(name, str))

    @property
    def label(self) -> str | None:
        """The label column, which a statement may write as a one-element list."""
        label = self.options.get("label")
        if isinstance(label, list | tuple) and len(label) == 1:
            (label,) = label
        return label if isinstance(label, str) else None


def read_training_facts(text: Any, name: str) -> TrainingFacts:
    """Read the stored training facts of the model `name`; raise ArtifactError if damaged."""
    try:
        facts = read_fields(TrainingFacts, json.loads(text))
        _check_rows("rounds", facts.rounds, _ROUND_TYPES)
        _check_rows("trials", facts.trials, _TRIAL_TYPES)
        _check_rows("inference", facts.inference, (_NUMBER,) * 4)
        features = [[feature.get(field) for field in _FEATURE_TYPES] for feature in facts.features]
        _check_rows("features", features, tuple(_FEATURE_TYPES.values()))
        _check_rows("partitions", facts.partitions, _PARTITION_TYPES)
        num_columns = len(facts.partition_by) if facts.partitions else 0
        for key, _, _, metrics, _ in facts.partitions:
            _check_rows("a partition", [key], [str | int] * num_columns)
            _check_rows("metrics", [list(metrics.values())], [_NUMBER | None] * len(metrics))
        for feature in facts.features:
            value_type = _NUMBER if feature["distinct"] is None else str
            _check_rows("values", feature.get("values", ()), (value_type, int))
        return facts
    except DAMAGE_ERRORS as error:
        record = f"the catalog's training record for model {name!r}"
        raise ArtifactError(f"{record} is damaged ({error}); train it again") from None


_NUMBER = int | float
_ROUND_TYPES = (int, _NUMBER | None, _NUMBER | None, _NUMBER | None)
_PARTITION_TYPES = (list, int, int, dict, _NUMBER)
_TRIAL_TYPES = (int, str, _NUMBER | None, str, _NUMBER | None, bool)
_FEATURE_TYPES: dict[str, Any] = {
    **dict.fromkeys(("name", "type"), str),
    **dict.fromkeys(("min", "max", "mean", "stddev"), _NUMBER | None),
    **dict.fromkeys(("distinct", "nulls", "others", "rows"), int | None),
}


def _check_rows(name: str, rows: Sequence[Sequence[Any]], types: Sequence[Any]) -> None:
    for row in rows:
        has_types = len(row) == len(types) and all(map(isinstance, row, types))
        if not has_types or any(isinstance(v, float) and not math.isfinite(v) for v in row):
            raise TypeError(f"{name} cannot contain {str(row)[:80]!r}")


TRANSFORM = "transform"
"""The key of `Transform.to_json` in a version's options."""


@dataclass(frozen=True, slots=True)
class Transform:
    """SQL expressions that compute features from columns, for TRANSFORM (...) or dates and strings.

    `columns` are the columns that the model reads, in the order of the training query. A feature
    without an expression is a column.
    """

    columns: tuple[str, ...]
    expressions: Mapping[str, RowExpression]

    def inputs(self, features: Collection[Feature]) -> tuple[Feature, ...]:
        """Return the columns as features; a column that an expression reads may have any type."""
        unchanged = {f.name: f for f in features if f.name not in self.expressions}
        return tuple(unchanged.get(name) or Feature(name, "any") for name in self.columns)

    def find_columns(self, features: Collection[str]) -> frozenset[str]:
        columns: set[str] = set()
        for name in features:
            expression = self.expressions.get(name)
            columns.update({name} if expression is None else expression.columns)
        return frozenset(columns)

    def sql(self, feature: str, columns: Mapping[str, str]) -> str:
        """Return the SQL that computes a feature, where `columns` maps column names to SQL."""
        expression = self.expressions.get(feature)
        return columns[feature] if expression is None else expression.to_typed_sql(columns)

    def build_feature_sql(
        self, names: Iterable[str], quote: Callable[[str], str]
    ) -> dict[str, str]:
        """Map each of the feature `names` to SQL over the columns, quoted with `quote`."""
        columns = {name: quote(name) for name in self.columns}
        return {n: self.sql(n, columns) if n in self.expressions else quote(n) for n in names}

    def summary(self) -> str:
        """Return a phrase about the computed features, for a sentence about the model."""
        num_features = len(self.expressions)
        names = [n if len(n) <= 40 else f"{n[:37]}..." for n in list(self.expressions)[:3]]
        more = f" and {num_features - 3:,} more" if num_features > 3 else ""
        noun = "feature" if num_features == 1 else "features"
        return (
            f"computes the {noun} {', '.join(names)}{more} from columns when it scores, for a "
            "TRANSFORM or for dates, texts or nested values"
        )

    def to_json(self) -> Any:
        expressions = {n: [e.sql, list(e.columns), e.type] for n, e in self.expressions.items()}
        return {"columns": list(self.columns), "made": expressions}


def read_transform(read: Read, stored: Any, name: str) -> Transform | None:
    """Read the JSON of a Transform, and check its expressions with the engine's parser."""
    if stored is None:
        return None
    try:
        columns = tuple(stored["columns"])
        expressions = {}
        for feature, (sql, read_columns, result_type) in stored["made"].items():
            expression = RowExpression(sql, tuple(read_columns), result_type)
            _require_strings(sql, result_type, feature, *expression.columns)
            if not set(expression.columns) <= set(columns):
                raise ValueError(f"{feature!r} reads other columns")
            expressions[feature] = rewrite_stored(read, expression)
        _require_strings(*columns)
    except DAMAGE_ERRORS as error:
        record = f"the catalog's record of the columns of model {name!r}"
        raise ArtifactError(f"{record} is damaged ({error}); train it again") from None
    return Transform(columns, expressions)


def _require_strings(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.80} is not a string")


@dataclass(frozen=True, slots=True)
class Origin:
    """The class of the fitted object, its package and version, and the source file."""

    source: str
    library: str
    path: str | None = None
    format: str | None = None
    sha256: str | None = None

    @property
    def may_replace_blanks(self) -> bool:
        """True if feature names may contain _ instead of blanks, as in LightGBM."""
        return "lightgbm" in self.library


@dataclass(frozen=True, slots=True, eq=False)
class NewVersion:
    """The content of a version, before it has a number.

    features: the columns of the training table, in order. Columns of kind "any" are not inputs of
    the Program. used_features: the names of the features that the outputs depend on. verification:
    the result of the comparison with the source library. small_models, training, estimator: unset
    in a version from the catalog, because `Catalog` reads them on request. transform: computes
    features from columns, or None if all features are columns.
    """

    program: Program
    features: tuple[Feature, ...]
    used_features: frozenset[str]
    origin: Origin
    options: Mapping[str, Any] = field(default_factory=dict)
    verification: Mapping[str, Any] | None = None
    comment: str | None = None
    small_models: tuple[SmallModel, ...] = ()
    training: TrainingFacts | None = None
    estimator: bytes | None = None
    transform: Transform | None = None

    @property
    def columns(self) -> tuple[Feature, ...]:
        """The columns that a model call passes, in order."""
        return self.features if self.transform is None else self.transform.inputs(self.features)

    @property
    def used_columns(self) -> list[str]:
        """The names of the columns that the outputs depend on."""
        names = self.used_features
        if self.transform is not None:
            names = self.transform.find_columns(names)
        return [column.name for column in self.columns if column.name in names]

    @property
    def calibration(self) -> Calibration | None:
        """The calibration among `small_models`, if any."""
        calibrations = (small for small in self.small_models if isinstance(small, Calibration))
        return next(calibrations, None)

    def map_renamed_columns(self, columns: Collection[str]) -> dict[str, str]:
        """Map the `columns` that LightGBM has renamed to the names of the features."""
        may_be_renamed = self.origin.may_replace_blanks
        features = features_behind_blanks(self.columns, columns) if may_be_renamed else {}
        return {column: feature.name for column, feature in features.items()}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model(NewVersion):
    """A stored version with its name and number; `comment` defaults to the model's comment."""

    name: str
    version: int
    created_at: Any
    database: str | None = None

    @property
    def label(self) -> str:
        """The name and version, as EXPLAIN and errors show them."""
        return f"{self.name} (version {self.version})"


Version = TypeVar("Version", bound=NewVersion)


def extend_version(version: Version, program: Program) -> Version:
    """Return a version with a calibrated Program, and with the columns that only this one reads."""
    further = {feature.name: feature for feature in program.features if feature.name != COVERAGE}
    features = tuple(further.pop(f.name, f) for f in version.features)
    transform = version.transform
    if transform is not None:
        columns = [name for name in further if name not in transform.columns]
        transform = replace(transform, columns=(*transform.columns, *columns))
    features = (*features, *further.values())
    return replace(version, program=program, features=features, transform=transform)


_REFERENCE_PATTERN = re.compile(
    r"(?:(?P<database>[^.@/]+)\.)?(?P<name>[^.@/]+)"
    r"(?:/(?P<number>\d+)(?P<folds>@folds)?|@(?P<alias>\w+))?"
)

MAX_VERSION = 2**31 - 1

RESERVED_ALIASES = ("default", "first", "last")
"""Names after @ that are not user-defined aliases."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference `[database.]name[/number|@alias]` to a model version, or the default version.

    folds: the reference ends with `/number@folds`, and names the models of the version's folds.
    """

    name: str
    database: str | None = None
    version: int | None = None
    alias: str | None = None
    folds: bool = False

    @property
    def key(self) -> str:
        """The case-folded name of the model, which is the key in the catalog's tables."""
        return fold(self.name)

    @property
    def has_version(self) -> bool:
        return self.version is not None or self.alias is not None


def is_name(name: str) -> bool:
    """Return whether `name`, which may come from a forged catalog, is a valid model name.

    >>> is_name("churn"), is_name(""), is_name("churn@champion")
    (True, False, False)
    """
    return bool(name) and not any(character in name for character in ".@/\0")


def parse_reference(text: str) -> Reference:
    """Parse a reference to a model; raise UnknownModelError for any other string.

    >>> parse_reference("churn/3")
    Reference(name='churn', database=None, version=3, alias=None, folds=False)
    """
    match = _REFERENCE_PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        advice = "write 'model', 'db.model', 'model/3' or 'model@alias'"
        raise UnknownModelError(f"{text!r} is not a model reference; {advice}")
    number = match["number"]
    version = None if number is None else min(int(number[:18]), MAX_VERSION)
    has_folds = match["folds"] is not None
    return Reference(match["name"], match["database"], version, match["alias"], has_folds)
