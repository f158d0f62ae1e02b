"""Parse the shared parts of statements about models: names, versions, lists and options.

The methods are mixed into sqlglot's parser of each dialect (`sqlglot_dialects.py`).
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
from sqlml.parsing.statements import Call, Description, ModelName, OptionValue
from sqlml.types import fold


def option_text(value: Any, dialect: Dialect = DUCKDB) -> str:
    """Format the value of an option as SQL.

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
"""Strings in quotes or between dollar signs."""

_NON_WORD_TOKENS = Parser.TEXT_MATCH_EXCLUDED_TOKENS | {TokenType.NUMBER}

_WORD = re.compile(r"[^\W\d][\w$]*|\d+[^\W\d]\w*")
"""A bare word, which may begin with digits in Spark."""

_SUFFIXED_NUMBER = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)(?:[LSYDF]|BD)", re.IGNORECASE)
"""A Spark number with the letter of its type, such as `10L`."""

OPENING_BRACKETS = token_types("L_PAREN L_BRACKET L_BRACE")
CLOSING_BRACKETS = token_types("R_PAREN R_BRACKET R_BRACE")
_CONSTANTS: dict[str, OptionValue] = {"TRUE": True, "FALSE": False, "NULL": None}


class StatementParts(Parser):
    """A parser of the parts of statements; each method raises ParseError if the part is missing."""

    @property
    def _statement_sql(self) -> str:
        return self._find_sql(self._tokens[0], self._tokens[-1])

    def _get_token_sql(self, token: Token) -> str:
        return self._find_sql(token, token)

    def _peek_word(self) -> str:
        """Return the next token in capitals without consuming it, or "" if it is no bare word."""
        token = self._curr
        if not token or token.token_type in _NON_WORD_TOKENS:
            return ""
        text = self._get_token_sql(token)
        if not _WORD.fullmatch(text) or _SUFFIXED_NUMBER.fullmatch(text):
            return ""
        return text.upper() if text.isascii() else text

    def _accept(self, *words: str) -> bool:
        """Consume `words` if they come next, and return whether they did."""
        # A word with a non-ASCII letter is not a keyword.
        return self._curr.text.isascii() and bool(self._match_text_seq(*words))

    def _accept_model(self, *words: str) -> bool:
        """Consume `words` and MODEL before a model's name; return whether they came next."""
        start_index = self._index
        if self._accept(*words, "MODEL") and (self._is_name_next() or self._is_string_next()):
            return True
        self._retreat(start_index)
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

    def _error_here(self, message: str, tokens_back: int = 0) -> ParseError:
        index = self._index - tokens_back
        is_end = index >= self._tokens_size
        offset = self._tokens[-1].end + 1 if is_end else self._tokens[index].start
        return ParseError(message, self.sql, offset)

    def _is_name_next(self) -> bool:
        return self._curr.token_type == TokenType.IDENTIFIER or bool(self._peek_word())

    def _parse_name(self, description: str) -> str:
        if not self._is_name_next():
            raise self._error_here(f"expected {description}")
        self._advance()
        return self._prev.text

    def _is_string_next(self) -> bool:
        if self._curr.token_type != TokenType.BYTE_STRING:
            return self._curr.token_type in STRING_TOKENS
        text = self._get_token_sql(self._curr)
        return text[0] in "eE" and "\\" not in text  # A string `e'...'` without escapes.

    def _parse_text(self, description: str) -> str:
        if not self._is_string_next():
            raise self._error_here(f"expected {description} in single quotes")
        self._advance()
        return self._prev.text

    def _peek_digits(self) -> str:
        """Return the next number without its type suffix, without consuming it, or ""."""
        if self._curr.token_type == TokenType.NUMBER:
            return self._curr.text
        match = _SUFFIXED_NUMBER.fullmatch(self._curr.text) if self._curr else None
        return match[1] if match else ""

    def _parse_integer(self, description: str) -> int:
        digits = self._peek_digits()
        if not digits.isdecimal():
            raise self._error_here(f"expected {description}")
        self._advance()
        return int(digits[:18])  # No valid number is longer.

    def _parse_model(self) -> ModelName:
        """Parse `[database.]name`, which may be a string."""
        if self._is_string_next():
            database, _, name = self._parse_text("the name of a model").rpartition(".")
            return ModelName(name, normalize_database(database))
        name = self._parse_name("the name of a model")
        if not self._match(TokenType.DOT):
            return ModelName(name)
        model_name = ModelName(self._parse_name("the name of a model"), normalize_database(name))
        if self._curr.token_type == TokenType.DOT:
            raise self._error_here("a model is named by model or database.model; it has no schema")
        return model_name

    def _parse_model_version(self) -> ModelName:
        name = self._parse_model()
        if self._match(TokenType.SLASH):
            return replace(name, version=self._parse_integer("the number of a version"))
        if self._accept("@"):
            return replace(name, alias=self._parse_name("an alias of a version"))
        return name

    def _parse_version_of(self, name: ModelName) -> ModelName:
        """Parse a version of the model `name`: its number, FIRST, LAST, DEFAULT or an alias."""
        if self._peek_digits():
            return replace(name, version=self._parse_integer("the number of a version"))
        return replace(name, alias=self._parse_name("a version: its number, an alias, or LAST"))

    def _find_closing_bracket(self) -> int:
        depth = 0
        for index in range(self._index, self._tokens_size):
            token_type = self._tokens[index].token_type
            depth += (token_type in OPENING_BRACKETS) - (token_type in CLOSING_BRACKETS)
            if not depth:
                return index
        raise self._error_here("this bracket is not closed")

    def _parse_bracketed_query(self) -> str:
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._error_here("expected '('")
        closing = self._find_closing_bracket()
        query = self.sql[self._curr.end + 1 : self._tokens[closing].start]
        self._advance(closing + 1 - self._index)
        return query

    def _parse_typed_columns(self) -> tuple[tuple[str, str], ...]:
        """Parse `(name TYPE, ...)` into pairs of a name and a type; the engine checks the types."""
        expected = "a column name and its type, such as tenure DOUBLE"
        columns: list[tuple[str, str]] = []
        for _ in self._iterate_bracketed_items():
            if any(fold(name) == fold(self._curr.text) for name, _ in columns):
                raise self._error_here(f"column {self._curr.text} is given twice")
            name = self._parse_name(expected)
            columns.append((name, self._parse_item_text(expected, tokens_back=1)))
        return tuple(columns)

    def _parse_item_texts(self) -> tuple[str, ...]:
        """Parse `(item, ...)` into the SQL text of each item; the engine checks the items later."""
        expected = "an expression, such as ln(charges) AS log_charges"
        items = tuple([self._parse_item_text(expected) for _ in self._iterate_bracketed_items()])
        if not items:
            raise self._error_here(f"expected {expected}", tokens_back=1)
        return items

    def _iterate_bracketed_items(self) -> Iterator[None]:
        """Consume the brackets and commas of `(item, ...)`, and yield before each item."""
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._error_here("expected '('")
        self._find_closing_bracket()  # Report a bracket that is not closed.
        self._advance()
        yield from self._iterate_items(TokenType.R_PAREN)

    def _parse_item_text(self, expected: str, tokens_back: int = 0) -> str:
        """Return the SQL up to the next comma, or to the end of the list."""
        start_index = self._index
        while self._curr and self._curr.token_type not in {TokenType.COMMA, *CLOSING_BRACKETS}:
            self._skip_item()
        if self._index == start_index:
            raise self._error_here(f"expected {expected}", tokens_back)
        return self._find_sql(self._tokens[start_index], self._prev)

    def _skip_item(self) -> None:
        """Skip a token, or everything between two brackets."""
        opens_bracket = self._curr.token_type in OPENING_BRACKETS
        self._advance(self._find_closing_bracket() + 1 - self._index if opens_bracket else 1)

    def _iterate_items(self, close: TokenType) -> Iterator[None]:
        is_first = True
        while not self._match(close):
            if not is_first:
                self._expect_symbol(TokenType.COMMA, ",")
            yield
            is_first = False

    def _parse_option_list(self) -> Mapping[str, OptionValue]:
        self._expect_symbol(TokenType.L_PAREN, "(")
        options: dict[str, OptionValue] = {}
        for _ in self._iterate_items(TokenType.R_PAREN):
            key = fold(self._parse_name("the name of an option"))
            if key in options:
                raise self._error_here(f"option {key} is given twice")
            if not (self._match(TokenType.EQ) or self._match(TokenType.COLON_EQ)):
                raise self._error_here("expected = and a value")
            options[key] = self._parse_option_value()
        return options

    def _split_description(
        self, options: Mapping[str, OptionValue], comment: str | None
    ) -> tuple[Mapping[str, OptionValue], Description]:
        """Move BigQuery's options description and labels to a Description with the `comment`."""
        others = {n: v for n, v in options.items() if n not in ("description", "labels")}
        if "description" in options:
            text = options["description"]
            if not (text is None or isinstance(text, str)) or comment is not None:
                raise self._error_here("option description must be one string, without COMMENT")
            comment = text
        tags: dict[str, str] = {}
        labels = options.get("labels", ())
        for label in labels if isinstance(labels, tuple) else (labels,):
            pair = label.arguments if isinstance(label, Call) else label
            is_pair = isinstance(pair, tuple) and [type(v) for v in pair] == [str, str]
            if not is_pair or fold(str(pair[0])) in tags:
                expected = "a list of pairs of a new tag and its text, such as [('team', 'shop')]"
                raise self._error_here(f"option labels must be {expected}")
            tags[fold(str(pair[0]))] = str(pair[1])
        changes_comment = comment is not None or "description" in options
        return others, Description(comment, tags, changes_comment, "labels" in options)

    def _parse_option_value(self, depth: int = 0) -> OptionValue:
        """Parse a literal, list, call or bare word. A struct or a map becomes a list of pairs."""
        if not self._curr:
            raise self._error_here("expected a value")
        sign = -1 if self._match(TokenType.DASH) else 1
        decimal_point = "." if self._match(TokenType.DOT) and self._curr else ""  # As in .5
        digits = decimal_point + self._peek_digits()
        if digits or sign < 0:
            try:
                value = sign * (int(digits) if digits.isdecimal() else float(digits))
            except ValueError:
                raise self._error_here("expected a number") from None
            self._advance()
            return value
        if self._is_string_next():
            return self._parse_text("a value")
        word = self._peek_word()
        if word in _CONSTANTS:
            self._advance()
            return _CONSTANTS[word]
        if word == "MAP" and self._next and self._next.token_type == TokenType.L_BRACE:
            self._advance()
        may_nest = depth < 20
        if may_nest and self._match(TokenType.L_BRACE):
            items = self._iterate_items(TokenType.R_BRACE)
            return tuple([self._parse_pair(depth + 1) for _ in items])
        if may_nest and self._match_set((TokenType.L_BRACKET, TokenType.L_PAREN)):
            is_list = self._prev.token_type == TokenType.L_BRACKET
            closing = TokenType.R_BRACKET if is_list else TokenType.R_PAREN
            return self._parse_option_values(depth + 1, closing)
        if word:
            name = self._parse_name("a value")
            if may_nest and self._match(TokenType.L_PAREN):
                return Call(fold(name), self._parse_option_values(depth + 1, TokenType.R_PAREN))
            return name
        if self._curr and self._curr.token_type == TokenType.IDENTIFIER:
            text = self._curr.text.replace("'", "''")
            raise self._error_here(f"strings need single quotes: write '{text}'")
        raise self._error_here("expected a literal value")

    def _parse_option_values(self, depth: int, closing: TokenType) -> tuple[OptionValue, ...]:
        return tuple([self._parse_option_value(depth) for _ in self._iterate_items(closing)])

    def _parse_pair(self, depth: int) -> OptionValue:
        name = self._parse_option_value(depth)
        self._expect_symbol(TokenType.COLON, ":")
        return (name, self._parse_option_value(depth))


def normalize_database(database: str) -> str | None:
    """Return `database`, or None if it is "" or `main`, which mean the current database."""
    return None if fold(database) in ("", "main") else database
