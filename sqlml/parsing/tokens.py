"""Tokens of an engine's SQL, with their places in the text.

sqlglot's tokenizers know the strings, dollar quotes, comments and quoted names; here they are kept
from swallowing the rest of a statement after EXPLAIN, PREPARE and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import zip_longest

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError
from sqlml.parsing.dialect import DIALECTS

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

_VARIABLE = re.compile(r"\$\{[^}]*\}")
"""What Spark replaces before it reads a statement: a name to us."""

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
        """The word in capitals; empty for anything that is not a bare word.

        A word with a letter beyond ASCII stays as it is: it is no keyword, though the capital of
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
    """The tokens as sqlglot's parser wants them, which takes none away; a parameter `$1` is one.

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
    return raw


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
_BEHIND = frozenset(
    {
        *(TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.PLACEHOLDER),
        *(TokenType.L_PAREN, TokenType.PARAMETER, TokenType.SEMICOLON),
    }
)
_OPERANDS = frozenset("SELECT FROM VALUES TABLE WITH ALL DISTINCT".split())
"""What stands behind MINUS where it is an operator."""


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


class Tokens(tuple[Token, ...]):
    """The tokens of a text. What each call of a statement asks about all of them is found once."""

    @cached_property
    def parameters(self) -> tuple[int, ...]:
        """Indices of the parameters."""
        return tuple(i for i, token in enumerate(self) if token.kind == "param")

    @cached_property
    def spelled(self) -> tuple[tuple[str, str], ...]:
        """Kind and text of each: equal where two pieces of the text say the same."""
        return tuple((token.kind, token.text) for token in self)

    @cached_property
    def words(self) -> frozenset[str]:
        """All bare words, in capitals, and symbols."""
        return frozenset(t.upper or t.text for t in self if t.kind in ("word", "symbol"))

    @cached_property
    def brackets(self) -> Brackets:
        """Where brackets open and close."""
        return Brackets.of(self)


@dataclass(frozen=True, slots=True)
class Brackets:
    """Where brackets open and close: one look at the tokens serves all questions about them.

    `closing`: opening bracket -> the one that closes it, where there is one. `around`: for each
    token, and behind the last, the innermost bracket that is open there, or -1; `queries`: the same
    of brackets that hold a query.
    """

    closing: Mapping[int, int]
    around: Sequence[int]
    queries: Sequence[int]

    @classmethod
    def of(cls, tokens: Sequence[Token]) -> Brackets:
        """The brackets of `tokens`, whose kinds need not fit: that is for the engine to say."""
        ends: dict[int, int] = {}
        around, queries = [-1], [-1]
        for i, token in enumerate(tokens):
            inner, query = around[i], queries[i]
            if token.kind == "symbol" and token.text in OPENING:
                query = i if starts_query(tokens, i + 1) else query
                inner = i
            elif token.kind == "symbol" and token.text in CLOSING and inner >= 0:
                ends[inner] = i
                inner, query = around[inner], queries[inner]
            around.append(inner)
            queries.append(query)
        return cls(ends, around, queries)


def as_tokens(tokens: Sequence[Token]) -> Tokens:
    """The same tokens; those of a whole text keep what they know of themselves."""
    return tokens if isinstance(tokens, Tokens) else Tokens(tokens)


def _brackets(tokens: Sequence[Token]) -> Brackets:
    return as_tokens(tokens).brackets


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Index of the bracket that closes the one at `opening`, or None."""
    return _brackets(tokens).closing.get(opening)


def brackets_around(tokens: Sequence[Token], place: int) -> list[int]:
    """Indices of the brackets that are open at token `place`, outermost first."""
    return _outwards(_brackets(tokens).around, place)


def queries_around(tokens: Sequence[Token], place: int) -> list[int]:
    """The same of brackets that hold a query."""
    return _outwards(_brackets(tokens).queries, place)


def _outwards(around: Sequence[int], place: int) -> list[int]:
    found, at = [], around[place]
    while at >= 0:
        found.append(at)
        at = around[at]
    return found[::-1]


def level(tokens: Sequence[Token], start: int, end: int) -> list[int]:
    """Indices of tokens[start:end] outside of all brackets, the brackets themselves included."""
    ends = _brackets(tokens).closing
    found, i = [], start
    while i < end:
        token = tokens[i]
        if token.kind == "symbol" and token.text in CLOSING:
            break  # of a bracket that opened before
        found.append(i)
        if token.kind == "symbol" and token.text in OPENING:
            i = ends.get(i, end)
            if i < end:
                found.append(i)
        i += 1
    return found


def split_commas(tokens: Sequence[Token], start: int, end: int) -> list[tuple[int, int]]:
    """Index ranges of the items between commas at the depth of tokens[start:end]."""
    items, begin = [], start
    for i in level(tokens, start, end):
        if tokens[i].is_symbol(","):
            items.append((begin, i))
            begin = i + 1
    if begin < end or items:
        items.append((begin, end))
    return items


_STARTS = frozenset(
    "SELECT FROM WITH VALUES UPDATE DELETE PIVOT UNPIVOT TABLE SUMMARIZE DESCRIBE SHOW".split()
)
_BETWEEN_OPERANDS = frozenset(
    "AND OR IS IN LIKE ILIKE RLIKE BETWEEN NOT AS COLLATE DIV OVER ASC DESC".split()
)


def starts_query(tokens: Sequence[Token], i: int) -> bool:
    """Whether token i, the first in a bracket, starts a query or statement, and is no column.

    >>> [starts_query(tokenize(s), 0) for s in ("TABLE t", "table + 1", "VALUES (1)", "values)")]
    [True, False, True, False]
    """
    word = tokens[i].upper if i < len(tokens) else ""
    if word not in _STARTS:
        return False
    after = tokens[i + 1] if i + 1 < len(tokens) else None
    if word == "SELECT" or after is None:
        return True
    if after.is_identifier:
        return after.upper not in _BETWEEN_OPERANDS
    return after.kind in ("string", "number", "param") or after.is_symbol("(")
