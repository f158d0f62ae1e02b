"""Tokens of an engine's SQL, with their places in the text.

sqlglot's tokenizers know the strings, dollar quotes, comments and quoted names; here they are kept
from swallowing the rest of a statement after EXPLAIN, PREPARE and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import ClassVar

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError


class _DuckDB(DuckDB):
    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {  # `?::` is a parameter and a cast
            k: v for k, v in DuckDB.Tokenizer.KEYWORDS.items() if k != "?::"
        }
        STRING_ESCAPES = ["'"]


class _Spark(Spark):
    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}  # else 1.5D is a number and a cast
        KEYWORDS: ClassVar[dict[str, TokenType]] = {  # a hint is a comment to us
            k: v for k, v in Spark.Tokenizer.KEYWORDS.items() if v != TokenType.HINT and k != "?::"
        }


_TOKENIZERS = {"duckdb": _DuckDB(), "spark": _Spark()}
_STRINGS = {TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING}
_PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")
_SEVERAL_WORDS = re.compile(r"[^\W\d][\w$]*(?:\s+[^\W\d][\w$]*)+")

_SUFFIXED = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)?", re.IGNORECASE)

_PARAMETER = "\ue000"
_DOLLARS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    r"|(\$(?:[^\W\d]\w*)?\$).*?\1|\$(?=\w)",
    re.DOTALL,
)
"""What may hold a dollar that is no parameter (strings, names, comments, dollar quotes), else `$`.

sqlglot takes `$1, b := $` in `f($1, b := $2)` for the tag of a dollar quote.
"""

_CONTINUED = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|(--(?:\\\n|[^\r\n])*)", re.DOTALL
)
"""Strings, names and comments of Spark; a comment goes on behind a backslash at its line's end."""

OPENING = {"(": ")", "[": "]", "{": "}"}
CLOSING = frozenset(OPENING.values())


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `kind` is word, name (quoted), string, number, param or symbol.

    `text` is the content (a word as written, a quoted name or string without its quotes), and
    sql[start:end] the token as it stands. A param's text is `?`, `$1`, `$name` or (Spark) `:name`.
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


def tokenize(sql: str, dialect: str = "duckdb") -> tuple[Token, ...]:
    """All tokens of `sql`; comments are left out.

    Args:
        dialect: the name of a `Dialect`.

    Raises:
        ParseError: an unclosed string, name or comment.
    """
    marked = _DOLLARS.sub(_mark, sql) if "$" in sql and dialect == "duckdb" else sql
    if dialect == "spark" and "\\\n" in sql:
        marked = _CONTINUED.sub(lambda m: " " * len(m[1]) if m[1] else m[0], sql)
    try:
        raw = _TOKENIZERS[dialect].tokenize(marked)
    except TokenError as error:
        raise ParseError(f"the text cannot be read as SQL: {error}") from None
    found = tuple(t for token in raw for t in _tokens(marked, token))
    return tuple(_sparks(sql, found)) if dialect == "spark" else found


def _sparks(sql: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens with what Spark reads otherwise: `:name` is a parameter, 10L a number, 2a a name.

    `a:b` is no parameter but a field of a VARIANT.
    """
    before: Token | None = None
    skip = False
    for token, following in zip_longest(tokens, tokens[1:]):
        if skip:
            skip = False
            continue
        made = token
        touches = before is not None and before.end == token.start
        value = before is not None and (before.kind != "symbol" or before.text in CLOSING)
        if (
            token.is_symbol(":")
            and following is not None
            and following.kind == "word"
            and following.start == token.end
            and not (touches and value)
        ):
            made = Token("param", f":{following.text}", token.start, following.end)
            skip = True
        elif (
            token.kind == "string" and following is not None and following.kind == "string"
        ) and sql[token.end - 1 : token.end + 1] in ("''", '""'):
            made = Token(
                "string", token.text + sql[token.end] + following.text, token.start, following.end
            )
            skip = True
        elif token.kind == "symbol" and token.text[0].isdigit():
            number = _SUFFIXED.fullmatch(token.text)
            made = replace(token, kind="word" if number is None else "number")
            if number is not None:
                made = replace(made, text=number[1])
        yield made
        before = made


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
