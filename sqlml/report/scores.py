"""`Scores`: what the model says of the rows, scored once and kept in a temporary table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB
from sqlml.planner.evaluation.scored_rows import ScoredRows
from sqlml.planner.evaluation.task import task_of
from sqlml.planner.program.result_sql import label_type
from sqlml.report.kept_rows import scoring
from sqlml.report.tables import Tables

MOST_SCORES = 20_000_000
"""Scores that are kept of models that give several for a row: of so many rows as this allows."""

SCORES = ("score", "samples")
"""Outputs that `predict_score` gives."""

_PARTS = 1_000_003
"""Into how many parts, by a hash, rows fall of which a share is taken."""


@dataclass(frozen=True)
class Scores:
    """What the model says of the rows.

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
    if labels or task_of(model) != "clusters":
        options["label"] = labels or tuple(no_labels(model))
    if groups:
        options["by"] = tuple(map(group, range(groups)))
    known = {**columns, **no_labels(model), **{group(n): "VARCHAR" for n in range(groups)}}
    made = scoring(model, reference, known, options)
    table, count = rows
    width = max([targets, *(len(s) for s in program.labels if len(s) > 2)])
    share = even_share(count, MOST_SCORES // width) if width > 1 else ""
    begin = time.perf_counter()
    kept, scored = tables.keep(
        "scores",
        f"WITH sqlml_calls AS (SELECT {made.calls} FROM {table}{share}) "
        f"SELECT {made.columns} FROM {made.sources}",
    )
    seconds = time.perf_counter() - begin
    return Scores(made, kept, scored // targets, seconds, bool(labels))


def even_share(count: int, most: int) -> str:
    """The WHERE that takes about `most` of the `count` rows of a table; nothing if all will do."""
    if count <= most:
        return ""
    hashed = DUCKDB.operator("%", DUCKDB.call("hash", "rowid"), str(_PARTS))
    return f" WHERE {hashed} < {_PARTS * most // count}"


def call_of(model: Model, reference: str) -> str:
    """A call of what the model gives."""
    outputs = model.program.outputs
    function = "predict" if "label" in outputs else "predict_score"
    if not {"label", *SCORES} & outputs.keys():
        function = "transform"
    return f"{function}({DUCKDB.quote_string(reference)}, *)"


def targets_of(model: Model) -> int:
    """How many values a model predicts of a row; 1 of one that predicts nothing."""
    program = model.program
    width = program.output_type("label").width if "label" in program.outputs else 1
    return len(program.labels) or width


def group(n: int) -> str:
    """The column of groups in the table of rows, where no column of an answer has its name."""
    return f"sqlml_group_{n}"


def no_labels(model: Model) -> dict[str, str]:
    """The columns that stand for labels where there are none, and their types."""
    kinds: Sequence[str] = [label_type(labels) for labels in model.program.labels]
    kinds = kinds or ["DOUBLE"] * targets_of(model)
    return {f"sqlml_no_label_{n}": kind for n, kind in enumerate(kinds)}
