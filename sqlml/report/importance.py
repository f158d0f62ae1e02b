"""Sections about the importance of columns, and about drift since training."""

from __future__ import annotations

from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.errors import BindError, SqlmlError
from sqlml.report import charts
from sqlml.report.parts import (
    Note,
    Plot,
    ReportPart,
    Section,
    clip,
    make_distinct,
    make_table,
    note_left_out,
)
from sqlml.report.subject import MAX_TARGETS, Subject, build_sample_condition

_MAX_COLUMNS = 20
_MAX_FEATURES = 4096
_BACKGROUND, _MAX_PREDICTIONS = 25, 2_000_000
"""Limits on background rows and predictions, for models that are neither trees nor linear."""

_ORDERS = 64
"""The minimum number of pairs of column permutations that `explain` samples."""


def measure_importance(subject: Subject) -> Section:
    """Make the section about contributions in the sample, and about stored importances."""
    parts = [*_explain_sample(subject), *_plot_library_importance(subject)]
    lead = "A contribution is what a column adds to the score of a row, or subtracts from it."
    return Section("importance", "Which columns matter", lead, tuple(parts))


def _explain_sample(subject: Subject) -> list[ReportPart]:
    if not subject.count:
        return [Note("The data has no rows to explain.")]
    num_features = len(subject.model.program.inputs)
    if num_features > _MAX_FEATURES:
        limit_sentence = f"Contributions are computed for models of up to {_MAX_FEATURES:,} columns"
        return [Note(f"{limit_sentence}; explain('m', *) also computes them for larger models.")]
    try:
        return _explain_rows(subject, subject.sample_count, "")
    except SqlmlError:
        pass  # A model that is neither a tree ensemble nor linear needs background rows.
    max_rows = _MAX_PREDICTIONS // (2 * _ORDERS * max(num_features, 1))
    background = f", background := (SELECT * FROM {subject.sample} LIMIT {_BACKGROUND})"
    try:
        return _explain_rows(subject, max(1, min(subject.sample_count, max_rows, 200)), background)
    except SqlmlError as error:
        return [Note(f"The model cannot be explained: {error.message}")]


def _explain_rows(subject: Subject, num_rows: int, background: str) -> list[ReportPart]:
    explain_sql = f"explain({subject.quoted}, *{background})"
    if subject.targets == 1:
        return [_plot_contributions(subject, explain_sql, num_rows, "")]
    parts = [
        _plot_contributions(subject, DUCKDB.at(explain_sql, target + 1), num_rows, f"{name}: ")
        for target, name in enumerate(subject.target_names[:MAX_TARGETS])
    ]
    return [*parts, *subject.note_more_targets()]


def _plot_contributions(
    subject: Subject, explain_sql: str, num_rows: int, prefix: str
) -> ReportPart:
    features = list(subject.model.program.inputs)
    summary = _summarize_contributions(subject, explain_sql, num_rows, len(features))
    if not summary or not summary[0]["size"]:
        return Note(f"{prefix}No column makes a difference in these rows.")
    top_rows = summary[:_MAX_COLUMNS]
    names = make_distinct([clip(features[row["k"] - 1], 40) for row in top_rows])
    sample = "all rows" if num_rows == subject.count else f"{num_rows:,} of {subject.count:,} rows"
    explanation = (
        f"For {sample}: the line spans 80% of a column's contributions; the point is their median."
    )
    if "background" in explain_sql:
        num_background = min(_BACKGROUND, subject.sample_count)
        explanation += f" Estimated against a background of {num_background} rows of the data."
    if subject.task == "classes":
        explanation += " In each row, the score of the predicted class is explained."
    pairs = zip(names, top_rows, strict=True)
    ranges = [(name, row["low"], row["middle"], row["high"]) for name, row in pairs]
    title, columns = f"{prefix}Contributions", ("Column", "Mean size", "10%", "Median", "90%")
    cells = [[name, row["size"], *r] for row, (name, *r) in zip(top_rows, ranges, strict=True)]
    note = note_left_out(len(features) - len(top_rows), "columns that matter less")
    return Plot(
        title,
        explanation,
        charts.draw_intervals(ranges, "Contribution to the score", zero=True),
        "The range of contributions of each column",
        make_table(title, columns, cells, note),
    )


def _summarize_contributions(
    subject: Subject, explain_sql: str, num_rows: int, num_features: int
) -> list[dict[str, Any]]:
    """Return a row with the mean size and the quantiles of contributions for each column."""
    query = (
        f"SELECT {DUCKDB.call('map_values', explain_sql)} AS c FROM "
        f"(SELECT * FROM {subject.sample} LIMIT {num_rows}) AS sqlml_sample"
    )
    subject.tables.session.plan(query)  # An error here does not abort the user's transaction.
    with subject.tables.store_briefly("contributions", query) as table:
        numbers = ", ".join(f"({k})" for k in range(1, num_features + 1))
        summary = subject.query_tables(
            f"""
            SELECT k, avg(abs(v)) AS size, quantile(v, 0.1) AS low,
                quantile(v, 0.5) AS middle, quantile(v, 0.9) AS high
            FROM (
                SELECT k, array_extract(c, k) AS v
                FROM {table} CROSS JOIN (VALUES {numbers}) AS numbers(k)
            ) AS each_column
            WHERE v IS NOT NULL AND isfinite(v) GROUP BY k
            """
        )
    return sorted(summary, key=lambda row: (-row["size"], row["k"]))


def _plot_library_importance(subject: Subject) -> list[ReportPart]:
    try:
        rows = subject.query_models(f"FROM ml_feature_importance(MODEL {subject.quoted})")
    except SqlmlError as error:
        return [Note(f"The model stores no importances: {error.message}.")]
    importances = [row for row in rows if row["importance"] is not None]
    if not importances:
        return []
    top_rows = importances[:_MAX_COLUMNS]
    names = make_distinct([clip(str(row["feature"]), 40) for row in top_rows])
    columns, keys = ["Column", "Importance"], ["importance"]
    if any(row["importance_weight"] is not None for row in top_rows):
        columns.append("Splits")
        keys.append("importance_weight")
    bars = [(name, float(row["importance"])) for name, row in zip(names, top_rows, strict=True)]
    cells = [[name, *(row[key] for key in keys)] for name, row in zip(names, top_rows, strict=True)]
    note = note_left_out(len(importances) - len(top_rows), "columns that matter less")
    return [
        Plot(
            "Importance in training",
            f"As {subject.model.origin.library.split()[0]} measures it in training; for linear "
            "models, the absolute weights.",
            charts.draw_bars(bars, "Importance"),
            "A bar for each column",
            make_table("Importance in training", columns, cells, note),
        )
    ]


_MAX_VALUES = 50_000_000
"""The maximum number of values (rows times features) to compare."""


def measure_drift(subject: Subject) -> Section:
    """Make the section that compares the data with the training data."""
    return Section("drift", "Drift since training", "", (_compare_with_training(subject),))


def _compare_with_training(subject: Subject) -> ReportPart:
    if subject.training_facts is None:
        return Note(
            "sqlml did not train this model and does not know its training rows. If you have "
            "them, ml_validate_data_drift compares two tables."
        )
    if not subject.count:
        return Note("The data has no rows.")
    limit = _MAX_VALUES // max(len(subject.training_facts.features), 1)
    condition = build_sample_condition(subject.count, limit)
    try:
        drifts = subject.query_models(
            f"FROM ml_validate_data_skew(MODEL {subject.quoted}, "
            f"(SELECT * FROM {subject.rows}{condition}))"
        )
    except BindError as error:
        return Note(f"The rows cannot be compared with the training rows: {error.message}.")
    drifts = [row for row in drifts if row["value"] is not None or row["is_anomaly"]]
    if not drifts:
        return Note("No column has values both in training and here.")
    drifts.sort(key=lambda row: -(row["value"] or 0))
    return _plot_drift(drifts, f" Measured on {limit:,} evenly sampled rows." if condition else "")


def _plot_drift(drifts: list[dict[str, Any]], sample_sentence: str) -> ReportPart:
    top_rows = drifts[:_MAX_COLUMNS]
    anomaly_count = sum(row["is_anomaly"] for row in drifts)
    names = make_distinct([clip(str(row["input"]), 40) for row in top_rows])
    threshold = max(row["threshold"] for row in top_rows)
    bars = [(name, float(row["value"] or 0)) for name, row in zip(names, top_rows, strict=True)]
    cells = [
        [
            name,
            row["value"],
            row["psi"],
            row["kolmogorov_smirnov"],
            f"{row['null_share_base'] or 0:.1%}",
            f"{row['null_share_study'] or 0:.1%}",
            "differs" if row["is_anomaly"] else "",
        ]
        for name, row in zip(names, top_rows, strict=True)
    ]
    columns = ("Column", "Divergence", "PSI", "KS", "NULL then", "NULL now", "")
    note = note_left_out(len(drifts) - len(top_rows), "columns that differ less")
    columns_text = f"{anomaly_count:,} of {len(drifts):,} columns" if anomaly_count else "No column"
    return Plot(
        "Columns that differ most",
        f"{columns_text} {'differ' if anomaly_count > 1 else 'differs'} more than the threshold: a "
        f"Jensen-Shannon divergence above {threshold:g}, or shares of NULL that differ by "
        f"as much.{sample_sentence}",
        charts.draw_bars(bars, "Jensen-Shannon divergence", rule=threshold),
        "A bar for each column: its divergence from the training data",
        make_table("Drift", columns, cells, note, none=""),
    )
