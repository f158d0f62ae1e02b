"""Tables of models in other databases: how fast they score, and how large they may be."""

from __future__ import annotations

import re
from typing import Any

from benchmarks import markdown
from benchmarks.bars import Results

_WAYS = {
    "sqlml": "sqlml, ns per row",
    "nodes of sqlml": "nodes / sqlml",
    "function of sqlml": "function / sqlml",
    "fetch, then sqlml": "fetch / sqlml",
    "orbital": "orbital / sqlml",
    "orbital, trees apart": "orbital, separate trees / sqlml",
}
"""Contender -> the head of its column; all but the first say how many times as long they take."""

_NAMES = {
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "postgres": "PostgreSQL",
    "postgres-jit": "PostgreSQL, JIT",
    "mariadb": "MariaDB",
    "clickhouse": "ClickHouse",
}


def databases(results: Results) -> str:
    """A line for each database and model, with a star where numbers are not the library's."""
    found = results.get("databases")
    if not found:
        return markdown.missing("databases")
    rows = {
        (r["case"]["database"], r["case"]["model"], r["contender"]): r
        for r in found["rows"]
        if r["case"]["model"] != "largest"
    }
    lines = []
    for database, model in dict.fromkeys(key[:2] for key in rows):
        own = {way: rows.get((database, model, way), {}) for way in _WAYS}
        first, *others = own.values()
        cells = [markdown.ns(first.get("ns")), *map(_times, others)]
        sizes = [_characters(own[way]) for way in ("sqlml", "orbital")]
        lines.append(f"| {_NAMES[database]} | {model} | {' | '.join([*cells, *sizes])} |")
    head = ["database", "model", *_WAYS.values(), "characters, sqlml", "characters, orbital"]
    return markdown.table(head, lines)


def largest_models(results: Results) -> str:
    """How many trees each database takes, and why no more."""
    found = results.get("databases")
    if not found:
        return markdown.missing("databases")
    lines = []
    for row in found["rows"]:
        if row["case"]["model"] == "largest":
            taken, _, why = row["note"].partition("; ")
            why = why.replace("no more were tried", "larger models were not tried")
            why = re.sub(r"^of ([\d,]+): ", r"with \1 trees, ", why)
            name = _NAMES[row["case"]["database"]]
            lines.append(f"| {name} | {taken} | {markdown.ns(row.get('ns'))} | {why} |")
    head = ["database", "largest model", "ns per row", "reason for the limit"]
    return markdown.table(head, lines)


def _times(row: dict[str, Any]) -> str:
    if "ratio" not in row:
        return "-"
    return markdown.ratio(row["ratio"]) + ("" if row.get("exact") else "\\*")


def _characters(row: dict[str, Any]) -> str:
    note = str(row.get("note", ""))
    return note.removesuffix(" characters") if note.endswith(" characters") else "-"
