"""The grammar of statements about models, as rules for sqlglot's parser of each dialect.

A rule returns None for a statement of the engine that begins with the same words. To add a
statement, add its rule to `STATEMENT_RULES`; a change of ALTER MODEL goes into `CHANGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from sqlml.parsing import statements
from sqlml.parsing.statement_parts import OPENING, StatementParts, none_if_current
from sqlml.parsing.statements import Change, ModelName, Options, OptionValue, Statement, Training
from sqlml.suggestions import closest
from sqlml.types import fold

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())
EXPORT_FORMATS = ("ONNX", "SQLML", "SQL")

_EXPORT_OPTIONS = ("FORMAT", "DIALECT", "FORM", "TABLE", "COLUMNS")
_COMPARISONS = (">=", ">", "<=", "<")
_OPTION_PREFIX = "SQLML_"


class ModelStatements(StatementParts):
    """A base of our parsers with one method per kind of statement."""

    EXPLAIN_MODES: ClassVar[tuple[str, ...]] = ()
    """Words after EXPLAIN that choose what is shown."""

    # The clauses that name a model file or a training query

    def _origin(self) -> statements.Artifact | Training:
        """Parse [INPUT ...] [OUTPUT ...] FROM 'path' ..., or a training query."""
        if self._word() in ("TRANSFORM", "OPTIONS", "WITH", "COMMENT", "AS"):
            return self._training()
        inputs = self._columns() if self._accept("INPUT") else None
        output = self._columns() if self._accept("OUTPUT") else None
        if not self._match_texts(("FROM", "USING")):
            if inputs is None and output is None:
                raise self._error_here("expected FROM '<path of a model file>', or AS and a query")
            raise self._error_here("expected FROM '<path of a model file>'")
        source = self._text("the path of a model file")
        format_, comment = "AUTO", None
        options: Options = {}
        while self._curr:
            if self._accept("FORMAT"):
                format_ = self._format(FORMATS)
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._options()
            elif self._accept("COMMENT"):
                comment = self._text("a comment")
            elif self._word() in ("INPUT", "OUTPUT"):
                raise self._error_here(f"{self._word()} (...) goes before FROM")
            else:
                raise self._error_here("expected FORMAT, OPTIONS (...), COMMENT '...' or the end")
        return statements.Artifact(source, inputs, output, format_, options, comment)

    def _training(self) -> Training:
        transform, comment = None, None
        options: Options = {}
        seen_words: set[str] = set()
        while not self._accept("AS"):
            word = self._word()
            if word in seen_words:
                raise self._error_here(f"{word} is given twice")
            seen_words.add(word)
            if self._accept("TRANSFORM"):
                transform = self._item_texts()
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._options()
            elif self._accept("COMMENT"):
                comment = self._text("a comment")
            elif word in ("FROM", "USING") and transform is None:
                raise self._error_here("OPTIONS (...) goes after FROM '<path of a model file>'")
            else:
                raise self._error_here("expected AS and the query whose rows train the model")
        return Training(self._query_until(), options, transform, comment)

    def _query_until(self, *words: str) -> str:
        """Return the text of a query up to the words outside of its brackets, or to the end."""
        first = self._index
        while self._curr and not (words and self._match_text_seq(*words, advance=False)):
            opens_bracket = self._curr.token_type in OPENING
            self._advance(self._closing() + 1 - self._index if opens_bracket else 1)
        if self._index == first:
            raise self._error_here("expected the query whose rows the model is trained on")
        return self._find_sql(self._tokens[first], self._prev)

    def _format(self, formats: tuple[str, ...]) -> str:
        format_ = self._name("a format").upper()
        if format_ not in formats:
            raise self._error_here(
                f"unknown format {format_}; formats: {', '.join(formats)}", back=1
            )
        return format_

    # Statements

    def model_statement(self, tokens: list[Token], sql: str) -> Statement:
        """Parse the tokens of one statement in `sql`; a `Query` if the engine carries it out."""
        self.reset()
        self.sql, self._chunks = sql, [tokens]
        self._advance_chunk()
        rule = STATEMENT_RULES.get(self._word())
        statement = None if rule is None else rule(self)
        return statements.Query(self._statement) if statement is None else statement

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
            return statements.TrainModel(self._statement, name, origin, or_replace, if_not_exists)
        return statements.CreateModel(self._statement, name, origin, or_replace, if_not_exists)

    def _drop_model(self) -> Statement | None:
        if not self._accept_model("DROP"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name = self._model_name()
        if self._curr.text in ("/", "@"):
            raise self._error_here(f"drop a version with ALTER MODEL {name} DROP VERSION ...")
        self._expect_end()
        return statements.DropModel(self._statement, name, if_exists)

    def _show(self) -> Statement | None:
        if self._accept("SHOW", "VERSIONS", "IN", "MODEL"):
            name = self._model_name()
            self._expect_end()
            return statements.ShowVersions(self._statement, name)
        if self._accept_model("SHOW", "CREATE"):
            return statements.ShowCreate(self._statement, self._parse_last_name())
        if not self._accept("SHOW", "MODELS"):
            return None
        like = database = None
        may_have_database = True
        while self._curr:
            if like is None and self._accept("LIKE"):
                like = self._text("a pattern")
            elif may_have_database and self._match_texts(("FROM", "IN")):
                database = none_if_current(self._name("the name of a database"))
                may_have_database = False
            else:
                raise self._error_here("expected LIKE '...', FROM database or the end")
        return statements.ShowModels(self._statement, like, database)

    def _describe_model(self) -> Statement | None:
        if self._accept_model("DESCRIBE") or self._accept_model("DESC"):
            return statements.DescribeModel(self._statement, self._parse_last_name())
        return None

    def _parse_last_name(self) -> ModelName:
        name = self._model_version()
        self._expect_end()
        return name

    def _explain(self) -> Statement | None:
        if self._accept_model("EXPLAIN"):
            return statements.ExplainModel(self._statement, self._parse_last_name())
        self._expect("EXPLAIN")
        analyze = self._accept("ANALYZE")
        mode = self._prev.text.upper() if self._match_texts(self.EXPLAIN_MODES) else ""
        if not self._curr or self._curr.token_type == TokenType.L_PAREN:
            return None  # the engine's own EXPLAIN (FORMAT json) ...
        query = self._find_sql(self._curr, self._tokens[-1])
        return statements.Explain(self._statement, query, analyze, mode)

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
        return statements.ExportModel(self._statement, name, path, form, database)

    def _export_options(self) -> tuple[str | None, statements.OtherDatabase | None]:
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
            example = "(DIALECT postgres, TABLE customers)"
            raise self._error_here(f"{next(iter(options))} goes with DIALECT: {example}", back=1)
        if not options:
            return form, None
        if form not in (None, "SQL"):
            raise self._error_here(f"DIALECT goes with FORMAT SQL, not {form}", back=1)
        kind, table, columns = (options.get(word) for word in ("FORM", "TABLE", "COLUMNS"))
        return form, statements.OtherDatabase(options["DIALECT"], kind, table, columns)

    def _export_option(self, word: str) -> Any:
        if word == "FORMAT":
            return self._format(EXPORT_FORMATS)
        if word == "TABLE":
            return self._names("the name of a table", TokenType.DOT)
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
        return statements.SetOption(
            self._statement, fold(option.removeprefix(_OPTION_PREFIX)), value
        )

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
        return statements.VerifyModel(self._statement, name, query, against)

    def _comment_on_model(self) -> Statement | None:
        if not self._accept_model("COMMENT", "ON"):
            return None
        name = self._model_version()
        self._expect("IS")
        comment = None if self._accept("NULL") else self._text("a comment")
        self._expect_end()
        return statements.CommentOn(self._statement, name, comment)

    # ALTER MODEL, with one method per change

    def _alter_model(self) -> statements.AlterModel | None:
        """Parse ALTER MODEL [IF EXISTS] m ...; None if it alters something else."""
        if not self._accept_model("ALTER"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name_index = self._index
        name = self._model_version()
        for words, rule in CHANGES.items():
            if not self._accept(*words.split()):
                continue
            if name.has_version and words not in _VERSION_CHANGES:
                self._retreat(name_index)
                raise self._error_here(f"{words} applies to the whole model: leave the version out")
            change = rule(self, name)
            self._expect_end()
            return statements.AlterModel(self._statement, name, change, if_exists)
        suggestion = closest(self._word(), [words.split()[0] for words in CHANGES], 0.75)
        hint = "" if suggestion is None else f"; did you mean {suggestion}?"
        raise self._error_here(f"expected {', '.join(CHANGES)}{hint}")

    def _add_version(self, name: ModelName) -> Change:
        number = self._number("the number of the version") if self._digits() else None
        origin = self._origin()
        if isinstance(origin, Training):
            return statements.TrainVersion(origin, number)
        return statements.AddVersion(origin, number)

    def _retrain(self, name: ModelName) -> Change:
        promotion = self._promotion()
        query = self._query_until("PROMOTE", "IF") if self._accept("AS") else None
        return statements.Retrain(query, promotion or self._promotion())

    def _promotion(self) -> statements.Promotion | None:
        if not self._accept("PROMOTE"):
            return None
        self._expect("IF")
        metric = fold(self._name("the name of a metric"))
        symbol = self._curr.text if self._curr else ""
        if symbol not in _COMPARISONS:
            raise self._error_here(f"expected one of {' '.join(_COMPARISONS)}")
        self._advance()
        if self._accept("CURRENT"):
            return statements.Promotion(metric, symbol)
        threshold = self._value()
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise self._error_here("expected CURRENT or a number", back=1)
        return statements.Promotion(metric, symbol, float(threshold))

    def _set_default(self, name: ModelName) -> Change:
        self._expect_symbol(TokenType.EQ, "=")
        return statements.SetDefault(self._version_of(name))

    def _set_alias(self, name: ModelName) -> Change:
        alias = self._name("the name of an alias")
        self._expect_symbol(TokenType.EQ, "=")
        return statements.SetAlias(alias, self._version_of(name))

    def _set_tags(self, name: ModelName) -> Change:
        tags: dict[str, str] = {}
        while not tags or self._match(TokenType.COMMA):
            tag = fold(self._name("the name of a tag"))
            if tag in tags:
                raise self._error_here(f"tag {tag} is given twice")
            self._expect_symbol(TokenType.EQ, "=")
            tags[tag] = self._text("the value of a tag")
        return statements.SetTags(tags)

    def _reset_options(self, name: ModelName) -> Change:
        if not self._curr:
            return statements.ResetOptions()
        self._expect_symbol(TokenType.L_PAREN, "(")
        names = self._names("the name of an option")
        self._expect_symbol(TokenType.R_PAREN, ")")
        return statements.ResetOptions(tuple(fold(n) for n in names))

    def _using_clause(self) -> tuple[str, Options]:
        self._expect("USING")
        query = self._query()
        has_options = self._match_texts(("OPTIONS", "WITH"))
        return query, self._options() if has_options else {}

    def _names(self, description: str, separator: TokenType = TokenType.COMMA) -> tuple[str, ...]:
        names = [self._name(description)]
        while self._match(separator):
            names.append(self._name(description))
        return tuple(names)


STATEMENT_RULES: Mapping[str, Callable[[ModelStatements], Statement | None]] = {
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

CHANGES: Mapping[str, Callable[[ModelStatements, ModelName], Change]] = {
    "ADD VERSION": ModelStatements._add_version,
    "RETRAIN": ModelStatements._retrain,
    "DROP VERSION": lambda rules, name: statements.DropVersion(rules._version_of(name)),
    "SET DEFAULT_VERSION": ModelStatements._set_default,
    "SET ALIAS": ModelStatements._set_alias,
    "UNSET ALIAS": lambda rules, name: statements.UnsetAlias(rules._name("the name of an alias")),
    "SET TAG": ModelStatements._set_tags,
    "UNSET TAG": lambda rules, name: statements.UnsetTags(rules._names("the name of a tag")),
    "SET OPTIONS": lambda rules, name: statements.SetOptions(rules._options()),
    "RESET OPTIONS": ModelStatements._reset_options,
    "RENAME TO": lambda rules, name: statements.Rename(rules._name("the new name of the model")),
    "ADD CASCADE": lambda rules, name: statements.AddCascade(*rules._using_clause()),
    "DROP CASCADE": lambda rules, name: statements.DropSmallModel("cascade"),
    "ADD TOP_K FILTER": lambda rules, name: statements.AddTopKFilter(*rules._using_clause()),
    "DROP TOP_K FILTER": lambda rules, name: statements.DropSmallModel("top_k"),
}
"""The words after the model's name -> the rule for the rest."""

_VERSION_CHANGES = (
    *("SET OPTIONS", "RESET OPTIONS", "RETRAIN"),
    *("ADD CASCADE", "DROP CASCADE", "ADD TOP_K FILTER", "DROP TOP_K FILTER"),
)
"""Changes that apply to the named version; the others apply to the whole model."""
