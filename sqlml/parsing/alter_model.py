"""`AlterModelRules`: the grammar of ALTER MODEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlglot.tokenizer_core import TokenType

from sqlml.parsing.from_clause import FromClause
from sqlml.parsing.statements import (
    AddCascade,
    AddTopKFilter,
    AddVersion,
    AlterModel,
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
