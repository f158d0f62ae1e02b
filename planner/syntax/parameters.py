"""The parameters of a statement (`?`, `$1`, `$name`) and their values.

Planning consumes a parameter that names a model. The engine still gets all other parameters. Probes
replace parameters with short values or typed NULLs, since a probe contains only some parameters.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.errors import ParseError
from sqlml.parsing.places import Span
from sqlml.planner.syntax.arguments import find_parameters
from sqlml.planner.syntax.outline import Argument, Parameter
from sqlml.planner.syntax.table_forms import read_number
from sqlml.types import fold

_PLAIN_TYPES: Mapping[type, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}

_TYPES: Mapping[type, str] = {
    **_PLAIN_TYPES,
    decimal.Decimal: "DECIMAL(38, 9)",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    bytes: "BLOB",
}
"""Python type -> SQL type of its values. A subclass comes before its base class."""

EngineTypeOf = Callable[[Any], str | None]
"""A function that returns a value's type in the engine, or None if the engine rejects the value."""


@dataclass(frozen=True)
class Parameters:
    """The parameters of a statement and their values.

    Attributes:
        values: a sequence of values for `?` and `$1`, or a mapping for `$name`.
        type_of: returns the engine's type for a value such as a list or dict.
        consumed: parameters whose values are part of the plan, so the engine does not get them.
    """

    parameters: Sequence[Parameter]
    values: Any
    type_of: EngineTypeOf = lambda _: None
    consumed: frozenset[Parameter] = frozenset()

    @cached_property
    def keys(self) -> Mapping[Parameter, str | int]:
        """The index or the name of each parameter's value."""
        keys: dict[Parameter, str | int] = {}
        positions = count()
        for parameter in self.parameters:
            name = parameter.text[1:]
            if parameter.text == "?":
                keys[parameter] = next(positions)
            else:
                keys[parameter] = int(name) - 1 if name.isdigit() else name
        return keys

    @cached_property
    def _values_by_folded_name(self) -> Mapping[str, Any]:
        return {fold(str(name)): value for name, value in self.values.items()}

    @property
    def _positional_count(self) -> int:
        return len(self.values) if isinstance(self.values, Sequence) else 0

    def consume(self, parameters: Iterable[Parameter]) -> Parameters:
        """Return a copy in which `parameters` are also marked as consumed by the plan."""
        consumed = self.consumed.union(parameters)
        return self if consumed == self.consumed else replace(self, consumed=consumed)

    def find_value(self, parameter: Parameter) -> tuple[Any] | None:
        """Return the value of a parameter in a 1-tuple, or None if the parameter has no value."""
        key = self.keys[parameter]
        if isinstance(key, str) and isinstance(self.values, Mapping):
            values = self._values_by_folded_name
            return (values[fold(key)],) if fold(key) in values else None
        if isinstance(key, int) and key < self._positional_count:
            return (self.values[key],)
        return None

    def find_text(self, parameter: Parameter) -> str | None:
        """Return the value of a parameter if the value is a string, and otherwise None."""
        boxed = self.find_value(parameter)
        return boxed[0] if boxed is not None and isinstance(boxed[0], str) else None

    def find_literal_value(self, argument: Argument) -> tuple[Any] | None:
        """Return the value of a literal or a parameter in a 1-tuple, or None otherwise."""
        if argument.parameter is not None:
            return self.find_value(argument.parameter)
        literal = argument.literal
        if literal is None or literal.text == "NULL" and literal.kind == "word":
            return None
        if literal.kind == "number":
            value = read_number(literal.text)
            return (-value if literal.negative else value,)
        return (literal.text if literal.kind == "string" else literal.text == "TRUE",)

    @cached_property
    def stand_ins(self) -> Mapping[Span, str]:
        """Span of a parameter -> the replacement in probes: a NULL of the type of the value.

        A short string or an integer is written out, since `FROM read_csv(?)` rejects NULL.
        """
        return {parameter.span: self._make_stand_in(parameter) for parameter in self.keys}

    @cached_property
    def untyped(self) -> frozenset[Span]:
        """The spans of parameters without a type, whose values are NULL or missing."""
        return frozenset(span for span, text in self.stand_ins.items() if text == "NULL")

    @cached_property
    def types(self) -> Mapping[Span, str]:
        """Span of a parameter -> SQL type of the value if it is a number, boolean or string."""
        return {
            parameter.span: _PLAIN_TYPES[type(boxed[0])]
            for parameter in self.keys
            if (boxed := self.find_value(parameter)) is not None and type(boxed[0]) in _PLAIN_TYPES
        }

    def _make_stand_in(self, parameter: Parameter) -> str:
        boxed = self.find_value(parameter)
        if boxed is None or boxed[0] is None:
            return "NULL"
        value = boxed[0]
        if hasattr(value, "item") and getattr(value, "shape", None) == ():
            value = value.item()  # The value is a NumPy scalar.
        for python_type, sql_type in _TYPES.items():
            if isinstance(value, python_type):
                return f"CAST({_to_literal(value)} AS {sql_type})"
        engine_type = self.type_of(_shorten_sample(value))
        return "NULL" if engine_type is None else f"CAST(NULL AS {engine_type})"

    def find_remaining_values(self) -> tuple[tuple[int, ...] | None, frozenset[str]]:
        """Return which positional values the engine gets, and the names of removed values.

        The positional values are indices, or None if the engine gets all of them.
        """
        if not self.consumed:
            return None, frozenset()
        kept_keys = {key for parameter, key in self.keys.items() if parameter not in self.consumed}
        removed = {self.keys[parameter] for parameter in self.consumed} - kept_keys
        removed_names = frozenset(fold(key) for key in removed if isinstance(key, str))
        if isinstance(self.values, Mapping):
            return None, removed_names
        return tuple(k for k in range(self._positional_count) if k not in removed), removed_names

    def fit_sql(self, sql: str) -> tuple[str, tuple[int, ...] | None, frozenset[str]]:
        """Return the rewritten `sql` with renumbered parameters, and the values to pass.

        The values have the form of `find_remaining_values`. `sql` may lack arguments for unused
        features, and engines reject more values than there are parameters.
        """
        indices, removed_names = self.find_remaining_values()
        written_parameters = find_parameters(sql)
        names_in_sql = {fold(parameter.text[1:]) for parameter in written_parameters}
        if isinstance(self.values, Mapping):
            lost_names = {fold(str(k)) for k in self.keys.values()} - names_in_sql
            return sql, indices, removed_names | lost_names
        kept_indices = list(indices if indices is not None else range(self._positional_count))
        keys = set(self.keys.values())
        numbered_keys = [(n, k) for n, k in enumerate(kept_indices, 1) if k in keys]
        lost_numbers = [n for n, _ in numbered_keys if str(n) not in names_in_sql]
        if not lost_numbers or any(parameter.text == "?" for parameter in written_parameters):
            return sql, indices, removed_names
        remaining_numbers = [n for n in range(1, len(kept_indices) + 1) if n not in lost_numbers]
        new_numbers = {str(old): new for new, old in enumerate(remaining_numbers, 1)}
        for parameter in reversed(written_parameters):
            span = parameter.span
            number = new_numbers[parameter.text[1:]]
            sql = f"{sql[: span.start]}${number}{sql[span.end :]}"
        return sql, tuple(kept_indices[n - 1] for n in remaining_numbers), removed_names

    def renumber_positional(self, in_calls: bool) -> dict[Span, str]:
        """Map the span of each remaining positional parameter to its new text, if the text changes.

        `$n` gets a smaller number if an earlier parameter is consumed. If a call contains a
        parameter (`in_calls`), the order of parameters may change, so each `?` becomes `$n`.
        """
        indices, _ = self.find_remaining_values()
        if isinstance(self.values, Mapping) or (indices is None and not in_calls):
            return {}
        kept_indices = indices
        if kept_indices is None:
            kept_indices = tuple(sorted({k for k in self.keys.values() if isinstance(k, int)}))
        new_indices = {old: new for new, old in enumerate(kept_indices)}
        return {
            parameter.span: f"${new_indices[key] + 1}"
            for parameter, key in self.keys.items()
            if isinstance(key, int)
            and key in new_indices
            and parameter not in self.consumed
            and (in_calls or parameter.text != "?")
        }


def _shorten_sample(value: Any) -> Any:
    """Shorten a list without changing its type in the engine, or return other values unchanged.

    >>> _shorten_sample([0.5] * 9), _shorten_sample([3, 1, 2]), _shorten_sample([1, 0.5])
    ([0.5], [1, 3], [1, 0.5])
    """
    if not isinstance(value, list | tuple) or not value:
        return value
    element_types = set(map(type, value))
    if element_types <= {float} or element_types <= {str}:
        return value[:1]
    return [min(value), max(value)] if element_types == {int} else value


def _to_literal(value: Any) -> str:
    """Return the SQL literal of a short string or an integer, or NULL for other values.

    >>> _to_literal("it's"), _to_literal(True), _to_literal(2**70), _to_literal(0.5)
    ("'it''s'", 'True', 'NULL', 'NULL')
    """
    if isinstance(value, str) and len(value) < 200 and value.isprintable():
        return DUCKDB.quote_string(value)
    return str(value) if isinstance(value, int) and abs(value) < 1 << 63 else "NULL"


def inline_values(sql: str, values: Any, literal: Callable[[Any], str]) -> str:
    """Replace the parameters of a query with literals, so that the query can be stored.

    `values` is a sequence for `?` and `$1`, or a mapping for `$name`. Raises ParseError if a
    parameter has no value, or if there are more values than parameters.

    >>> inline_values("SELECT * FROM t WHERE a < ? AND b = ?", [3, 4], str)
    'SELECT * FROM t WHERE a < 3 AND b = 4'
    """
    written_parameters = find_parameters(sql)
    parameters = Parameters(written_parameters, values)
    fragments: list[str] = []
    copied_end = 0
    used_keys: set[str | int] = set()
    for parameter in written_parameters:
        boxed = parameters.find_value(parameter)
        if boxed is None:
            message = f"no value is given for parameter {parameter.text}"
            raise ParseError(message, sql, parameter.span.start)
        used_keys.add(parameters.keys[parameter])
        fragments += [sql[copied_end : parameter.span.start], literal(boxed[0])]
        copied_end = parameter.span.end
    if isinstance(values, Sequence | Mapping) and len(values) > len(used_keys):
        values_text = "1 value is" if len(values) == 1 else f"{len(values)} values are"
        counts = {0: "no parameter", 1: "1 parameter"}
        parameters_text = counts.get(len(used_keys), f"{len(used_keys)} parameters")
        raise ParseError(f"{values_text} given for {parameters_text}")
    return "".join([*fragments, sql[copied_end:]])
