"""The command line: `sqlml [DATABASE] [SQL | -f FILE]`, the prompt, and other commands.

Each other command, such as `sqlml report`, is a function that parses arguments and returns the exit
status: 0, 1 after an error, or 2 for wrong usage. The function imports its dependencies late, so
that the shell starts quickly.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path

import duckdb

from sqlml import __version__
from sqlml.errors import SqlmlError
from sqlml.long_work import is_watched
from sqlml.open_session import connect
from sqlml.suggestions import closest
from sqlml.terminal import escaped_on_terminals
from sqlml.tools.shell.dot_commands import ExitShell
from sqlml.tools.shell.output_modes import MODES, DisplaySettings
from sqlml.tools.shell.prompt import prompt
from sqlml.tools.shell.shell import Shell

Command = Callable[[Sequence[str]], int]
"""A function that maps the arguments after the command's name to the exit status."""


def _fail(reason: str, status: int = 2) -> int:
    print(f"sqlml: {reason}", file=sys.stderr)
    return status


def _print_error(error: Exception) -> int:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return 1


def calibrate(arguments: Sequence[str]) -> int:
    """Run `sqlml calibrate`: measure this machine, and print the saved costs."""
    from sqlml.backends.costs import DEFAULT_COSTS, costs_path
    from sqlml.tools.calibration import calibrate as calibration

    argparse.ArgumentParser(
        prog="sqlml calibrate",
        description="Measure what the installed backends cost on this machine, in nanoseconds per "
        "step, and save it for the choice of backend and strategy.",
    ).parse_args(arguments)
    try:
        measured = calibration.calibrate()
    except OSError as error:
        return _fail(f"cannot save the costs: {error}", 1)
    for name, default_cost in DEFAULT_COSTS.items():
        if name in measured:
            print(f"{name:<22}{measured[name]:>12.4f}  (shipped: {default_cost:g})")
    print(f"saved in {costs_path()}")
    return 0


def dbt(arguments: Sequence[str]) -> int:
    """Run `sqlml dbt`: write the macros into a dbt project."""
    parser = argparse.ArgumentParser(
        prog="sqlml dbt",
        description="Write macros/sqlml.sql into a dbt project: the materialization ml_model, "
        "and macros for the names of models.",
        epilog="profiles.yml also needs a line: plugins: [{module: sqlml}].",
    )
    description = "its folder (default: the current one)"
    parser.add_argument("project", nargs="?", default=".", help=description)
    try:
        path = _add_macros(Path(parser.parse_args(arguments).project))
    except OSError as error:
        return _fail(str(error), 1)
    print(f"wrote {path}")
    return 0


def _add_macros(project: Path) -> Path:
    if not (project / "dbt_project.yml").is_file():
        raise FileNotFoundError(f"no dbt_project.yml in {project.resolve()}")
    text = (files("sqlml.tools.connectors") / "dbt_macros.sql").read_text(encoding="utf-8")
    path = project / "macros" / "sqlml.sql"
    if path.exists() and not path.read_text("utf-8", "replace").startswith(text.splitlines()[0]):
        raise FileExistsError(f"{path} exists and is not from `sqlml dbt`; rename it")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def demo(arguments: Sequence[str]) -> int:
    """Run `sqlml demo`: score the flights of New York City with three models."""
    from sqlml.tools.demo.job import run

    parser = argparse.ArgumentParser(
        prog="sqlml demo",
        description="Fit three models on the flights that left New York City in 2013, score them "
        "in SQL, and compare and time every score with the source libraries.",
    )
    add = parser.add_argument
    add("--database", type=Path, metavar="FILE", help="keep the database in this new file")
    add("--rows", type=int, metavar="N", help="use only N of the 336,776 flights (at least 1000)")
    options = parser.parse_args(arguments)
    try:
        run(options.database, options.rows)
    except SqlmlError as error:
        return _print_error(error)
    return 0


def export(arguments: Sequence[str]) -> int:
    """Run `sqlml export`: write model files as an extension of DuckDB."""
    from sqlml.scorer.scorer import compile
    from sqlml.udfs.duckdb.native.export_extension import (
        ExportedModel,
        export_extension,
        write_extension_file,
    )

    parser = argparse.ArgumentParser(
        prog="sqlml export",
        description="Write model files as one extension of DuckDB. Any client of DuckDB 1.2 or "
        "later that loads it can call each model by the name of the model's file.",
    )
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="a file that CREATE MODEL accepts")
    add("-o", "--output", required=True, metavar="FILE", help="a file NAME.duckdb_extension")
    add("--platform", help="DuckDB's name of the platform that loads it (default: this one)")
    add("--allow-pickle", action="store_true", help="read pickles, which execute code")
    options = parser.parse_args(arguments)
    try:
        models = []
        for path in options.models:
            scorer = compile(path, allow_pickle=options.allow_pickle)
            models.append(ExportedModel(Path(path).stem, scorer.program, scorer.features))
        content = export_extension(models, options.output, options.platform)
        write_extension_file(options.output, content)
    except OSError as error:
        return _fail(f"cannot write {options.output}: {error.strerror}", 1)
    except SqlmlError as error:
        return _print_error(error)
    print(f"wrote {options.output} ({len(content) / 1e6:.1f} MB)")
    return 0


def native(arguments: Sequence[str]) -> int:
    """Run `sqlml native`: report the state of native functions, or change what is installed."""
    from sqlml.udfs.duckdb.native import extension, platform_runtimes

    parser = argparse.ArgumentParser(
        prog="sqlml native",
        description="Report whether DuckDB calls models without Python on this machine. This needs "
        "an extension, which sqlml installs in DuckDB's folder on first use.",
        epilog=f"With the environment variable {extension.OFF}=0 it is neither installed nor used.",
    )
    parser.add_argument("--remove", action="store_true", help="remove what was installed")
    message = "install the runtime for other clients of this version of DuckDB, and compile the "
    message += "models of databases for it, which an earlier version of sqlml created"
    parser.add_argument("--clients", nargs="*", metavar="DATABASE", help=message)
    message = "keep the runtime in this wheel of sqlml, to export models for its platform"
    parser.add_argument("--add", type=Path, metavar="WHEEL", help=message)
    options = parser.parse_args(arguments)
    if options.add is not None:
        try:
            platform = platform_runtimes.add_runtime(options.add)
        except OSError as error:
            return _fail(f"cannot keep {options.add}: {error}", 1)
        except SqlmlError as error:
            return _print_error(error)
        print(f"models can be exported for {platform}")
        return 0
    if options.clients is not None:
        try:
            installed = extension.install_for_clients()
            for database in options.clients:
                with connect(database) as session:
                    print(f"compiled {session.compile_for_clients()} models of {database}")
        except extension.Unavailable as error:
            return _fail(f"cannot install the runtime for other clients: {error}", 1)
        except (duckdb.Error, SqlmlError) as error:
            return _print_error(error)
        print(f"installed {installed.path}")
        print(f"other clients load it with: LOAD {extension.NAME} FROM {installed.repository}")
        return 0
    if options.remove:
        removals = [f"removed {folder}" for folder in extension.uninstall()]
        print("\n".join(removals or ["nothing to remove"]))
        return 0
    with duckdb.connect() as connection:
        try:
            runtime = extension.find_install_path(connection)
            is_installed = runtime.path.is_file()
            if not is_installed:
                extension.check_folder(runtime)
        except extension.Unavailable as error:
            print(f"native functions are unavailable: {error}")
            return 0
    state = "installed at" if is_installed else "installed when they are first used, at"
    print(f"native functions are {state} {runtime.path}")
    with suppress(extension.Unavailable):
        clients = extension.find_client_path()
        statement = f"LOAD {extension.NAME} FROM {clients.repository}"
        is_installed = clients.path.is_file()
        print(f"other clients: {statement if is_installed else 'run `sqlml native --clients`'}")
    return 0


def report(arguments: Sequence[str]) -> int:
    """Run `sqlml report`: write a page about a model and its quality on the user's rows."""
    options = _make_report_parser().parse_args(arguments)
    if options.output is None and sys.stdout.isatty():
        return _fail("name a file for the page, as in -o report.html")
    error_number = None if options.output is None else _find_write_error(Path(options.output))
    if error_number is not None:
        return _fail(f"cannot write {options.output}: {os.strerror(error_number)}")
    try:
        with connect(options.database, read_only=True) as session:
            columns = {"label": options.label, "by": options.by}
            progress = _print_progress if is_watched() else None
            page = session.report(options.model, options.data, **columns, progress=progress)
    except (duckdb.Error, SqlmlError) as error:
        return _print_error(error)
    if options.output is None:
        sys.stdout.buffer.write(page.html.encode())
        sys.stdout.buffer.flush()
        return 0
    try:
        page.save(options.output)
    except OSError as error:
        return _fail(f"cannot write {options.output}: {error.strerror}")
    print(f"wrote {options.output} ({len(page.html.encode()) / 1000:,.0f} kB)", file=sys.stderr)
    return 0


def _make_report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqlml report",
        allow_abbrev=False,
        description="Write one page of HTML about a model: what it reads, how good it is on your "
        "rows, which columns matter, how its scores are distributed, drift, cost.",
        epilog="It needs the extra report: pip install 'sqlml[report]'. The database is opened "
        "read-only.",
    )
    add = parser.add_argument
    add("database", help="a DuckDB file")
    add("model", help="a model in it; name/2 or name@alias for one version")
    add("--data", required=True, metavar="SQL", help="the rows: a query, or the name of a table")
    add_columns = partial(add, action="append", metavar="COLUMN")
    add_columns("--label", help="the column with the true values; repeat it for further targets")
    add_columns("--by", help="a column that divides the rows into groups; repeat it for another")
    add("-o", "--output", metavar="FILE", help="write the page there (default: standard output)")
    return parser


def _find_write_error(path: Path) -> int | None:
    """Return the errno if writing `path` would fail, or None. Call this before a slow report."""
    if path.is_dir():
        return errno.EISDIR
    if not path.parent.is_dir():
        return errno.ENOENT
    return None if os.access(path if path.exists() else path.parent, os.W_OK) else errno.EACCES


def _print_progress(stage: str) -> None:
    print(f"{stage} ...", file=sys.stderr, flush=True)


def warm(arguments: Sequence[str]) -> int:
    """Run `sqlml warm`: compile kernels and install native functions before their first use."""
    from sqlml.udfs.duckdb.native.extension import OFF

    argparse.ArgumentParser(
        prog="sqlml warm",
        description="Compile the kernels that models need and install DuckDB's native functions, "
        "so that no first query waits for them, for example in a container image or a CI cache.",
        epilog="The exit status is 1 if kernels cannot be saved or native functions cannot be "
        f"installed. With the environment variable {OFF}=0, native functions are not installed.",
    ).parse_args(arguments)
    return max(_compile_kernels(), _install_functions())


def _compile_kernels() -> int:
    from sqlml.backends.native.jit.compile_ahead import compile_ahead

    start_time = time.monotonic()
    try:
        count = compile_ahead(
            lambda missing: print(f"compiling {missing} kernels", flush=True) if missing else None
        )
    except OSError as error:
        return _fail(f"cannot keep kernels: {error}", 1)
    message = f"compiled {count} kernels in {time.monotonic() - start_time:.0f} s"
    print(message if count else "all common kernels are compiled")
    return 0


def _install_functions() -> int:
    from sqlml.udfs.duckdb.native.extension import OFF, Unavailable, ensure_installed

    if os.environ.get(OFF) == "0":
        print(f"native functions are not installed: {OFF} is 0")
        return 0
    with duckdb.connect() as connection:
        try:
            runtime = ensure_installed(connection)
        except Unavailable as error:
            return _fail(
                f"native functions are unavailable: {error}. Rows will go through Arrow and "
                f"Python. Set {OFF}=0 to warm without native functions.",
                1,
            )
    print(f"native functions are installed at {runtime.path}")
    return 0


_COMMANDS = (calibrate, dbt, demo, export, native, report, warm)
COMMANDS: Mapping[str, Command] = {command.__name__: command for command in _COMMANDS}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqlml",
        allow_abbrev=False,
        description="Run SQL on a DuckDB database, with statements and functions for models.",
        epilog="`sqlml report` writes a page about a model, `sqlml demo` scores the flights of "
        "2013 in one run, `sqlml calibrate` measures this machine for the choice of backends, "
        "`sqlml native` says whether DuckDB calls models without Python, `sqlml warm` compiles "
        "kernels ahead of time, `sqlml export` writes model files as an extension of DuckDB, "
        "`sqlml dbt` adds models to a dbt project; see their --help.",
    )
    add = parser.add_argument
    add("database", nargs="?", default=":memory:", help="a DuckDB file (default: in memory)")
    add("sql", nargs="?", metavar="SQL", help="run this SQL and exit")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-c", "-s", "--command", metavar="SQL", help="run this SQL and exit")
    source.add_argument("-f", "--file", metavar="FILE", help="run the SQL of this file and exit")
    add_mode = partial(add, dest="mode", action="store_const")
    for name, mode in MODES.items():
        add_mode(f"-{name}", f"--{name}", const=name, help=f"write results as {mode.about}")
    add_flag = partial(add, action="store_true")
    add_flag("-noheader", "--noheader", help="write no column names")
    parser.add_argument("-o", "--output", metavar="FILE", help="write results to this file")
    add_flag("-readonly", "--read-only", help="open the database read-only")
    add_flag("--allow-pickle", help="let CREATE MODEL read pickles, which execute code")
    parser.add_argument("--version", action="version", version=f"sqlml {__version__}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status.

    The status is 0, 1 after an error, 2 for wrong usage or unreadable SQL, or 130 after Ctrl-C.
    """
    with escaped_on_terminals():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:])
    parser = make_parser()
    options = parser.parse_intermixed_args(arguments)
    if (suggestion := _suggest_command(options.database)) is not None:
        parser.error(suggestion)
    sql = options.sql or options.command
    if options.sql is not None and (options.command or options.file) is not None:
        parser.error("SQL is given twice")
    if options.file is not None or (sql is None and not sys.stdin.isatty()):
        sql = _read_sql(options.file)
        if sql is None:
            return 2
    open_session = partial(connect, read_only=options.read_only, allow_pickle=options.allow_pickle)
    display = DisplaySettings(mode=options.mode or "box", header=not options.noheader)
    try:
        session = open_session(options.database)
    except duckdb.Error as error:
        return _print_error(error)
    with closing(Shell(session, display, open_session, sys.stdout, sys.stdout.isatty())) as shell:
        if options.output is not None:
            try:
                shell.redirect(options.output)
            except OSError as error:
                return _fail(f"cannot write {options.output}: {error.strerror}")
        try:
            return prompt(shell) if sql is None else shell.run(sql, options.file or "")
        except ExitShell as exit_request:
            return exit_request.status
        except BrokenPipeError:  # For example, `| head` has ended. Discard the remaining output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1


def _suggest_command(database: str) -> str | None:
    is_new_word = database.isalpha() and not Path(database).exists()
    command = closest(database, COMMANDS) if is_new_word else None
    if command is None:
        return None
    return (
        f"there is no command or file {database!r}; did you mean sqlml {command}? "
        f"To open a new database of that name, write ./{database}"
    )


def _read_sql(path: str | None) -> str | None:
    """Read a file, or standard input if `path` is None. On errors, print a message, return None."""
    try:
        content = sys.stdin.buffer.read() if path is None else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 ({error})"
    _fail(f"cannot read {path or 'standard input'}: {reason}")
    return None
