"""`ModelSqlLexer`: the colours of SQL in the prompt, our statements and functions among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name

from sqlml.shell.vocabulary import FUNCTIONS, KEYWORDS


class ModelSqlLexer(SqlLexer):  # type: ignore[misc]  # Pygments has no types
    """SQL as Pygments knows it, and the words of sqlml."""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Places, kinds and texts of a statement's tokens."""
        for place, kind, word in super().get_tokens_unprocessed(text):
            if kind in Name or kind in Keyword:
                if word.lower() in FUNCTIONS:
                    kind = Name.Function
                elif word.upper() in KEYWORDS:
                    kind = Keyword
            yield place, kind, word
