"""`importance`: which columns matter: on the rows of the data, and to the library."""

from __future__ import annotations

from sqlml.dialects import DUCKDB
from sqlml.errors import SqlmlError
from sqlml.report import charts
from sqlml.report.draw import drawn
from sqlml.report.parts import Note, Part, Plot, Section, table
from sqlml.report.shown import clipped, distinct
from sqlml.report.subject import MOST_TARGETS, Subject

_MOST = 20
"""Columns that are shown."""

_MOST_FEATURES = 4096
"""Columns whose contributions are computed."""

_BACKGROUND = 25
"""Rows to compare with, for models that are neither sums of trees nor linear."""

_PREDICTIONS = 2_000_000
"""Predictions that contributions by comparison may take: of so many rows as this allows."""

_ORDERS = 64
"""Pairs of orders of columns that explain takes at least."""


def importance(subject: Subject) -> Section:
    """Contributions of the columns to the scores of a sample, and the library's own importances."""
    parts = [*_contributions(subject), *_own(subject)]
    lead = "A contribution is what a column adds to the score of a row, or takes away."
    return Section("importance", "Which columns matter", lead, tuple(parts))


def _contributions(subject: Subject) -> list[Part]:
    if not subject.count:
        return [Note("The data has no rows to explain.")]
    features = list(subject.model.program.inputs)
    if len(features) > _MOST_FEATURES:
        return [
            Note(
                f"Contributions are computed for models of up to {_MOST_FEATURES:,} columns; "
                "explain('m', *) has them for others."
            )
        ]
    targets: list[int | None] = [None] if subject.targets == 1 else [*range(subject.targets)]
    some = targets[:MOST_TARGETS]
    more = len(targets) - len(some)
    left = [Note(f"Those of {more:,} more targets are left out.")] if more else []
    try:
        parts = [_explained(subject, features, subject.sample_count, "", t) for t in some]
        return [*parts, *left]
    except SqlmlError:
        pass  # it is no sum of trees or weights: rows to compare with say what is expected
    rows = _PREDICTIONS // (2 * _ORDERS * max(len(features), 1))
    rows = max(1, min(subject.sample_count, rows, 200))
    against = f", background := (SELECT * FROM {subject.sample} LIMIT {_BACKGROUND})"
    try:
        return [*(_explained(subject, features, rows, against, t) for t in some), *left]
    except SqlmlError as error:
        return [Note(f"The model cannot be explained: {error.message}")]


def _explained(
    subject: Subject, features: list[str], rows: int, against: str, target: int | None
) -> Part:
    """The mean size of each column's contributions, and the range of them.

    Args:
        rows: of the sample. against: the argument that names rows to compare with, if any.
        target: its number, of a model that has several.

    Raises:
        SqlmlError: the model has no contributions of this kind.
    """
    call = f"explain({subject.quoted}, *{against})"
    if target is not None:
        call = DUCKDB.at(call, target + 1)
    asked = (
        f"SELECT {DUCKDB.call('map_values', call)} AS c FROM "
        f"(SELECT * FROM {subject.sample} LIMIT {rows}) AS sqlml_sample"
    )
    name = "" if target is None else f"{subject.target_names[target]}: "
    subject.asking.plan(asked)  # which says why not, and leaves a transaction as it is
    with subject.tables.kept("contributions", asked) as kept:
        places = ", ".join(f"({k})" for k in range(1, len(features) + 1))
        found = subject.of_tables(
            f"""
            SELECT k, avg(abs(v)) AS size, quantile(v, 0.1) AS low,
                quantile(v, 0.5) AS middle, quantile(v, 0.9) AS high
            FROM (
                SELECT k, array_extract(c, k) AS v
                FROM {kept} CROSS JOIN (VALUES {places}) AS places(k)
            ) AS each_column
            WHERE v IS NOT NULL AND isfinite(v) GROUP BY k
            """
        )
    found.sort(key=lambda row: (-row["size"], row["k"]))
    if not found or not found[0]["size"]:
        return Note(f"{name}No column makes a difference in these rows.")
    some = found[:_MOST]
    names = distinct([clipped(features[row["k"] - 1], 40) for row in some])
    more = len(features) - len(some)
    sample = "all rows" if rows == subject.count else f"{rows:,} of {subject.count:,} rows"
    how = f"Of {sample}: the line holds 80% of a column's contributions, the point is their median."
    if against:
        how += f" Estimated beside {min(_BACKGROUND, subject.sample_count)} rows of the data."
    if subject.task == "classes":
        how += " Of each row the score of the predicted class is explained."
    cells = [
        [name, row["size"], row["low"], row["middle"], row["high"]]
        for name, row in zip(names, some, strict=True)
    ]
    return Plot(
        f"{name}Contributions",
        how,
        drawn(
            charts.intervals(
                [
                    (name, row["low"], row["middle"], row["high"])
                    for name, row in zip(names, some, strict=True)
                ],
                "Contribution to the score",
                zero=True,
            )
        ),
        "For each column the range of its contributions; the numbers are in the table.",
        table(
            f"{name}Contributions",
            ("Column", "Mean size", "10%", "Median", "90%"),
            cells,
            f"{more:,} columns that matter less are left out." if more else "",
        ),
    )


def _own(subject: Subject) -> list[Part]:
    """The importances that the library keeps, where it does."""
    try:
        found = subject.of_models(f"FROM ml_feature_importance(MODEL {subject.quoted})")
    except SqlmlError as error:
        return [Note(f"No importance is kept in the model: {error.message}.")]
    own = [row for row in found if row["importance"] is not None]
    if not own:
        return []
    some = own[:_MOST]
    names = distinct([clipped(str(row["feature"]), 40) for row in some])
    more = len(own) - len(some)
    has_splits = any(row["importance_weight"] is not None for row in some)
    return [
        Plot(
            "Importance in training",
            f"As {subject.model.origin.library.split()[0]} measures it, whatever the data is; of "
            "linear models the sizes of the weights.",
            drawn(
                charts.bars(
                    [(n, float(row["importance"])) for n, row in zip(names, some, strict=True)],
                    "Importance",
                )
            ),
            "A bar for each column; the numbers are in the table.",
            table(
                "Importance in training",
                ("Column", "Importance", "Splits")[: 2 + has_splits],
                [
                    [name, row["importance"], row["importance_weight"]][: 2 + has_splits]
                    for name, row in zip(names, some, strict=True)
                ],
                f"{more:,} columns that matter less are left out." if more else "",
            ),
        )
    ]
