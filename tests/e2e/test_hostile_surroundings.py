"""Odd databases, texts and clients: what once went wrong, or must never."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml import errors
from tests.e2e import child

pytestmark = pytest.mark.version


@pytest.fixture(scope="module")
def tree() -> Any:
    """10 * a, exactly, for whole a from 0 to 9."""
    x = pd.DataFrame({"a": np.arange(10.0)})
    return DecisionTreeRegressor().fit(x, 10 * x.a)


@pytest.fixture
def db(tree: Any) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.create_model("m", tree, verify=False)
        con.execute("CREATE TABLE t AS SELECT i AS a FROM range(5) r(i)")
        yield con


def test_a_view_made_inside_a_transaction_outlives_the_process(tree: Any, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("early", tree)
        con.execute("BEGIN; SELECT predict('early', a := 1)").fetchall()
        con.create_model(
            "late", DecisionTreeRegressor().fit([[0.0], [1.0]], [5.0, 6.0]), inputs=["a"]
        )
        con.execute(
            "CREATE VIEW v AS SELECT predict('late', a := 1) AS x, predict('late', a := 0) AS y"
        )
        assert con.execute("FROM v").fetchall() == [(6.0, 5.0)]
        con.execute("COMMIT")
    code = f"import sqlml; print(sqlml.connect({str(path)!r}).execute('FROM v').fetchall())"
    out = child.run(code, tmp_path)
    assert out.stdout.strip() == "[(6.0, 5.0)]"


def test_a_relation_is_found_by_the_next_query(db: sqlml.Session) -> None:
    plain = db.sql("SELECT 1 AS a UNION ALL SELECT 2")
    assert isinstance(plain, duckdb.DuckDBPyRelation)
    assert db.sql("SELECT sum(predict('m', *)) FROM plain").fetchall() == [(30.0,)]
    scored = db.sql("SELECT predict('m', *) / 10 AS a FROM t")
    assert db.sql("SELECT sum(a) FROM scored").fetchall() == [(10.0,)]
    assert db.sql("SELECT sum(predict('m', *)) FROM scored").fetchall() == [(100.0,)]
    db.register("kept", scored)
    assert db.execute("SELECT count(*) FROM kept").fetchall() == [(5,)]
    joined = scored.set_alias("l").join(other_rel=scored.set_alias("r"), condition="a")
    assert joined.aggregate("count(*)").fetchall() == [(5,)]


def test_a_database_called_sqlml_holds_models(tree: Any, tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "sqlml.duckdb") as con:
        con.create_model("m", tree)
        assert con.execute("SELECT predict('m', a := 3)").fetchall() == [(30.0,)]
    with sqlml.connect() as con:
        con.create_model("m", tree)
        con.execute("ATTACH ':memory:' AS sqlml")
        assert con.execute("SELECT predict('m', a := 3)").fetchall() == [(30.0,)]
        assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["m"]


def test_collations_do_not_change_scores(db: sqlml.Session) -> None:
    frame = pd.DataFrame({"p": ["na", "a", "b", "a"]})
    impute = SimpleImputer(missing_values="na", strategy="constant", fill_value="b")
    encode = OneHotEncoder(handle_unknown="ignore")
    model = make_pipeline(impute, encode, LinearRegression()).fit(frame, [2.0, 1.0, 2.0, 1.0])
    db.create_model("c", model)
    db.execute("CREATE TABLE c (p VARCHAR COLLATE NOCASE)")
    db.execute("INSERT INTO c VALUES ('NA'), ('na'), ('A'), ('b')")
    want = model.predict(pd.DataFrame({"p": ["NA", "na", "A", "b"]}))
    for setting in ("", "nocase"):
        db.execute(f"SET default_collation = '{setting}'")
        got = [row[0] for row in db.execute("SELECT predict('c', *) FROM c").fetchall()]
        np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "change",
    [
        "label_f64_evil_traverse_cpu",
        "label_f64_native_evil_cpu",
        "label_f64_native_traverse_evil",
        "proba_f64_native_traverse_cpu",
        "proba7_f64_native_traverse_cpu",
        "proba01_f64_native_traverse_cpu",
        "proba" + "9" * 5000 + "_f64_native_traverse_cpu",
        "score_f64_native_traverse_cpu_t99999999999999999999",
    ],
)
def test_text_in_a_view_never_keeps_a_database_closed(
    tree: Any, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("m", tree)
        ((digest,),) = con.execute("SELECT hash FROM sqlml.model_versions").fetchall()
        con.execute(f"CREATE VIEW v AS SELECT 'sqlml_{digest[:24]}_{change}' AS note")
    with sqlml.connect(path) as con:
        assert con.execute("SELECT predict('m', a := 2)").fetchall() == [(20.0,)]


def test_an_unnamed_call_has_the_name_that_the_engine_gives(db: sqlml.Session) -> None:
    relation = db.sql("SELECT a, predict('m',  *), predict('m', a) + 1, predict('m', a) p FROM t")
    assert relation.columns == ["a", "predict('m', *)", "(predict('m', a) + 1)", "p"]
    db.execute("CREATE TABLE made AS SELECT DISTINCT predict('m', *) FROM t")
    assert db.sql("FROM made").columns == ["predict('m', *)"]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "item",
    [
        "CASE WHEN abs(a) = 1 THEN 'x' END",
        "abs(a)::INT",
        "[abs(a)][1]",
        "{'x': abs(a)}",
        "abs(a) IN [1, 2]",
        "abs(a) BETWEEN 1 AND 2",
        "count(*) FILTER (abs(a) = 1)",
        "sum(abs(a)) OVER (ORDER BY a)",
        "(SELECT abs(a))",
        "-abs(a) /* a comment */ ** 2",
        "first(abs(a) ORDER BY a)",
        "struct_pack(yes := abs(a)).yes",
        "if(abs(a) = 1, 'it''s', NULL)",
    ],
)
def test_an_unnamed_item_has_the_name_that_the_engine_gives(db: sqlml.Session, item: str) -> None:
    (want,) = db.connection.sql(f"SELECT {item} FROM t").columns
    (made,) = db.sql(f"SELECT {item} FROM t".replace("abs(a)", "predict('m', a)")).columns
    assert made.replace("predict('m', a)", "abs(a)") == want


@pytest.mark.parametrize(
    "text", ["", ";", "-- model", "/* predict('x', *) */ ;", "-- CREATE MODEL m"]
)
def test_texts_without_a_statement_do_nothing(db: sqlml.Session, text: str) -> None:
    db.execute(text)
    assert db.sql(text) is None


def test_a_script_with_a_syntax_error_runs_nothing(db: sqlml.Session) -> None:
    for script in (
        "INSERT INTO t VALUES (9); SELEC predict('m', *) FROM t",
        "DROP MODEL m; SELEC 2",
    ):
        with pytest.raises(duckdb.ParserException):
            db.execute(script)
    assert db.execute("SELECT count(predict('m', *)) FROM t").fetchall() == [(5,)]


def test_keyword_arguments_are_duckdbs(db: sqlml.Session) -> None:
    query = "SELECT predict('m', a := ?)"
    assert db.execute(query=query, parameters=[2]).fetchall() == [(20.0,)]
    assert db.sql(query=query, params=[2]).fetchall() == [(20.0,)]
    assert db.sql("SELECT ?", params=[1], alias="one").fetchall() == [(1,)]
    db.executemany("INSERT INTO t VALUES (?)", parameters=[[7], [8]])
    assert db.execute("SELECT max(a) FROM t").fetchall() == [(8,)]


def test_the_callers_objects_are_not_kept_alive(db: sqlml.Session) -> None:
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    db.execute("SELECT predict('m', a := 1)").fetchall()
    del big
    gc.collect()
    assert gone() is None


def test_modules_whose_names_start_like_ours_are_the_users(db: sqlml.Session) -> None:
    module = types.ModuleType("sqlml_jobs")
    code = (
        "def run(con):\n    rows = pd.DataFrame({'a': [4]})\n    return con.execute(q).fetchall()"
    )
    module.__dict__.update(pd=pd, q="SELECT predict('m', *) FROM rows")
    exec(code, module.__dict__)
    assert module.run(db) == [(40.0,)]


def test_a_users_python_function_called_predict(db: sqlml.Session) -> None:
    db.create_function("predict", lambda x, y: f"{x}-{y}", ["VARCHAR", "VARCHAR"], "VARCHAR")
    assert db.execute("SELECT predict('x', 'y')").fetchall() == [("x-y",)]
    assert db.execute("SELECT predict('m', a := 1)").fetchall() == [(10.0,)]


def test_views_of_an_attached_database(tree: Any, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("m", tree)
        con.execute("CREATE VIEW v AS SELECT predict('m', a := 4) AS y")
    code = (
        "import sqlml\ncon = sqlml.connect()\n"
        f"con.execute(\"ATTACH '{path}' AS s\")\n"
        "con.execute('BEGIN; CREATE TABLE keep AS SELECT 1 AS a')\n"
        "print(con.execute('FROM s.v').fetchall(), con.execute('FROM keep').fetchall())"
    )
    out = child.run(code, tmp_path)
    assert out.stdout.strip() == "[(40.0,)] [(1,)]"


def test_a_model_is_made_while_a_result_streams(db: sqlml.Session, tree: Any) -> None:
    db.execute("SELECT * FROM range(100000)").fetchone()
    db.create_model("other", tree)
    assert db.execute("SELECT predict('other', a := 1)").fetchone() == (10.0,)


def test_the_first_models_of_several_cursors_at_once(tree: Any, tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "shop.duckdb") as con:
        cursors = [con.cursor() for _ in range(4)]

        def create(number: int) -> None:
            cursors[number].create_model(f"m{number}", tree)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(4)))
        assert len(con.execute("SHOW MODELS").fetchall()) == 4


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sqlml.catalog_versions SET options = '[1]'",
        "UPDATE sqlml.catalog_versions SET options = '{'",
        "UPDATE sqlml.catalog_versions SET features = [{'name': 'zzz', 'kind': 'string'}]",
        "UPDATE sqlml.catalog_versions SET features = [NULL]",
        "UPDATE sqlml.catalog_versions SET program = ''",
        "UPDATE sqlml.catalog_versions SET program = 'abc'",
        "UPDATE sqlml.catalog_programs SET hash = repeat('0', 64)",
        "UPDATE sqlml.catalog_programs SET content = ''::BLOB",
        "UPDATE sqlml.catalog_models SET default_version = 99",
        "DROP VIEW sqlml.models; ALTER TABLE sqlml.catalog_versions DROP COLUMN options",
        "DELETE FROM sqlml.catalog_programs",
    ],
)
def test_a_damaged_catalog_is_a_typed_error(tree: Any, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("m", tree)
        con.execute("DROP VIEW sqlml.model_versions; DROP VIEW sqlml.model_features")
        con.execute(damage)
    with sqlml.connect(path) as con, pytest.raises((errors.ModelError, errors.CatalogError)):
        con.execute("SELECT predict('m', a := 1)")


def test_a_damaged_model_behind_a_view_is_not_called_unknown(tree: Any, tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "shop.duckdb") as con:
        con.create_model("m", tree, backend="native")
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
        con.execute("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t")
        con.execute("UPDATE sqlml.catalog_programs SET content = 'garbage'::BLOB")
    with sqlml.connect(tmp_path / "zoo.duckdb") as con:
        con.create_model("other", LogisticRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"])
    code = """
import sqlml
with sqlml.connect("shop.duckdb") as con:
    con.execute("ATTACH 'zoo.duckdb'")
    try:
        print(con.execute("SELECT * FROM v").fetchall())
    except sqlml.errors.ArtifactError as error:
        print("ArtifactError")
"""  # another process: this one has compiled the model, and needs it no more
    made = child.run(code, tmp_path)
    assert made.stdout == "ArtifactError\n", made.stderr


def test_hostile_names_and_labels(db: sqlml.Session) -> None:
    hostile = ['a"; DROP TABLE t; --', "x'); DROP TABLE t; --", "new\nline", "Ünï\t", "%s {0} \\"]
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(60, 5)), columns=hostile)
    labels = np.array(hostile)[np.argmax(x.to_numpy(), axis=1)]
    model = LogisticRegression().fit(x, labels)
    for name in hostile:
        if not set(name) & set("./@"):
            db.create_model(name, model)
            db.register("wild", x)
            rows = db.execute("SELECT predict(?, *), predict_proba(?, *) FROM wild", [name, name])
            found = rows.fetchall()
            assert [r[0] for r in found] == model.predict(x).tolist()
            assert set(found[0][1]) == set(hostile)
            described = db.execute('DESCRIBE MODEL "' + name.replace('"', '""') + '"').fetchall()
            assert dict(described)["name"] == name
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(5,)]


def test_the_smallest_integer_is_a_label(db: sqlml.Session) -> None:
    model = LogisticRegression().fit(pd.DataFrame({"a": [0.0, 1.0]}), np.array([-(2**63), 1]))
    db.create_model("edge", model)
    assert db.execute("SELECT predict('edge', a := -5)").fetchall() == [(-(2**63),)]


def test_lists_feed_no_feature(db: sqlml.Session) -> None:
    for value in ("[1.5::DECIMAL(4, 1)]", "['b'::ENUM('b')]", "MAP {'a': 1}", "'x'::BLOB"):
        with pytest.raises(errors.ColumnTypeError):
            db.execute(f"SELECT predict('m', a := {value})")
    for parameter in (b"x", [1, 2]):
        with pytest.raises(errors.ColumnTypeError):
            db.execute("SELECT predict('m', a := ?)", [parameter])


def test_reserved_looking_column_names(db: sqlml.Session) -> None:
    table = "(SELECT 1 AS set, 2 AS update, 3 AS delete, 4 AS a)"
    query = f"SELECT set, update, delete, predict('m', *) FROM {table}"
    assert db.execute(query).fetchall() == [(1, 2, 3, 40.0)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("predict(m, *)", r"no column m names models here; .* predict\('m', \*\)"),
        ("predict(t.a, t.*)", "the name of a model is a VARCHAR, and t.a is BIGINT"),
    ],
)
def test_a_model_is_named_by_a_text(db: sqlml.Session, call: str, message: str) -> None:
    with pytest.raises(errors.BindError, match=message):
        db.execute(f"SELECT {call} FROM t")


def test_an_unknown_database_is_named(db: sqlml.Session, tree: Any) -> None:
    with pytest.raises(errors.UnknownModelError, match="unknown database 'nodb'"):
        db.execute("SELECT predict('nodb.m', a := 1)")
    with pytest.raises(errors.CatalogError, match="unknown database 'nodb'"):
        db.create_model("nodb.m", tree)


def test_explain_takes_one_query(db: sqlml.Session) -> None:
    for text in ("SELECT 1; SELECT predict('m', *) FROM t", "SHOW MODELS", "DROP MODEL m"):
        with pytest.raises(errors.ParseError, match="one query"):
            db.explain(text)


def test_equal_rows_score_equally_wherever_they_stand(db: sqlml.Session) -> None:
    """So that a comparison of scores, as for the best row, finds what it must."""
    rng = np.random.default_rng(3)
    x = pd.DataFrame(rng.normal(size=(5000, 29)), columns=[f"c{i}" for i in range(29)])
    db.create_model("wide", LinearRegression().fit(x, rng.normal(size=5000)))
    db.register("x_frame", x)
    db.execute("CREATE TABLE x AS SELECT *, row_number() OVER () AS id FROM x_frame")
    query = (
        "SELECT count(*) FROM (SELECT id, predict('wide', *) AS p FROM x) a "
        "JOIN (SELECT id, predict('wide', *) AS p FROM x WHERE id % 7 = 3) b USING (id) "
        "WHERE a.p <> b.p"
    )
    assert db.execute(query).fetchall() == [(0,)]


def test_features_may_have_any_name_beside_encoded_strings(db: sqlml.Session) -> None:
    """Names such as x0, x1 are scikit-learn's own defaults, and once met names of ours."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(60, 9)), columns=[f"x{i}" for i in range(8)] + ["code2"])
    frame.insert(3, "s", rng.choice(["a", "b"], 60))
    encode = make_column_transformer((OneHotEncoder(), ["s"]), remainder="passthrough")
    model = make_pipeline(encode, LinearRegression()).fit(frame, rng.normal(size=60))
    db.create_model("named", model)
    db.register("frame_t", frame)
    got = [row[0] for row in db.execute("SELECT predict('named', *) FROM frame_t").fetchall()]
    np.testing.assert_allclose(got, model.predict(frame), rtol=1e-9)
    np.testing.assert_allclose(sqlml.compile(model).predict(frame), model.predict(frame), rtol=1e-9)


def test_a_struct_column_named_like_its_table_is_the_struct(db: sqlml.Session) -> None:
    db.execute("CREATE TABLE c (c STRUCT(a DOUBLE), a DOUBLE)")
    db.execute("INSERT INTO c VALUES ({'a': 1}, 5)")
    assert db.execute(
        "SELECT predict('m', c), predict('m', c.c), predict('m', c.*) FROM c"
    ).fetchall() == [(10.0, 10.0, 50.0)]


def test_a_failing_stream_does_not_stop_later_statements(db: sqlml.Session, tree: Any) -> None:
    model = LinearRegression().fit(pd.DataFrame({"a": [0.0, 1.0]}), [0.0, 2.0])
    db.create_model("line", model)
    db.execute(
        "CREATE TABLE late AS SELECT CASE WHEN i < 400000 THEN i END AS a FROM range(400001) r(i)"
    )
    query = "SELECT predict('line', *) FROM late"
    with pytest.raises(errors.MissingValueError):
        db.execute(query).fetchall()
    for _ in range(2):
        assert db.execute("SELECT predict('m', a := 1)").fetchall() == [(10.0,)]
    db.execute(query)  # nobody reads it
    assert db.execute("SELECT predict('m', a := 1)").fetchall() == [(10.0,)]
    db.create_model("more", tree)


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT predict('ab',a:=$1,b:=$2)", [1.0, 2.0]),
        ("SELECT predict('ab',b:=$2,a:=$1)", [1.0, 2.0]),
        ("SELECT predict('ab',a:=$x,b:=$y)", {"x": 1.0, "y": 2.0}),
        ("SELECT predict($m,$x,$y), $$ $x $$, '$y' -- $z\n", {"m": "ab", "x": 1.0, "y": 2.0}),
    ],
)
def test_dollar_parameters_in_a_row(db: sqlml.Session, query: str, values: Any) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0]})
    db.create_model("ab", LinearRegression().fit(frame, [0.0, 10.0, 1.0]))
    assert db.execute(query, values).fetchall()[0][0] == pytest.approx(12.0)


def test_altering_a_table_cannot_make_it_need_a_model(db: sqlml.Session) -> None:
    for change in (
        "ALTER a SET DEFAULT predict('m', a := 1)",
        "ADD COLUMN y DOUBLE DEFAULT predict('m', a := 1)",
    ):
        with pytest.raises(errors.BindError, match="DEFAULT"):
            db.execute(f"ALTER TABLE t {change}")


def test_two_columns_of_one_name_are_ambiguous_outside_of_sql_too(tree: Any) -> None:
    scorer = sqlml.compile(tree)
    for frame in (
        pd.DataFrame([[1.0, 7.0]], columns=["a", "a"]),
        pd.DataFrame([[1.0, 7.0]], columns=["A", "A"]),
        pa.table([[1.0], [7.0]], names=["a", "a"]),
    ):
        with pytest.raises(errors.AmbiguousColumnError, match="2 columns"):
            scorer.predict(frame)
    both = pd.DataFrame([[7.0, 1.0]], columns=["A", "a"])
    assert scorer.predict(both).tolist() == [10.0]


def test_names_are_compared_as_the_engine_compares_them(db: sqlml.Session) -> None:
    frame = pd.DataFrame({"straße": [0.0, 1.0], "Ä": [0.0, 1.0]})
    db.create_model("street", LinearRegression().fit(frame, [0.0, 2.0]))
    assert db.execute(
        'SELECT predict(\'street\', *) FROM (SELECT 1 AS "STRAßE", 1 AS "Ä")'
    ).fetchall()
    for other in ('1 AS strasse, 1 AS "Ä"', '1 AS "straße", 1 AS "ä"'):
        with pytest.raises(errors.MissingColumnError):
            db.execute(f"SELECT predict('street', *) FROM (SELECT {other})")


def test_a_star_is_never_for_a_users_own_function(db: sqlml.Session) -> None:
    db.execute("CREATE MACRO predict(a, b) AS a || b")
    with pytest.raises(errors.UnknownModelError):
        db.execute("SELECT predict('nope', *) FROM t")


def test_a_category_that_sql_cannot_spell_is_refused_at_once(db: sqlml.Session) -> None:
    frame = pd.DataFrame({"p": ["a\0b", "c"]})
    model = make_pipeline(OneHotEncoder(), LinearRegression()).fit(frame, [0.0, 1.0])
    with pytest.raises(errors.UnsupportedModelError, match="NUL"):
        db.create_model("nul", model)
    with pytest.raises(errors.UnsupportedModelError, match="CREATE MODEL m FROM"):
        db.create_model("path", "model.json")
