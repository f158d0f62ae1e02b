"""A statement's parameters: `?`, `$1` and `$name`, and what planning does to them.

A parameter that names a model is used up by the plan; the others stay the engine's. In probes
they are replaced by short values or NULLs of their types, since a probe has only some of them.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.errors import ParseError
from sqlml.parsing.places import Span
from sqlml.planner.syntax.arguments import parameters_of
from sqlml.planner.syntax.outline import Argument, Parameter
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

_PLAIN: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}

TypeOf = Callable[[Any], str | None]
"""A value -> the type that the engine gives to it; None if it does not take such a value."""


def _no_type(value: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Parameters:
    """The parameters of a statement together with the values given for them.

    `type_of` is asked about lists, dicts and the like. `used_up` are those whose values the plan
    has in it: the engine gets them no more.
    """

    parameters: Sequence[Parameter]
    values: Any
    type_of: TypeOf = _no_type
    used_up: frozenset[Parameter] = frozenset()

    @cached_property
    def _place(self) -> Mapping[Parameter, str | int]:
        """The index or the name of each parameter's value."""
        place: dict[Parameter, str | int] = {}
        position = 0
        for parameter in self.parameters:
            if parameter.text == "?":
                place[parameter] = position
                position += 1
            elif parameter.text[1:].isdigit():
                place[parameter] = int(parameter.text[1:]) - 1
            else:
                place[parameter] = parameter.text[1:]
        return place

    @cached_property
    def _folded(self) -> Mapping[str, Any]:
        """The values by their folded names."""
        return {fold(str(name)): value for name, value in self.values.items()}

    def using(self, parameters: Iterable[Parameter]) -> Parameters:
        """These, of which the plan has the values of `parameters` in it, too."""
        used_up = self.used_up.union(parameters)
        return self if used_up == self.used_up else replace(self, used_up=used_up)

    def value(self, parameter: Parameter) -> tuple[Any] | None:
        """The value for a parameter, in a 1-tuple; None when none is given."""
        key = self._place[parameter]
        if isinstance(key, str) and isinstance(self.values, Mapping):
            return (self._folded[fold(key)],) if fold(key) in self._folded else None
        if isinstance(key, int) and isinstance(self.values, Sequence):
            return (self.values[key],) if key < len(self.values) else None
        return None

    def place(self, parameter: Parameter) -> str | int:
        """The index or the name of a parameter's value."""
        return self._place[parameter]

    def text(self, parameter: Parameter) -> str | None:
        """The value for a parameter when it is a text."""
        found = self.value(parameter)
        return found[0] if found is not None and isinstance(found[0], str) else None

    def literal(self, argument: Argument) -> tuple[Any] | None:
        """The value of an argument that is a literal or a given parameter."""
        if argument.parameter is not None:
            return self.value(argument.parameter)
        literal = argument.literal
        if literal is None or literal.text == "NULL" and literal.kind == "word":
            return None
        if literal.kind == "number":
            value = _number(literal.text)
            return (-value if literal.negative else value,)
        return (literal.text if literal.kind == "string" else literal.text == "TRUE",)

    def as_nulls(self) -> dict[Span, str]:
        """Place -> what stands for a parameter in probes: a NULL of the value's type.

        A short text or a number stands for itself, since `FROM read_csv(?)` does not take NULL.
        """
        return dict(self._stand_ins)

    @cached_property
    def _stand_ins(self) -> Mapping[Span, str]:
        return {parameter.span: self._stand_in(parameter) for parameter in self._place}

    def untyped(self) -> frozenset[Span]:
        """The places of parameters whose value, being NULL or absent, tells no type."""
        return self._untyped

    @cached_property
    def _untyped(self) -> frozenset[Span]:
        return frozenset(place for place, text in self._stand_ins.items() if text == "NULL")

    @cached_property
    def types(self) -> Mapping[Span, str]:
        """Place -> type of the parameters whose values are plain numbers, truths or texts."""
        made = {}
        for parameter in self._place:
            found = self.value(parameter)
            kind = _PLAIN.get(type(found[0])) if found is not None else None
            if kind is not None:
                made[parameter.span] = kind
        return made

    def _stand_in(self, parameter: Parameter) -> str:
        found = self.value(parameter)
        if found is None or found[0] is None:
            return "NULL"
        value = found[0]
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a scalar of numpy
            value = value.item()
        for python, name in _TYPES:
            if isinstance(value, python):
                return f"CAST({_short(value)} AS {name})"
        kind = self.type_of(_sample(value))
        return "NULL" if kind is None else f"CAST(NULL AS {kind})"

    def remaining(self) -> tuple[tuple[int, ...] | None, frozenset[str]]:
        """Indices of positional values that the engine still gets, and names that it does not."""
        if not self.used_up:
            return None, frozenset()
        kept = {self._place[i] for i in self._place if i not in self.used_up}
        gone = {self._place[i] for i in self.used_up} - kept
        names = frozenset(fold(str(k)) for k in gone if isinstance(k, str))
        if isinstance(self.values, Mapping):
            return None, names
        count = len(self.values) if isinstance(self.values, Sequence) else 0
        return tuple(k for k in range(count) if k not in gone), names

    def fitted(self, sql: str) -> tuple[str, tuple[int, ...] | None, frozenset[str]]:
        """The rewritten text `sql`, and what `remaining` says, without parameters that it lost.

        An argument for a feature that the model does not read is left out, and an engine refuses
        more values than a statement has parameters.
        """
        rest, gone = self.remaining()
        written = parameters_of(sql)
        held = {fold(p.text[1:]) for p in written}
        if isinstance(self.values, Mapping):
            lost = {fold(str(k)) for k in self._place.values()} - held
            return sql, rest, gone | lost
        count = len(self.values) if isinstance(self.values, Sequence) else 0
        kept = list(rest if rest is not None else range(count))
        lost_places = [
            n for n, k in enumerate(kept, 1) if k in self._place.values() and str(n) not in held
        ]
        if not lost_places or any(p.text == "?" for p in written):
            return sql, rest, gone
        left = [n for n in range(1, len(kept) + 1) if n not in lost_places]
        number = {str(old): new for new, old in enumerate(left, 1)}
        for p in reversed(written):
            sql = f"{sql[: p.span.start]}${number[p.text[1:]]}{sql[p.span.end :]}"
        return sql, tuple(kept[n - 1] for n in left), gone

    def renumbered(self, inside: bool) -> dict[Span, str]:
        """Place -> new text of the positional parameters that remain.

        `$n` move up when one before them is used up. `?` become `$n` when one stands `inside` a
        call, since a call's arguments may change their order.
        """
        rest, _ = self.remaining()
        if isinstance(self.values, Mapping) or (rest is None and not inside):
            return {}
        kept = rest
        if kept is None:
            kept = tuple(sorted({k for k in self._place.values() if isinstance(k, int)}))
        place = {old: new for new, old in enumerate(kept)}
        return {
            p.span: f"${place[key] + 1}"
            for p, key in self._place.items()
            if isinstance(key, int)
            and key in place
            and p not in self.used_up
            and (inside or p.text != "?")
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
    """A short text or an integer as a literal; NULL for other values.

    >>> _short("it's"), _short(True), _short(2**70), _short(0.5)
    ("'it''s'", 'True', 'NULL', 'NULL')
    """
    if isinstance(value, str) and len(value) < 200 and value.isprintable():
        return DUCKDB.quote_string(value)
    return str(value) if isinstance(value, int) and abs(value) < 1 << 63 else "NULL"


# `with_values`: a query with the values of its parameters written out, to be kept as a text.


def with_values(sql: str, values: Any, literal: Callable[[Any], str]) -> str:
    """The query without parameters.

    Args:
        values: a sequence for `?` and `$1`, a mapping for `$name`.
        literal: a value as SQL writes it.

    >>> with_values("SELECT * FROM t WHERE a < ? AND b = ?", [3, 4], str)
    'SELECT * FROM t WHERE a < 3 AND b = 4'

    Raises:
        ParseError: a parameter has no value, or there are more values than parameters.
    """
    written = parameters_of(sql)
    given = Parameters(written, values)
    made, end, used = [], 0, set()
    for parameter in written:
        found = given.value(parameter)
        if found is None:
            raise ParseError(
                f"no value is given for parameter {parameter.text}", sql, parameter.span.start
            )
        used.add(given.place(parameter))
        made += [sql[end : parameter.span.start], literal(found[0])]
        end = parameter.span.end
    if isinstance(values, Sequence | Mapping) and len(values) > len(used):
        values_are = "1 value is" if len(values) == 1 else f"{len(values)} values are"
        parameters = "no parameter" if not used else f"{len(used)} parameters"
        parameters = "1 parameter" if len(used) == 1 else parameters
        raise ParseError(f"{values_are} given for {parameters}")
    return "".join([*made, sql[end:]])
