"""What the demo prints: numbered steps with a clock, lines, queries and small tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any


class Report:
    """Prints on standard output as the steps happen."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0

    def title(self, text: str) -> None:
        """The first line."""
        self._print(f"sqlml demo: {text}")

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._steps += 1
        seconds = time.perf_counter() - self._start
        self._print(f"\n{self._steps}. {text}  [{seconds:.0f} s]")

    def line(self, text: str) -> None:
        """One indented line."""
        self._print(f"   {text}")

    def text(self, text: str) -> None:
        """Several lines, such as a query or a plan, as they are."""
        for line in text.splitlines():
            self._print(f"   | {line}".rstrip())

    def table(self, relation: Any) -> None:
        """All rows of a query's result."""
        names = list(relation.columns)
        self.rows(names, [[_cell(value) for value in row] for row in relation.fetchall()])

    def rows(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text below a header; the first column to the left, the others to the right."""
        lines = [header, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        for line in lines:
            first, *others = (
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            self._print("   " + "  ".join([first, *others]).rstrip())

    def total(self) -> None:
        """The last line."""
        seconds = time.perf_counter() - self._start
        self._print(f"\nEvery score is the source library's own. {seconds:.0f} s in all.")

    def _print(self, text: str) -> None:
        print(text)
        sys.stdout.flush()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
