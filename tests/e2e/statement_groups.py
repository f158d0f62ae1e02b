"""Read tests/golden/sql/untouched.sql and tpch.sql: statements between lines of dashes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden" / "sql"

_LINE = re.compile(r"^-{32}(?: (.+))?\n", re.MULTILINE)
_MARKS = re.compile(r"(?:-- (?:fails|known: .+)\n)*")


@dataclass(frozen=True)
class Statement:
    """A text for `execute`; whether DuckDB refuses it; where sqlml differs, and why."""

    text: str
    fails: bool = False
    known: str | None = None


def groups(name: str) -> dict[str, tuple[Statement, ...]]:
    """Title -> statements, in the order of the file; the title is empty before the first one."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    _, text = text.split("\n\n", 1)
    if not _LINE.match(text):
        text = "-" * 32 + "\n" + text
    _, *parts = _LINE.split(text)
    found: dict[str, list[Statement]] = {}
    title = ""
    for new_title, block in zip(parts[::2], parts[1::2], strict=True):
        title = new_title or title
        found.setdefault(title, []).append(_statement(block.removesuffix("\n")))
    return {title: tuple(statements) for title, statements in found.items()}


def _statement(block: str) -> Statement:
    head = _MARKS.match(block)
    marks = head[0] if head else ""
    known = re.search("known: (.+)", marks)
    return Statement(block[len(marks) :], "-- fails\n" in marks, known and known[1])
