"""The scalar functions that call a model, and the options that their calls accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import Tokens
from sqlml.planner.syntax.outline import Argument
from sqlml.planner.syntax.table_forms import QUERIES
from sqlml.types import fold

CONFORMAL_FUNCTIONS = ("predict_interval", "predict_set")
"""The scalar functions of calibrated models, which take a coverage."""

STAGED_FUNCTIONS = ("predict", "predict_proba", "predict_score", "predict_leaf", "explain")
"""The scalar functions that can score with the first trees of an ensemble."""

FUNCTIONS = (
    *("predict", "predict_proba", "predict_score", "transform", "reconstruction_loss", "explain"),
    *CONFORMAL_FUNCTIONS,
    "predict_leaf",
)
"""The scalar functions that call a model."""


@dataclass(frozen=True, slots=True)
class NamedArgument:
    """An argument `name := value` in a call of `function`, read from tokens[begin:end]."""

    argument: Argument
    sql: str
    tokens: Tokens
    begin: int
    end: int
    function: str

    @property
    def name(self) -> str:
        return fold(self.tokens[self.begin].text)

    def error(self, message: str) -> BindError:
        """Build an error at the argument, with a hint on passing a feature of the same name."""
        hint = f'(a feature of that name is written "{self.name}" := ..)'
        return BindError(f"{message} {hint}", self.sql, self.argument.name_start)


@dataclass(frozen=True, slots=True)
class CallOption:
    """A named argument of model calls that is an option instead of a feature.

    Attributes:
        field: the field of `ModelCall` that holds the option's value.
        functions: the only functions that accept the option, or () for all functions.
        only_by_column: only calls whose rows name their models accept the option.
    """

    field: str
    read: Callable[[NamedArgument], Any]
    functions: tuple[str, ...] = ()
    only_by_column: bool = False


def _read_boolean(option: NamedArgument) -> bool:
    literal = option.argument.literal
    if literal is None or literal.kind != "word" or literal.text == "NULL":
        raise option.error(f"{option.name} := takes true or false")
    return literal.text == "TRUE"


def _read_class(option: NamedArgument) -> Argument:
    if option.function not in ("predict_proba", "explain"):
        raise option.error(
            f"class := belongs to predict_proba and explain; {option.function} has no classes to "
            "choose from"
        )
    return option.argument


def _read_argument(option: NamedArgument) -> Argument:
    return option.argument


def _read_query(option: NamedArgument) -> Span:
    tokens = option.tokens
    start, end = option.begin + 2, option.end
    in_brackets = tokens[start].is_symbol("(") and tokens.closing.get(start) == end - 1
    if any(token.kind == "param" for token in tokens[start:end]):
        raise option.error(f"the query of {option.name} := takes no parameters")
    if not in_brackets or tokens[start + 1].upper not in QUERIES:
        raise option.error(
            f"{option.name} := takes a query in brackets, as in {option.name} := (FROM t USING "
            "SAMPLE 100)"
        )
    return option.argument.span


def _read_whole_number(option: NamedArgument) -> int:
    literal = option.argument.literal
    is_number = literal is not None and literal.kind == "number" and not literal.negative
    if literal is None or not is_number or not literal.text.isdigit():
        raise option.error(f"{option.name} := takes a whole number")
    return int(literal.text)


def _read_null_or_error(option: NamedArgument) -> bool:
    """Return True if `unknown_model :=` is 'null', or False if it is 'error'."""
    literal = option.argument.literal
    value = fold(literal.text) if literal is not None and literal.kind == "string" else None
    if value not in ("null", "error"):
        raise option.error(f"{option.name} := takes 'error' or 'null'")
    return value == "null"


CALL_OPTIONS: Mapping[str, CallOption] = MappingProxyType(
    {
        "CLASS": CallOption("class_argument", _read_class),
        "COVERAGE": CallOption("coverage", _read_argument, CONFORMAL_FUNCTIONS),
        "TREES": CallOption("trees", _read_argument, STAGED_FUNCTIONS),
        "APPROXIMATE": CallOption("approximate", _read_boolean),
        "BASELINE": CallOption("baseline", _read_boolean, ("explain",)),
        "STANDARD_ERRORS": CallOption("standard_errors", _read_boolean, ("explain",)),
        "BACKGROUND": CallOption("background", _read_query, ("explain",)),
        "PERMUTATIONS": CallOption("permutations", _read_whole_number, ("explain",)),
        "UNKNOWN_MODEL": CallOption("skips_unknown", _read_null_or_error, only_by_column=True),
    }
)
"""The options of calls by their names in upper case."""


def check_options(options: Mapping[str, Any], sql: str, offset: int) -> None:
    """Raise BindError at `offset` if options of a call exclude or need each other."""
    if options.get("baseline") and options.get("standard_errors"):
        message = "baseline := excludes standard_errors :=, since the baseline has no error"
        raise BindError(message, sql, offset)
    if "permutations" in options and "background" not in options:
        message = "permutations := needs background := (query): only an estimate uses permutations"
        raise BindError(message, sql, offset)
