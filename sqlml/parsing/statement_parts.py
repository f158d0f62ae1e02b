"""The shared parts of statements about models: names, versions, lists and options.

The methods belong to sqlglot's parser in each dialect (`sqlglot_dialects.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ParseError
from sqlml.parsing.statements import Call, ModelName, OptionValue
from sqlml.types import fold


def option_text(value: Any, dialect: Dialect = DUCKDB) -> str:
    """Write the value of an option as in a statement.

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


def token_types(names: str) -> frozenset[TokenType]:
    return frozenset(TokenType[name] for name in names.split())


STRING_TOKENS = token_types("STRING HEREDOC_STRING RAW_STRING")
"""Strings in quotes or between dollars."""

_NON_WORD_TOKENS = Parser.TEXT_MATCH_EXCLUDED_TOKENS | {TokenType.NUMBER}

_WORD = re.compile(r"[^\W\d][\w$]*|\d+[^\W\d]\w*")
"""A bare word; Spark's may begin with digits."""

_SUFFIXED_NUMBER = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)", re.IGNORECASE)
"""A Spark number with the letter of its type, such as `10L`."""

OPENING = token_types("L_PAREN L_BRACKET L_BRACE")
CLOSING = token_types("R_PAREN R_BRACKET R_BRACE")
_CONSTANTS: dict[str, OptionValue] = {"TRUE": True, "FALSE": False, "NULL": None}


class StatementParts(Parser):
    """Methods that parse a part of a statement, and raise ParseError for anything else."""

    @property
    def _statement(self) -> str:
        return self._find_sql(self._tokens[0], self._tokens[-1])

    def _text_of(self, token: Token) -> str:
        return self._find_sql(token, token)

    def _word(self) -> str:
        """Return the next bare word in capitals, or ""."""
        token = self._curr
        if not token or token.token_type in _NON_WORD_TOKENS:
            return ""
        text = self._text_of(token)
        if not _WORD.fullmatch(text) or _SUFFIXED_NUMBER.fullmatch(text):
            return ""
        return text.upper() if text.isascii() else text

    def _accept(self, *words: str) -> bool:
        """Skip the words if they come next. A word with a non-ASCII letter is not a keyword."""
        return self._curr.text.isascii() and bool(self._match_text_seq(*words))

    def _accept_model(self, *words: str) -> bool:
        """Skip the words and MODEL, if they come next and are followed by the name of a model."""
        first = self._index
        if self._accept(*words, "MODEL") and (self._is_name() or self._is_text()):
            return True
        self._retreat(first)
        return False

    def _expect(self, *words: str) -> None:
        if not self._accept(*words):
            raise self._error_here(f"expected {' '.join(words)}")

    def _expect_symbol(self, symbol: TokenType, text: str) -> None:
        if not self._match(symbol):
            raise self._error_here(f"expected {text!r}")

    def _expect_end(self) -> None:
        if self._curr:
            raise self._error_here("expected the end of the statement")

    def _error_here(self, message: str, back: int = 0) -> ParseError:
        index = self._index - back
        if index < self._tokens_size:
            return ParseError(message, self.sql, self._tokens[index].start)
        return ParseError(message, self.sql, self._tokens[-1].end + 1)

    def _is_name(self) -> bool:
        return self._curr.token_type == TokenType.IDENTIFIER or bool(self._word())

    def _name(self, what: str) -> str:
        if not self._is_name():
            raise self._error_here(f"expected {what}")
        self._advance()
        return self._prev.text

    def _is_text(self) -> bool:
        """Return whether a string comes next; `e'...'` only counts if it contains no escapes."""
        if self._curr.token_type != TokenType.BYTE_STRING:
            return self._curr.token_type in STRING_TOKENS
        text = self._text_of(self._curr)
        return text[0] in "eE" and "\\" not in text

    def _text(self, what: str) -> str:
        """Parse a string in single quotes, or in another form of the engine's."""
        if not self._is_text():
            raise self._error_here(f"expected {what} in single quotes")
        self._advance()
        return self._prev.text

    def _digits(self) -> str:
        """Return the next number, without its sign and type suffix, or ""."""
        if self._curr.token_type == TokenType.NUMBER:
            return self._curr.text
        match = _SUFFIXED_NUMBER.fullmatch(self._curr.text) if self._curr else None
        return match[1] if match else ""

    def _number(self, what: str) -> int:
        digits = self._digits()
        if not digits.isdecimal():
            raise self._error_here(f"expected {what}")
        self._advance()
        return int(digits[:18])

    def _model_name(self) -> ModelName:
        """Parse `[database.]name`, also as a string."""
        if self._is_text():
            database, _, name = self._text("the name of a model").rpartition(".")
            return ModelName(name, none_if_current(database))
        first = self._name("the name of a model")
        if not self._match(TokenType.DOT):
            return ModelName(first)
        model_name = ModelName(self._name("the name of a model"), none_if_current(first))
        if self._curr.token_type == TokenType.DOT:
            raise self._error_here("a model is named by model or database.model; it has no schema")
        return model_name

    def _model_version(self) -> ModelName:
        name = self._model_name()
        if self._match(TokenType.SLASH):
            return replace(name, version=self._number("the number of a version"))
        if self._accept("@"):
            return replace(name, alias=self._name("an alias of a version"))
        return name

    def _version_of(self, name: ModelName) -> ModelName:
        """Parse a version of the model `name`: its number, FIRST, LAST, DEFAULT or an alias."""
        if self._digits():
            return replace(name, version=self._number("the number of a version"))
        return replace(name, alias=self._name("a version: its number, an alias, or LAST"))

    def _closing(self) -> int:
        """Return the index of the bracket that closes the next one."""
        depth = 0
        for i in range(self._index, self._tokens_size):
            kind = self._tokens[i].token_type
            depth += (kind in OPENING) - (kind in CLOSING)
            if not depth:
                return i
        raise self._error_here("this bracket is not closed")

    def _query(self) -> str:
        """Parse a query in brackets, and return its text without them."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._error_here("expected '('")
        closing = self._closing()
        query = self.sql[self._curr.end + 1 : self._tokens[closing].start]
        self._advance(closing + 1 - self._index)
        return query

    def _columns(self) -> tuple[tuple[str, str], ...]:
        """Parse `(name TYPE, ...)`; the engine reads the types."""
        expected = "a column name and its type, such as tenure DOUBLE"
        columns: list[tuple[str, str]] = []
        for _ in self._bracketed_items():
            if any(fold(name) == fold(self._curr.text) for name, _ in columns):
                raise self._error_here(f"column {self._curr.text} is given twice")
            columns.append((self._name(expected), self._item_text(expected, back=1)))
        return tuple(columns)

    def _item_texts(self) -> tuple[str, ...]:
        """Parse `(item, ...)` into the texts of the items; the engine reads them."""
        expected = "an expression, such as ln(charges) AS log_charges"
        items = tuple([self._item_text(expected) for _ in self._bracketed_items()])
        if not items:
            raise self._error_here(f"expected {expected}", back=1)
        return items

    def _bracketed_items(self) -> Iterator[None]:
        """Yield before each item of `(item, ...)`, and skip the brackets."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._error_here("expected '('")
        self._closing()  # reports a bracket that is not closed
        self._advance()
        yield from self._items(TokenType.R_PAREN)

    def _item_text(self, expected: str, back: int = 0) -> str:
        """Return the text up to the next comma, or to the bracket that closes the list."""
        first = self._index
        while self._curr and self._curr.token_type not in {TokenType.COMMA, *CLOSING}:
            opens_bracket = self._curr.token_type in OPENING
            self._advance(self._closing() + 1 - self._index if opens_bracket else 1)
        if self._index == first:
            raise self._error_here(f"expected {expected}", back)
        return self._find_sql(self._tokens[first], self._prev)

    def _items(self, close: TokenType) -> Iterator[None]:
        first = True
        while not self._match(close):
            if not first:
                self._expect_symbol(TokenType.COMMA, ",")
            yield
            first = False

    def _options(self) -> Mapping[str, OptionValue]:
        self._expect_symbol(TokenType.L_PAREN, "(")
        options: dict[str, OptionValue] = {}
        for _ in self._items(TokenType.R_PAREN):
            key = fold(self._name("the name of an option"))
            if key in options:
                raise self._error_here(f"option {key} is given twice")
            if not (self._match(TokenType.EQ) or self._match(TokenType.COLON_EQ)):
                raise self._error_here("expected = and a value")
            options[key] = self._value()
        return options

    def _value(self, depth: int = 0) -> OptionValue:
        """Parse a literal, list, call or bare word; a struct or a map becomes a list of pairs."""
        if not self._curr:
            raise self._error_here("expected a value")
        sign = -1 if self._match(TokenType.DASH) else 1
        decimal_point = "." if self._match(TokenType.DOT) and self._curr else ""  # .5
        digits = decimal_point + self._digits()
        if digits or sign < 0:
            try:
                value = sign * (int(digits) if digits.isdecimal() else float(digits))
            except ValueError:
                raise self._error_here("expected a number") from None
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
        may_nest = depth < 20
        if may_nest and self._match(TokenType.L_BRACE):
            return tuple([self._pair(depth + 1) for _ in self._items(TokenType.R_BRACE)])
        if may_nest and self._match_set((TokenType.L_BRACKET, TokenType.L_PAREN)):
            is_list = self._prev.token_type == TokenType.L_BRACKET
            closing = TokenType.R_BRACKET if is_list else TokenType.R_PAREN
            return tuple([self._value(depth + 1) for _ in self._items(closing)])
        if word:
            name = self._name("a value")
            if may_nest and self._match(TokenType.L_PAREN):
                items = [self._value(depth + 1) for _ in self._items(TokenType.R_PAREN)]
                return Call(fold(name), tuple(items))
            return name
        if self._curr and self._curr.token_type == TokenType.IDENTIFIER:
            text = self._curr.text.replace("'", "''")
            raise self._error_here(f"a text has single quotes: write '{text}'")
        raise self._error_here("expected a literal value")

    def _pair(self, depth: int) -> OptionValue:
        name = self._value(depth)
        self._expect_symbol(TokenType.COLON, ":")
        return (name, self._value(depth))


def none_if_current(database: str) -> str | None:
    """Return None for the current database, also if it is written as its schema `main`."""
    return None if fold(database) in ("", "main") else database
