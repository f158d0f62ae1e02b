"""`sqlml native`: report whether DuckDB calls models without Python on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import duckdb

from sqlml.udfs.duckdb.native.install import OFF, Unavailable, check_folder, uninstall, where


def main(arguments: Sequence[str]) -> int:
    """Run `sqlml native`: report the state of native functions, or remove what was installed."""
    parser = argparse.ArgumentParser(
        prog="sqlml native",
        description="Say whether DuckDB calls models without Python on this machine, by an "
        "extension that sqlml installs in DuckDB's own folder when it first needs it.",
        epilog=f"With the environment variable {OFF}=0 it is neither installed nor used.",
    )
    parser.add_argument("--remove", action="store_true", help="remove what was installed")
    if parser.parse_args(arguments).remove:
        folders = uninstall()
        for folder in folders:
            print(f"removed {folder}")
        if not folders:
            print("nothing to remove")
        return 0
    with duckdb.connect() as connection:
        try:
            place = where(connection)
            is_installed = place.path.is_file()
            if not is_installed:
                check_folder(place)
        except Unavailable as error:
            print(f"native functions are unavailable: {error}")
            return 0
    state = "installed at" if is_installed else "installed when they are first used, at"
    print(f"native functions are {state} {place.path}")
    return 0
