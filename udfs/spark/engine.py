"""Spark as an engine: binding, registration and execution on one SparkSession."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB, SPARK
from sqlml.errors import BackendError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import Column, ProbeError
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import UNKNOWN, NamedFunction
from sqlml.udfs.make_function import engine_function
from sqlml.udfs.spark.worker import versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


# `require_live`: a SparkSession that has been stopped is refused.


def require_live(spark: SparkSession) -> None:
    """Refuse a session that has been stopped.

    Raises:
        BackendError: it has.
    """
    if getattr(spark.sparkContext, "_jsc", None) is None:
        raise BackendError(
            "the SparkSession has been stopped; create another one and attach it: the models are "
            "still in their directory"
        )


# Spark's types by the names that the planner knows, which are DuckDB's.


_NAMES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "void": '"NULL"',
}
"""Spark's own names (`DataType.typeName`) -> the planner's."""

_RESULTS = {"INTEGER": "int", "DOUBLE": "double"}


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """The columns of a DataFrame; a collated string says so, since it compares otherwise."""
    return tuple(
        Column(f.name, type_name(f.dataType) + _collation(f.dataType)) for f in schema.fields
    )


def _collation(kind: DataType) -> str:
    name = getattr(kind, "collation", "UTF8_BINARY")
    return "" if name == "UTF8_BINARY" else f" COLLATE {name}"


def type_name(kind: DataType) -> str:
    """The planner's name of a type."""
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return f"{type_name(kind.elementType)}[]"
    if isinstance(kind, types.MapType):
        return f"MAP({type_name(kind.keyType)}, {type_name(kind.valueType)})"
    if isinstance(kind, types.StructType):
        fields = [f"{DUCKDB.quote_name(f.name)} {type_name(f.dataType)}" for f in kind.fields]
        return f"STRUCT({', '.join(fields)})"
    if isinstance(kind, types.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, types.CharType | types.VarcharType):
        return "VARCHAR"
    name: Any = kind.typeName()
    return _NAMES.get(name, kind.simpleString().upper())


def result_type(name: str) -> str:
    """The type that a function of ours returns, as Spark writes it: a value, or an error.

    >>> result_type("DOUBLE[][]")
    'struct<value: array<array<double>>, error: string>'
    """
    return f"struct<value: {_value_type(name)}, error: string>"


def _value_type(name: str) -> str:
    return f"array<{_value_type(name[:-2])}>" if name.endswith("[]") else _RESULTS[name]


class SparkEngine:
    """One SparkSession. Programs travel to its workers by broadcast, each once."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._programs: dict[str, Any] = {}
        self._registered: set[str] = set()

    def context(self, model: Callable[[str], Model]) -> Context:
        """What the planner may ask: the engine, and `model` for the models that references mean.

        Spark's estimate of rows is not asked for, which would analyse the query once more;
        parameters are written into the text as literals (`host.py`).
        """
        return Context(
            describe=self.bind, model=model, is_user_function=self.has_function, dialect=SPARK
        )

    def bind(self, query: str) -> tuple[Column, ...]:
        """Names and types of a query's result, without running it.

        In brackets, since Spark runs a statement that is not a query immediately: WITH .. INSERT ..

        Raises:
            ProbeError: the query does not bind.
        """
        from pyspark.errors import AnalysisException, ParseException

        try:
            with _quiet():
                return columns_of(self.spark.sql(f"SELECT * FROM (\n{query}\n\n)").schema)
        except (AnalysisException, ParseException) as error:
            raise ProbeError(_first_line(str(error))) from None

    def has_function(self, name: str) -> bool:
        """Whether a user's own function has this name."""
        return bool(self.spark.catalog.functionExists(name))

    def drop_function(self, name: str, owner: str) -> None:
        """Take a temporary function away, if there is one that `owner` has made."""
        if self._owner(name) == owner:
            self._try(f"DROP TEMPORARY FUNCTION IF EXISTS {SPARK.quote_name(name)}")

    def make_function(
        self, name: str, signature: str, body: str, owner: str, replaces: Callable[[str], bool]
    ) -> bool:
        """Create a function in Spark's SQL: `(parameters) RETURNS type`, and its body.

        False if there is one whose owner `replaces` does not accept, or Spark refuses it, perhaps
        for its name. A function of the user has the owner "".
        """
        there = self._owner(name)
        if there is not None and not replaces(there):
            return False
        return self._try(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {SPARK.quote_name(name)}{signature} "
            f"COMMENT {SPARK.quote_string(owner)} RETURN {body}"
        )

    def _owner(self, name: str) -> str | None:
        """The creator of a function, or "" if unknown; None if there is no such function."""
        quoted = SPARK.quote_name(name)
        if not self.spark.catalog.functionExists(quoted):
            return None
        try:
            told = json.loads(self.spark.catalog.getFunction(quoted).description or "")
        except ValueError:
            return ""
        return str(told.get("sqlFunction.comment", "")) if isinstance(told, dict) else ""

    def _try(self, statement: str) -> bool:
        from pyspark.errors import PySparkException

        try:
            with _quiet():
                self.spark.sql(statement)
        except PySparkException:
            return False
        return True

    def execute(self, sql: str) -> DataFrame:
        """The DataFrame of a query; a statement is carried out."""
        return self.spark.sql(sql)

    def registered(self, name: str) -> str | None:
        """The name of a function if it is registered; None: register it."""
        return name if name in self._registered else None

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Make what `spec` asks of a Program callable; returns the name to call.

        Raises:
            ConfigError, BackendError: the driver itself cannot compile it.
        """
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

        content = self._content(program)
        kind = engine_function(spec, program, on_use=True).result_type
        made = arrow_udf(_scorer(spec.name, content, versions()), result_type(kind))
        self.spark.udf.register(spec.name, made.asNondeterministic() if spec.once else made)
        self._registered.add(spec.name)
        return spec.name

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Make a function callable that scores each row with the model that it names; returns the
        name to call.

        Raises:
            ConfigError, BackendError: the driver itself cannot compile a model.
        """
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

        kind, once = "INTEGER", False
        scorers: dict[str, tuple[Any, ...]] = {}
        for name, scorer in function.scorers.items():
            spec = scorer.spec
            made = program(spec.program)
            content = self._content(made)
            kind, once = engine_function(spec, made, on_use=True).result_type, spec.once
            scorers[name] = spec.name, content, scorer.numbers, scorer.texts
        rows = scorers, dict(function.kinds), function.numbers, kind
        errors: dict[str, str | None] = dict.fromkeys(function.nulls)
        errors |= {name: error.message for name, error in function.errors.items()}
        told = errors, None if function.skips_unknown else UNKNOWN
        udf = arrow_udf(_by_name(rows, told, versions()), result_type(kind))
        self.spark.udf.register(function.name, udf.asNondeterministic() if once else udf)
        self._registered.add(function.name)
        return function.name

    def _content(self, program: Program) -> Any:
        """The broadcast of a Program."""
        content = self._programs.get(program.hash)
        if content is None:
            content = self.spark.sparkContext.broadcast(store.dumps(program))
            self._programs[program.hash] = content
        return content


def _by_name(rows: Any, errors: Any, wanted: Mapping[str, str]) -> Any:
    """The function that travels for rows that name their models, by value as `_scorer` says."""

    def scored(*columns: pa.Array) -> pa.Array:
        from sqlml.udfs.spark.named_functions import score

        return score(rows, errors, wanted, columns)

    return scored


def _scorer(name: str, program: Any, wanted: Mapping[str, str]) -> Any:
    """The function that travels: by value, with no name of sqlml that unpickling would import."""

    def scored(*columns: pa.Array) -> pa.Array:
        try:
            from sqlml.udfs.spark.worker import score
        except ModuleNotFoundError as error:
            import sys

            raise ModuleNotFoundError(
                f"{error}: the Python of this Spark worker ({sys.executable}) cannot score; "
                f"pip install 'sqlml[spark]=={wanted['sqlml']}' on all nodes, or let "
                "spark.pyspark.python name a Python that has it",
                name=error.name,
            ) from None
        return score(name, program, wanted, columns)

    scored.__name__ = name
    return scored


_AT = re.compile(r"; line \d+ pos \d+| \(line \d+, pos \d+\)")


def _first_line(message: str) -> str:
    """Spark's message without its plan, its class of errors and the place in our probe.

    >>> _first_line("\\n[PARSE_SYNTAX_ERROR] Syntax error at 'a'. SQLSTATE: 42601 (line 1, pos 7)")
    "Syntax error at 'a'."
    """
    line = _AT.sub("", message.strip().split("\n")[0]).rstrip(";")
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+", "", line).strip()


@contextmanager
def _quiet() -> Iterator[None]:
    """pyspark logs a query that does not bind as an error; a probe's is an answer."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
