"""`ModelStatements`: the statements about models, which sqlglot's parser of each dialect reads.

A rule returns None for a statement of the engine that begins with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from sqlml.parsing.alter_model import AlterModelRules
from sqlml.parsing.statements import (
    CommentOn,
    CreateModel,
    DescribeModel,
    DropModel,
    Explain,
    ExplainModel,
    ExportModel,
    ModelName,
    OptionValue,
    OtherDatabase,
    Query,
    SetOption,
    ShowCreate,
    ShowModels,
    ShowVersions,
    Statement,
    Training,
    TrainModel,
    VerifyModel,
)
from sqlml.types import fold

EXPORT_FORMATS = ("ONNX", "SQLML", "SQL")

_EXPORT_OPTIONS = ("FORMAT", "DIALECT", "FORM", "TABLE", "COLUMNS")

_OPTION = "SQLML_"


class ModelStatements(AlterModelRules):
    """A part of the parsers of our dialects: one method for each kind of statement."""

    EXPLAIN_MODES: ClassVar[tuple[str, ...]] = ()
    """Words after EXPLAIN that choose what is shown."""

    def model_statement(self, tokens: list[Token], sql: str) -> Statement:
        """The statement that some tokens of the text `sql` are; Query for one of the engine.

        Raises:
            ParseError: it is about models and breaks the grammar; the error shows the place.
        """
        self.reset()
        self.sql, self._chunks = sql, [tokens]
        self._advance_chunk()
        rule = RULES.get(self._word())
        found = None if rule is None else rule(self)
        return Query(self._statement) if found is None else found

    def _create_model(self) -> Statement | None:
        self._expect("CREATE")
        or_replace = self._accept("OR", "REPLACE")
        if not self._accept_model():
            return None
        if_not_exists = self._accept("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            raise self._failed("OR REPLACE and IF NOT EXISTS exclude each other")
        name = self._model_name()
        found = self._origin()
        if isinstance(found, Training):
            return TrainModel(self._statement, name, found, or_replace, if_not_exists)
        return CreateModel(self._statement, name, found, or_replace, if_not_exists)

    def _drop_model(self) -> Statement | None:
        if not self._accept_model("DROP"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name = self._model_name()
        if self._curr.text in ("/", "@"):
            raise self._failed(f"drop a version with ALTER MODEL {name} DROP VERSION ..")
        self._expect_end()
        return DropModel(self._statement, name, if_exists)

    def _show(self) -> Statement | None:
        if self._accept("SHOW", "MODELS"):
            return self._show_models()
        if self._accept("SHOW", "VERSIONS", "IN", "MODEL"):
            name = self._model_name()
            self._expect_end()
            return ShowVersions(self._statement, name)
        if self._accept_model("SHOW", "CREATE"):
            return ShowCreate(self._statement, self._last_name())
        return None

    def _show_models(self) -> Statement:
        like = database = None
        anywhere = True
        while self._curr:
            if like is None and self._accept("LIKE"):
                like = self._text("a pattern")
            elif anywhere and self._match_texts(("FROM", "IN")):
                database, anywhere = self._database(), False
            else:
                raise self._failed("expected LIKE '..', FROM database or the end")
        return ShowModels(self._statement, like, database)

    def _describe_model(self) -> Statement | None:
        if self._accept_model("DESCRIBE") or self._accept_model("DESC"):
            return DescribeModel(self._statement, self._last_name())
        return None

    def _last_name(self) -> ModelName:
        """A model, or a version of it, with which the statement ends."""
        name = self._model_version()
        self._expect_end()
        return name

    def _explain(self) -> Statement | None:
        if self._accept_model("EXPLAIN"):
            return ExplainModel(self._statement, self._last_name())
        self._expect("EXPLAIN")
        analyze = self._accept("ANALYZE")
        mode = self._prev.text.upper() if self._match_texts(self.EXPLAIN_MODES) else ""
        if not self._curr or self._curr.token_type == TokenType.L_PAREN:
            return None  # EXPLAIN (FORMAT json) ..: the engine's own
        query = self._find_sql(self._curr, self._tokens[-1])
        return Explain(self._statement, query, analyze, mode)

    def _export_model(self) -> Statement | None:
        if not self._accept_model("EXPORT"):
            return None
        name = self._model_version()
        self._expect("TO")
        path = self._text("the path of the file to write")
        form, database = None, None
        if self._match(TokenType.L_PAREN):  # as COPY .. TO .. (FORMAT x) has it
            form, database = self._export_options()
        elif self._curr:
            self._expect("FORMAT")
            form = self._format(EXPORT_FORMATS)
        self._expect_end()
        return ExportModel(self._statement, name, path, form, database)

    def _export_options(self) -> tuple[str | None, OtherDatabase | None]:
        """`FORMAT x`, or `DIALECT x, FORM y, TABLE z, COLUMNS (a, b)`, up to the bracket."""
        found: dict[str, Any] = {}
        for _ in self._items(TokenType.R_PAREN):
            word = self._word()
            if word not in _EXPORT_OPTIONS:
                raise self._failed(f"expected {', '.join(_EXPORT_OPTIONS[:-1])} or COLUMNS")
            if word in found:
                raise self._failed(f"{word} is given twice")
            self._advance()
            found[word] = self._export_option(word)
        form = found.pop("FORMAT", None)
        if found and "DIALECT" not in found:
            raise self._failed(
                f"{next(iter(found))} goes with DIALECT, as in (DIALECT postgres, TABLE customers)",
                back=1,
            )
        if not found:
            return form, None
        if form not in (None, "SQL"):
            raise self._failed(f"DIALECT goes with FORMAT SQL, not {form}", back=1)
        kind, table, columns = (found.get(word) for word in ("FORM", "TABLE", "COLUMNS"))
        return form, OtherDatabase(found["DIALECT"], kind, table, columns)

    def _export_option(self, word: str) -> Any:
        if word == "FORMAT":
            return self._format(EXPORT_FORMATS)
        if word == "TABLE":
            names = [self._name("the name of a table")]
            while self._match(TokenType.DOT):
                names.append(self._name("the name of a table"))
            return tuple(names)
        if word == "COLUMNS":
            self._expect_symbol(TokenType.L_PAREN, "(")
            return tuple([self._name("a column") for _ in self._items(TokenType.R_PAREN)])
        return fold(self._name("a database" if word == "DIALECT" else "a form"))

    def _set_option(self) -> Statement | None:
        reset = self._word() == "RESET"
        self._advance()
        scope = self._word()
        if scope in ("SESSION", "LOCAL", "GLOBAL"):
            self._advance()
        option = self._word()
        if not option.startswith(_OPTION):
            return None
        if scope == "GLOBAL":
            raise self._failed("sqlml options belong to the session; leave GLOBAL out", back=1)
        self._advance()
        value = None if reset else self._value_of_option()
        self._expect_end()
        return SetOption(self._statement, fold(option.removeprefix(_OPTION)), value)

    def _value_of_option(self) -> OptionValue:
        if not (self._match(TokenType.EQ) or self._accept("TO")):
            raise self._failed("expected = and a value")
        if self._word() == "NULL":
            raise self._failed("expected a value; RESET restores the default")
        return None if self._accept("DEFAULT") else self._value()

    def _verify_model(self) -> Statement | None:
        if not self._accept_model("VERIFY"):
            return None
        name = self._model_version()
        self._expect("USING")
        query, against = self._query(), None
        if self._accept("AGAINST"):
            against = self._text("the path of the original model file")
        self._expect_end()
        return VerifyModel(self._statement, name, query, against)

    def _comment_on_model(self) -> Statement | None:
        if not self._accept_model("COMMENT", "ON"):
            return None
        name = self._model_version()
        self._expect("IS")
        comment = None if self._accept("NULL") else self._text("a comment")
        self._expect_end()
        return CommentOn(self._statement, name, comment)


RULES: Mapping[str, Callable[[ModelStatements], Statement | None]] = MappingProxyType(
    {
        "CREATE": ModelStatements._create_model,
        "DROP": ModelStatements._drop_model,
        "SHOW": ModelStatements._show,
        "DESCRIBE": ModelStatements._describe_model,
        "DESC": ModelStatements._describe_model,
        "EXPLAIN": ModelStatements._explain,
        "ALTER": ModelStatements._alter_model,
        "EXPORT": ModelStatements._export_model,
        "SET": ModelStatements._set_option,
        "RESET": ModelStatements._set_option,
        "VERIFY": ModelStatements._verify_model,
        "COMMENT": ModelStatements._comment_on_model,
    }
)
"""The first word of a statement that may be about models, and how it is read."""
