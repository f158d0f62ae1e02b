"""The ways to write a result (`MODES`).

DuckDB converts all values to text, so numbers, dates and lists look as in DuckDB, to the last
digit.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from types import MappingProxyType
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from sqlml.dialects.duckdb import builtin
from sqlml.session.relation import Relation
from sqlml.terminal import escape_controls


@dataclass(frozen=True, slots=True)
class Display:
    """The settings for writing results.

    Attributes:
        mode: a name in `output_modes.MODES`.
        header: whether names of columns are written, in the modes that can leave them out.
        null: what stands for NULL, where the mode has no word of its own for it.
        timer: whether each statement's seconds are told.
        pager: whether a result that a terminal cannot show at once goes to a pager.
    """

    mode: str = "box"
    header: bool = True
    null: str = ""
    timer: bool = False
    pager: bool = True


MOST_ROWS = 10_000
"""Maximum rows for a pager; DuckDB's own limit for a box."""

FEW_ROWS = 40
"""Maximum rows of a box without a pager."""

_WIDE = 1_000_000
"""A width in characters that no box reaches."""


def box(relation: Relation, most_rows: int, width: int) -> str:
    """Return DuckDB's box of a relation, with middle rows and columns left out if there are too
    many.
    """
    made = StringIO()
    with redirect_stdout(made):
        relation.show(max_rows=most_rows, max_width=width)
    return made.getvalue().rstrip("\n") + "\n"


def drawn(relation: Relation, pages: bool) -> str:
    """Return the box of a result: all of it for a pager, otherwise what fits the screen."""
    if pages and pager_of() is not None:
        return box(relation, MOST_ROWS, _WIDE)
    return box(relation, FEW_ROWS, shutil.get_terminal_size().columns)


def show(text: str, pages: bool, out: TextIO) -> None:
    """Write a text to a terminal, by the pager if it does not fit.

    It is escaped here, too, since a pager writes to the terminal itself.
    """
    text = escape_controls(text)
    columns, lines = shutil.get_terminal_size()
    pager = pager_of() if pages and not _fits(text, columns, lines) else None
    if pager is None:
        out.write(text)
    else:
        page(pager, text)


def _fits(text: str, columns: int, lines: int) -> bool:
    rows = text.splitlines()
    return len(rows) < lines and max(map(len, rows), default=0) <= columns


def pager_of() -> list[str] | None:
    """Return the command of the user's pager (SQLML_PAGER, PAGER, or less), or None."""
    words = shlex.split(os.environ.get("SQLML_PAGER") or os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else None


def page(pager: list[str], text: str) -> None:
    """Show a text in a pager until the user leaves it."""
    options = {"LESS": "-SRFX"}  # long lines are scrolled, not folded
    with suppress(KeyboardInterrupt):
        subprocess.run(pager, input=text, text=True, env={**options, **os.environ}, check=False)


_PLAIN_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?!ANALYZE\b|\()", re.IGNORECASE)

_ROWS = "Estimated Cardinality"


def as_json(sql: str) -> str | None:
    """Return the EXPLAIN for the plan as JSON; None for EXPLAIN ANALYZE and with options."""
    found = _PLAIN_EXPLAIN.match(sql)
    return None if found is None else "EXPLAIN (FORMAT json) " + sql[found.end() :]


def plan_tree(plan: str, width: int) -> str:
    """Draw a JSON plan as a tree, each operator above its inputs, in lines of at most `width`."""
    return "".join(f"{line}\n" for node in json.loads(plan) for line in _lines(node, "", width))


def folded_lines(text: str, width: int) -> str:
    """Wrap the long lines of a text below the value column of a model plan."""
    return "\n".join(
        folded
        for line in text.splitlines()
        for folded in textwrap.wrap(line, max(width, 40), subsequent_indent=" " * 20) or [""]
    )


def _lines(node: Any, indent: str, width: int) -> Iterator[str]:
    children = node["children"]
    about = dict(node["extra_info"])
    rows = about.pop(_ROWS, None)
    told = [f"{key}: {_text(value)}" for key, value in about.items() if value not in ("", [])]
    if rows is not None:
        told.append(f"~{int(rows):,} rows" if rows != "1" else "~1 row")
    begin = indent + node["name"].strip().replace("_", " ").title()
    follow = indent + ("│   " if children else "    ")
    yield begin[:width]
    for text in told:
        yield from textwrap.wrap(
            text,
            max(width, len(follow) + 20),
            initial_indent=follow,
            subsequent_indent=follow + "  ",
        )
    for place, child in enumerate(children):
        is_last = place == len(children) - 1
        deeper = indent if len(children) == 1 else indent + ("    " if is_last else "│   ")
        first, *others = _lines(child, deeper, width)
        if len(children) > 1:
            first = indent + ("└── " if is_last else "├── ") + first[len(deeper) :]
        yield first
        yield from others


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


BATCH = 2048
"""Number of rows to fetch at a time."""

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
    """Yield the rows of a relation as texts of the engine; None for NULL."""
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
    """Write a CSV field (RFC 4180); an empty text is quoted, unlike NULL."""
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
    """Write the rows as JSON objects: numbers in the engine's digits, NaN and infinity as texts."""
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
    """Return a value as DuckDB's JSON, with NaN and infinity as texts."""
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
    """Write a box of all rows, unlike the box that fits a terminal."""
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
    """Return the number of terminal columns that a text needs."""
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
"""Modes by the names for `.mode` and for the options of `sqlml`."""
