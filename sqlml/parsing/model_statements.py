"""The grammar of statements about models, as rules that extend sqlglot's parsers.

A rule returns None for a statement of the engine that begins with the same words. To add a
statement, add a rule to `STATEMENT_RULES`. To add a change of ALTER MODEL, add a rule to `CHANGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot.tokenizer_core import Token, TokenType

from sqlml.parsing import statements
from sqlml.parsing.statement_parts import StatementParts, normalize_database
from sqlml.parsing.statements import Change, ModelName, Options, OptionValue, Statement, Training
from sqlml.suggestions import closest
from sqlml.types import fold

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())
EXPORT_FORMATS = ("ONNX", "SQLML", "SQL", "EXTENSION")

_EXPORT_OPTIONS = ("FORMAT", "DIALECT", "FORM", "TABLE", "COLUMNS", "PLATFORM")
_COMPARISONS = (">=", ">", "<=", "<")
_OPTION_PREFIX = "SQLML_"


def _convert_type(name: str) -> str:
    """Convert one of BigQuery's names of types to DuckDB's."""
    types = {"FLOAT64": "DOUBLE", "INT64": "BIGINT", "STRING": "VARCHAR", "BOOL": "BOOLEAN"}
    return types.get(name.upper(), name)


class ModelStatements(StatementParts):
    """The base class of the parsers in sqlml, with a method for each statement about models."""

    EXPLAIN_MODES: ClassVar[tuple[str, ...]] = ()
    """Words after EXPLAIN that select the mode."""

    def _parse_origin(self) -> statements.Artifact | Training:
        """Parse `[INPUT ...] [OUTPUT ...] FROM 'path' ...`, or the clauses of a training query."""
        words = ("TRANSFORM", "OPTIONS", "WITH", "COMMENT", "AS")
        if self._peek_word() in words or self._curr.token_type == TokenType.PARTITION_BY:
            return self._parse_training()
        inputs = self._parse_typed_columns() if self._accept("INPUT") else None
        output = self._parse_typed_columns() if self._accept("OUTPUT") else None
        source = None
        if self._match_texts(("FROM", "USING")):
            source = self._parse_text("the path of a model file")
        elif self._peek_word() != "OPTIONS":
            if self._peek_word() == "REMOTE":
                raise self._error_here(
                    "sqlml calls no remote models: register a file with FROM '<path>', or call the "
                    "service with an extension such as http_client"
                )
            or_query = ", or AS and a query" if inputs is None and output is None else ""
            raise self._error_here(f"expected FROM '<path of a model file>'{or_query}")
        file_format = "AUTO"
        comment = None
        options: Options = {}
        while self._curr:
            if self._accept("FORMAT"):
                file_format = self._parse_file_format(FORMATS)
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._parse_option_list()
            elif self._accept("COMMENT"):
                comment = self._parse_text("a comment")
            elif self._peek_word() in ("INPUT", "OUTPUT"):
                raise self._error_here(f"{self._peek_word()} (...) goes before FROM")
            else:
                raise self._error_here("expected FORMAT, OPTIONS (...), COMMENT '...' or the end")
        if source is None:
            return self._make_named_artifact(options, comment, inputs, output)
        options, description = self._split_description(options, comment)
        return statements.Artifact(source, inputs, output, file_format, options, description)

    def _make_named_artifact(
        self,
        options: Options,
        comment: str | None,
        inputs: statements.TypedColumns | None = None,
        output: statements.TypedColumns | None = None,
    ) -> statements.Artifact:
        """Convert OPTIONS (model_type = 'ONNX', model_path = '...') to FROM '...' FORMAT ONNX."""
        options, description = self._split_description(options, comment)
        path, model_type = options.get("model_path"), options.get("model_type", "AUTO")
        if not isinstance(path, str):
            raise self._error_here("expected model_path = '<path of a model file>' in OPTIONS")
        file_format = str(model_type).upper()
        if file_format in ("TENSORFLOW", "TENSORFLOW_LITE"):
            raise self._error_here(
                "sqlml reads no files of TensorFlow: convert the model to ONNX with tf2onnx, and "
                "write model_type = 'ONNX'"
            )
        if file_format not in FORMATS:
            formats = ", ".join(FORMATS)
            raise self._error_here(f"unknown model_type {file_format} of a file; types: {formats}")
        inputs, output = (
            c and tuple((n, _convert_type(t)) for n, t in c) for c in (inputs, output)
        )
        model_options = {n: v for n, v in options.items() if n not in ("model_path", "model_type")}
        return statements.Artifact(path, inputs, output, file_format, model_options, description)

    def _parse_training(self) -> statements.Artifact | Training:
        transform = comment = None
        partition_by: tuple[str, ...] = ()
        options: Options = {}
        seen_words: set[str] = set()
        while not self._accept("AS"):
            if not self._curr and "model_path" in options and not (transform or partition_by):
                return self._make_named_artifact(options, comment)
            word = self._peek_word() or self._curr.text.upper()
            if word in seen_words:
                raise self._error_here(f"{word} is given twice")
            seen_words.add(word)
            if self._match(TokenType.PARTITION_BY):
                partition_by = self._parse_column_names()
            elif self._accept("TRANSFORM"):
                transform = self._parse_item_texts()
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._parse_option_list()
            elif self._accept("COMMENT"):
                comment = self._parse_text("a comment")
            elif word in ("FROM", "USING") and transform is None:
                raise self._error_here("OPTIONS (...) goes after FROM '<path of a model file>'")
            else:
                raise self._error_here("expected AS and the query whose rows train the model")
        if partition_by:
            if "partition_by" in options:
                raise self._error_here("give PARTITION BY or the option partition_by, not both")
            options = {**options, "partition_by": partition_by}
        options, description = self._split_description(options, comment)
        return Training(self._parse_query_until(), options, transform, description)

    def _parse_column_names(self) -> tuple[str, ...]:
        """Parse names of columns between commas, which may be in brackets."""
        if self._match(TokenType.L_PAREN):
            names = [self._parse_column_name() for _ in self._iterate_items(TokenType.R_PAREN)]
        else:
            names = [self._parse_column_name()]
            while self._match(TokenType.COMMA):
                names.append(self._parse_column_name())
        return tuple(names)

    def _parse_column_name(self) -> str:
        return self._parse_name("the name of a column")

    def _parse_query_until(self, *end_words: str) -> str:
        """Return the SQL of a query up to the word sequence `end_words` outside brackets."""
        start_index = self._index
        while self._curr and not (end_words and self._match_text_seq(*end_words, advance=False)):
            self._skip_item()
        if self._index == start_index:
            raise self._error_here("expected the query whose rows the model is trained on")
        return self._find_sql(self._tokens[start_index], self._prev)

    def _parse_file_format(self, formats: tuple[str, ...]) -> str:
        file_format = self._parse_name("a format").upper()
        if file_format not in formats:
            message = f"unknown format {file_format}; formats: {', '.join(formats)}"
            raise self._error_here(message, tokens_back=1)
        return file_format

    def parse_model_statement(self, tokens: list[Token], sql: str) -> Statement:
        """Parse the `tokens` of one statement in `sql`; return a `Query` for the engine's own."""
        self.reset()
        self.sql = sql
        self._chunks = [tokens]
        self._advance_chunk()
        rule = STATEMENT_RULES.get(self._peek_word())
        statement = None if rule is None else rule(self)
        return statements.Query(self._statement_sql) if statement is None else statement

    def _parse_create_model(self) -> Statement | None:
        self._expect("CREATE")
        or_replace = self._accept("OR", "REPLACE")
        if not self._accept_model():
            return None
        if_not_exists = self._accept("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            raise self._error_here("OR REPLACE and IF NOT EXISTS exclude each other")
        name = self._parse_model()
        origin = self._parse_origin()
        if isinstance(origin, Training):
            return statements.TrainModel(
                self._statement_sql, name, origin, or_replace, if_not_exists
            )
        return statements.CreateModel(self._statement_sql, name, origin, or_replace, if_not_exists)

    def _parse_drop_model(self) -> Statement | None:
        if not self._accept_model("DROP"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name = self._parse_model()
        if self._curr.text in ("/", "@"):
            raise self._error_here(f"drop a version with ALTER MODEL {name} DROP VERSION ...")
        self._expect_end()
        return statements.DropModel(self._statement_sql, name, if_exists)

    def _parse_show_statement(self) -> Statement | None:
        if self._accept("SHOW", "VERSIONS", "IN", "MODEL"):
            name = self._parse_model()
            self._expect_end()
            return statements.ShowVersions(self._statement_sql, name)
        if self._accept_model("SHOW", "CREATE"):
            return statements.ShowCreate(self._statement_sql, self._parse_last_model())
        if not self._accept("SHOW", "MODELS"):
            return None
        like = database = None
        may_have_database = True
        while self._curr:
            if like is None and self._accept("LIKE"):
                like = self._parse_text("a pattern")
            elif may_have_database and self._match_texts(("FROM", "IN")):
                database = normalize_database(self._parse_name("the name of a database"))
                may_have_database = False
            else:
                raise self._error_here("expected LIKE '...', FROM database or the end")
        return statements.ShowModels(self._statement_sql, like, database)

    def _parse_describe_model(self) -> Statement | None:
        if self._accept_model("DESCRIBE") or self._accept_model("DESC"):
            return statements.DescribeModel(self._statement_sql, self._parse_last_model())
        return None

    def _parse_last_model(self) -> ModelName:
        name = self._parse_model_version()
        self._expect_end()
        return name

    def _parse_explain_statement(self) -> Statement | None:
        if self._accept_model("EXPLAIN"):
            return statements.ExplainModel(self._statement_sql, self._parse_last_model())
        self._expect("EXPLAIN")
        analyze = self._accept("ANALYZE")
        mode = self._prev.text.upper() if self._match_texts(self.EXPLAIN_MODES) else ""
        if not self._curr or self._curr.token_type == TokenType.L_PAREN:
            return None  # The engine has its own EXPLAIN (FORMAT json) ...
        query = self._find_sql(self._curr, self._tokens[-1])
        return statements.Explain(self._statement_sql, query, analyze, mode)

    def _parse_export_model(self) -> Statement | None:
        if self._accept("EXPORT", "MODELS"):
            return self._parse_export_models()
        if not self._accept_model("EXPORT"):
            return None
        name = self._parse_model_version()
        partition = self._parse_partition_values() if self._accept("PARTITION") else None
        path, options = self._parse_export_target()
        file_format, platform = options.pop("FORMAT", None), options.pop("PLATFORM", None)
        if platform is not None and file_format not in (None, "EXTENSION"):
            raise self._error_here(f"PLATFORM goes with FORMAT EXTENSION, not {file_format}")
        database = self._make_other_database(file_format, options) if options else None
        return statements.ExportModel(
            self._statement_sql, name, path, file_format, database, platform, partition
        )

    def _parse_export_models(self) -> Statement:
        self._expect_symbol(TokenType.L_PAREN, "(")
        names = tuple([self._parse_model_version() for _ in self._iterate_items(TokenType.R_PAREN)])
        path, options = self._parse_export_target()
        platform = options.pop("PLATFORM", None)
        if options.pop("FORMAT", "EXTENSION") != "EXTENSION" or options:
            raise self._error_here("several models go into one file only with FORMAT EXTENSION")
        return statements.ExportModels(self._statement_sql, names, path, platform)

    def _parse_export_target(self) -> tuple[str, dict[str, Any]]:
        """Parse the path of an export, and the options after it, to the end of the statement.

        BigQuery writes OPTIONS (uri = 'path').
        """
        if self._accept("OPTIONS"):
            uri = self._parse_option_list()
            if uri.keys() != {"uri"} or not isinstance(uri["uri"], str):
                raise self._error_here("expected OPTIONS (uri = '<path>')", tokens_back=1)
            self._expect_end()
            return uri["uri"], {}
        self._expect("TO")
        path = self._parse_text("the path of the file to write")
        options: dict[str, Any] = {}
        if self._match(TokenType.L_PAREN):  # Brackets are allowed, as in COPY ... (FORMAT x).
            for _ in self._iterate_items(TokenType.R_PAREN):
                word = self._peek_word()
                if word not in _EXPORT_OPTIONS:
                    message = f"expected {', '.join(_EXPORT_OPTIONS[:-1])} or {_EXPORT_OPTIONS[-1]}"
                    raise self._error_here(message)
                if word in options:
                    raise self._error_here(f"{word} is given twice")
                self._advance()
                options[word] = self._parse_export_option(word)
        elif self._curr:
            self._expect("FORMAT")
            options["FORMAT"] = self._parse_file_format(EXPORT_FORMATS)
        self._expect_end()
        return path, options

    def _make_other_database(
        self, file_format: str | None, options: Mapping[str, Any]
    ) -> statements.OtherDatabase:
        if "DIALECT" not in options:
            example = "(DIALECT postgres, TABLE customers)"
            message = f"{next(iter(options))} goes with DIALECT: {example}"
            raise self._error_here(message, tokens_back=1)
        if file_format not in (None, "SQL"):
            message = f"DIALECT goes with FORMAT SQL, not {file_format}"
            raise self._error_here(message, tokens_back=1)
        form, table, columns = (options.get(word) for word in ("FORM", "TABLE", "COLUMNS"))
        return statements.OtherDatabase(options["DIALECT"], form, table, columns)

    def _parse_export_option(self, word: str) -> Any:
        if word == "FORMAT":
            return self._parse_file_format(EXPORT_FORMATS)
        if word == "PLATFORM":
            return self._parse_text("the name of a platform, such as 'linux_arm64'")
        if word == "TABLE":
            return self._parse_names("the name of a table", TokenType.DOT)
        if word == "COLUMNS":
            self._expect_symbol(TokenType.L_PAREN, "(")
            items = self._iterate_items(TokenType.R_PAREN)
            return tuple([self._parse_name("a column") for _ in items])
        return fold(self._parse_name("a database" if word == "DIALECT" else "a form"))

    def _parse_set_option(self) -> Statement | None:
        is_reset = self._peek_word() == "RESET"
        self._advance()
        scope = self._peek_word()
        if scope in ("SESSION", "LOCAL", "GLOBAL"):
            self._advance()
        option = self._peek_word()
        if not option.startswith(_OPTION_PREFIX):
            return None
        if scope == "GLOBAL":
            message = "sqlml options belong to the session; leave GLOBAL out"
            raise self._error_here(message, tokens_back=1)
        self._advance()
        value = None if is_reset else self._parse_assigned_value()
        self._expect_end()
        name = fold(option.removeprefix(_OPTION_PREFIX))
        return statements.SetOption(self._statement_sql, name, value)

    def _parse_assigned_value(self) -> OptionValue:
        if not (self._match(TokenType.EQ) or self._accept("TO")):
            raise self._error_here("expected = and a value")
        if self._peek_word() == "NULL":
            raise self._error_here("expected a value; RESET restores the default")
        return None if self._accept("DEFAULT") else self._parse_option_value()

    def _parse_verify_model(self) -> Statement | None:
        if not self._accept_model("VERIFY"):
            return None
        name = self._parse_model_version()
        self._expect("USING")
        query = self._parse_bracketed_query()
        against = None
        if self._accept("AGAINST"):
            against = self._parse_text("the path of the original model file")
        self._expect_end()
        return statements.VerifyModel(self._statement_sql, name, query, against)

    def _parse_comment_on_model(self) -> Statement | None:
        if not self._accept_model("COMMENT", "ON"):
            return None
        name = self._parse_model_version()
        self._expect("IS")
        comment = None if self._accept("NULL") else self._parse_text("a comment")
        self._expect_end()
        return statements.CommentOn(self._statement_sql, name, comment)

    def _parse_alter_model(self) -> statements.AlterModel | None:
        if not self._accept_model("ALTER"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        name_index = self._index
        name = self._parse_model_version()
        for words, rule in CHANGES.items():
            if not self._accept(*words.split()):
                continue
            if name.has_version and words not in _VERSION_CHANGES:
                self._retreat(name_index)
                raise self._error_here(f"{words} applies to the whole model: leave the version out")
            change = rule(self, name)
            self._expect_end()
            return statements.AlterModel(self._statement_sql, name, change, if_exists)
        suggestion = closest(self._peek_word(), [words.split()[0] for words in CHANGES], 0.75)
        hint = "" if suggestion is None else f"; did you mean {suggestion}?"
        raise self._error_here(f"expected {', '.join(CHANGES)}{hint}")

    def _parse_add_version(self, name: ModelName) -> Change:
        number = self._parse_integer("the number of the version") if self._peek_digits() else None
        origin = self._parse_origin()
        if origin.description.changes_tags:
            message = "labels belong to the whole model: set them with ALTER MODEL ... SET OPTIONS"
            raise self._error_here(message)
        if isinstance(origin, Training):
            return statements.TrainVersion(origin, number)
        return statements.AddVersion(origin, number)

    def _parse_retrain(self, name: ModelName) -> Change:
        partition = self._parse_partition_values() if self._accept("PARTITION") else None
        promotion = self._parse_promotion()
        query = self._parse_query_until("PROMOTE", "IF") if self._accept("AS") else None
        return statements.RetrainModel(query, promotion or self._parse_promotion(), partition)

    def _parse_partition_values(self) -> Options:
        """Parse `(column = value, ...)`, where a value is a string, an integer or a boolean."""
        partition = self._parse_option_list()
        for column, value in partition.items():
            if not isinstance(value, str | int):
                raise self._error_here(f"the value of {column} must be a literal", tokens_back=1)
        if not partition:
            raise self._error_here("expected a column and its value, as in PARTITION (shop = 'a')")
        return partition

    def _parse_promotion(self) -> statements.Promotion | None:
        if not self._accept("PROMOTE"):
            return None
        self._expect("IF")
        metric = fold(self._parse_name("the name of a metric"))
        symbol = self._curr.text if self._curr else ""
        if symbol not in _COMPARISONS:
            raise self._error_here(f"expected one of {' '.join(_COMPARISONS)}")
        self._advance()
        if self._accept("CURRENT"):
            return statements.Promotion(metric, symbol)
        threshold = self._parse_option_value()
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise self._error_here("expected CURRENT or a number", tokens_back=1)
        return statements.Promotion(metric, symbol, float(threshold))

    def _parse_set_default(self, name: ModelName) -> Change:
        self._expect_symbol(TokenType.EQ, "=")
        return statements.SetDefault(self._parse_version_of(name))

    def _parse_set_alias(self, name: ModelName) -> Change:
        alias = self._parse_name("the name of an alias")
        self._expect_symbol(TokenType.EQ, "=")
        return statements.SetAlias(alias, self._parse_version_of(name))

    def _parse_set_tags(self, name: ModelName) -> Change:
        tags: dict[str, str] = {}
        while not tags or self._match(TokenType.COMMA):
            tag = fold(self._parse_name("the name of a tag"))
            if tag in tags:
                raise self._error_here(f"tag {tag} is given twice")
            self._expect_symbol(TokenType.EQ, "=")
            tags[tag] = self._parse_text("the value of a tag")
        return statements.SetTags(tags)

    def _parse_set_options(self, name: ModelName) -> Change:
        options, description = self._split_description(self._parse_option_list(), None)
        if not (description.changes_comment or description.changes_tags):
            return statements.SetOptions(options)
        if options:
            others = ", ".join(options)
            message = f"set description and labels in a statement of their own, without {others}"
            raise self._error_here(message, tokens_back=1)
        if description.changes_tags and name.has_version:
            raise self._error_here("labels belong to the whole model: leave the version out")
        return statements.Describe(description)

    def _parse_reset_options(self, name: ModelName) -> Change:
        if not self._curr:
            return statements.ResetOptions()
        self._expect_symbol(TokenType.L_PAREN, "(")
        names = self._parse_names("the name of an option")
        self._expect_symbol(TokenType.R_PAREN, ")")
        return statements.ResetOptions(tuple(fold(option) for option in names))

    def _parse_using_and_options(self) -> tuple[str, Options]:
        self._expect("USING")
        query = self._parse_bracketed_query()
        return query, self._parse_option_list() if self._match_texts(("OPTIONS", "WITH")) else {}

    def _parse_calibrate(self, name: ModelName) -> Change:
        query = self._parse_bracketed_query() if self._accept("USING") else None
        options = self._parse_option_list() if self._match_texts(("OPTIONS", "WITH")) else {}
        return statements.Calibrate(query, options)

    def _parse_names(
        self, description: str, separator: TokenType = TokenType.COMMA
    ) -> tuple[str, ...]:
        names = [self._parse_name(description)]
        while self._match(separator):
            names.append(self._parse_name(description))
        return tuple(names)


STATEMENT_RULES: Mapping[str, Callable[[ModelStatements], Statement | None]] = {
    "CREATE": ModelStatements._parse_create_model,
    "DROP": ModelStatements._parse_drop_model,
    "SHOW": ModelStatements._parse_show_statement,
    "DESCRIBE": ModelStatements._parse_describe_model,
    "DESC": ModelStatements._parse_describe_model,
    "EXPLAIN": ModelStatements._parse_explain_statement,
    "ALTER": ModelStatements._parse_alter_model,
    "EXPORT": ModelStatements._parse_export_model,
    "SET": ModelStatements._parse_set_option,
    "RESET": ModelStatements._parse_set_option,
    "VERIFY": ModelStatements._parse_verify_model,
    "COMMENT": ModelStatements._parse_comment_on_model,
}

CHANGES: Mapping[str, Callable[[ModelStatements, ModelName], Change]] = {
    "ADD VERSION": ModelStatements._parse_add_version,
    "RETRAIN": ModelStatements._parse_retrain,
    "DROP PARTITION": lambda rules, _: statements.DropPartition(rules._parse_partition_values()),
    "DROP VERSION": lambda rules, name: statements.DropVersion(rules._parse_version_of(name)),
    "SET DEFAULT_VERSION": ModelStatements._parse_set_default,
    "SET ALIAS": ModelStatements._parse_set_alias,
    "UNSET ALIAS": lambda rules, _: statements.UnsetAlias(
        rules._parse_name("the name of an alias")
    ),
    "SET TAG": ModelStatements._parse_set_tags,
    "UNSET TAG": lambda rules, _: statements.UnsetTags(rules._parse_names("the name of a tag")),
    "SET OPTIONS": ModelStatements._parse_set_options,
    "RESET OPTIONS": ModelStatements._parse_reset_options,
    "RENAME TO": lambda rules, _: statements.RenameModel(
        rules._parse_name("the new name of the model")
    ),
    "ADD CASCADE": lambda rules, _: statements.AddCascade(*rules._parse_using_and_options()),
    "DROP CASCADE": lambda rules, _: statements.DropSmallModel("cascade"),
    "ADD TOP_K FILTER": lambda rules, _: statements.AddTopKFilter(
        *rules._parse_using_and_options()
    ),
    "DROP TOP_K FILTER": lambda rules, _: statements.DropSmallModel("top_k"),
    "CALIBRATE": ModelStatements._parse_calibrate,
    "DROP CALIBRATION": lambda rules, _: statements.DropSmallModel("calibration"),
}
"""Maps the words after the model's name to the rule that parses the rest of a change."""

_VERSION_CHANGES = (
    *("SET OPTIONS", "RESET OPTIONS", "RETRAIN"),
    *("ADD CASCADE", "DROP CASCADE", "ADD TOP_K FILTER", "DROP TOP_K FILTER"),
    *("CALIBRATE", "DROP CALIBRATION", "DROP PARTITION"),
)
"""Changes that apply to the named version; all others apply to the whole model."""
