"""Functions for rows that name their models: which function scores a row, and which kind it is of.

`predict(shop_model, *)` calls one function for all models that take the same columns and give the
same kind of result; the row's name is its first argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.planner.program.function_names import FunctionSpec

NAMED = "sqlml_named_"
"""What the names of such functions begin with. They last as long as the process: a view cannot call
them."""

UNKNOWN = (
    "a row names model {name!r}, which no row did when the query was planned; run the query again"
)


@dataclass(frozen=True, slots=True)
class Scorer:
    """The function of one model, and which of a row's numbers and texts it takes."""

    spec: FunctionSpec
    numbers: tuple[int, ...]
    texts: tuple[int, ...]


@dataclass(frozen=True)
class NamedFunction:
    """What to do with a row, by the name that it gives: refuse it, or call a function.

    Attributes:
        scorers: name -> what scores its rows; all give the same type.
        numbers, texts: how many of them a row has.
        kinds: name -> the number of its kind, where this function only tells kinds apart.
        errors: name -> why its rows cannot be scored.
        nulls: names whose rows have NULL.
        skips_unknown: so have those of any other name; otherwise it is an error.
        by_column: machine code may call it (`Route`).
    """

    scorers: Mapping[str, Scorer] = field(default_factory=lambda: MappingProxyType({}))
    numbers: int = 0
    texts: int = 0
    kinds: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, SqlmlError] = field(default_factory=lambda: MappingProxyType({}))
    nulls: frozenset[str] = frozenset()
    skips_unknown: bool = False
    by_column: bool = False

    @cached_property
    def name(self) -> str:
        """The function's own name in the engine, which is another for other names of models."""
        told = [
            sorted((n, s.spec.name, s.numbers, s.texts) for n, s in self.scorers.items()),
            (self.numbers, self.texts),
            sorted(self.kinds.items()),
            sorted((name, type(e).__name__, e.message) for name, e in self.errors.items()),
            (sorted(self.nulls), self.skips_unknown, self.by_column),
        ]
        return NAMED + hashlib.sha256(repr(told).encode()).hexdigest()[:24]

    @property
    def example(self) -> FunctionSpec | None:
        """One of the functions, which gives what all give; None where it only tells kinds."""
        return next((scorer.spec for scorer in self.scorers.values()), None)

    def error(self, name: str) -> SqlmlError | None:
        """Why a row of this name cannot be scored; None: it has NULL."""
        known = self.errors.get(name)
        if known is not None or self.skips_unknown or name in self.nulls:
            return known
        return UnknownModelError(UNKNOWN.format(name=name))


# `Route`: the way of rows from the engine to the function that scores, and back.
#
# Machine code that the engine calls by itself takes the columns where they lie. Arrow hands
# batches to Python, whose lock one thread holds at a time.


@dataclass(frozen=True, slots=True)
class Route:
    """How rows reach a function.

    Attributes:
        by_column: machine code takes the columns, an argument each; else they come by Arrow.
        python: why Python is called for each batch all the same; None if it is not.
    """

    by_column: bool
    python: str | None

    @property
    def name(self) -> str:
        """
        >>> [Route(True, None).name, Route(True, "..").name, Route(False, "..").name]
        ['native', 'native with python', 'arrow']
        """
        if not self.by_column:
            return "arrow"
        return "native" if self.python is None else "native with python"

    @property
    def is_for_now(self) -> bool:
        """Whether there soon is a better one, when kernels are compiled."""
        return self.python == COMPILING

    def __str__(self) -> str:
        if not self.by_column:
            return f"Arrow and Python: {self.python}"
        if self.python is None:
            return "native, without Python"
        return f"native, but Python scores the packed rows: {self.python}"


COMPILING = "its kernels are being compiled, once on this machine"
"""A reason that soon goes away."""

ARROW = Route(False, "this engine has no other route")
