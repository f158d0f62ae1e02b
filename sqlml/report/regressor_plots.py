"""`regressor_plots`: labels beside predictions, and residuals."""

from __future__ import annotations

from sqlml.report import charts
from sqlml.report.draw import drawn
from sqlml.report.histograms import histogram
from sqlml.report.parts import Note, Part, Plot, table
from sqlml.report.subject import MOST_TARGETS, Subject

_PARTS = 20
"""Equal parts of the rows, by their predictions."""

_KNOWN = "y IS NOT NULL AND hat IS NOT NULL AND isfinite(y) AND isfinite(hat)"


def regressor_plots(subject: Subject) -> list[Part]:
    """The plots of a regressor, of each of the first targets."""
    if subject.targets == 1:
        return _of_target(subject, _KNOWN, "")
    parts: list[Part] = []
    for t, name in enumerate(subject.target_names[:MOST_TARGETS]):
        parts += _of_target(subject, f"t = {t} AND {_KNOWN}", f"{name}: ")
    more = subject.targets - MOST_TARGETS
    return [*parts, *([Note(f"Plots of {more:,} more targets are left out.")] if more > 0 else [])]


def _of_target(subject: Subject, known: str, name: str) -> list[Part]:
    """The plots of one target.

    Args:
        known: which rows of `sqlml_scored`. name: what titles begin with.
    """
    assert subject.scores is not None
    scores = subject.scores.table
    residuals = histogram(
        subject,
        f"(SELECT y - hat AS x FROM {scores} WHERE {known})",
        f"{name}Residuals",
        "Label minus prediction: around 0 where the model is right on average.",
        "Residual",
    )
    found = subject.of_tables(
        f"""
        SELECT part, avg(hat) AS mean_hat, avg(y) AS mean_y, quantile(y, 0.1) AS low,
            quantile(y, 0.9) AS high, count(*) AS n
        FROM (
            SELECT y, hat, ntile({_PARTS}) OVER (ORDER BY hat) AS part
            FROM {scores} WHERE {known}
        ) AS parts
        GROUP BY part ORDER BY part
        """
    )
    points = [(r["mean_hat"], r["low"], r["mean_y"], r["high"]) for r in found]
    if len({x for x, *_ in points}) < 2:
        why = "all predictions are about the same, so there is nothing to plot."
        return [Note(f"{name}{why}" if name else why.capitalize()), residuals]
    beside = Plot(
        f"{name}Labels beside predictions",
        f"The rows in {len(points)} equal parts by their prediction: the mean label of each, in "
        "the band that holds 80% of the labels. On the dashed line both are the same.",
        drawn(charts.band(points, "Mean prediction", "Label")),
        "Line plot of the mean label over the mean prediction; the numbers are in the table.",
        table(
            f"{name}Labels by prediction",
            ("Prediction", "Mean label", "10%", "90%", "Rows"),
            [[r["mean_hat"], r["mean_y"], r["low"], r["high"], r["n"]] for r in found],
        ),
    )
    return [beside, residuals]
