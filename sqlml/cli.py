"""The command line: `sqlml [DATABASE] [-c SQL | -f FILE]`, a prompt, and other commands."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import duckdb

from sqlml import __version__
from sqlml.backends.costs import SHIPPED, place
from sqlml.calibration.calibrate import calibrate
from sqlml.connectors.dbt_project import add_macros
from sqlml.open_session import connect
from sqlml.shell.display import Display
from sqlml.shell.dot_commands import Leave
from sqlml.shell.output_modes import MODES
from sqlml.shell.prompt import prompt
from sqlml.shell.shell import Shell
from sqlml.udfs.duckdb.native.install import OFF, Unavailable, installed, uninstall, where


def parser() -> argparse.ArgumentParser:
    """The arguments of `sqlml`."""
    made = argparse.ArgumentParser(
        prog="sqlml",
        allow_abbrev=False,
        description="Run SQL on a DuckDB database, with statements and functions for models.",
        epilog="`sqlml demo` scores the flights of 2013 in one run, `sqlml calibrate` measures "
        "this machine for the choice of backends, `sqlml native` says whether DuckDB calls models "
        "without Python, `sqlml warm` compiles kernels ahead of time, `sqlml dbt` adds models to a "
        "project of dbt; see their --help.",
    )
    made.add_argument(
        "database", nargs="?", default=":memory:", help="a DuckDB file (default: in memory)"
    )
    source = made.add_mutually_exclusive_group()
    source.add_argument("-c", "--command", metavar="SQL", help="run this SQL and exit")
    source.add_argument("-f", "--file", metavar="FILE", help="run the SQL of this file and exit")
    for name, mode in MODES.items():
        made.add_argument(
            f"-{name}",
            f"--{name}",
            dest="mode",
            action="store_const",
            const=name,
            help=f"write results as {mode.about}",
        )
    made.add_argument(
        "-noheader", "--noheader", action="store_true", help="write no names of columns"
    )
    made.add_argument("-o", "--output", metavar="FILE", help="write results to this file")
    made.add_argument("--read-only", action="store_true", help="open the database read-only")
    made.add_argument(
        "--allow-pickle",
        action="store_true",
        help="let CREATE MODEL read pickles, which execute code",
    )
    made.add_argument("--version", action="version", version=f"sqlml {__version__}")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error, 2 for usage or a file
    of SQL that cannot be read, 130 after an interruption."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["demo"]:
        from sqlml.demo import main as demo  # needs the demo extra, which others lack

        return demo(given[1:])
    if given[:1] == ["calibrate"]:
        return _calibrate(given[1:])
    if given[:1] == ["native"]:
        return _native(given[1:])
    if given[:1] == ["warm"]:
        return _warm(given[1:])
    if given[:1] == ["dbt"]:
        return _dbt(given[1:])
    options = parser().parse_args(given)
    sql = options.command
    if options.file is not None:
        sql = _read(options.file)
        if sql is None:
            return 2
    open_session = partial(connect, read_only=options.read_only, allow_pickle=options.allow_pickle)
    if sql is None and not sys.stdin.isatty():
        sql = _read(None)
        if sql is None:
            return 2
    display = Display(mode=options.mode or "box", header=not options.noheader)
    try:
        session = open_session(options.database)
    except duckdb.Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    with closing(Shell(session, display, open_session, sys.stdout, sys.stdout.isatty())) as shell:
        if options.output is not None:
            try:
                shell.redirect(options.output)
            except OSError as error:
                print(f"sqlml: cannot write {options.output}: {error.strerror}", file=sys.stderr)
                return 2
        try:
            return prompt(shell) if sql is None else shell.run(sql)
        except Leave as leave:
            return leave.status
        except BrokenPipeError:  # as `| head` leaves it; what is left in the buffer goes nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1


def _calibrate(arguments: Sequence[str]) -> int:
    """`sqlml calibrate`: measure this machine for the choice of backends, and say what was kept."""
    made = argparse.ArgumentParser(
        prog="sqlml calibrate",
        description="Measure what the installed backends cost on this machine, in nanoseconds a "
        "step, and keep it for the choice of backend and strategy.",
    )
    made.parse_args(arguments)
    try:
        measured = calibrate()
    except OSError as error:
        print(f"sqlml: cannot save the costs: {error}", file=sys.stderr)
        return 1
    for name, shipped in SHIPPED.items():
        if name in measured:
            print(f"{name:<22}{measured[name]:>12.4f}  (shipped: {shipped:g})")
    print(f"saved in {place()}")
    return 0


def _native(arguments: Sequence[str]) -> int:
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


def _warm(arguments: Sequence[str]) -> int:
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


def _dbt(arguments: Sequence[str]) -> int:
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


def _read(path: str | None) -> str | None:
    """The text of a file, or of standard input; None, once the reason is printed, when it cannot be
    read."""
    try:
        content = sys.stdin.buffer.read() if path is None else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 ({error})"
    print(f"sqlml: cannot read {path or 'standard input'}: {reason}", file=sys.stderr)
    return None
