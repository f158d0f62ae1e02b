"""Read statements from a terminal and run them.

The extra `cli` (prompt_toolkit) adds history, completion and colors to the plain prompt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import duckdb

from sqlml import __version__
from sqlml.tools.shell.dot_commands import ExitShell
from sqlml.tools.shell.shell import FIRST, NEXT, Shell, is_command, is_complete

Reader = Callable[[], str]
"""A function that reads a statement; raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""


def prompt(shell: Shell) -> int:
    """Run statements as they are typed, until the user leaves; return the exit status."""
    print(f"sqlml {__version__} on DuckDB {duckdb.__version__}")
    print("Statements end with a semicolon; .help lists commands; Ctrl-D leaves.")
    read_statement = _choose_reader(shell)
    while True:
        try:
            text = read_statement()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            continue
        try:
            shell.run(text)
        except ExitShell as leave:
            return leave.status


def _find_history_file() -> Path:
    """Return the history file: SQLML_HISTORY, or a file in the state folder (XDG_STATE_HOME)."""
    configured_path = os.environ.get("SQLML_HISTORY")
    if configured_path:
        return Path(configured_path)
    state_folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_folder) / "sqlml" / "history"


def _choose_reader(shell: Shell) -> Reader:
    try:
        from sqlml.tools.shell.editor import make_editor
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("prompt_toolkit", "pygments"):
            raise
        print("History, completion and colors: pip install 'sqlml[cli]'", file=sys.stderr)
        return _read_plain
    return make_editor(shell, _find_history_file())


def _read_plain() -> str:
    """Read lines with `input` until they form a statement or command; return them."""
    with suppress(ImportError):
        import_module("readline")  # from now on `input` edits lines
    text = ""
    while True:
        try:
            text += input(NEXT if text else FIRST) + "\n"
        except (EOFError, KeyboardInterrupt):
            print()
            raise
        if is_command(text) or is_complete(text):
            return text
        text = text if text.strip() else ""
