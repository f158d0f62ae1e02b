"""DuckDB's native functions: the same answers as by Arrow, and what they do to a database."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from xgboost import XGBClassifier

import sqlml
from sqlml.catalog.connection import IS_TWO
from sqlml.errors import BackendError, MissingValueError, SqlmlError, UnknownCategoryError
from sqlml.udfs.duckdb.native import functions as native_functions
from sqlml.udfs.duckdb.native import install
from sqlml.udfs.duckdb.native.connection import native_connection
from sqlml.udfs.parked_errors import claim

pytestmark = pytest.mark.skipif(
    not IS_TWO or not (install.BUILT / install.EXTENSION).is_file(),
    reason="needs DuckDB 2.0, and native functions that were built",
)

NUMBERS = ["a", "b", "c"]
TEXTS = ["city", "note"]
ROWS = 5000


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=NUMBERS)
    table["city"] = rng.choice(["Bern", "Genf", "Ulm", "Zürich", "", "北京"], ROWS)
    long = [f"a note of more than twelve bytes, {k}" for k in range(20)]
    table["note"] = rng.choice([*long, "short", "twelve bytes"], ROWS)
    return table


def models() -> dict[str, Any]:
    """Fitted models by name, those of texts too."""
    table = people().head(800)
    x, rng = table[NUMBERS], np.random.default_rng(1)
    y = np.digitize(table.a + table.b * table.c, [-0.5, 0.5])
    named = np.array(["low", "middle", "high"])[y]
    two = np.stack([y > 0, rng.integers(0, 2, len(y))], axis=1)
    hot = (OneHotEncoder(handle_unknown="ignore"), TEXTS)
    strict = make_column_transformer((OneHotEncoder(), TEXTS), (StandardScaler(), NUMBERS))
    coded = make_column_transformer(
        (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-9), TEXTS),
        remainder="passthrough",
    )
    forest = RandomForestClassifier(20, max_depth=5, random_state=0)
    return {
        "forest": forest.fit(x, named),
        "boosted": XGBClassifier(n_estimators=20, n_jobs=1).fit(x, y),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y > 0),
        "ridge": Ridge().fit(x, table.a),
        "targets": MultiOutputClassifier(LogisticRegression()).fit(x, two),
        "pair": RandomForestRegressor(5, max_depth=3).fit(x, table[["b", "c"]]),
        "near": KNeighborsClassifier(3).fit(x.head(200), named[:200]),
        "scaler": StandardScaler().fit(x),
        "hot": make_pipeline(
            make_column_transformer(hot, (StandardScaler(), NUMBERS)), LogisticRegression()
        ).fit(table, named),
        "strict": make_pipeline(strict, LogisticRegression()).fit(table, y > 0),
        "coded": make_pipeline(coded, clone_of(forest)).fit(table, named),
    }


def clone_of(model: Any) -> Any:
    from sklearn.base import clone

    return clone(model)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("made", people())
        con.execute("CREATE TABLE t AS SELECT row_number() OVER () AS id, * FROM made")
        con.execute(
            "CREATE TABLE holes AS SELECT * REPLACE (CASE WHEN id % 7 THEN b END AS b, "
            "CASE WHEN id % 5 THEN city END AS city, "
            "CASE WHEN id % 11 THEN note ELSE 'a note that nobody has seen' END AS note) FROM t"
        )
        for name, model in models().items():
            con.create_model(name, model)
            if name != "scaler":
                con.create_model(f"{name}_null", model, on_null="null")
        yield con


QUERIES = [
    "SELECT id, predict('forest', *), predict_proba('forest', *, class := 'low') FROM {t}",
    "SELECT id, predict('boosted', *) AS y, predict_proba('boosted', *) AS p FROM {t}",
    "SELECT id, predict_score('boosted', *), predict('ridge', *) FROM {t}",
    "SELECT id, transform('scaler', *) FROM {t}",
    "SELECT id, predict('targets_null', *), predict_proba('targets_null', *) FROM {t}",
    "SELECT id, predict('pair', *) FROM {t}",
    "SELECT id, predict('near_null', *), predict_proba('near_null', *, class := 'low') FROM {t}",
    "SELECT id, predict('hot_null', *), predict_proba('hot_null', *) FROM {t}",
    "SELECT id, predict('coded', *) FROM {t}",
    "SELECT id, predict('logistic_null', *) FROM {t} WHERE predict('logistic_null', *)",
    "SELECT id, TRY(predict('near', *)), TRY(predict('strict', *)) FROM {t}",
    "SELECT x.id, predict('forest', y.*) FROM {t} x LEFT JOIN {t} y ON y.id = x.id + 4990",
    "SELECT count(*) FROM {t} x LEFT JOIN {t} y ON y.id = x.id + 4990 "
    "WHERE predict('logistic_null', y.*)",
    "SELECT predict('forest', a := v, b := v, c := v) FROM range(3) r(v)",
    "SELECT list_transform([1, 2, 3], lambda v: predict('forest', a := v, b := 0, c := id)) "
    "FROM {t} WHERE id < 9",
    "SELECT predict('forest', *), count(*), avg(predict_proba('forest', *, class := 'low')) "
    "FROM {t} GROUP BY ALL",
    "SELECT id, row_number() OVER (ORDER BY predict_score('boosted', *)[1], id) FROM {t}",
    "SELECT predict('hot', a := 1, b := 2, c := 3, city := 'Ulm', note := NULL)",
]


def answer(con: Any, query: str) -> Any:
    """The sorted rows of a query, or the error that it ends in."""
    try:
        return sorted(map(repr, con.execute(query).fetchall()))
    except SqlmlError as error:
        return type(error).__name__, error.message


@pytest.mark.parametrize("table", ["t", "holes"])
def test_both_routes_give_the_same(con: sqlml.Session, table: str) -> None:
    wrong = []
    for query in (q.format(t=table) for q in QUERIES):
        made = []
        for route in ("arrow", "native"):
            con.execute(f"SET sqlml_route = '{route}'")
            made.append(answer(con, query))
        con.execute("RESET sqlml_route")
        if made[0] != made[1]:
            wrong.append((query, made))
    assert not wrong


def routes(con: sqlml.Session, query: str) -> list[str]:
    plan = con.plan(query)
    assert plan is not None
    return [call["route"] for call in plan.to_dict()["calls"]]


def test_the_route_is_told(con: sqlml.Session) -> None:
    assert routes(con, "SELECT predict('forest', *), predict('hot', *) FROM t") == ["native"] * 2
    assert routes(con, "SELECT predict('near', *) FROM t") == ["native with python"]
    text = " ".join(con.explain("SELECT predict('near', *) FROM t").split())
    assert "route native, but Python scores the packed rows: some of the model's steps" in text
    text = " ".join(con.explain("SELECT predict('hot', *) FROM t", analyze=True).split())
    assert "3 DOUBLE and 2 VARCHAR columns route native, without Python rows" in text
    assert "measured 5,000 rows in 3 batches" in text


def test_refused_rows_raise_the_same_errors(con: sqlml.Session) -> None:
    with pytest.raises(MissingValueError, match="b"):
        con.execute("SELECT predict('near', *) FROM holes").fetchall()
    with pytest.raises(UnknownCategoryError, match="'a note that nobody has seen'"):
        con.execute("SELECT predict('strict', * REPLACE ('Ulm' AS city)) FROM holes").fetchall()
    with pytest.raises(UnknownCategoryError, match="'city' has NULL"):
        con.execute("SELECT predict('strict', * REPLACE ('short' AS note)) FROM holes").fetchall()


def test_threads_and_cursors_share_the_functions(con: sqlml.Session) -> None:
    query = "SELECT sum(hash(predict('hot', *), predict_proba('forest', *))) FROM t"
    want = con.execute(query).fetchall()
    found: list[Any] = []

    def score() -> None:
        with con.cursor() as own:
            found.extend(own.execute(query).fetchall() for _ in range(3))

    threads = [threading.Thread(target=score) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * (64 * 3)


def test_a_function_in_the_users_own_transaction(con: sqlml.Session) -> None:
    with con.cursor() as own:
        own.execute("BEGIN")
        own.execute("INSERT INTO t BY NAME SELECT 0 AS id, 1.5 AS a, 2.5 AS b, 3.5 AS c")
        query = "SELECT predict('forest', a, b, c) FROM t WHERE id = 0"  # one of its own
        own.execute("CREATE TABLE beside AS SELECT 1 AS one")
        assert own.execute(query).fetchall() == [(models_label(con, 1.5, 2.5, 3.5),)]
        own.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(ROWS,)]


def models_label(con: sqlml.Session, *row: float) -> Any:
    a, b, c = row
    ((label,),) = con.execute(
        "SELECT predict('forest', a := ?, b := ?, c := ?)", [a, b, c]
    ).fetchall()
    return label


SETTINGS = "SELECT name, value FROM duckdb_settings() WHERE name <> 'memory_limit' ORDER BY name"


def simple() -> Any:
    """A model that is too large to be written as SQL."""
    forest = RandomForestClassifier(30, max_depth=5, random_state=0)
    return forest.fit(people()[NUMBERS].head(500), people().a.head(500) > 0)


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


def test_a_session_that_is_left_lets_go_of_its_file(tmp_path: Path) -> None:
    script = """
import subprocess, sys
import sqlml
from tests.e2e.test_native_route import simple

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
    run(tmp_path, script, str(tmp_path / "left.duckdb"))
    assert [p.name for p in tmp_path.iterdir()] == ["left.duckdb"]


def run(folder: Path, script: str, *arguments: str, **environment: str) -> str:
    """What a script prints that runs in a process of its own."""
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    made = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


READ = """
import sys
import sqlml

with sqlml.connect(sys.argv[1]) as con:
    print(con.execute("SELECT sum(hash(y)) FROM scored").fetchall())
    print(con.execute("SELECT sum(hash(y)) FROM again").fetchall())
    plan = con.plan("SELECT predict('hot', *) FROM t").to_dict()
    print(plan["calls"][0]["route"])
    print(con.execute("SELECT sum(hash(predict('hot', *))) FROM t").fetchall())
    print(con.explain("SELECT predict('hot', *) FROM t").split("route")[1].split(" rows ")[0])
"""


def test_views_are_read_by_either_route(tmp_path: Path) -> None:
    path = tmp_path / "views.duckdb"
    with sqlml.connect(path) as con:
        con.register("made", people())
        con.execute("CREATE TABLE t AS SELECT * FROM made")
        con.create_model("hot", models()["hot"])
        con.execute("CREATE VIEW scored AS SELECT predict('hot', *) AS y FROM t")
        con.execute("SET sqlml_route = 'arrow'")
        con.execute("CREATE VIEW again AS SELECT predict('hot', *) AS y FROM t")
    native = run(tmp_path, READ, str(path)).splitlines()
    arrow = run(tmp_path, READ, str(path), SQLML_NATIVE_FUNCTIONS="0").splitlines()
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
        with pytest.raises(BackendError, match="the native route cannot be taken.*RESET"):
            con.execute(query)


def test_a_file_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    content = bytearray((install.BUILT / install.EXTENSION).read_bytes())
    content[200] ^= 1
    (built / install.EXTENSION).write_bytes(content)
    (built / install.PUBLIC_KEY).write_bytes((install.BUILT / install.PUBLIC_KEY).read_bytes())
    with duckdb.connect(config={"home_directory": str(tmp_path)}) as con:
        with pytest.raises(install.Unavailable, match="signature"):
            native_connection(con, built)


def test_a_damaged_copy_is_installed_again(tmp_path: Path) -> None:
    with duckdb.connect(config={"home_directory": str(tmp_path)}) as con:
        found = install.installed(con)
        whole = found.path.read_bytes()
        found.path.write_bytes(whole[:-1])
        assert install.installed(con) == found and found.path.read_bytes() == whole
        native_connection(con).close()


def test_two_databases_and_a_fork(tmp_path: Path) -> None:
    script = """
import os
import sqlml
from tests.e2e.test_native_route import routes, simple

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
    run(tmp_path, script)


def test_they_can_be_taken_away(tmp_path: Path) -> None:
    ask = "import sys; from sqlml.cli import main; sys.exit(main(sys.argv[1:]))"
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    assert "installed when they are first used" in run(tmp_path, ask, "native", **home)
    use = (
        "import sqlml; from tests.e2e.test_native_route import simple; con = sqlml.connect(); "
        "con.create_model('m', simple()); "
        "con.execute(\"SELECT predict('m', a := 1, b := 2, c := 3)\")"
    )
    run(tmp_path, use, **home)
    installed = list(tmp_path.rglob("*.duckdb_extension"))
    assert len(installed) == 1
    assert str(installed[0]) in run(tmp_path, ask, "native", **home)
    assert "removed" in run(tmp_path, ask, "native", "--remove", **home)
    assert not [p for p in tmp_path.rglob("*sqlml*") if p.is_file()]
    assert "nothing to remove" in run(tmp_path, ask, "native", "--remove", **home)


# -- macros of plain connections: packed functions that are given a name


def macro_functions(con: sqlml.Session) -> dict[str, str]:
    """The packed functions that the macros call, and a name that they are given."""
    ((texts,),) = con.connection.execute(
        "SELECT string_agg(macro_definition) FROM duckdb_functions() "
        "WHERE contains(macro_definition, 'sqlml_any_double3_')"
    ).fetchall()
    found = re.findall(r"(sqlml_any_double3_\w+)\('(sqlml_\w+)'", texts)
    return {packed: name for packed, name in found if "native" in name}


def test_macros_score_on_every_thread_without_python(con: sqlml.Session) -> None:
    plain = con.connection.cursor()
    calls = ("predict('forest', t)", "predict_proba('forest', t, 'low')", "transform('scaler', t)")
    before = native_functions.batches()
    for call in calls:
        own = call.replace(", t", ", *").replace("'low'", "class := 'low'")
        for source in ("t", "(FROM t LIMIT 3) AS t", "(FROM t LIMIT 0) AS t"):
            found = plain.execute(f"SELECT id, {call} FROM {source} ORDER BY id").fetchall()
            want = con.execute(f"SELECT id, {own} FROM {source} ORDER BY id").fetchall()
            assert found == want
    assert native_functions.batches() > before
    holes = "SELECT id, predict('forest_null', t) FROM holes AS t ORDER BY id"
    assert plain.execute(holes).fetchall() == con.execute(holes.replace(", t", ", *")).fetchall()

    def many() -> None:
        with con.connection.cursor() as own:
            query = "SELECT predict('boosted', t) FROM t ORDER BY id"
            answers.append(own.execute(query).fetchall())

    answers: list[Any] = []
    threads = [threading.Thread(target=many) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = con.execute("SELECT predict('boosted', *) FROM t ORDER BY id").fetchall()
    assert answers == [want] * 16


NAME_ERRORS = {
    "NULL": "must be the same for all rows",
    "error('x')": "must be the same for all rows",
    "note": "must be the same for all rows",
    "(SELECT '{name}')": "must be the same for all rows",
    "'x'": "is not the name of a model's function",
    "'{name}x'": "runs on the cpu, not on 'cpux'",
    "'{name}_t'": "is not the name of a model's function",
    "'sqlml_000000000000000000000000_label_f64_native_traverse_cpu'": "is not stored",
    "replace('{name}', 'f64', 'f32')": "do not match its call",
    "replace('{name}', 'label', 'transform')": "'transform'",
}


@pytest.mark.parametrize("name", NAME_ERRORS)
def test_a_packed_function_takes_the_name_of_a_model_of_its_types(
    con: sqlml.Session, name: str
) -> None:
    packed = "sqlml_any_double3_integer"
    own = macro_functions(con)[packed]
    plain = con.connection.cursor()
    query = f"SELECT {packed}({name.replace('{name}', own)}, [a, b, c]::DOUBLE[3]) FROM t"
    with pytest.raises(duckdb.Error) as error:
        plain.execute(query).fetchall()
    told = claim(str(error.value))
    assert NAME_ERRORS[name] in str(told or error.value)


def test_packed_rows_in_odd_places(con: sqlml.Session) -> None:
    packed = "sqlml_any_double3_integer"
    call = f"{packed}('{macro_functions(con)[packed]}', "
    plain = con.connection.cursor()
    ((listed,),) = plain.execute(
        f"SELECT list_transform([-9.0, 9.0], lambda v: {call}[v, 0, 0]::DOUBLE[3]))"
    ).fetchall()
    one = [plain.execute(f"SELECT {call}[{v}, 0, 0]::DOUBLE[3])").fetchall()[0][0] for v in (-9, 9)]
    assert listed == one
    for array in ("NULL", "CASE WHEN id <> 4000 THEN [a, b, c]::DOUBLE[3] END"):
        with pytest.raises(duckdb.InvalidInputException, match="NULL as a whole"):
            plain.execute(f"SELECT {call}{array}) FROM t").fetchall()
    plain.execute(f"PREPARE asked AS SELECT {call}[a, b, $1]::DOUBLE[3]) FROM t ORDER BY id")
    own = f"SELECT {call}[a, b, 2]::DOUBLE[3]) FROM t ORDER BY id"
    assert plain.execute("EXECUTE asked(2)").fetchall() == plain.execute(own).fetchall()
