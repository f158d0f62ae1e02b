"""`SparkSession`: Spark SQL that knows models, with the statements of a `Session` on DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlml import answers
from sqlml.catalog.catalog import Catalog
from sqlml.catalog.changes import Changes
from sqlml.catalog.macros import Macros
from sqlml.catalog.programs import Loaded
from sqlml.dialects import SPARK
from sqlml.errors import BackendError, ConfigError, ParseError, SqlmlError, UnknownModelError
from sqlml.exporting import export_to_file
from sqlml.front.parse import mentions_models, parse
from sqlml.front.statements import (
    AlterModel,
    CreateModel,
    DropModel,
    Explain,
    Query,
    Rename,
    SetOption,
    Statement,
)
from sqlml.life_cycle import LifeCycle
from sqlml.lookup import Lookup
from sqlml.parsing.tokens import tokenize
from sqlml.planner.plan import Plan
from sqlml.spark.directory import Directory
from sqlml.spark.files import Files, LocalFiles
from sqlml.spark.functions import MOST, drop_functions, hold, let_go, make_functions, rivals
from sqlml.spark.host import SparkHost
from sqlml.spark.mirror import Mirror
from sqlml.spark.parameters import with_literals
from sqlml.spark.programs import FilePrograms
from sqlml.spark.rewording import reworded_errors
from sqlml.spark.scoring import SparkScoring
from sqlml.udfs.spark import SparkEngine, require_live

if TYPE_CHECKING:
    import pyspark.sql


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _alone(method: _Method) -> _Method:
    """Let one thread at a time use the catalog and the plans."""

    @wraps(method)
    def locked(self: SparkSession, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(_Method, locked)


class SparkSession:
    """A SparkSession on which models are statements and functions.

    `sql` takes what `SparkSession.sql` takes, the statements about models (CREATE, ALTER, DROP,
    SHOW, DESCRIBE, EXPORT MODEL, EXPLAIN), and the functions `predict`, `predict_proba`,
    `predict_score` and `transform`; it gives DataFrames. All else is the SparkSession's own. Models
    live in a directory (`sqlml.spark.directory`); each statement that changes them does so at once.
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
        self._place = os.path.abspath(files.place) if local else files.place
        self._mirror = Mirror(directory)
        self._catalog = Catalog(self._mirror, FilePrograms(directory, Loaded()))
        macros = Macros(self._mirror)
        changes = Changes(self._mirror, self._catalog, macros, lambda version: ())
        self._host = SparkHost(spark)
        self._life_cycle = LifeCycle(self._host, self._catalog, changes, allow_pickle, SPARK)
        self._lookup = Lookup(self._catalog)
        self._scoring = SparkScoring(self._engine, self._catalog, self._lookup)
        names = self._catalog.names()
        hold(self._place)
        for name in names if len(names) <= MOST else ():
            self._refresh(name, also=False)

    def sql(self, query: str, args: Any = None, **kwargs: Any) -> pyspark.sql.DataFrame:
        """The DataFrame of a query, or of the last of several statements.

        Args:
            args: values of the parameters: a list for `?`, a dict for `:name`.
            kwargs: Spark's own: what `{name}` means in a query that calls no model.

        Raises:
            BackendError: the SparkSession has been stopped.
            ParseError, BindError and their kin: each says what to change.
        """
        self._require_live()
        if kwargs:
            if mentions_models(query):
                raise ConfigError(
                    "a query of models takes no DataFrames in braces; give them names by "
                    "createOrReplaceTempView"
                )
            return self._spark.sql(query, args, **kwargs)
        statements = parse(with_literals(query, args), "spark")
        for statement in statements[:-1]:
            self._run(statement)
        return self._run(statements[-1])

    execute = sql

    @_alone
    def explain(self, query: str, args: Any = None) -> str:
        """The model plan of a query above Spark's own plan, as text.

        Raises:
            ParseError: several statements, or one that is no query.
        """
        self._require_live()
        statements = parse(with_literals(query, args), "spark")
        if len(statements) != 1 or not isinstance(statements[0], Query | Explain):
            raise ParseError("explain takes one query; CREATE MODEL and the like have no plan")
        (statement,) = statements
        sql = _asked(statement) if isinstance(statement, Explain) else statement.sql
        return "\n\n".join(text for _, text in self._explained(sql))

    @_alone
    def plan(self, query: str, args: Any = None) -> Plan | None:
        """The Plan of a query that calls models; None when it calls none."""
        self._require_live()
        return self._scoring.plan(with_literals(query, args))

    @_alone
    def create_model(
        self,
        name: str,
        model: Any,
        *,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
        comment: str | None = None,
        **options: Any,
    ) -> SparkSession:
        """Register a fitted object; see `Session.create_model`."""
        self._require_live()
        self._life_cycle.create_from_object(
            name,
            model,
            inputs=inputs,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            comment=comment,
            options=options,
        )
        self._refresh(name)
        return self

    @_alone
    def add_version(
        self,
        name: str,
        model: Any,
        *,
        number: int | None = None,
        inputs: Sequence[str] | Mapping[str, str] | None = None,
        comment: str | None = None,
        **options: Any,
    ) -> SparkSession:
        """Add a version to a model; see `Session.add_version`."""
        self._require_live()
        self._life_cycle.add_object(
            name, model, number=number, inputs=inputs, comment=comment, options=options
        )
        self._refresh(name)
        return self

    @_alone
    def export_model(
        self, name: str, path: str | os.PathLike[str], *, format: str | None = None
    ) -> SparkSession:
        """Write a model to a file; see `Session.export_model`."""
        self._require_live()
        export_to_file(self._lookup.model(name), os.fspath(path), format, self._host)
        return self

    @property
    def spark(self) -> pyspark.sql.SparkSession:
        """The SparkSession itself."""
        return self._spark

    def __enter__(self) -> SparkSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog; the SparkSession goes on, and so do its queries."""
        if self._closed:
            return
        self._closed = True
        let_go(self._place)
        self._mirror.registry.close()
        self._mirror.connection.close()

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
            with self._lock:
                found = self._scoring.plan(statement.sql)
                sql = statement.sql if found is None else self._scoring.ready(found)
            if found is None:
                return self._engine.execute(sql)
            with reworded_errors(sql, statement.sql):
                return self._engine.execute(sql)
        with self._lock:
            return self._carried_out(statement)

    def _carried_out(self, statement: Statement) -> pyspark.sql.DataFrame:
        if isinstance(statement, SetOption):
            self._scoring.set(statement.option, statement.value)
            return self._spark.createDataFrame([], "key string, value string")
        if isinstance(statement, Explain):
            rows = self._explained(_asked(statement))
            answer: Any = answers.rows(("explain_key", "explain_value"), rows)
        else:
            answer = self._life_cycle.carry_out(statement)
            if isinstance(statement, CreateModel | AlterModel | DropModel):
                self._lookup.forget()
                self._refresh(statement.name.name)
            if isinstance(statement, AlterModel) and isinstance(statement.change, Rename):
                self._refresh(statement.change.name)
        if answer is None:
            return self._spark.createDataFrame([], "status string")
        return self._frame(self._mirror.relation(*answer))

    def _refresh(self, name: str, also: bool = True) -> None:
        """Make the functions of a model that plain queries call, as its default version is now."""
        names = self._catalog.names()
        try:
            model = self._lookup.model(name)
        except UnknownModelError:
            drop_functions(name, self._place, self._engine)
        except SqlmlError:
            return  # whoever calls the model is told what is wrong with it
        else:
            make_functions(model, names, self._place, self._scoring, self._engine)
        for other in rivals(name, names) if also else ():
            self._refresh(other, also=False)

    def _frame(self, relation: Any) -> pyspark.sql.DataFrame:
        """The rows of a relation of the catalog, as Spark's own."""
        kinds = map(SPARK.type, map(str, relation.types))
        names = map(SPARK.quote_name, relation.columns)
        schema = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
        return self._spark.createDataFrame(relation.fetchall(), schema)

    def _explained(self, query: str) -> list[tuple[str, str]]:
        mode, query = _mode(query)
        found = self._scoring.plan(query)
        sql = query if found is None else self._scoring.ready(found)
        with reworded_errors(sql, query):
            own = "".join(r[0] for r in self._engine.execute(f"EXPLAIN {mode} {sql}").collect())
        rows = [("physical_plan", own)]
        return rows if found is None else [("sqlml_plan", str(found)), *rows]


def _asked(statement: Explain) -> str:
    """What EXPLAIN asks of, with its mode."""
    if statement.analyze:
        raise ParseError(
            "Spark has no EXPLAIN ANALYZE; EXPLAIN shows the plan, Spark's own pages what it took"
        )
    return statement.query


def _mode(query: str) -> tuple[str, str]:
    """The mode of Spark's EXPLAIN before a query, and the query.

    >>> _mode("COST SELECT 1"), _mode("SELECT 1")
    (('COST', 'SELECT 1'), ('FORMATTED', 'SELECT 1'))
    """
    first, *_ = tokenize(query, SPARK.name)
    if first.upper in ("EXTENDED", "CODEGEN", "COST", "FORMATTED"):
        return first.upper, query[first.end :].lstrip()
    return "FORMATTED", query
