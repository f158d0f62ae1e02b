"""`Analysis`: what EXPLAIN ANALYZE measured while a query ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """What one engine function did: `batches` of rows, and seconds on all threads together.

    `again` are the rows among `rows` whose results were remembered.
    """

    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    again: int = 0


@dataclass(frozen=True, slots=True)
class Analysis:
    """A query that ran once: the whole in seconds, and its functions by name.

    `inside` are those of the seconds while one thread at least was in a function. A function that
    is missing was not measured.
    """

    seconds: float
    inside: float
    functions: Mapping[str, Measured]
