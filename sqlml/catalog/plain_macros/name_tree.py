"""Macros that choose a model by its name, as a tree: pure functions.

The engine binds every branch of a CASE, even if it needs columns that the table lacks, and gives
all of them one type. Of the overloads of a macro it binds only the one that the arguments' types
choose, so the model's name becomes a type, the length of an array::

    sqlml.choose_<digest>(struct_extract({'churn': NULL::BOOLEAN[1], ..}, m), r, m)
    sqlml.choose_<digest>(n BOOLEAN[1], r, m) AS CASE .. sqlml.score_<digest>(r, m) END,
                         (n BOOLEAN[2], r, m) AS ..

A macro of ten thousand overloads takes seconds to make. So where there are many models they are
dealt out by the hexadecimal digits of the md5 of m in lower case, and an overload of a macro above
calls one below. When a model changes, the macros on the way to it are rebuilt, sixteen overloads
each.

A `<digest>` is of the macro's own content: a macro of that name in another database, which the
engine may find first, does the same. `CASE WHEN m IS NULL` is folded away. It stops the engine from
looking for functions while it creates the macro, when a copy of the database that is being imported
has none of them yet.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, folded

MOST = 16
"""Models that one macro tells apart by their names."""

_DIGITS = "0123456789abcdef"
_MACRO = re.compile(r"(?:choose|score)_[0-9a-f]{24}")
_NOBODY = (
    f"{builtin('struct_extract')}("
    f'{builtin("struct_pack")}("SHOW MODELS tells which there are" := NULL), m)'
)
"""The error for digits that no model has; it names the model, as for any unknown name."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """A macro of the tree.

    prefix: the digits that lead to it. macro: its name. names: those that it tells apart, of models
    or (`by_digit`) digits. extra: see `choosers`. definition: what follows the name in CREATE
    MACRO; None if the macro exists already.
    """

    prefix: str
    macro: str
    names: tuple[str, ...]
    by_digit: bool
    extra: str
    definition: str = ""

    def call(self, row: str = "r", model: str = "m") -> str:
        """The expression that computes the model of that name of the row."""
        own = model  # the engine finds a struct's field as it finds any name
        if self.by_digit:
            place = len(self.prefix) + 1
            own = f"{builtin('substr')}({builtin('md5')}({folded(model)}), {place}, 1)"
        numbers = ", ".join(
            f"{DUCKDB.quote_name(name)} := NULL::BOOLEAN[{place}]"
            for place, name in enumerate(self.names, 1)
        )
        number = f"{builtin('struct_extract')}({builtin('struct_pack')}({numbers}), "
        number += f"{own})"
        return f"sqlml.{self.macro}({number}, {row}, {model}{self.extra})"


def digits(key: str) -> str:
    """The digits by which the engine finds a model.

    >>> digits("churn")[:4]
    '92e5'
    """
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def choosers(
    models: Mapping[str, str], extra: str, known: Mapping[str, str] | None = None
) -> list[Chooser]:
    """The macros of a tree; the last is the one above all others.

    Args:
        models: key -> the macro that computes the model; all of them, but for `known`.
        extra: what follows after r and m in parameters and calls: "" or ", class".
        known: digit -> the call of a chooser by the first digit that is there already.
    """
    found = [(digits(key), key, macro) for key, macro in sorted(models.items())]
    return _choosers(found, extra, "", known or {})


def _choosers(
    models: list[tuple[str, str, str]], extra: str, prefix: str, known: Mapping[str, str]
) -> list[Chooser]:
    """The macros below `prefix` that choose among models: digits, key and macro of each."""
    if not models and not known:
        return []
    made: list[Chooser] = []
    by_digit = len(models) > MOST or bool(known)
    if by_digit:
        choices = {}
        below: dict[str, list[tuple[str, str, str]]] = {digit: [] for digit in _DIGITS}
        for model in models:
            below[model[0][len(prefix)]].append(model)
        for digit, part in below.items():
            parts = _choosers(part, extra, prefix + digit, {})
            made += parts
            choices[digit] = parts[-1].call() if parts else known.get(digit, _NOBODY)
    else:
        choices = {key: f"sqlml.{macro}(r, m{extra})" for _, key, macro in models}
    definition = ", ".join(
        f"(n BOOLEAN[{place}], r, m{extra}) AS CASE WHEN m IS NULL THEN NULL ELSE {call} END"
        for place, call in enumerate(choices.values(), 1)
    )
    macro = f"choose_{digest(prefix, *choices, definition)}"
    return [*made, Chooser(prefix, macro, tuple(choices), by_digit, extra, definition)]


def is_ours(macro: object) -> bool:
    """Whether a name is one of those that we give to macros: rows may hold anything.

    >>> is_ours("score_" + "0" * 24), is_ours("score_x(); DROP TABLE t; --")
    (True, False)
    """
    return isinstance(macro, str) and _MACRO.fullmatch(macro) is not None


def digest(*content: str) -> str:
    """24 hexadecimal digits of what a macro is."""
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:24]
