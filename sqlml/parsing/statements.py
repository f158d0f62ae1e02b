"""The statements of the SQL surface, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call such as `hparam_range(0.01, 0.3)` in an option; `name` is case-folded."""

    name: str
    arguments: tuple[Any, ...]


OptionValue = str | int | float | bool | None | tuple[Any, ...] | Call
Options = Mapping[str, OptionValue]
TypedColumns = tuple[tuple[str, str], ...]
"""Pairs of a column's name and SQL type."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """The name of a model `[database.]name[/version|@alias]`, without or with a version."""

    name: str
    database: str | None = None
    version: int | None = None
    alias: str | None = None

    @property
    def has_version(self) -> bool:
        """True if the name contains a version, also after / or @ inside a quoted name."""
        return self.version is not None or self.alias is not None or bool({"/", "@"} & {*self.name})

    def __str__(self) -> str:
        name = self.name if self.database is None else f"{self.database}.{self.name}"
        if self.version is not None:
            return f"{name}/{self.version}"
        return name if self.alias is None else f"{name}@{self.alias}"


@dataclass(frozen=True, slots=True)
class Description:
    """A model's comment and tags, which BigQuery calls its description and labels.

    `changes_comment` and `changes_tags` say which of them a statement contains.
    """

    comment: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    changes_comment: bool = False
    changes_tags: bool = False

    @classmethod
    def of(cls, comment: str | None) -> Description:
        return cls(comment, changes_comment=comment is not None)


@dataclass(frozen=True, slots=True)
class Artifact:
    """[INPUT ...] [OUTPUT ...] FROM 'path' [FORMAT ...] [OPTIONS (...)] [COMMENT ...]."""

    source: str
    inputs: TypedColumns | None = None
    output: TypedColumns | None = None
    format: str = "AUTO"
    options: Options = field(default_factory=dict)
    description: Description = Description()


@dataclass(frozen=True, slots=True)
class Training:
    """[PARTITION BY ...] [TRANSFORM (...)] [OPTIONS (...)] [COMMENT ...] AS query.

    `transform` lists items as SQL. The columns of PARTITION BY are the option `partition_by`.
    """

    query: str
    options: Options = field(default_factory=dict)
    transform: tuple[str, ...] | None = None
    description: Description = Description()


@dataclass(frozen=True, slots=True)
class Promotion:
    """PROMOTE IF metric symbol threshold, such as auc >= 0.9; `threshold` is None for CURRENT."""

    metric: str
    symbol: str
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, whose text is `sql`."""

    sql: str


@dataclass(frozen=True, slots=True)
class OfModel(Statement):
    """A statement about a model or one of its versions."""

    name: ModelName


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """A statement of the engine, with or without model calls."""


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN [ANALYZE] query; `mode` is a Spark mode such as COST, or ""."""

    query: str
    analyze: bool
    mode: str = ""


@dataclass(frozen=True, slots=True)
class CreateModel(OfModel):
    """CREATE [OR REPLACE] MODEL [IF NOT EXISTS] m and its artifact."""

    artifact: Artifact
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class TrainModel(OfModel):
    """CREATE [OR REPLACE] MODEL [IF NOT EXISTS] m ... AS query."""

    training: Training
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropModel(OfModel):
    """DROP MODEL [IF EXISTS] m."""

    if_exists: bool = False


class Change:
    """A change in ALTER MODEL."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AddVersion(Change):
    """ADD VERSION [number] and its artifact."""

    artifact: Artifact
    number: int | None = None


@dataclass(frozen=True, slots=True)
class TrainVersion(Change):
    """ADD VERSION [number] ... AS query."""

    training: Training
    number: int | None = None


@dataclass(frozen=True, slots=True)
class RetrainModel(Change):
    """RETRAIN [PARTITION (...)] [PROMOTE IF ...] [AS query], which trains the named version again.

    `partition` maps partition columns to values, or is None to train the whole model.
    """

    query: str | None = None
    promotion: Promotion | None = None
    partition: Options | None = None


@dataclass(frozen=True, slots=True)
class DropPartition(Change):
    """DROP PARTITION (column = value, ...)."""

    partition: Options


@dataclass(frozen=True, slots=True)
class DropVersion(Change):
    """DROP VERSION v."""

    version: ModelName


@dataclass(frozen=True, slots=True)
class SetDefault(Change):
    """SET DEFAULT_VERSION = v."""

    version: ModelName


@dataclass(frozen=True, slots=True)
class SetAlias(Change):
    """SET ALIAS a = v."""

    alias: str
    version: ModelName


@dataclass(frozen=True, slots=True)
class UnsetAlias(Change):
    """UNSET ALIAS a."""

    alias: str


@dataclass(frozen=True, slots=True)
class SetTags(Change):
    """SET TAG k = 'x' [, ...]."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetTags(Change):
    """UNSET TAG k [, ...]."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetOptions(Change):
    """SET OPTIONS (...) of the named version, by default the model's default version."""

    options: Options


@dataclass(frozen=True, slots=True)
class Describe(Change):
    """SET OPTIONS (description = '...', labels = [('tag', 'text'), ...])."""

    description: Description


@dataclass(frozen=True, slots=True)
class ResetOptions(Change):
    """RESET OPTIONS [(name, ...)]; without names, all options are reset."""

    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RenameModel(Change):
    """RENAME TO n."""

    name: str


@dataclass(frozen=True, slots=True)
class AddCascade(Change):
    """ADD CASCADE USING (query) [OPTIONS (...)] to the named or default version."""

    query: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddTopKFilter(Change):
    """ADD TOP_K FILTER USING (query) [OPTIONS (...)] to the named or default version."""

    query: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calibrate(Change):
    """CALIBRATE [USING (query)] [OPTIONS (...)]; without a query, on the held-out rows."""

    query: str | None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropSmallModel(Change):
    """DROP CASCADE, TOP_K FILTER or CALIBRATION of the named or default version."""

    kind: str


@dataclass(frozen=True, slots=True)
class AlterModel(OfModel):
    """ALTER MODEL [IF EXISTS] m and one change."""

    change: Change
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CommentOn(OfModel):
    """COMMENT ON MODEL m IS '...', or NULL."""

    comment: str | None


@dataclass(frozen=True, slots=True)
class ShowModels(Statement):
    """SHOW MODELS [LIKE 'pattern'] [FROM database]."""

    like: str | None = None
    database: str | None = None


@dataclass(frozen=True, slots=True)
class ShowVersions(OfModel):
    """SHOW VERSIONS IN MODEL m."""


@dataclass(frozen=True, slots=True)
class ShowCreate(OfModel):
    """SHOW CREATE MODEL m."""


@dataclass(frozen=True, slots=True)
class DescribeModel(OfModel):
    """DESCRIBE MODEL m."""


@dataclass(frozen=True, slots=True)
class ExplainModel(OfModel):
    """EXPLAIN MODEL m."""


@dataclass(frozen=True, slots=True)
class VerifyModel(OfModel):
    """VERIFY MODEL m USING (query) [AGAINST 'path of the original artifact']."""

    query: str
    against: str | None = None


@dataclass(frozen=True, slots=True)
class OtherDatabase:
    """The other database for which a model is exported as SQL.

    `dialect` is sqlglot's name of the database. `form` is "select", "view" or "function". By
    default, the SQL is a query over `table`, or functions if `table` is None. A query also returns
    `columns`.
    """

    dialect: str
    form: str | None = None
    table: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ExportModel(OfModel):
    """EXPORT MODEL m [PARTITION (...)] TO 'path' (FORMAT ONNX), or (DIALECT postgres, TABLE t).

    `partition` maps partition columns to values, or is None for the whole model. `platform` is
    DuckDB's name of the platform that an extension is for, or None for this one.
    """

    path: str
    format: str | None = None
    database: OtherDatabase | None = None
    platform: str | None = None
    partition: Options | None = None


@dataclass(frozen=True, slots=True)
class ExportModels(Statement):
    """EXPORT MODELS (a, b) TO 'path' (PLATFORM 'linux_arm64'), as one extension."""

    names: tuple[ModelName, ...]
    path: str
    platform: str | None = None


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """SET option = value, such as sqlml_backend = 'torch'; for RESET option, `value` is None."""

    option: str
    value: OptionValue
