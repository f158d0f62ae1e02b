"""Versions, aliases, tags, options, names and comments of models, as statements."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml import errors

COLUMNS = ["a", "b"]


def linear(slope: float) -> Any:
    """A model whose answer is slope * a: each version of a test has another one."""
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 0.0, 1.0]})
    return LinearRegression().fit(frame, frame.a * slope)


def tree(value: float) -> Any:
    """A model that answers `value` where a > 0, as one step of a kernel."""
    frame = pd.DataFrame({"a": [-1.0, 1.0], "b": [0.0, 0.0]})
    return DecisionTreeRegressor().fit(frame, [0.0, value])


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    """A table of one row, a = 1, and a model m of three versions that answer 10, 20 and 30."""
    with sqlml.connect() as made:
        made.execute("CREATE TABLE t AS SELECT 1.0 AS a, 0.0 AS b")
        made.create_model("m", linear(10), comment="the model", verify=False)
        made.add_version("m", linear(20), comment="the second")
        made.add_version("m", tree(30))
        yield made


def answer(con: sqlml.Session, name: str = "m") -> float:
    """What a model says of the one row of t."""
    ((value,),) = con.execute(f"SELECT predict('{name}', *) FROM t").fetchall()
    return round(value, 9)


def fails(con: sqlml.Session, statement: str, kind: type[Exception], says: str) -> None:
    """A statement is refused, and changes nothing."""
    before = state(con)
    with pytest.raises(kind) as caught:
        con.execute(statement)
    assert says in str(caught.value)
    assert state(con) == before


def state(con: sqlml.Session) -> list[Any]:
    """All that the catalog holds."""
    tables = ("models", "versions", "aliases", "tags", "programs")
    return [con.execute(f"FROM sqlml.catalog_{t} ORDER BY ALL").fetchall() for t in tables]


def test_an_added_version_is_not_the_default(con: sqlml.Session) -> None:
    assert [answer(con, n) for n in ("m", "m/1", "m/2", "m/3")] == [10, 10, 20, 30]
    assert [answer(con, f"m@{a}") for a in ("default", "first", "last", "LAST")] == [10, 10, 30, 30]
    con.execute("ALTER MODEL m SET DEFAULT_VERSION = 2")
    assert answer(con) == 20
    con.execute("ALTER MODEL m SET DEFAULT_VERSION = LAST")
    assert (answer(con), answer(con, "m@default")) == (30, 30)
    fails(con, "ALTER MODEL m SET DEFAULT_VERSION = 4", errors.UnknownModelError, "it has 1, 2, 3")


def test_or_replace_adds_a_version_that_is_the_default(con: sqlml.Session) -> None:
    con.create_model("m", linear(40), or_replace=True)
    assert (answer(con), answer(con, "m/4"), answer(con, "m/1")) == (40, 40, 10)


def test_a_version_is_added_from_a_file(con: sqlml.Session, tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlml")
    con.execute(f"EXPORT MODEL m/2 TO '{path}'")
    con.execute(f"ALTER MODEL m ADD VERSION FROM '{path}' COMMENT 'from a file'")
    assert answer(con, "m/4") == 20
    found = con.execute(
        "SELECT path, comment FROM sqlml.model_versions WHERE version = 4"
    ).fetchall()
    assert found == [(path, "from a file")]
    fails(con, "ALTER MODEL m ADD VERSION FROM 'nowhere.json'", errors.ArtifactError, "no such")


def test_numbers_are_given_and_never_used_again(con: sqlml.Session) -> None:
    con.add_version("m", linear(70), number=7)
    con.add_version("m", linear(80))
    assert (answer(con, "m/7"), answer(con, "m/8")) == (70, 80)
    con.execute("ALTER MODEL m DROP VERSION 8")
    con.add_version("m", linear(90))
    assert answer(con, "m/9") == 90
    fails(con, "SELECT predict('m/8', *) FROM t", errors.UnknownModelError, "1, 2, 3, 7, 9")
    for number in (8, 3, 0):
        with pytest.raises(errors.ModelExistsError, match="never reused"):
            con.add_version("m", linear(1), number=number)
    with pytest.raises(errors.CatalogError, match="the largest is 2147483647"):
        con.add_version("m", linear(1), number=2**31)
    con.add_version("m", linear(1), number=2**31 - 1)
    with pytest.raises(errors.CatalogError, match="the largest is 2147483647"):
        con.create_model("m", linear(1), or_replace=True)


def test_an_alias_is_a_version(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL m SET ALIAS Champion = 2")
    assert (answer(con, "m@champion"), answer(con, "m@CHAMPION")) == (20, 20)
    con.execute("ALTER MODEL m SET ALIAS challenger = last")
    con.execute("ALTER MODEL m SET ALIAS champion = challenger")
    assert (answer(con, "m@champion"), answer(con, "m@challenger")) == (30, 30)
    con.execute("ALTER MODEL m UNSET ALIAS challenger")
    with pytest.raises(errors.UnknownModelError, match=r"with the alias 'challenger'.*@champion"):
        answer(con, "m@challenger")
    fails(con, "ALTER MODEL m UNSET ALIAS challenger", errors.CatalogError, "it has champion")
    fails(con, "ALTER MODEL m SET ALIAS x = 9", errors.UnknownModelError, "has no version 9")
    for name in ("first", "LAST", '"default"', '"3"', '"a b"', '""'):
        fails(con, f"ALTER MODEL m SET ALIAS {name} = 1", errors.CatalogError, "invalid alias")


def test_arguments_of_another_type_are_refused(con: sqlml.Session, tmp_path: Path) -> None:
    model = linear(7)
    for name, value in (("number", "5"), ("number", 1.5), ("number", True), ("comment", 5)):
        with pytest.raises(errors.ConfigError, match=f"^{name} must be "):
            con.add_version("m", model, **{name: value})
    with pytest.raises(errors.ConfigError, match="or_replace must be True or False"):
        con.create_model("m", model, or_replace="no")  # type: ignore[arg-type]
    with pytest.raises(errors.CatalogError, match="contain . @ . or NUL"):
        con.create_model("a\0b", model)
    with pytest.raises(errors.ConfigError, match="NUL"):
        con.create_model("n", model, inputs=["a\0", "b"])
    with pytest.raises(errors.ConfigError, match="NUL"):
        con.export_model("m", f"{tmp_path}/a\0b.sqlml")
    with pytest.raises(errors.CatalogError, match="unknown database 'nope'"):
        con.execute("SHOW MODELS FROM nope")
    with pytest.raises(errors.UnknownModelError, match="no version 2147483647"):
        con.execute("SELECT predict('m/99999999999999999999', *) FROM t")
    assert len(con.execute("SHOW VERSIONS IN MODEL m").fetchall()) == 3


def test_what_others_need_is_not_dropped(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL m SET ALIAS champion = 2")
    fails(con, "ALTER MODEL m DROP VERSION 1", errors.CatalogError, "is its default; SET DEFAULT")
    fails(con, "ALTER MODEL m DROP VERSION first", errors.CatalogError, "is its default")
    fails(con, "ALTER MODEL m DROP VERSION 2", errors.CatalogError, "UNSET ALIAS champion")
    fails(con, "ALTER MODEL m DROP VERSION 9", errors.UnknownModelError, "no version 9")
    con.execute("ALTER MODEL m UNSET ALIAS champion; ALTER MODEL m DROP VERSION 2")
    assert con.execute("SELECT version FROM sqlml.model_versions").fetchall() == [(1,), (3,)]
    assert con.execute("SELECT count(*) FROM sqlml.catalog_programs").fetchall() == [(2,)]


def test_a_program_is_stored_once_and_stays_while_somebody_needs_it(con: sqlml.Session) -> None:
    model = linear(5)
    for name in range(10):
        con.create_model(f"same{name}", model)
    con.add_version("m", model)
    ask = "SELECT count(*) FROM sqlml.catalog_programs"
    assert con.execute(ask).fetchall() == [(4,)]
    for name in range(10):
        con.execute(f"DROP MODEL same{name}")
    assert con.execute(ask).fetchall() == [(4,)]
    assert answer(con, "m/4") == 5
    con.execute("ALTER MODEL m DROP VERSION 4")
    assert con.execute(ask).fetchall() == [(3,)]
    con.execute("DROP MODEL m")
    assert con.execute(ask).fetchall() == [(0,)]


def test_bigquerys_descriptions_and_labels(con: sqlml.Session) -> None:
    ask = "SELECT comment, tags FROM sqlml.models WHERE name = 'd'"
    con.execute(
        "CREATE MODEL d OPTIONS (model_type = 'kmeans', num_clusters = 1, description = 'it''s', "
        "labels = [('team', 'a'), ('B', 'it''s')]) AS SELECT 1 AS a UNION ALL SELECT 2"
    )
    assert con.execute(ask).fetchall() == [("it's", {"b": "it's", "team": "a"})]
    ((_, shown),) = con.execute("SHOW CREATE MODEL d").fetchall()
    assert "COMMENT 'it''s'" in shown and """SET TAG "b" = 'it''s'""" in shown
    con.execute("ALTER MODEL d SET OPTIONS (labels = [('c', 'd')])")
    con.execute("ALTER MODEL d/1 SET OPTIONS (description = 'of the version')")
    assert con.execute(ask).fetchall() == [("it's", {"c": "d"})]
    assert ("comment", "of the version") in con.execute("DESCRIBE MODEL d").fetchall()
    con.execute("ALTER MODEL d SET OPTIONS (description = NULL, labels = [])")
    assert con.execute(ask).fetchall() == [(None, None)]
    for change in ("description = 'x', backend = 'sql'", "labels = [('a', 1)]", "expires = 1"):
        with pytest.raises((errors.ParseError, errors.ConfigError)):
            con.execute(f"ALTER MODEL d SET OPTIONS ({change})")
    assert con.execute(ask).fetchall() == [(None, None)]
    con.execute("DROP MODEL d")


def test_tags_and_comments(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL m SET TAG team = 'risk', Stage = 'it''s'")
    con.execute("ALTER MODEL m SET TAG team = 'fraud'")
    tags = "SELECT tags FROM sqlml.models"
    assert con.execute(tags).fetchall() == [({"stage": "it's", "team": "fraud"},)]
    fails(con, "ALTER MODEL m UNSET TAG stage, nope", errors.CatalogError, "has no tag 'nope'")
    con.execute("ALTER MODEL m UNSET TAG Stage")
    assert con.execute(tags).fetchall() == [({"team": "fraud"},)]
    con.execute("COMMENT ON MODEL m IS 'what it''s for'")
    con.execute("COMMENT ON MODEL m/3 IS 'a tree'")
    assert con.execute("SELECT comment FROM sqlml.models").fetchall() == [("what it's for",)]
    assert con.execute("SELECT comment FROM sqlml.model_versions ORDER BY version").fetchall() == [
        (None,),
        ("the second",),
        ("a tree",),
    ]
    con.execute("COMMENT ON MODEL m IS NULL")
    assert con.execute("SELECT comment FROM sqlml.models").fetchall() == [(None,)]


def test_options_belong_to_a_version(con: sqlml.Session) -> None:
    def options() -> list[str]:
        """As DESCRIBE has them; the view has the estimator's parameters, too."""
        told = [dict(con.execute(f"DESCRIBE MODEL m/{n}").fetchall()) for n in (1, 2, 3)]
        ask = "SELECT options FROM sqlml.model_versions"
        assert all("estimator" in json.loads(text) for (text,) in con.execute(ask).fetchall())
        return [of["options"] for of in told]

    con.execute("ALTER MODEL m SET OPTIONS (backend = 'reference')")
    con.execute("ALTER MODEL m/3 SET OPTIONS (backend = 'native', strategy = 'traverse')")
    assert options() == [
        "backend=reference",
        "",
        "backend=native, strategy=traverse",
    ]
    assert "reference" in con.explain("SELECT predict('m', *) FROM t")
    assert (answer(con), answer(con, "m/3")) == (10, 30)
    con.execute("ALTER MODEL m/3 RESET OPTIONS (strategy)")
    con.execute("ALTER MODEL m RESET OPTIONS")
    assert options() == ["", "", "backend=native"]
    assert "reference" not in con.explain("SELECT predict('m', *) FROM t")
    for bad, says in (
        ("SET OPTIONS (nope = 1)", "unknown option 'nope'"),
        ("RESET OPTIONS (nope)", "unknown option 'nope'"),
        ("SET OPTIONS (backend = 'abacus')", "abacus"),
        ("SET OPTIONS (sha256 = 'x')", "applies only while a model is created"),
    ):
        fails(con, f"ALTER MODEL m {bad}", errors.ConfigError, says)


def test_a_model_takes_all_it_has_to_its_new_name(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL m SET ALIAS champion = 2; ALTER MODEL m SET TAG team = 'x'")
    con.create_model("other", linear(1))
    fails(con, "ALTER MODEL m RENAME TO OTHER", errors.ModelExistsError, "already exists")
    fails(con, 'ALTER MODEL m RENAME TO "a/b"', errors.CatalogError, "invalid model name")
    con.execute('ALTER MODEL m RENAME TO "New name"')
    assert (answer(con, "new NAME"), answer(con, "New name@champion")) == (10, 20)
    with pytest.raises(errors.UnknownModelError, match="unknown model 'm'"):
        answer(con)
    assert con.execute("SELECT name, tags FROM sqlml.models ORDER BY name").fetchall() == [
        ("New name", {"team": "x"}),
        ("other", None),
    ]
    con.create_model("m", linear(99))
    assert (answer(con), answer(con, "New name")) == (99, 10)
    con.execute('ALTER MODEL "New name" RENAME TO "NEW NAME"')
    names = con.execute("SELECT name FROM sqlml.models ORDER BY lower(name)").fetchall()
    assert names == [("m",), ("NEW NAME",), ("other",)]


def test_if_exists_asks_for_nothing(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL IF EXISTS nope RENAME TO n")
    con.execute("ALTER MODEL IF EXISTS m RENAME TO n")
    assert answer(con, "n") == 10
    with sqlml.connect() as empty:
        empty.execute("ALTER MODEL IF EXISTS nope DROP VERSION 1")
        empty.execute("DROP MODEL IF EXISTS nope")
        for statement in ("ALTER MODEL m DROP VERSION 1", "DROP MODEL m", "DESCRIBE MODEL m"):
            with pytest.raises(errors.UnknownModelError, match="none exist yet"):
                empty.execute(statement)
        assert empty.execute("SHOW MODELS").fetchall() == []
        tables = empty.execute("SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'sqlml'")
        assert tables.fetchall() == [(0,)]


def test_what_is_shown(con: sqlml.Session) -> None:
    con.execute("ALTER MODEL m SET ALIAS champion = 2; ALTER MODEL m SET TAG team = 'x'")
    con.create_model("other", linear(1))
    shown = con.execute("SHOW MODELS LIKE 'M%'").fetchall()
    names = [d[0] for d in con.connection.description]
    assert names[:3] == ["name", "version", "source"] and len(shown) == 1
    row = dict(zip(names, shown[0], strict=True))
    assert (row["name"], row["version"], row["versions"]) == ("m", 1, 3)
    assert (row["aliases"], row["tags"]) == ({"champion": 2}, {"team": "x"})
    versions = con.execute("SHOW VERSIONS IN MODEL M").fetchall()
    names = [d[0] for d in con.connection.description]
    assert names[0] == "version" and len(versions) == 3
    second = dict(zip(names, versions[1], strict=True))
    assert (second["aliases"], second["is_default"]) == (["champion"], False)
    assert second["source"] == "sklearn.linear_model._base.LinearRegression"
    with pytest.raises(errors.UnknownModelError):
        con.execute("SHOW VERSIONS IN MODEL nope")


def test_describe_tells_what_a_model_is(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) % 7, "z": 0.0})
    labels = np.where(frame.a > 20, "yes", "it's no")
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(frame, labels)
    con.create_model("forest", forest)
    con.execute("ALTER MODEL forest SET ALIAS champion = 1; ALTER MODEL forest SET TAG k = 'v'")
    found = dict(con.execute("DESCRIBE MODEL forest@champion").fetchall())
    trees = sum(e.tree_.node_count for e in forest.estimators_)
    assert found["trees"] == f"5 with {trees} nodes"
    assert (found["classes"], found["aliases"]) == ("it's no, yes", "champion")
    assert (found["version"], found["is_default"], found["tags"]) == ("1", "true", "k=v")
    assert found["outputs"] == "label, proba"
    assert found["library"].startswith("sklearn ") and "tree_ensemble" in found["operators"]
    assert [found[f"input {n}"] for n in (1, 2, 3)] == ["a DOUBLE", "b DOUBLE", "z (not used)"]
    assert int(found["bytes"]) > 0 and int(found["stored_bytes"]) > 0 and len(found["hash"]) == 64
    counts = [part.split(" x") for part in found["operators"].split(", ")]
    assert int(found["nodes"]) == sum(int(count[1]) if count[1:] else 1 for count in counts)


def test_explain_model_tells_passes_and_costs(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "z": 0.0})
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(frame, frame.a > 20)
    con.create_model("forest", forest)
    found = dict(con.execute("EXPLAIN MODEL forest").fetchall())
    assert "tree_ensemble" in found["program"] and "return " in found["program"]
    assert "inject_selection: " in found["proba: passes"]
    assert found["proba: reads"] == "a"
    strategies = found["proba: strategies"].splitlines()
    assert strategies[0].startswith("native/traverse") and "100,000 rows" in strategies[0]
    assert set(found) >= {f"label: {k}" for k in ("passes", "program", "reads", "strategies")}
    con.execute("ALTER MODEL forest SET OPTIONS (backend = 'reference')")
    found = dict(con.execute("EXPLAIN MODEL forest").fetchall())
    assert found["label: strategies"].startswith("reference")


def test_show_create_makes_the_model_again(con: sqlml.Session, tmp_path: Path) -> None:
    path = str(tmp_path / "it's a model.sqlml")
    quoted = path.replace("'", "''")
    con.execute(f"EXPORT MODEL m/2 TO '{quoted}'")
    con.execute(
        f"""CREATE MODEL "a ""b" FROM '{quoted}' OPTIONS (backend = 'native') COMMENT 'it''s'"""
    )
    con.execute("""ALTER MODEL "a ""b" SET TAG "my team" = 'x''y'""")
    ((name, text),) = con.execute('SHOW CREATE MODEL "a ""b"').fetchall()
    assert name == 'a "b' and "sha256" in text
    ask = "SELECT * EXCLUDE created_at FROM sqlml.models ORDER BY name"
    before = con.execute(ask).fetchall()
    con.execute('DROP MODEL "a ""b"')
    con.execute(text)
    assert con.execute(ask).fetchall() == before
    assert answer(con, 'a "b') == 20


def test_show_create_of_an_object_names_the_export_to_make(con: sqlml.Session) -> None:
    ((_, text),) = con.execute("SHOW CREATE MODEL m/2").fetchall()
    assert "EXPORT MODEL \"m\"/2 TO 'm.sqlml'" in text and "FORMAT SQLML" in text
    assert "COMMENT 'the model'" in text


def test_the_user_s_transaction_holds_it_all(con: sqlml.Session) -> None:
    before = state(con)
    con.execute("BEGIN")
    con.execute("ALTER MODEL m SET ALIAS champion = 2; ALTER MODEL m SET DEFAULT_VERSION = 3")
    con.execute("ALTER MODEL m SET TAG a = 'b'; COMMENT ON MODEL m IS NULL")
    con.execute("ALTER MODEL m DROP VERSION 1; ALTER MODEL m RENAME TO n")
    con.create_model("m", linear(77))
    con.execute("ALTER MODEL n RENAME TO o; DROP MODEL m; ALTER MODEL o RENAME TO m")
    assert (answer(con), answer(con, "m@champion")) == (30, 20)
    with pytest.raises(errors.UnknownModelError):
        con.execute("ALTER MODEL m SET DEFAULT_VERSION = 1")
    assert answer(con) == 30
    con.execute("ROLLBACK")
    assert state(con) == before
    assert answer(con) == 10


def test_another_connection_sees_what_is_committed(con: sqlml.Session) -> None:
    other = con.cursor()
    con.execute("BEGIN; ALTER MODEL m SET DEFAULT_VERSION = 2")
    assert (answer(con), answer(other)) == (20, 10)
    con.execute("COMMIT")
    assert (answer(con), answer(other)) == (20, 20)


def test_two_transactions_that_change_one_model_conflict(con: sqlml.Session) -> None:
    other = con.cursor()
    con.execute("BEGIN; ALTER MODEL m SET DEFAULT_VERSION = 2")
    other.execute("BEGIN")
    with pytest.raises(errors.ConflictError, match="ROLLBACK, and try again"):
        other.execute("ALTER MODEL m SET ALIAS a = 3")
    con.execute("COMMIT")
    other.execute("ROLLBACK; ALTER MODEL m SET ALIAS a = 3")
    assert (answer(other), answer(other, "m@a")) == (20, 30)


def test_a_program_is_not_collected_while_another_model_takes_it(con: sqlml.Session) -> None:
    """Each transaction sees the Program: of the two that decide what becomes of it one fails."""
    model = linear(20)
    other = con.cursor()
    other.execute("BEGIN")
    other.create_model("n", model)
    con_error = None
    try:
        con.execute("ALTER MODEL m DROP VERSION 2")
    except errors.ConflictError as error:
        con_error = error
    other.execute("COMMIT")
    assert con_error is None or "try again" in str(con_error)
    assert answer(con, "n") == 20


def test_plain_connections_follow_the_default_version(con: sqlml.Session) -> None:
    plain = con.connection.cursor()

    def plainly(name: str) -> float:
        return round(plain.execute(f"SELECT predict('{name}', t) FROM t").fetchone()[0], 9)

    assert plainly("m") == 10
    con.execute("ALTER MODEL m SET DEFAULT_VERSION = 3")
    assert plainly("m") == 30
    con.execute("ALTER MODEL m RENAME TO n")
    assert plainly("n") == 30
    with pytest.raises(duckdb.Error):
        plainly("m")
    con.execute("DROP MODEL n")
    with pytest.raises(duckdb.Error):
        plainly("n")


def test_models_of_an_attached_database(con: sqlml.Session, tmp_path: Path) -> None:
    con.execute(f"ATTACH '{tmp_path / 'o.db'}' AS \"o.b\"")
    con.execute("DROP MODEL m")
    con.create_model("m", linear(10))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sqlml'}'")
    con.execute(f"CREATE MODEL \"o.b\".m FROM '{tmp_path / 'm.sqlml'}'")
    con.execute(f"ALTER MODEL \"o.b\".m ADD VERSION FROM '{tmp_path / 'm.sqlml'}'")
    con.execute('ALTER MODEL "o.b".m SET ALIAS champion = 2')
    assert con.execute('SELECT versions, aliases FROM "o.b".sqlml.models').fetchall() == [
        (2, {"champion": 2})
    ]
    assert len(con.execute('SHOW MODELS FROM "o.b"').fetchall()) == 1
    found = dict(con.execute('DESCRIBE MODEL "o.b".m@champion').fetchall())
    assert (found["version"], found["aliases"]) == ("2", "champion")
    con.execute('ALTER MODEL "o.b".m RENAME TO n; DROP MODEL "o.b".n')
    assert con.execute("SELECT name FROM sqlml.models").fetchall() == [("m",)]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", ["main.m", 'MAIN."m"', "`m`", "main.`m`", "'m'", "'main.m'"])
def test_a_model_is_named_as_a_table_is(con: sqlml.Session, name: str) -> None:
    """By the schema that people give to tables, in quotes of Spark, or as a text."""
    assert con.execute(f"DESCRIBE MODEL {name}").fetchall()
    assert con.execute(f"SHOW VERSIONS IN MODEL {name}").fetchall()
    con.execute(f"ALTER MODEL {name} SET DEFAULT_VERSION = 2")
    assert answer(con) == 20
    con.execute(f"ALTER MODEL {name} DROP VERSION 1; COMMENT ON MODEL {name} IS 'mine'")
    assert con.execute(f"SELECT PREDICT(MODEL {name}, *) FROM t").fetchall() == [(20.0,)]
    con.execute(f"DROP MODEL {name}")
    assert con.execute("SHOW MODELS FROM main").fetchall() == []


def test_no_database_is_called_main(con: sqlml.Session, tmp_path: Path) -> None:
    """So that main.m cannot mean another model."""
    with pytest.raises(duckdb.BinderException, match="reserved"):
        con.execute("ATTACH ':memory:' AS main")
    with sqlml.connect(str(tmp_path / "main.db")) as other:
        (name,) = other.execute("SELECT current_database()").fetchone()
    assert name != "main"
