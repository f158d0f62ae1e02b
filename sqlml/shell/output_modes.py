"""`MODES`: the ways to write a result, and what writes it.

All values are made into text by the engine, so that a number, a date or a list is written as DuckDB
writes it, to its last digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TextIO
from unicodedata import combining, east_asian_width

from sqlml.dialects.duckdb import builtin
from sqlml.session.relation import Relation
from sqlml.shell.display import Display

BATCH = 2048
"""Rows that are fetched at a time."""

Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to write results.

    Attributes:
        about: what `.help` says of it.
        write: writes a relation's rows to a file.
    """

    about: str
    write: Callable[[Relation, Display, TextIO], None]


def texts(relation: Relation) -> Iterator[Row]:
    """The rows of a relation, each value as the engine's text for it; None for NULL."""
    return _rows(relation.project("CAST(COLUMNS(*) AS VARCHAR)"))


def _rows(relation: Relation) -> Iterator[Row]:
    for batch in relation.batches(BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _csv(relation: Relation, display: Display, out: TextIO) -> None:
    if display.header:
        out.write(",".join(map(_field, relation.columns)) + "\n")
    for row in texts(relation):
        out.write(",".join(display.null if v is None else _field(v) for v in row) + "\n")


def _field(text: str) -> str:
    """A field of CSV (RFC 4180); an empty text is quoted, which NULL is not."""
    if text and not any(c in text for c in '",\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _tabs(relation: Relation, display: Display, out: TextIO) -> None:
    _separated(relation, display, out, "\t")


def _list(relation: Relation, display: Display, out: TextIO) -> None:
    _separated(relation, display, out, "|")


def _separated(relation: Relation, display: Display, out: TextIO, by: str) -> None:
    if display.header:
        out.write(by.join(relation.columns) + "\n")
    for row in texts(relation):
        out.write(by.join(display.null if v is None else v for v in row) + "\n")


def _json(relation: Relation, display: Display, out: TextIO) -> None:
    before = "["
    for line in _objects(relation):
        out.write(before + line)
        before = ",\n"
    out.write("[]\n" if before == "[" else "]\n")


def _jsonlines(relation: Relation, display: Display, out: TextIO) -> None:
    for line in _objects(relation):
        out.write(line + "\n")


def _objects(relation: Relation) -> Iterator[str]:
    """The rows as JSON objects; numbers in the engine's digits, NaN and infinity, which JSON lacks,
    as texts."""
    names = [json.dumps(name, ensure_ascii=False) + ":" for name in relation.columns]
    numbers = _are_numbers(relation)
    encoded = relation.project(
        f"CAST(COLUMNS(*) AS VARCHAR), CAST({builtin('to_json')}(COLUMNS(*)) AS VARCHAR)"
    )
    for row in _rows(encoded):
        plain, quoted = row[: len(names)], row[len(names) :]
        values = (
            "null" if p is None else p if is_number and p not in _NO_NUMBERS else _valid(str(q))
            for p, q, is_number in zip(plain, quoted, numbers, strict=True)
        )
        yield "{" + ",".join(map(str.__add__, names, values)) + "}"


_NO_NUMBERS = ("nan", "inf", "-inf")


def _valid(text: str) -> str:
    """A value as DuckDB makes JSON of it, NaN and infinity as texts."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)


def _line(relation: Relation, display: Display, out: TextIO) -> None:
    names = list(relation.columns)
    width = max(map(_width, names))
    for place, row in enumerate(texts(relation)):
        if place:
            out.write("\n")
        for name, value in zip(names, row, strict=True):
            shown = display.null if value is None else value
            out.write(" " * (width - _width(name)) + f"{name} = {shown}\n")


def _markdown(relation: Relation, display: Display, out: TextIO) -> None:
    def cell(value: str | None) -> str:
        shown = display.null if value is None else value
        return shown.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")

    rows = [[cell(v) for v in row] for row in (relation.columns, *texts(relation))]
    widths, right = _widths(rows), _are_numbers(relation)
    widths = [max(3, width) for width in widths]
    rule = [
        "-" * (width - 1) + ":" if is_right else "-" * width
        for width, is_right in zip(widths, right, strict=True)
    ]
    lines = [" | ".join(_padded(row, widths, right)) for row in rows]
    lines.insert(1, " | ".join(rule))
    out.writelines(f"| {line} |\n" for line in lines)


def _box(relation: Relation, display: Display, out: TextIO) -> None:
    """A box of all rows; `terminal_box.py` has the one that a terminal shows."""
    shown = (["NULL" if v is None else v.replace("\n", "\\n") for v in r] for r in texts(relation))
    rows = [list(relation.columns), *shown]
    widths, right = _widths(rows), _are_numbers(relation)

    def rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end + "\n"

    out.write(rule("┌", "┬", "┐"))
    for place, row in enumerate(rows):
        out.write("│ " + " │ ".join(_padded(row, widths, right)) + " │\n")
        if place == 0:
            out.write(rule("├", "┼", "┤"))
    out.write(rule("└", "┴", "┘"))


def _are_numbers(relation: Relation) -> list[bool]:
    return [_NUMBER.fullmatch(str(kind)) is not None for kind in relation.types]


_NUMBER = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|VARINT|FLOAT|DOUBLE|DECIMAL\(\d+,\s*\d+\)"
)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*rows, strict=True)]


def _padded(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    for text, width, is_right in zip(row, widths, right, strict=True):
        gap = " " * (width - _width(text))
        yield gap + text if is_right else text + gap


def _width(text: str) -> int:
    """The columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


MODES: Mapping[str, Mode] = MappingProxyType(
    {
        "box": Mode("a table with lines around its cells", _box),
        "csv": Mode("comma-separated values", _csv),
        "json": Mode("an array of objects", _json),
        "jsonlines": Mode("an object in each line", _jsonlines),
        "line": Mode("a value in each line", _line),
        "list": Mode("values between |", _list),
        "markdown": Mode("a table of Markdown", _markdown),
        "tabs": Mode("values between tabs", _tabs),
    }
)
"""Modes by the names that `.mode` and the options of `sqlml` give them."""
