"""The documents: README.md and docs/*.md, their code blocks, and what runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

import sqlml
from sqlml.parsing.parse import parse

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, *sorted(DOCS.glob("*.md")))

_BLOCK = re.compile(r"^```([\w+]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_ANSWERS = ("SELECT", "FROM", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VERIFY")
"""What begins a statement that has rows."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, and its text, which begins in a line of the page."""

    language: str
    text: str
    line: int


def text_of(page: Path) -> str:
    """A whole page."""
    return page.read_text(encoding="utf-8")


def blocks(text: str, *languages: str) -> list[Block]:
    """The blocks of a text, all of them or those in some languages, in order."""
    made = (Block(b[1], b[2], text.count("\n", 0, b.start(2)) + 1) for b in _BLOCK.finditer(text))
    return [block for block in made if not languages or block.language in languages]


def without_blocks(text: str) -> str:
    """A page's prose."""
    return _BLOCK.sub("", text)


def sections(text: str) -> dict[str, str]:
    """Title -> what stands below it, up to the next title of any level.

    >>> sections("# A\\nb\\n## `c`\\nd\\n")
    {'A': 'b\\n', 'c': 'd\\n'}
    """
    hidden = _BLOCK.sub(lambda b: b[0].replace("\n#", "\n\0"), text)
    parts = re.split(r"^#+ (.+)\n", hidden, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {title.replace("`", ""): body.replace("\0", "#") for title, body in pairs}


def run(page: Path, scope: dict[str, Any]) -> None:
    """Run the blocks of Python and SQL of a page in their order, in the current folder.

    SQL runs in the session `con`, or, where the page has none open, in one on shop.duckdb.

    Raises:
        AssertionError: a query has no rows.
    """
    for block in blocks(text_of(page), "python", "sql"):
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, page.name, "exec"), scope)
        elif _is_open(scope.get("con")):
            _run_sql(scope["con"], block.text)
        else:
            with sqlml.connect("shop.duckdb") as con:
                _run_sql(con, block.text)


def statements(text: str) -> Iterator[str]:
    """The statements of a text of SQL."""
    for one in parse(text):
        if one.sql.strip(" \n;"):
            yield one.sql.strip(" \n;")


def _run_sql(con: sqlml.Session, text: str) -> None:
    for statement in statements(text):
        rows = con.execute(statement).fetchall()
        assert rows or not statement.upper().startswith(_ANSWERS), f"no rows: {statement}"


def _is_open(con: Any) -> bool:
    try:
        con.execute("SELECT 1").fetchall()
    except (AttributeError, duckdb.ConnectionException):
        return False
    return True
