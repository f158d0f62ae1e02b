"""The statements about models, read by recursive descent over the tokens of one statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sqlml.errors import ParseError
from sqlml.front.lexer import Token, closing, split_commas
from sqlml.front.statements import (
    CreateModel,
    DescribeModel,
    DropModel,
    Explain,
    ExportModel,
    ModelName,
    OptionValue,
    Query,
    Reserved,
    SetOption,
    ShowModels,
    Statement,
)

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SQLML".split())

EXPORT_FORMATS = ("ONNX", "SQLML", "SQL")


class Parser:
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
        first = self.identifier("the name of a model")
        if self.symbol("."):
            return ModelName(self.identifier("the name of a model"), first)
        return ModelName(first)

    def end(self) -> None:
        if self.peek() is not None:
            raise self.fail("expected the end of the statement")

    # -- statements

    def statement(self) -> Statement:
        rule = _RULES.get(self.word())
        found = rule(self) if rule is not None else None
        return Query(self.sql) if found is None else found

    def create(self) -> Statement | None:
        self.expect("CREATE")
        or_replace = self.accept("OR", "REPLACE")
        if not (self.word() == "MODEL" and self._names_follow(1)):
            return None
        self.expect("MODEL")
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            raise self.fail("OR REPLACE and IF NOT EXISTS exclude each other")
        name = self.model_name()
        if self.word() in ("TRANSFORM", "AS"):
            return self._train(name)
        inputs = self._schema() if self.accept("INPUT") else None
        output = self._schema() if self.accept("OUTPUT") else None
        if self.word() in ("OPTIONS", "WITH"):
            saved = self.at
            self.at += 1
            options = self._options()
            if self.word() == "AS":
                return self._train(name)
            if not options:
                self.at = saved
            raise self.fail("expected FROM '<path>' before OPTIONS")
        if not (self.accept("FROM") or self.accept("USING")):
            raise self.fail("expected FROM '<path of a model file>'")
        source = self.string("the path of a model file")
        form, options, comment = "AUTO", MappingProxyType({}), None
        while self.peek() is not None:
            if self.accept("FORMAT"):
                form = self.identifier("a format").upper()
                if form not in FORMATS:
                    self.at -= 1
                    raise self.fail(f"unknown format {form}; there are {', '.join(FORMATS)}")
            elif self.accept("OPTIONS") or self.accept("WITH"):
                options = self._options()
            elif self.accept("COMMENT"):
                comment = self.string("a comment")
            else:
                if self.word() in ("INPUT", "OUTPUT"):
                    raise self.fail(f"{self.word()} (..) goes before FROM")
                raise self.fail("expected FORMAT, OPTIONS (..), COMMENT '..' or the end")
        return CreateModel(
            self.sql,
            name,
            source,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            inputs=inputs,
            output=output,
            format=form,
            options=options,
            comment=comment,
        )

    def _names_follow(self, ahead: int) -> bool:
        token = self.peek(ahead)
        return token is not None and token.is_identifier

    def _train(self, name: ModelName) -> Reserved:
        return Reserved(self.sql, "CREATE MODEL .. AS SELECT (training)", name)

    def _schema(self) -> tuple[tuple[str, str], ...]:
        opening = self.at
        self.expect_symbol("(")
        close = closing(self.tokens, opening)
        if close is None:
            raise self.fail("this bracket is not closed")
        columns = []
        for start, end in split_commas(self.tokens, opening + 1, close):
            if end - start < 2 or not self.tokens[start].is_identifier:
                self.at = start
                raise self.fail("expected a column name and its type, such as tenure DOUBLE")
            kind = self.text[self.tokens[start + 1].start : self.tokens[end - 1].end]
            columns.append((self.tokens[start].text, kind))
        self.at = close + 1
        return tuple(columns)

    def _options(self) -> Mapping[str, OptionValue]:
        self.expect_symbol("(")
        options: dict[str, OptionValue] = {}
        while not self.symbol(")"):
            if options:
                self.expect_symbol(",")
            key = self.identifier("the name of an option").lower()
            if key in options:
                raise self.fail(f"option {key} is given twice")
            if not (self.symbol("=") or self.symbol(":=")):
                raise self.fail("expected = and a value")
            options[key] = self._literal()
        return MappingProxyType(options)

    def _literal(self) -> OptionValue:
        token = self.peek()
        if token is None:
            raise self.fail("expected a value")
        negative = self.symbol("-")
        token = self.peek() or token
        if token.kind == "number":
            self.at += 1
            digits = token.text.replace("_", "")
            try:
                value: int | float = int(digits)
            except ValueError:
                value = float(digits)
            return -value if negative else value
        if negative:
            raise self.fail("expected a number")
        if token.kind == "string":
            self.at += 1
            return token.text
        if token.upper in ("TRUE", "FALSE", "NULL"):
            self.at += 1
            return {"TRUE": True, "FALSE": False, "NULL": None}[token.upper]
        if self.symbol("["):
            items: list[OptionValue] = []
            while not self.symbol("]"):
                if items:
                    self.expect_symbol(",")
                items.append(self._literal())
            return tuple(items)
        if token.kind == "word":  # device = cpu, as one writes it in DuckDB's own options
            self.at += 1
            return token.text
        raise self.fail("expected a literal value")

    def drop(self) -> Statement | None:
        if not (self.word(1) == "MODEL" and self._names_follow(2)):
            return None
        self.at += 2
        if_exists = self.accept("IF", "EXISTS")
        name = self.model_name()
        self.end()
        return DropModel(self.sql, name, if_exists)

    def show(self) -> Statement | None:
        if self.accept("SHOW", "MODELS"):
            like = self.string("a pattern") if self.accept("LIKE") else None
            self.end()
            return ShowModels(self.sql, like)
        if self.accept("SHOW", "VERSIONS", "IN", "MODEL"):
            return self._reserved("SHOW VERSIONS IN MODEL", self.model_name())
        if self.word(1) == "CREATE" and self.word(2) == "MODEL":
            self.at += 3
            return self._reserved("SHOW CREATE MODEL", self.model_name())
        return None

    def describe(self) -> Statement | None:
        if not (self.word(1) == "MODEL" and self._names_follow(2)):
            return None
        self.at += 2
        name = self.model_name()
        self.end()
        return DescribeModel(self.sql, name)

    def explain(self) -> Statement | None:
        if self.word(1) == "MODEL" and self._names_follow(2) and self.peek(3) is None:
            self.at += 2
            return self._reserved("EXPLAIN MODEL", self.model_name())
        self.expect("EXPLAIN")
        analyze = self.accept("ANALYZE")
        token = self.peek()
        if token is None or token.is_symbol("("):  # EXPLAIN (FORMAT json) ..: the engine's own
            return None
        return Explain(self.sql, self.text[token.start : self.tokens[-1].end], analyze)

    def alter(self) -> Statement | None:
        if not (self.word(1) == "MODEL" and self._names_follow(2)):
            return None
        self.at += 2
        name = self.model_name()
        for words, what in _ALTER:
            if self.accept(*words):
                rest = self.peek()
                tail = "" if rest is None else self.text[rest.start : self.tokens[-1].end]
                return Reserved(
                    self.sql, f"ALTER MODEL .. {what}", name, MappingProxyType({"rest": tail})
                )
        raise self.fail("expected " + ", ".join(what for _, what in _ALTER))

    def export(self) -> Statement | None:
        if not (self.word(1) == "MODEL" and self._names_follow(2)):
            return None
        self.at += 2
        name = self.model_name()
        self.expect("TO")
        path = self.string("the path of the file to write")
        bracket = self.symbol("(")  # as COPY .. TO .. (FORMAT x) has it
        form: str | None = None
        if bracket or self.peek() is not None:
            self.expect("FORMAT")
            form = self.identifier("a format").upper()
            if form not in EXPORT_FORMATS:
                self.at -= 1
                *others, last = EXPORT_FORMATS
                raise self.fail(f"models are exported to {', '.join(others)} and {last}")
        if bracket:
            self.expect_symbol(")")
        self.end()
        return ExportModel(self.sql, name, path, form)

    def set(self) -> Statement | None:
        scoped = self.word(1) in ("SESSION", "LOCAL", "GLOBAL")
        name = self.word(1 + scoped)
        if not name.startswith(_OPTION):
            return None
        if self.word(1) == "GLOBAL":
            self.at += 1
            raise self.fail("options of sqlml are the session's own; leave GLOBAL out")
        reset = self.word() == "RESET"
        self.at += 2 + scoped
        if reset:
            value = None
        else:
            if not (self.symbol("=") or self.accept("TO")):
                raise self.fail("expected = and a value")
            if self.word() == "NULL":
                raise self.fail("expected a value; RESET takes it back")
            value = None if self.accept("DEFAULT") else self._literal()
        self.end()
        return SetOption(self.sql, name.removeprefix(_OPTION).lower(), value)

    def verify(self) -> Statement | None:
        if not (self.word(1) == "MODEL" and self._names_follow(2)):
            return None
        self.at += 2
        name = self.model_name()
        self.expect("USING")
        opening = self.at
        self.expect_symbol("(")
        close = closing(self.tokens, opening)
        if close is None:
            raise self.fail("this bracket is not closed")
        details: dict[str, Any] = {
            "query": self.text[self.tokens[opening].end : self.tokens[close].start]
        }
        self.at = close + 1
        if self.accept("AGAINST"):
            details["against"] = self.string("the path of the original artifact")
        return self._reserved("VERIFY MODEL", name, details)

    def comment(self) -> Statement | None:
        if not (self.word(1) == "ON" and self.word(2) == "MODEL"):
            return None
        self.at += 3
        name = self.model_name()
        self.expect("IS")
        details = {"comment": None if self.accept("NULL") else self.string("a comment")}
        return self._reserved("COMMENT ON MODEL", name, details)

    def _reserved(
        self, what: str, name: ModelName, details: Mapping[str, Any] | None = None
    ) -> Reserved:
        self.end()
        return Reserved(self.sql, what, name, MappingProxyType(dict(details or {})))


_OPTION = "SQLML_"

_ALTER = (
    (("ADD", "VERSION"), "ADD VERSION"),
    (("DROP", "VERSION"), "DROP VERSION"),
    (("SET", "DEFAULT_VERSION"), "SET DEFAULT_VERSION"),
    (("SET", "ALIAS"), "SET ALIAS"),
    (("UNSET", "ALIAS"), "UNSET ALIAS"),
    (("SET", "TAG"), "SET TAG"),
    (("UNSET", "TAG"), "UNSET TAG"),
    (("SET", "OPTIONS"), "SET OPTIONS"),
    (("RESET", "OPTIONS"), "RESET OPTIONS"),
    (("RENAME", "TO"), "RENAME TO"),
)

_RULES: Mapping[str, Callable[[Parser], Statement | None]] = MappingProxyType(
    {
        "CREATE": Parser.create,
        "DROP": Parser.drop,
        "SHOW": Parser.show,
        "DESCRIBE": Parser.describe,
        "DESC": Parser.describe,
        "EXPLAIN": Parser.explain,
        "ALTER": Parser.alter,
        "EXPORT": Parser.export,
        "SET": Parser.set,
        "RESET": Parser.set,
        "VERIFY": Parser.verify,
        "COMMENT": Parser.comment,
    }
)
