"""The engine functions that score rows, with names from which they can be rebuilt.

`NamedFunction` scores rows of several models: `predict(shop_model, *)` calls one function for all
models that have the same columns and the same kind of result, with the name of the row's model.

A view stores the rewritten statement, so another process must be able to rebuild a function from
its name. The name has the hash of the Program, the outputs, the layout of packed numbers, and the
backend. It also has the constants, which are inputs that became part of the model. A number is
encoded as the hex digits of a DOUBLE without trailing zeros, and a string as the hex digits of the
bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from sqlml.bounded_cache import RecentCache
from sqlml.catalog.tables import HASH_DIGITS, STORED_PREFIX
from sqlml.errors import SqlmlError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.limits import CALL_CONSTANTS_BYTES
from sqlml.passes.split import Layout

Constants = tuple[tuple[int, float | str | None], ...]
"""Pairs of the index of a Program's input and the input's value, which is None for NULL.

The index after that of the last input is `TREES`.
"""

TREES = "(trees)"
"""The constant that is no input: the number of the first stages of an ensemble to score with."""

CONSTANTS_PATTERN = r"(?:_k\d{1,7}(?:n|f[0-9a-f]{1,16}|s(?:[0-9a-f]{2})*))*"

MAX_CONSTANTS = 64
"""The maximum number of sets of constants per model. Further literals are passed as columns."""

_BYTES_PER_SET = 1000  # The approximate memory of one set of constants.
_admitted: RecentCache[str, set[Constants]] = RecentCache(CALL_CONSTANTS_BYTES)
_lock = threading.Lock()
_CONSTANT = re.compile(r"_k(\d{1,7})([nfs])([0-9a-f]*)")


def encode_constants(constants: Constants) -> str:
    """Encode constants as a part of a function's name.

    >>> encode_constants(((0, 3.0), (2, None), (11, "pro")))
    '_k0f4008_k2n_k11s70726f'
    """
    return "".join(f"_k{index}{_encode_constant(value)}" for index, value in constants)


def _encode_constant(value: float | str | None) -> str:
    if value is None:
        return "n"
    if isinstance(value, str):
        return "s" + value.encode("utf-8").hex()
    return "f" + (struct.pack(">d", value).hex().rstrip("0") or "0")


def parse_constants(text: str) -> Constants:
    """Parse constants from `text`, a part of a function's name that `encode_constants` wrote.

    >>> parse_constants("_k0f4008_k2n_k11s70726f")
    ((0, 3.0), (2, None), (11, 'pro'))
    """
    constants: list[tuple[int, float | str | None]] = []
    for index, type_code, digits in _CONSTANT.findall(text):
        value: float | str | None = None
        if type_code == "f":
            (value,) = struct.unpack(">d", bytes.fromhex(digits.ljust(16, "0")))
        elif type_code == "s":
            value = bytes.fromhex(digits).decode("utf-8", "replace")
        constants.append((int(index), value))
    return tuple(constants)


def admit_constants(program: Program, constants: Constants) -> bool:
    """Record `constants` for `program`, or return False if `MAX_CONSTANTS` sets are recorded."""
    with _lock:
        admitted = _admitted.get(program.hash) or set()
        if constants not in admitted and len(admitted) >= MAX_CONSTANTS:
            return False
        admitted.add(constants)
        _admitted.put(program.hash, admitted, _BYTES_PER_SET * len(admitted))
        return True


Output = Literal[
    "label",
    "proba",
    "score",
    "samples",
    "transform",
    "contributions",
    "losses",
    "interval",
    "set",
    "leaf",
]
FUNCTION_PREFIX = "sqlml_"
REFUSED_TEXT = f"{STORED_PREFIX}refused_text"
"""The function that records strings for an error message (`udfs/make_function.py`)."""

_REFUSED_TEXT = re.compile(
    rf"\b(?:{STORED_PREFIX}|{FUNCTION_PREFIX})refused_text(?:_t[1-9]\d{{0,9}})?\b"
)
_PART = (
    r"(label|proba|score|samples|transform|contributions|losses|interval|set|leaf)(0|[1-9]\d{0,6})?"
)
_NAME = re.compile(
    r"sqlml_(?P<kept>open_a_session_first_)?(?P<program>[0-9a-f]{24})_(?P<parts>PART(?:_PART)*)_(?P<layout>f32|f64)"
    r"_(?P<backend>[a-z]{1,20})_(?P<strategy>[a-z]{1,20})_(?P<device>[a-z]{1,20})"
    r"(?P<constants>CONSTANTS)(?:_l(?P<lookup>0|[1-9]\d{0,8}))?(?:_r(?P<rows>[1-9]\d{0,8}))?(?P<again>_again)?(?P<once>_once)?(?P<by_column>_c)?(?:_t(?P<twin>[1-9]\d{0,9}))?".replace(
        "PART", _PART.replace("(", "(?:")
    ).replace("CONSTANTS", CONSTANTS_PATTERN)
)


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a function's result: an output of the model, or one `column` of the output.

    A "column" of the output contributions stands for all contributions to one class.

    >>> str(ResultPart("proba", 1)), str(ResultPart("label"))
    ('proba1', 'label')
    """

    output: Output
    column: int | None = None

    def __str__(self) -> str:
        return self.output + ("" if self.column is None else str(self.column))


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """An engine function: the Program, the parts to compute, and how to compute the parts."""

    program_hash: str
    parts: tuple[ResultPart, ...]  # The computed parts, side by side.
    layout: Layout
    backend: str
    strategy: str
    device: str
    # The same rows recur in another clause, so the function remembers results.
    remembers_rows: bool = False
    # The number of a copy of the function, whose name differs. A transaction that cannot see the
    # first function uses the copy.
    twin: int | None = None
    once: bool = False  # The engine must evaluate the function only at its position.
    constants: Constants = ()  # Inputs that have become part of the model.
    batch_rows: int | None = None  # The maximum number of rows to score at once, if limited.
    # The maximum number of categories of an encoder in SQL. The function runs larger encoders.
    max_categories: int | None = None
    by_column: bool = False  # Columns are separate arguments instead of one packed argument.
    is_stored: bool = False  # A view or a macro calls the function.

    @property
    def name(self) -> str:
        """The function's name in the engine, which `parse_function_name` parses.

        Suffixes: _l max_categories, _r batch_rows, _again remembers_rows, _c by_column, _t twin.
        """
        prefix = STORED_PREFIX if self.is_stored else FUNCTION_PREFIX
        return (
            f"{prefix}{self.program_hash[:HASH_DIGITS]}"
            f"_{'_'.join(map(str, self.parts))}_{self.layout}"
            f"_{self.backend}_{self.strategy}_{self.device}{encode_constants(self.constants)}"
            + ("" if self.max_categories is None else f"_l{self.max_categories}")
            + ("" if self.batch_rows is None else f"_r{self.batch_rows}")
            + "_again" * self.remembers_rows
            + "_once" * self.once
            + "_c" * self.by_column
            + ("" if self.twin is None else f"_t{self.twin}")
        )


Field = tuple[str, str]
"""The name of a field of a function's result, and its SQL type."""


def format_struct(fields: Sequence[Field]) -> str:
    """Return the SQL type of a struct.

    >>> format_struct([("label", "INTEGER"), ("proba1", "DOUBLE")])
    'STRUCT(label INTEGER, proba1 DOUBLE)'
    """
    return f"STRUCT({', '.join(map(' '.join, fields))})"


def find_refused_text_names(text: str) -> frozenset[str]:
    return frozenset(_REFUSED_TEXT.findall(text) if "refused_text" in text else ())


def parse_function_name(text: str) -> FunctionSpec | None:
    """Parse the first name of an sqlml function in `text`, or return None if there is no name."""
    match = _NAME.search(text)
    if match is None:
        return None
    parts = re.findall(_PART, match["parts"])

    def read_number(group: str) -> int | None:
        return None if match[group] is None else int(match[group])

    return FunctionSpec(
        match["program"],
        tuple(ResultPart(output, int(column) if column else None) for output, column in parts),
        match["layout"],  # type: ignore[arg-type]
        match["backend"],
        match["strategy"],
        match["device"],
        remembers_rows=match["again"] is not None,
        twin=read_number("twin"),
        once=match["once"] is not None,
        constants=parse_constants(match["constants"]),
        batch_rows=read_number("rows"),
        max_categories=read_number("lookup"),
        by_column=match["by_column"] is not None,
        is_stored=match["kept"] is not None,
    )


NAMED_PREFIX = "sqlml_named_"
"""The prefix of functions for models that rows name, which exist until the process ends."""

UNKNOWN_MODEL = (
    "a row names model {name!r}, but no row did when the query was planned; run the query again"
)


@dataclass(frozen=True, slots=True)
class ModelScorer:
    """A model's function, with the positions of the inputs among a row's numbers and strings."""

    spec: FunctionSpec
    number_positions: tuple[int, ...]
    string_positions: tuple[int, ...]


@dataclass(frozen=True)
class NamedFunction:
    """A function that scores each row with the function of the model that the row names.

    The keys of the mappings are names of models. If a row names a model in `errors`, the function
    raises that error. If there are `groups`, the function does not score rows, but returns the
    index of each model's group.
    """

    scorers: Mapping[str, ModelScorer] = field(default_factory=lambda: MappingProxyType({}))
    num_numbers: int = 0  # The number of numeric arguments.
    num_strings: int = 0  # The number of string arguments.
    groups: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    errors: Mapping[str, SqlmlError] = field(default_factory=lambda: MappingProxyType({}))
    nulls: frozenset[str] = frozenset()  # Names of models for whose rows the result is NULL.
    skips_unknown: bool = False  # The result is also NULL for rows with unknown names.
    by_column: bool = False

    @cached_property
    def name(self) -> str:
        """The function's name in the engine, which contains a hash of all fields of this object."""
        identity = [
            sorted(
                (n, scorer.spec.name, scorer.number_positions, scorer.string_positions)
                for n, scorer in self.scorers.items()
            ),
            (self.num_numbers, self.num_strings),
            sorted(self.groups.items()),
            sorted((name, type(e).__name__, e.message) for name, e in self.errors.items()),
            (sorted(self.nulls), self.skips_unknown, self.by_column),
        ]
        return NAMED_PREFIX + hashlib.sha256(repr(identity).encode()).hexdigest()[:24]

    def find_error(self, name: str) -> SqlmlError | None:
        """Return the error for rows of a model without a scorer, or None if the result is NULL."""
        error = self.errors.get(name)
        if error is not None or self.skips_unknown or name in self.nulls:
            return error
        return UnknownModelError(UNKNOWN_MODEL.format(name=name))
