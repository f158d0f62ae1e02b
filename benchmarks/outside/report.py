"""Tables of the benchmarks with models and queries that others made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import markdown
from benchmarks.bars import Results, by_case
from benchmarks.outside.contenders import (
    CACHED,
    EXTENSION,
    FILE,
    FRAME,
    LOADED,
    OBJECT,
    ONNX,
    SQL,
)
from benchmarks.outside.prediction_query import WITHOUT

RIVALS = (CACHED, LOADED, FRAME, ONNX, SQL, FILE, EXTENSION)


def converted(results: Results) -> str:
    """Write a line for each pipeline, with its ONNX file beside it."""
    measured = results.get("outside.converted")
    if not measured:
        return markdown.missing("outside.converted")
    lines = []
    for name, rows in by_case(measured["rows"]).items():
        own, file, onnx = (rows.get(way, {}) for way in (OBJECT, FILE, ONNX))
        if "ns" not in own or "ns" not in file:
            reason = own.get("reason") or file.get("reason")
            lines.append(f"| {name} | - | - | - | {reason} |")
            continue
        python = [way for way, row in (("pipeline", own), ("file", file)) if row.get("note")]
        rival = markdown.ratio(onnx["ns"] / file["ns"]) if "ns" in onnx else "-"
        ratio = markdown.ratio(file["ratio"])
        lines.append(
            f"| {name} | {markdown.ns(own['ns'])} | {ratio} | {rival} | {' and '.join(python)} |"
        )
    head = ("pipeline", "pipeline, ns per row", "file / pipeline", "onnxruntime / file")
    return markdown.table([*head, "in Python"], lines)


SUITES: Mapping[str, str] = {
    "outside.imbridge": "IMBridge",
    "outside.retree": "ReTree",
    "outside.real": "real tables",
}
"""Maps a family to the name of its queries."""


def prediction_queries(results: Results) -> str:
    """Write a line for each query and model of the suites, with times over sqlml's."""
    lines = []
    for family, suite in SUITES.items():
        measured = results.get(family)
        for rows in by_case(measured["rows"]).values() if measured else ():
            case = rows[OBJECT]["case"]
            cells = [
                *(suite, case["table"], case["model"], f"{case['rows']:,}"),
                *(_milliseconds(rows[way]) for way in (OBJECT, WITHOUT)),
                *(_ratio(rows.get(rival, {})) for rival in RIVALS),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return "\n".join(map(markdown.missing, SUITES))
    head = ["suite", "query", "model", "rows", "sqlml, ms", "without model, ms", *RIVALS]
    return markdown.table(head, lines)


def forests(results: Results) -> str:
    """Write a line for each table, forest and number of trees, and times over sqlml's."""
    measured = results.get("outside.forests")
    if not measured:
        return markdown.missing("outside.forests")
    cases: dict[tuple[str, str, int], dict[str, Mapping[str, Any]]] = {}
    for row in measured["rows"]:
        key = (row["case"]["table"], row["case"]["model"], row["case"]["trees"])
        cases.setdefault(key, {})[row["contender"]] = row
    rivals = list(dict.fromkeys(c for rows in cases.values() for c in rows if c != OBJECT))
    lines = []
    for key, rows in cases.items():
        nanoseconds = markdown.ns(rows[OBJECT].get("ns"))
        cells = (_ratio(rows.get(rival, {})) for rival in rivals)
        lines.append(f"| {' | '.join([*map(str, key), nanoseconds, *cells])} |")
    return markdown.table(["table", "model", "trees", "sqlml, ns per row", *rivals], lines)


def _milliseconds(row: Mapping[str, Any]) -> str:
    return markdown.ratio(row["ns"] * row["case"]["rows"] / 1e6) if "ns" in row else "-"


def _ratio(row: Mapping[str, Any]) -> str:
    """Return the ratio to sqlml's time, with a star where the answer differs."""
    if "ratio" not in row:
        return "-"
    differs = row.get("note") == "answers differ" or row.get("differing", 0) > 0
    return markdown.ratio(row["ratio"]) + ("\\*" if differs else "")
