"""`histogram`: a column of numbers as a histogram, of all rows or of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.report import charts
from sqlml.report.draw import drawn
from sqlml.report.parts import Note, Part, Plot, table
from sqlml.report.shown import number
from sqlml.report.subject import Subject

_BINS = 30
_TABLE = 10
"""Rows of the table beside it: a third of the bins."""


def histogram(
    subject: Subject,
    rows: str,
    title: str,
    says: str,
    x: str,
    series: Mapping[int, str] | None = None,
    unit: bool = False,
) -> Part:
    """A plot of a column `x` of a query in brackets, in equal bins.

    Bins span what lies within three times the range from the 1% to the 99% quantile; what lies
    beyond is in the first and last of them, which the page says.

    Args:
        series: place -> name, of column `s`, whose rows are shown as shares of each; the others
            are left out.
        unit: the column holds probabilities.
    """
    (edges,) = subject.of_tables(
        f"""
        SELECT min(x) AS least, max(x) AS most, quantile(x, 0.01) AS low,
            quantile(x, 0.99) AS high, count(*) AS n
        FROM {rows} AS all_rows WHERE isfinite(x)
        """
    )
    if not edges["n"]:
        return Note(f"{title}: no row has a number.")
    least, most = float(edges["least"]), float(edges["most"])
    spread = float(edges["high"]) - float(edges["low"])
    low, high = max(least, edges["low"] - spread), min(most, edges["high"] + spread)
    if unit:
        low, high = 0.0, 1.0
    if not high > low or (high - low) / _BINS == 0:
        return Note(f"{title}: the same in all rows, {number(least)}.")
    width = (high - low) / _BINS
    key = "0" if series is None else "s"
    found = subject.of_tables(
        f"""
        SELECT {key} AS s, CAST(least(greatest(floor((x - {low!r}) / {width!r}), 0), {_BINS - 1})
            AS INTEGER) AS bin, count(*) AS n
        FROM {rows} AS all_rows WHERE isfinite(x) GROUP BY 1, 2
        """
    )
    names = {0: "Rows"} if series is None else series
    counts = {name: [0] * _BINS for name in names}
    for row in found:
        if row["s"] in counts:
            counts[row["s"]][row["bin"]] += row["n"]
    return _plot(title, says, x, names, counts, (low, width), least < low or most > high)


def _plot(
    title: str,
    says: str,
    x: str,
    names: Mapping[int, str],
    counts: Mapping[int, list[int]],
    place: tuple[float, float],
    beyond: bool,
) -> Part:
    low, width = place
    several = len(names) > 1
    bins: list[tuple[str, float, float, float]] = []
    for key, name in names.items():
        total = sum(counts[key])
        for n, count in enumerate(counts[key]):
            height = count / total if several and total else float(count)
            bins.append((name, low + n * width, low + (n + 1) * width, height))
    per = _BINS // _TABLE
    cells: list[list[Any]] = []
    for n in range(0, _BINS, per):
        span = f"{number(low + n * width)} to {number(low + (n + per) * width)}"
        cells.append([span, *(sum(counts[key][n : n + per]) for key in names)])
    columns = (x, *((f"Rows: {name}" for name in names.values()) if several else ("Rows",)))
    more = " Rows beyond the axis are in its first and last bin." if beyond else ""
    if several:
        more = f" Heights are shares of the rows of each.{more}"
    return Plot(
        title,
        says + more,
        drawn(charts.steps(bins, x, "Share of rows" if several else "Rows")),
        f"Histogram of {x.lower()}; the numbers are in the table.",
        table(title, columns, cells),
    )
