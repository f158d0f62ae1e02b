"""`Portable`: SQL of numbers, texts and CASE alone, which sqlglot turns into other databases'.

It is read as DuckDB's. A missing number is NULL, since few databases know NaN; a condition is no
number; and a function whose result some databases refuse to represent is kept from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlml.dialects.base import Dialect
from sqlml.errors import BackendError

MOST_POWER, LEAST_POWER = 709.782712893384, -745.1332191019411
"""The greatest and the least number whose power of e is a DOUBLE other than infinity and 0."""

LARGEST = "'1.7976931348623157e+308'::DOUBLE"


class Portable(Dialect):
    """What all databases can compute.

    Args:
        narrow: a DOUBLE within the range of FLOAT -> the same rounded to a FLOAT, as a DOUBLE.
        roundings: how often such a result may stand in the next one, in one expression.
        levels: of a tree in one expression.
        has_infinity: whether there are infinite numbers; without, the greatest number is one.
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
        self._above = ">" if has_infinity else ">="

    def call(self, name: str, *arguments: str) -> str:
        """A function that all databases have; exp does not leave the range of DOUBLE.

        >>> Portable(str, 1).call("abs", "x")
        'abs(x)'
        """
        if name == "exp":
            (x,) = arguments
            return (
                f"CASE WHEN {x} > '{MOST_POWER}'::DOUBLE THEN {self.overflow()} "
                f"WHEN {x} < '{LEAST_POWER}'::DOUBLE THEN '0.0'::DOUBLE ELSE exp({x}) END"
            )
        if name == "pow":  # some databases give the result the type of the base
            base, power = arguments
            return super().call(name, f"CAST({base} AS DOUBLE)", power)
        return super().call(name, *arguments)

    def array(self, items: Sequence[str]) -> str:
        raise BackendError("a list is not printed as SQL of other databases")

    def at(self, values: str, place: str | int) -> str:
        return f"{values}[{place}]"

    def is_missing(self, number: str) -> str:
        return f"({number} IS NULL)"

    def missing(self, type: str) -> str:
        return f"CAST(NULL AS {type})"

    def overflow(self, sign: str = "") -> str:
        """Told from an infinity among a model's constants, which databases without have to order:
        of what overflows, they have NULL."""
        return f"'{sign}infinity'::DOUBLE"

    def number_of(self, condition: str, type: str) -> str:
        return f"CAST(CASE WHEN {condition} THEN 1 ELSE 0 END AS {type})"

    def rounded(self, number: str) -> str:
        return self._narrow(number)

    def narrowed(self, number: str) -> str:
        return self._narrow(number)

    def error(self, message: str) -> str:
        """What a model refuses is told beside the value."""
        return "NULL"

    def is_infinite(self, number: str) -> str:
        return f"(abs({number}) {self._above} {LARGEST})"

    def truncated(self, number: str, type: str) -> str:
        """Missing beyond the range of 64 bits, where some databases raise an error."""
        return (
            f"CAST(CASE WHEN abs({number}) > 9.2e18::DOUBLE THEN NULL WHEN {number} < 0 "
            f"THEN ceil({number}) ELSE floor({number}) END AS {type})"
        )

    def rounded_to_even(self, number: str) -> str:
        low = f"floor({number})"
        rest, even = f"({number} - {low})", f"(2 * floor(({low} + 1) / 2.0::DOUBLE))"
        return f"CASE WHEN {rest} < 0.5 THEN {low} WHEN {rest} > 0.5 THEN {low} + 1 ELSE {even} END"

    def bytes(self, text: str) -> str:
        """Texts are compared as bytes as they come."""
        return text

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        whens = " ".join(f"WHEN {known} THEN {k}" for k, known in enumerate(texts))
        return f"CASE {text} {whens} ELSE {other} END"
