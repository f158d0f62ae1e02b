"""Sections about the model, its inputs, and the rows of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.report.parts import Note, Pairs, Part, Section, clipped, code, listed, shown, table
from sqlml.report.subject import Subject
from sqlml.statements.describe_model import NOT_USED
from sqlml.types import fold

_MOST_COLUMNS, _MOST_VERSIONS = 40, 20
"""Maximum number of rows of a table."""

_MINUTE = len("2026-11-27 12:00")
_MOST_LETTERS = 400
"""Maximum number of characters of a property of the model."""

_TOLD = {
    "source": "Class",
    "library": "Library",
    "estimator": "Estimator",
    "model_type": "Trained as",
    "trained_on": "Trained on",
    "split": "Rows held out",
    "outputs": "Gives",
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
"""Titles of the properties of DESCRIBE MODEL."""

_FACTS = {
    "min": "Least",
    "max": "Most",
    "mean": "Mean",
    "stddev": "Std. deviation",
    "categories_count": "Categories",
}
"""Titles of the columns of ml_feature_info."""


def about_model(subject: Subject) -> Section:
    """Describe the model, its columns and its versions."""
    description = subject.description
    pairs = [
        (_TOLD[name], _text(name, text))
        for name, text in description.properties
        if name in _TOLD and text and (name, text) != ("targets", "1")
    ]
    parts: list[Part] = [Pairs(tuple(pairs)), _columns(subject), _versions(subject)]
    if subject.facts is not None:
        parts.append(code("The query that it was trained on", subject.facts.query))
    unused = sum(kind == NOT_USED for kind in description.inputs.values())
    reads = len(description.inputs) - unused
    lead = f"It reads {_count(reads, 'column')}"
    if unused:
        lead += f"; {_count(unused, 'other')} of its training made no difference and "
        lead += "is not read" if unused == 1 else "are not read"
    return Section("model", "The model", f"{lead}.", tuple(parts))


def _text(name: str, text: str) -> str:
    """Return the properties of DESCRIBE MODEL with the page's titles."""
    if name == "stored_bytes":
        return f"{int(text):,}"
    return clipped(text[:_MINUTE] if name == "created_at" else text, _MOST_LETTERS)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _columns(subject: Subject) -> Part:
    """List the inputs of the model, the important ones first."""
    info = {
        fold(str(row[next(iter(row))])): row
        for row in subject.of_models(f"FROM ml_feature_info(MODEL {subject.quoted})")
    }
    inputs = subject.description.inputs
    ordered = sorted(inputs, key=lambda name: inputs[name] == NOT_USED)
    some = ordered[:_MOST_COLUMNS]
    facts = [info.get(fold(name), {}) for name in some]
    described = {
        key: title for key, title in _FACTS.items() if any(f.get(key) is not None for f in facts)
    }
    rows = [
        [name, inputs[name], *(f.get(key) for key in described)]
        for name, f in zip(some, facts, strict=True)
    ]
    more = len(ordered) - len(some)
    note = "The numbers are those of the training, as far as they are known." if described else ""
    if more:
        note = f"{more:,} more columns are left out. {note}".strip()
    columns = ("Column", "Type", *described.values())
    return table("Columns that the model reads", columns, rows, note, none="")


def _versions(subject: Subject) -> Part:
    model = subject.model
    name = DUCKDB.quote_name(model.name)
    if model.database is not None:
        name = f"{DUCKDB.quote_name(model.database)}.{name}"
    versions = subject.of_models(f"SHOW VERSIONS IN MODEL {name}")[::-1]
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
        for row in versions[:_MOST_VERSIONS]
    ]
    more = len(versions) - len(rows)
    columns = ("Version", "Default", "Aliases", "Class", "Library", "Comment", "Created")
    return table("Versions", columns, rows, f"{more:,} older ones are left out." if more else "")


def about_data(subject: Subject) -> Section:
    """Describe the rows and their columns."""
    read = {fold(c.name) for c in subject.model.columns} | {fold(name) for name in subject.labels}
    columns = [name for name in subject.columns if fold(name) in read]
    lead = f"{_count(subject.count, 'row')} of {_count(len(subject.columns), 'column')}."
    parts: list[Part] = []
    some = columns[:_MOST_COLUMNS]
    if not subject.count:
        parts.append(Note("The data has no rows to measure on."))
    elif some:
        quoted = ", ".join(DUCKDB.quote_name(name) for name in some)
        statistics = subject.of_models(
            f"FROM ml_describe_data((SELECT {quoted} FROM {subject.rows}), "
            "num_quantiles := 4, top_k := 3)"
        )
        more = len(columns) - len(some)
        note = f"{more:,} more columns are left out. " if more else ""
        parts.append(
            table(
                "Columns of the data",
                ("Column", "Type", "NULL", "Different", "Least", "Median", "Most", "Frequent"),
                [_described(row) for row in statistics],
                f"{note}Counts of different values and medians are approximate.",
                none="",
            )
        )
    parts.append(code("The query or table", subject.data))
    return Section("data", "The data", lead, tuple(parts))


def _described(row: Mapping[str, Any]) -> list[Any]:
    share = row["num_nulls"] / row["num_rows"] if row["num_rows"] else 0
    tops = [f"{shown(t['value'], 20)} ({t['count']:,})" for t in row["top_values"] or ()]
    is_number = row["mean"] is not None
    return [
        row["name"],
        row["type"],
        f"{share:.1%}" if share else "0%",
        row["approx_unique"],
        *(_numeric(row[name]) if is_number else shown(row[name], 24) for name in ("min",)),
        row["median"],
        *(_numeric(row[name]) if is_number else shown(row[name], 24) for name in ("max",)),
        listed(tops, 3),
    ]


def _numeric(text: str) -> str | None:
    """Format the least or greatest number of a column, which is stored as text."""
    try:
        return shown(float(text))
    except (TypeError, ValueError):
        return shown(text)
