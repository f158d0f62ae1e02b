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
from functools import partial
from io import StringIO
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from sqlml.dialects.duckdb import builtin
from sqlml.session.relation import Relation
from sqlml.terminal import escape_controls


@dataclass(frozen=True, slots=True)
class Display:
    """The settings for writing results in `mode`, a name in `MODES`.

    Some modes can leave out the `header`, and some need a text for NULL. `timer` prints the seconds
    of each statement, and `pager` shows a result that does not fit a terminal in a pager.
    """

    mode: str = "box"
    header: bool = True
    null: str = ""
    timer: bool = False
    pager: bool = True


MAX_PAGER_ROWS, MAX_SCREEN_ROWS = 10_000, 40
"""Maximum rows of a box with and without a pager; the first is DuckDB's own limit."""

_UNLIMITED_WIDTH = 1_000_000


def draw_box(relation: Relation, pages: bool) -> str:
    """Return DuckDB's box of a result: all of it for a pager, otherwise as much as fits."""
    rows, width = MAX_SCREEN_ROWS, shutil.get_terminal_size().columns
    if pages and find_pager() is not None:
        rows, width = MAX_PAGER_ROWS, _UNLIMITED_WIDTH
    box = StringIO()
    with redirect_stdout(box):
        relation.show(max_rows=rows, max_width=width)
    return box.getvalue().rstrip("\n") + "\n"


def show(text: str, pages: bool, out: TextIO) -> None:
    """Write a text to a terminal, in the pager if it does not fit."""
    text = escape_controls(text)  # a pager writes to the terminal itself
    columns, lines = shutil.get_terminal_size()
    rows = text.splitlines()
    fits = len(rows) < lines and max(map(len, rows), default=0) <= columns
    pager = find_pager() if pages and not fits else None
    if pager is None:
        out.write(text)
        return
    options = {"LESS": "-SRFX"}  # long lines are scrolled, not folded
    with suppress(KeyboardInterrupt):
        subprocess.run(pager, input=text, text=True, env={**options, **os.environ}, check=False)


def find_pager() -> list[str] | None:
    """Return the command of the user's pager (SQLML_PAGER, PAGER, or less), or None."""
    words = shlex.split(os.environ.get("SQLML_PAGER") or os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else None


_PLAIN_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?!ANALYZE\b|\()", re.IGNORECASE)


def write_json_explain(sql: str) -> str | None:
    """Return the EXPLAIN for the plan as JSON; None for EXPLAIN ANALYZE and with options."""
    match = _PLAIN_EXPLAIN.match(sql)
    return None if match is None else "EXPLAIN (FORMAT json) " + sql[match.end() :]


def draw_plan(plan: str, width: int) -> str:
    """Draw a JSON plan as a tree, each operator above its inputs, in lines of at most `width`."""
    return "".join(f"{line}\n" for node in json.loads(plan) for line in _draw_node(node, "", width))


def wrap_model_plan(text: str, width: int) -> str:
    """Wrap the long lines of a model plan below its value column."""
    wrap = partial(textwrap.wrap, width=max(width, 40), subsequent_indent=" " * 20)
    return "\n".join(wrapped for line in text.splitlines() for wrapped in wrap(line) or [""])


def _draw_node(node: Any, indent: str, width: int) -> Iterator[str]:
    children = node["children"]
    properties = dict(node["extra_info"])
    rows = properties.pop("Estimated Cardinality", None)
    texts = [
        f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in properties.items()
        if value not in ("", [])
    ]
    if rows is not None:
        texts.append(f"~{int(rows):,} rows" if rows != "1" else "~1 row")
    yield (indent + node["name"].strip().replace("_", " ").title())[:width]
    inner = indent + ("│   " if children else "    ")
    for text in texts:
        space, hanging = max(width, len(inner) + 20), inner + "  "
        yield from textwrap.wrap(text, space, initial_indent=inner, subsequent_indent=hanging)
    for index, child in enumerate(children):
        is_last = index == len(children) - 1
        deeper = indent if len(children) == 1 else indent + ("    " if is_last else "│   ")
        first, *others = _draw_node(child, deeper, width)
        if len(children) > 1:
            first = indent + ("└── " if is_last else "├── ") + first[len(deeper) :]
        yield first
        yield from others


_BATCH_ROWS = 2048
Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to write a relation's rows to a file, with its description for `.help`."""

    about: str
    write: Callable[[Relation, Display, TextIO], None]


def fetch_texts(relation: Relation) -> Iterator[Row]:
    """Yield the rows of a relation as texts of the engine; None for NULL."""
    return _fetch(relation.project("CAST(COLUMNS(*) AS VARCHAR)"))


def _fetch(relation: Relation) -> Iterator[Row]:
    for batch in relation.batches(_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _write_separated(
    relation: Relation,
    display: Display,
    out: TextIO,
    separator: str,
    quote: Callable[[str], str] = str,
) -> None:
    if display.header:
        out.write(separator.join(map(quote, relation.columns)) + "\n")
    for row in fetch_texts(relation):
        out.write(separator.join(display.null if v is None else quote(v) for v in row) + "\n")


def _quote_csv(text: str) -> str:
    """Write a CSV field (RFC 4180); an empty text is quoted, unlike NULL."""
    if text and not any(c in text for c in '",\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _write_json(relation: Relation, display: Display, out: TextIO) -> None:
    separator = "["
    for line in _encode_objects(relation):
        out.write(separator + line)
        separator = ",\n"
    out.write("[]\n" if separator == "[" else "]\n")


def _write_json_lines(relation: Relation, display: Display, out: TextIO) -> None:
    for line in _encode_objects(relation):
        out.write(line + "\n")


def _encode_objects(relation: Relation) -> Iterator[str]:
    """Write the rows as JSON objects: numbers in the engine's digits, NaN and infinity as texts."""
    names = [json.dumps(name, ensure_ascii=False) + ":" for name in relation.columns]
    numbers = _are_numbers(relation)
    encoded = relation.project(
        f"CAST(COLUMNS(*) AS VARCHAR), CAST({builtin('to_json')}(COLUMNS(*)) AS VARCHAR)"
    )
    for row in _fetch(encoded):
        plain, quoted = row[: len(names)], row[len(names) :]
        values = (
            "null" if p is None else p if is_number and p not in _NO_NUMBERS else _quote_nan(str(q))
            for p, q, is_number in zip(plain, quoted, numbers, strict=True)
        )
        yield "{" + ",".join(map(str.__add__, names, values)) + "}"


_NO_NUMBERS = ("nan", "inf", "-inf")


def _quote_nan(text: str) -> str:
    """Return a value in DuckDB's JSON, with NaN and infinity as texts."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return json.dumps(json.loads(text, parse_constant=str), ensure_ascii=False)


def _write_lines(relation: Relation, display: Display, out: TextIO) -> None:
    width = max(map(_measure, relation.columns))
    names = [" " * (width - _measure(name)) + name for name in relation.columns]
    for index, row in enumerate(fetch_texts(relation)):
        if index:
            out.write("\n")
        for name, value in zip(names, row, strict=True):
            out.write(f"{name} = {display.null if value is None else value}\n")


def _write_markdown(relation: Relation, display: Display, out: TextIO) -> None:
    def escape(value: str | None) -> str:
        text = display.null if value is None else value
        return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")

    rows = [[escape(v) for v in row] for row in (relation.columns, *fetch_texts(relation))]
    right = _are_numbers(relation)
    widths = [max(3, width) for width in _measure_columns(rows)]
    rule = [
        "-" * (width - 1) + ":" if is_right else "-" * width
        for width, is_right in zip(widths, right, strict=True)
    ]
    lines = [" | ".join(_pad(row, widths, right)) for row in rows]
    lines.insert(1, " | ".join(rule))
    out.writelines(f"| {line} |\n" for line in lines)


def _write_box(relation: Relation, display: Display, out: TextIO) -> None:
    """Write a box of all rows, unlike the box that fits a terminal."""
    rows = [list(relation.columns)]
    for row in fetch_texts(relation):
        rows.append(["NULL" if v is None else v.replace("\n", "\\n") for v in row])
    widths, right = _measure_columns(rows), _are_numbers(relation)

    def rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end + "\n"

    lines = ["│ " + " │ ".join(_pad(row, widths, right)) + " │\n" for row in rows]
    lines.insert(1, rule("├", "┼", "┤"))
    out.writelines([rule("┌", "┬", "┐"), *lines, rule("└", "┴", "┘")])


def _are_numbers(relation: Relation) -> list[bool]:
    return [_NUMBER.fullmatch(str(kind)) is not None for kind in relation.types]


_NUMBER = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|VARINT|FLOAT|DOUBLE|DECIMAL\(\d+,\s*\d+\)"
)


def _measure_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_measure, column)) for column in zip(*rows, strict=True)]


def _pad(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    for text, width, is_right in zip(row, widths, right, strict=True):
        gap = " " * (width - _measure(text))
        yield gap + text if is_right else text + gap


def _measure(text: str) -> int:
    """Return the number of terminal columns that a text needs."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


MODES: Mapping[str, Mode] = {
    "box": Mode("a table with lines around its cells", _write_box),
    "csv": Mode(
        "comma-separated values", partial(_write_separated, separator=",", quote=_quote_csv)
    ),
    "json": Mode("an array of objects", _write_json),
    "jsonlines": Mode("an object in each line", _write_json_lines),
    "line": Mode("a value in each line", _write_lines),
    "list": Mode("values between |", partial(_write_separated, separator="|")),
    "markdown": Mode("a table of Markdown", _write_markdown),
    "tabs": Mode("values between tabs", partial(_write_separated, separator="\t")),
}
"""Modes by the names for `.mode` and for the options of `sqlml`."""
