"""`FromClause`: where CREATE MODEL and ADD VERSION take a model from: a file or rows to learn."""

from __future__ import annotations

from types import MappingProxyType

from sqlml.parsing.statement_parts import OPENING, StatementParts
from sqlml.parsing.statements import Artifact, Options, Training

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
