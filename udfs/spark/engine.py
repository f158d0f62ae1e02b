"""Binding, registration and execution on one SparkSession."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB, SPARK
from sqlml.errors import BackendError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import Column, ProbeError
from sqlml.planner.program.function_spec import UNKNOWN_MODEL, FunctionSpec, NamedFunction
from sqlml.udfs.make_function import make_engine_function
from sqlml.udfs.spark.worker import read_library_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def require_live(spark: SparkSession) -> None:
    """Raise BackendError if the session has been stopped."""
    if getattr(spark.sparkContext, "_jsc", None) is None:
        raise BackendError(
            "the SparkSession has been stopped; create another one and attach it: the models are "
            "still in their directory"
        )


_PLANNER_TYPES = {
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
"""Maps Spark's type names (`DataType.typeName`) to the planner's type names (those of DuckDB)."""

_SPARK_TYPES = {"INTEGER": "int", "DOUBLE": "double"}


def read_columns(schema: StructType) -> tuple[Column, ...]:
    """Return the columns in a DataFrame's schema; string types include the collation."""
    columns = []
    for field in schema.fields:
        collation = getattr(field.dataType, "collation", "UTF8_BINARY")
        collation_sql = "" if collation == "UTF8_BINARY" else f" COLLATE {collation}"
        columns.append(Column(field.name, render_type(field.dataType) + collation_sql))
    return tuple(columns)


def render_type(data_type: DataType) -> str:
    from pyspark.sql import types

    if isinstance(data_type, types.ArrayType):
        return f"{render_type(data_type.elementType)}[]"
    if isinstance(data_type, types.MapType):
        return f"MAP({render_type(data_type.keyType)}, {render_type(data_type.valueType)})"
    if isinstance(data_type, types.StructType):
        fields = [(DUCKDB.quote_name(f.name), render_type(f.dataType)) for f in data_type.fields]
        return f"STRUCT({', '.join(map(' '.join, fields))})"
    if isinstance(data_type, types.DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    if isinstance(data_type, types.CharType | types.VarcharType):
        return "VARCHAR"
    name: Any = data_type.typeName()
    return _PLANNER_TYPES.get(name, data_type.simpleString().upper())


def render_result_type(sql_type: str) -> str:
    """Return the Spark type of a function's result: a struct with a value and an error.

    >>> render_result_type("DOUBLE[][]")
    'struct<value: array<array<double>>, error: string>'
    """
    return f"struct<value: {_render_value_type(sql_type)}, error: string>"


def _render_value_type(sql_type: str) -> str:
    is_list = sql_type.endswith("[]")
    return f"array<{_render_value_type(sql_type[:-2])}>" if is_list else _SPARK_TYPES[sql_type]


class SparkEngine:
    """Implements `Engine` with a SparkSession; each Program is broadcast to the workers once."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._programs: dict[str, Any] = {}
        self._registered: set[str] = set()

    def make_context(self, model: Callable[[str], Model]) -> Context:
        """Return the planner's view of the engine; `model` resolves model references.

        Row estimates of Spark are unused, because Spark would analyze the query again. Parameters
        are already literals in the query (`host.py`).
        """
        return Context(
            describe=self.bind, model=model, is_user_function=self.has_function, dialect=SPARK
        )

    def bind(self, query: str) -> tuple[Column, ...]:
        """Return the names and types of a query's columns without running the query.

        The query is put in parentheses, because Spark immediately runs other statements, such as
        WITH ... INSERT. Raises ProbeError if Spark rejects the query.
        """
        from pyspark.errors import AnalysisException, ParseException

        try:
            with _silence_log():
                return read_columns(self.spark.sql(f"SELECT * FROM (\n{query}\n\n)").schema)
        except (AnalysisException, ParseException) as error:
            raise ProbeError(_get_reason(str(error))) from None

    def has_function(self, name: str) -> bool:
        return bool(self.spark.catalog.functionExists(name))

    def drop_function(self, name: str, owner: str) -> None:
        if self._find_owner(name) == owner:
            self._try_statement(f"DROP TEMPORARY FUNCTION IF EXISTS {SPARK.quote_name(name)}")

    def make_function(
        self, name: str, signature: str, body: str, owner: str, replaces: Callable[[str], bool]
    ) -> bool:
        """Create a temporary SQL function; `signature` is `(parameters) RETURNS type`.

        Return False if `replaces` rejects the owner of an existing function ("" for the user), or
        if Spark rejects the statement, for example because of the name.
        """
        existing_owner = self._find_owner(name)
        if existing_owner is not None and not replaces(existing_owner):
            return False
        return self._try_statement(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {SPARK.quote_name(name)}{signature} "
            f"COMMENT {SPARK.quote_string(owner)} RETURN {body}"
        )

    def _find_owner(self, name: str) -> str | None:
        """Return the owner in a function's comment ("" for the user), or None if missing."""
        quoted_name = SPARK.quote_name(name)
        if not self.spark.catalog.functionExists(quoted_name):
            return None
        with suppress(ValueError):
            description = json.loads(self.spark.catalog.getFunction(quoted_name).description or "")
            if isinstance(description, dict):
                return str(description.get("sqlFunction.comment", ""))
        return ""

    def _try_statement(self, statement: str) -> bool:
        from pyspark.errors import PySparkException

        try:
            with _silence_log():
                self.spark.sql(statement)
        except PySparkException:
            return False
        return True

    def execute(self, sql: str) -> DataFrame:
        return self.spark.sql(sql)

    def find_registered(self, name: str) -> str | None:
        return name if name in self._registered else None

    def register(self, spec: FunctionSpec, program: Program) -> str:
        result_type = make_engine_function(spec, program, on_use=True).result_type
        scorer = _make_scorer(spec.name, self._broadcast(program), read_library_versions())
        return self._register_udf(spec.name, scorer, result_type, spec.once)

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        result_type, once = "INTEGER", False
        scorers: dict[str, tuple[Any, ...]] = {}
        for name, scorer in function.scorers.items():
            spec, model_program = scorer.spec, program(scorer.spec.program_hash)
            once = spec.once
            result_type = make_engine_function(spec, model_program, on_use=True).result_type
            positions = scorer.number_positions, scorer.string_positions
            scorers[name] = (spec.name, self._broadcast(model_program), *positions)
        scoring = scorers, dict(function.groups), function.num_numbers, result_type
        messages: dict[str, str | None] = dict.fromkeys(function.nulls)
        messages |= {name: error.message for name, error in function.errors.items()}
        errors = messages, None if function.skips_unknown else UNKNOWN_MODEL
        score_batch = _make_scorer_by_name(scoring, errors, read_library_versions())
        return self._register_udf(function.name, score_batch, result_type, once)

    def _register_udf(self, name: str, scorer: Any, sql_type: str, once: bool) -> str:
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

        udf = arrow_udf(scorer, render_result_type(sql_type))
        self.spark.udf.register(name, udf.asNondeterministic() if once else udf)
        self._registered.add(name)
        return name

    def _broadcast(self, program: Program) -> Any:
        if program.hash not in self._programs:
            self._programs[program.hash] = self.spark.sparkContext.broadcast(store.dumps(program))
        return self._programs[program.hash]


def _make_scorer_by_name(scoring: Any, errors: Any, driver_versions: Mapping[str, str]) -> Any:
    """Make the function that workers run for rows with different models (see `_make_scorer`)."""

    def score_batch(*columns: pa.Array) -> pa.Array:
        from sqlml.udfs.spark.worker import score_named_rows

        return score_named_rows(scoring, errors, driver_versions, columns)

    return score_batch


def _make_scorer(name: str, program: Any, driver_versions: Mapping[str, str]) -> Any:
    """Make the function that workers run; Spark pickles this function by value."""

    def score_batch(*columns: pa.Array) -> pa.Array:
        try:
            from sqlml.udfs.spark.worker import score
        except ModuleNotFoundError as error:
            import sys

            raise ModuleNotFoundError(
                f"{error}: the Python of this Spark worker ({sys.executable}) cannot score; "
                f"pip install 'sqlml[spark]=={driver_versions['sqlml']}' on all nodes, or let "
                "spark.pyspark.python name a Python that has it",
                name=error.name,
            ) from None
        return score(name, program, driver_versions, columns)

    score_batch.__name__ = name
    return score_batch


_POSITION = re.compile(r"; line \d+ pos \d+| \(line \d+, pos \d+\)")


def _get_reason(message: str) -> str:
    """Remove the plan, the error class, and the position in the probe from Spark's message.

    >>> _get_reason("\\n[PARSE_SYNTAX_ERROR] Syntax error at 'a'. SQLSTATE: 42601 (line 1, pos 7)")
    "Syntax error at 'a'."
    """
    line = _POSITION.sub("", message.strip().split("\n")[0]).rstrip(";")
    return re.sub(r"^\[[A-Z_.]+\] | SQLSTATE: \w+", "", line).strip()


@contextmanager
def _silence_log() -> Iterator[None]:
    """Silence pyspark's log of failed queries, because probes may fail."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled
