"""The statements of the SQL surface, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

OptionValue = str | int | float | bool | None | tuple[Any, ...]
Options = Mapping[str, OptionValue]


def _none() -> Options:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelName:
    """`[database.]name[/version|@alias]`; database None means the connection's current one."""

    name: str
    database: str | None = None
    version: int | None = None
    alias: str | None = None

    @property
    def names_a_version(self) -> bool:
        """Whether it says which version, also within quotes: no model's name has / or @."""
        return self.version is not None or self.alias is not None or bool({"/", "@"} & {*self.name})

    def __str__(self) -> str:
        name = self.name if self.database is None else f"{self.database}.{self.name}"
        if self.version is not None:
            return f"{name}/{self.version}"
        return name if self.alias is None else f"{name}@{self.alias}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """[INPUT ..] [OUTPUT ..] FROM 'path' [FORMAT ..] [OPTIONS (..)] [COMMENT ..]."""

    source: str
    inputs: tuple[tuple[str, str], ...] | None = None
    output: tuple[tuple[str, str], ...] | None = None
    format: str = "AUTO"
    options: Options = field(default_factory=_none)
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of the engine; it may or may not call models."""

    sql: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN [ANALYZE] of a query that may call models; `mode` is Spark's (COST ..), or ""."""

    sql: str
    query: str
    analyze: bool
    mode: str = ""


@dataclass(frozen=True, slots=True)
class CreateModel:
    """CREATE [OR REPLACE] MODEL [IF NOT EXISTS] m and its artifact."""

    sql: str
    name: ModelName
    artifact: Artifact
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropModel:
    """DROP MODEL [IF EXISTS] m."""

    sql: str
    name: ModelName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddVersion:
    """ADD VERSION [number] and its artifact."""

    artifact: Artifact
    number: int | None = None


@dataclass(frozen=True, slots=True)
class DropVersion:
    """DROP VERSION v."""

    version: ModelName


@dataclass(frozen=True, slots=True)
class SetDefault:
    """SET DEFAULT_VERSION = v."""

    version: ModelName


@dataclass(frozen=True, slots=True)
class SetAlias:
    """SET ALIAS a = v."""

    alias: str
    version: ModelName


@dataclass(frozen=True, slots=True)
class UnsetAlias:
    """UNSET ALIAS a."""

    alias: str


@dataclass(frozen=True, slots=True)
class SetTags:
    """SET TAG k = 'x' [, ..]."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetTags:
    """UNSET TAG k [, ..]."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetOptions:
    """SET OPTIONS (..) of the version that is named, or the default one."""

    options: Options


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """RESET OPTIONS (name, ..), or all of them."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rename:
    """RENAME TO n."""

    name: str


Change = (
    AddVersion
    | DropVersion
    | SetDefault
    | SetAlias
    | UnsetAlias
    | SetTags
    | UnsetTags
    | SetOptions
    | ResetOptions
    | Rename
)


@dataclass(frozen=True, slots=True)
class AlterModel:
    """ALTER MODEL [IF EXISTS] m and one change."""

    sql: str
    name: ModelName
    change: Change
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CommentOn:
    """COMMENT ON MODEL m IS '..', or NULL."""

    sql: str
    name: ModelName
    comment: str | None


@dataclass(frozen=True, slots=True)
class ShowModels:
    """SHOW MODELS [LIKE 'pattern'] [FROM database]."""

    sql: str
    like: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class ShowVersions:
    """SHOW VERSIONS IN MODEL m."""

    sql: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """SHOW CREATE MODEL m."""

    sql: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """DESCRIBE MODEL m."""

    sql: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class ExplainModel:
    """EXPLAIN MODEL m."""

    sql: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class VerifyModel:
    """VERIFY MODEL m USING (query) [AGAINST 'path of the original artifact']."""

    sql: str
    name: ModelName
    query: str
    against: str | None = None


@dataclass(frozen=True, slots=True)
class ExportModel:
    """EXPORT MODEL name TO 'path' FORMAT ONNX; `format` is None if the path's ending implies it."""

    sql: str
    name: ModelName
    path: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption:
    """SET sqlml_backend = 'torch', and RESET sqlml_backend, whose `value` is None."""

    sql: str
    option: str
    value: OptionValue


@dataclass(frozen=True, slots=True)
class Reserved:
    """A statement that is parsed already and carried out by a later version.

    `what` is its name as an error shows it, e.g. "CREATE MODEL .. AS SELECT (training)".
    """

    sql: str
    what: str
    name: ModelName


Statement = (
    Query
    | Explain
    | CreateModel
    | DropModel
    | AlterModel
    | CommentOn
    | ShowModels
    | ShowVersions
    | ShowCreate
    | DescribeModel
    | ExplainModel
    | VerifyModel
    | ExportModel
    | SetOption
    | Reserved
)
