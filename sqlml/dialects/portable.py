"""Portable SQL with numbers, strings and CASE only, for translation by sqlglot.

sqlglot parses portable SQL as DuckDB's SQL. A missing number is NULL, since few databases support
NaN. A condition is not a number. Calls are guarded if some databases cannot represent the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlml.dialects.dialect import Dialect
from sqlml.errors import BackendError

MAX_EXPONENT, MIN_EXPONENT = 709.782712893384, -745.1332191019411
"""Bounds on the exponents for which exp is neither infinite nor 0."""

LARGEST = "'1.7976931348623157e+308'::DOUBLE"


class Portable(Dialect):
    """A dialect of SQL that all databases can compute.

    `narrow` converts the SQL of a DOUBLE within the range of FLOAT to SQL that rounds to FLOAT. An
    expression may nest at most `roundings` roundings and `levels` levels of a tree. If
    `has_infinity` is false, the largest DOUBLE represents infinity.
    """

    name = "other databases"
    missing_is_null = True
    has_float32 = False

    def __init__(
        self,
        narrow: Callable[[str], str],
        roundings: int,
        levels: int = 9,
        has_infinity: bool = True,
    ) -> None:
        self._narrow = narrow
        self.roundings = roundings
        self.levels = levels
        self._infinity_comparison = ">" if has_infinity else ">="

    def call(self, name: str, *arguments: str) -> str:
        """Call a function that all databases have, and keep results of exp in the range of DOUBLE.

        >>> Portable(str, 1).call("abs", "x")
        'abs(x)'
        """
        if name == "exp":
            (x,) = arguments
            return (
                f"CASE WHEN {x} > '{MAX_EXPONENT}'::DOUBLE THEN {self.overflow()} "
                f"WHEN {x} < '{MIN_EXPONENT}'::DOUBLE THEN '0.0'::DOUBLE ELSE exp({x}) END"
            )
        if name == "pow":  # In some databases, the result has the type of the base.
            base, power = arguments
            return super().call(name, f"CAST({base} AS DOUBLE)", power)
        return super().call(name, *arguments)

    def array(self, items: Sequence[str]) -> str:
        raise BackendError("lists cannot be written as SQL for other databases")

    def at(self, values: str, position: str | int) -> str:
        return f"{values}[{position}]"

    def is_missing(self, number: str) -> str:
        return f"({number} IS NULL)"

    def missing(self, type: str) -> str:
        return f"CAST(NULL AS {type})"

    def overflow(self, sign: str = "") -> str:
        """Return the result of an overflow, which is NULL in databases without infinity."""
        return f"'{sign}infinity'::DOUBLE"

    def number_of(self, condition: str, type: str) -> str:
        return f"CAST(CASE WHEN {condition} THEN 1 ELSE 0 END AS {type})"

    def rounded(self, number: str) -> str:
        return self._narrow(number)

    def narrowed(self, number: str) -> str:
        return self._narrow(number)

    def error(self, message: str) -> str:
        """Return NULL, since rejected rows are reported in a separate column."""
        return "NULL"

    def is_infinite(self, number: str) -> str:
        return f"(abs({number}) {self._infinity_comparison} {LARGEST})"

    def truncated(self, number: str, type: str) -> str:
        """Truncate a number, or return NULL beyond 64 bits, where some databases fail."""
        return (
            f"CAST(CASE WHEN abs({number}) > 9.2e18::DOUBLE THEN NULL WHEN {number} < 0 "
            f"THEN ceil({number}) ELSE floor({number}) END AS {type})"
        )

    def rounded_to_even(self, number: str) -> str:
        floor = f"floor({number})"
        fraction, even = f"({number} - {floor})", f"(2 * floor(({floor} + 1) / 2.0::DOUBLE))"
        below, above = f"{fraction} < 0.5 THEN {floor}", f"{fraction} > 0.5 THEN {floor} + 1"
        return f"CASE WHEN {below} WHEN {above} ELSE {even} END"

    def bytes(self, text: str) -> str:
        return text  # Other databases compare the bytes of strings.

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        branches = " ".join(f"WHEN {candidate} THEN {k}" for k, candidate in enumerate(texts))
        return f"CASE {text} {branches} ELSE {other} END"
