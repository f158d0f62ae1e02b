"""Tables of the benchmarks with models and queries that others made."""

from __future__ import annotations

from benchmarks import markdown
from benchmarks.bars import Results, by_case


def converted(results: Results) -> str:
    """Write a line for each pipeline, with its ONNX file beside it."""
    measured = results.get("outside.converted")
    if not measured:
        return markdown.missing("outside.converted")
    lines = []
    for name, rows in by_case(measured["rows"]).items():
        own, file, onnx = (rows.get(way, {}) for way in ("sqlml", "sqlml file", "onnxruntime"))
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
