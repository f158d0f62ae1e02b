"""`drift`: how far the rows differ from those that the model was trained on."""

from __future__ import annotations

from sqlml.errors import BindError
from sqlml.report import charts
from sqlml.report.draw import drawn
from sqlml.report.parts import Note, Part, Plot, Section, table
from sqlml.report.scores import even_share
from sqlml.report.shown import clipped, distinct
from sqlml.report.subject import Subject

_MOST = 20
"""Columns that are shown: those that differ most."""

_MOST_VALUES = 50_000_000
"""Values that are compared: those of so many rows as this allows."""


def drift(subject: Subject) -> Section:
    """The columns of the data beside those of the training, as ml_validate_data_skew has them."""
    return Section("drift", "Drift since training", "", (_part(subject),))


def _part(subject: Subject) -> Part:
    if subject.facts is None:
        return Note(
            "sqlml did not train this model and does not know its training rows. Where you have "
            "them, ml_validate_data_drift compares two tables."
        )
    if not subject.count:
        return Note("The data has no rows.")
    most = _MOST_VALUES // max(len(subject.facts.features), 1)
    share = even_share(subject.count, most)
    try:
        found = subject.of_models(
            f"FROM ml_validate_data_skew(MODEL {subject.quoted}, "
            f"(SELECT * FROM {subject.rows}{share}))"
        )
    except BindError as error:
        return Note(f"The rows cannot be compared with those of the training: {error.message}.")
    found = [row for row in found if row["value"] is not None or row["is_anomaly"]]
    if not found:
        return Note("No column has values both in training and here.")
    found.sort(key=lambda row: -(row["value"] or 0))
    some = found[:_MOST]
    more = len(found) - len(some)
    flagged = sum(row["is_anomaly"] for row in found)
    names = distinct([clipped(str(row["input"]), 40) for row in some])
    threshold = max(row["threshold"] for row in some)
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
        for name, row in zip(names, some, strict=True)
    ]
    sample = f" Of an even sample of {most:,} rows." if share else ""
    told = "No column" if not flagged else f"{flagged:,} of {len(found):,} columns"
    return Plot(
        "Columns that differ most",
        f"{told} {'differ' if flagged > 1 else 'differs'} by more than the threshold: a "
        f"Jensen-Shannon divergence above {threshold:g}, or shares of NULL that lie as far "
        f"apart.{sample}",
        drawn(
            charts.bars(
                [(n, float(row["value"] or 0)) for n, row in zip(names, some, strict=True)],
                "Jensen-Shannon divergence",
                rule=threshold,
            )
        ),
        "A bar for each column: its divergence from the training; the numbers are in the table.",
        table(
            "Drift",
            ("Column", "Divergence", "PSI", "KS", "NULL then", "NULL now", ""),
            cells,
            f"{more:,} columns that differ less are left out." if more else "",
            none="",
        ),
    )
