"""Views that call models, in a client without Python that has loaded the runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from tests.e2e.macro_checks import CONFIG
from tests.support.runtime_clients import ask_client, create_shop

pytestmark = pytest.mark.version

VIEWS = {
    "label": "SELECT predict('churn', *) AS p FROM t",
    "proba": "SELECT predict_proba('churn', *) AS p FROM t",
    "class": "SELECT predict_proba('churn', *, class := 'stays') AS p FROM t",
    "list": "SELECT predict('churn', *) AS p, predict_proba('churn', *) AS q FROM t",
    "struct": "SELECT predict('churn', *) AS p, predict_proba('churn', *, class := 'stays') AS q "
    "FROM t",
    "line": "SELECT predict('value', *) AS p FROM t",
    "two": "SELECT predict('two', *) AS p, predict_proba('two', *) AS q FROM t",
    "probas": "SELECT predict_proba('two', *) AS q FROM t",
    "scaled": "SELECT transform('scaled', *) AS p FROM t",
    "wide": "SELECT predict('wide', *) AS p FROM wide",
    "words": "SELECT predict('words', word) AS p FROM words",
    "constant": "SELECT predict('churn', a, 3, 'Bonn') AS p FROM t",
    "explained": "SELECT explain('churn', *) AS p FROM t",
    "grouped": "SELECT predict('churn', *) AS p, avg(a) AS mean FROM t GROUP BY ALL ORDER BY ALL",
    "filtered": "SELECT a, city FROM t WHERE predict_proba('churn', *, class := 'stays') > 0.6",
    "joined": "SELECT u.a, predict('churn', t.*) AS p FROM t JOIN t AS u ON t.b = u.b",
    "outer_joined": "SELECT x, predict('careful', t.a, t.b) AS p "
    "FROM range(9) AS r(x) LEFT JOIN t ON b = x AND x > 5",
    "ranked": "SELECT a FROM t ORDER BY predict_proba('churn', *, class := 'stays'), a LIMIT 9",
    "quoted": "SELECT predict('it''s a name', *) AS p FROM t",
    "careful": "SELECT predict('careful', NULL, b) AS p, predict('careful', *) AS q FROM t",
    "yes": "SELECT predict_proba('yes', *) AS p FROM t",
    "view": "SELECT p, count(*) FROM v_label GROUP BY 1 ORDER BY 1",
}
"""Queries of views, and the ends of their names."""

QUERIES = (
    *(f"SELECT * FROM v_{name}" for name in VIEWS),
    "SELECT p, count(*) FROM v_label WHERE p IN (SELECT p FROM v_list) GROUP BY 1 ORDER BY 1",
)


def add_views(con: sqlml.Session) -> None:
    for name, query in VIEWS.items():
        con.execute(f"CREATE OR REPLACE VIEW v_{name} AS {query}")


@pytest.fixture(scope="module", params=["auto", "arrow"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with views that a session of one route has created."""
    path = create_shop(tmp_path_factory.mktemp("views") / "shop.duckdb")
    rng = np.random.default_rng(1)
    wide = pd.DataFrame(rng.normal(size=(40, 120)), columns=[f"x{k}" for k in range(120)])
    words = pd.DataFrame({"word": ["Käse und Brot", "bread", "cheese bread", "", "brot"] * 9})
    tree = make_pipeline(StandardScaler(), DecisionTreeRegressor(max_depth=3, random_state=0))
    text = make_pipeline(HashingVectorizer(n_features=64), SGDClassifier(random_state=0))
    with sqlml.connect(path, config=CONFIG) as con:
        con.register("wide_rows", wide)
        con.execute("CREATE TABLE wide AS FROM wide_rows")
        con.register("word_rows", words)
        con.execute("CREATE TABLE words AS FROM word_rows")
        con.create_model("wide", tree.fit(wide, wide.x3 + wide.x7), verify=False)
        labels = words.word.str.contains("bread")
        con.create_model("words", text.fit(words.word, labels), verify=False)
        con.execute(f"SET sqlml_route = '{request.param}'")
        add_views(con)
    return path


@pytest.fixture
def copy(shop: Path, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "copy.duckdb"
    path.write_bytes(shop.read_bytes())
    yield path
    path.unlink()


def read_in_session(path: Path, queries: tuple[str, ...] = QUERIES) -> list[str]:
    with sqlml.connect(path, config=CONFIG, read_only=True) as con:
        return [repr(con.execute(query).fetchall()) for query in queries]


def test_results_are_those_of_the_session(shop: Path) -> None:
    expected = read_in_session(shop)
    for query, got, want in zip(QUERIES, ask_client(shop, QUERIES), expected, strict=True):
        assert got == want, query


def test_errors_name_the_column(copy: Path) -> None:
    with sqlml.connect(copy, config=CONFIG) as con:
        con.execute(
            "CREATE VIEW rome AS SELECT predict('churn', 1, 2, x) FROM (SELECT 'Rome') AS r(x)"
        )
        con.execute("CREATE VIEW missing AS SELECT predict('value', a, 'NaN'::DOUBLE) FROM t")
        con.execute("CREATE VIEW python AS SELECT predict('python', *) FROM t")
    rome, missing, python = ask_client(copy, ("FROM rome", "FROM missing", "FROM python"))
    assert "'city' has" in rome
    assert "'b' has NULL or NaN" in missing
    assert "needs a session of sqlml" in python


def list_macros(path: Path) -> list[str]:
    """Return the names of the macros of views, and check that each has data."""
    with duckdb.connect(path) as plain:
        macros = plain.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE schema_name = 'sqlml' "
            "AND function_name LIKE 'sqlml%' ORDER BY 1"
        ).fetchall()
        keys = plain.execute(
            "SELECT key FROM sqlml.catalog_compiled WHERE key LIKE 'sqlml%' ORDER BY 1"
        ).fetchall()
    assert macros == keys
    return [str(name) for (name,) in macros]


def test_macros_that_no_view_calls_are_dropped_with_the_next_view(copy: Path) -> None:
    before = list_macros(copy)
    with sqlml.connect(copy, config=CONFIG) as con:
        con.execute("DROP VIEW v_explained")
        con.execute("CREATE OR REPLACE VIEW v_line AS SELECT 1 AS p")
        con.execute("CREATE OR REPLACE VIEW v_label AS SELECT predict('churn', *) AS p FROM t")
    after = list_macros(copy)
    assert any("contributions" in name for name in before)
    assert all("contributions" not in name for name in after)
    assert ask_client(copy, QUERIES[:2]) == read_in_session(copy, QUERIES[:2])


def test_a_view_says_that_its_model_was_dropped(copy: Path) -> None:
    with sqlml.connect(copy, config=CONFIG) as con:
        con.execute("DROP MODEL churn")
        con.execute("DROP MODEL yes")
    with sqlml.connect(copy, config=CONFIG) as con:
        with pytest.raises(sqlml.errors.UnknownModelError, match="create the view again"):
            con.execute("FROM v_label")
    (error,) = ask_client(copy, ("FROM v_label",))
    assert "create the view again" in error


def test_a_view_keeps_the_version_with_which_it_was_created(copy: Path) -> None:
    with sqlml.connect(copy, config=CONFIG) as con:
        before = con.execute("FROM v_line").fetchall()
        rows = con.execute("SELECT a, b FROM t").df()
        con.create_model("value", StandardScaler().fit(rows), or_replace=True, verify=False)
    (after,) = ask_client(copy, ("FROM v_line",))
    assert after == repr(before)


def test_failed_statements_leave_nothing(copy: Path) -> None:
    before = list_macros(copy)
    with sqlml.connect(copy, config=CONFIG) as con:
        with pytest.raises(duckdb.CatalogException, match="already exists"):
            con.execute("CREATE VIEW v_line AS SELECT predict('value', a, b + 1) AS p FROM t")
        con.execute("BEGIN")
        con.execute("CREATE VIEW gone AS SELECT predict_proba('it''s a name', a, 7) AS p FROM t")
        con.execute("ROLLBACK")
    assert list_macros(copy) == before


def test_views_of_other_schemas_and_databases(copy: Path, tmp_path: Path) -> None:
    expected = read_in_session(copy, QUERIES[:1])
    with sqlml.connect(config=CONFIG) as con:
        con.execute(f"ATTACH '{copy}' AS laden")
        con.execute("CREATE SCHEMA laden.reports")
        con.execute("USE laden")
        con.sql("CREATE VIEW reports.p AS SELECT predict('churn', *) AS p FROM main.t")
        con.execute("CREATE TEMP VIEW p AS SELECT predict('churn', *) AS p FROM main.t")
        con.execute("USE memory")
        query = "SELECT predict('laden.churn', *) AS p FROM laden.main.t"
        con.execute(f"CREATE VIEW laden.reports.q AS {query}")
        con.execute(f"CREATE VIEW elsewhere AS {query}")
        for view in ("laden.reports.p", "laden.reports.q", "laden.v_label", "elsewhere"):
            assert repr(con.execute(f"FROM {view}").fetchall()) == expected[0], view
    assert ask_client(copy, ("FROM reports.p", "SELECT * FROM v_label")) == expected * 2


def test_views_in_a_copy_of_the_database(copy: Path, tmp_path: Path) -> None:
    expected = read_in_session(copy)
    folder = tmp_path / "folder"
    with sqlml.connect(copy, config=CONFIG) as con:
        con.execute(f"EXPORT DATABASE '{folder}'")
    with sqlml.connect(tmp_path / "session.duckdb", config=CONFIG) as con:
        con.execute(f"IMPORT DATABASE '{folder}'")
        assert [repr(con.execute(query).fetchall()) for query in QUERIES] == expected
    code = """
import duckdb, sys
con = duckdb.connect(sys.argv[1], config={"allow_unsigned_extensions": "true", **eval(sys.argv[4])})
con.execute(f"LOAD '{sys.argv[2]}'")
con.execute(f"IMPORT DATABASE '{sys.argv[3]}'")
"""
    client = tmp_path / "client.duckdb"
    arguments = [str(client), str(LIBRARY), str(folder), repr(CONFIG)]
    subprocess.run([sys.executable, "-I", "-c", code, *arguments], check=True)
    assert ask_client(client, QUERIES) == expected


def test_views_of_an_earlier_version_are_compiled_again(copy: Path) -> None:
    with duckdb.connect(copy) as plain:
        keys = "UPDATE sqlml.catalog_compiled SET content = 'AAAA' || content[5:]"
        plain.execute(f"{keys} WHERE key LIKE 'sqlml%'")
    (damaged,) = ask_client(copy, QUERIES[:1])
    assert "another version" in damaged
    with sqlml.connect(copy, config=CONFIG) as con:
        con.compile_for_clients()
    assert ask_client(copy, QUERIES) == read_in_session(copy)
