"""`StatementParts`: what several statements about models have in common: names, versions, options.

It reads with the methods of sqlglot's parser, of which it is a part in each dialect (`dialect.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ParseError
from sqlml.parsing.statements import Call, ModelName, OptionValue
from sqlml.types import fold

# `option_text`: the value of an option as a statement has it.


def option_text(value: Any, dialect: Dialect = DUCKDB) -> str:
    """The value of an option as the statement has it.

    >>> option_text((("yes", 2.0), True)), option_text(Call("hparam_range", (1, 2)))
    ("[['yes', 2.0], true]", 'hparam_range(1, 2)')
    """
    if isinstance(value, Call):
        return f"{value.name}({', '.join(option_text(v, dialect) for v in value.arguments)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(option_text(v, dialect) for v in value)}]"
    if isinstance(value, str):
        return dialect.quote_string(value)
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    return repr(value)


_DEEPEST = 20
"""Lists in lists that an option may have."""

STRINGS = frozenset({TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING})
"""Texts in quotes or between dollars."""

_NO_WORDS = Parser.TEXT_MATCH_EXCLUDED_TOKENS | {TokenType.NUMBER}

_WORD = re.compile(r"[^\W\d][\w$]*|\d+[^\W\d]\w*")
"""A bare word; one of Spark's may begin with digits."""

_SUFFIXED = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)", re.IGNORECASE)
"""A number of Spark with the letter of its type, `10L`."""

OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_ITEM = "expected an expression, such as ln(charges) AS log_charges"
_LISTS = (
    (TokenType.L_BRACKET, TokenType.R_BRACKET),
    (TokenType.L_PAREN, TokenType.R_PAREN),
)
_COLUMN = "expected a column name and its type, such as tenure DOUBLE"
_CONSTANTS: Mapping[str, OptionValue] = MappingProxyType(
    {"TRUE": True, "FALSE": False, "NULL": None}
)


class StatementParts(Parser):
    """Methods that read a part of a statement, and raise ParseError if it is another."""

    @property
    def _statement(self) -> str:
        """The text of the statement."""
        return self._find_sql(self._tokens[0], self._tokens[-1])

    # -- words and symbols

    def _written(self, token: Token) -> str:
        """A token as it stands in the text."""
        return self._find_sql(token, token)

    def _word(self) -> str:
        """The bare word that comes next, in capitals, or ""."""
        token = self._curr
        if not token or token.token_type in _NO_WORDS:
            return ""
        written = self._written(token)
        if not _WORD.fullmatch(written) or _SUFFIXED.fullmatch(written):
            return ""
        return written.upper() if written.isascii() else written

    def _accept(self, *words: str) -> bool:
        """Skip the words, if they come next; a word with a letter beyond ASCII is not a keyword."""
        return self._curr.text.isascii() and bool(self._match_text_seq(*words))

    def _accept_model(self, *words: str) -> bool:
        """Skip the words and MODEL, if they come next, followed by the name of a model."""
        first = self._index
        if self._accept(*words, "MODEL") and (self._is_name() or self._is_text()):
            return True
        self._retreat(first)
        return False

    def _expect(self, *words: str) -> None:
        if not self._accept(*words):
            raise self._failed(f"expected {' '.join(words)}")

    def _expect_symbol(self, symbol: TokenType, written: str) -> None:
        if not self._match(symbol):
            raise self._failed(f"expected {written!r}")

    def _expect_end(self) -> None:
        if self._curr:
            raise self._failed("expected the end of the statement")

    def _failed(self, message: str, back: int = 0) -> ParseError:
        """An error at the token that comes next, or at one of those before it."""
        at = self._index - back
        if at < self._tokens_size:
            return ParseError(message, self.sql, self._tokens[at].start)
        return ParseError(message, self.sql, self._tokens[-1].end + 1)

    def _is_name(self) -> bool:
        return self._curr.token_type == TokenType.IDENTIFIER or bool(self._word())

    def _name(self, what: str) -> str:
        """A bare word or a quoted name."""
        if not self._is_name():
            raise self._failed(f"expected {what}")
        self._advance()
        return self._prev.text

    def _is_text(self) -> bool:
        """Whether a string comes next; `e'..'` counts only if it contains no escapes."""
        if self._curr.token_type != TokenType.BYTE_STRING:
            return self._curr.token_type in STRINGS
        written = self._written(self._curr)
        return written[0] in "eE" and "\\" not in written

    def _text(self, what: str) -> str:
        """A text in single quotes, or as else the engine writes one."""
        if not self._is_text():
            raise self._failed(f"expected {what} in single quotes")
        self._advance()
        return self._prev.text

    def _digits(self) -> str:
        """The number that comes next, without its sign and the letter of its type, or ""."""
        if self._curr.token_type == TokenType.NUMBER:
            return self._curr.text
        found = _SUFFIXED.fullmatch(self._curr.text) if self._curr else None
        return found[1] if found else ""

    def _number(self, what: str) -> int:
        digits = self._digits()
        if not digits.isdecimal():
            raise self._failed(f"expected {what}")
        self._advance()
        return int(digits[:18])

    # -- models and their versions

    def _model_name(self) -> ModelName:
        """`[database.]name`, or that as a text."""
        if self._is_text():
            database, _, name = self._text("the name of a model").rpartition(".")
            return ModelName(name, _current(database))
        first = self._name("the name of a model")
        if not self._match(TokenType.DOT):
            return ModelName(first)
        model_name = ModelName(self._name("the name of a model"), _current(first))
        if self._curr.token_type == TokenType.DOT:
            raise self._failed("a model is named by model or database.model; it has no schema")
        return model_name

    def _database(self) -> str | None:
        """The name of a database; None for the current one."""
        return _current(self._name("the name of a database"))

    def _model_version(self) -> ModelName:
        """`[database.]name[/number|@alias]`."""
        name = self._model_name()
        if self._match(TokenType.SLASH):
            return replace(name, version=self._number("the number of a version"))
        if self._accept("@"):
            return replace(name, alias=self._name("an alias of a version"))
        return name

    def _version_of(self, name: ModelName) -> ModelName:
        """A version of the model `name`: its number, FIRST, LAST, DEFAULT or an alias."""
        if self._digits():
            return replace(name, version=self._number("the number of a version"))
        return replace(name, alias=self._name("a version: its number, an alias, or LAST"))

    # -- lists

    def _closing(self) -> int:
        """The index of the bracket that closes the one that comes next."""
        depth = 0
        for i in range(self._index, self._tokens_size):
            kind = self._tokens[i].token_type
            depth += (kind in OPENING) - (kind in _CLOSING)
            if not depth:
                return i
        raise self._failed("this bracket is not closed")

    def _query(self) -> str:
        """The text of a query in brackets, without them."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._failed("expected '('")
        close = self._closing()
        query = self.sql[self._curr.end + 1 : self._tokens[close].start]
        self._advance(close + 1 - self._index)
        return query

    def _columns(self) -> tuple[tuple[str, str], ...]:
        """`(name TYPE, ..)`; the types are for the engine to read."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._failed("expected '('")
        close = self._closing()
        self._advance()
        columns: list[tuple[str, str]] = []
        while self._index < close:
            if columns:
                self._expect_symbol(TokenType.COMMA, ",")
            if not self._is_name():
                raise self._failed(_COLUMN)
            if any(fold(name) == fold(self._curr.text) for name, _ in columns):
                raise self._failed(f"column {self._curr.text} is given twice")
            name, first = self._name("a column"), self._index
            self._skip_type(close)
            if self._index == first:
                raise self._failed(_COLUMN, back=1)
            columns.append((name, self._find_sql(self._tokens[first], self._prev)))
        self._advance()
        return tuple(columns)

    def _item_texts(self) -> tuple[str, ...]:
        """`(item, ..)`, each as it is written; the engine reads them."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._failed("expected '('")
        close = self._closing()
        self._advance()
        items: list[str] = []
        while self._index < close:
            if items:
                self._expect_symbol(TokenType.COMMA, ",")
            first = self._index
            self._skip_type(close)
            if self._index == first:
                raise self._failed(_ITEM)
            items.append(self._find_sql(self._tokens[first], self._prev))
        if not items:
            raise self._failed(_ITEM)
        self._advance()
        return tuple(items)

    def _skip_type(self, end: int) -> None:
        """To the next comma that stands in no bracket, or to the token `end`."""
        while self._index < end and self._curr.token_type != TokenType.COMMA:
            opens = self._curr.token_type in OPENING
            self._advance(self._closing() + 1 - self._index if opens else 1)

    def _items(self, close: TokenType) -> Iterator[None]:
        """Once before each of the items up to the bracket that closes their list."""
        first = True
        while not self._match(close):
            if not first:
                self._expect_symbol(TokenType.COMMA, ",")
            yield
            first = False

    def _options(self) -> Mapping[str, OptionValue]:
        """`(name = value, ..)`."""
        self._expect_symbol(TokenType.L_PAREN, "(")
        options: dict[str, OptionValue] = {}
        for _ in self._items(TokenType.R_PAREN):
            key = fold(self._name("the name of an option"))
            if key in options:
                raise self._failed(f"option {key} is given twice")
            if not (self._match(TokenType.EQ) or self._match(TokenType.COLON_EQ)):
                raise self._failed("expected = and a value")
            options[key] = self._value()
        return MappingProxyType(options)

    def _value(self, depth: int = 0) -> OptionValue:
        """A literal, a list of them, a call, or a bare word, as in DuckDB's options; a struct or a
        map is a list of its names and values."""
        if not self._curr:
            raise self._failed("expected a value")
        sign = -1 if self._match(TokenType.DASH) else 1
        point = "." if self._match(TokenType.DOT) and self._curr else ""  # .5
        digits = point + self._digits()
        if digits or sign < 0:
            try:
                value = sign * (int(digits) if digits.isdecimal() else float(digits))
            except ValueError:
                raise self._failed("expected a number") from None
            self._advance()
            return value
        if self._is_text():
            return self._text("a value")
        word = self._word()
        if word in _CONSTANTS:
            self._advance()
            return _CONSTANTS[word]
        if word == "MAP" and self._next and self._next.token_type == TokenType.L_BRACE:
            self._advance()
        if depth < _DEEPEST and self._match(TokenType.L_BRACE):
            return tuple([self._pair(depth + 1) for _ in self._items(TokenType.R_BRACE)])
        for opening, closing in _LISTS if depth < _DEEPEST else ():
            if self._match(opening):
                return tuple([self._value(depth + 1) for _ in self._items(closing)])
        if word:
            name = self._name("a value")
            if depth < _DEEPEST and self._match(TokenType.L_PAREN):
                items = [self._value(depth + 1) for _ in self._items(TokenType.R_PAREN)]
                return Call(fold(name), tuple(items))
            return name
        if self._curr and self._curr.token_type == TokenType.IDENTIFIER:
            text = self._curr.text.replace("'", "''")
            raise self._failed(f"a text has single quotes: write '{text}'")
        raise self._failed("expected a literal value")

    def _pair(self, depth: int) -> OptionValue:
        """`name: value` of a struct or a map."""
        name = self._value(depth)
        self._expect_symbol(TokenType.COLON, ":")
        return (name, self._value(depth))


def _current(database: str) -> str | None:
    """None for the current database, whose schema `main` is; no database is called so."""
    return None if fold(database) in ("", "main") else database
