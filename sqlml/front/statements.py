"""The statements of the SQL surface, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

OptionValue = str | int | float | bool | None | tuple[Any, ...]
Options = Mapping[str, OptionValue]


@dataclass(frozen=True, slots=True)
class ModelName:
    """`[database.]name`; database None means the connection's current one."""

    name: str
    database: str | None = None

    def __str__(self) -> str:
        return self.name if self.database is None else f"{self.database}.{self.name}"


@dataclass(frozen=True, slots=True)
class Query:
    """A statement of the engine; it may or may not call models."""

    sql: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN [ANALYZE] of a query that calls models. `query` starts at `offset` of the text."""

    sql: str
    query: str
    analyze: bool


@dataclass(frozen=True, slots=True)
class CreateModel:
    """CREATE [OR REPLACE] MODEL [IF NOT EXISTS] m [INPUT ..] [OUTPUT ..] FROM 'path' ..."""

    sql: str
    name: ModelName
    source: str
    or_replace: bool = False
    if_not_exists: bool = False
    inputs: tuple[tuple[str, str], ...] | None = None
    output: tuple[tuple[str, str], ...] | None = None
    format: str = "AUTO"
    options: Options = field(default_factory=lambda: MappingProxyType({}))
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DropModel:
    """DROP MODEL [IF EXISTS] m."""

    sql: str
    name: ModelName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowModels:
    """SHOW MODELS [LIKE 'pattern']."""

    sql: str
    like: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """DESCRIBE MODEL m."""

    sql: str
    name: ModelName


@dataclass(frozen=True, slots=True)
class ExportModel:
    """EXPORT MODEL name TO 'path' FORMAT ONNX; `format` is None where the path's ending says it."""

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

    `what` is its name as an error shows it, e.g. "ALTER MODEL .. ADD VERSION"; `details` are
    the parts that the grammar found.
    """

    sql: str
    what: str
    name: ModelName | None = None
    details: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


Statement = (
    Query
    | Explain
    | CreateModel
    | DropModel
    | ShowModels
    | DescribeModel
    | ExportModel
    | SetOption
    | Reserved
)
