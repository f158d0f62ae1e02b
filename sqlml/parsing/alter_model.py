"""The grammar of ALTER MODEL, and of the model sources that CREATE MODEL and ADD VERSION share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlglot.tokenizer_core import TokenType

from sqlml.parsing.statement_parts import OPENING, StatementParts
from sqlml.parsing.statements import (
    AddCascade,
    AddTopKFilter,
    AddVersion,
    AlterModel,
    Artifact,
    Change,
    DropCascade,
    DropTopKFilter,
    DropVersion,
    ModelName,
    Options,
    Promotion,
    Rename,
    ResetOptions,
    Retrain,
    SetAlias,
    SetDefault,
    SetOptions,
    SetTags,
    Training,
    TrainVersion,
    UnsetAlias,
    UnsetTags,
)
from sqlml.suggestions import closest
from sqlml.types import fold

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())


_EXPECTED_QUERY = "expected AS and the query whose rows the model is trained on"


class FromClause(StatementParts):
    """The clauses that name a model file or a training query."""

    def _origin(self) -> Artifact | Training:
        """Parse [INPUT ...] [OUTPUT ...] FROM 'path' ..., or [TRANSFORM ...] [OPTIONS ...] AS
        query.

        Raises:
            ParseError: it is malformed.
        """
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
        options: Options = MappingProxyType({})
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
        return Artifact(source, inputs, output, format_, options, comment)

    def _training(self) -> Training:
        """Parse [TRANSFORM (...)] [OPTIONS (...)] [COMMENT ...] AS query, to the end of the
        statement."""
        transform, comment = None, None
        options: Options = MappingProxyType({})
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
                raise self._error_here(_EXPECTED_QUERY)
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
        """Parse the name of a file format, and return it in capitals."""
        format_ = self._name("a format").upper()
        if format_ not in formats:
            raise self._error_here(
                f"unknown format {format_}; formats: {', '.join(formats)}", back=1
            )
        return format_


class AlterModelRules(FromClause):
    """The rule of ALTER MODEL, with one method per change."""

    def _alter_model(self) -> AlterModel | None:
        """Parse ALTER MODEL [IF EXISTS] m ...; None if it alters something else.

        Raises:
            ParseError: the change is not one of `CHANGES`, or is malformed.
        """
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
                raise self._error_here(
                    f"{words} applies to the whole model; name it without a version"
                )
            change = rule(self, name)
            self._expect_end()
            return AlterModel(self._statement, name, change, if_exists)
        suggestion = closest(self._word(), [words.split()[0] for words in CHANGES], 0.75)
        hint = "" if suggestion is None else f"; did you mean {suggestion}?"
        raise self._error_here(f"expected {', '.join(CHANGES)}{hint}")

    def _add_version(self, name: ModelName) -> Change:
        number = self._number("the number of the version") if self._digits() else None
        origin = self._origin()
        if isinstance(origin, Training):
            return TrainVersion(origin, number)
        return AddVersion(origin, number)

    def _retrain(self, name: ModelName) -> Change:
        """Parse [PROMOTE IF ...] [AS query], in either order."""
        promotion = self._promotion()
        query = self._query_until("PROMOTE", "IF") if self._accept("AS") else None
        return Retrain(query, promotion or self._promotion())

    def _promotion(self) -> Promotion | None:
        """Parse PROMOTE IF metric >= CURRENT."""
        if not self._accept("PROMOTE"):
            return None
        self._expect("IF")
        metric = fold(self._name("the name of a metric"))
        symbol = self._curr.text if self._curr else ""
        if symbol not in COMPARISONS:
            raise self._error_here(f"expected one of {' '.join(COMPARISONS)}")
        self._advance()
        if self._accept("CURRENT"):
            return Promotion(metric, symbol)
        threshold = self._value()
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise self._error_here("expected CURRENT or a number", back=1)
        return Promotion(metric, symbol, float(threshold))

    def _set_default(self, name: ModelName) -> Change:
        self._expect_symbol(TokenType.EQ, "=")
        return SetDefault(self._version_of(name))

    def _set_alias(self, name: ModelName) -> Change:
        alias = self._name("the name of an alias")
        self._expect_symbol(TokenType.EQ, "=")
        return SetAlias(alias, self._version_of(name))

    def _set_tags(self, name: ModelName) -> Change:
        tags: dict[str, str] = {}
        while not tags or self._match(TokenType.COMMA):
            tag = fold(self._name("the name of a tag"))
            if tag in tags:
                raise self._error_here(f"tag {tag} is given twice")
            self._expect_symbol(TokenType.EQ, "=")
            tags[tag] = self._text("the value of a tag")
        return SetTags(MappingProxyType(tags))

    def _reset_options(self, name: ModelName) -> Change:
        if not self._curr:
            return ResetOptions()
        self._expect_symbol(TokenType.L_PAREN, "(")
        names = self._names("the name of an option")
        self._expect_symbol(TokenType.R_PAREN, ")")
        return ResetOptions(tuple(fold(n) for n in names))

    def _using_clause(self) -> tuple[str, Options]:
        """Parse USING (query) [OPTIONS (...)]."""
        self._expect("USING")
        query = self._query()
        has_options = self._match_texts(("OPTIONS", "WITH"))
        return query, self._options() if has_options else MappingProxyType({})

    def _names(self, description: str) -> tuple[str, ...]:
        names = [self._name(description)]
        while self._match(TokenType.COMMA):
            names.append(self._name(description))
        return tuple(names)


COMPARISONS = (">=", ">", "<=", "<")
"""Comparisons of a retrained version's metric with its threshold."""

CHANGES: Mapping[str, Callable[[AlterModelRules, ModelName], Change]] = MappingProxyType(
    {
        "ADD VERSION": AlterModelRules._add_version,
        "RETRAIN": AlterModelRules._retrain,
        "DROP VERSION": lambda rules, name: DropVersion(rules._version_of(name)),
        "SET DEFAULT_VERSION": AlterModelRules._set_default,
        "SET ALIAS": AlterModelRules._set_alias,
        "UNSET ALIAS": lambda rules, name: UnsetAlias(rules._name("the name of an alias")),
        "SET TAG": AlterModelRules._set_tags,
        "UNSET TAG": lambda rules, name: UnsetTags(rules._names("the name of a tag")),
        "SET OPTIONS": lambda rules, name: SetOptions(rules._options()),
        "RESET OPTIONS": AlterModelRules._reset_options,
        "RENAME TO": lambda rules, name: Rename(rules._name("the new name of the model")),
        "ADD CASCADE": lambda rules, name: AddCascade(*rules._using_clause()),
        "DROP CASCADE": lambda rules, name: DropCascade(),
        "ADD TOP_K FILTER": lambda rules, name: AddTopKFilter(*rules._using_clause()),
        "DROP TOP_K FILTER": lambda rules, name: DropTopKFilter(),
    }
)
"""The words after the model's name -> the rule for the rest."""

_VERSION_CHANGES = (
    *("SET OPTIONS", "RESET OPTIONS", "RETRAIN"),
    *("ADD CASCADE", "DROP CASCADE", "ADD TOP_K FILTER", "DROP TOP_K FILTER"),
)
"""Changes that apply to the named version; the others apply to the whole model."""
