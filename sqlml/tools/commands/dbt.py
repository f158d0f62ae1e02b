"""`sqlml dbt`: add models to a project of dbt."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sqlml.tools.connectors.dbt_project import add_macros


def main(arguments: Sequence[str]) -> int:
    """`sqlml dbt`: write the macros into a project of dbt."""
    made = argparse.ArgumentParser(
        prog="sqlml dbt",
        description="Write macros/sqlml.sql into a project of dbt: the materialization ml_model, "
        "and macros for the names of models.",
        epilog="profiles.yml needs a line, too: plugins: [{module: sqlml}].",
    )
    made.add_argument(
        "project", nargs="?", default=".", help="its folder (default: the current one)"
    )
    try:
        written = add_macros(Path(made.parse_args(arguments).project))
    except OSError as error:
        print(f"sqlml: {error}", file=sys.stderr)
        return 1
    print(f"wrote {written}")
    return 0
