"""The classification of SQL texts: does a text concern models, and how is it run?

Each property of `Text` is computed when it is first read, and only once: texts recur, and several
components of a session ask about each. A text that contains none of a few words belongs to the
engine and is never tokenized.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlml.errors import ParseError
from sqlml.parsing.parse import parse, split_sql
from sqlml.parsing.statements import Explain, Query, Statement
from sqlml.planner.syntax.arguments import METRICS, has_model_calls
from sqlml.planner.syntax.call_options import FUNCTIONS
from sqlml.planner.syntax.preprocessing import SIGNATURES
from sqlml.types import fold, is_unicode

_PREPROCESSORS = [name.removeprefix("ml_") for name in SIGNATURES]

_MODEL_WORDS = (
    "predict",
    "explain",
    "transform",
    "reconstruction_loss",
    "model",
    "sqlml_",
    "ml_",
    "ml.",
    *METRICS,
    *_PREPROCESSORS,
)
_ENDING_WORDS = ("commit", "end", "rollback", "abort")
_IMPORTING_WORDS = ("attach", "import")
_DEFINING_WORDS = ("macro", "function")
_RELEVANT_WORDS = (*_MODEL_WORDS, *_DEFINING_WORDS, *_IMPORTING_WORDS, *_ENDING_WORDS)
"""Every text that sqlml may have to handle contains at least one of these words.

Such a text calls or names a model, adds or hides one of sqlml's functions or macros, or ends a
transaction.
"""

_GAP = r"(?:\s|/\*.*?\*/|--[^\n]*(?:\n|$))"
_FLAGS = re.IGNORECASE | re.DOTALL
_ABOUT_MODELS = re.compile(
    rf"\b(?:{'|'.join((*FUNCTIONS, *METRICS))})" + _GAP + r"*\("
    rf"|\bml(?:_|{_GAP}*\.{_GAP}*)\w+{_GAP}*\({_GAP}*(?:model\b|table\b|\()"
    rf"|\bml(?:_|{_GAP}*\.{_GAP}*)(?:{'|'.join(_PREPROCESSORS)}){_GAP}*\("
    r"|\b(?:create|replace|drop|show|describe|desc|explain|alter|export|verify|on|in)"
    + _GAP
    + r"+models?\b"
    r"|\b(?:set|reset)" + _GAP + r"+(?:\w+" + _GAP + r"+)?sqlml_",
    _FLAGS,
)
_METRIC = re.compile(rf"\b(?:{'|'.join(METRICS)}){_GAP}*\(", _FLAGS)
_ENDING = re.compile(rf"(?:{'|'.join(_ENDING_WORDS)})(?:{_GAP}+\w+)*", _FLAGS)
_ATTACH_OR_IMPORT = re.compile(rf"(?:^|;){_GAP}*(?:{'|'.join(_IMPORTING_WORDS)})\b", _FLAGS)
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
    """A SQL text of a dialect, and how to run the text.

    `is_engine_sql` marks a text that the engine runs unchanged.
    """

    sql: str
    dialect: str = "duckdb"
    is_engine_sql: bool = False

    @cached_property
    def concerns_models(self) -> bool:
        """True if the text seems to call models or has statements about them.

        >>> Text("SELECT 1").concerns_models, Text("SHOW MODELS").concerns_models
        (False, True)
        """
        return self._contains_any(_MODEL_WORDS) and _ABOUT_MODELS.search(self.sql) is not None

    @cached_property
    def calls_models(self) -> bool:
        """True if the text seems to call a metric, or calls a model, even in an invalid way."""
        if not self.concerns_models:
            return False
        return _METRIC.search(self.sql) is not None or has_model_calls(self.sql, self.dialect)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """The statements to run one by one, or () if the engine runs the text as a whole.

        DuckDB runs several statements without models as one text, so that the positions in errors
        are correct. Spark runs one statement at a time. The engine also gets a text that cannot be
        tokenized, and reports the error. A statement about models that breaks the grammar raises
        ParseError, which shows the position.
        """
        if self.concerns_models and not is_unicode(self.sql):
            invalid = next(character for character in self.sql if not is_unicode(character))
            raise ParseError(f"the statement is not valid Unicode: it has {invalid!r}")
        if self.is_engine_sql or not self.concerns_models:
            runs_one_by_one = self.dialect == "spark" and ";" in self.sql
            return tuple(Query(piece) for piece in self.pieces) if runs_one_by_one else ()
        try:
            statements = parse(self.sql, self.dialect)
        except ParseError as error:
            if error.sql is None and self.dialect == "duckdb":
                return ()
            raise
        are_queries = all(isinstance(s, Query | Explain) for s in statements)
        if self.dialect == "duckdb" and len(statements) > 1 and are_queries:
            return statements if self.calls_models else ()
        return statements

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The SQL of each statement without a semicolon, or the whole text if it is not split."""
        try:
            return tuple(split_sql(self.sql, self.dialect)) or (self.sql,)
        except ParseError:
            return (self.sql,)

    @cached_property
    def ends_transaction(self) -> bool:
        r"""True if the last statement is COMMIT, ROLLBACK or a synonym.

        >>> Text("BEGIN; DROP MODEL m; -- so\n commit;").ends_transaction
        True
        >>> Text("SELECT '; commit'").ends_transaction, Text("COMMIT; SELECT 1").ends_transaction
        (False, False)
        """
        return self._contains_any(_ENDING_WORDS) and any(map(_ENDING.fullmatch, self.pieces[-1:]))

    @cached_property
    def may_add_models(self) -> bool:
        r"""True if a statement is ATTACH or IMPORT, which may add views that call models.

        >>> Text("-- mine\nATTACH 'shop.db'").may_add_models
        True
        >>> Text("SELECT '; attach', import FROM attach; SELECT 1 AS attach").may_add_models
        False
        """
        if not self._contains_any(_IMPORTING_WORDS) or _ATTACH_OR_IMPORT.search(self.sql) is None:
            return False
        return any(map(_ATTACH_OR_IMPORT.match, self.pieces))

    @cached_property
    def imported_folder(self) -> str | None:
        """The folder of the first IMPORT DATABASE statement, or None without such a statement.

        >>> Text("SELECT 1; import database 'it''s'").imported_folder
        "it's"
        """
        matches = map(_IMPORT.match, self.pieces if self.may_add_models else ())
        return next((match[1].replace("''", "'") for match in matches if match), None)

    @cached_property
    def defined_functions(self) -> tuple[str, ...]:
        """The names of sqlml's functions that the text redefines in the user's main schema.

        >>> sql = "CREATE OR REPLACE MACRO main.predict(a) AS a; CREATE MACRO f(b) AS b"
        >>> Text(sql).defined_functions
        ('predict',)
        """
        if not self._contains_any(_DEFINING_WORDS) or _DEFINE.search(self.sql) is None:
            return ()
        return tuple(fold(m[1]) for m in map(_DEFINE.match, self.pieces) if m is not None)

    def _contains_any(self, words: tuple[str, ...]) -> bool:
        lower_sql = self.sql.lower()
        return any(word in lower_sql for word in words)


ENGINE_SQL = Text("", is_engine_sql=True)
"""The shared `Text` of all texts that the engine runs as they are, which holds no SQL."""


def classify_text(sql: Any, dialect: str = "duckdb") -> Text:
    """Return the `Text` of a SQL text.

    Anything but a string, such as a statement that the engine has parsed, belongs to the engine.

    >>> classify_text("SELECT 42").is_engine_sql
    True
    >>> classify_text("SELECT predict('m', *) FROM t").is_engine_sql
    False
    """
    if not isinstance(sql, str):
        return ENGINE_SQL
    lower_sql = sql.lower()
    for word in _RELEVANT_WORDS:  # Each query runs this loop, which is faster than any().
        if word in lower_sql:
            return _get_cached_text(sql, dialect)
    return Text(sql, dialect) if dialect == "spark" and ";" in sql else ENGINE_SQL


@lru_cache(maxsize=256)
def _get_cached_text(sql: str, dialect: str) -> Text:
    return Text(sql, dialect)
