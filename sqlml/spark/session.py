"""A Spark session that understands models, with the same statements as a `Session` on DuckDB."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from sqlml.catalog.lookup import Catalog, ModelCache
from sqlml.catalog.model import Reference
from sqlml.catalog.model_changes import ModelChanges, VersionChanges
from sqlml.catalog.scoring_macros import Macros
from sqlml.catalog.stored_programs import Loaded
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, ConfigError, ParseError, excerpt
from sqlml.parsing.statements import Explain, Query, SetOption, Statement
from sqlml.parsing.tokens import find_original_offset
from sqlml.planner.plan.plan import Plan
from sqlml.planner.syntax.statement_text import classify_text
from sqlml.spark.catalog_directory import Directory, FilePrograms, Mirror
from sqlml.spark.files import Files, LocalFiles, open_files
from sqlml.spark.host import SparkHost, bind_literals
from sqlml.spark.plain_functions import PlainFunctions, SparkQueries
from sqlml.spark.trainers import SparkTrainers
from sqlml.statements.connection_models import Models, format_pairs_answer
from sqlml.statements.dispatch import carry_out
from sqlml.statements.model_methods import ModelMethods
from sqlml.udfs.spark.engine import SparkEngine, require_live

if TYPE_CHECKING:
    import pyspark.sql


_POSITION = re.compile(r"; line (\d+) pos (\d+)|\s*\(line (\d+), pos (\d+)\)")

_REMEDIES: Mapping[str, str] = {
    "INVALID_INLINE_TABLE": "no models in VALUES; write SELECT ... UNION ALL SELECT ...",
    "INVALID_TEMP_OBJ_REFERENCE": "models are temporary functions; CREATE TEMPORARY VIEW",
}
"""Maps an error condition of Spark to a hint that is added to the message."""


@contextmanager
def reworded_errors(rewritten_sql: str, user_sql: str) -> Iterator[None]:
    """Turn Spark's errors about the query `rewritten_sql` into errors about `user_sql`."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        yield
    except AnalysisException as error:  # The base class of ParseException.
        error_class = ParseException if isinstance(error, ParseException) else AnalysisException
        reworded = error_class(message=_reword(error, rewritten_sql, user_sql))
        reworded._errorClass = error.getCondition()
        raise reworded from None


_FUNCTION = r"the temporary object `sqlml_\w+` of the type FUNCTION"
_REWORDINGS = (
    (r"^\[[A-Z_.]+\] ", ""),  # The exception shows this condition anyway.
    (r'"[^"]*(?:\bsqlml_|raise_error\(|named_struct\()[^"]*"', '"... model call ..."'),
    (_FUNCTION, "a model's function, which is temporary"),
    (r"Please make the temporary object `sqlml_\w+` persistent, or make", "Please make"),
    (r"`?\bsqlml_\w+`?", "a model's function"),
)
"""Pairs of a pattern for generated SQL in messages and a replacement, applied in order."""


def _reword(error: Exception, rewritten_sql: str, user_sql: str) -> str:
    """Return the first line of Spark's message with a hint and the position in `user_sql`."""
    first_line = next((line for line in str(error).strip().splitlines() if line.strip()), "")
    position = _POSITION.search(str(error))
    remedy = next((hint for name, hint in _REMEDIES.items() if f"[{name}" in first_line), "")
    for pattern, replacement in _REWORDINGS:
        first_line = re.sub(pattern, replacement, first_line)
    message = f"{_POSITION.sub('', first_line).rstrip(';').strip()}{remedy and '; '}{remedy}"
    if position is None:
        return message
    line_number, column = (int(n) for n in position.groups() if n is not None)
    earlier_lines = rewritten_sql.split("\n")[: line_number - 1]
    offset = sum(len(line) + 1 for line in earlier_lines) + column
    user_offset = find_original_offset(rewritten_sql, user_sql, offset, SPARK.name)
    return message if user_offset is None else f"{message}\n\n{excerpt(user_sql, user_offset)}"


class SparkSession(ModelMethods["pyspark.sql.DataFrame"]):
    """A SparkSession whose SQL understands models, made by `sqlml.attach`.

    `sql` accepts everything that `SparkSession.sql` accepts, statements about models (CREATE MODEL,
    SHOW MODELS, ...), and functions that call models (`predict`, `explain`, `ml_evaluate`, ...).
    The result is a DataFrame. All other attributes are those of the SparkSession. Models live in a
    directory (`catalog_directory.py`), and changes of models take effect at once. Only one thread
    at a time plans a query.

    Args:
        spark: a live session, which stays open after `close`.
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
        path = os.path.abspath(files.location) if isinstance(files, LocalFiles) else files.location
        self._mirror = Mirror(directory)
        self._catalog = Catalog(self._mirror, FilePrograms(directory, Loaded()))
        macros = Macros(self._mirror)
        lookup = ModelCache(self._catalog)
        host = SparkHost(spark)
        self._queries = SparkQueries(self._engine, self._catalog, lookup, host)
        self._functions = PlainFunctions(self._engine, self._catalog, lookup, self._queries, path)
        functions = self._functions

        def refresh_functions(reference: Reference, calls: object) -> None:
            lookup.clear()
            functions.refresh(reference.name)

        # Spark calls functions of its own, so the catalog needs no macros.
        builders = lambda key, version: (), lambda version: None, refresh_functions
        change_args = self._mirror, self._catalog, macros, *builders
        changes, versions = ModelChanges(*change_args), VersionChanges(*change_args)
        stores = host, self._catalog, changes, versions
        trainers = SparkTrainers(spark)
        self._models = Models(*stores, allow_pickle, self._queries.runnable, trainers, SPARK)
        self._functions.make_all()

    def sql(self, query: str, args: Any = None, **kwargs: Any) -> pyspark.sql.DataFrame:
        """Return the DataFrame of a query, or of the last of several statements.

        Args:
            query: one or more statements.
            args: values of the parameters: a list for `?`, or a dict for `:name`.
            kwargs: as in Spark, values for `{name}` in a query that calls no models.

        Raises:
            BackendError: the SparkSession has been stopped.
            SqlmlError: a statement about models fails; the subclass states why (`sqlml.errors`).
        """
        self._require_live()
        if kwargs:
            if classify_text(query, SPARK.name).concerns_models:
                advice = "name them with createOrReplaceTempView"
                raise ConfigError(f"a query with models cannot use DataFrames in braces; {advice}")
            return self._spark.sql(query, args, **kwargs)
        *earlier_statements, last_statement = _parse(query, args)
        for statement in earlier_statements:
            self._run(statement)
        return self._run(last_statement)

    execute = sql

    def explain(self, query: str, args: Any = None) -> str:
        """Return the model plan of a query, followed by Spark's plan, as text.

        Args:
            query: one query; EXPLAIN is optional.
            args: values of the parameters.

        Raises:
            ParseError: the text has several statements, or one that is not a query.
        """
        with self._calling():
            self._require_live()
            statement, *extra_statements = _parse(query, args)
            if isinstance(statement, Query):
                statement = Explain(statement.sql, statement.sql, False)
            if extra_statements or not isinstance(statement, Explain):
                raise ParseError("explain needs one query; CREATE MODEL and the like have no plan")
            return "\n\n".join(text for _, text in self._explain(statement))

    def plan(self, query: str, args: Any = None) -> Plan | None:
        """Return the Plan of a query, or None if it calls no models.

        Args:
            query: one query.
            args: values of the parameters.
        """
        with self._calling():
            self._require_live()
            return self._queries.plan(bind_literals(query, args))

    @property
    def spark(self) -> pyspark.sql.SparkSession:
        """The SparkSession itself."""
        return self._spark

    def close(self) -> None:
        """Close the catalog; the SparkSession stays open, and its queries keep running."""
        if self._closed:
            return
        self._closed = True
        self._functions.release()
        self._mirror.native.close()

    def _calling(self) -> AbstractContextManager[object]:
        """Return a lock, because only one thread at a time may use the catalog and make plans."""
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
                plan = self._queries.plan(statement.sql)
                sql = statement.sql if plan is None else self._queries.register(plan)
            if plan is None:
                return self._engine.execute(sql)
            with reworded_errors(sql, statement.sql):
                return self._engine.execute(sql)
        with self._calling():
            return self._carry_out(statement)

    def _carry_out(self, statement: Statement) -> pyspark.sql.DataFrame:
        if isinstance(statement, SetOption):
            self._queries.set(statement.option, statement.value)
            return self._spark.createDataFrame([], "key string, value string")
        if isinstance(statement, Explain):
            rows = self._explain(statement)
            answer: Any = format_pairs_answer(("explain_key", "explain_value"), rows)
        else:
            answer = carry_out(self._models, statement)
        if answer is None:
            return self._spark.createDataFrame([], "status string")
        query, parameters = answer
        return self._to_data_frame(self._mirror.native.sql(query, params=parameters))

    def _to_data_frame(self, relation: Any) -> pyspark.sql.DataFrame:
        types = map(SPARK.type, map(str, relation.types))
        names = map(SPARK.quote_name, relation.columns)
        schema = ", ".join(map(" ".join, zip(names, types, strict=True)))
        return self._spark.createDataFrame(relation.fetchall(), schema)

    def _explain(self, statement: Explain) -> list[tuple[str, str]]:
        if statement.analyze:
            advice = "EXPLAIN shows the plan, the Spark UI the actual times"
            raise ParseError(f"Spark has no EXPLAIN ANALYZE; {advice}")
        plan = self._queries.plan(statement.query)
        sql = statement.query if plan is None else self._queries.register(plan)
        explain_sql = f"EXPLAIN {statement.mode or 'FORMATTED'} {sql}"
        with reworded_errors(sql, statement.query):
            physical_plan = "".join(row[0] for row in self._engine.execute(explain_sql).collect())
        rows = [("physical_plan", physical_plan)]
        return rows if plan is None else [("sqlml_plan", str(plan)), *rows]


def _parse(query: str, parameters: Any) -> tuple[Statement, ...]:
    sql = bind_literals(query, parameters)
    return classify_text(sql, SPARK.name).statements or (Query(sql),)


MIN_VERSION = (4, 1)
"""The first Spark version that passes Arrow arrays to Python functions."""


def open_spark(
    spark: pyspark.sql.SparkSession, catalog: str | None, allow_pickle: bool
) -> SparkSession:
    """Open a session on a live SparkSession, which must not belong to Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BackendError(
            "sqlml runs in the driver process, but this is a session of Spark Connect; open "
            "one with SparkSession.builder.master(...).getOrCreate()"
        )
    require_live(spark)
    version = re.match(r"(\d+)\.(\d+)", spark.version)
    if version is None or (int(version[1]), int(version[2])) < MIN_VERSION:
        requirement = f"{MIN_VERSION[0]}.{MIN_VERSION[1]} or later: pip install 'sqlml[spark]'"
        raise BackendError(f"this is Spark {spark.version}, but sqlml needs {requirement}")
    conf: Any = spark.conf
    directory = conf.get("spark.sqlml.catalog", None) if catalog is None else catalog
    if directory == "":
        raise ConfigError("the model directory has no name; write, for example, catalog='models'")
    if directory is None:
        directory = f"{conf.get('spark.sql.warehouse.dir').rstrip('/')}/_sqlml"
    session = SparkSession(spark, open_files(directory, spark), allow_pickle=allow_pickle)
    _prefer_rows(conf)
    return session


_COLUMNAR = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_ARROW_BACKED = ("spark.plugins", "spark.sql.extensions", "spark.sql.cache.serializer")
"""Settings that may make Spark store columns in Arrow's format."""


def _prefer_rows(conf: Any) -> None:
    """Make Spark send rows instead of columns to Python, unless `conf` asks for Arrow columns.

    Spark 4.3 reads the columns of Parquet files value by value, which makes a query 25% slower
    (docs/spark.md).
    """
    from pyspark.errors import PySparkException

    if any(key in conf.getAll for key in (_COLUMNAR, *_ARROW_BACKED)):
        return
    try:
        conf.get(_COLUMNAR)
    except PySparkException:
        return  # Earlier versions of Spark always send rows.
    conf.set(_COLUMNAR, "false")
