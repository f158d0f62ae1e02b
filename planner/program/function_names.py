"""Names of the engine functions that score, which contain all that is needed to rebuild them.

A view stores the rewritten statement, so another process must be able to rebuild a function from
its name: the hash of the Program, the outputs, the layout of packed numbers, and the backend.
Values of inputs that became part of the model are in the name, too: a number as the bits of its
DOUBLE without trailing zeros, and a text as its bytes, so that each value has one spelling, in
letters and digits.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlml.bounded_cache import Recent
from sqlml.ir.program import Program
from sqlml.limits import MADE_BYTES
from sqlml.passes.split import Layout

Constant = tuple[int, float | str | None]
"""The index of an input of the Program, and its value; None is NULL."""

Constants = tuple[Constant, ...]

CONSTANTS_PATTERN = r"(?:_k\d{1,6}(?:n|f[0-9a-f]{1,16}|s(?:[0-9a-f]{2})*))*"
"""A regular expression of the results of `spell_constants`."""

MAX_CONSTANTS = 64
"""The most sets of constants per model; other literals are passed as columns, like parameters."""

_BYTES_PER_CALL = 1000
"""The approximate memory of one set of constants."""

_admitted: Recent[str, set[Constants]] = Recent(MADE_BYTES)
_lock = threading.Lock()

_CONSTANT = re.compile(r"_k(\d{1,6})([nfs])([0-9a-f]*)")


def spell_constants(constants: Constants) -> str:
    """Spell constants as a part of a function's name.

    >>> spell_constants(((0, 3.0), (2, None), (11, "pro")))
    '_k0f4008_k2n_k11s70726f'
    """
    return "".join(f"_k{place}{_spell_value(value)}" for place, value in constants)


def _spell_value(value: float | str | None) -> str:
    if value is None:
        return "n"
    if isinstance(value, str):
        return "s" + value.encode("utf-8").hex()
    return "f" + (struct.pack(">d", value).hex().rstrip("0") or "0")


def parse_constants(text: str) -> Constants:
    """Return the constants that `spell_constants` spelled.

    >>> parse_constants("_k0f4008_k2n_k11s70726f")
    ((0, 3.0), (2, None), (11, 'pro'))
    """
    constants: list[Constant] = []
    for place, kind, digits in _CONSTANT.findall(text):
        value: float | str | None = None
        if kind == "f":
            (value,) = struct.unpack(">d", bytes.fromhex(digits.ljust(16, "0")))
        elif kind == "s":
            value = bytes.fromhex(digits).decode("utf-8", "replace")
        constants.append((int(place), value))
    return tuple(constants)


def admit_constants(program: Program, constants: Constants) -> bool:
    """Tell whether constants are among the first `MAX_CONSTANTS` of a model, and count them."""
    with _lock:
        admitted_constants = _admitted.get(program.hash) or set()
        if constants not in admitted_constants and len(admitted_constants) >= MAX_CONSTANTS:
            return False
        admitted_constants.add(constants)
        _admitted.put(program.hash, admitted_constants, _BYTES_PER_CALL * len(admitted_constants))
        return True


Output = Literal["label", "proba", "score", "samples", "transform", "contributions"]
PREFIX = "sqlml_"
STORED_PREFIX = "sqlml_open_a_session_first_"
"""The prefix of functions in views and macros.

An engine without sqlml shows the name of the missing function, so the name tells what to do.
"""

HASH_DIGITS = 24
REFUSED_TEXT = f"{STORED_PREFIX}refused_text"
"""The function that records texts for an error's message (`udfs.refused_texts`)."""

_REFUSED_TEXT = re.compile(rf"\b(?:{STORED_PREFIX}|{PREFIX})refused_text(?:_t[1-9]\d{{0,9}})?\b")
_PART = r"(label|proba|score|samples|transform|contributions)(0|[1-9]\d{0,6})?"
_NAME = re.compile(
    r"sqlml_(?P<kept>open_a_session_first_)?(?P<program>[0-9a-f]{24})_(?P<parts>PART(?:_PART)*)_(?P<layout>f32|f64)"
    r"_(?P<backend>[a-z]{1,20})_(?P<strategy>[a-z]{1,20})_(?P<device>[a-z]{1,20})"
    r"(?P<constants>CONSTANTS)(?:_l(?P<lookup>0|[1-9]\d{0,8}))?(?:_r(?P<rows>[1-9]\d{0,8}))?(?P<again>_again)?(?P<once>_once)?(?P<by_column>_c)?(?:_t(?P<twin>[1-9]\d{0,9}))?".replace(
        "PART", _PART.replace("(", "(?:")
    ).replace("CONSTANTS", CONSTANTS_PATTERN)
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a function's result: an output, or one `column` of it.

    A column of contributions means those to one class.

    >>> str(Part("proba", 1)), str(Part("label"))
    ('proba1', 'label')
    """

    output: Output
    column: int | None = None

    def __str__(self) -> str:
        return self.output + ("" if self.column is None else str(self.column))


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """An engine function: its Program, the parts of its outputs, and how they are computed.

    Attributes:
        program: the hash of the Program.
        parts: the computed parts, side by side (`prepare.fields_of`).
        again: the same rows recur in another clause, so the function remembers results.
        twin: the number of a function that is the same under another name, for a transaction that
            cannot see the first.
        once: the engine must evaluate the function where it stands, and nowhere else.
        constants: inputs that have become part of the model.
        rows: the most rows that are scored at once, if limited.
        lookup: the most categories of encoders in SQL; the function encodes others from texts.
        by_column: columns are separate arguments, and not one packed argument.
        is_stored: a view or a macro calls the function.
    """

    program: str
    parts: tuple[Part, ...]
    layout: Layout
    backend: str
    strategy: str
    device: str
    again: bool = False
    twin: int | None = None
    once: bool = False
    constants: Constants = ()
    rows: int | None = None
    max_categories: int | None = None
    by_column: bool = False
    is_stored: bool = False

    @property
    def name(self) -> str:
        """The function's name in the engine."""
        start = f"{STORED_PREFIX if self.is_stored else PREFIX}{self.program[:HASH_DIGITS]}"
        return (
            f"{start}_{'_'.join(map(str, self.parts))}_{self.layout}"
            f"_{self.backend}_{self.strategy}_{self.device}{spell_constants(self.constants)}"
            + ("" if self.max_categories is None else f"_l{self.max_categories}")
            + ("" if self.rows is None else f"_r{self.rows}")
            + "_again" * self.again
            + "_once" * self.once
            + "_c" * self.by_column
            + ("" if self.twin is None else f"_t{self.twin}")
        )


Field = tuple[str, str]
"""The name of a field of a function's result, and its SQL type."""


def spell_struct(fields: Sequence[Field]) -> str:
    """Return the SQL type of a struct.

    >>> spell_struct([("label", "INTEGER"), ("proba1", "DOUBLE")])
    'STRUCT(label INTEGER, proba1 DOUBLE)'
    """
    return f"STRUCT({', '.join(map(' '.join, fields))})"


def find_refused_text_names(text: str) -> frozenset[str]:
    """Return all names in `text` of the function `REFUSED_TEXT` and of its twins."""
    return frozenset(_REFUSED_TEXT.findall(text) if "refused_text" in text else ())


def parse_name(text: str) -> FunctionSpec | None:
    """Parse the first name of an sqlml function in `text`; return None if there is none."""
    match = _NAME.search(text)
    if match is None:
        return None
    parts = (re.fullmatch(_PART, part) for part in match["parts"].split("_"))
    return FunctionSpec(
        match["program"],
        tuple(
            Part(p[1], int(p[2]) if p[2] else None)  # type: ignore[arg-type]
            for p in parts
            if p is not None
        ),
        match["layout"],  # type: ignore[arg-type]
        match["backend"],
        match["strategy"],
        match["device"],
        match["again"] is not None,
        int(match["twin"]) if match["twin"] else None,
        match["once"] is not None,
        parse_constants(match["constants"]),
        int(match["rows"]) if match["rows"] else None,
        int(match["lookup"]) if match["lookup"] is not None else None,
        match["by_column"] is not None,
        match["kept"] is not None,
    )
