"""Functions that score each row with the model that it names, and the routes of rows to functions.

`predict(shop_model, *)` calls one function for all models that have the same columns and the same
kind of result. Its first argument is the name of the row's model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.planner.program.function_names import FunctionSpec

NAMED_PREFIX = "sqlml_named_"
"""The prefix of the names of such functions, which views cannot call: they end with the process."""

UNKNOWN = (
    "a row names model {name!r}, which no row did when the query was planned; run the query again"
)


@dataclass(frozen=True, slots=True)
class ModelScorer:
    """The function of one model, and the indices of the row's numbers and texts that it takes."""

    spec: FunctionSpec
    numbers: tuple[int, ...]
    texts: tuple[int, ...]


@dataclass(frozen=True)
class NamedFunction:
    """A function that calls another one for each row, or rejects the row, by the name of its model.

    Attributes:
        scorers: name of a model -> function of its rows; all have the same type.
        numbers, texts: the number of each in a row.
        kinds: name of a model -> number of its group, if the function only returns this number.
        errors: name of a model -> error for its rows.
        nulls: names of models whose rows have NULL as a result.
        skips_unknown: unknown names have NULL as a result; otherwise they are an error.
        by_column: rows reach the function as columns (`Route`).
    """

    scorers: Mapping[str, ModelScorer] = field(default_factory=lambda: MappingProxyType({}))
    numbers: int = 0
    texts: int = 0
    groups: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, SqlmlError] = field(default_factory=lambda: MappingProxyType({}))
    nulls: frozenset[str] = frozenset()
    skips_unknown: bool = False
    by_column: bool = False

    @cached_property
    def name(self) -> str:
        """The function's name in the engine, which depends on all of its fields."""
        identity = [
            sorted((n, s.spec.name, s.numbers, s.texts) for n, s in self.scorers.items()),
            (self.numbers, self.texts),
            sorted(self.groups.items()),
            sorted((name, type(e).__name__, e.message) for name, e in self.errors.items()),
            (sorted(self.nulls), self.skips_unknown, self.by_column),
        ]
        return NAMED_PREFIX + hashlib.sha256(repr(identity).encode()).hexdigest()[:24]

    @property
    def example(self) -> FunctionSpec | None:
        """One of the functions, whose type is that of all; None if it only returns groups."""
        return next((scorer.spec for scorer in self.scorers.values()), None)

    def find_error(self, name: str) -> SqlmlError | None:
        """Return the error for rows of a name that has no scorer; None if their result is NULL."""
        error = self.errors.get(name)
        if error is not None or self.skips_unknown or name in self.nulls:
            return error
        return UnknownModelError(UNKNOWN.format(name=name))


@dataclass(frozen=True, slots=True)
class Route:
    """The way of rows from the engine to a function, and back.

    Machine code that the engine calls reads the columns in place. Arrow passes batches to Python,
    whose lock only one thread holds at a time.

    Attributes:
        by_column: machine code takes each column as an argument; otherwise rows come by Arrow.
        python_reason: the reason why machine code calls Python for each batch; None if it does not.
    """

    by_column: bool
    python_reason: str | None

    @property
    def name(self) -> str:
        """
        >>> [Route(True, None).name, Route(True, "..").name, Route(False, "..").name]
        ['native', 'native with python', 'arrow']
        """
        if not self.by_column:
            return "arrow"
        return "native" if self.python_reason is None else "native with python"

    @property
    def is_temporary(self) -> bool:
        """True if there will be a better route when kernels are compiled."""
        return self.python_reason == COMPILING

    def __str__(self) -> str:
        if not self.by_column:
            return f"Arrow and Python: {self.python_reason}"
        if self.python_reason is None:
            return "native, without Python"
        return f"native, but Python scores the packed rows: {self.python_reason}"


COMPILING = "its kernels are being compiled, once on this machine"
"""A reason that is temporary."""

ARROW = Route(False, "this engine has no other route")
