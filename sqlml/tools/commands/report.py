"""`sqlml report`: a page about a model on rows of yours."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb

from sqlml.errors import SqlmlError
from sqlml.long_work import is_watched
from sqlml.open_session import connect


def parser() -> argparse.ArgumentParser:
    """The arguments of `sqlml report`."""
    made = argparse.ArgumentParser(
        prog="sqlml report",
        allow_abbrev=False,
        description="Write one page of HTML about a model: what it reads, how good it is on your "
        "rows, which columns matter, how its scores are distributed, drift, cost.",
        epilog="It needs the extra report: pip install 'sqlml[report]'. The database is opened "
        "read-only.",
    )
    made.add_argument("database", help="a DuckDB file")
    made.add_argument("model", help="a model in it; name/2 or name@alias for one version")
    made.add_argument(
        "--data", required=True, metavar="SQL", help="the rows: a query, or the name of a table"
    )
    made.add_argument(
        "--label",
        action="append",
        metavar="COLUMN",
        help="the column with the true values; again for each further target",
    )
    made.add_argument(
        "--by",
        action="append",
        metavar="COLUMN",
        help="a column that tells groups of rows apart; again for another",
    )
    made.add_argument(
        "-o", "--output", metavar="FILE", help="write the page there (default: standard output)"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """`sqlml report`: the exit status is 0, 1 after an error, or 2 for usage or an output that
    cannot be written."""
    options = parser().parse_args(arguments)
    if options.output is None and sys.stdout.isatty():
        print("sqlml: name a file for the page, as in -o report.html", file=sys.stderr)
        return 2
    wrong = None if options.output is None else _why_not(Path(options.output))
    if wrong is not None:
        print(f"sqlml: cannot write {options.output}: {os.strerror(wrong)}", file=sys.stderr)
        return 2
    try:
        with connect(options.database, read_only=True) as session:
            made = session.report(
                options.model,
                options.data,
                label=options.label,
                by=options.by,
                progress=_told if is_watched() else None,
            )
    except (duckdb.Error, SqlmlError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.output is None:
        sys.stdout.buffer.write(made.html.encode())
        sys.stdout.buffer.flush()
        return 0
    try:
        made.save(options.output)
    except OSError as error:
        print(f"sqlml: cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {options.output} ({len(made.html.encode()) / 1000:,.0f} kB)", file=sys.stderr)
    return 0


def _why_not(path: Path) -> int | None:
    """Why a file cannot be written, as an errno; told before a long report is made in vain."""
    if path.is_dir():
        return errno.EISDIR
    if not path.parent.is_dir():
        return errno.ENOENT
    return None if os.access(path if path.exists() else path.parent, os.W_OK) else errno.EACCES


def _told(doing: str) -> None:
    print(f"{doing} ..", file=sys.stderr, flush=True)
