"""`Cursor`: the tokens of one statement, read from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sqlml.errors import ParseError
from sqlml.front.statements import ModelName, OptionValue
from sqlml.parsing.tokens import Token, closing, split_commas
from sqlml.types import fold

_DEEPEST = 20
"""Lists in lists that an option may have."""


class Cursor:
    """A cursor over the tokens of one statement."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self.text = sql
        self.tokens = tokens
        self.at = 0
        self.sql = sql[tokens[0].start : tokens[-1].end] if tokens else ""

    # -- cursor

    def peek(self, ahead: int = 0) -> Token | None:
        i = self.at + ahead
        return self.tokens[i] if i < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        token = self.peek(ahead)
        return token.upper if token is not None else ""

    def accept(self, *words: str) -> bool:
        if all(self.word(i) == w for i, w in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def symbol(self, text: str) -> bool:
        token = self.peek()
        if token is not None and token.is_symbol(text):
            self.at += 1
            return True
        return False

    def fail(self, message: str) -> ParseError:
        token = self.peek()
        offset = token.start if token is not None else self.tokens[-1].end
        return ParseError(message, self.text, offset)

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.fail(f"expected {' '.join(words)}")

    def expect_symbol(self, text: str) -> None:
        if not self.symbol(text):
            raise self.fail(f"expected {text!r}")

    def string(self, what: str) -> str:
        token = self.peek()
        if token is None or token.kind != "string":
            raise self.fail(f"expected {what} in single quotes")
        self.at += 1
        return token.text

    def identifier(self, what: str) -> str:
        token = self.peek()
        if token is None or not token.is_identifier:
            raise self.fail(f"expected {what}")
        self.at += 1
        return token.text

    def model_name(self) -> ModelName:
        """`[database.]name`."""
        first = self.identifier("the name of a model")
        if self.symbol("."):
            return ModelName(self.identifier("the name of a model"), first)
        return ModelName(first)

    def model_version(self) -> ModelName:
        """`[database.]name[/number|@alias]`."""
        name = self.model_name()
        if self.symbol("/"):
            return replace(name, version=self.number("the number of a version"))
        if self.symbol("@"):
            return replace(name, alias=self.identifier("an alias of a version"))
        return name

    def which(self, name: ModelName) -> ModelName:
        """A version of the model `name`: its number, FIRST, LAST, DEFAULT or an alias."""
        token = self.peek()
        if token is not None and token.kind == "number":
            return replace(name, version=self.number("the number of a version"))
        return replace(name, alias=self.identifier("a version: its number, an alias, or LAST"))

    def number(self, what: str) -> int:
        token = self.peek()
        if token is None or token.kind != "number" or not token.text.isdecimal():
            raise self.fail(f"expected {what}")
        self.at += 1
        return int(token.text[:18])

    def end(self) -> None:
        if self.peek() is not None:
            raise self.fail("expected the end of the statement")

    # -- parts of several statements

    def is_about_a_model(self, ahead: int = 1) -> bool:
        """Whether the word MODEL stands there, and a name behind it."""
        token = self.peek(ahead + 1)
        return self.word(ahead) == "MODEL" and token is not None and token.is_identifier

    def schema(self) -> tuple[tuple[str, str], ...]:
        opening = self.at
        self.expect_symbol("(")
        close = closing(self.tokens, opening)
        if close is None:
            raise self.fail("this bracket is not closed")
        columns: list[tuple[str, str]] = []
        for start, end in split_commas(self.tokens, opening + 1, close):
            if end - start < 2 or not self.tokens[start].is_identifier:
                self.at = start
                raise self.fail("expected a column name and its type, such as tenure DOUBLE")
            if any(fold(name) == fold(self.tokens[start].text) for name, _ in columns):
                self.at = start
                raise self.fail(f"column {self.tokens[start].text} is given twice")
            kind = self.text[self.tokens[start + 1].start : self.tokens[end - 1].end]
            columns.append((self.tokens[start].text, kind))
        self.at = close + 1
        return tuple(columns)

    def options(self) -> Mapping[str, OptionValue]:
        self.expect_symbol("(")
        options: dict[str, OptionValue] = {}
        while not self.symbol(")"):
            if options:
                self.expect_symbol(",")
            key = fold(self.identifier("the name of an option"))
            if key in options:
                raise self.fail(f"option {key} is given twice")
            if not (self.symbol("=") or self.symbol(":=")):
                raise self.fail("expected = and a value")
            options[key] = self.literal()
        return MappingProxyType(options)

    def literal(self, depth: int = 0) -> OptionValue:
        token = self.peek()
        if token is None:
            raise self.fail("expected a value")
        negative = self.symbol("-")
        token = self.peek() or token
        if token.kind == "number":
            self.at += 1
            digits = token.text.replace("_", "")
            try:
                value = int(digits) if digits.isdecimal() else float(digits)
            except ValueError:
                self.at -= 1
                raise self.fail("expected a number") from None
            return -value if negative else value
        if negative:
            raise self.fail("expected a number")
        if token.kind == "string":
            self.at += 1
            return token.text
        if token.upper in ("TRUE", "FALSE", "NULL"):
            self.at += 1
            return {"TRUE": True, "FALSE": False, "NULL": None}[token.upper]
        if depth < _DEEPEST and self.symbol("["):
            items: list[OptionValue] = []
            while not self.symbol("]"):
                if items:
                    self.expect_symbol(",")
                items.append(self.literal(depth + 1))
            return tuple(items)
        if token.kind == "word":  # device = cpu, as one writes it in DuckDB's own options
            self.at += 1
            return token.text
        raise self.fail("expected a literal value")
