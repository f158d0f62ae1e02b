"""`call_options`: the named arguments of a call that are no features, as in `baseline := true`.

In double quotes each of these names is a feature's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Tokens
from sqlml.planner.syntax.form_options import QUERIES
from sqlml.planner.syntax.outline import Argument
from sqlml.types import fold


@dataclass(frozen=True, slots=True)
class Named:
    """A named argument: it begins at token `begin`, and ends before `end`."""

    argument: Argument
    sql: str
    tokens: Tokens
    begin: int
    end: int
    function: str

    @property
    def name(self) -> str:
        """Its name, folded."""
        return fold(self.tokens[self.begin].text)

    def error(self, message: str) -> BindError:
        """An error about it, which says how a feature of the name is written."""
        hint = f'(a feature of that name is written "{self.name}" := ..)'
        return BindError(f"{message} {hint}", self.sql, self.argument.name_start)


@dataclass(frozen=True, slots=True)
class _Option:
    """What an option is of `ModelCall`, and how it is read; `explains`: only explain has it."""

    field: str
    read: Callable[[Named], Any]
    explains: bool = False


def _truth(named: Named) -> bool:
    value = named.argument.literal
    said = _TRUTHS.get(fold(value.text)) if value and value.kind == "word" else None
    if said is None:
        raise named.error(f"{named.name} := takes true or false")
    return said


_TRUTHS = MappingProxyType({"true": True, "false": False})


def _class(named: Named) -> Argument:
    if named.function not in ("predict_proba", "explain"):
        raise named.error(
            f"class := belongs to predict_proba and explain; {named.function} has no classes to "
            "choose from"
        )
    return named.argument


def _query(named: Named) -> Span:
    """The place of a query in brackets."""
    tokens, start, end = named.tokens, named.begin + 2, named.end
    in_brackets = tokens[start].is_symbol("(") and tokens.closing.get(start) == end - 1
    if any(token.kind == "param" for token in tokens[start:end]):
        raise named.error(f"the query of {named.name} := takes no parameters")
    if not in_brackets or tokens[start + 1].upper not in QUERIES:
        raise named.error(
            f"{named.name} := takes a query in brackets, as in {named.name} := (FROM t USING "
            "SAMPLE 100)"
        )
    return Span(tokens[start].start, tokens[end - 1].end)


def _whole_number(named: Named) -> int:
    value = named.argument.literal
    if value is None or value.negative or value.kind != "number" or not value.text.isdigit():
        raise named.error(f"{named.name} := takes a whole number")
    return int(value.text)


def _null_or_error(named: Named) -> bool:
    """Whether it says NULL."""
    value = named.argument.literal
    said = fold(value.text) if value is not None and value.kind == "string" else None
    if said not in ("null", "error"):
        raise named.error(f"{named.name} := takes 'error' or 'null'")
    return said == "null"


_OPTIONS: Mapping[str, _Option] = MappingProxyType(
    {
        "CLASS": _Option("class_argument", _class),
        "APPROXIMATE": _Option("approximate", _truth),
        "BASELINE": _Option("baseline", _truth, explains=True),
        "STANDARD_ERRORS": _Option("standard_errors", _truth, explains=True),
        "BACKGROUND": _Option("background", _query, explains=True),
        "PERMUTATIONS": _Option("permutations", _whole_number, explains=True),
    }
)

UNKNOWN_MODEL = "UNKNOWN_MODEL"
"""The option of a call whose rows name their models."""

_OF_COLUMNS = _Option("skips_unknown", _null_or_error)


def call_option(word: str, named: Named, by_column: bool) -> tuple[str, Any] | None:
    """The field of `ModelCall` and its value; None if the argument is a feature.

    Args:
        word: its name in capitals, "" in quotes. by_column: a column names the models.

    Raises:
        BindError: another value than it takes.
    """
    found = _OF_COLUMNS if by_column and word == UNKNOWN_MODEL else _OPTIONS.get(word)
    if found is None or (found.explains and named.function != "explain"):
        return None
    return found.field, found.read(named)


def check_together(options: Mapping[str, Any], sql: str, place: int) -> None:
    """Raise BindError for options that do not go together."""
    if options.get("baseline") and options.get("standard_errors"):
        raise BindError(
            "baseline := and standard_errors := do not go together: the baseline has no error",
            sql,
            place,
        )
    if "permutations" in options and "background" not in options:
        raise BindError(
            "permutations := goes with background := (query): nothing is estimated without",
            sql,
            place,
        )
