"""Queries that want the best rows by a call, and which table of them may be filtered.

The tables, functions and features are those of `test_idle_sources`.
"""

from __future__ import annotations

import pytest

from sqlml.planner.syntax.read_outline import read_outline
from sqlml.planner.syntax.top_k import (
    MIXED_ROWS,
    UNSUPPORTED_QUERY,
    CallsOfQuery,
    CascadedCall,
    TopK,
    find_top_k,
)
from tests.unit.planner.syntax.test_idle_sources import JOINED, columns, returned

CALL = "predict_score('m', *)"


def found(query: str, *features: str) -> TopK | str:
    outline = read_outline(query)
    first, *others = outline.calls
    assert first.block is not None
    reads = {name: name for name in ("x", *features)}
    exact = [(c.block.span, name) for c in others if c.block for name in reads]
    call = CascadedCall(first.span, first.block.span, reads, frozenset({"x"}))
    spans = [c.span for c in outline.calls]
    return find_top_k(query, CallsOfQuery([call], exact, spans, columns, returned))


@pytest.mark.parametrize(
    ("query", "features", "wanted"),
    [
        (f"SELECT id FROM songs ORDER BY {CALL} DESC LIMIT 20", "y", (20, "songs", [], [], [])),
        (
            f"SELECT id, {CALL} AS p FROM songs s WHERE y > 3 AND id < 9 ORDER BY p DESC, id "
            "LIMIT 5 OFFSET 10",
            "y",
            (15, "songs s", ["y > 3", "id < 9"], [], []),
        ),
        (
            f"SELECT id, {CALL} FROM songs ORDER BY 2 DESC LIMIT 7",
            "y",
            (7, "songs", [], [], []),
        ),
        (
            f"SELECT s.id FROM {JOINED} ORDER BY {CALL} DESC LIMIT 20",
            "f",
            (20, "songs s", [], ["artists"], ["join a"]),
        ),
        (
            f"SELECT id FROM (SELECT *, slow(y) AS z FROM songs WHERE y > 0) q "
            f"ORDER BY {CALL} DESC LIMIT 20",
            "z",
            (20, "songs", ["y > 0"], [], ["slow(y)"]),
        ),
        (
            f"WITH w AS (SELECT s.*, a.f FROM {JOINED}) SELECT id FROM w "
            f"ORDER BY {CALL} DESC LIMIT 20",
            "f",
            (20, "songs s", [], ["artists"], ["join a"]),
        ),
        (
            f"SELECT count(*) FROM (SELECT id FROM songs ORDER BY {CALL} DESC LIMIT 20) q",
            "y",
            (20, "songs", [], [], []),
        ),
    ],
)
def test_which_table_is_filtered(
    query: str, features: str, wanted: tuple[int, str, list[str], list[str], list[str]]
) -> None:
    made = found(query, *features.split())
    assert isinstance(made, TopK), made

    def written(places: object) -> list[str]:
        return [query[p.start : p.end] for p in places]  # type: ignore[attr-defined]

    k, source, filters, joins, idle = wanted
    assert (made.k, written([made.source])) == (k, [source])
    assert (written(made.filters), written(made.joins)) == (filters, joins)
    assert list(made.idle_names) == idle


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (f"SELECT id FROM songs ORDER BY {CALL} LIMIT 20", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY {CALL} DESC", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY id, {CALL} DESC LIMIT 20", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY {CALL} + 1 DESC LIMIT 20", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY -{CALL} DESC LIMIT 20", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY {CALL} DESC LIMIT 20 + 3", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY {CALL} DESC LIMIT 20 PERCENT", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs ORDER BY {CALL} DESC LIMIT ?", UNSUPPORTED_QUERY),
        (f"SELECT DISTINCT y, {CALL} AS p FROM songs ORDER BY p DESC LIMIT 20", UNSUPPORTED_QUERY),
        (
            f"SELECT max(y), {CALL} AS p FROM songs GROUP BY ALL ORDER BY p DESC LIMIT 20",
            UNSUPPORTED_QUERY,
        ),
        (
            f"SELECT id, rank() OVER (ORDER BY y), {CALL} AS p FROM songs ORDER BY p DESC LIMIT 2",
            UNSUPPORTED_QUERY,
        ),
        (f"SELECT *, {CALL} FROM songs ORDER BY 2 DESC LIMIT 20", UNSUPPORTED_QUERY),
        (f"SELECT id FROM songs s, genres g ORDER BY {CALL} DESC LIMIT 20", MIXED_ROWS),
        (
            f"SELECT s.id FROM songs s JOIN artists a ON s.k = a.k ORDER BY {CALL} DESC LIMIT 20",
            MIXED_ROWS,
        ),
        (
            "SELECT id FROM (SELECT *, slow(y) AS z FROM songs LIMIT 100) q "
            f"ORDER BY {CALL} DESC LIMIT 20",
            MIXED_ROWS,
        ),
        (
            "SELECT id FROM (SELECT *, slow(y) AS z FROM songs) q WHERE id > 3 "
            f"ORDER BY {CALL} DESC LIMIT 20",
            "a condition stands outside",
        ),
        (
            "WITH w AS (SELECT *, slow(y) AS z FROM songs) SELECT id, (SELECT count(*) FROM w) "
            f"FROM w ORDER BY {CALL} DESC LIMIT 20",
            "several times",
        ),
    ],
)
def test_why_nothing_is_filtered(query: str, why: str) -> None:
    made = found(query, "y" if "slow" not in query else "z")
    assert isinstance(made, str) and why in made
