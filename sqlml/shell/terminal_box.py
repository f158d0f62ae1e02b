"""What a terminal shows of a result: DuckDB's own box, fitted to the screen or for the pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import TextIO

from sqlml.session.relation import Relation
from sqlml.terminal import escape_controls

MOST_ROWS = 10_000
"""Rows that a pager gets; DuckDB's own limit for a box."""

FEW_ROWS = 40
"""The most rows that a box shows where there is no pager."""

_WIDE = 1_000_000
"""Characters that no box is wide."""


def box(relation: Relation, most_rows: int, width: int) -> str:
    """DuckDB's box of a relation; with more rows or columns than fit, those in the middle are left
    out, and counted below."""
    made = StringIO()
    with redirect_stdout(made):
        relation.show(max_rows=most_rows, max_width=width)
    return made.getvalue().rstrip("\n") + "\n"


def drawn(relation: Relation, pages: bool) -> str:
    """The box of a result: whole where a pager can show it, else as much as the screen holds."""
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
    """The command of the user's pager (SQLML_PAGER, PAGER, or less); None without one."""
    words = shlex.split(os.environ.get("SQLML_PAGER") or os.environ.get("PAGER") or "less")
    return words if words and shutil.which(words[0]) else None


def page(pager: list[str], text: str) -> None:
    """Give a text to a pager, and wait until the user leaves it."""
    options = {"LESS": "-SRFX"}  # long lines are scrolled, not folded
    with suppress(KeyboardInterrupt):
        subprocess.run(pager, input=text, text=True, env={**options, **os.environ}, check=False)
