"""`sqlml native`: whether DuckDB calls models without Python on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import duckdb

from sqlml.udfs.duckdb.native.install import OFF, Unavailable, uninstall, where


def main(arguments: Sequence[str]) -> int:
    """`sqlml native`: whether DuckDB calls models without Python, or no more."""
    made = argparse.ArgumentParser(
        prog="sqlml native",
        description="Say whether DuckDB calls models without Python on this machine, by an "
        "extension that sqlml installs in DuckDB's own folder when it first needs it.",
        epilog=f"With the environment variable {OFF}=0 it is neither installed nor used.",
    )
    made.add_argument("--remove", action="store_true", help="remove what was installed")
    if made.parse_args(arguments).remove:
        folders = uninstall()
        for folder in folders:
            print(f"removed {folder}")
        if not folders:
            print("nothing to remove")
        return 0
    with duckdb.connect() as own:
        try:
            place = where(own)
        except Unavailable as error:
            print(f"native functions are unavailable: {error}")
            return 0
    done = "installed at" if place.path.is_file() else "installed when they are first used, at"
    print(f"native functions are {done} {place.path}")
    return 0
