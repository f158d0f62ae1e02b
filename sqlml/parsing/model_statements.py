"""The grammar of statements about models, as rules for sqlglot's parser of each dialect.

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

_OPTION_PREFIX = "SQLML_"


class ModelStatements(AlterModelRules):
    """A base of our parsers with one method per kind of statement."""

    EXPLAIN_MODES: ClassVar[tuple[str, ...]] = ()
    """Words after EXPLAIN that choose what is shown."""

    def model_statement(self, tokens: list[Token], sql: str) -> Statement:
        """Parse the tokens of one statement in the text `sql`; a `Query` for a statement of the
        engine.

        Raises:
            ParseError: a statement about models is malformed; the error shows the position.
        """
        self.reset()
        self.sql, self._chunks = sql, [tokens]
        self._advance_chunk()
        rule = STATEMENT_RULES.get(self._word())
        statement = None if rule is None else rule(self)
        return Query(self._statement) if statement is None else statement

    def _create_model(self) -> Statement | None:
        self._expect("CREATE")
        or_replace = self._accept("OR", "REPLACE")
        if not self._accept_model():
            return None
        if_not_exists = self._accept("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            raise self._error_here("OR REPLACE and IF NOT EXISTS exclude each other")
        name = self._model_name()
        origin = self._origin()
        if isinstance(origin, Training):
            return TrainModel(self._statement, name, origin, or_replace, if_not_exists)
        return CreateModel(self._statement, name, origin, or_replace, if_not_exists)

    def _drop_model(self) -> Statement | None:
        if not self._accept_model("DROP"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name = self._model_name()
        if self._curr.text in ("/", "@"):
            raise self._error_here(f"drop a version with ALTER MODEL {name} DROP VERSION ...")
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
            return ShowCreate(self._statement, self._parse_last_name())
        return None

    def _show_models(self) -> Statement:
        like = database = None
        may_have_database = True
        while self._curr:
            if like is None and self._accept("LIKE"):
                like = self._text("a pattern")
            elif may_have_database and self._match_texts(("FROM", "IN")):
                database, may_have_database = self._database(), False
            else:
                raise self._error_here("expected LIKE '...', FROM database or the end")
        return ShowModels(self._statement, like, database)

    def _describe_model(self) -> Statement | None:
        if self._accept_model("DESCRIBE") or self._accept_model("DESC"):
            return DescribeModel(self._statement, self._parse_last_name())
        return None

    def _parse_last_name(self) -> ModelName:
        name = self._model_version()
        self._expect_end()
        return name

    def _explain(self) -> Statement | None:
        if self._accept_model("EXPLAIN"):
            return ExplainModel(self._statement, self._parse_last_name())
        self._expect("EXPLAIN")
        analyze = self._accept("ANALYZE")
        mode = self._prev.text.upper() if self._match_texts(self.EXPLAIN_MODES) else ""
        if not self._curr or self._curr.token_type == TokenType.L_PAREN:
            return None  # the engine's own EXPLAIN (FORMAT json) ...
        query = self._find_sql(self._curr, self._tokens[-1])
        return Explain(self._statement, query, analyze, mode)

    def _export_model(self) -> Statement | None:
        if not self._accept_model("EXPORT"):
            return None
        name = self._model_version()
        self._expect("TO")
        path = self._text("the path of the file to write")
        form, database = None, None
        if self._match(TokenType.L_PAREN):  # as in COPY ... TO ... (FORMAT x)
            form, database = self._export_options()
        elif self._curr:
            self._expect("FORMAT")
            form = self._format(EXPORT_FORMATS)
        self._expect_end()
        return ExportModel(self._statement, name, path, form, database)

    def _export_options(self) -> tuple[str | None, OtherDatabase | None]:
        """Parse `FORMAT x`, or `DIALECT x, FORM y, TABLE z, COLUMNS (a, b)`, up to the bracket."""
        options: dict[str, Any] = {}
        for _ in self._items(TokenType.R_PAREN):
            word = self._word()
            if word not in _EXPORT_OPTIONS:
                raise self._error_here(f"expected {', '.join(_EXPORT_OPTIONS[:-1])} or COLUMNS")
            if word in options:
                raise self._error_here(f"{word} is given twice")
            self._advance()
            options[word] = self._export_option(word)
        form = options.pop("FORMAT", None)
        if options and "DIALECT" not in options:
            raise self._error_here(
                f"{next(iter(options))} goes with DIALECT, as in "
                "(DIALECT postgres, TABLE customers)",
                back=1,
            )
        if not options:
            return form, None
        if form not in (None, "SQL"):
            raise self._error_here(f"DIALECT goes with FORMAT SQL, not {form}", back=1)
        kind, table, columns = (options.get(word) for word in ("FORM", "TABLE", "COLUMNS"))
        return form, OtherDatabase(options["DIALECT"], kind, table, columns)

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
        is_reset = self._word() == "RESET"
        self._advance()
        scope = self._word()
        if scope in ("SESSION", "LOCAL", "GLOBAL"):
            self._advance()
        option = self._word()
        if not option.startswith(_OPTION_PREFIX):
            return None
        if scope == "GLOBAL":
            raise self._error_here("sqlml options belong to the session; leave GLOBAL out", back=1)
        self._advance()
        value = None if is_reset else self._option_value()
        self._expect_end()
        return SetOption(self._statement, fold(option.removeprefix(_OPTION_PREFIX)), value)

    def _option_value(self) -> OptionValue:
        if not (self._match(TokenType.EQ) or self._accept("TO")):
            raise self._error_here("expected = and a value")
        if self._word() == "NULL":
            raise self._error_here("expected a value; RESET restores the default")
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


STATEMENT_RULES: Mapping[str, Callable[[ModelStatements], Statement | None]] = MappingProxyType(
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
"""The first word of a statement that may be about models -> its rule."""
