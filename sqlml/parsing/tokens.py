"""Tokens of an engine's SQL, with their places in the text.

sqlglot's tokenizers know the strings, dollar quotes, comments and quoted names; here they are kept
from swallowing the rest of a statement after EXPLAIN, PREPARE and the like.
"""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import TypeVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError, SqlmlError
from sqlml.parsing.dialect import DIALECTS
from sqlml.parsing.statement_parts import STRINGS

_PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")
_SEVERAL_WORDS = re.compile(r"[^\W\d][\w$]*(?:\s+[^\W\d][\w$]*)+")

_SUFFIXED = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)?", re.IGNORECASE)

_PARAMETER = "\ue000"
_DOLLARS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    r"|(\$(?:[^\W\d]\w*)?\$).*?\1|\$(?=\w)",
    re.DOTALL,
)
"""What may hold a dollar that is not a parameter (strings, names, comments, dollar quotes), else
`$`.

sqlglot takes `$1, b := $` in `f($1, b := $2)` for the tag of a dollar quote.
"""

_VARIABLE = re.compile(r"\$\{[^}]*\}")
"""What Spark replaces before it reads a statement: a name to us."""

_CONTINUED = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|(--(?:\\\n|[^\r\n])*)", re.DOTALL
)
"""Strings, names and comments of Spark; a comment continues after a backslash at its line's end."""

OPENING = frozenset("([{")
CLOSING = frozenset(")]}")


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
        """The word in capitals; empty for anything that is not a bare word.

        A word with a letter beyond ASCII stays as it is: it is not a keyword, though the capital of
        one may be (`ıf`).
        """
        if self.kind != "word":
            return ""
        return self.text.upper() if self.text.isascii() else self.text

    def is_symbol(self, text: str) -> bool:
        """Whether this is the given punctuation."""
        return self.kind == "symbol" and self.text == text

    @property
    def is_identifier(self) -> bool:
        """A bare word or a quoted name."""
        return self.kind in ("word", "name")


def tokenize(sql: str, dialect: str = "duckdb") -> Tokens:
    """All tokens of `sql`; comments are left out.

    Args:
        dialect: the name of a `Dialect`.

    Raises:
        ParseError: an unclosed string, name or comment.
    """
    found = Tokens(t for token in raw_tokens(sql, dialect) for t in _tokens(sql, token))
    return Tokens(_sparks(sql, found)) if dialect == "spark" else found


@lru_cache(maxsize=4)
def raw_tokens(sql: str, dialect: str = "duckdb") -> list[GlotToken]:
    """All the tokens, as sqlglot's parser takes them; a parameter `$1` is one token.

    Those of the last few texts are kept: a new statement is looked at more than once.

    Raises:
        ParseError: an unclosed string, name or comment.
    """
    marked = _DOLLARS.sub(_mark, sql) if "$" in sql and dialect == "duckdb" else sql
    if dialect == "spark" and "\\\n" in sql:
        marked = _CONTINUED.sub(lambda m: " " * len(m[1]) if m[1] else m[0], sql)
    if dialect == "spark" and "${" in sql:
        marked = _VARIABLE.sub(lambda m: _PARAMETER * len(m[0]), marked)
    try:
        raw = DIALECTS[dialect].tokenize(marked)
    except TokenError as error:
        raise ParseError(f"the text cannot be read as SQL: {error}") from None
    if dialect == "spark":
        raw = _joined(sql, raw)
    for token in raw if dialect == "duckdb" and marked is not sql else ():
        if token.text.startswith(_PARAMETER):
            token.token_type = TokenType.PLACEHOLDER
            token.text = "$" + token.text[1:]
    if not sql.isascii():
        for token in raw:  # a letter beyond ASCII, whose capital is one of ASCII, makes no keyword
            text = sql[token.start : token.end + 1]
            if not text.isascii() and _PLAIN_NAME.fullmatch(text):
                token.token_type = TokenType.VAR
    for before, token, after in zip([None, *raw], raw, [*raw[1:], None], strict=False):
        if token.token_type in _BEGIN and _is_name(before, token, after):
            token.token_type = TokenType.VAR
    if dialect == "duckdb":
        _name_columns(raw)
    return raw


def _name_columns(raw: Sequence[GlotToken]) -> None:
    """Make names of DuckDB's unreserved keywords where a column or an alias is called so."""
    first = before = None
    for token, after in zip_longest(raw, raw[1:]):
        if first is None or before is None or before.token_type == TokenType.SEMICOLON:
            first = token
        elif _is_column(first, before, token, after):
            token.token_type = TokenType.VAR
        before = token


def _is_column(
    first: GlotToken, before: GlotToken, token: GlotToken, after: GlotToken | None
) -> bool:
    """Whether a word inside of a statement, which begins with `first`, is a name."""
    kind = token.token_type
    if before.token_type == TokenType.DOT:
        return kind != TokenType.IDENTIFIER and bool(_PLAIN_NAME.fullmatch(token.text))
    if kind in _COMMANDS:  # ALTER TABLE t DROP c
        return first.token_type not in _COMMANDS
    opens = after is not None and after.token_type == TokenType.L_PAREN
    if kind in (TokenType.INSERT, TokenType.VALUES):
        table = before.token_type == TokenType.FROM and not opens
        return table or (after is not None and after.token_type == TokenType.FROM)
    if kind in (TokenType.CUBE, TokenType.ROLLUP):
        return not opens
    ends = after is None or after.token_type in _ENDS
    if kind in (TokenType.NOT, TokenType.SELECT):  # x AS NOT MATERIALIZED, AS SELECT 1
        return ends and before.token_type == TokenType.ALIAS
    if kind == TokenType.BETWEEN:
        return ends or before.token_type in _BEFORE_OPERAND
    return False


def _joined(sql: str, raw: list[GlotToken]) -> list[GlotToken]:
    """The tokens with `'it''s'` as one text, which Spark's tokenizer takes for two."""
    made: list[GlotToken] = []
    for token in raw:
        before = made[-1] if made and token.token_type == TokenType.STRING else None
        if before is not None and before.token_type == TokenType.STRING:
            quotes = sql[before.end : before.end + 2]
            if token.start == before.end + 1 and quotes in ("''", '""'):
                before.text += quotes[0] + token.text
                before.end = token.end
                continue
        made.append(token)
    return made


def _is_name(before: GlotToken | None, token: GlotToken, after: GlotToken | None) -> bool:
    """Whether a word that may begin a statement, or an operand of UNION, is a column's name."""
    if before is not None and before.text.upper() in ("THEN", "DO", "FOR", "AFTER", "ON"):
        return False
    if after is None:
        return before is not None and before.token_type != TokenType.SEMICOLON
    if token.token_type == TokenType.EXCEPT:
        if token.text.upper() != "MINUS":
            return False
        return after.token_type != TokenType.L_PAREN and after.text.upper() not in _OPERANDS
    if token.token_type == TokenType.INSERT and after.text.upper() == "OR":
        return False  # INSERT OR REPLACE
    if _PLAIN_NAME.match(after.text):
        return after.text.upper().split()[0] in _BETWEEN_OPERANDS
    return after.token_type not in _BEHIND


_BEGIN = frozenset(
    {
        *(TokenType.DESCRIBE, TokenType.SHOW, TokenType.SUMMARIZE, TokenType.VALUES),
        *(TokenType.INSERT, TokenType.UPDATE, TokenType.DELETE, TokenType.EXCEPT),
        *(TokenType.PIVOT, TokenType.UNPIVOT),
    }
)
_COMMANDS = frozenset(
    {
        *(TokenType.ALTER, TokenType.DROP, TokenType.FORCE, TokenType.GRANT, TokenType.INSTALL),
        *(TokenType.REVOKE, TokenType.ROLLBACK),
    }
)
"""Words that only begin statements of DuckDB, or stand inside of those that begin with another."""

_BEFORE_OPERAND = frozenset(
    {
        *(TokenType.L_PAREN, TokenType.COMMA, TokenType.SELECT, TokenType.WHERE, TokenType.ALIAS),
        *(TokenType.AND, TokenType.OR, TokenType.ON, TokenType.HAVING, TokenType.GROUP_BY),
        *(TokenType.ORDER_BY, TokenType.QUALIFY, TokenType.FROM, TokenType.COLON_EQ),
    }
)
_ENDS = frozenset(
    {
        *(TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.EQ),
        TokenType.SEMICOLON,
    }
)
"""What cannot follow an operator."""

_BEHIND = frozenset(
    {
        *(TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.PLACEHOLDER),
        *(TokenType.L_PAREN, TokenType.PARAMETER, TokenType.SEMICOLON),
    }
)
_BETWEEN_OPERANDS = frozenset(
    "AND OR IS IN LIKE ILIKE RLIKE BETWEEN NOT AS COLLATE DIV OVER ASC DESC".split()
)
"""Words that may follow a name in an expression."""

_OPERANDS = frozenset("SELECT FROM VALUES TABLE WITH ALL DISTINCT".split())
"""What follows MINUS where it is an operator."""


def _sparks(sql: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens with Spark's own readings: `:name` is a parameter, 10L a number, 2a a name.

    `a:b` is not a parameter but a field of a VARIANT.
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
    if token.token_type not in STRINGS and _SEVERAL_WORDS.fullmatch(text):  # GROUP BY, IS NULL ..
        return [
            Token("word", m[0], start + m.start(), start + m.end())
            for m in _PLAIN_NAME.finditer(text)
        ]
    if token.token_type in STRINGS:
        kind, text = "string", token.text
    elif token.token_type == TokenType.BYTE_STRING and text[0] in "eE" and "\\" not in text:
        kind, text = "string", token.text
    elif token.token_type == TokenType.IDENTIFIER:
        kind, text = "name", token.text
    elif token.token_type == TokenType.NUMBER:
        kind = "number"
    elif token.token_type == TokenType.PLACEHOLDER:
        kind = "param"
    elif _PLAIN_NAME.fullmatch(text):
        kind = "word"
    else:
        kind = "symbol"
    return [Token(kind, text, start, end)]


class Tokens(tuple[Token, ...]):
    """The tokens of a text. What each call of a statement asks about all of them is found once."""

    @cached_property
    def closing(self) -> Mapping[int, int]:
        """Each opening bracket's index, and that of the one that closes it, if there is one.

        Their kinds need not match: the engine checks that.
        """
        ends: dict[int, int] = {}
        opened: list[int] = []
        for i, token in enumerate(self):
            if token.kind == "symbol" and token.text in OPENING:
                opened.append(i)
            elif token.kind == "symbol" and token.text in CLOSING and opened:
                ends[opened.pop()] = i
        return ends

    def split_commas(self, start: int, end: int) -> list[tuple[int, int]]:
        """Index ranges of the items of self[start:end] between commas outside of brackets."""
        items, begin, i = [], start, start
        while i < end:
            token = self[i]
            if token.kind == "symbol" and token.text in CLOSING:
                break  # of a bracket that opened before
            if token.kind == "symbol" and token.text in OPENING:
                i = self.closing.get(i, end)
            elif token.is_symbol(","):
                items.append((begin, i))
                begin = i + 1
            i += 1
        return [*items, (begin, end)] if begin < end or items else []


# `place_in`: the place in a user's text that a place in the rewritten one comes from.


_MOST = 4_000_000
"""Most pairs of tokens to compare, so that an error is not slow."""


def place_in(rewritten: str, written: str, offset: int, dialect: str = "duckdb") -> int | None:
    """The character of `written` that `rewritten[offset]` was, or that stood where it is."""
    try:
        ours, theirs = tokenize(rewritten, dialect), tokenize(written, dialect)
    except SqlmlError:
        return None
    if len(ours) * len(theirs) > _MOST:
        return None
    at = next((i for i, token in enumerate(ours) if offset < token.end), None)
    if at is None:
        return None
    a = [rewritten[t.start : t.end] for t in ours]
    b = [written[t.start : t.end] for t in theirs]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    for _, i, end, j, stop in matcher.get_opcodes():
        if i <= at < end:
            same = a[i:end] == b[j:stop]
            token = min(j + (at - i if same else 0), len(theirs) - 1)
            return theirs[token].start + (max(0, offset - ours[at].start) if same else 0)
    return None


# `deeply`: work on a text that is nested more deeply than Python's limit of calls allows.


T = TypeVar("T")

DEEPEST = 1600
"""Nested brackets: an engine takes 1,000."""

_FRAMES = 120
"""Calls of Python for one bracket, at most."""

_FRAMES_OF_A_TERM = 8

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})

_lock = threading.Lock()


def deeply(sql: str, dialect: str, work: Callable[[], T]) -> T:
    """Run `work`, which recurses over a text.

    The limit is raised only for this call: much in Python, such as json, relies on it to stop in
    time.

    Raises:
        ParseError: the text is nested too deeply.
    """
    try:
        return work()
    except RecursionError:
        depth = _depth(sql, dialect)
    if depth > DEEPEST:
        raise ParseError(f"nested too deeply: {depth} nested brackets")
    with _lock:
        before = sys.getrecursionlimit()
        terms = len(raw_tokens(sql, dialect))  # those of a sum are in each other, too
        sys.setrecursionlimit(before + _FRAMES * (depth + 10) + _FRAMES_OF_A_TERM * terms)
        try:
            return work()
        except RecursionError:
            raise ParseError("nested too deeply") from None
        finally:
            sys.setrecursionlimit(before)


def _depth(sql: str, dialect: str) -> int:
    """The most brackets in each other."""
    depth = most = 0
    for token in raw_tokens(sql, dialect):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        most = max(most, depth)
    return most
