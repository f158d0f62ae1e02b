"""`Dialect`: what engines spell differently of the SQL that sqlml writes.

Types are named as DuckDB names them everywhere in sqlml; `type` gives the engine's own spelling.
Places in lists count from 1. What all engines spell alike (CASE, CAST, coalesce, comparisons,
`'0.5'::DOUBLE`) is written where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Dialect(Protocol):
    """One engine's SQL. Arguments and results are SQL text, but for names."""

    @property
    def name(self) -> str:
        """The name of the engine's SQL, as sqlglot calls it."""
        ...

    @property
    def lazy_calls(self) -> bool:
        """Whether a function is called only for rows whose branch of a CASE calls it."""
        ...

    @property
    def calls_in_lambdas(self) -> bool:
        """Whether a function that scores may be called inside a lambda."""
        ...

    @property
    def outputs_first(self) -> bool:
        """Whether a name in an expression of ORDER BY means a select item before a column."""
        ...

    @property
    def copies_rows(self) -> bool:
        """Whether all columns of a row are copied for a function, and filters that need not be
        evaluated behind it are not evaluated before.
        """
        ...

    def quote_name(self, name: str) -> str:
        """A name as a quoted identifier."""
        ...

    def quote_string(self, text: str) -> str:
        """A text in quotes, as statements have it."""
        ...

    def text(self, text: str) -> str:
        """A text as a value, which is the same under all settings of the engine."""
        ...

    def type(self, name: str) -> str:
        """A type, such as `MAP(VARCHAR, DOUBLE)`."""
        ...

    def call(self, name: str, *arguments: str) -> str:
        """A function of the engine's own, which no function of a database's can stand in for."""
        ...

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Two operands of an operator that computes: + - * / and || (none that compares)."""
        ...

    def negated(self, number: str) -> str:
        """A number with the other sign."""
        ...

    def total(self, terms: Sequence[str]) -> str:
        """The sum of numbers from left to right."""
        ...

    def scorer(self, name: str) -> str:
        """A function that scores, as it is called."""
        ...

    def array(self, items: Sequence[str]) -> str:
        """A list of values."""
        ...

    def texts(self, texts: Sequence[str]) -> str:
        """A list of texts, none of which has a NUL character."""
        ...

    def at(self, values: str, place: str | int) -> str:
        """The element of a list at a place."""
        ...

    def part(self, values: str, first: int, last: int) -> str:
        """The elements of a list from one place to another."""
        ...

    def pick(self, values: str, places: str) -> str:
        """The elements of a list at the places that another list holds."""
        ...

    def value_at(self, values: str, key: str) -> str:
        """The value of a map at a key; NULL where it has none."""
        ...

    def map(self, keys: str, values: str) -> str:
        """A map of two lists."""
        ...

    def struct(self, fields: Mapping[str, str]) -> str:
        """A struct of plain names and their values."""
        ...

    def row(self, values: str) -> str:
        """A struct of values, one behind the other, whose names do not matter."""
        ...

    def field(self, value: str, name: str) -> str:
        """The field of a struct."""
        ...

    def member(self, name: str, field: str) -> str:
        """The field of a struct for which a plain name stands, inside `let` and `each`."""
        ...

    def let(self, name: str, value: str, body: str) -> str:
        """`body`, in which the plain `name` stands for `value`, which is evaluated once."""
        ...

    def each(self, values: str, name: str, body: str) -> str:
        """A list with `body` for each value, for which the plain `name` stands."""
        ...

    def error(self, message: str) -> str:
        """What fails with a message, an expression, when it is evaluated."""
        ...

    def is_finite(self, number: str) -> str:
        """Whether a number is no infinity, no NaN and not NULL; NULL of NULL."""
        ...

    def bytes(self, text: str) -> str:
        """The bytes of a text in UTF-8."""
        ...

    def json(self, value: str, type: str) -> str:
        """The JSON of a list, map or struct of a type as DuckDB spells it, as Python's json reads

        it back; NULL of NULL.
        """
        ...

    def shown(self, sql: str) -> str:
        """SQL that we wrote as a message shows it: functions by the names that users know."""
        ...

    def first(self, values: str) -> str:
        """The first element of a list, as a message advises it."""
        ...

    def sum(self, values: str) -> str:
        """The sum of a list of numbers, as a message advises it."""
        ...

    def seconds(self, time: str) -> str:
        """A point in time as seconds since 1970, as a message advises it."""
        ...

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        """The place of a text among different ones, from 0; `other` where it is NULL or not there.

        `other` is evaluated for such texts alone.
        """
        ...

    def number_arguments(self, numbers: Sequence[str], kind: str) -> str:
        """Numbers of one type as arguments of a function that scores: one for all, or one each."""
        ...

    def packed_arguments(self, name: str) -> str:
        """What a column, `name`, that holds such numbers is as an argument."""
        ...

    def text_arguments(self, texts: Sequence[str]) -> str:
        """Texts as arguments of such a function: one for all, or one each."""
        ...

    def returned(self, type: str) -> str:
        """The type of what a function that scores returns, of values of a type."""
        ...

    def value_of(self, call: str) -> str:
        """The value in what a function that scores returned."""
        ...

    def checked(self, call: str, value: str) -> str:
        """`value`, which is made of that; or the error that it has in place of a value."""
        ...

    def is_infinite(self, number: str) -> str:
        """Whether a number is an infinity; NULL of NULL."""
        ...

    def truncated(self, number: str, type: str) -> str:
        """A number without its fraction as a whole one."""
        ...

    def rounded_to_even(self, number: str) -> str:
        """A number rounded to a whole one of its own type, halves to the even one."""
        ...

    def place_of_greatest(self, values: str) -> str:
        """The first place of the greatest number of a list."""
        ...

    def divided(self, a: str, b: str, kind: str) -> str:
        """A quotient of two numbers of one type, in that type."""
        ...

    def star_without(self, names: Sequence[str]) -> str:
        """All columns but those of some quoted names."""
        ...
