"""Sections about the model, the inputs, and the rows of the data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.report.parts import (
    Note,
    Pairs,
    ReportPart,
    Section,
    clip,
    format_value,
    join_first,
    make_code,
    make_table,
    note_left_out,
)
from sqlml.report.subject import Subject
from sqlml.statements.describe_model import NOT_USED
from sqlml.types import fold

_MAX_COLUMNS, _MAX_VERSIONS = 40, 20
_MINUTE = len("2026-11-27 12:00")
_MAX_LENGTH = 400

_PROPERTIES = {
    "source": "Class",
    "library": "Library",
    "estimator": "Estimator",
    "model_type": "Trained as",
    "trained_on": "Trained on",
    "split": "Rows held out",
    "outputs": "Outputs",
    "targets": "Targets",
    "classes": "Classes",
    "trees": "Trees",
    "operators": "Operators",
    "aliases": "Aliases",
    "tags": "Tags",
    "options": "Options",
    "verification": "Verified",
    "made in SQL": "Made in SQL",
    "path": "File",
    "sha256": "SHA-256 of the file",
    "stored_bytes": "Bytes stored",
    "created_at": "Created",
}
"""Maps properties of DESCRIBE MODEL to titles in the report."""

_STATISTICS = {
    "min": "Min",
    "max": "Max",
    "mean": "Mean",
    "stddev": "Std. deviation",
    "categories_count": "Categories",
}
"""Maps columns of ml_feature_info to titles in the report."""


def describe_model(subject: Subject) -> Section:
    """Make the section about the properties, the columns and the versions of the model."""
    description = subject.description
    pairs = [
        (_PROPERTIES[name], _format_property(name, text))
        for name, text in description.properties
        if name in _PROPERTIES and text and (name, text) != ("targets", "1")
    ]
    parts: list[ReportPart] = [Pairs(tuple(pairs)), _list_columns(subject), _list_versions(subject)]
    if subject.training_facts is not None:
        parts.append(make_code("The query that it was trained on", subject.training_facts.query))
    unused_count = sum(usage == NOT_USED for usage in description.inputs.values())
    lead = f"It reads {_format_count(len(description.inputs) - unused_count, 'column')}"
    if unused_count:
        verb = "is" if unused_count == 1 else "are"
        unused_columns = _format_count(unused_count, "other training column")
        lead += f"; {unused_columns} made no difference and {verb} not read"
    return Section("model", "The model", f"{lead}.", tuple(parts))


def _format_property(name: str, text: str) -> str:
    if name == "stored_bytes":
        return f"{int(text):,}"
    return clip(text[:_MINUTE] if name == "created_at" else text, _MAX_LENGTH)


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _list_columns(subject: Subject) -> ReportPart:
    rows = subject.query_models(f"FROM ml_feature_info(MODEL {subject.quoted})")
    info_by_column = {fold(str(next(iter(row.values())))): row for row in rows}
    inputs = subject.description.inputs
    shown_names = sorted(inputs, key=lambda name: inputs[name] == NOT_USED)[:_MAX_COLUMNS]
    info = {name: info_by_column.get(fold(name), {}) for name in shown_names}
    present_keys = {key for row in info.values() for key, value in row.items() if value is not None}
    titles = {key: title for key, title in _STATISTICS.items() if key in present_keys}
    cells = [[name, inputs[name], *(row.get(key) for key in titles)] for name, row in info.items()]
    notes = [note_left_out(len(inputs) - len(shown_names), "more columns")]
    if titles:
        notes.append("The numbers are those of the training data, where they are known.")
    columns = ("Column", "Type", *titles.values())
    note = " ".join(notes).strip()
    return make_table("Columns that the model reads", columns, cells, note, none="")


def _list_versions(subject: Subject) -> ReportPart:
    model = subject.model
    names = [name for name in (model.database, model.name) if name is not None]
    model_sql = ".".join(map(DUCKDB.quote_name, names))
    versions = subject.query_models(f"SHOW VERSIONS IN MODEL {model_sql}")[::-1]
    rows = [
        [
            f"{row['version']}{' (this one)' if row['version'] == model.version else ''}",
            "yes" if row["is_default"] else "",
            ", ".join(row["aliases"] or ()),
            row["source"].rpartition(".")[2],
            row["library"],
            row["comment"] or "",
            str(row["created_at"])[:_MINUTE],
        ]
        for row in versions[:_MAX_VERSIONS]
    ]
    columns = ("Version", "Default", "Aliases", "Class", "Library", "Comment", "Created")
    note = note_left_out(len(versions) - len(rows), "older versions")
    return make_table("Versions", columns, rows, note)


def describe_data(subject: Subject) -> Section:
    used_names = {fold(name) for name in subject.labels}
    used_names |= {fold(column.name) for column in subject.model.columns}
    columns = [name for name in subject.columns if fold(name) in used_names]
    shown_columns = columns[:_MAX_COLUMNS]
    parts: list[ReportPart] = []
    if not subject.count:
        parts.append(Note("The data has no rows to measure."))
    elif shown_columns:
        names = ", ".join(DUCKDB.quote_name(name) for name in shown_columns)
        statistics = subject.query_models(
            f"FROM ml_describe_data((SELECT {names} FROM {subject.rows}), "
            "num_quantiles := 4, top_k := 3)"
        )
        note = note_left_out(len(columns) - len(shown_columns), "more columns")
        note = f"{note} Distinct counts and medians are approximate.".strip()
        titles = ("Column", "Type", "NULL", "Distinct", "Min", "Median", "Max", "Most frequent")
        cells = [_describe_column(row) for row in statistics]
        parts.append(make_table("Columns of the data", titles, cells, note, none=""))
    parts.append(make_code("The query or table", subject.data))
    columns_text = _format_count(len(subject.columns), "column")
    lead = f"{_format_count(subject.count, 'row')} of {columns_text}."
    return Section("data", "The data", lead, tuple(parts))


def _describe_column(row: Mapping[str, Any]) -> list[Any]:
    null_share = row["num_nulls"] / row["num_rows"] if row["num_rows"] else 0
    entries = row["top_values"] or ()
    top_values = [f"{format_value(x['value'], 20)} ({x['count']:,})" for x in entries]
    is_numeric = row["mean"] is not None
    format_extreme = _format_stored_number if is_numeric else partial(format_value, length=24)
    return [
        row["name"],
        row["type"],
        f"{null_share:.1%}" if null_share else "0%",
        row["approx_unique"],
        format_extreme(row["min"]),
        row["median"],
        format_extreme(row["max"]),
        join_first(top_values, 3),
    ]


def _format_stored_number(text: Any) -> str | None:
    try:
        return format_value(float(text))
    except (TypeError, ValueError):
        return format_value(text)
