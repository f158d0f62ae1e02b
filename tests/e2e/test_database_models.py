"""The models of a database in a client without Python, which has loaded the runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from tests.e2e.macro_checks import CONFIG
from tests.support.runtime_clients import ask_client, create_shop

pytestmark = pytest.mark.version


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_shop(tmp_path_factory.mktemp("models") / "shop.duckdb")


QUERIES = (
    "SELECT predict('churn', t) FROM t",
    "SELECT predict_proba('churn', t) FROM t",
    "SELECT predict_proba('churn', t, 'stays') FROM t",
    "SELECT predict_proba('yes', t), predict_proba('yes', t, 'leaves') FROM t",
    "SELECT predict('value', t) FROM t WHERE predict('churn', t) = 'stays'",
    "SELECT predict('careful', {'a': NULL, 'b': 1}), predict('careful', {'a': 1, 'b': 2})",
    "SELECT transform('scaled', t) FROM t",
    "SELECT predict('two', t), predict_proba('two', t) FROM t",
    "SELECT predict('it''s a name', t), predict_proba('it''s a name', t, true) FROM t",
    "SELECT predict('churn', t), count(*) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT max(predict('value', t)) OVER (ORDER BY a) FROM t ORDER BY a",
    "SELECT count(*) FROM t JOIN t AS u USING (a, b) WHERE predict('churn', u) = 'stays'",
    "WITH p AS (SELECT predict('churn', t) AS p FROM t) SELECT p, count(*) FROM p GROUP BY 1 "
    "ORDER BY 1",
    "SELECT (SELECT count(*) FROM t AS u WHERE predict('value', u) > predict('value', t)) FROM t "
    "LIMIT 9",
    "SELECT predict('value', {'a': 1.5::DECIMAL(9, 2), 'b': true})",
    "SELECT name, versions FROM sqlml.models ORDER BY name",
)


def test_results_are_those_of_the_session(shop: Path) -> None:
    expected = []
    with sqlml.connect(shop, config=CONFIG, read_only=True) as con:
        for query in QUERIES:
            with con.connection.cursor() as plain:
                expected.append(repr(plain.execute(query).fetchall()))
    for query, got, want in zip(QUERIES, ask_client(shop, QUERIES), expected, strict=True):
        assert got == want, query


def test_errors_say_what_to_do(shop: Path) -> None:
    unknown, text, missing, python, absent = ask_client(
        shop,
        (
            "SELECT predict('churn', {'a': 1, 'b': 2, 'city': 'Rome'})",
            "SELECT predict('value', {'a': 'x', 'b': 2})",
            "SELECT predict('value', {'a': NULL, 'b': 2})",
            "SELECT predict('python', t) FROM t",
            "SELECT predict('nobody', t) FROM t",
        ),
    )
    assert "'Rome'" in unknown
    assert "takes numbers" in text
    assert "'a'" in missing or "NaN" in missing
    assert "Python" in python
    assert "nobody" in absent


def test_a_query_uses_the_model_that_its_transaction_sees(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "changing.duckdb"
    path.write_bytes(shop.read_bytes())
    code = """
import duckdb, sys
config = {"allow_unsigned_extensions": "true"}
con = duckdb.connect(sys.argv[1], config=config)
con.execute(f"LOAD '{sys.argv[2]}'")
other = con.cursor()
query = "SELECT predict('value', {'a': 1, 'b': 2})"
before = con.execute(query).fetchall()
con.execute("BEGIN")
assert con.execute(query).fetchall() == before
read = "SELECT content FROM sqlml.catalog_compiled WHERE key = 'careful'"
assert other.execute(read).fetchall()
other.execute("DELETE FROM sqlml.catalog_compiled WHERE key = 'value'")
assert con.execute(query).fetchall() == before
con.execute("COMMIT")
try:
    con.execute(query).fetchall()
except duckdb.Error as error:
    assert "no machine code" in str(error), error
else:
    raise AssertionError
other.execute(f"INSERT INTO sqlml.catalog_compiled SELECT 'value', ({read})")
assert con.execute(query).fetchall() == before
"""
    subprocess.run([sys.executable, "-I", "-c", code, str(path), str(LIBRARY)], check=True)


def test_models_of_an_earlier_version_are_compiled_again(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    path.write_bytes(shop.read_bytes())
    with duckdb.connect(path) as plain:
        plain.execute("DELETE FROM sqlml.catalog_compiled WHERE key < 'd'")
        keys = "UPDATE sqlml.catalog_compiled SET content = 'AAAA' || content[5:]"
        plain.execute(f"{keys} WHERE key = 'value'")
    queries = ("SELECT predict('churn', t) FROM t", "SELECT predict('value', t) FROM t")
    without, damaged = ask_client(path, queries)
    assert "no machine code" in without and "another version" in damaged
    with sqlml.connect(path, config=CONFIG) as con:
        assert con.compile_for_clients() == 8
    assert ask_client(path, queries) == ask_client(shop, queries)


def test_a_session_and_the_runtime_in_one_process(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.duckdb"
    path.write_bytes(shop.read_bytes())
    query = "SELECT predict('value', {'a': 1, 'b': 2})"
    refused = "SELECT predict('value', {'a': NULL, 'b': 2})"
    with sqlml.connect(shop, config=CONFIG, read_only=True) as con:
        scored = "SELECT predict('value', *) FROM (SELECT 1 AS a, 2 AS b)"
        want = con.execute(scored).fetchall()
        with duckdb.connect(path, config={"allow_unsigned_extensions": "true"}) as plain:
            plain.execute(f"LOAD '{LIBRARY}'")
            assert plain.execute(query).fetchall() == want
            with pytest.raises(duckdb.Error, match="'a'"):
                plain.execute(refused)
        assert con.execute(scored).fetchall() == want


def test_many_threads_score_while_the_database_is_detached_and_closed(
    shop: Path, tmp_path: Path
) -> None:
    path = tmp_path / "attached.duckdb"
    path.write_bytes(shop.read_bytes())
    code = """
import duckdb, os, sys, threading
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
con.execute(f"LOAD '{sys.argv[2]}'")
con.execute(f"ATTACH '{sys.argv[1]}' AS shop")
scored = []

def score(cursor):
    try:
        cursor.execute("USE shop")
        while True:
            query = "SELECT count(predict('churn', t)) FROM t, range(50)"
            scored.append(cursor.execute(query).fetchall())
    except duckdb.Error:
        pass  # The database has gone.

cursors = [con.cursor() for _ in range(5)]
threads = [threading.Thread(target=score, args=(cursor,)) for cursor in cursors[1:]]
for thread in threads:
    thread.start()
while len(scored) < 20:
    pass
for end in (lambda: cursors[0].execute("DETACH shop"), con.close, cursors[0].close):
    try:
        end()
    except duckdb.Error:
        pass  # It is in use.
assert set(map(str, scored)) == {"[(10000,)]"}, scored[:3]
print("scored")
sys.stdout.flush()
os._exit(0)  # The threads may still score.
"""
    command = [sys.executable, "-I", "-c", code, str(path), str(LIBRARY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "scored\n"), done.stderr
