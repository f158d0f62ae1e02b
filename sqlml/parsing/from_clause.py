"""`FromClause`: the part of CREATE MODEL and ADD VERSION that says where a model comes from."""

from __future__ import annotations

from types import MappingProxyType

from sqlml.parsing.statement_parts import StatementParts
from sqlml.parsing.statements import Artifact, Options

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())


class FromClause(StatementParts):
    """A method for that clause."""

    def _artifact(self) -> Artifact | None:
        """[INPUT ..] [OUTPUT ..] FROM 'path' ..; None if a query to train on follows.

        Raises:
            ParseError: it is malformed.
        """
        if self._word() in ("TRANSFORM", "AS"):
            return None
        inputs = self._columns() if self._accept("INPUT") else None
        output = self._columns() if self._accept("OUTPUT") else None
        first = self._index
        if self._match_texts(("OPTIONS", "WITH")):
            given = self._options()
            if self._word() == "AS":
                return None
            if not given:
                self._retreat(first)
            raise self._failed("expected FROM '<path>' before OPTIONS")
        if not self._match_texts(("FROM", "USING")):
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

    def _format(self, known: tuple[str, ...]) -> str:
        """The name of a file format, in capitals, which is one of those known."""
        form = self._name("a format").upper()
        if form not in known:
            raise self._failed(f"unknown format {form}; formats: {', '.join(known)}", back=1)
        return form
