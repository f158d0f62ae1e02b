"""Load the subject of a report: a model, its data in temporary tables, and its predictions.

The query of the data runs once. So all numbers of a page describe the same rows, even if the query
is volatile (`USING SAMPLE`, `now()`), or if other connections write to the queried tables. No
database is changed, so reports work in a read-only database and in an open transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from sqlml.catalog.catalog_connection import strip_excerpt
from sqlml.catalog.model import Model, TrainingFacts, extend_version, parse_reference
from sqlml.catalog.small_models import Calibration
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.errors import BindError, ConfigError, ParseError, SqlmlError
from sqlml.parsing.parse import split_sql
from sqlml.parsing.places import Span
from sqlml.planner.program.result_sql import find_label_type
from sqlml.planner.rewrites.table_form import replace_table_forms
from sqlml.planner.syntax.query_templates import render_for_engine
from sqlml.planner.syntax.table_forms import FormOption, TableForm
from sqlml.planner.table_functions.evaluated_model import Task, find_column_type, find_task
from sqlml.planner.table_functions.evaluation import build_scored_rows
from sqlml.planner.table_functions.scored_rows import ScoredRows
from sqlml.report.parts import Note, clip, make_distinct, note_left_out
from sqlml.statements.connection_models import Models
from sqlml.statements.describe_model import ModelDescription, describe
from sqlml.types import fold


class QueryRunner(Protocol):
    """The methods of a Session that a report uses. The queries may call models."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection: ...

    def execute(self, query: Any, parameters: Any = None) -> Any: ...

    def sql(self, query: Any) -> Any: ...

    def plan(self, query: str, params: Any = None, analyze: bool = False) -> Any: ...


class Tables:
    """The temporary tables of one report. They also work in a read-only database."""

    def __init__(self, session: QueryRunner) -> None:
        self.session = session
        self._prefix = f"temp.main.sqlml_report_{secrets.token_hex(6)}"
        self._names: list[str] = []

    def store(self, name: str, query: str) -> tuple[str, int]:
        """Store the rows of `query`, which may call models; return the table and the row count."""
        table = f"{self._prefix}_{name}"
        self.session.execute(f"CREATE TEMP TABLE {table} AS {query}")
        self._names.append(table)
        count_query = f"SELECT {builtin('count')}(*) FROM {table}"
        ((count,),) = self.session.connection.execute(count_query).fetchall()
        return table, int(count)

    @contextmanager
    def store_briefly(self, name: str, query: str) -> Iterator[str]:
        """Store the rows of `query` in a table during the `with` block; yield the table name."""
        table, _ = self.store(name, query)
        try:
            yield table
        finally:
            self._drop(table)

    def close(self) -> None:
        """Drop the tables that still exist. A failed transaction has already dropped tables."""
        for table in self._names:
            self._drop(table)

    def _drop(self, table: str) -> None:
        with suppress(duckdb.Error):
            self.session.connection.execute(f"DROP TABLE IF EXISTS {table}")


_NOWHERE = Span(0, 0)


class StoredRows(ScoredRows):
    """Scored rows in a stored table with the columns of the CTE `sqlml_scored`."""

    call_items = "*"
    scored_items = "*"
    from_sql = "sqlml_calls"


def make_call_node(function: str, reference: str, options: Mapping[str, Any]) -> TableForm:
    """Return the call of a table function on one table, as a table form without a text."""
    form_options = {name: FormOption(name, value, _NOWHERE) for name, value in options.items()}
    return TableForm(_NOWHERE, function, reference, _NOWHERE, (_NOWHERE,), form_options)


MAX_SCORES = 20_000_000
"""The maximum number of stored scores. It limits the scored rows if a row has several scores."""

SCORES = ("score", "samples")
"""Outputs that `predict_score` returns."""

_HASH_BUCKETS = 1_000_003
"""The number of hash buckets. A sample contains the rows of the first buckets."""


@dataclass(frozen=True)
class Scores:
    """The predictions of the model for the rows of the data.

    `rows` builds the SQL of the predictions. `table` stores the predictions, with the columns of
    the CTE `sqlml_scored`. `count` is the number of scored rows, which may be an even sample.
    """

    rows: ScoredRows
    table: str
    count: int
    seconds: float
    is_labelled: bool

    def build_evaluation_sql(self, function: str, options: Mapping[str, Any]) -> str:
        """Build a query that applies a table function such as ml_evaluate to the scored rows."""
        rows = self.rows
        label = rows.form.options.get("label")
        options = options if label is None else {"label": label.value, **options}
        form = make_call_node(function, str(rows.form.model), options)
        stored = StoredRows(form, rows.model, rows.dialect, "", rows.columns_of_rows)
        prefix, suffix = build_scored_rows(stored)
        return f"SELECT * FROM {prefix}{self.table}{suffix}"


def score_rows(
    tables: Tables,
    model: Model,
    reference: str,
    rows: tuple[str, int],
    columns: Mapping[str, str],
    labels: tuple[str, ...],
    num_groups: int,
) -> Scores:
    """Score `rows`, a table and the row count, and store the predictions in `tables`.

    `columns` maps column names to SQL types. `num_groups` is the number of group columns.
    """
    placeholders = name_placeholder_labels(model)
    options: dict[str, Any] = {}
    if labels or find_task(model) != "clusters":
        options["label"] = labels or tuple(placeholders)
    group_columns = tuple(map(name_group_column, range(num_groups)))
    if num_groups:
        options["by"] = group_columns
    types = {**columns, **placeholders, **dict.fromkeys(group_columns, "VARCHAR")}
    form = make_call_node("evaluate", reference, options)
    scored_rows = ScoredRows(form, model, DUCKDB, "", types)
    try:
        calls = scored_rows.call_items
    except BindError as error:
        raise BindError(error.message) from None  # Do not show the internal SQL.
    table, count = rows
    num_targets = count_targets(model)
    width = max([num_targets, *(len(labels) for labels in model.program.labels if len(labels) > 2)])
    sample = build_sample_condition(count, MAX_SCORES // width) if width > 1 else ""
    start_time = time.perf_counter()
    scores_table, score_count = tables.store(
        "scores",
        f"WITH sqlml_calls AS (SELECT {calls} FROM {table}{sample}) "
        f"SELECT {scored_rows.scored_items} FROM {scored_rows.from_sql}",
    )
    seconds = time.perf_counter() - start_time
    return Scores(scored_rows, scores_table, score_count // num_targets, seconds, bool(labels))


def build_sample_condition(count: int, limit: int) -> str:
    """Build a WHERE clause that samples about `limit` of `count` rows, or "" for all rows."""
    if count <= limit:
        return ""
    bucket = DUCKDB.operator("%", DUCKDB.call("hash", "rowid"), str(_HASH_BUCKETS))
    return f" WHERE {bucket} < {_HASH_BUCKETS * limit // count}"


def build_call_sql(model: Model, reference: str) -> str:
    """Build a call of predict, or of predict_score or transform if the model has no labels."""
    outputs = model.program.outputs
    function = "predict" if "label" in outputs else "predict_score"
    if not {"label", *SCORES} & outputs.keys():
        function = "transform"
    return f"{function}({DUCKDB.quote_string(reference)}, *)"


def count_targets(model: Model) -> int:
    """Return the number of values that a model predicts per row, or 1 if it predicts nothing."""
    program = model.program
    width = program.output_type("label").width if "label" in program.outputs else 1
    return len(program.labels) or width


def name_group_column(n: int) -> str:
    """Return the unique name of group column `n` in internal tables."""
    return f"sqlml_group_{n}"


def name_placeholder_labels(model: Model) -> dict[str, str]:
    """Map the names of placeholder label columns to SQL types. Placeholders are always NULL."""
    sql_types: Sequence[str] = [find_label_type(labels) for labels in model.program.labels]
    sql_types = sql_types or ["DOUBLE"] * count_targets(model)
    return {f"sqlml_no_label_{n}": sql_type for n, sql_type in enumerate(sql_types)}


EngineParser = Callable[[str], Sequence[Any]]
"""The engine's parser, which returns the statements of a SQL text without running them."""


def to_from_item(data: str, parse: EngineParser) -> str:
    """Convert `data`, a query or a table name, to a FROM item, with parentheses for a query."""
    if not isinstance(data, str):
        raise ConfigError(
            "a report needs a query or the name of a table as a string; to name a frame, use "
            "con.register('rows', frame)"
        )
    statements = [statement for statement in split_sql(data, "duckdb") if statement.strip()]
    if not statements:
        raise ParseError("the data of a report is empty: name a table, or write a query")
    if len(statements) > 1:
        raise ParseError(
            f"the data of a report must be one query or one table, not {len(statements)} statements"
        )
    text = statements[0].strip()
    try:
        statement_types = [statement.type for statement in parse(replace_table_forms(text))]
    except (duckdb.Error, ValueError) as error:
        if _is_query(f"FROM {text}\n", parse):
            return text
        reason = strip_excerpt(error) if isinstance(error, duckdb.Error) else str(error)
        raise ParseError(
            f"the data of a report is neither a query nor the name of a table "
            f"({reason.splitlines()[0].removeprefix('Parser Error: ')}); quote an "
            "unusual table name with double quotes"
        ) from None
    subquery = f"(\n{text}\n)"
    is_select = statement_types == [duckdb.StatementType.SELECT]
    if is_select and _is_query(f"SELECT * FROM {replace_table_forms(subquery)}", parse):
        return subquery
    raise ParseError("the data of a report must be a query, such as SELECT * FROM customers")


def _is_query(sql: str, parse: EngineParser) -> bool:
    try:
        return [statement.type for statement in parse(sql)] == [duckdb.StatementType.SELECT]
    except (duckdb.Error, ValueError):
        return False


MAX_SAMPLE_ROWS = 1000
MAX_TARGETS = 4


@dataclass(frozen=True)
class Subject:
    """A model and its data.

    Attributes:
        reference: the model version, in the form of an argument of SQL functions.
        data: the query or table as the user wrote it. `source` is the same text as a FROM item.
        rows: the table that stores the columns for the report, with `count` rows.
        scores: the predictions, or None if the model predicts nothing.
        calibration: the calibration of the version, or None if it is not calibrated.
        sample: the table of rows whose contributions are computed, with `sample_count` rows.
    """

    tables: Tables
    model: Model
    description: ModelDescription
    training_facts: TrainingFacts | None
    reference: str
    data: str
    source: str
    columns: Mapping[str, str]
    rows: str
    count: int
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    scores: Scores | None
    sample: str
    sample_count: int
    calibration: Calibration | None

    @property
    def task(self) -> Task | None:
        return find_task(self.model)

    @property
    def targets(self) -> int:
        """The number of values that the model predicts per row."""
        return count_targets(self.model)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The label columns, or "target 0", "target 1", ... if the data has no labels."""
        if self.scores is not None and self.scores.is_labelled:
            return make_distinct([clip(name, 30) for name in self.labels])
        return tuple(f"target {t}" for t in range(self.targets))

    def note_more_targets(self) -> list[Note]:
        """Return a list with a note about targets beyond `MAX_TARGETS`, or an empty list."""
        note = note_left_out(self.targets - MAX_TARGETS, "more targets")
        return [Note(note)] if note else []

    @property
    def quoted(self) -> str:
        """The model reference as a SQL string."""
        return DUCKDB.quote_string(self.reference)

    @property
    def known_scores(self) -> Scores:
        """The scores of a model that predicts something."""
        assert self.scores is not None
        return self.scores

    @property
    def sample_sentence(self) -> str:
        """A sentence about the sample of scored rows, or "" if all rows are scored."""
        if self.scores is None or self.scores.count >= self.count:
            return ""
        return f"For {self.scores.count:,} rows, sampled evenly from {self.count:,}."

    def query_models(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query, which may call models."""
        self.tables.session.execute(query)
        return _fetch_rows(self.tables.session.connection)

    def query_tables(self, template: str) -> list[dict[str, Any]]:
        """Return the rows of an internal query that only calls functions of DuckDB."""
        return self._run_query(render_for_engine(template))

    def evaluate(self, function: str, **options: Any) -> list[dict[str, Any]]:
        """Return the result of a table function such as ml_evaluate for the scored rows."""
        return self._run_query(self.known_scores.build_evaluation_sql(function, options))

    def evaluate_largest_groups(self, count: int) -> list[dict[str, Any]]:
        """Return the metrics of the `count` largest groups.

        The value of `sqlml_groups` in each row is the number of all groups.
        """
        group_columns = tuple(map(name_group_column, range(len(self.groups))))
        keys = ", ".join(DUCKDB.quote_name(name) for name in group_columns)
        evaluation = self.known_scores.build_evaluation_sql("evaluate", {"by": group_columns})
        return self._run_query(
            f"SELECT *, {builtin('count')}(*) OVER () AS sqlml_groups "
            f"FROM ({evaluation}) AS sqlml_evaluated "
            f'WHERE "rows" > 0 ORDER BY "rows" DESC, {keys} LIMIT {count}'
        )

    def _run_query(self, query: str) -> list[dict[str, Any]]:
        return _fetch_rows(self.tables.session.connection.execute(query))


def _fetch_rows(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in connection.description or ()]
    return [dict(zip(names, row, strict=True)) for row in connection.fetchall()]


def load_subject(
    tables: Tables,
    models: Models,
    name: str,
    data: str,
    label: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    report_progress: Callable[[str], None],
) -> Subject:
    """Load a model, store the rows of `data` in `tables`, and score the rows."""
    session = tables.session
    model = models.catalog.get(parse_reference(name))
    training = models.catalog.training(model)
    calibration = models.catalog.small_models(model).get("calibration")
    calibration = calibration if isinstance(calibration, Calibration) else None
    extended = model if calibration is None else extend_version(model, calibration.small)
    database = "" if model.database is None else f"{model.database}."
    reference = f"{database}{model.name}/{model.version}"
    source = to_from_item(data, session.connection.extract_statements)
    with _relocate_errors(source, data):
        relation = session.sql(f"SELECT * FROM {source}")
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
        models.runnable(f"SELECT {build_call_sql(model, reference)} FROM {source}")
    labels = _find_labels(training, types, label)
    groups = tuple(_find_column(column, types) for column in _to_tuple(by))
    report_progress("reading the data")
    with _relocate_errors(source, data):
        rows, count = tables.store(
            "rows", _build_rows_query(extended, types, labels, groups, source)
        )
    scores = None
    if find_task(model) is not None:
        report_progress(f"scoring {count:,} rows")
        scores = score_rows(tables, model, reference, (rows, count), types, labels, len(groups))
    sample_clause = f"ORDER BY {builtin('hash')}(rowid) LIMIT {MAX_SAMPLE_ROWS}"
    sample, sample_count = tables.store("sample", f"SELECT * FROM {rows} {sample_clause}")
    return Subject(
        tables=tables,
        model=model,
        description=describe(models, parse_reference(reference)),
        training_facts=training,
        reference=reference,
        data=data.strip(),
        source=source,
        columns=types,
        rows=rows,
        count=count,
        labels=labels,
        groups=groups,
        scores=scores,
        sample=sample,
        sample_count=sample_count,
        calibration=calibration,
    )


@contextmanager
def _relocate_errors(source: str, data: str) -> Iterator[None]:
    """Make errors in an internal query around `source` point into `data`, the user's SQL."""
    try:
        yield
    except SqlmlError as error:
        sql = error.sql or ""
        source_start = sql.find(source)
        if source_start < 0 or error.offset is None:
            raise
        data_start = sql[source_start:].find(data.strip())
        offset = error.offset - source_start - data_start
        if data_start < 0 or not 0 <= offset <= len(data.strip()):
            raise type(error)(error.message) from None
        raise error.at(data.strip(), offset) from None


def _to_tuple(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _find_column(name: str, columns: Mapping[str, str]) -> str:
    find_column_type(name, columns)
    return name if name in columns else next(c for c in columns if fold(c) == fold(name))


def _find_labels(
    facts: TrainingFacts | None, columns: Mapping[str, str], label: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Return the columns in `label`, or if `label` is None, the column of the training label."""
    if label is not None:
        return tuple(_find_column(name, columns) for name in _to_tuple(label))
    training_label = None if facts is None else facts.options.get("label")
    if not isinstance(training_label, str):
        return ()
    return tuple(name for name in columns if fold(name) == fold(training_label))[:1]


def _build_rows_query(
    model: Model,
    columns: Mapping[str, str],
    labels: Sequence[str],
    groups: Sequence[str],
    source: str,
) -> str:
    """Build a query that selects inputs, labels, groups and NULL placeholder labels.

    If the data lacks a column that the model uses, the query selects all columns.
    """
    quote = DUCKDB.quote_name
    fields = ["*"]
    if {fold(name) for name in model.used_columns} <= {fold(name) for name in columns}:
        used_names = {fold(name) for name in (*(c.name for c in model.columns), *labels)}
        fields = [quote(name) for name in columns if fold(name) in used_names]
    fields += [f"{quote(name)} AS {quote(name_group_column(n))}" for n, name in enumerate(groups)]
    for name, sql_type in name_placeholder_labels(model).items():
        fields.append(f"CAST(NULL AS {sql_type}) AS {quote(name)}")
    return f"SELECT {', '.join(fields)} FROM {source}"
