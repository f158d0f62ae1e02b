"""`Model`: one version of a registered model, as the catalog knows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.errors import UnknownModelError
from sqlml.ir.program import Program
from sqlml.types import Feature


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A name and version bound to one Program, with its table and where it came from.

    `features` has every column of the training table in order; those of kind "any" are never
    read. `options` are the OPTIONS that it was created with.
    """

    name: str
    version: int
    program: Program
    features: tuple[Feature, ...]
    source: str
    library: str
    options: Mapping[str, Any]
    comment: str | None
    created_at: Any
    database: str | None = None

    @property
    def label(self) -> str:
        """Name and version as EXPLAIN and errors show them."""
        return f"{self.name} (version {self.version})"


_REFERENCE = re.compile(
    r"(?:(?P<database>[^.@/]+)\.)?(?P<name>[^.@/]+)(?:/(?P<number>\d+)|@(?P<alias>\w+))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """What the first argument of a call says: `[database.]name[/number|@alias]`."""

    name: str
    database: str | None = None
    version: int | None = None
    alias: str | None = None


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
    return Reference(
        match["name"], match["database"], None if number is None else int(number), match["alias"]
    )
