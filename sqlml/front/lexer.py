"""Tokens of DuckDB's SQL, with their places in the text.

sqlglot's DuckDB tokenizer knows the strings, dollar quotes, comments and quoted names; here it
is kept from swallowing the rest of a statement after EXPLAIN, PREPARE and the like.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError


class _Dialect(DuckDB):
    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {  # `?::` is a parameter and a cast
            k: v for k, v in DuckDB.Tokenizer.KEYWORDS.items() if k != "?::"
        }
        STRING_ESCAPES = ["'"]


_DIALECT = _Dialect()
_STRINGS = {TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING}
_PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")
_SEVERAL_WORDS = re.compile(r"[^\W\d][\w$]*(?:\s+[^\W\d][\w$]*)+")

_PARAMETER = "\ue000"
_DOLLARS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    r"|(\$(?:[^\W\d]\w*)?\$).*?\1|\$(?=\w)",
    re.DOTALL,
)
"""What may hold a dollar that is no parameter (strings, names, comments, dollar quotes), else `$`.

sqlglot takes `$1, b := $` in `f($1, b := $2)` for the tag of a dollar quote.
"""

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `kind` is word, name (quoted), string, number, param or symbol.

    `text` is the content (a word as written, a quoted name or string without its quotes), and
    sql[start:end] the token as it stands. A param's text is `?`, `$1` or `$name`.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The word in capitals; empty for anything that is not a bare word."""
        return self.text.upper() if self.kind == "word" else ""

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given punctuation."""
        return self.kind == "symbol" and self.text == text

    @property
    def is_identifier(self) -> bool:
        """A bare word or a quoted name."""
        return self.kind in ("word", "name")


def tokenize(sql: str) -> tuple[Token, ...]:
    """All tokens of `sql`; comments are left out.

    Raises:
        ParseError: an unclosed string, name or comment.
    """
    marked = _DOLLARS.sub(_mark, sql) if "$" in sql else sql
    try:
        raw = _DIALECT.tokenize(marked)
    except TokenError as error:
        raise ParseError(f"the text cannot be read as SQL: {error}") from None
    return tuple(t for token in raw for t in _tokens(marked, token))


def _mark(match: re.Match[str]) -> str:
    """The `$` of a parameter as another character, which starts no dollar quote."""
    return _PARAMETER if match[0] == "$" else match[0]


def _tokens(sql: str, token: GlotToken) -> list[Token]:
    start, end = token.start, token.end + 1
    text = sql[start:end]
    if token.token_type not in _STRINGS and _SEVERAL_WORDS.fullmatch(text):  # GROUP BY, IS NULL ..
        return [
            Token("word", m[0], start + m.start(), start + m.end())
            for m in _PLAIN_NAME.finditer(text)
        ]
    if token.token_type in _STRINGS:
        kind, text = "string", token.text
    elif token.token_type == TokenType.BYTE_STRING and text[0] in "eE" and "\\" not in text:
        kind, text = "string", token.text
    elif token.token_type == TokenType.IDENTIFIER:
        kind, text = "name", token.text
    elif token.token_type == TokenType.NUMBER:
        kind = "number"
    elif token.token_type == TokenType.PLACEHOLDER:
        kind = "param"
    elif text.startswith(_PARAMETER):
        kind, text = "param", "$" + text[1:]
    elif _PLAIN_NAME.fullmatch(text):
        kind = "word"
    else:
        kind = "symbol"
    return [Token(kind, text, start, end)]


def statements(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Index ranges of the statements between semicolons; empty ones are left out."""
    ranges, start = [], 0
    for i, token in enumerate(tokens):
        if token.is_symbol(";"):
            ranges.append((start, i))
            start = i + 1
    ranges.append((start, len(tokens)))
    return [(a, b) for a, b in ranges if b > a]


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Index of the bracket that closes the one at `opening`, or None."""
    depth = 0
    for i in range(opening, len(tokens)):
        token = tokens[i]
        if token.kind != "symbol":
            continue
        if token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
            if depth == 0:
                return i
    return None


def brackets_around(tokens: Sequence[Token], place: int) -> list[int]:
    """Indices of the brackets that are open at token `place`, outermost first."""
    stack: list[int] = []
    for i in range(place):
        if tokens[i].kind == "symbol":
            if tokens[i].text in OPENING:
                stack.append(i)
            elif tokens[i].text in CLOSING and stack:
                stack.pop()
    return stack


def level(tokens: Sequence[Token], start: int, end: int) -> list[int]:
    """Indices of tokens[start:end] outside of all brackets, the brackets themselves included."""
    found, depth = [], 0
    for i in range(start, end):
        symbol = tokens[i].kind == "symbol"
        if symbol and tokens[i].text in CLOSING:
            depth -= 1
        if depth == 0:
            found.append(i)
        if symbol and tokens[i].text in OPENING:
            depth += 1
    return found


def split_commas(tokens: Sequence[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Index ranges of the items between commas at the depth of tokens[start:end]."""
    items, depth, begin = [], 0, start
    for i in range(start, end):
        token = tokens[i]
        if token.kind != "symbol":
            continue
        if token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
        elif token.text == "," and depth == 0:
            items.append((begin, i))
            begin = i + 1
    if begin < end or items:
        items.append((begin, end))
    return items


def quote_name(name: str) -> str:
    """A name as a quoted SQL identifier.

    >>> quote_name('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_string(text: str) -> str:
    """A text as a SQL string literal.

    >>> quote_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
