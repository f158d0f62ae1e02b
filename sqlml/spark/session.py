"""`SparkSession`: Spark SQL that knows models, with the statements of a `Session` on DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlml.catalog.lookup import Catalog, Lookup
from sqlml.catalog.model import Reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.catalog.scoring_macros import Macros
from sqlml.catalog.stored_programs import Loaded
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, ConfigError, ParseError, excerpt
from sqlml.parsing.statements import Explain, Query, SetOption, Statement
from sqlml.parsing.tokens import place_in
from sqlml.planner.plan.plan import Plan
from sqlml.planner.syntax.text import text_of
from sqlml.spark.catalog_directory import Directory, FilePrograms, Mirror
from sqlml.spark.files import Files, LocalFiles
from sqlml.spark.host import SparkHost, with_literals
from sqlml.spark.queries import PlainFunctions, SparkQueries
from sqlml.spark.trainers import SparkTrainers
from sqlml.statements.dispatch import carry_out
from sqlml.statements.model_methods import ModelMethods
from sqlml.statements.models import Models
from sqlml.statements.models import rows as answer_of
from sqlml.udfs.spark.engine import SparkEngine, require_live

if TYPE_CHECKING:
    import pyspark.sql


# Errors of Spark about a rewritten query, with their place in the text that a user wrote.


_AT = re.compile(r"; line (\d+) pos (\d+)|\s*\(line (\d+), pos (\d+)\)")

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "INVALID_INLINE_TABLE": "no models in VALUES; write SELECT .. UNION ALL SELECT ..",
        "INVALID_TEMP_OBJ_REFERENCE": "models are temporary functions; CREATE TEMPORARY VIEW",
    }
)
"""Spark's condition -> what to do about it."""


@contextmanager
def reworded_errors(rewritten: str, written: str) -> Iterator[None]:
    """Raise errors about the query that a user wrote, in place of Spark's about ours.

    Raises:
        pyspark.errors.ParseException, AnalysisException: with Spark's condition.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except AnalysisException as error:  # a ParseException is one
        kind = ParseException if isinstance(error, ParseException) else AnalysisException
        made = kind(message=_text(error, rewritten, written))
        made._errorClass = error.getCondition()
        raise made from None


_MODEL_SQL = re.compile(r'"[^"]*(?:\bsqlml_|raise_error\(|named_struct\()[^"]*"')
"""An expression in Spark's quotes that holds a model's SQL or its function."""

_FUNCTION = re.compile(r"the temporary object `sqlml_\w+` of the type FUNCTION")

_ADVICE = re.compile(r"Please make the temporary object `sqlml_\w+` persistent, or make")

_NAME = re.compile(r"`?\bsqlml_\w+`?")
"""A name that the user has never seen."""


def _text(error: Exception, rewritten: str, written: str) -> str:
    """Return the first line of Spark's message in the user's words, a remedy, and the place."""
    lines = str(error).strip().splitlines()
    first = next((line for line in lines if line.strip()), "")
    found = _AT.search(str(error))
    remedy = next((text for name, text in _REMEDIES.items() if f"[{name}" in first), "")
    first = re.sub(r"^\[[A-Z_.]+\] ", "", first)  # the exception itself shows its condition
    first = _MODEL_SQL.sub('"... model call ..."', first)
    first = _FUNCTION.sub("a model's function, which is temporary", first)
    first = _ADVICE.sub("Please make", first)
    first = _NAME.sub("a model's function", first)
    told = f"{_AT.sub('', first).rstrip(';').strip()}{remedy and '; '}{remedy}"
    place = None
    if found is not None:
        line, column = (int(n) for n in found.groups() if n is not None)
        before = rewritten.split("\n")[: line - 1]
        offset = sum(len(text) + 1 for text in before) + column
        place = place_in(rewritten, written, offset, SPARK.name)
    return told if place is None else f"{told}\n\n{excerpt(written, place)}"


class SparkSession(ModelMethods["pyspark.sql.DataFrame"]):
    """A SparkSession on which models are statements and functions.

    `sql` takes what `SparkSession.sql` takes, the statements about models (CREATE MODEL, SHOW
    MODELS, ..), and the functions that call them (`predict`, `explain`, `ml_evaluate`, ..); it
    gives DataFrames. All else is the SparkSession's own. Models
    live in a directory (`catalog_directory.py`); each statement that changes them does so at once.
    Made by `sqlml.attach`; its threads take turns where they plan.

    Args:
        spark: a live session; it is left running.
        files: the directory of the models.
        allow_pickle: let CREATE MODEL read pickles, which execute code.
    """

    def __init__(
        self, spark: pyspark.sql.SparkSession, files: Files, *, allow_pickle: bool = False
    ) -> None:
        self._spark = spark
        self._lock = RLock()
        self._closed = False
        self._engine = SparkEngine(spark)
        directory = Directory(files)
        local = isinstance(files, LocalFiles)
        place = os.path.abspath(files.place) if local else files.place
        self._mirror = Mirror(directory)
        self._catalog = Catalog(self._mirror, FilePrograms(directory, Loaded()))
        macros = Macros(self._mirror)
        lookup = Lookup(self._catalog)
        host = SparkHost(spark)
        self._queries = SparkQueries(self._engine, self._catalog, lookup, host)
        self._functions = PlainFunctions(self._engine, self._catalog, lookup, self._queries, place)
        changed = partial(_model_changed, lookup, self._functions)
        writer = self._mirror, self._catalog, macros, lambda version: (), changed
        changes, versions = ModelChanges(*writer), VersionChanges(*writer)
        runnable, trainers = self._queries.runnable, SparkTrainers(spark)
        self._models = Models(
            host, self._catalog, changes, versions, allow_pickle, runnable, trainers, SPARK
        )
        self._functions.make_all()

    def sql(self, query: str, args: Any = None, **kwargs: Any) -> pyspark.sql.DataFrame:
        """The DataFrame of a query, or of the last of several statements.

        Args:
            query: one or more statements.
            args: values of the parameters: a list for `?`, a dict for `:name`.
            kwargs: Spark's own: what `{name}` means in a query that calls no model.

        Raises:
            BackendError: the SparkSession has been stopped.
            SqlmlError: a model is concerned; which class of `sqlml.errors` says what is wrong.
        """
        self._require_live()
        if kwargs:
            if text_of(query, SPARK.name).concerns_models:
                raise ConfigError(
                    "a query with models takes no DataFrames in braces; name them with "
                    "createOrReplaceTempView"
                )
            return self._spark.sql(query, args, **kwargs)
        *before, last = _statements(query, args)
        for statement in before:
            self._run(statement)
        return self._run(last)

    execute = sql

    def explain(self, query: str, args: Any = None) -> str:
        """The model plan of a query above Spark's own plan, as text.

        Args:
            query: one query; it need not begin with EXPLAIN.
            args: values of its parameters.

        Raises:
            ParseError: several statements, or one that is not a query.
        """
        with self._calling():
            self._require_live()
            first, *others = _statements(query, args)
            asked = Explain(first.sql, first.sql, False) if isinstance(first, Query) else first
            if others or not isinstance(asked, Explain):
                raise ParseError("explain takes one query; CREATE MODEL and the like have no plan")
            return "\n\n".join(text for _, text in self._explained(asked))

    def plan(self, query: str, args: Any = None) -> Plan | None:
        """The Plan of a query that calls models; None when it calls none.

        Args:
            query: one query.
            args: values of its parameters.
        """
        with self._calling():
            self._require_live()
            return self._queries.plan(with_literals(query, args))

    @property
    def spark(self) -> pyspark.sql.SparkSession:
        """The SparkSession itself."""
        return self._spark

    def close(self) -> None:
        """Let go of the catalog; the SparkSession goes on, and so do its queries."""
        if self._closed:
            return
        self._closed = True
        self._functions.let_go()
        self._mirror.native.close()

    def _calling(self) -> AbstractContextManager[object]:
        """One thread at a time uses the catalog and the plans."""
        return self._lock

    def _before_change(self) -> None:
        self._require_live()

    def _require_live(self) -> None:
        if self._closed:
            raise BackendError("this session has been closed; attach the SparkSession again")
        require_live(self._spark)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._spark, name)

    def _run(self, statement: Statement) -> pyspark.sql.DataFrame:
        if isinstance(statement, Query):
            with self._calling():
                found = self._queries.plan(statement.sql)
                sql = statement.sql if found is None else self._queries.ready(found)
            if found is None:
                return self._engine.execute(sql)
            with reworded_errors(sql, statement.sql):
                return self._engine.execute(sql)
        with self._calling():
            return self._carried_out(statement)

    def _carried_out(self, statement: Statement) -> pyspark.sql.DataFrame:
        if isinstance(statement, SetOption):
            self._queries.set(statement.option, statement.value)
            return self._spark.createDataFrame([], "key string, value string")
        if isinstance(statement, Explain):
            rows = self._explained(statement)
            answer: Any = answer_of(("explain_key", "explain_value"), rows)
        else:
            answer = carry_out(self._models, statement)
        if answer is None:
            return self._spark.createDataFrame([], "status string")
        query, parameters = answer
        return self._frame(self._mirror.native.sql(query, params=parameters))

    def _frame(self, relation: Any) -> pyspark.sql.DataFrame:
        """The rows of a relation of the catalog, as Spark's own."""
        kinds = map(SPARK.type, map(str, relation.types))
        names = map(SPARK.quote_name, relation.columns)
        schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        return self._spark.createDataFrame(relation.fetchall(), schema)

    def _explained(self, asked: Explain) -> list[tuple[str, str]]:
        if asked.analyze:
            raise ParseError(
                "Spark has no EXPLAIN ANALYZE; EXPLAIN shows the plan, the Spark UI the actual "
                "times"
            )
        found = self._queries.plan(asked.query)
        sql = asked.query if found is None else self._queries.ready(found)
        ask = f"EXPLAIN {asked.mode or 'FORMATTED'} {sql}"
        with reworded_errors(sql, asked.query):
            own = "".join(r[0] for r in self._engine.execute(ask).collect())
        rows = [("physical_plan", own)]
        return rows if found is None else [("sqlml_plan", str(found)), *rows]


def _model_changed(
    lookup: Lookup, functions: PlainFunctions, reference: Reference, calls: object
) -> None:
    """What a change of a model is to the session that made it."""
    lookup.forget()
    functions.refresh(reference.name)


def _statements(query: str, args: Any) -> tuple[Statement, ...]:
    """The statements of a text with the values of its parameters in it."""
    sql = with_literals(query, args)
    return text_of(sql, SPARK.name).statements or (Query(sql),)
