"""`plan_tree`: the engine's plan as a tree that fits a terminal, where its own boxes do not."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

_PLAIN_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?!ANALYZE\b|\()", re.IGNORECASE)

_ROWS = "Estimated Cardinality"


def as_json(sql: str) -> str | None:
    """The EXPLAIN that gives the same plan as JSON; None for EXPLAIN ANALYZE and with options."""
    found = _PLAIN_EXPLAIN.match(sql)
    return None if found is None else "EXPLAIN (FORMAT json) " + sql[found.end() :]


def plan_tree(plan: str, width: int) -> str:
    """A plan that the engine gave as JSON, an operator above what it reads, in lines of `width`
    characters at most."""
    return "".join(f"{line}\n" for node in json.loads(plan) for line in _lines(node, "", width))


def folded_lines(text: str, width: int) -> str:
    """A text whose long lines go on below, under the column of values of the plan of models."""
    return "\n".join(
        folded
        for line in text.splitlines()
        for folded in textwrap.wrap(line, max(width, 40), subsequent_indent=" " * 20) or [""]
    )


def _lines(node: Any, indent: str, width: int) -> Iterator[str]:
    children = node["children"]
    about = dict(node["extra_info"])
    rows = about.pop(_ROWS, None)
    told = [f"{key}: {_text(value)}" for key, value in about.items() if value not in ("", [])]
    if rows is not None:
        told.append(f"~{int(rows):,} rows" if rows != "1" else "~1 row")
    begin = indent + node["name"].strip().replace("_", " ").title()
    follow = indent + ("│   " if children else "    ")
    yield begin[:width]
    for text in told:
        yield from textwrap.wrap(
            text,
            max(width, len(follow) + 20),
            initial_indent=follow,
            subsequent_indent=follow + "  ",
        )
    for place, child in enumerate(children):
        is_last = place == len(children) - 1
        deeper = indent if len(children) == 1 else indent + ("    " if is_last else "│   ")
        first, *others = _lines(child, deeper, width)
        if len(children) > 1:
            first = indent + ("└── " if is_last else "├── ") + first[len(deeper) :]
        yield first
        yield from others


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
