"""`Model`: one version of a registered model, as the catalog knows it; `Reference`: its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from sqlml.catalog.small_models import SmallModel
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.catalog.transform import Transform
from sqlml.errors import UnknownModelError
from sqlml.ir.program import Program
from sqlml.types import Feature, features_behind_blanks, fold


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
