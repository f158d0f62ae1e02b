"""The prompt of prompt_toolkit, in which all lines of a statement can be edited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name

from sqlml.tools.shell.completion import FUNCTIONS, KEYWORDS, ModelCompleter
from sqlml.tools.shell.shell import FIRST, NEXT, Shell, is_command, is_complete


class ModelSqlLexer(SqlLexer):  # type: ignore[misc]  # Pygments has no types
    """The SQL lexer of Pygments, extended with the functions and keywords of models."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        for position, token_type, word in super().get_tokens_unprocessed(text):
            if token_type in Name or token_type in Keyword:
                if word.lower() in FUNCTIONS:
                    token_type = Name.Function
                elif word.upper() in KEYWORDS:
                    token_type = Keyword
            yield position, token_type, word


def make_editor(shell: Shell, history: Path) -> Callable[[], str]:
    """Return a function that reads a statement. `history` is the file of earlier statements."""
    completer = ModelCompleter(shell.session)
    session: PromptSession[str] = PromptSession(
        message=FIRST,
        prompt_continuation=NEXT,
        multiline=True,
        history=_open_history(history),
        completer=completer,
        complete_while_typing=True,
        lexer=PygmentsLexer(ModelSqlLexer),
        key_bindings=_bind_keys(),
        reserve_space_for_menu=6,
    )

    def read_statement() -> str:
        completer.session = shell.session  # The command .open replaces the session.
        completer.forget_names()
        while not (text := session.prompt()).strip():
            pass
        return text

    return read_statement


def _open_history(file: Path) -> History:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _bind_keys() -> KeyBindings:
    """Bind Enter, which runs a statement or adds a line, and Tab, which completes or indents."""
    keys = KeyBindings()

    @keys.add("enter", filter=~completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if not text.strip() or is_command(text) or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("enter", filter=completion_is_selected)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
        elif buffer.document.current_line_before_cursor.strip():
            buffer.start_completion(select_first=True)
        else:
            buffer.insert_text("    ")

    return keys
