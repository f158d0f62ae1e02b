"""The command line: `sqlml [DATABASE] [SQL | -f FILE]`, the prompt, and other commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import duckdb

from sqlml import __version__
from sqlml.open_session import connect
from sqlml.suggestions import closest
from sqlml.terminal import escaped_on_terminals
from sqlml.tools.commands import COMMANDS
from sqlml.tools.shell.dot_commands import Leave
from sqlml.tools.shell.output_modes import MODES, Display
from sqlml.tools.shell.prompt import prompt
from sqlml.tools.shell.shell import Shell


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments of `sqlml`."""
    command_line = argparse.ArgumentParser(
        prog="sqlml",
        allow_abbrev=False,
        description="Run SQL on a DuckDB database, with statements and functions for models.",
        epilog="`sqlml report` writes a page about a model, `sqlml demo` scores the flights of "
        "2013 in one run, `sqlml calibrate` measures "
        "this machine for the choice of backends, `sqlml native` says whether DuckDB calls models "
        "without Python, `sqlml warm` compiles kernels ahead of time, `sqlml dbt` adds models to a "
        "dbt project; see their --help.",
    )
    command_line.add_argument(
        "database", nargs="?", default=":memory:", help="a DuckDB file (default: in memory)"
    )
    command_line.add_argument("sql", nargs="?", metavar="SQL", help="run this SQL and exit")
    source = command_line.add_mutually_exclusive_group()
    source.add_argument("-c", "-s", "--command", metavar="SQL", help="the same")
    source.add_argument("-f", "--file", metavar="FILE", help="run the SQL of this file and exit")
    for name, mode in MODES.items():
        command_line.add_argument(
            f"-{name}",
            f"--{name}",
            dest="mode",
            action="store_const",
            const=name,
            help=f"write results as {mode.about}",
        )
    command_line.add_argument(
        "-noheader", "--noheader", action="store_true", help="write no column names"
    )
    command_line.add_argument("-o", "--output", metavar="FILE", help="write results to this file")
    command_line.add_argument(
        "-readonly", "--read-only", action="store_true", help="open the database read-only"
    )
    command_line.add_argument(
        "--allow-pickle",
        action="store_true",
        help="let CREATE MODEL read pickles, which execute code",
    )
    command_line.add_argument("--version", action="version", version=f"sqlml {__version__}")
    return command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0, 1 after an error, 2 for usage or unreadable SQL, 130 after an interrupt.
    """
    with escaped_on_terminals():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command or the shell; return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    usage = parser()
    options = usage.parse_intermixed_args(words)
    misspelling = _suggest_command(options.database)
    if misspelling is not None:
        usage.error(misspelling)
    sql = options.sql or options.command
    if options.sql is not None and (options.command or options.file) is not None:
        usage.error("SQL is given twice")
    if options.file is not None:
        sql = _read_sql(options.file)
        if sql is None:
            return 2
    open_session = partial(connect, read_only=options.read_only, allow_pickle=options.allow_pickle)
    if sql is None and not sys.stdin.isatty():
        sql = _read_sql(None)
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
            return prompt(shell) if sql is None else shell.run(sql, options.file or "")
        except Leave as leave:
            return leave.status
        except BrokenPipeError:  # For example, by `| head`. The buffer's rest is discarded.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1


def _suggest_command(database: str) -> str | None:
    """Return a message if the name of a new database is most likely a misspelt command."""
    is_word = database.isalpha() and not Path(database).exists()
    near = closest(database, COMMANDS) if is_word else None
    if near is None:
        return None
    return (
        f"there is no command or file {database!r}; did you mean sqlml {near}? "
        f"To open a new database of that name, write ./{database}"
    )


def _read_sql(path: str | None) -> str | None:
    """Return the text of a file or of standard input; None, with the reason printed, on failure."""
    try:
        content = sys.stdin.buffer.read() if path is None else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 ({error})"
    print(f"sqlml: cannot read {path or 'standard input'}: {reason}", file=sys.stderr)
    return None
