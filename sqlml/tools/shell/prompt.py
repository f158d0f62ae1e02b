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
"""Reads a statement. Raises EOFError after Ctrl-D, and KeyboardInterrupt after Ctrl-C."""


def prompt(shell: Shell) -> int:
    """Run typed statements until the user leaves, and return the exit status."""
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
        except ExitShell as exit_request:
            return exit_request.status


def _find_history_file() -> Path:
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
    with suppress(ImportError):
        import_module("readline")  # After this import, `input` supports line editing.
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
