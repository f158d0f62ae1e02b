"""The subject of a report: a model, and its data in temporary tables.

The query of the data runs once, so all numbers of a page are about the same rows, even if the query
is volatile (`USING SAMPLE`, `now()`) or others write to its tables meanwhile. The model scores the
rows once. The tables are dropped before the report is returned. They touch no database, so reports
work in a read-only database and in an open transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from sqlml.catalog.connection import strip_excerpt
from sqlml.catalog.model import Model, TrainingFacts, parse_reference
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ConfigError, ParseError, SqlmlError
from sqlml.parsing.parse import split_sql
from sqlml.planner.rewrites.table_form import replace_table_forms
from sqlml.planner.syntax.query_templates import spell_for_engine
from sqlml.planner.table_functions.evaluated_model import Task, find_column_type, find_task
from sqlml.report.parts import clipped, distinct
from sqlml.report.scores import (
    Asking,
    Scores,
    Tables,
    call_of,
    evaluation,
    group,
    no_labels,
    scores_of,
    targets_of,
)
from sqlml.statements.describe_model import ModelDescription, describe
from sqlml.statements.models import Models
from sqlml.types import fold


def rows_of(data: str, read: Callable[[str], Sequence[Any]]) -> str:
    """Return the data for a FROM: a query in brackets, or a table name as written.

    Args:
        read: the engine's parser, text to statements. Nothing is run.

    Raises:
        ParseError: it is neither.
    """
    if not isinstance(data, str):
        raise ConfigError(
            "a report takes the text of a query or the name of a table; a frame has a name after "
            "con.register('rows', frame)"
        )
    pieces = [piece for piece in split_sql(data, "duckdb") if piece.strip()]
    if not pieces:
        raise ParseError("the data of a report is empty: name a table, or write a query")
    if len(pieces) > 1:
        raise ParseError(
            f"the data of a report is one query or one table, and this is {len(pieces)} statements"
        )
    text = pieces[0].strip()
    try:
        kinds = [statement.type for statement in read(replace_table_forms(text))]
    except (duckdb.Error, ValueError) as error:
        if _is_table(text, read):
            return text
        raise ParseError(
            f"the data of a report is neither a query nor the name of a table "
            f"({_first_line(error)}); an unusual name of a table stands in double quotes"
        ) from None
    rows = f"(\n{text}\n)"
    if kinds == [duckdb.StatementType.SELECT] and _parses(
        f"SELECT * FROM {replace_table_forms(rows)}", read
    ):
        return rows
    raise ParseError("the data of a report is a query, such as SELECT * FROM customers")


def _is_table(text: str, read: Callable[[str], Sequence[Any]]) -> bool:
    return _parses(f"FROM {text}\n", read)


def _parses(sql: str, read: Callable[[str], Sequence[Any]]) -> bool:
    try:
        return [s.type for s in read(sql)] == [duckdb.StatementType.SELECT]
    except (duckdb.Error, ValueError):
        return False


def _first_line(error: Exception) -> str:
    reason = strip_excerpt(error) if isinstance(error, duckdb.Error) else str(error)
    return reason.splitlines()[0].removeprefix("Parser Error: ")


SAMPLE = 1000
"""Maximum number of rows with contributions."""

MOST_TARGETS = 4
"""Maximum number of targets with plots."""

Told = Callable[[str], None]
"""Called with a text about the current step."""


@dataclass(frozen=True)
class Subject:
    """A model and its data.

    Attributes:
        reference: the version that is reported, as a call names it.
        data: the rows as the user named them, and `source` as a FROM takes them.
        rows: the table that keeps what the report reads of them.
        count: how many there are.
        labels, groups: columns with the labels, and those that tell groups apart.
        scores: None where the model predicts nothing.
        sample: the table of rows whose contributions are computed; sample_count: how many.
    """

    asking: Asking
    models: Models
    model: Model
    description: ModelDescription
    facts: TrainingFacts | None
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
    tables: Tables

    @property
    def task(self) -> Task | None:
        """Return the kind of the model's predictions."""
        return find_task(self.model)

    @property
    def targets(self) -> int:
        """Count the values that the model predicts per row."""
        return targets_of(self.model)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Return the names of the targets: those of the labels, or numbers from 0."""
        if self.scores is not None and self.scores.is_labelled:
            return distinct([clipped(name, 30) for name in self.labels])
        return tuple(f"target {t}" for t in range(self.targets))

    @property
    def quoted(self) -> str:
        """Return the model reference as a SQL string."""
        return DUCKDB.quote_string(self.reference)

    @property
    def share(self) -> str:
        """Return a sentence about the number of scored rows if it is a sample."""
        if self.scores is None or self.scores.count >= self.count:
            return ""
        return f"Of an even sample of {self.scores.count:,} of the {self.count:,} rows."

    def of_models(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query that may call models."""
        self.asking.execute(query)
        return _rows(self.asking.connection)

    def of_tables(self, template: str) -> list[dict[str, Any]]:
        """Return the rows of an internal query in plain SQL (`spelled`)."""
        return _rows(self.asking.connection.execute(spell_for_engine(template)))

    def evaluated(self, function: str, **options: Any) -> list[dict[str, Any]]:
        """Return the result of a form such as ml_evaluate over the scored rows."""
        return _rows(self.asking.connection.execute(self._evaluation(function, options)))

    def largest_groups(self, most: int) -> list[dict[str, Any]]:
        """Return the metrics of the largest groups; `sqlml_groups` counts all groups."""
        by = tuple(map(group, range(len(self.groups))))
        keys = ", ".join(DUCKDB.quote_name(name) for name in by)
        return _rows(
            self.asking.connection.execute(
                f"SELECT *, {builtin('count')}(*) OVER () AS sqlml_groups "
                f"FROM ({self._evaluation('evaluate', {'by': by})}) AS sqlml_evaluated "
                f'WHERE "rows" > 0 ORDER BY "rows" DESC, {keys} LIMIT {most}'
            )
        )

    def _evaluation(self, function: str, options: Mapping[str, Any]) -> str:
        assert self.scores is not None
        return evaluation(self.scores.rows, self.scores.table, function, options)


def _rows(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in connection.description or ()]
    return [dict(zip(names, row, strict=True)) for row in connection.fetchall()]


@contextmanager
def subject(
    asking: Asking,
    models: Models,
    name: str,
    data: str,
    label: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    told: Told,
) -> Iterator[Subject]:
    """The Subject; its tables are there while the block runs.

    Raises:
        UnknownModelError: no such model or version.
        ParseError: the data is neither a query nor a table.
        BindError: a column that the model, `label` or `by` names is not there, or has another type.
        duckdb.Error: the query of the data fails.
    """
    tables = Tables(asking)
    try:
        yield _prepared(tables, models, name, data, label, by, told)
    finally:
        tables.drop()


def _prepared(
    tables: Tables,
    models: Models,
    name: str,
    data: str,
    label: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    told: Told,
) -> Subject:
    asking, model = tables.asking, models.catalog.get(parse_reference(name))
    facts = models.catalog.training(model)
    database = "" if model.database is None else f"{model.database}."
    reference = f"{database}{model.name}/{model.version}"
    source = rows_of(data, asking.connection.extract_statements)
    with _in_the_users_words(source, data):
        asked = asking.sql(f"SELECT * FROM {source}")
        types = dict(zip(asked.columns, map(str, asked.types), strict=True))
        models.runnable(f"SELECT {call_of(model, reference)} FROM {source}")
    labels = _labels(model, facts, types, label)
    groups = tuple(_column(column, types) for column in _several(by))
    told("reading the data")
    with _in_the_users_words(source, data):
        rows, count = tables.keep("rows", _kept(model, types, labels, groups, source))
    scores = None
    if find_task(model) is not None:
        told(f"scoring {count:,} rows")
        scores = scores_of(tables, model, reference, (rows, count), types, labels, len(groups))
    at_random = f"ORDER BY {builtin('hash')}(rowid) LIMIT {SAMPLE}"
    sample, sample_count = tables.keep("sample", f"SELECT * FROM {rows} {at_random}")
    return Subject(
        asking=asking,
        models=models,
        model=model,
        description=describe(models, parse_reference(reference)),
        facts=facts,
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
        tables=tables,
    )


@contextmanager
def _in_the_users_words(source: str, data: str) -> Iterator[None]:
    """Make errors in the internal query about the data refer to the user's text."""
    try:
        yield
    except SqlmlError as error:
        begin = -1 if not error.sql or error.offset is None else error.sql.find(source)
        if begin < 0 or error.offset is None:
            raise
        inner = error.sql[begin:].find(data.strip()) if error.sql else -1
        place = error.offset - begin - inner
        if inner < 0 or not 0 <= place <= len(data.strip()):
            raise type(error)(error.message) from None
        raise error.at(data.strip(), place) from None


def _several(names: str | Sequence[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(names)


def _column(name: str, columns: Mapping[str, str]) -> str:
    """A column of the data by its name in any case.

    Raises:
        BindError: there is none.
    """
    find_column_type(name, columns)
    return name if name in columns else next(c for c in columns if fold(c) == fold(name))


def _labels(
    model: Model,
    facts: TrainingFacts | None,
    columns: Mapping[str, str],
    label: str | Sequence[str] | None,
) -> tuple[str, ...]:
    """Return the label columns: those named, or else the one that sqlml trained on, if present."""
    if label is not None:
        return tuple(_column(name, columns) for name in _several(label))
    trained = None if facts is None else facts.options.get("label")
    if not isinstance(trained, str):
        return ()
    return tuple(c for c in columns if fold(c) == fold(trained))[:1]


def _kept(
    model: Model,
    columns: Mapping[str, str],
    labels: Sequence[str],
    groups: Sequence[str],
    source: str,
) -> str:
    """Return the query of the columns of the data that the report reads."""
    quote = DUCKDB.quote_name
    read_columns = {fold(column.name) for column in model.columns}
    there = {fold(name) for name in columns}
    items = ["*"]
    if all(fold(name) in there for name in model.used_columns):
        read = read_columns | {fold(name) for name in labels}
        items = [quote(name) for name in columns if fold(name) in read]
    items += [f"{quote(name)} AS {quote(group(n))}" for n, name in enumerate(groups)]
    items += [f"CAST(NULL AS {kind}) AS {quote(n)}" for n, kind in no_labels(model).items()]
    return f"SELECT {', '.join(items)} FROM {source}"
