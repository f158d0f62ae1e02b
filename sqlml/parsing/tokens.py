"""The tokens of an engine's SQL, with their positions in the text.

sqlglot's tokenizers handle strings, dollar quotes, comments and quoted names. Here, they also
tokenize the rest of a statement after EXPLAIN, PREPARE and similar words.
"""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, zip_longest
from typing import TypeVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as GlotToken
from sqlglot.tokenizer_core import TokenType

from sqlml.errors import ParseError, SqlmlError
from sqlml.parsing import statement_parts
from sqlml.parsing.sqlglot_dialects import DIALECTS
from sqlml.parsing.statement_parts import STRING_TOKENS, token_types

_PLAIN_NAME = re.compile(r"[^\W\d][\w$]*")
_MULTI_WORD = re.compile(r"[^\W\d][\w$]*(?:\s+[^\W\d][\w$]*)+")

_SUFFIXED_NUMBER = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)?", re.IGNORECASE)

_DOLLAR_MARK = "\ue000"
"""A letter that replaces the `$` of a parameter, because `$` would begin a dollar quote."""

_DOLLAR_OR_QUOTED = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    r"|(\$(?:[^\W\d]\w*)?\$).*?\1|\$(?=\w)",
    re.DOTALL,
)
"""Text in which a dollar is not a parameter (strings, names, comments, dollar quotes), or `$`.

In `f($1, b := $2)`, sqlglot would read `$1, b := $` as the tag of a dollar quote.
"""

_SPARK_VARIABLE = re.compile(r"\$\{[^}]*\}")
"""A variable, which Spark replaces before it parses a statement. It is read as a name here."""

_QUOTED_OR_COMMENT = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|/\*.*?\*/|(--(?:\\\n|[^\r\n])*)", re.DOTALL
)
"""Strings, names and comments in Spark. A backslash at the end of a line continues a comment."""

OPENING_SYMBOLS = frozenset("([{")
CLOSING_SYMBOLS = frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, whose SQL is sql[start:end].

    kind: "word", "name" (quoted), "string", "number", "param" or "symbol". text: a word as it is
    written, or a quoted name or string without its quotes. A parameter is `?`, `$1`, `$name` or, in
    Spark, `:name`.
    """

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The text in capitals if the token is a bare word, otherwise "".

        A word with a non-ASCII letter is not a keyword and stays unchanged, even if the capital of
        this letter is in ASCII (`ıf`).
        """
        if self.kind != "word":
            return ""
        return self.text.upper() if self.text.isascii() else self.text

    def is_symbol(self, text: str) -> bool:
        return self.kind == "symbol" and self.text == text

    @property
    def is_identifier(self) -> bool:
        return self.kind in ("word", "name")


def tokenize(sql: str, dialect: str = "duckdb") -> Tokens:
    """Return all tokens of `sql` without comments; raise ParseError if a string is not closed."""
    tokens = Tokens(t for token in raw_tokens(sql, dialect) for t in _convert_token(sql, token))
    return Tokens(_read_as_spark(sql, tokens)) if dialect == "spark" else tokens


@lru_cache(maxsize=4)
def raw_tokens(sql: str, dialect: str = "duckdb") -> list[GlotToken]:
    """Return the tokens of `sql` for sqlglot's parser, with a single token for a parameter `$1`.

    The last results are cached, because a new statement is tokenized more than once.
    """
    prepared_sql = sql
    if dialect == "duckdb" and "$" in sql:
        prepared_sql = _DOLLAR_OR_QUOTED.sub(lambda m: _DOLLAR_MARK if m[0] == "$" else m[0], sql)
    if dialect == "spark" and "\\\n" in sql:
        prepared_sql = _QUOTED_OR_COMMENT.sub(lambda m: " " * len(m[1]) if m[1] else m[0], sql)
    if dialect == "spark" and "${" in sql:
        prepared_sql = _SPARK_VARIABLE.sub(lambda m: _DOLLAR_MARK * len(m[0]), prepared_sql)
    try:
        tokens = DIALECTS[dialect].tokenize(prepared_sql)
    except TokenError as error:
        raise ParseError(f"the text cannot be read as SQL: {error}") from None
    if dialect == "spark":
        tokens = _join_strings(sql, tokens)
    for token in tokens if dialect == "duckdb" and prepared_sql is not sql else ():
        if token.text.startswith(_DOLLAR_MARK):
            token.token_type = TokenType.PLACEHOLDER
            token.text = "$" + token.text[1:]
    if not sql.isascii():
        for token in tokens:  # A word with a non-ASCII letter is not a keyword.
            text = sql[token.start : token.end + 1]
            if not text.isascii() and _PLAIN_NAME.fullmatch(text):
                token.token_type = TokenType.VAR
    neighbors = zip([None, *tokens], tokens, [*tokens[1:], None], strict=False)
    for previous, token, following in neighbors:
        may_begin = token.token_type in _STATEMENT_WORDS
        if may_begin and _is_name_not_command(previous, token, following):
            token.token_type = TokenType.VAR
    if dialect == "duckdb":
        _mark_column_names(tokens)
    return tokens


def _mark_column_names(tokens: Sequence[GlotToken]) -> None:
    """Change unreserved keywords of DuckDB to names if they name columns or aliases."""
    first_token = previous = None
    for token, following in zip_longest(tokens, tokens[1:]):
        if first_token is None or previous is None or previous.token_type == TokenType.SEMICOLON:
            first_token = token
        elif _is_column_name(first_token, previous, token, following):
            token.token_type = TokenType.VAR
        previous = token


def _is_column_name(
    first_token: GlotToken, previous: GlotToken, token: GlotToken, following: GlotToken | None
) -> bool:
    """Return whether the keyword `token` is used as a name; `first_token` begins its statement."""
    token_type = token.token_type
    if previous.token_type == TokenType.DOT:
        return token_type != TokenType.IDENTIFIER and bool(_PLAIN_NAME.fullmatch(token.text))
    if token_type in _COMMAND_WORDS:  # DROP is a keyword in ALTER TABLE t DROP c.
        return first_token.token_type not in _COMMAND_WORDS
    opens_bracket = following is not None and following.token_type == TokenType.L_PAREN
    if token_type in (TokenType.INSERT, TokenType.VALUES):
        is_table = previous.token_type == TokenType.FROM and not opens_bracket
        return is_table or (following is not None and following.token_type == TokenType.FROM)
    if token_type in (TokenType.CUBE, TokenType.ROLLUP):
        return not opens_bracket
    ends_operand = following is None or following.token_type in _AFTER_OPERANDS
    if token_type in (TokenType.NOT, TokenType.SELECT):  # AS NOT MATERIALIZED and AS SELECT 1
        return ends_operand and previous.token_type == TokenType.ALIAS
    if token_type == TokenType.BETWEEN:
        return ends_operand or previous.token_type in _BEFORE_OPERANDS
    return False


def _join_strings(sql: str, tokens: list[GlotToken]) -> list[GlotToken]:
    """Join strings such as `'it''s'`, which Spark's tokenizer splits in two, into one token."""
    joined: list[GlotToken] = []
    for token in tokens:
        previous = joined[-1] if joined and token.token_type == TokenType.STRING else None
        if previous is not None and previous.token_type == TokenType.STRING:
            quotes = sql[previous.end : previous.end + 2]
            if token.start == previous.end + 1 and quotes in ("''", '""'):
                previous.text += quotes[0] + token.text
                previous.end = token.end
                continue
        joined.append(token)
    return joined


def _is_name_not_command(
    previous: GlotToken | None, token: GlotToken, following: GlotToken | None
) -> bool:
    """Return whether `token` names a column instead of beginning a statement or an operand."""
    if previous is not None and previous.text.upper() in ("THEN", "DO", "FOR", "AFTER", "ON"):
        return False
    if following is None:
        return previous is not None and previous.token_type != TokenType.SEMICOLON
    if token.token_type == TokenType.EXCEPT:
        opens_bracket = following.token_type == TokenType.L_PAREN
        is_operator = opens_bracket or following.text.upper() in _AFTER_MINUS
        return token.text.upper() == "MINUS" and not is_operator
    if token.token_type == TokenType.INSERT and following.text.upper() == "OR":
        return False  # INSERT OR REPLACE
    if _PLAIN_NAME.match(following.text):
        return following.text.upper().split()[0] in _AFTER_NAMES
    return following.token_type not in _NOT_AFTER_NAMES


_STATEMENT_WORDS = token_types(
    "DESCRIBE SHOW SUMMARIZE VALUES INSERT UPDATE DELETE EXCEPT PIVOT UNPIVOT"
)
_COMMAND_WORDS = token_types("ALTER DROP FORCE GRANT INSTALL REVOKE ROLLBACK")
"""Words that begin statements of DuckDB, and keywords inside these statements."""

_BEFORE_OPERANDS = token_types(
    "L_PAREN COMMA SELECT WHERE ALIAS AND OR ON HAVING GROUP_BY ORDER_BY QUALIFY FROM COLON_EQ"
)
_AFTER_OPERANDS = token_types("COMMA R_PAREN FROM WHERE EQ SEMICOLON")

_NOT_AFTER_NAMES = token_types("STRING IDENTIFIER NUMBER PLACEHOLDER L_PAREN PARAMETER SEMICOLON")
_AFTER_NAMES = frozenset(
    "AND OR IS IN LIKE ILIKE RLIKE BETWEEN NOT AS COLLATE DIV OVER ASC DESC".split()
)
"""Words that may follow a name in an expression."""

_AFTER_MINUS = frozenset("SELECT FROM VALUES TABLE WITH ALL DISTINCT".split())


def _read_as_spark(sql: str, tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens as Spark reads them: `:name` is a parameter, 10L a number, and 2a a name.

    In `a:b`, `:b` is a field of a VARIANT instead of a parameter.
    """
    previous: Token | None = None
    for token, next_token in zip_longest(tokens, tokens[1:]):
        if previous is not None and previous.end > token.start:
            continue  # The token is the name of a parameter.
        adjacent = previous if previous is not None and previous.end == token.start else None
        follows_value = adjacent is not None and (
            adjacent.kind != "symbol" or adjacent.text in CLOSING_SYMBOLS
        )
        names_next = next_token is not None and next_token.kind == "word"
        if token.is_symbol(":") and names_next and next_token.start == token.end:
            if not follows_value:
                token = Token("param", f":{next_token.text}", token.start, next_token.end)
        elif token.kind == "symbol" and token.text[0].isdigit():
            number = _SUFFIXED_NUMBER.fullmatch(token.text)
            kind, text = ("word", token.text) if number is None else ("number", number[1])
            token = replace(token, kind=kind, text=text)
        yield token
        previous = token


def _convert_token(sql: str, token: GlotToken) -> list[Token]:
    """Convert a token of sqlglot. A keyword such as GROUP BY becomes one token per word."""
    start, end = token.start, token.end + 1
    text = sql[start:end]
    is_string = token.token_type in STRING_TOKENS
    if not is_string and _MULTI_WORD.fullmatch(text):
        words = _PLAIN_NAME.finditer(text)
        return [Token("word", m[0], start + m.start(), start + m.end()) for m in words]
    is_plain_bytes = token.token_type == TokenType.BYTE_STRING and text[0] in "eE"
    if is_string or (is_plain_bytes and "\\" not in text):
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
    """The tokens of a SQL text, with cached properties that speed up the search for calls."""

    @cached_property
    def closing(self) -> Mapping[int, int]:
        """The index of the closing bracket for the index of each opening bracket of any kind."""
        closing_by_opening: dict[int, int] = {}
        open_brackets: list[int] = []
        for i, token in enumerate(self):
            if token.kind == "symbol" and token.text in OPENING_SYMBOLS:
                open_brackets.append(i)
            elif token.kind == "symbol" and token.text in CLOSING_SYMBOLS and open_brackets:
                closing_by_opening[open_brackets.pop()] = i
        return closing_by_opening

    def split_commas(self, start: int, end: int) -> list[tuple[int, int]]:
        """Split self[start:end] at commas outside brackets; return pairs of start and end."""
        ranges = []
        item_start = index = start
        while index < end:
            token = self[index]
            if token.kind == "symbol" and token.text in CLOSING_SYMBOLS:
                break  # This closes a bracket that opened before `start`.
            if token.kind == "symbol" and token.text in OPENING_SYMBOLS:
                index = self.closing.get(index, end)
            elif token.is_symbol(","):
                ranges.append((item_start, index))
                item_start = index + 1
            index += 1
        return [*ranges, (item_start, end)] if item_start < end or ranges else []


_MAX_PAIRS = 4_000_000  # More tokens are not compared, so that reporting an error stays fast.


def find_original_offset(
    rewritten: str, written: str, offset: int, dialect: str = "duckdb"
) -> int | None:
    """Map an offset in `rewritten` SQL to the offset in the user's `written` SQL, or None.

    Inserted SQL maps to the offset of the insertion.
    """
    try:
        rewritten_tokens = tokenize(rewritten, dialect)
        written_tokens = tokenize(written, dialect)
    except SqlmlError:
        return None
    if len(rewritten_tokens) * len(written_tokens) > _MAX_PAIRS:
        return None
    index = next((i for i, token in enumerate(rewritten_tokens) if offset < token.end), None)
    if index is None:
        return None
    rewritten_words = [rewritten[t.start : t.end] for t in rewritten_tokens]
    written_words = [written[t.start : t.end] for t in written_tokens]
    matcher = difflib.SequenceMatcher(None, rewritten_words, written_words, autojunk=False)
    for _, start, end, written_start, written_end in matcher.get_opcodes():
        if not start <= index < end:
            continue
        if rewritten_words[start:end] != written_words[written_start:written_end]:
            return written_tokens[min(written_start, len(written_tokens) - 1)].start
        offset_in_token = max(0, offset - rewritten_tokens[index].start)
        return written_tokens[written_start + index - start].start + offset_in_token
    return None


T = TypeVar("T")

MAX_DEPTH = 1600  # The maximum nesting of brackets. The engines allow 1,000.
_FRAMES_PER_BRACKET, _FRAMES_PER_TOKEN = 120, 8  # The maximum number of nested Python calls.

_OPENING = statement_parts.OPENING_BRACKETS | {TokenType.CASE}
_CLOSING = statement_parts.CLOSING_BRACKETS | {TokenType.END}

_lock = threading.Lock()


def run_deeply(sql: str, dialect: str, function: Callable[[], T]) -> T:
    """Run `function`, which recurses over `sql`, with a recursion limit that suffices for `sql`.

    The limit is raised only for this call, because json and other modules rely on the usual limit.
    """
    try:
        return function()
    except RecursionError:
        types = [token.token_type for token in raw_tokens(sql, dialect)]
        steps = ((token_type in _OPENING) - (token_type in _CLOSING) for token_type in types)
        depth = max(accumulate(steps, initial=0))
    if depth > MAX_DEPTH:
        raise ParseError(f"nested too deeply: {depth} nested brackets")
    with _lock:
        limit = sys.getrecursionlimit()
        frames = _FRAMES_PER_TOKEN * len(types)  # The terms of a sum are nested, too.
        sys.setrecursionlimit(limit + frames + _FRAMES_PER_BRACKET * (depth + 10))
        try:
            return function()
        except RecursionError:
            raise ParseError("nested too deeply") from None
        finally:
            sys.setrecursionlimit(limit)
