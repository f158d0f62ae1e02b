"""A statement's parameters: `?`, `$1` and `$name`, and what planning does to them.

A parameter that names a model is used up by the plan; the others stay the engine's. In probes
they are replaced by short values or NULLs of their types, since a probe has only some of them.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.front.lexer import Token, tokenize
from sqlml.types import fold

_TYPES: tuple[tuple[Any, str], ...] = (
    (bool, "BOOLEAN"),
    (int, "BIGINT"),
    (float, "DOUBLE"),
    (str, "VARCHAR"),
    (decimal.Decimal, "DECIMAL(38, 9)"),
    (datetime.datetime, "TIMESTAMP"),
    (datetime.date, "DATE"),
    (bytes, "BLOB"),
)

TypeOf = Callable[[Any], str | None]
"""A value -> the type that the engine gives to it; None where it takes no such value."""


def _no_type(value: Any) -> str | None:
    return None


class Parameters:
    """The parameter tokens of a statement together with the values given for them.

    `type_of` is asked about lists, dicts and the like.
    """

    def __init__(self, tokens: Sequence[Token], values: Any, type_of: TypeOf = _no_type) -> None:
        self._tokens = tokens
        self._values = values
        self._type_of = type_of
        self._used_up: set[int] = set()
        self._place: dict[int, str | int] = {}
        position = 0
        for i, token in enumerate(tokens):
            if token.kind != "param":
                continue
            if token.text == "?":
                self._place[i] = position
                position += 1
            elif token.text[1:].isdigit():
                self._place[i] = int(token.text[1:]) - 1
            else:
                self._place[i] = token.text[1:]

    def value(self, index: int) -> tuple[Any] | None:
        """The value for the parameter token at `index`, in a 1-tuple; None when none is given."""
        key = self._place[index]
        if isinstance(key, str) and isinstance(self._values, Mapping):
            folded = {fold(str(k)): v for k, v in self._values.items()}
            return (folded[fold(key)],) if fold(key) in folded else None
        if isinstance(key, int) and isinstance(self._values, Sequence):
            return (self._values[key],) if key < len(self._values) else None
        return None

    def text(self, index: int) -> str | None:
        """The value for the parameter token at `index` when it is a text."""
        found = self.value(index)
        return found[0] if found is not None and isinstance(found[0], str) else None

    def use_up(self, index: int) -> None:
        """The plan has the parameter's value in it; the engine gets it no more."""
        if index in self._place:
            self._used_up.add(index)

    def literal(self, start: int, end: int) -> tuple[Any] | None:
        """The value of tokens[start:end] when it is a literal or a given parameter."""
        token = self._tokens[start]
        if end - start == 2 and token.is_symbol("-") and self._tokens[start + 1].kind == "number":
            return (-_number(self._tokens[start + 1].text),)
        if end - start != 1:
            return None
        if token.kind == "param":
            found = self.value(start)
            if found is not None:
                self._used_up.add(start)
            return found
        if token.kind == "string":
            return (token.text,)
        if token.kind == "number":
            return (_number(token.text),)
        if token.upper in ("TRUE", "FALSE"):
            return (token.upper == "TRUE",)
        return None

    def as_nulls(self) -> dict[int, str]:
        """Token index -> what stands for it in probes: a NULL of the value's type.

        A short text or a number stands for itself, since `FROM read_csv(?)` takes no NULL.
        """
        return {i: self._stand_in(i) for i in self._place}

    def untyped(self) -> frozenset[int]:
        """The parameter tokens whose value, being NULL or absent, tells no type."""
        return frozenset(i for i in self._place if self._stand_in(i) == "NULL")

    def _stand_in(self, index: int) -> str:
        found = self.value(index)
        if found is None or found[0] is None:
            return "NULL"
        value = found[0]
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a scalar of numpy
            value = value.item()
        for python, name in _TYPES:
            if isinstance(value, python):
                return f"CAST({_short(value)} AS {name})"
        kind = self._type_of(_sample(value))
        return "NULL" if kind is None else f"CAST(NULL AS {kind})"

    def remaining(self) -> tuple[tuple[int, ...] | None, frozenset[str]]:
        """Indices of positional values that the engine still gets, and names that it does not."""
        if not self._used_up:
            return None, frozenset()
        kept = {self._place[i] for i in self._place if i not in self._used_up}
        gone = {self._place[i] for i in self._used_up} - kept
        names = frozenset(fold(str(k)) for k in gone if isinstance(k, str))
        if isinstance(self._values, Mapping):
            return None, names
        count = len(self._values) if isinstance(self._values, Sequence) else 0
        return tuple(k for k in range(count) if k not in gone), names

    def fitted(self, sql: str) -> tuple[str, tuple[int, ...] | None, frozenset[str]]:
        """The rewritten text `sql`, and what `remaining` says, without parameters that it lost.

        An argument for a feature that the model does not read is left out, and an engine refuses
        more values than a statement has parameters.
        """
        rest, gone = self.remaining()
        tokens = [t for t in tokenize(sql) if t.kind == "param"]
        held = {fold(t.text[1:]) for t in tokens}
        if isinstance(self._values, Mapping):
            lost = {fold(str(k)) for k in self._place.values()} - held
            return sql, rest, gone | lost
        count = len(self._values) if isinstance(self._values, Sequence) else 0
        kept = list(rest if rest is not None else range(count))
        lost_places = [
            n for n, k in enumerate(kept, 1) if k in self._place.values() and str(n) not in held
        ]
        if not lost_places or any(t.text == "?" for t in tokens):
            return sql, rest, gone
        left = [n for n in range(1, len(kept) + 1) if n not in lost_places]
        number = {str(old): new for new, old in enumerate(left, 1)}
        for t in reversed(tokens):
            sql = f"{sql[: t.start]}${number[t.text[1:]]}{sql[t.end :]}"
        return sql, tuple(kept[n - 1] for n in left), gone

    def renumbered(self, inside: bool) -> dict[int, str]:
        """Token index -> new text of the positional parameters that remain.

        `$n` move up when one before them is used up. `?` become `$n` when one stands `inside` a
        call, since a call's arguments may change their order.
        """
        rest, _ = self.remaining()
        if isinstance(self._values, Mapping) or (rest is None and not inside):
            return {}
        kept = rest
        if kept is None:
            kept = tuple(sorted({k for k in self._place.values() if isinstance(k, int)}))
        place = {old: new for new, old in enumerate(kept)}
        return {
            i: f"${place[key] + 1}"
            for i, key in self._place.items()
            if isinstance(key, int)
            and key in place
            and i not in self._used_up
            and (inside or self._tokens[i].text != "?")
        }


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else float(digits)


def _sample(value: Any) -> Any:
    """A value of the same type, which may be shorter: a list of all kinds is as it is.

    >>> _sample([0.5] * 9), _sample([3, 1, 2]), _sample([1, 0.5])
    ([0.5], [1, 3], [1, 0.5])
    """
    if not isinstance(value, list | tuple) or not value:
        return value
    kinds = set(map(type, value))
    if kinds <= {float} or kinds <= {str}:
        return value[:1]
    return [min(value), max(value)] if kinds == {int} else value


def _short(value: Any) -> str:
    """A short text or a whole number as a literal; NULL for other values.

    >>> _short("it's"), _short(True), _short(2**70), _short(0.5)
    ("'it''s'", 'True', 'NULL', 'NULL')
    """
    if isinstance(value, str) and len(value) < 200 and value.isprintable():
        return DUCKDB.quote_string(value)
    return str(value) if isinstance(value, int) and abs(value) < 1 << 63 else "NULL"
