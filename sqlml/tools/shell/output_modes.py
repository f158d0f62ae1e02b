"""Write results in the output modes of the shell (`MODES`).

DuckDB converts all values to text, so numbers, dates and lists look exactly as in DuckDB.
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
class DisplaySettings:
    """The settings for writing results in `mode`, a name in `MODES`.

    Some modes omit the header if `header` is false, and some modes show NULL as the text `null`.
    If `timer`, print the duration of each statement. If `pager`, use a pager for long results.
    """

    mode: str = "box"
    header: bool = True
    null: str = ""
    timer: bool = False
    pager: bool = True


MAX_PAGER_ROWS, MAX_SCREEN_ROWS = 10_000, 40
"""Maximum number of rows of a box in a pager (DuckDB's limit), and without a pager."""

_UNLIMITED_WIDTH = 1_000_000


def draw_box(relation: Relation, use_pager: bool) -> str:
    """Return a result as DuckDB's box, with all columns for a pager, or with columns that fit."""
    max_rows, max_width = MAX_SCREEN_ROWS, shutil.get_terminal_size().columns
    if use_pager and find_pager() is not None:
        max_rows, max_width = MAX_PAGER_ROWS, _UNLIMITED_WIDTH
    box = StringIO()
    with redirect_stdout(box):
        relation.show(max_rows=max_rows, max_width=max_width)
    return box.getvalue().rstrip("\n") + "\n"


def show_text(text: str, use_pager: bool, out: TextIO) -> None:
    """Write `text` to the terminal `out`, or show it in the pager if it does not fit."""
    text = escape_controls(text)  # A pager writes the text directly to the terminal.
    columns, lines = shutil.get_terminal_size()
    text_lines = text.splitlines()
    fits_screen = len(text_lines) < lines and max(map(len, text_lines), default=0) <= columns
    pager = find_pager() if use_pager and not fits_screen else None
    if pager is None:
        out.write(text)
        return
    environment = {"LESS": "-SRFX", **os.environ}  # Scroll long lines instead of wrapping them.
    with suppress(KeyboardInterrupt):
        subprocess.run(pager, input=text, text=True, env=environment, check=False)


def find_pager() -> list[str] | None:
    """Return the command of the pager (SQLML_PAGER, PAGER or less), or None if it is missing."""
    words = shlex.split(os.environ.get("SQLML_PAGER") or os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else None


_PLAIN_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?!ANALYZE\b|\()", re.IGNORECASE)


def build_json_explain_sql(sql: str) -> str | None:
    """Convert a plain EXPLAIN to an EXPLAIN that returns JSON, or return None if not plain."""
    match = _PLAIN_EXPLAIN.match(sql)
    return None if match is None else "EXPLAIN (FORMAT json) " + sql[match.end() :]


def draw_plan(plan: str, width: int) -> str:
    """Draw a JSON plan as a tree with lines of at most `width` characters."""
    return "".join(f"{line}\n" for node in json.loads(plan) for line in _draw_node(node, "", width))


def wrap_model_plan(text: str, width: int) -> str:
    """Wrap the long lines of a model plan to `width`. Additional lines align with the values."""
    wrap = partial(textwrap.wrap, width=max(width, 40), subsequent_indent=" " * 20)
    return "\n".join(wrapped for line in text.splitlines() for wrapped in wrap(line) or [""])


def _draw_node(node: Any, indent: str, width: int) -> Iterator[str]:
    children = node["children"]
    properties = dict(node["extra_info"])
    row_estimate = properties.pop("Estimated Cardinality", None)
    texts = [
        f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in properties.items()
        if value not in ("", [])
    ]
    if row_estimate is not None:
        texts.append(f"~{int(row_estimate):,} rows" if row_estimate != "1" else "~1 row")
    yield (indent + node["name"].strip().replace("_", " ").title())[:width]
    text_indent = indent + ("│   " if children else "    ")
    for text in texts:
        line_width = max(width, len(text_indent) + 20)
        yield from textwrap.wrap(
            text, line_width, initial_indent=text_indent, subsequent_indent=f"{text_indent}  "
        )
    for index, child in enumerate(children):
        is_last = index == len(children) - 1
        child_indent = indent if len(children) == 1 else indent + ("    " if is_last else "│   ")
        first_line, *other_lines = _draw_node(child, child_indent, width)
        if len(children) > 1:
            branch = "└── " if is_last else "├── "
            first_line = indent + branch + first_line[len(child_indent) :]
        yield first_line
        yield from other_lines


_BATCH_ROWS = 2048
Row = Sequence[str | None]


@dataclass(frozen=True, slots=True)
class OutputMode:
    """An output mode: a function that writes a relation, and a description for `--help`."""

    about: str
    write: Callable[[Relation, DisplaySettings, TextIO], None]


def fetch_texts(relation: Relation) -> Iterator[Row]:
    """Yield the rows of a relation with each value as DuckDB's text, or None for NULL."""
    return _fetch_rows(relation.project("CAST(COLUMNS(*) AS VARCHAR)"))


def _fetch_rows(relation: Relation) -> Iterator[Row]:
    for batch in relation.batches(_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _write_separated(
    relation: Relation,
    display: DisplaySettings,
    out: TextIO,
    separator: str,
    quote: Callable[[str], str] = str,
) -> None:
    if display.header:
        out.write(separator.join(map(quote, relation.columns)) + "\n")
    for row in fetch_texts(relation):
        out.write(separator.join(display.null if v is None else quote(v) for v in row) + "\n")


def _quote_csv(text: str) -> str:
    """Quote a CSV field if RFC 4180 requires quotes, or if the field would look like NULL."""
    if text and not any(c in text for c in '",\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


_write_csv = partial(_write_separated, separator=",", quote=_quote_csv)


def _write_json(relation: Relation, display: DisplaySettings, out: TextIO) -> None:
    separator = "["
    for line in _encode_objects(relation):
        out.write(separator + line)
        separator = ",\n"
    out.write("[]\n" if separator == "[" else "]\n")


def _write_json_lines(relation: Relation, display: DisplaySettings, out: TextIO) -> None:
    out.writelines(f"{line}\n" for line in _encode_objects(relation))


def _encode_objects(relation: Relation) -> Iterator[str]:
    """Yield the rows as JSON objects with DuckDB's digits. NaN and infinities become strings."""
    keys = [json.dumps(name, ensure_ascii=False) + ":" for name in relation.columns]
    numeric_columns = _find_numeric_columns(relation)
    json_sql = f"CAST({builtin('to_json')}(COLUMNS(*)) AS VARCHAR)"
    for row in _fetch_rows(relation.project(f"CAST(COLUMNS(*) AS VARCHAR), {json_sql}")):
        texts, json_texts = row[: len(keys)], row[len(keys) :]
        values = (
            _encode_value(text, str(json_text), is_numeric)
            for text, json_text, is_numeric in zip(texts, json_texts, numeric_columns, strict=True)
        )
        yield "{" + ",".join(map(str.__add__, keys, values)) + "}"


def _encode_value(text: str | None, json_text: str, is_numeric: bool) -> str:
    """Return the JSON of a value from DuckDB's text and JSON. NaN in nested values is a string."""
    if text is None:
        return "null"
    if is_numeric and text not in ("nan", "inf", "-inf"):
        return text
    if "NaN" not in json_text and "Infinity" not in json_text:
        return json_text
    return json.dumps(json.loads(json_text, parse_constant=str), ensure_ascii=False)


def _write_lines(relation: Relation, display: DisplaySettings, out: TextIO) -> None:
    width = max(map(_measure_width, relation.columns))
    names = [" " * (width - _measure_width(name)) + name for name in relation.columns]
    for index, row in enumerate(fetch_texts(relation)):
        if index:
            out.write("\n")
        for name, value in zip(names, row, strict=True):
            out.write(f"{name} = {display.null if value is None else value}\n")


def _write_markdown(relation: Relation, display: DisplaySettings, out: TextIO) -> None:
    def escape(value: str | None) -> str:
        text = display.null if value is None else value
        return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")

    rows = [[escape(v) for v in row] for row in (relation.columns, *fetch_texts(relation))]
    align_right = _find_numeric_columns(relation)
    widths = [max(3, width) for width in _measure_columns(rows)]
    rule = [
        "-" * (width - 1) + ":" if is_right else "-" * width
        for width, is_right in zip(widths, align_right, strict=True)
    ]
    lines = [" | ".join(_pad(row, widths, align_right)) for row in rows]
    lines.insert(1, " | ".join(rule))
    out.writelines(f"| {line} |\n" for line in lines)


def _write_box(relation: Relation, display: DisplaySettings, out: TextIO) -> None:
    """Write a box of all rows to a file or pipe, without a limit on the width."""
    rows = [list(relation.columns)]
    for row in fetch_texts(relation):
        rows.append(["NULL" if text is None else text.replace("\n", "\\n") for text in row])
    widths, align_right = _measure_columns(rows), _find_numeric_columns(relation)

    def draw_rule(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end + "\n"

    lines = ["│ " + " │ ".join(_pad(row, widths, align_right)) + " │\n" for row in rows]
    lines.insert(1, draw_rule("├", "┼", "┤"))
    out.writelines([draw_rule("┌", "┬", "┐"), *lines, draw_rule("└", "┴", "┘")])


def _find_numeric_columns(relation: Relation) -> list[bool]:
    return [_NUMBER.fullmatch(str(sql_type)) is not None for sql_type in relation.types]


_NUMBER = re.compile(
    r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|VARINT|FLOAT|DOUBLE|DECIMAL\(\d+,\s*\d+\)"
)


def _measure_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_measure_width, column)) for column in zip(*rows, strict=True)]


def _pad(row: Sequence[str], widths: Sequence[int], align_right: Sequence[bool]) -> Iterator[str]:
    for text, width, is_right in zip(row, widths, align_right, strict=True):
        gap = " " * (width - _measure_width(text))
        yield gap + text if is_right else text + gap


def _measure_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


MODES: Mapping[str, OutputMode] = {
    "box": OutputMode("a table with lines around its cells", _write_box),
    "csv": OutputMode("comma-separated values", _write_csv),
    "json": OutputMode("an array of objects", _write_json),
    "jsonlines": OutputMode("an object in each line", _write_json_lines),
    "line": OutputMode("a value in each line", _write_lines),
    "list": OutputMode("values between |", partial(_write_separated, separator="|")),
    "markdown": OutputMode("a table of Markdown", _write_markdown),
    "tabs": OutputMode("values between tabs", partial(_write_separated, separator="\t")),
}
"""The output modes, keyed by the argument of `.mode`, which is also an option of `sqlml`."""
