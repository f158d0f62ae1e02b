"""The dot commands of the shell, with names from DuckDB's shell and synonyms from psql."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, fold_in_sql
from sqlml.suggestions import closest
from sqlml.tools.shell.output_modes import MODES

if TYPE_CHECKING:
    from sqlml.tools.shell.shell import Shell

Arguments = Sequence[str]


class UsageError(Exception):
    """Raised if a dot command is unknown or gets wrong arguments."""


class ExitShell(Exception):
    """Raised by `.exit` to end the shell with the exit status `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Command:
    """A dot command. `.help` shows the arguments (`usage`) and the description (`about`)."""

    usage: str
    about: str
    run: Callable[[Shell, Arguments], None]
    min_arguments: int = 0
    max_arguments: int = 0


def run_command(shell: Shell, line: str) -> None:
    """Run a dot command, or a synonym such as `\\d` or `quit`.

    Raises UsageError for a wrong command, and ExitShell for `.exit`.
    """
    # Quotes group words, but a backslash is a plain character, for Windows paths.
    lexer = shlex.shlex(line.rstrip(";"), posix=True, punctuation_chars=False)
    lexer.escape, lexer.commenters, lexer.whitespace_split = "", "", True
    try:
        word, *arguments = lexer
    except ValueError as error:
        raise UsageError(f"{line.split()[0]}: {str(error).lower()}") from None
    name = _SYNONYMS.get(word.lower(), word.removeprefix("."))
    if word == "\\d" and arguments:
        name = "describe"
    command = COMMANDS.get(name)
    if command is None:
        suggestion = closest(name, list(COMMANDS))
        hint = f"did you mean .{suggestion}?" if suggestion else ".help lists all"
        raise UsageError(f"unknown command {word}; {hint}")
    if not command.min_arguments <= len(arguments) <= command.max_arguments:
        raise UsageError(f"usage: .{name} {command.usage}".rstrip())
    command.run(shell, arguments)


def _run_help(shell: Shell, _: Arguments) -> None:
    width = max(len(f".{name} {command.usage}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        shell.print_message(f"{f'.{name} {command.usage}':<{width}}  {command.about}")
    shell.print_message("\nEverything else is SQL, and ends with a semicolon.")


def _run_tables(shell: Shell, arguments: Arguments) -> None:
    condition = _build_name_condition(arguments)
    shell.write(
        shell.session.sql(
            "SELECT name, kind, rows, database, schema FROM ("
            "SELECT table_name AS name, 'table' AS kind, database_name AS database, "
            "schema_name AS schema, estimated_size AS rows FROM system.main.duckdb_tables() "
            "UNION ALL SELECT view_name, 'view', database_name, schema_name, NULL "
            "FROM system.main.duckdb_views() WHERE NOT internal) "
            f"WHERE schema <> 'sqlml' AND {condition} ORDER BY database, schema, name",
            params=list(arguments),
        )
    )


def _build_name_condition(arguments: Arguments) -> str:
    return f"{builtin('~~')}({fold_in_sql('name')}, {fold_in_sql('?')})" if arguments else "true"


def _run_models(shell: Shell, arguments: Arguments) -> None:
    like = f" LIKE {DUCKDB.quote_string(arguments[0])}" if arguments else ""
    shell.run_statement("SHOW MODELS" + like)


def _run_schema(shell: Shell, arguments: Arguments) -> None:
    condition = _build_name_condition(arguments)
    statements = shell.session.sql(
        "SELECT sql FROM ("
        "SELECT schema_name, table_name AS name, sql FROM system.main.duckdb_tables() "
        "UNION ALL SELECT schema_name, view_name, sql FROM system.main.duckdb_views() "
        "WHERE NOT internal UNION ALL "
        "SELECT schema_name, index_name, sql FROM system.main.duckdb_indexes()) "
        f"WHERE schema_name <> 'sqlml' AND sql IS NOT NULL AND {condition} ORDER BY name",
        params=list(arguments),
    ).fetchall()
    for (sql,) in statements:
        print(sql, file=shell.out)


def _run_describe(shell: Shell, arguments: Arguments) -> None:
    name = DUCKDB.quote_name(arguments[0])
    columns = shell.session.sql(
        "SELECT 1 FROM system.main.duckdb_columns() "
        f"WHERE {fold_in_sql('table_name')} = {fold_in_sql('?')}",
        params=list(arguments),
    ).fetchall()
    shell.run_statement(f"DESCRIBE {name}" if columns else f"DESCRIBE MODEL {name}")


def _run_mode(shell: Shell, arguments: Arguments) -> None:
    if not arguments:
        shell.print_message(f"{shell.display.mode}; modes: {', '.join(MODES)}")
        return
    (word,) = arguments
    name = {"duckbox": "box", "table": "box", "tsv": "tabs"}.get(word, word)
    if name not in MODES:
        raise UsageError(f"unknown mode {word}; modes: {', '.join(MODES)}")
    shell.change_display(mode=name)


def _make_switch(setting: str, about: str, name: str = "") -> Command:
    """Make a command that sets a boolean of the DisplaySettings, or toggles it if no argument."""
    name = name or setting

    def run_switch(shell: Shell, arguments: Arguments) -> None:
        if arguments:
            if arguments[0] not in ("on", "off"):
                raise UsageError(f"usage: .{name} on|off")
            shell.change_display(**{setting: arguments[0] == "on"})
            return
        is_on = not getattr(shell.display, setting)
        shell.change_display(**{setting: is_on})
        shell.print_message(f"{name} is {'on' if is_on else 'off'}")

    return Command("on|off", about, run_switch, 0, 1)


def _run_null(shell: Shell, arguments: Arguments) -> None:
    shell.change_display(null=arguments[0])


def _run_read(shell: Shell, arguments: Arguments) -> None:
    try:
        text = Path(arguments[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {arguments[0]}: {reason}") from None
    shell.run_all(text, arguments[0])


def open_output(path: str) -> TextIO:
    """Open a file for results in UTF-8, without conversion of line ends."""
    return open(path, "w", encoding="utf-8", newline="")


def _run_once(shell: Shell, arguments: Arguments) -> None:
    if shell.once is not None:
        shell.once.close()
    try:
        shell.once = open_output(arguments[0])
    except OSError as error:
        raise UsageError(f"cannot write {arguments[0]}: {error.strerror or error}") from None


def _run_output(shell: Shell, arguments: Arguments) -> None:
    try:
        shell.redirect(arguments[0] if arguments else None)
    except OSError as error:
        raise UsageError(f"cannot write {arguments[0]}: {error.strerror or error}") from None


def _run_databases(shell: Shell, _: Arguments) -> None:
    query = (
        "SELECT database_name AS name, coalesce(path, 'memory') AS file "
        "FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY name"
    )
    shell.write(shell.session.sql(query))


def _run_open(shell: Shell, arguments: Arguments) -> None:
    shell.open(arguments[0] if arguments else ":memory:")


def _run_exit(_: Shell, arguments: Arguments) -> None:
    if arguments and not arguments[0].isdecimal():
        raise UsageError("usage: .exit [STATUS]")
    raise ExitShell(int(arguments[0]) if arguments else 0)


COMMANDS: Mapping[str, Command] = {
    "databases": Command("", "list the attached databases, and their files", _run_databases),
    "describe": Command("NAME", "show the columns of a table, or a model", _run_describe, 1, 1),
    "exit": Command("[STATUS]", "leave (also .quit, exit, Ctrl-D)", _run_exit, 0, 1),
    "headers": _make_switch("header", "write column names, or not", "headers"),
    "help": Command("", "show this text", _run_help, 0, 1),
    "mode": Command("[MODE]", f"write results as {', '.join(MODES)}", _run_mode, 0, 1),
    "models": Command("[PATTERN]", "list models, or only those like PATTERN", _run_models, 0, 1),
    "nullvalue": Command("TEXT", "write TEXT for NULL", _run_null, 1, 1),
    "once": Command("FILE", "write the next result to a file", _run_once, 1, 1),
    "open": Command("[FILE]", "close this database and open another", _run_open, 0, 1),
    "output": Command("[FILE]", "write results to a file, or here again", _run_output, 0, 1),
    "pager": _make_switch("pager", "use a pager for results that do not fit the screen, or not"),
    "quit": Command("", "leave", _run_exit),
    "read": Command("FILE", "run the statements and commands of a file", _run_read, 1, 1),
    "schema": Command("[PATTERN]", "show CREATE statements of tables and views", _run_schema, 0, 1),
    "tables": Command(
        "[PATTERN]", "list tables and views, or only those like PATTERN", _run_tables, 0, 1
    ),
    "timer": _make_switch("timer", "show how long each statement takes, or not"),
}

_SYNONYMS = {
    **dict.fromkeys(("exit", "quit", "\\q"), "exit"),
    **dict.fromkeys(("help", "\\?", "\\h"), "help"),
    **dict.fromkeys(("\\d", "\\dt"), "tables"),
    "\\timing": "timer",
    "\\l": "databases",
    "\\i": "read",
    "\\o": "output",
}
"""Maps synonyms, such as commands of psql, to dot commands."""
