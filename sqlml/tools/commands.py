"""The commands of the command line besides SQL: `sqlml calibrate`, `dbt`, `demo`, `native`, ...

Each command is a function that parses its own arguments and returns the exit status: 0, 1 after an
error, or 2 for usage. It imports what it needs when it runs, so that the shell starts quickly.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import duckdb

from sqlml.errors import SqlmlError

Command = Callable[[Sequence[str]], int]
"""Takes the arguments after its name, and returns the exit status."""


def calibrate(arguments: Sequence[str]) -> int:
    """Run `sqlml calibrate`: measure this machine, and print the costs that were saved."""
    from sqlml.backends.costs import SHIPPED, costs_path
    from sqlml.tools.calibration import calibrate as calibration

    argparse.ArgumentParser(
        prog="sqlml calibrate",
        description="Measure what the installed backends cost on this machine, in nanoseconds per "
        "step, and save it for the choice of backend and strategy.",
    ).parse_args(arguments)
    try:
        measured = calibration.calibrate()
    except OSError as error:
        print(f"sqlml: cannot save the costs: {error}", file=sys.stderr)
        return 1
    for name, shipped in SHIPPED.items():
        if name in measured:
            print(f"{name:<22}{measured[name]:>12.4f}  (shipped: {shipped:g})")
    print(f"saved in {costs_path()}")
    return 0


def dbt(arguments: Sequence[str]) -> int:
    """Run `sqlml dbt`: write the macros into a dbt project."""
    from sqlml.tools.connectors.dbt_project import add_macros

    parser = argparse.ArgumentParser(
        prog="sqlml dbt",
        description="Write macros/sqlml.sql into a dbt project: the materialization ml_model, "
        "and macros for the names of models.",
        epilog="profiles.yml also needs a line: plugins: [{module: sqlml}].",
    )
    parser.add_argument(
        "project", nargs="?", default=".", help="its folder (default: the current one)"
    )
    try:
        path = add_macros(Path(parser.parse_args(arguments).project))
    except OSError as error:
        print(f"sqlml: {error}", file=sys.stderr)
        return 1
    print(f"wrote {path}")
    return 0


def demo(arguments: Sequence[str]) -> int:
    """Run `sqlml demo`: score the flights of New York City with three models."""
    from sqlml.tools.demo.job import run

    parser = argparse.ArgumentParser(
        prog="sqlml demo",
        description="Fit three models on the flights that left New York City in 2013, score them "
        "in SQL, and compare and time every score with the source libraries.",
    )
    parser.add_argument(
        "--database", type=Path, metavar="FILE", help="keep the database here (default: nowhere)"
    )
    parser.add_argument(
        "--rows", type=int, metavar="N", help="use only N of the 336,776 flights (at least 1000)"
    )
    options = parser.parse_args(arguments)
    try:
        run(options.database, options.rows)
    except SqlmlError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def native(arguments: Sequence[str]) -> int:
    """Run `sqlml native`: report the state of native functions, or remove what was installed."""
    from sqlml.udfs.duckdb.native.install import (
        OFF,
        Unavailable,
        check_folder,
        find_install_path,
        uninstall,
    )

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
            shim = find_install_path(connection)
            is_installed = shim.path.is_file()
            if not is_installed:
                check_folder(shim)
        except Unavailable as error:
            print(f"native functions are unavailable: {error}")
            return 0
    state = "installed at" if is_installed else "installed when they are first used, at"
    print(f"native functions are {state} {shim.path}")
    return 0


def report(arguments: Sequence[str]) -> int:
    """Run `sqlml report`: write a page about a model on a user's rows."""
    from sqlml.long_work import is_watched
    from sqlml.open_session import connect

    options = _report_parser().parse_args(arguments)
    if options.output is None and sys.stdout.isatty():
        print("sqlml: name a file for the page, as in -o report.html", file=sys.stderr)
        return 2
    obstacle = None if options.output is None else _find_write_error(Path(options.output))
    if obstacle is not None:
        print(f"sqlml: cannot write {options.output}: {os.strerror(obstacle)}", file=sys.stderr)
        return 2
    try:
        with connect(options.database, read_only=True) as session:
            page = session.report(
                options.model,
                options.data,
                label=options.label,
                by=options.by,
                progress=_print_progress if is_watched() else None,
            )
    except (duckdb.Error, SqlmlError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.output is None:
        sys.stdout.buffer.write(page.html.encode())
        sys.stdout.buffer.flush()
        return 0
    try:
        page.save(options.output)
    except OSError as error:
        print(f"sqlml: cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {options.output} ({len(page.html.encode()) / 1000:,.0f} kB)", file=sys.stderr)
    return 0


def _report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqlml report",
        allow_abbrev=False,
        description="Write one page of HTML about a model: what it reads, how good it is on your "
        "rows, which columns matter, how its scores are distributed, drift, cost.",
        epilog="It needs the extra report: pip install 'sqlml[report]'. The database is opened "
        "read-only.",
    )
    parser.add_argument("database", help="a DuckDB file")
    parser.add_argument("model", help="a model in it; name/2 or name@alias for one version")
    parser.add_argument(
        "--data", required=True, metavar="SQL", help="the rows: a query, or the name of a table"
    )
    parser.add_argument(
        "--label",
        action="append",
        metavar="COLUMN",
        help="the column with the true values; repeat it for each further target",
    )
    parser.add_argument(
        "--by",
        action="append",
        metavar="COLUMN",
        help="a column that divides the rows into groups; repeat it for another",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the page there (default: standard output)"
    )
    return parser


def _find_write_error(path: Path) -> int | None:
    """Return why a file cannot be written, as an errno, before a long report is made in vain."""
    if path.is_dir():
        return errno.EISDIR
    if not path.parent.is_dir():
        return errno.ENOENT
    return None if os.access(path if path.exists() else path.parent, os.W_OK) else errno.EACCES


def _print_progress(stage: str) -> None:
    print(f"{stage} ...", file=sys.stderr, flush=True)


def warm(arguments: Sequence[str]) -> int:
    """Run `sqlml warm`: do now what the first use of a model on a machine would have to do.

    The exit status is 1 if kernels cannot be kept, or native functions cannot be installed.
    """
    from sqlml.udfs.duckdb.native.install import OFF

    argparse.ArgumentParser(
        prog="sqlml warm",
        description="Compile the kernels that models need and install DuckDB's native functions, "
        "so that no first query waits for them: for the image of a container, or a cache of CI.",
        epilog="The exit status is 1 if kernels cannot be kept or native functions cannot be "
        f"installed. With the environment variable {OFF}=0 the latter are left out.",
    ).parse_args(arguments)
    has_kernels = _compile_kernels()
    has_functions = _install_functions()
    return 0 if has_kernels and has_functions else 1


def _compile_kernels() -> bool:
    """Compile the kernels that are missing, and report whether they could be kept."""
    from sqlml.backends.native.jit.compile_ahead import compile_ahead

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
    from sqlml.udfs.duckdb.native.install import OFF, Unavailable, ensure_installed

    if os.environ.get(OFF) == "0":
        print(f"native functions are not installed: {OFF} is 0")
        return True
    with duckdb.connect() as connection:
        try:
            shim = ensure_installed(connection)
        except Unavailable as error:
            print(
                f"sqlml: native functions are unavailable: {error}. Rows will go through Arrow and "
                f"Python. Set {OFF}=0 to warm without native functions.",
                file=sys.stderr,
            )
            return False
    print(f"native functions are installed at {shim.path}")
    return True


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "calibrate": calibrate,
        "dbt": dbt,
        "demo": demo,
        "native": native,
        "report": report,
        "warm": warm,
    }
)
"""Commands by name."""
