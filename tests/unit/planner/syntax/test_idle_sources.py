"""What a query computes for single columns, and what of it only the full model of a cascade needs.

Each statement is about these tables; slow(x) and artist(k), which gives a struct of f and g, are
functions of the user's. The model reads x, which its small model needs, and what else is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from sqlml.planner.syntax.lineage import find_feature_sources
from sqlml.planner.syntax.read_outline import read_outline
from sqlml.planner.syntax.top_k import CallsOfQuery, CascadedCall, find_idle_sources

TABLES: Mapping[str, list[str]] = {
    "songs": ["id", "k", "x", "y", "genre"],
    "artists": ["k", "f", "g", "town"],
    "genres": ["genre", "name"],
    "plays": ["k", "v"],
}
RETURNED = {"slow": "DOUBLE", "artist": "STRUCT(f DOUBLE, g DOUBLE)", "several": "DOUBLE[]"}
JOINED = "songs s LEFT JOIN artists a ON s.k = a.k"


def columns(query: str) -> list[str]:
    found = re.fullmatch(r"SELECT \* FROM (\w+)", query)
    return TABLES[found[1]] if found else ["x", "f", "g"]


def returned(name: str) -> str | None:
    return RETURNED.get(name.lower())


@pytest.mark.parametrize(
    ("query", "needs"),
    [
        (f"SELECT s.x, a.f, a.g FROM {JOINED}", {"f": "join a", "g": "join a"}),
        (f"SELECT x, f + x AS f, g FROM {JOINED}", {"f": "join a", "g": "join a"}),
        (
            "SELECT x, m AS f, m + n AS g FROM songs LEFT JOIN (SELECT k, avg(v) m, max(v) n "
            "FROM plays GROUP BY k) p USING (k)",
            {"f": "join p", "g": "join p"},
        ),
        (
            f"WITH w AS (SELECT s.x, a.* FROM {JOINED}) SELECT x, f, slow(x) AS g FROM w",
            {"f": "join a", "g": "slow(x)"},
        ),
        (
            "SELECT * FROM (SELECT x, slow(y) AS f, 1 AS g FROM songs) AS q",
            {"f": "slow(y)"},
        ),
        (
            "SELECT s.x, unnest(artist(s.k)) FROM songs s",
            {"f": "artist(s.k)", "g": "artist(s.k)"},
        ),
        (
            "FROM (SELECT s.x, unnest(artist(s.k)) FROM songs s) SELECT x, f, g",
            {"f": "artist(s.k)", "g": "artist(s.k)"},
        ),
        ("SELECT x, f, g FROM songs s JOIN artists a ON s.k = a.k", {}),
        ("SELECT x, abs(y) AS f, genre AS g FROM songs", {}),
        ("SELECT x, y AS f, y AS g FROM songs UNION ALL SELECT 1, 2, 3", {}),
        ("SELECT x, (SELECT", {}),
    ],
)
def test_what_columns_need(query: str, needs: Mapping[str, str]) -> None:
    found = find_feature_sources(query, columns, returned)
    assert {c: s.name for c, of in found.items() for s in of} == needs


def idle(query: str, *features: str) -> list[tuple[str, Mapping[str, str]]]:
    """What is idle in a query, and the small model's features where that stands."""
    outline = read_outline(query)
    cascaded, exact = [], []
    for call in outline.calls:
        assert call.block is not None
        if call.function == "predict":
            reads = {name: name for name in ("x", *features)}
            cascaded.append(CascadedCall(call.span, call.block.span, reads, frozenset({"x"})))
        else:
            exact += [(call.block.span, name) for name in ("x", *features)]
    spans = [call.span for call in outline.calls]
    found = find_idle_sources(query, CallsOfQuery(cascaded, exact, spans, columns, returned))
    return [(i.source.name, i.features) for i in found]


@pytest.mark.parametrize(
    ("query", "features", "wanted"),
    [
        (f"SELECT s.id, predict('m', *) FROM {JOINED}", "f g", ("join a", {"x": "x"})),
        (f"SELECT count(*) FROM {JOINED} WHERE predict('m', *) = 1", "f", ("join a", {"x": "x"})),
        (
            "SELECT id, predict('m', *) FROM (SELECT *, slow(y) AS z FROM songs) q WHERE id > 3",
            "z",
            ("slow(y)", {"x": '"songs"."x"'}),
        ),
        (
            "SELECT id, predict('m', *) FROM (SELECT id, y + 1 AS x, slow(y) AS z FROM songs) q",
            "z",
            ("slow(y)", {"x": "(y + 1)"}),
        ),
        (
            f"WITH w AS (SELECT id, x, f FROM {JOINED}) SELECT id, predict('m', *) FROM w",
            "f",
            ("join a", {"x": "(x)"}),
        ),
        (
            "SELECT id, predict('m', *) FROM (FROM (SELECT s.*, unnest(artist(k)) FROM songs s))",
            "f",
            ("artist(k)", {"x": '"s"."x"'}),
        ),
        (
            "SELECT id, predict('m', *) FROM (SELECT *, slow(y) AS z FROM songs) q GROUP BY ALL",
            "z",
            ("slow(y)", {"x": '"songs"."x"'}),
        ),
        (
            "SELECT id, predict('m', *) FROM (SELECT *, slow(y) AS z FROM songs LIMIT 9) q",
            "z",
            ("slow(y)", {"x": '"songs"."x"'}),
        ),
    ],
)
def test_what_only_unsure_rows_need(
    query: str, features: str, wanted: tuple[str, Mapping[str, str]]
) -> None:
    assert idle(query, *features.split()) == [wanted]


@pytest.mark.parametrize(
    ("query", "features"),
    [
        # somebody else reads it
        (f"SELECT s.id, town, predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT *, predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT a.k, predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT s.id, predict('m', *) FROM {JOINED} WHERE town = 'x'", "f"),
        (f"SELECT s.id, predict('m', *) FROM {JOINED} ORDER BY town", "f"),
        (f"SELECT max(town), predict('m', *) FROM {JOINED} GROUP BY ALL", "f"),
        (f"SELECT s.id, predict('m', *), predict_proba('m', *) FROM {JOINED}", "f"),
        (
            f"SELECT s.id, predict('m', *) FROM {JOINED} LEFT JOIN genres g ON a.town = g.name",
            "f",
        ),
        (
            "SELECT id, predict('m', *) FROM (SELECT *, slow(y) AS z FROM songs) q "
            "WHERE EXISTS (SELECT 1 FROM genres WHERE name = z)",
            "z",
        ),
        (
            "SELECT id, (SELECT max(z) FROM genres), predict('m', *) "
            "FROM (SELECT *, slow(y) AS z FROM songs) q",
            "z",
        ),
        ("SELECT *, predict('m', *) FROM (SELECT s.*, unnest(artist(k)) FROM songs s)", "f"),
        ("SELECT g, predict('m', *) FROM (SELECT s.*, unnest(artist(k)) FROM songs s)", "f"),
        (f"SELECT a, predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT COLUMNS('t.*n'), predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT hash(a.*), predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT struct_pack(*), predict('m', *) FROM {JOINED}", "f"),
        (f"SELECT s.id, v, predict('m', *) FROM {JOINED}, LATERAL (SELECT a.town AS v)", "f"),
        (
            f"SELECT s.id, predict('m', *), (SELECT max(v) FROM plays p WHERE p.k = a.k) "
            f"FROM {JOINED}",
            "f",
        ),
        # the small model reads it
        ("SELECT predict('m', *) FROM (SELECT slow(y) AS x, slow(y) AS z FROM songs)", ""),
        # what the small model reads may be another when it is read again
        ("SELECT predict('m', *) FROM (SELECT random() AS x, slow(y) AS z FROM songs)", "z"),
        # the result of a row depends on others
        ("SELECT predict('m', *) FROM (SELECT DISTINCT x, slow(y) AS z FROM songs) q", "z"),
        ("SELECT predict('m', *) FROM (SELECT x, avg(slow(y)) z FROM songs GROUP BY x)", "z"),
        ("SELECT predict('m', *) FROM (SELECT x, avg(slow(y)) OVER () AS z FROM songs)", "z"),
        (
            "SELECT predict('m', *) FROM (SELECT *, slow(y) AS z FROM songs "
            "QUALIFY row_number() OVER (ORDER BY z) < 3)",
            "z",
        ),
        # an empty list would take the row away
        ("SELECT predict('m', *) FROM (SELECT x, unnest(several(y)) AS z FROM songs)", "z"),
        # it brings rows, or takes them away
        ("SELECT predict('m', *) FROM songs s JOIN artists a ON s.k = a.k", "f"),
        ("SELECT predict('m', *) FROM artists a RIGHT JOIN songs s ON s.k = a.k", "f"),
        # not one query
        ("SELECT predict('m', *) FROM songs; SELECT 1", "y"),
    ],
)
def test_what_others_need_too(query: str, features: str) -> None:
    assert idle(query, *features.split()) == []


def test_names_of_ours_in_the_user_s_tables_are_the_user_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TABLES, "artists", ["k", "f", "g", "sqlml_0", "sqlml_1"])  # type: ignore[arg-type]
    assert idle(f"SELECT sqlml_0, predict('m', *) FROM {JOINED}", "f") == []
    assert idle(f"SELECT a.*, predict('m', *) FROM {JOINED}", "f") == []
    assert idle(f"SELECT id, predict('m', *) FROM {JOINED}", "f") == [("join a", {"x": "x"})]
