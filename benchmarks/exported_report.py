"""Tables of exported models: how fast they score in DuckDB, and how large their files are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import markdown
from benchmarks.bars import Results
from benchmarks.results import Case

_WAYS = {
    "sqlml": "session, ns per row",
    "sqlml extension": "extension / session",
    "sqlml arrow": "Arrow / session",
    "sqlml SQL": "exported SQL / session",
    "onnxruntime": "onnxruntime / session",
}
"""Contender -> the head of its column; all but the first say how many times as long they take."""

_TIMES_THE_TREES = {"xgboost": 1, "xgboost, 5 times the trees": 5}
"""Models of XGBoost -> their number of trees, as a multiple of the option `--trees`."""


def exported(results: Results) -> str:
    """Write a line for each model, query and number of threads."""
    found = results.get("exported")
    if not found:
        return markdown.missing("exported")
    rows = {(_key(r["case"]), r["contender"]): r for r in found["rows"] if "size" not in r}
    lines, notes = [], dict[str, None]()
    for key in dict.fromkeys(key for key, _ in rows):
        contenders = {way: rows.get((key, way), {}) for way in _WAYS}
        model, query, threads = key
        cells = [markdown.ns(contenders["sqlml"].get("ns"))]
        for way in list(_WAYS)[1:]:
            row = contenders[way]
            star = "\\*" if row.get("differing") else ""
            cells.append(markdown.ratio(row["ratio"]) + star if "ratio" in row else "-")
            if "reason" in row:
                notes[f"* {way}: {row['reason']} ({_name(model, found)})"] = None
        lines.append(f"| {_name(model, found)} | {query} | {threads} | {' | '.join(cells)} |")
    shown = markdown.table(["model", "query", "threads", *_WAYS.values()], lines)
    return "\n\n".join([shown, "\n".join(notes)] if notes else [shown])


def extension_files(results: Results) -> str:
    """Write a line for each model, with the size of its extension."""
    found = results.get("exported")
    if not found:
        return markdown.missing("exported")
    lines = [
        f"| {_name(row['case']['model'], found)} | {row['size'] / 1e6:.1f} | {row['export']:.2f} "
        f"| {row['load'] * 1e3:.1f} |"
        for row in found["rows"]
        if "size" in row
    ]
    return markdown.table(["model", "file, MB", "EXPORT MODEL, s", "LOAD, ms"], lines)


def _key(case: Case) -> tuple[str, str, int]:
    return case["model"], case["query"], case["threads"]


def _name(model: str, found: Mapping[str, Any]) -> str:
    """Return the name of a model as the page shows it."""
    if model not in _TIMES_THE_TREES:
        return model
    return f"xgboost, {_TIMES_THE_TREES[model] * found['parameters']['trees']} trees"
