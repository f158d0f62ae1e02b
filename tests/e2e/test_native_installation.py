"""Native functions and their host: settings, files, forks, and where Arrow takes their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlml
from sqlml.errors import BackendError
from sqlml.udfs.duckdb.native import extension
from sqlml.udfs.duckdb.native.extension import open_native_connection
from tests.e2e import child
from tests.e2e.native_models import NEEDS_NATIVE, models, people, routes, simple

pytestmark = NEEDS_NATIVE

SETTINGS = "SELECT name, value FROM duckdb_settings() WHERE name <> 'memory_limit' ORDER BY name"


def test_nothing_is_set_and_a_closed_file_is_free(tmp_path: Path) -> None:
    path = tmp_path / "own.duckdb"
    with duckdb.connect(path) as plain:
        before = plain.execute(SETTINGS).fetchall()
        session = sqlml.attach(plain)
        session.create_model("m", simple())
        query = "SELECT predict('m', a := 1, b := 2, c := 3)"
        assert routes(session, query) == ["native"]
        want = session.execute(query).fetchall()
        assert plain.execute(SETTINGS).fetchall() == before
        with duckdb.connect(path) as second:  # with the settings of the first
            assert second.execute(SETTINGS).fetchall() == before
        session.close()
    with sqlml.connect(path) as again:
        assert again.execute(query).fetchall() == want
    ask = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('CREATE TABLE free AS SELECT 1')"
    subprocess.run([sys.executable, "-c", ask, str(path)], check=True)


@pytest.mark.nightly
def test_a_session_that_is_left_lets_go_of_its_file(tmp_path: Path) -> None:
    script = """
import subprocess, sys
import sqlml
from tests.e2e.native_models import simple

path = sys.argv[1]
con = sqlml.connect(path)
con.create_model("m", simple())
print(con.execute("SELECT predict('m', a := 1, b := 2, c := 3)").fetchall())
del con
ask = "import duckdb, sys; duckdb.connect(sys.argv[1]).execute('CREATE TABLE free AS SELECT 1')"
subprocess.run([sys.executable, "-c", ask, path], check=True)
kept = sqlml.connect(path)  # the end of the process closes it, and writes its log into it
kept.execute("SELECT predict('m', a := 1, b := 2, c := 3)").fetchall()
kept.execute("CREATE TABLE late AS SELECT 1")
"""
    folder = tmp_path / "data"
    folder.mkdir()
    child.printed(script, tmp_path, str(folder / "left.duckdb"))
    assert [p.name for p in folder.iterdir()] == ["left.duckdb"]


READ = """
import sys
import sqlml

with sqlml.connect(sys.argv[1]) as con:
    print(con.execute("SELECT sum(hash(y)), sum(hash(p)) FROM scored").fetchall())
    print(con.execute("SELECT sum(hash(y)), sum(hash(p)) FROM again").fetchall())
    plan = con.plan("SELECT predict('hot', *) FROM t").to_dict()
    print(plan["calls"][0]["route"])
    parts = "predict('hot', *) AS y, predict_proba('hot', *, class := 'low') AS p"
    print(con.execute(f"SELECT sum(hash(y)), sum(hash(p)) FROM (SELECT {parts} FROM t)").fetchall())
    print(con.explain("SELECT predict('hot', *) FROM t").split("route")[1].split(" rows ")[0])
"""


def test_views_are_read_by_either_route(tmp_path: Path) -> None:
    path = tmp_path / "views.duckdb"
    with sqlml.connect(path) as con:
        con.register("made", people())
        con.execute("CREATE TABLE t AS SELECT * FROM made")
        con.create_model("hot", models()["hot"])
        parts = "predict('hot', *) AS y, predict_proba('hot', *, class := 'low') AS p"
        con.execute(f"CREATE VIEW scored AS SELECT {parts} FROM t")
        con.execute("SET sqlml_route = 'arrow'")
        con.execute(f"CREATE VIEW again AS SELECT {parts} FROM t")
    native = child.printed(READ, tmp_path, str(path)).splitlines()
    arrow = child.printed(READ, tmp_path, str(path), SQLML_NATIVE_FUNCTIONS="0").splitlines()
    assert (native[2], arrow[2]) == ("native", "arrow")
    assert native[0] == native[1] == native[3] == arrow[0] == arrow[1] == arrow[3]
    assert "SQLML_NATIVE_FUNCTIONS is 0" in arrow[4]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"allow_extension_repositories": "forbidden"}, "signature"),
        ({"enable_external_access": "false"}, "file system operations are disabled"),
        ({"home_directory": "/proc/nobody"}, "could not install them"),
    ],
)
def test_where_they_cannot_be_had_rows_go_by_arrow(config: dict[str, Any], why: str) -> None:
    with sqlml.connect(config=config) as con:
        con.create_model("m", simple())
        query = "SELECT predict('m', a := 1, b := 2, c := 3)"
        assert routes(con, query) == ["arrow"]
        assert why in " ".join(con.explain(query).split())
        assert len(con.execute(query).fetchall()) == 1
        con.execute("SET sqlml_route = 'native'")
        with pytest.raises(BackendError, match="the native route is not available.*RESET"):
            con.execute(query)


def test_a_runtime_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that calls a function of such a runtime would end the process."""
    monkeypatch.setattr(extension, "fits_package", lambda: False)
    with sqlml.connect() as con:
        con.create_model("m", simple())
        query = "SELECT predict('m', a := 1, b := 2, c := 3)"
        assert "built from other sources; run `make runtime`" in con.explain(query)
        assert con.execute(query).fetchall()


def test_a_file_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    content = bytearray((extension.BUILT / extension.EXTENSION).read_bytes())
    content[200] ^= 1
    (built / extension.EXTENSION).write_bytes(content)
    (built / extension.PUBLIC_KEY).write_bytes(
        (extension.BUILT / extension.PUBLIC_KEY).read_bytes()
    )
    with duckdb.connect(config={"home_directory": str(tmp_path)}) as con:
        with pytest.raises(extension.Unavailable, match="signature"):
            open_native_connection(con, built)


def test_a_damaged_copy_is_installed_again(tmp_path: Path) -> None:
    with duckdb.connect(config={"home_directory": str(tmp_path)}) as con:
        found = extension.ensure_installed(con)
        whole = found.path.read_bytes()
        found.path.write_bytes(whole[:-1])
        assert extension.ensure_installed(con) == found and found.path.read_bytes() == whole
        open_native_connection(con).close()


@pytest.mark.nightly
def test_two_databases_and_a_fork(tmp_path: Path) -> None:
    script = """
import os
import sqlml
from tests.e2e.native_models import routes, simple

query = "SELECT predict('m', a := 1, b := 2, c := 3)"
first, second = sqlml.connect(), sqlml.connect("second.duckdb")
for con in (first, second):
    con.create_model("m", simple())
    assert routes(con, query) == ["native"]
want = first.execute(query).fetchall()
assert second.execute(query).fetchall() == want
first.close()
assert second.execute(query).fetchall() == want
pid = os.fork()
if pid == 0:
    third = sqlml.connect("third.duckdb")
    third.create_model("m", simple())
    right = third.execute(query).fetchall() == want
    third.close()
    os._exit(0 if right else 1)
assert os.waitpid(pid, 0)[1] == 0
assert second.execute(query).fetchall() == want
"""
    child.printed(script, tmp_path)


@pytest.mark.nightly
def test_they_can_be_taken_away(tmp_path: Path) -> None:
    ask = "import sys; from sqlml.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    home["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    assert "installed when they are first used" in child.printed(ask, tmp_path, "native", **home)
    use = (
        "import sqlml; from tests.e2e.native_models import simple; con = sqlml.connect(); "
        "con.create_model('m', simple()); "
        "con.execute(\"SELECT predict('m', a := 1, b := 2, c := 3)\")"
    )
    child.printed(use, tmp_path, **home)
    installed = list(tmp_path.rglob("*.duckdb_extension"))
    assert len(installed) == 1
    assert str(installed[0]) in child.printed(ask, tmp_path, "native", **home)
    assert "removed" in child.printed(ask, tmp_path, "native", "--remove", **home)
    assert not [p for p in tmp_path.rglob("*sqlml*") if p.is_file()]
    assert "nothing to remove" in child.printed(ask, tmp_path, "native", "--remove", **home)
