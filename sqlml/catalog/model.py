"""`Model`: one version of a registered model, as the catalog knows it; `Reference`: its name."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from sqlml.catalog.row_expressions import Read, RowExpression, checked
from sqlml.catalog.small_models import SmallModel
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.types import Feature, features_behind_blanks, fold

# `TrainingFacts`: how a version was trained, as the catalog keeps it.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """The definition of a version that was trained, and what was measured meanwhile.

    Attributes:
        model_type, library: what was trained by what; `model_type` is the class of an estimator
            that Python gave.
        query: the rows, as the statement has it, with the values of its parameters.
        options: as the statement has them, under sqlml's own names.
        transform: the items of TRANSFORM (..), or None.
        split: method, fraction and column of the rows held out. seed: of all that is random.
        rows, held_out: numbers of rows.
        metrics: on the rows held out, or, without any, on the others.
        loss: what the losses of `rounds` are, as the library calls it.
        rounds: iteration, loss, eval_loss and seconds of each.
        features: statistics of each column that is learned from.
        trials: number, parameters (JSON), objective, status and seconds of each, and whether it is
            the one whose parameters the model has.
        pipeline: the fitted object as it prints itself.
        notices: what the user was told.
        versions: of the libraries. seconds: all took.
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

    @property
    def label(self) -> str | None:
        """The column that was to be predicted; a statement may write it as a list of one."""
        told = self.options.get("label")
        (label,) = told if isinstance(told, list | tuple) and len(told) == 1 else (told,)
        return label if isinstance(label, str) else None


def dumps(facts: TrainingFacts) -> str:
    """As the catalog keeps it."""
    return json.dumps(asdict(facts))


def loads(text: Any, name: str) -> TrainingFacts:
    """What `dumps` wrote of the training of a model.

    Raises:
        ArtifactError: it is damaged, or somebody else wrote it.
    """
    try:
        told = json.loads(text)
        made = {f.name: _checked(f.name, str(f.type), told) for f in fields(TrainingFacts)}
        _check_rows("rounds", made["rounds"], _ROUND)
        _check_rows("trials", made["trials"], _TRIAL)
        features = [[feature.get(key) for key in _FEATURE] for feature in made["features"]]
        _check_rows("features", features, tuple(_FEATURE.values()))
        for feature in made["features"]:
            kind = (int, float) if feature["distinct"] is None else (str,)
            _check_rows("values", feature.get("values", ()), (kind, (int,)))
        return TrainingFacts(**made)
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ArtifactError(
            f"what the catalog says of the training of model {name!r} is damaged ({error}); train "
            "it again"
        ) from None


_NUMBER = (int, float, type(None))
_ROUND = ((int,), _NUMBER, _NUMBER, _NUMBER)
_TRIAL = ((int,), (str,), _NUMBER, (str,), _NUMBER, (bool,))
_FEATURE: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "type"), (str,)),
    **dict.fromkeys(("min", "max", "mean", "stddev"), _NUMBER),
    **dict.fromkeys(("distinct", "nulls", "others", "rows"), (int, type(None))),
}
"""The types of what a row of each table has."""


def _check_rows(
    name: str, rows: Sequence[Sequence[Any]], kinds: Sequence[tuple[type, ...]]
) -> None:
    for row in rows:
        right = len(row) == len(kinds) and all(map(isinstance, row, kinds))
        if not right or any(isinstance(v, float) and not math.isfinite(v) for v in row):
            raise TypeError(f"{name} cannot hold {str(row)[:80]!r}")


def _checked(name: str, kind: str, told: Any) -> Any:
    """A field of its type, a list as a tuple."""
    value = told[name]
    if kind.startswith("tuple") and isinstance(value, list):
        value = tuple(tuple(item) if isinstance(item, list) else item for item in value)
    if not isinstance(value, _CLASSES[kind]) or isinstance(value, bool):
        raise TypeError(f"{name} cannot be {str(value)[:80]!r}")
    inside = _INSIDE.get(kind)
    if inside is not None and isinstance(value, dict | tuple):
        items = value.values() if isinstance(value, dict) else value
        wrong = next((item for item in items if not isinstance(item, inside)), None)
        if wrong is not None:
            raise TypeError(f"{name} cannot hold {str(wrong)[:80]!r}")
    return value


_CLASSES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, float | None]": (dict,),
    "tuple[str, ...]": (tuple,),
    "tuple[str, ...] | None": (tuple, type(None)),
    "tuple[tuple[Any, ...], ...]": (tuple,),
    "tuple[Mapping[str, Any], ...]": (tuple,),
}
"""The type of a field as it is written -> what its value may be."""

_INSIDE: Mapping[str, tuple[type, ...]] = {
    "Mapping[str, str]": (str,),
    "Mapping[str, float | None]": (float, int, type(None)),
    "tuple[str, ...]": (str,),
    "tuple[str, ...] | None": (str,),
    "tuple[tuple[Any, ...], ...]": (tuple,),
    "tuple[Mapping[str, Any], ...]": (dict,),
}
"""The type of a field -> what the items of its value may be."""


# `Transform`: how a model's features are made of the columns that a call brings.


TRANSFORM = "transform"
"""Under this name it is kept with the options: `Transform.to_json`."""


@dataclass(frozen=True, slots=True)
class Transform:
    """TRANSFORM (..), or what training made of dates, nested values and texts.

    columns: those that the model reads, in the order of the training query. made: feature -> the
    expression that makes it; the others are columns themselves.
    """

    columns: tuple[str, ...]
    made: Mapping[str, RowExpression]

    def inputs(self, features: Collection[Feature]) -> tuple[Feature, ...]:
        """The columns as features: those that expressions read may be of any type."""
        plain = {f.name: f for f in features if f.name not in self.made}
        return tuple(plain.get(name) or Feature(name, "any") for name in self.columns)

    def reads(self, features: Collection[str]) -> frozenset[str]:
        """The columns that some of the features need."""
        found: set[str] = set()
        for name in features:
            made = self.made.get(name)
            found.update({name} if made is None else made.columns)
        return frozenset(found)

    def sql(self, feature: str, columns: Mapping[str, str]) -> str:
        """The expression that makes a feature, or the column that it is.

        Args:
            columns: column -> the SQL that reads it.
        """
        made = self.made.get(feature)
        return columns[feature] if made is None else made.of(columns)

    def summary(self) -> str:
        """Return which features it makes, as messages say after the name of a model."""
        names = [name if len(name) <= 40 else f"{name[:37]}..." for name in list(self.made)[:3]]
        more = f" and {len(self.made) - 3:,} more" if len(self.made) > 3 else ""
        features = "feature" if len(self.made) == 1 else "features"
        return (
            f"makes the {features} {', '.join(names)}{more} of columns when it scores, for a "
            "TRANSFORM or for dates, texts or nested values"
        )

    def to_json(self) -> Any:
        """As the catalog keeps it."""
        made = {name: [e.sql, list(e.columns), e.type] for name, e in self.made.items()}
        return {"columns": list(self.columns), "made": made}


def transform_of(read: Read, told: Any, name: str) -> Transform | None:
    """What `to_json` made, checked by the engine's parser; None for nothing.

    Args:
        name: of the model, for messages.

    Raises:
        ArtifactError: somebody else wrote it.
    """
    if told is None:
        return None
    try:
        columns = tuple(told["columns"])
        made = {}
        for feature, (sql, reads, kind) in told["made"].items():
            expression = RowExpression(sql, tuple(reads), kind)
            _check_texts(sql, kind, feature, *expression.columns)
            if not set(expression.columns) <= set(columns):
                raise ValueError(f"{feature!r} reads other columns")
            made[feature] = checked(read, expression)
        _check_texts(*columns)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ArtifactError(
            f"what the catalog says of the columns of model {name!r} is damaged ({error}); train "
            "it again"
        ) from None
    return Transform(columns, made)


def _check_texts(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.80} is not a string")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a version came from.

    `source` is the class of the fitted object, `library` its package and version; `path`,
    `format` and `sha256` are those of the file, for a model that came from one.
    """

    source: str
    library: str
    path: str | None = None
    format: str | None = None
    sha256: str | None = None

    @property
    def blanks(self) -> bool:
        """Whether the names of features may have _ for blanks, as LightGBM writes them."""
        return "lightgbm" in self.library


@dataclass(frozen=True, slots=True, eq=False)
class NewVersion:
    """What a version is made of, before it has a number.

    `features` has every column of the training table in order; those of kind "any" are not inputs
    of the Program, and `used` are those of the others that its outputs need. `options` are the
    OPTIONS that it was created with, `verification` is what comparing it with its source gave.
    `small_models` are what its file brings; of a stored one `Catalog.small_models` says.
    `transform` is how the features are made of columns; None: they are columns.
    `training` is how it was trained, if sqlml did, and `estimator` the pickled object; of a stored
    one `Catalog.training` and `Catalog.estimator` say.
    """

    program: Program
    features: tuple[Feature, ...]
    used: frozenset[str]
    origin: Origin
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    verification: Mapping[str, Any] | None = None
    comment: str | None = None
    small_models: tuple[SmallModel, ...] = ()
    training: TrainingFacts | None = None
    estimator: bytes | None = None
    transform: Transform | None = None

    @property
    def columns(self) -> tuple[Feature, ...]:
        """What a call brings, in order: the features, or the columns that they are made of."""
        return self.features if self.transform is None else self.transform.inputs(self.features)

    @property
    def read_columns(self) -> list[str]:
        """The names of those columns that its outputs need."""
        reads = self.used if self.transform is None else self.transform.reads(self.used)
        return [column.name for column in self.columns if column.name in reads]

    def renamed(self, columns: Collection[str]) -> dict[str, str]:
        """Map the columns whose names LightGBM has changed to the features that they feed."""
        if not self.origin.blanks:
            return {}
        return {c: f.name for c, f in features_behind_blanks(self.columns, columns).items()}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Model(NewVersion):
    """A version with its name and number; `comment` is the model's where it has none itself."""

    name: str
    version: int
    created_at: Any
    database: str | None = None

    @property
    def label(self) -> str:
        """Name and version as EXPLAIN and errors show them."""
        return f"{self.name} (version {self.version})"


_REFERENCE = re.compile(
    r"(?:(?P<database>[^.@/]+)\.)?(?P<name>[^.@/]+)(?:/(?P<number>\d+)|@(?P<alias>\w+))?"
)

_DIGITS = 18
"""More than any version has."""

MOST_VERSIONS = 2**31 - 1
"""The largest number that a version may have."""

SPECIAL = ("default", "first", "last")
"""Names after @ that are not user-defined aliases."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the first argument of a call says: `[database.]name[/number|@alias]`.

    Without a number or an alias it is the model's default version.
    """

    name: str
    database: str | None = None
    version: int | None = None
    alias: str | None = None

    @property
    def key(self) -> str:
        """The name as the catalog's tables have it."""
        return fold(self.name)

    @property
    def names_a_version(self) -> bool:
        """Whether it has a number or an alias."""
        return self.version is not None or self.alias is not None


def is_name(name: str) -> bool:
    """Return whether a model may have a name: rows of a catalog may hold anything.

    >>> is_name("churn"), is_name(""), is_name("churn@champion")
    (True, False, False)
    """
    return bool(name) and not any(character in name for character in ".@/\0")


def parse_reference(text: str) -> Reference:
    """Read a reference to a model.

    >>> parse_reference("churn/3")
    Reference(name='churn', database=None, version=3, alias=None)

    Raises:
        UnknownModelError: it is not written as a reference.
    """
    match = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnknownModelError(
            f"{text!r} is not a model reference; write 'model', 'db.model', 'model/3' or "
            "'model@alias'"
        )
    number = match["number"]
    version = None if number is None else min(int(number[:_DIGITS]), MOST_VERSIONS)
    return Reference(match["name"], match["database"], version, match["alias"])
