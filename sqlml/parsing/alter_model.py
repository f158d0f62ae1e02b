"""`AlterModelRules`: the grammar of ALTER MODEL."""

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

# `FromClause`: where CREATE MODEL and ADD VERSION take a model from: a file or rows to learn.


FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())


_TRAINED = "expected AS and the query whose rows the model is trained on"


class FromClause(StatementParts):
    """A method for that clause."""

    def _origin(self) -> Artifact | Training:
        """[INPUT ..] [OUTPUT ..] FROM 'path' .., or [TRANSFORM ..] [OPTIONS ..] AS query.

        Raises:
            ParseError: it is malformed.
        """
        if self._word() in ("TRANSFORM", "OPTIONS", "WITH", "COMMENT", "AS"):
            return self._training()
        inputs = self._columns() if self._accept("INPUT") else None
        output = self._columns() if self._accept("OUTPUT") else None
        if not self._match_texts(("FROM", "USING")):
            if inputs is None and output is None:
                raise self._failed("expected FROM '<path of a model file>', or AS and a query")
            raise self._failed("expected FROM '<path of a model file>'")
        source = self._text("the path of a model file")
        form, comment = "AUTO", None
        options: Options = MappingProxyType({})
        while self._curr:
            if self._accept("FORMAT"):
                form = self._format(FORMATS)
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._options()
            elif self._accept("COMMENT"):
                comment = self._text("a comment")
            elif self._word() in ("INPUT", "OUTPUT"):
                raise self._failed(f"{self._word()} (..) goes before FROM")
            else:
                raise self._failed("expected FORMAT, OPTIONS (..), COMMENT '..' or the end")
        return Artifact(source, inputs, output, form, options, comment)

    def _training(self) -> Training:
        """[TRANSFORM (..)] [OPTIONS (..)] [COMMENT ..] AS query, to the end of the statement."""
        transform, comment = None, None
        options: Options = MappingProxyType({})
        given: set[str] = set()
        while not self._accept("AS"):
            word = self._word()
            if word in given:
                raise self._failed(f"{word} is given twice")
            given.add(word)
            if self._accept("TRANSFORM"):
                transform = self._item_texts()
            elif self._match_texts(("OPTIONS", "WITH")):
                options = self._options()
            elif self._accept("COMMENT"):
                comment = self._text("a comment")
            elif word in ("FROM", "USING") and transform is None:
                raise self._failed("OPTIONS (..) goes behind FROM '<path of a model file>'")
            else:
                raise self._failed(_TRAINED)
        return Training(self._query_before(), options, transform, comment)

    def _query_before(self, *words: str) -> str:
        """The text of a query up to the words, if they stand in none of its brackets, or else to
        the end of the statement."""
        first = self._index
        while self._curr and not (words and self._match_text_seq(*words, advance=False)):
            opens = self._curr.token_type in OPENING
            self._advance(self._closing() + 1 - self._index if opens else 1)
        if self._index == first:
            raise self._failed("expected the query whose rows the model is trained on")
        return self._find_sql(self._tokens[first], self._prev)

    def _format(self, known: tuple[str, ...]) -> str:
        """The name of a file format, in capitals, which is one of those known."""
        form = self._name("a format").upper()
        if form not in known:
            raise self._failed(f"unknown format {form}; formats: {', '.join(known)}", back=1)
        return form


class AlterModelRules(FromClause):
    """ALTER MODEL, and a method for each of the changes that it makes."""

    def _alter_model(self) -> AlterModel | None:
        """ALTER MODEL [IF EXISTS] m ..; None if it alters something else.

        Raises:
            ParseError: the change is not one of `CHANGES`, or is malformed.
        """
        if not self._accept_model("ALTER"):
            return None
        if_exists = self._accept("IF", "EXISTS")
        place = self._index
        name = self._model_version()
        for words, rule in CHANGES.items():
            if not self._accept(*words.split()):
                continue
            if name.names_a_version and words not in _OF_A_VERSION:
                self._retreat(place)
                raise self._failed(f"{words} applies to the whole model; name it without a version")
            change = rule(self, name)
            self._expect_end()
            return AlterModel(self._statement, name, change, if_exists)
        near = closest(self._word(), [words.split()[0] for words in CHANGES], 0.75)
        hint = "" if near is None else f"; did you mean {near}?"
        raise self._failed(f"expected {', '.join(CHANGES)}{hint}")

    def _add_version(self, name: ModelName) -> Change:
        number = self._number("the number of the version") if self._digits() else None
        found = self._origin()
        if isinstance(found, Training):
            return TrainVersion(found, number)
        return AddVersion(found, number)

    def _retrain(self, name: ModelName) -> Change:
        """[AS query] [PROMOTE IF ..], or the other way round."""
        promotion = self._promotion()
        query = self._query_before("PROMOTE", "IF") if self._accept("AS") else None
        return Retrain(query, promotion or self._promotion())

    def _promotion(self) -> Promotion | None:
        """PROMOTE IF metric >= CURRENT."""
        if not self._accept("PROMOTE"):
            return None
        self._expect("IF")
        metric = fold(self._name("the name of a metric"))
        symbol = self._curr.text if self._curr else ""
        if symbol not in COMPARISONS:
            raise self._failed(f"expected one of {' '.join(COMPARISONS)}")
        self._advance()
        if self._accept("CURRENT"):
            return Promotion(metric, symbol)
        least = self._value()
        if isinstance(least, bool) or not isinstance(least, int | float):
            raise self._failed("expected CURRENT or a number", back=1)
        return Promotion(metric, symbol, float(least))

    def _drop_version(self, name: ModelName) -> Change:
        return DropVersion(self._version_of(name))

    def _set_default(self, name: ModelName) -> Change:
        self._expect_symbol(TokenType.EQ, "=")
        return SetDefault(self._version_of(name))

    def _set_alias(self, name: ModelName) -> Change:
        alias = self._name("the name of an alias")
        self._expect_symbol(TokenType.EQ, "=")
        return SetAlias(alias, self._version_of(name))

    def _unset_alias(self, name: ModelName) -> Change:
        return UnsetAlias(self._name("the name of an alias"))

    def _set_tags(self, name: ModelName) -> Change:
        tags: dict[str, str] = {}
        while not tags or self._match(TokenType.COMMA):
            tag = fold(self._name("the name of a tag"))
            if tag in tags:
                raise self._failed(f"tag {tag} is given twice")
            self._expect_symbol(TokenType.EQ, "=")
            tags[tag] = self._text("the value of a tag")
        return SetTags(MappingProxyType(tags))

    def _unset_tags(self, name: ModelName) -> Change:
        return UnsetTags(self._names("the name of a tag"))

    def _set_options(self, name: ModelName) -> Change:
        return SetOptions(self._options())

    def _reset_options(self, name: ModelName) -> Change:
        if not self._curr:
            return ResetOptions()
        self._expect_symbol(TokenType.L_PAREN, "(")
        names = self._names("the name of an option")
        self._expect_symbol(TokenType.R_PAREN, ")")
        return ResetOptions(tuple(fold(n) for n in names))

    def _rename_model(self, name: ModelName) -> Change:
        return Rename(self._name("the new name of the model"))

    def _add_cascade(self, name: ModelName) -> Change:
        return AddCascade(*self._rows_to_learn_from())

    def _drop_cascade(self, name: ModelName) -> Change:
        return DropCascade()

    def _add_filter(self, name: ModelName) -> Change:
        return AddTopKFilter(*self._rows_to_learn_from())

    def _drop_filter(self, name: ModelName) -> Change:
        return DropTopKFilter()

    def _rows_to_learn_from(self) -> tuple[str, Options]:
        """USING (query) [OPTIONS (..)]."""
        self._expect("USING")
        query = self._query()
        given = self._match_texts(("OPTIONS", "WITH"))
        return query, self._options() if given else MappingProxyType({})

    def _names(self, what: str) -> tuple[str, ...]:
        names = [self._name(what)]
        while self._match(TokenType.COMMA):
            names.append(self._name(what))
        return tuple(names)


COMPARISONS = (">=", ">", "<=", "<")
"""How the metric of a retrained version may compare to what it must reach."""

CHANGES: Mapping[str, Callable[[AlterModelRules, ModelName], Change]] = MappingProxyType(
    {
        "ADD VERSION": AlterModelRules._add_version,
        "RETRAIN": AlterModelRules._retrain,
        "DROP VERSION": AlterModelRules._drop_version,
        "SET DEFAULT_VERSION": AlterModelRules._set_default,
        "SET ALIAS": AlterModelRules._set_alias,
        "UNSET ALIAS": AlterModelRules._unset_alias,
        "SET TAG": AlterModelRules._set_tags,
        "UNSET TAG": AlterModelRules._unset_tags,
        "SET OPTIONS": AlterModelRules._set_options,
        "RESET OPTIONS": AlterModelRules._reset_options,
        "RENAME TO": AlterModelRules._rename_model,
        "ADD CASCADE": AlterModelRules._add_cascade,
        "DROP CASCADE": AlterModelRules._drop_cascade,
        "ADD TOP_K FILTER": AlterModelRules._add_filter,
        "DROP TOP_K FILTER": AlterModelRules._drop_filter,
    }
)
"""The words after the model's name, and the rule of what follows them."""

_OF_A_VERSION = (
    *("SET OPTIONS", "RESET OPTIONS", "RETRAIN"),
    *("ADD CASCADE", "DROP CASCADE", "ADD TOP_K FILTER", "DROP TOP_K FILTER"),
)
"""Changes to the named version; the others apply to the whole model."""
