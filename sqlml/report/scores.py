"""Predictions for the rows of a report, scored once and kept in a temporary table."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import duckdb

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.planner.program.result_sql import label_type
from sqlml.planner.syntax.table_forms import FormOption, TableForm
from sqlml.planner.table_functions.evaluated_model import find_task
from sqlml.planner.table_functions.evaluation import write_scored_rows
from sqlml.planner.table_functions.scored_rows import ScoredRows

# `Tables`: the temporary tables of one report.
#
# They touch no database, so one that is open read-only has reports, too, and so has an open
# transaction of the user's.


class Asking(Protocol):
    """The methods of a session that a report uses."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return the engine's own connection."""
        ...

    def execute(self, query: Any, parameters: Any = None) -> Any:
        """Run a statement, which may call models."""
        ...

    def sql(self, query: Any) -> Any:
        """Return a query, which may call models, as a lazy relation."""
        ...

    def plan(self, query: str, params: Any = None, analyze: bool = False) -> Any:
        """Return the Plan of a query."""
        ...


class Tables:
    """The temporary tables of one report. They also work in a read-only database."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self._prefix = f"temp.main.sqlml_report_{secrets.token_hex(6)}"
        self._made: list[str] = []

    def keep(self, what: str, query: str) -> tuple[str, int]:
        """Store the rows of a query, which may call models; return the table and its row count."""
        table = f"{self._prefix}_{what}"
        self.asking.execute(f"CREATE TEMP TABLE {table} AS {query}")
        self._made.append(table)
        ask = f"SELECT {builtin('count')}(*) FROM {table}"
        result = self.asking.connection.execute(ask).fetchall()
        return table, int(result[0][0])

    @contextmanager
    def kept(self, what: str, query: str) -> Iterator[str]:
        """Store the rows of a query while the block runs; yield the table."""
        table, _ = self.keep(what, query)
        try:
            yield table
        finally:
            self._drop(table)

    def drop(self) -> None:
        """Drop all tables; a failed transaction has dropped them already."""
        for table in self._made:
            self._drop(table)

    def _drop(self, table: str) -> None:
        with suppress(duckdb.Error):
            self.asking.connection.execute(f"DROP TABLE IF EXISTS {table}")


_NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class KeptRows(ScoredRows):
    """Rows that a model has scored into `sqlml_scored`, so that all measures come from one run."""

    @property
    def calls(self) -> str:
        return "*"

    @property
    def columns(self) -> str:
        return "*"

    @property
    def sources(self) -> str:
        return "sqlml_calls"


def form(function: str, reference: str, options: Mapping[str, Any]) -> TableForm:
    """Write a call such as `ml_evaluate(MODEL m, ..., label := 'y')` in a parsed form."""
    form_options = {name: FormOption(name, value, _NOWHERE) for name, value in options.items()}
    return TableForm(
        _NOWHERE, function, reference, _NOWHERE, (_NOWHERE,), MappingProxyType(form_options)
    )


def scoring(
    model: Model, reference: str, columns: Mapping[str, str], options: Mapping[str, Any]
) -> ScoredRows:
    """Plan the SQL that scores rows: its `calls`, `columns` and `sources`.

    Args:
        columns: name -> type of the columns of the rows.
        options: `label`, a tuple of columns, and `by`, likewise.

    Raises:
        BindError: a column does not hold what the model predicts.
    """
    scored_rows = ScoredRows(form("evaluate", reference, options), model, DUCKDB, "", columns)
    try:
        assert scored_rows.calls
    except BindError as error:
        raise BindError(error.message) from None  # there is no statement to show the place in
    return scored_rows


def evaluation(rows: ScoredRows, table: str, function: str, options: Mapping[str, Any]) -> str:
    """The query of a form such as ml_evaluate over rows that `table` keeps.

    Args:
        rows: what scored them. options: the form's, beside the label.

    Raises:
        BindError: the form does not fit the model.
    """
    label = rows.form.options.get("label")
    label_option = {} if label is None else {"label": label.value}
    evaluation = form(function, str(rows.form.model), {**label_option, **options})
    before, after = write_scored_rows(
        KeptRows(evaluation, rows.model, rows.dialect, "", rows.columns_of_rows)
    )
    return f"SELECT * FROM {before}{table}{after}"


MOST_SCORES = 20_000_000
"""Maximum number of stored scores of models with several per row; it limits the number of rows."""

SCORES = ("score", "samples")
"""Outputs that `predict_score` returns."""

_PARTS = 1_000_003
"""Number of hash parts of the rows, of which a sample takes a share."""


@dataclass(frozen=True)
class Scores:
    """The predictions of the model for the rows.

    Attributes:
        rows: how they were scored, and what they are compared with.
        table: that keeps them, with the columns of `sqlml_scored`.
        count: rows that were scored: all of them, or an even share.
        seconds: that it took.
        is_labelled: whether they have labels.
    """

    rows: ScoredRows
    table: str
    count: int
    seconds: float
    is_labelled: bool


def scores_of(
    tables: Tables,
    model: Model,
    reference: str,
    rows: tuple[str, int],
    columns: Mapping[str, str],
    labels: tuple[str, ...],
    groups: int,
) -> Scores:
    """Score the rows of a table.

    Args:
        rows: the table, and how many rows it has.
        columns: name -> type of its columns. groups: how many of them tell groups apart.

    Raises:
        BindError: the labels are not what the model predicts.
        duckdb.Error: a label is not, or a row cannot be scored.
    """
    program, targets = model.program, targets_of(model)
    options: dict[str, Any] = {}
    if labels or find_task(model) != "clusters":
        options["label"] = labels or tuple(no_labels(model))
    if groups:
        options["by"] = tuple(map(group, range(groups)))
    known = {**columns, **no_labels(model), **{group(n): "VARCHAR" for n in range(groups)}}
    scored_rows = scoring(model, reference, known, options)
    table, count = rows
    width = max([targets, *(len(s) for s in program.labels if len(s) > 2)])
    share = even_share(count, MOST_SCORES // width) if width > 1 else ""
    begin = time.perf_counter()
    stored_table, scored = tables.keep(
        "scores",
        f"WITH sqlml_calls AS (SELECT {scored_rows.calls} FROM {table}{share}) "
        f"SELECT {scored_rows.columns} FROM {scored_rows.sources}",
    )
    seconds = time.perf_counter() - begin
    return Scores(scored_rows, stored_table, scored // targets, seconds, bool(labels))


def even_share(count: int, most: int) -> str:
    """Return a WHERE that samples about `most` of `count` rows; empty if all rows will do."""
    if count <= most:
        return ""
    hashed = DUCKDB.operator("%", DUCKDB.call("hash", "rowid"), str(_PARTS))
    return f" WHERE {hashed} < {_PARTS * most // count}"


def call_of(model: Model, reference: str) -> str:
    """Write a call of the model's output."""
    outputs = model.program.outputs
    function = "predict" if "label" in outputs else "predict_score"
    if not {"label", *SCORES} & outputs.keys():
        function = "transform"
    return f"{function}({DUCKDB.quote_string(reference)}, *)"


def targets_of(model: Model) -> int:
    """Count the values that a model predicts per row; 1 if it predicts nothing."""
    program = model.program
    width = program.output_type("label").width if "label" in program.outputs else 1
    return len(program.labels) or width


def group(n: int) -> str:
    """Return a name for the group column that no result column has."""
    return f"sqlml_group_{n}"


def no_labels(model: Model) -> dict[str, str]:
    """Return placeholder label columns with their types for data without labels."""
    kinds: Sequence[str] = [label_type(labels) for labels in model.program.labels]
    kinds = kinds or ["DOUBLE"] * targets_of(model)
    return {f"sqlml_no_label_{n}": kind for n, kind in enumerate(kinds)}
