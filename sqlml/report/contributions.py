"""Sections about important columns, groups of rows, and drift from the training data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.errors import BindError, SqlmlError
from sqlml.report import charts
from sqlml.report.charts import drawn
from sqlml.report.parts import Note, Part, Plot, Section, clipped, distinct, shown, table
from sqlml.report.quality import METRICS
from sqlml.report.scores import even_share, group
from sqlml.report.subject import MOST_TARGETS, Subject

_MOST = 20
"""Maximum number of columns to show."""

_MOST_FEATURES = 4096
"""Maximum number of columns with contributions."""

_BACKGROUND = 25
"""Number of background rows for models that are neither sums of trees nor linear."""

_PREDICTIONS = 2_000_000
"""Maximum number of predictions for contributions by comparison; it limits the number of rows."""

_ORDERS = 64
"""Minimum number of pairs of column orders that explain uses."""


def importance(subject: Subject) -> Section:
    """Show the contributions of columns to the sample and the library's importances."""
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
    with subject.tables.kept("contributions", asked) as contributions_table:
        places = ", ".join(f"({k})" for k in range(1, len(features) + 1))
        summary = subject.of_tables(
            f"""
            SELECT k, avg(abs(v)) AS size, quantile(v, 0.1) AS low,
                quantile(v, 0.5) AS middle, quantile(v, 0.9) AS high
            FROM (
                SELECT k, array_extract(c, k) AS v
                FROM {contributions_table} CROSS JOIN (VALUES {places}) AS places(k)
            ) AS each_column
            WHERE v IS NOT NULL AND isfinite(v) GROUP BY k
            """
        )
    summary.sort(key=lambda row: (-row["size"], row["k"]))
    if not summary or not summary[0]["size"]:
        return Note(f"{name}No column makes a difference in these rows.")
    some = summary[:_MOST]
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
    """Return the importances that the library stores, if any."""
    try:
        rows = subject.of_models(f"FROM ml_feature_importance(MODEL {subject.quoted})")
    except SqlmlError as error:
        return [Note(f"No importance is kept in the model: {error.message}.")]
    importances = [row for row in rows if row["importance"] is not None]
    if not importances:
        return []
    some = importances[:_MOST]
    names = distinct([clipped(str(row["feature"]), 40) for row in some])
    more = len(importances) - len(some)
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


_METRICS = {
    "two classes": ("roc_auc", "precision", "recall", "accuracy", "log_loss"),
    "classes": ("accuracy", "f1_score", "roc_auc", "log_loss"),
    "numbers": ("r2_score", "mean_absolute_error", "mean_squared_error"),
    "clusters": ("mean_squared_distance",),
}
"""Measures of the table; the plot shows the first one that some group has."""

_AVERAGED = {"two classes": "p1", "numbers": "hat"}
"""Prediction column whose mean is shown for each group if the data has no labels."""


def groups(subject: Subject) -> Section:
    """Compare the metrics of each group of rows."""
    by = " and ".join(clipped(name) for name in subject.groups)
    title = f"By {by}" if by else "By group"
    return Section("groups", title, subject.share if by else "", tuple(_parts(subject)))


def _parts(subject: Subject) -> list[Part]:
    scores = subject.scores
    if not subject.groups:
        return [
            Note(
                "No groups were named. To compare some, name a column that tells them apart, as in "
                "con.report('m', 'customers', by='region') or --by region."
            )
        ]
    if scores is None or not subject.count:
        return [Note("There is nothing to compare.")]
    keys = [f"g{n}" for n in range(len(subject.groups))]
    if scores.is_labelled or subject.task == "clusters":
        largest = subject.largest_groups(_MOST)
        keys = [group(n) for n in range(len(keys))]
    else:
        largest = _unlabelled(subject, ", ".join(keys))
    if not largest:
        return [Note("No group has a row with a label and a prediction.")]
    return [_compared(subject, largest, keys)]


def _unlabelled(subject: Subject, keys: str) -> list[dict[str, Any]]:
    """Return the rows of each group, and their mean prediction if it is a number."""
    assert subject.scores is not None
    scores, average, first = subject.scores, "CAST(NULL AS DOUBLE)", ""
    if scores.rows.targets > 1:
        first = "WHERE t = 0"
    elif subject.task in _AVERAGED:
        average = f"avg({_AVERAGED[subject.task]})"
    groups = subject.of_tables(
        f"SELECT {keys}, count(*) AS n, {average} AS mean, count(*) OVER () AS sqlml_groups "
        f"FROM {scores.table} {first} GROUP BY {keys} ORDER BY n DESC, {keys} LIMIT {_MOST}"
    )
    return [{**row, "rows": row["n"]} for row in groups]


def _compared(subject: Subject, some: list[dict[str, Any]], names: Sequence[str]) -> Part:
    several = "target" in some[0]
    metrics = [m for m in (*_METRICS[subject.task or "numbers"], "mean") if m in some[0]]
    metrics = [m for m in metrics if any(row[m] is not None for row in some)]
    columns = [*(clipped(name, 30) for name in subject.groups), *(["Target"] if several else [])]
    cells = [
        [
            *(shown(row[name], 30) for name in names),
            *([clipped(str(row["target"]), 30)] if several else []),
            row["rows"],
            *(row[m] for m in metrics),
        ]
        for row in some
    ]
    every = some[0]["sqlml_groups"]
    note = f"The {len(some)} largest of {every:,} groups." if every > len(some) else ""
    titles = [METRICS.get(m, _mean(subject)) for m in metrics]
    groups_table = table("Groups", (*columns, "Rows", *titles), cells, note)
    if several or not metrics:
        return groups_table
    (shared,) = metrics[:1]
    labels = distinct([", ".join(_key(row[name]) for name in names) for row in some])
    points = [
        (label, float(row[shared]), float(row[shared]), float(row[shared]))
        for label, row in zip(labels, some, strict=True)
        if row[shared] is not None
    ]
    return Plot(
        f"{titles[0]} of each group",
        f"The groups of most rows first. {note}".strip(),
        drawn(charts.intervals(points, titles[0])),
        f"A point for each group: {titles[0]}; the numbers are in the table.",
        groups_table,
    )


def _mean(subject: Subject) -> str:
    assert subject.scores is not None
    if subject.task == "numbers":
        return "Mean prediction"
    kind = "probability" if subject.scores.rows.scores == "probabilities" else "score"
    return f"Mean {kind}"


def _key(value: Any) -> str:
    return "NULL" if value is None else shown(value, 30) or "(empty)"


_MOST_VALUES = 50_000_000
"""Maximum number of values to compare; it limits the number of rows."""


def drift(subject: Subject) -> Section:
    """Compare the columns of the data with those of the training data (ml_validate_data_skew)."""
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
        drifts = subject.of_models(
            f"FROM ml_validate_data_skew(MODEL {subject.quoted}, "
            f"(SELECT * FROM {subject.rows}{share}))"
        )
    except BindError as error:
        return Note(f"The rows cannot be compared with those of the training: {error.message}.")
    drifts = [row for row in drifts if row["value"] is not None or row["is_anomaly"]]
    if not drifts:
        return Note("No column has values both in training and here.")
    drifts.sort(key=lambda row: -(row["value"] or 0))
    some = drifts[:_MOST]
    more = len(drifts) - len(some)
    flagged = sum(row["is_anomaly"] for row in drifts)
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
    counted = "No column" if not flagged else f"{flagged:,} of {len(drifts):,} columns"
    return Plot(
        "Columns that differ most",
        f"{counted} {'differ' if flagged > 1 else 'differs'} by more than the threshold: a "
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
