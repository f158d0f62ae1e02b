"""`Text`: a text of SQL, its statements and how to run them.

Everything is worked out when first asked for, and only once: texts recur, and several parts of a
session ask about each. A text that lacks a few words is the engine's own, and never tokenised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlml.errors import ParseError
from sqlml.parsing.parse import cut, parse
from sqlml.parsing.statements import Explain, Query, Statement
from sqlml.planner.syntax.arguments import FUNCTIONS, seems_to_call
from sqlml.types import fold, is_unicode

_MODELS = ("predict", "explain", "transform", "model", "sqlml_", "_data", "ml.")
_ENDS = ("commit", "end", "rollback", "abort")
_BRINGS = ("attach", "import")
_DEFINES = ("macro", "function")
_WATCHED = (*_MODELS, *_DEFINES, *_BRINGS, *_ENDS)
"""One of these is in each text that we may have to do with: it calls or names a model, brings or
hides a function or macro of ours, or ends a transaction."""

_GAP = r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|$))"
_FLAGS = re.IGNORECASE | re.DOTALL
_ABOUT_MODELS = re.compile(
    rf"\b(?:{'|'.join(FUNCTIONS)})" + _GAP + r"*\("
    rf"|\bml(?:_|{_GAP}*\.{_GAP}*)\w+{_GAP}*\({_GAP}*(?:model\b|table\b|\()"
    r"|\b(?:create|replace|drop|show|describe|desc|explain|alter|export|verify|on|in)"
    + _GAP
    + r"+models?\b"
    r"|\b(?:set|reset)" + _GAP + r"+(?:\w+" + _GAP + r"+)?sqlml_",
    _FLAGS,
)
_END = re.compile(rf"(?:{'|'.join(_ENDS)})(?:{_GAP}+\w+)*", _FLAGS)
_BRING = re.compile(rf"(?:^|;){_GAP}*(?:{'|'.join(_BRINGS)})\b", _FLAGS)
_IMPORT = re.compile(rf"import{_GAP}+database{_GAP}+'((?:[^']|'')*)'", _FLAGS)
_DEFINE = re.compile(
    rf"create{_GAP}+(?:or{_GAP}+replace{_GAP}+)?(?:macro|function){_GAP}+"
    rf"(?:if{_GAP}+not{_GAP}+exists{_GAP}+)?"
    rf"(?:(?:(?:\w+|\"[^\"]*\"){_GAP}*\.{_GAP}*)?(?:main|\"main\"){_GAP}*\.{_GAP}*)?"
    rf"\"?({'|'.join(FUNCTIONS)})\"?{_GAP}*\(",
    _FLAGS,
)


@dataclass(frozen=True)
class Text:
    """How to run the text `sql` of a dialect.

    `is_the_engines`: the engine runs it as it is.
    """

    sql: str
    dialect: str = "duckdb"
    is_the_engines: bool = False

    @cached_property
    def concerns_models(self) -> bool:
        """Whether it calls models or has statements about them, as far as a few words tell.

        >>> Text("SELECT 1").concerns_models, Text("SHOW MODELS").concerns_models
        (False, True)
        """
        return self._has(_MODELS) and _ABOUT_MODELS.search(self.sql) is not None

    @cached_property
    def calls_models(self) -> bool:
        """Whether it calls a model, or means to, as far as its tokens tell."""
        return self.concerns_models and seems_to_call(self.sql, self.dialect)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements, to be run one by one; none if the engine runs the text as a whole.

        Several of DuckDB's own are such a text, so that the places in the engine's errors are
        right; Spark takes one statement at a time. A text without tokens is such a text too: the
        engine says why.

        Raises:
            ParseError: a statement about models breaks the grammar; the error shows the place.
        """
        if self.concerns_models and not is_unicode(self.sql):
            wrong = next(character for character in self.sql if not is_unicode(character))
            raise ParseError(f"the statement is not valid Unicode: it has {wrong!r}")
        if self.is_the_engines or not self.concerns_models:
            one_by_one = self.dialect == "spark" and ";" in self.sql
            return tuple(Query(piece) for piece in self.pieces) if one_by_one else ()
        try:
            found = parse(self.sql, self.dialect)
        except ParseError as error:
            if error.sql is None and self.dialect == "duckdb":
                return ()
            raise
        whole = self.dialect == "duckdb" and len(found) > 1 and not self.calls_models
        return () if whole and all(isinstance(s, Query | Explain) for s in found) else found

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The texts of its statements, without semicolons; all of it if they cannot be
        separated."""
        try:
            return tuple(cut(self.sql, self.dialect)) or (self.sql,)
        except ParseError:
            return (self.sql,)

    @cached_property
    def ends_transaction(self) -> bool:
        r"""Whether its last statement is COMMIT, ROLLBACK or another word for them.

        >>> Text("BEGIN; DROP MODEL m; -- so\n commit;").ends_transaction
        True
        >>> Text("SELECT '; commit'").ends_transaction, Text("COMMIT; SELECT 1").ends_transaction
        (False, False)
        """
        return self._has(_ENDS) and any(map(_END.fullmatch, self.pieces[-1:]))

    @cached_property
    def brings_models(self) -> bool:
        r"""Whether it has an ATTACH or IMPORT: views that call models may come with it.

        >>> Text("-- mine\nATTACH 'shop.db'").brings_models
        True
        >>> Text("SELECT '; attach', import FROM attach; SELECT 1 AS attach").brings_models
        False
        """
        if not self._has(_BRINGS) or _BRING.search(self.sql) is None:
            return False
        return any(map(_BRING.match, self.pieces))

    @cached_property
    def imported_folder(self) -> str | None:
        """The folder of its IMPORT DATABASE, if it has one.

        >>> Text("SELECT 1; import database 'it''s'").imported_folder
        "it's"
        """
        found = map(_IMPORT.match, self.pieces if self.brings_models else ())
        return next((match[1].replace("''", "'") for match in found if match), None)

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """Those of our names that it gives to a function in the user's main schema.

        >>> Text("CREATE OR REPLACE MACRO main.predict(a) AS a; CREATE MACRO f(b) AS b").defines
        ('predict',)
        """
        if not self._has(_DEFINES) or _DEFINE.search(self.sql) is None:
            return ()
        return tuple(fold(m[1]) for m in map(_DEFINE.match, self.pieces) if m is not None)

    def _has(self, words: tuple[str, ...]) -> bool:
        lowered = self.sql.lower()
        return any(word in lowered for word in words)


THE_ENGINES = Text("", is_the_engines=True)
"""The Text of all texts without those words; one for all of them, so it has no text."""


def text_of(sql: Any, dialect: str = "duckdb") -> Text:
    """How to run a text; what is not a text (a statement that the engine has read) is the engine's.

    Args:
        dialect: the name of a `Dialect`.

    >>> text_of("SELECT 42").is_the_engines
    True
    >>> text_of("SELECT predict('m', *) FROM t").is_the_engines
    False
    """
    if not isinstance(sql, str):
        return THE_ENGINES
    lowered = sql.lower()
    for word in _WATCHED:  # a generator would take as long as all else here
        if word in lowered:
            return _known(sql, dialect)
    return Text(sql, dialect) if dialect == "spark" and ";" in sql else THE_ENGINES


@lru_cache(maxsize=256)
def _known(sql: str, dialect: str) -> Text:
    return Text(sql, dialect)
