"""`sqlml demo [--database FILE] [--rows N]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sqlml.errors import SqlmlError
from sqlml.tools.demo.job import run


def parser() -> argparse.ArgumentParser:
    """The arguments of `sqlml demo`."""
    made = argparse.ArgumentParser(
        prog="sqlml demo",
        description="Fit three models on the flights that left New York City in 2013, score them "
        "in SQL, and compare and time every score with the source libraries.",
    )
    made.add_argument(
        "--database", type=Path, metavar="FILE", help="keep the database here (default: nowhere)"
    )
    made.add_argument(
        "--rows", type=int, metavar="N", help="take only N of the 336,776 flights (at least 1000)"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status: 0, or 1 after an error."""
    given = parser().parse_args(arguments)
    try:
        run(given.database, given.rows)
    except SqlmlError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0
