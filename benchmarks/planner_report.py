"""The table of `benchmarks.planner`: what planning costs, and what it saves."""

from __future__ import annotations

from benchmarks import markdown
from benchmarks.bars import Results

_UNITS = {
    "x": (">=", "times as fast"),
    "of": ("<=", "times as long"),
    "us": ("<=", "additional µs"),
}
"""Maps the unit of a case to the direction of its goal and the words of the page."""


def planner(results: Results) -> str:
    """Write a line for each case: what planning costs or saves, and the goal."""
    family = results.get("planner")
    if not family:
        return markdown.missing("planner")
    lines = []
    for row in family["rows"]:
        sign, unit = _UNITS[row["unit"]]
        met = row["measured"] >= row["needed"] if sign == ">=" else row["measured"] <= row["needed"]
        lines.append(
            f"| {_describe(row['case'])} | {_describe(row['against'])} "
            f"| {unit} | {sign} {markdown.ratio(row['needed'])} "
            f"| {markdown.ratio(row['measured'])} | {'yes' if met else 'no'} |"
        )
    head = ["case", "compared with", "unit", "goal", "measured", "met"]
    return markdown.table(head, lines)


def _describe(name: str) -> str:
    """Return the name of a case of `benchmarks.planner` as the page shows it."""
    return {
        "the rewritten text": "the rewritten query on plain DuckDB",
        "of that what is not the engine's binding": (
            "the same, without the time in which DuckDB binds the query"
        ),
        "the same questions to the engine, then the rewritten text": (
            "plain DuckDB running the same catalog queries and then the rewritten query"
        ),
        "10 used of 200 Parquet columns": "a model that uses 10 of 200 Parquet columns",
        "a pipeline with strings": "a pipeline with string columns",
        "a LEFT JOIN that nobody needs": "a LEFT JOIN that no result needs",
        "predict, predict_proba and WHERE on one model": (
            "`predict`, `predict_proba` and WHERE on one model"
        ),
        "predict alone": "`predict` alone",
    }.get(name, name)
