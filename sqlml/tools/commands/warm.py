"""`sqlml warm`: compile kernels and install native functions ahead of time."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import duckdb

from sqlml.udfs.duckdb.native.install import OFF, Unavailable, installed


def main(arguments: Sequence[str]) -> int:
    """Run `sqlml warm`: do now what the first use of a model on a machine would have to do.

    Returns:
        The exit status: 1 if kernels cannot be kept, or native functions cannot be installed.
    """
    parser = argparse.ArgumentParser(
        prog="sqlml warm",
        description="Compile the kernels that models need and install DuckDB's native functions, "
        "so that no first query waits for them: for the image of a container, or a cache of CI.",
        epilog="The exit status is 1 if kernels cannot be kept or native functions cannot be "
        f"installed. With the environment variable {OFF}=0 the latter are left out.",
    )
    parser.parse_args(arguments)
    has_kernels = _compile_kernels()
    has_functions = _install_functions()
    return 0 if has_kernels and has_functions else 1


def _compile_kernels() -> bool:
    """Compile the kernels that are missing, and report whether they could be kept."""
    from sqlml.backends.native.jit.compile_ahead import compile_ahead  # it imports LLVM

    started = time.monotonic()
    try:
        count = compile_ahead(
            lambda missing: print(f"compiling {missing} kernels", flush=True) if missing else None
        )
    except OSError as error:
        print(f"sqlml: cannot keep kernels: {error}", file=sys.stderr)
        return False
    seconds = time.monotonic() - started
    print(
        f"compiled {count} kernels in {seconds:.0f} s"
        if count
        else "all common kernels are compiled"
    )
    return True


def _install_functions() -> bool:
    """Install native functions unless they are switched off, and report whether that worked."""
    if os.environ.get(OFF) == "0":
        print(f"native functions are not installed: {OFF} is 0")
        return True
    with duckdb.connect() as connection:
        try:
            place = installed(connection)
        except Unavailable as error:
            print(
                f"sqlml: native functions are unavailable: {error}. Rows will go through Arrow and "
                f"Python. Set {OFF}=0 to warm without native functions.",
                file=sys.stderr,
            )
            return False
    print(f"native functions are installed at {place.path}")
    return True
