"""The command line: `sqlml [DATABASE] [-c SQL | -f FILE]`, a prompt, and other commands."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from sqlml import __version__
from sqlml.backends.costs import SHIPPED, place
from sqlml.calibration.calibrate import calibrate
from sqlml.errors import SqlmlError
from sqlml.open_session import connect
from sqlml.parsing.cut_statements import cut
from sqlml.session.session import Session
from sqlml.udfs.duckdb.native.install import OFF, Unavailable, installed, uninstall, where


def parser() -> argparse.ArgumentParser:
    """The arguments of `sqlml`."""
    made = argparse.ArgumentParser(
        prog="sqlml",
        description="Run SQL on a DuckDB database, with statements and functions for models.",
        epilog="`sqlml demo` scores the flights of 2013 in one run, `sqlml calibrate` measures "
        "this machine for the choice of backends, `sqlml native` says whether DuckDB calls models "
        "without Python, `sqlml warm` compiles kernels ahead of time; see their --help.",
    )
    made.add_argument(
        "database", nargs="?", default=":memory:", help="a DuckDB file (default: in memory)"
    )
    source = made.add_mutually_exclusive_group()
    source.add_argument("-c", "--command", metavar="SQL", help="run this SQL and exit")
    source.add_argument("-f", "--file", metavar="FILE", help="run the SQL of this file and exit")
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
    options = parser().parse_args(given)
    sql = options.command
    if options.file is not None:
        sql = _read(options.file)
        if sql is None:
            return 2
    try:
        session = connect(options.database, options.read_only, allow_pickle=options.allow_pickle)
    except duckdb.Error as error:
        return _failed(error)
    with session:
        if sql is not None:
            return _run(session, sql)
        if not sys.stdin.isatty():
            return _run(session, sys.stdin.read())
        return _prompt(session)


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


def _read(path: str) -> str | None:
    """The text of a file; None, once the reason is printed, when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 ({error})"
    print(f"sqlml: cannot read {path}: {reason}", file=sys.stderr)
    return None


def _run(session: Session, sql: str) -> int:
    """Run each statement and print its result; stop at the first error."""
    try:
        for piece in cut(sql):
            show(session, piece)
    except (SqlmlError, duckdb.Error) as error:
        return _failed(error)
    except (KeyboardInterrupt, RuntimeError) as error:  # DuckDB's own "Query interrupted"
        if isinstance(error, RuntimeError) and "interrupt" not in str(error).lower():
            raise
        print("Interrupted", file=sys.stderr)
        return 130
    return 0


def show(session: Session, sql: str) -> None:
    """Run one statement and print its result, if it has one."""
    relation = session.sql(sql)
    if relation is None:
        return
    if list(relation.columns) == ["explain_key", "explain_value"]:
        for _, text in relation.fetchall():
            print(text)
    else:
        print(relation)


def _prompt(session: Session) -> int:
    """Read statements from the terminal until the end of input."""
    try:
        import readline  # line editing, where Python has it
    except ImportError:
        pass
    else:
        readline.parse_and_bind("tab: complete")
    print(f"sqlml {__version__} on DuckDB {duckdb.__version__}")
    print("End statements with ; and exit with Ctrl-D.")
    text = ""
    while True:
        try:
            line = input("sqlml> " if not text else "   ..> ")
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        text += line + "\n"
        if not text.strip() or not text.rstrip().endswith(";"):
            text = text if text.strip() else ""
            continue
        _run(session, text)
        text = ""


def _failed(error: BaseException) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1
