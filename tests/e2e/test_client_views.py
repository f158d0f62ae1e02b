"""Views that call models, in a client without Python that has loaded the runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from tests.e2e.macro_checks import CONFIG
from tests.support.runtime_clients import VIEWS, add_views, ask_client, create_shop, create_views

pytestmark = pytest.mark.version

QUERIES = (
    *(f"SELECT * FROM v_{name}" for name in VIEWS),
    "SELECT p, count(*) FROM v_label WHERE p IN (SELECT p FROM v_list) GROUP BY 1 ORDER BY 1",
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = create_shop(tmp_path_factory.mktemp("views") / "shop.duckdb")
    with sqlml.connect(path, config=CONFIG) as con:
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


def test_results_are_those_of_the_session(copy: Path) -> None:
    expected = read_in_session(copy)
    for query, got, want in zip(QUERIES, ask_client(copy, QUERIES), expected, strict=True):
        assert got == want, query
    with sqlml.connect(copy, config=CONFIG) as con:
        con.execute("SET sqlml_route = 'arrow'")
        create_views(con)
    for query, got, want in zip(QUERIES, ask_client(copy, QUERIES), expected, strict=True):
        assert got == want, f"{query}, of a view that packs the rows"


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


def test_views_cannot_be_created_in_a_database_that_is_read_only(copy: Path) -> None:
    with (
        sqlml.connect(copy, config=CONFIG, read_only=True) as con,
        pytest.raises(duckdb.InvalidInputException, match="CREATE.*read-only"),
    ):
        con.execute("CREATE VIEW w AS SELECT predict('value', *) AS p FROM t")


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


def test_a_session_on_a_connection_that_has_loaded_the_runtime(copy: Path) -> None:
    expected = read_in_session(copy)
    # The process of the test has loaded the library before.
    code = """
import duckdb, sqlml, sys
con = duckdb.connect(sys.argv[1], config={"allow_unsigned_extensions": "true"})
con.execute(f"LOAD '{sys.argv[2]}'")
first = con.execute("SELECT p FROM v_label").fetchall()
session = sqlml.attach(con)
assert con.execute("SELECT p FROM v_label").fetchall() == first
assert session.execute("SELECT p FROM v_label").fetchall() == first
assert session.execute("SELECT predict('churn', *) FROM t").fetchall() == first
assert con.execute("SELECT predict('churn', t) FROM t").fetchall() == first
session.execute("CREATE VIEW again AS SELECT predict('churn', *) AS p FROM t")
assert session.execute("FROM again").fetchall() == first
print(first)
"""
    command = [sys.executable, "-c", code, str(copy), str(LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, expected[0]), done.stderr


def test_views_of_an_earlier_version_are_compiled_again(copy: Path) -> None:
    with duckdb.connect(copy) as plain:
        keys = "UPDATE sqlml.catalog_compiled SET content = 'AAAA' || content[5:]"
        plain.execute(f"{keys} WHERE key LIKE 'sqlml%'")
    (damaged,) = ask_client(copy, QUERIES[:1])
    assert "another version" in damaged
    with sqlml.connect(copy, config=CONFIG) as con:
        con.compile_for_clients()
    assert ask_client(copy, QUERIES) == read_in_session(copy)
