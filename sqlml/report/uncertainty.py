"""Make the section about the intervals or sets of a calibrated model."""

from __future__ import annotations

from typing import Any

from sqlml.catalog.small_models import Calibration
from sqlml.dialects import DUCKDB
from sqlml.planner.table_functions.evaluated_model import has_calibration_columns
from sqlml.planner.table_functions.evaluation import build_scored_rows
from sqlml.planner.table_functions.scored_rows import ScoredRows
from sqlml.report.parts import Note, Pairs, ReportPart, Section, clip, make_table
from sqlml.report.subject import Subject, build_sample_condition, make_call_node
from sqlml.statements.describe_model import describe_small_model

_COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
_MAX_ROWS = 100_000
"""The maximum number of rows whose intervals or sets are measured, once for each coverage."""


def measure_uncertainty(subject: Subject) -> Section | None:
    """Make the section with promised and measured coverages, or None without a calibration."""
    calibration = subject.calibration
    if calibration is None:
        return None
    is_interval = calibration.output == "interval"
    title, width = ("Intervals", "Mean width") if is_interval else ("Sets", "Mean size")
    name = DUCKDB.quote_string(subject.model.name)
    lead = (
        f"predict_{calibration.output}({name}, *, coverage := 0.9) covers the label with the "
        "requested probability if the rows are like those of the calibration."
    )
    pairs = [
        (name.capitalize(), clip(text)) for name, text in describe_small_model(calibration.facts)
    ]
    parts: list[ReportPart] = [Pairs(tuple(pairs))]
    coverages = [c for c in _COVERAGES if c <= calibration.facts.highest]
    if not has_calibration_columns(subject.model, calibration, subject.columns):
        parts.append(Note("The data lacks a column of the calibration, so nothing is measured."))
    elif not subject.count or not coverages:
        reason = "data has no rows" if coverages else "calibration has too few rows"
        parts.append(Note(f"The {reason}, so nothing is measured."))
    else:
        measured = [_measure(subject, calibration, coverage) for coverage in coverages]
        columns = ["Promised", width, *(["Labels covered"] if _is_labelled(subject) else [])]
        rows = [
            [f"{coverage:.0%}", *values][: len(columns)]
            for coverage, values in zip(coverages, measured, strict=True)
        ]
        note = f"For about {_MAX_ROWS:,} rows, sampled evenly." if subject.count > _MAX_ROWS else ""
        parts.append(make_table(f"{title} by promised coverage", columns, rows, note))
    return Section("uncertainty", title, lead, tuple(parts))


def _is_labelled(subject: Subject) -> bool:
    return subject.scores is not None and subject.scores.is_labelled


def _measure(subject: Subject, calibration: Calibration, coverage: float) -> list[Any]:
    """Return the mean width or size, and the share of labels that are covered as a percentage."""
    rows = f"(SELECT * FROM {subject.rows}{build_sample_condition(subject.count, _MAX_ROWS)})"
    if _is_labelled(subject):
        options = {"label": subject.labels, "coverage": coverage}
        form = make_call_node("evaluate", subject.reference, options)
        scored = ScoredRows(
            form, subject.model, DUCKDB, "", subject.columns, calibration=calibration
        )
        prefix, suffix = build_scored_rows(scored)
        (found,) = subject.query_models(f"SELECT * FROM {prefix}{rows}{suffix}")
        width = found["mean_width" if calibration.output == "interval" else "mean_size"]
        covered = found["coverage"]
        return [width, None if covered is None else f"{covered:.1%}"]
    call = f"predict_{calibration.output}({subject.quoted}, *, coverage := {coverage!r})"
    width = DUCKDB.length("r")
    if calibration.output == "interval":
        width = DUCKDB.operator("-", DUCKDB.field("r", "upper"), DUCKDB.field("r", "lower"))
    query = f"SELECT avg({width}) AS width FROM (SELECT {call} AS r FROM {rows}) AS sqlml_ranges"
    return [subject.query_models(query)[0]["width"], None]
