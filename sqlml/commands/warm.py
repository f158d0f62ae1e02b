"""`sqlml warm`: compile kernels and install native functions ahead of time."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import duckdb

from sqlml.udfs.duckdb.native.install import Unavailable, installed


def main(arguments: Sequence[str]) -> int:
    """`sqlml warm`: what the first use of a model on a machine makes, made now."""
    made = argparse.ArgumentParser(
        prog="sqlml warm",
        description="Compile the kernels that models need and install DuckDB's native functions, "
        "so that no first query waits for them: for the image of a container, or a cache of CI.",
    )
    made.parse_args(arguments)
    from sqlml.backends.native.jit.compile_ahead import compile_ahead  # it imports LLVM

    started = time.monotonic()
    try:
        count = compile_ahead(
            lambda missing: print(f"compiling {missing} kernels", flush=True) if missing else None
        )
    except OSError as error:
        print(f"sqlml: cannot keep kernels: {error}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - started
    print(
        f"compiled {count} kernels in {seconds:.0f} s"
        if count
        else "all common kernels are compiled"
    )
    with duckdb.connect() as own:
        try:
            installed(own)
        except Unavailable as error:
            print(f"native functions are unavailable: {error}")
            return 0
    print("native functions are installed")
    return 0
