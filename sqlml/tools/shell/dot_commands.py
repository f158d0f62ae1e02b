"""Commands that begin with a dot, named as in DuckDB's shell, and psql's words for them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, fold_in_sql
from sqlml.suggestions import closest
from sqlml.tools.shell.output_modes import MODES

if TYPE_CHECKING:
    from sqlml.tools.shell.shell import Shell


class UsageError(Exception):
    """Raised for a dot command that does not exist or has wrong arguments."""


class Leave(Exception):
    """Raised by `.exit`: the shell ends with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Command:
    """A dot command.

    Attributes:
        usage: its arguments, as `.help` writes them.
        about: what it does.
        run: does it, given the arguments.
        least, most: how many arguments it takes.
    """

    usage: str
    about: str
    run: Callable[[Shell, Sequence[str]], None]
    least: int = 0
    most: int = 0


def run_command(shell: Shell, line: str) -> None:
    """Run a dot command, one of psql's, `help`, `exit` or `quit`.

    Raises:
        UsageError: it does not exist, or has other arguments.
        Leave: it is `.exit`.
    """
    try:
        word, *given = _words(line.rstrip(";"))
    except ValueError as error:
        raise UsageError(f"{line.split()[0]}: {str(error).lower()}") from None
    name = _OTHER_WORDS.get(word.lower(), word.removeprefix("."))
    if word == "\\d" and given:
        name = "describe"
    command = COMMANDS.get(name)
    if command is None:
        near = closest(name, list(COMMANDS))
        hint = f"did you mean .{near}?" if near else ".help lists all"
        raise UsageError(f"unknown command {word}; {hint}")
    if not command.least <= len(given) <= command.most:
        raise UsageError(f"usage: .{name} {command.usage}".rstrip())
    command.run(shell, given)


def _words(line: str) -> list[str]:
    """Split a line into words; quotes hold words together, and a backslash is a plain character."""
    made = shlex.shlex(line, posix=True, punctuation_chars=False)
    made.escape, made.commenters, made.whitespace_split = "", "", True
    return list(made)


def _help(shell: Shell, given: Sequence[str]) -> None:
    width = max(len(f".{name} {command.usage}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        shell.say(f"{f'.{name} {command.usage}':<{width}}  {command.about}")
    shell.say("\nAll else is SQL, and ends with a semicolon.")


def _tables(shell: Shell, given: Sequence[str]) -> None:
    where, values = _like("name", given)
    shell.write(
        shell.session.sql(
            "SELECT name, kind, rows, database, schema FROM ("
            "SELECT table_name AS name, 'table' AS kind, database_name AS database, "
            "schema_name AS schema, estimated_size AS rows FROM system.main.duckdb_tables() "
            "UNION ALL SELECT view_name, 'view', database_name, schema_name, NULL "
            "FROM system.main.duckdb_views() WHERE NOT internal) "
            f"WHERE schema <> 'sqlml' AND {where} ORDER BY database, schema, name",
            params=values,
        )
    )


def _like(column: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """Return a condition for names that match a pattern, ignoring case."""
    if not given:
        return "true", []
    return f"{builtin('~~')}({fold_in_sql(column)}, {fold_in_sql('?')})", [given[0]]


def _models(shell: Shell, given: Sequence[str]) -> None:
    like = f" LIKE {DUCKDB.quote_string(given[0])}" if given else ""
    shell.statement("SHOW MODELS" + like)


def _schema(shell: Shell, given: Sequence[str]) -> None:
    where, values = _like("name", given)
    found = shell.session.sql(
        "SELECT sql FROM ("
        "SELECT schema_name, table_name AS name, sql FROM system.main.duckdb_tables() "
        "UNION ALL SELECT schema_name, view_name, sql FROM system.main.duckdb_views() "
        "WHERE NOT internal UNION ALL "
        "SELECT schema_name, index_name, sql FROM system.main.duckdb_indexes()) "
        f"WHERE schema_name <> 'sqlml' AND sql IS NOT NULL AND {where} ORDER BY name",
        params=values,
    ).fetchall()
    for (sql,) in found:
        print(sql, file=shell.out)


def _describe(shell: Shell, given: Sequence[str]) -> None:
    name = DUCKDB.quote_name(given[0])
    known = shell.session.sql(
        "SELECT 1 FROM system.main.duckdb_columns() "
        f"WHERE {fold_in_sql('table_name')} = {fold_in_sql('?')}",
        params=[given[0]],
    ).fetchall()
    shell.statement(f"DESCRIBE {name}" if known else f"DESCRIBE MODEL {name}")


def _mode(shell: Shell, given: Sequence[str]) -> None:
    if not given:
        shell.say(f"{shell.display.mode}; modes: {', '.join(MODES)}")
        return
    name = {"duckbox": "box", "table": "box", "tsv": "tabs"}.get(given[0], given[0])
    if name not in MODES:
        raise UsageError(f"unknown mode {given[0]}; modes: {', '.join(MODES)}")
    shell.change(mode=name)


def _switch(setting: str, word: str) -> Callable[[Shell, Sequence[str]], None]:
    """Return a command that turns a setting on or off, or toggles it without an argument."""

    def run(shell: Shell, given: Sequence[str]) -> None:
        is_on = not getattr(shell.display, setting)
        if given:
            if given[0] not in ("on", "off"):
                raise UsageError(f"usage: .{word} on|off")
            is_on = given[0] == "on"
        shell.change(**{setting: is_on})
        if not given:
            shell.say(f"{word} is {'on' if is_on else 'off'}")

    return run


def _null(shell: Shell, given: Sequence[str]) -> None:
    shell.change(null=given[0])


def _read(shell: Shell, given: Sequence[str]) -> None:
    try:
        text = Path(given[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {given[0]}: {_reason(error)}") from None
    shell.run_all(text, given[0])


def _once(shell: Shell, given: Sequence[str]) -> None:
    if shell.once is not None:
        shell.once.close()
    try:
        shell.once = open(given[0], "w", encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"cannot write {given[0]}: {_reason(error)}") from None


def _output(shell: Shell, given: Sequence[str]) -> None:
    try:
        shell.redirect(given[0] if given else None)
    except OSError as error:
        raise UsageError(f"cannot write {given[0]}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _databases(shell: Shell, given: Sequence[str]) -> None:
    shell.write(
        shell.session.sql(
            "SELECT database_name AS name, coalesce(path, 'memory') AS file "
            "FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY name"
        )
    )


def _open(shell: Shell, given: Sequence[str]) -> None:
    shell.open(given[0] if given else ":memory:")


def _exit(shell: Shell, given: Sequence[str]) -> None:
    if given and not given[0].isdecimal():
        raise UsageError("usage: .exit [STATUS]")
    raise Leave(int(given[0]) if given else 0)


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "databases": Command(
            "", "list the databases that are attached, and their files", _databases
        ),
        "describe": Command(
            "NAME", "show the columns of a table, or what a model is", _describe, 1, 1
        ),
        "exit": Command("[STATUS]", "leave (also .quit, exit, Ctrl-D)", _exit, 0, 1),
        "headers": Command(
            "on|off", "write names of columns or not", _switch("header", "headers"), 0, 1
        ),
        "help": Command("", "show this text", _help, 0, 1),
        "mode": Command("[MODE]", f"write results as {', '.join(MODES)}", _mode, 0, 1),
        "models": Command("[PATTERN]", "list models, all or those like a pattern", _models, 0, 1),
        "nullvalue": Command("TEXT", "write TEXT for NULL", _null, 1, 1),
        "once": Command("FILE", "write the next result to a file", _once, 1, 1),
        "open": Command("[FILE]", "leave this database and open another", _open, 0, 1),
        "output": Command("[FILE]", "write results to a file, or here again", _output, 0, 1),
        "pager": Command(
            "on|off", "show what does not fit in a pager or not", _switch("pager", "pager"), 0, 1
        ),
        "quit": Command("", "leave", _exit, 0, 0),
        "read": Command("FILE", "run the statements and commands of a file", _read, 1, 1),
        "schema": Command(
            "[PATTERN]", "show the CREATE statements of tables and views", _schema, 0, 1
        ),
        "tables": Command(
            "[PATTERN]", "list tables and views, all or those like a pattern", _tables, 0, 1
        ),
        "timer": Command(
            "on|off", "tell how long each statement takes or not", _switch("timer", "timer"), 0, 1
        ),
    }
)
"""Dot commands by name."""

_OTHER_WORDS = MappingProxyType(
    {
        "exit": "exit",
        "quit": "exit",
        "help": "help",
        "\\q": "exit",
        "\\?": "help",
        "\\h": "help",
        "\\timing": "timer",
        "\\dt": "tables",
        "\\d": "tables",
        "\\l": "databases",
        "\\i": "read",
        "\\o": "output",
    }
)
"""Other words for dot commands, such as psql's."""
