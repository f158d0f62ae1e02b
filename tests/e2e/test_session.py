"""A Session is a DuckDB connection: life cycle, transactions, files, threads, delegation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import sqlml
from sqlml import errors
from tests.e2e import child
from tests.e2e.shop import COUNT, FEATURES, fill, yes

pytestmark = pytest.mark.version


def test_models_and_views_survive_in_a_new_process(
    frame: pd.DataFrame, churn: Any, tmp_path: Path
) -> None:
    path = tmp_path / "shop.duckdb"
    fill(path, frame, churn)
    code = (
        "import sys, sqlml\n"
        f"con = sqlml.connect({str(path)!r}, read_only=True)\n"
        "print(con.execute('SELECT count(*) FROM risky').fetchall()[0][0])\n"
        f"print(con.execute({COUNT!r}).fetchall()[0][0])\n"
        "print('sklearn' in sys.modules, 'torch' in sys.modules, 'pickle' in sys.modules and 0)\n"
    )
    out = child.run(code, tmp_path)
    expected = yes(churn, frame)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == [str(expected), str(expected), "False", "False", "0"]


def test_a_script_and_the_command_line_print_no_progress_bar(tmp_path: Path) -> None:
    ask = "SELECT current_setting('enable_progress_bar')"
    out = child.run(f"import sqlml; print(sqlml.connect().execute({ask!r}).fetchall())", tmp_path)
    assert (out.stdout.strip(), out.stderr) == ("[(False,)]", "")
    command = f"import sys; from sqlml.tools.cli import main; sys.exit(main(['-c', {ask!r}]))"
    out = child.run(command, tmp_path)
    assert "false" in out.stdout, out.stderr


def test_a_view_without_a_session_says_what_to_do(
    frame: pd.DataFrame, churn: Any, tmp_path: Path
) -> None:
    fill(tmp_path / "shop.duckdb", frame, churn)
    code = (
        "import duckdb\n"
        "con = duckdb.connect('shop.duckdb')\n"
        "try: con.execute('FROM risky').fetchall()\n"
        "except duckdb.CatalogException as error: print(error)\n"
    )
    assert "sqlml_open_a_session_first_" in child.printed(code, tmp_path)


def test_the_view_works_inside_a_transaction_of_a_new_session(
    frame: pd.DataFrame, churn: Any, tmp_path: Path
) -> None:
    path = tmp_path / "shop.duckdb"
    fill(path, frame, churn)
    with sqlml.connect(path) as con:
        con.execute("BEGIN")
        assert con.execute("SELECT count(*) FROM risky").fetchall() == [(yes(churn, frame),)]
        con.execute("ROLLBACK")
        assert con.execute("SELECT count(*) FROM risky").fetchall() == [(yes(churn, frame),)]


def test_a_view_over_a_dropped_model_says_so(
    frame: pd.DataFrame, churn: Any, tmp_path: Path
) -> None:
    path = tmp_path / "shop.duckdb"
    fill(path, frame, churn)
    with sqlml.connect(path) as con:
        con.execute("DROP MODEL churn")
    code = f"import sqlml; sqlml.connect({str(path)!r}).execute('FROM risky')"
    out = child.run(code, tmp_path)
    assert "UnknownModelError" in out.stderr and "create the view again" in out.stderr


def test_rollback_undoes_create_and_drop(
    con: sqlml.Session, value_model: Any, frame: pd.DataFrame, churn: Any
) -> None:
    con.execute("BEGIN")
    con.create_model("second", value_model)
    assert con.execute(
        "SELECT count(predict('second', *)) FROM customers WHERE tenure > 0"
    ).fetchall()
    con.execute("DROP MODEL churn")
    con.execute("ROLLBACK")
    with pytest.raises(errors.UnknownModelError):
        con.execute("SELECT predict('second', *) FROM customers")
    assert con.execute(COUNT).fetchall() == [(yes(churn, frame),)]
    con.execute("BEGIN; DROP MODEL churn")
    con.create_model("churn", value_model)
    con.execute("COMMIT")
    assert con.execute(
        "SELECT count(predict('churn', *)) FROM customers WHERE tenure > 0"
    ).fetchall()


def test_a_failing_create_ends_its_own_transaction(con: sqlml.Session, value_model: Any) -> None:
    with pytest.raises(errors.ModelExistsError):
        con.create_model("churn", value_model)
    con.execute("BEGIN")  # none is open
    con.execute("CREATE TABLE mine AS SELECT 1 AS a")
    with pytest.raises(errors.ModelExistsError):
        con.create_model("churn", value_model)
    con.execute("COMMIT")  # the user's own work is whole
    assert con.execute("SELECT * FROM mine").fetchall() == [(1,)]


def test_a_model_made_while_others_look(con: sqlml.Session, value_model: Any) -> None:
    other = con.cursor()
    con.execute("BEGIN")
    con.create_model("fresh", value_model)
    with pytest.raises(errors.UnknownModelError):
        other.execute("SELECT predict('fresh', *) FROM customers")
    con.execute("COMMIT")
    query = "SELECT count(predict('fresh', *)) FROM customers WHERE tenure IS NOT NULL"
    assert other.execute(query).fetchall() == con.execute(query).fetchall()


def test_a_function_first_used_in_a_transaction_that_cannot_see_it(
    con: sqlml.Session, value_model: Any
) -> None:
    con.create_model("late", value_model)
    con.execute("BEGIN")
    con.execute("SELECT count(predict('churn', *)) FROM customers").fetchall()
    query = "SELECT count(predict('late', *)) FROM customers WHERE tenure IS NOT NULL"
    inside = con.execute(query).fetchall()
    con.execute("ROLLBACK")
    assert con.execute(query).fetchall() == inside
    con.execute("BEGIN")
    assert con.execute(query).fetchall() == inside
    con.execute("COMMIT")


@pytest.mark.nightly
def test_a_view_made_in_a_transaction_by_one_process_after_another(
    frame: pd.DataFrame, churn: Any, tmp_path: Path
) -> None:
    fill(tmp_path / "shop.duckdb", frame, churn)
    code = (
        "import sqlml\n"
        "con = sqlml.connect('shop.duckdb')\n"
        "con.execute(\"SET sqlml_backend = 'native'\")\n"
        "con.execute('BEGIN')\n"  # which cannot see a function that is made now
        "asked = \"SELECT predict_score('churn', *) FROM customers WHERE tenure IS NOT NULL\"\n"
        "con.execute(f'CREATE OR REPLACE VIEW scored AS {asked}')\n"
        "con.execute('COMMIT')\n"
        "print(con.execute('SELECT count(*) FROM scored').fetchall()[0][0])\n"
    )
    counts = {child.printed(code, tmp_path) for _ in range(2)}
    assert counts == {f"{frame.tenure.notna().sum()}\n"}


def test_or_replace_adds_a_version_and_old_ones_stay(
    con: sqlml.Session, value_model: Any, frame: pd.DataFrame, churn: Any
) -> None:
    con.create_model("churn", value_model, or_replace=True, comment="now a value")
    assert con.execute(
        "SELECT version, is_default FROM sqlml.model_versions WHERE name = 'churn' ORDER BY 1"
    ).fetchall() == [(1, False), (2, True)]
    old = con.execute(COUNT.replace("'churn'", "'churn/1'")).fetchall()
    assert old == [(yes(churn, frame),)]
    first = con.execute(COUNT.replace("'churn'", "'churn@first'")).fetchall()
    assert first == old


def test_show_and_describe(con: sqlml.Session) -> None:
    shown = con.execute("SHOW MODELS").fetchall()
    assert [row[0] for row in shown] == ["churn", "value"]
    assert con.execute("SHOW MODELS LIKE 'CH%'").fetchall()[0][0] == "churn"
    described = dict(con.execute("DESCRIBE MODEL churn").fetchall())
    assert described["classes"] == "no, yes"
    assert described["input 1"] == "tenure DOUBLE"
    assert described["input 3"] == "plan VARCHAR"
    assert described["source"] == "sklearn.pipeline.Pipeline"
    assert set(described["outputs"].split(", ")) == {"label", "proba", "score"}
    features = con.execute(
        "SELECT feature, kind, used FROM sqlml.model_features WHERE name = 'value' "
        "ORDER BY position"
    ).fetchall()
    assert features == [("charges", "number", True), ("tenure", "number", True)]


def test_show_models_in_a_database_without_any() -> None:
    with sqlml.connect() as con:
        assert con.execute("SHOW MODELS").fetchall() == []
        con.execute("DROP MODEL IF EXISTS x")
        assert con.execute(
            "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = 'sqlml'"
        ).fetchall() == [(0,)]


def test_explain_shows_the_model_plan_above_the_engines(con: sqlml.Session) -> None:
    con.execute("SET sqlml_route = 'arrow'")  # then the engine's SQL makes the codes
    text = con.explain("SELECT predict('churn', *) FROM customers WHERE id > 3")
    assert text.index("churn (version 1)") < text.index("customers")
    for part in ("columns read", "tenure DOUBLE", "codes of plan", "native backend"):
        assert part in text
    rows = con.execute("EXPLAIN SELECT predict('churn', *) FROM customers").fetchall()
    assert rows[0][0] == "sqlml_plan" and len(rows) > 1
    analyzed = con.execute("EXPLAIN ANALYZE SELECT predict('churn', *) FROM customers").fetchall()
    assert "churn" in analyzed[0][1]
    plan = con.plan("SELECT predict('churn', *) FROM customers")
    assert plan is not None
    call = plan.to_dict()["calls"][0]
    assert call["model"] == "churn" and call["encoded_in_sql"] == ["plan", "region"]
    con.execute("RESET sqlml_route")
    assert con.plan("SELECT 1") is None


def test_columns_that_the_model_does_not_read_are_not_scanned(con: sqlml.Session) -> None:
    text = con.explain("SELECT predict('value', *) FROM customers")
    scan = text[text.rindex("Table") :]
    assert "charges" in scan and "tenure" in scan
    assert "plan" not in scan and "region" not in scan


def test_results_in_every_shape(con: sqlml.Session, frame: pd.DataFrame, churn: Any) -> None:
    query = "SELECT id, predict('churn', *) AS p FROM customers ORDER BY id"
    expected = churn.predict(frame[FEATURES]).tolist()
    relation = con.sql(query)
    assert relation is not None
    assert relation.df().p.tolist() == expected
    assert relation.arrow()["p"].to_pylist() == expected
    assert con.execute(query).df().p.tolist() == expected
    table = con.execute(query).arrow()
    assert isinstance(table, pa.Table) and table["p"].to_pylist() == expected
    frame_pl = relation.pl()
    assert isinstance(frame_pl, pl.DataFrame) and frame_pl["p"].to_list() == expected
    assert relation.columns == ["id", "p"]
    chained = relation.filter("p = 'yes'").aggregate("count(*)")
    assert chained.fetchall() == [(expected.count("yes"),)]
    assert "yes" in str(relation)


def test_show_prints(con: sqlml.Session, capsys: pytest.CaptureFixture[str]) -> None:
    relation = con.sql("SELECT predict('churn', *) AS p FROM customers LIMIT 3")
    assert relation is not None
    relation.show()
    assert "varchar" in capsys.readouterr().out


def test_python_frames_are_found_where_the_user_stands(
    con: sqlml.Session, frame: pd.DataFrame, churn: Any
) -> None:
    features = frame.head(50)  # names that sqlml's own frames use, too
    query = "SELECT predict('churn', *) AS p FROM features"
    relation = con.sql(query)
    assert relation is not None
    assert [r[0] for r in relation.fetchall()] == churn.predict(features[FEATURES]).tolist()
    tokens = pa.Table.from_pandas(features)
    assert con.execute("SELECT count(predict('churn', *)) FROM tokens").fetchall() == [(50,)]
    sql = pl.from_pandas(features)
    assert con.execute("SELECT count(*) FROM sql").fetchall() == [(50,)]
    assert tokens.num_rows == sql.height


def test_everything_else_is_delegated(con: sqlml.Session, tmp_path: Path) -> None:
    assert con.register("numbers", pd.DataFrame({"a": [1, 2, 3]})) is con
    assert con.table("numbers").aggregate("sum(a)").fetchall() == [(6,)]
    con.create_function("plus_one", lambda x: x + 1, ["INTEGER"], "INTEGER")
    assert con.execute("SELECT plus_one(41)").fetchone() == (42,)
    assert con.executemany("INSERT INTO customers (id) VALUES (?)", [[1001], [1002]]) is con
    assert con.execute("SELECT count(*) FROM customers WHERE id > 1000").fetchall() == [(2,)]
    assert con.values([1, 2]).fetchall() == [(1, 2)]
    assert con.begin() is con
    con.rollback()
    with pytest.raises(AttributeError):
        con.no_such_method()
    for name in dir(duckdb.DuckDBPyConnection):
        if not name.startswith("_") and callable(getattr(duckdb.DuckDBPyConnection, name)):
            assert getattr(con, name).__self__ is con, name


def test_attach_keeps_what_the_connection_holds(frame: pd.DataFrame, churn: Any) -> None:
    native = duckdb.connect()
    native.execute("CREATE TEMP TABLE customers AS SELECT * FROM frame")
    con = sqlml.attach(native)
    con.create_model("churn", churn)
    assert con.execute(COUNT).fetchall() == [(yes(churn, frame),)]
    again = sqlml.attach(native.cursor())
    native.execute("CREATE TABLE lasting AS SELECT * FROM customers")
    assert again.execute(COUNT.replace("customers", "lasting")).fetchall() == [(yes(churn, frame),)]
    with pytest.raises(TypeError, match="DuckDB connection"):
        sqlml.attach("shop.duckdb")


def test_a_model_in_an_attached_database(
    con: sqlml.Session, value_model: Any, tmp_path: Path
) -> None:
    con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
    con.create_model("other.price", value_model)
    query = "SELECT count(predict('other.price', *)) FROM customers WHERE tenure IS NOT NULL"
    assert con.execute(query).fetchall()[0][0] > 0
    with pytest.raises(errors.UnknownModelError):
        con.execute("SELECT predict('price', *) FROM customers")
    con.execute("DROP MODEL other.price")
    with pytest.raises(errors.UnknownModelError):
        con.execute(query)


def test_several_threads_score_through_cursors(
    con: sqlml.Session, frame: pd.DataFrame, churn: Any, value_model: Any
) -> None:
    con.execute("CREATE TABLE many AS SELECT c.* FROM customers c, range(300)")
    expected = yes(churn, frame) * 300
    wrong: list[Any] = []

    def work(number: int) -> None:
        cursor = con.cursor()
        for step in range(3):
            found = cursor.execute(COUNT.replace("customers", "many")).fetchall()
            if found != [(expected,)]:
                wrong.append(found)
            cursor.create_model(
                f"own_{number}_{step}", value_model
            ) if step == 0 and number == 0 else None

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert wrong == []
    assert threading.active_count() < 30


def test_errors_in_threads_stay_apart(con: sqlml.Session) -> None:
    def work(number: int) -> str:
        cursor = con.cursor()
        column = "tenure" if number % 2 else "charges"
        other = "charges" if number % 2 else "tenure"
        with pytest.raises(errors.MissingValueError) as caught:
            cursor.execute(f"SELECT predict('value', {other} := 1.0, {column} := NULL)").fetchall()
        return column if f"'{column}'" in str(caught.value) else "wrong"

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(20))) == ["charges", "tenure"] * 10


def test_decimal_boolean_and_small_types_feed_numeric_features(
    con: sqlml.Session, value_model: Any
) -> None:
    wide = value_model.predict(pd.DataFrame({"charges": [3.0], "tenure": [1.0]}))[0]
    for charges, tenure in (
        ("3::DECIMAL(9, 2)", "true"),
        ("3::UTINYINT", "1::HUGEINT"),
        ("3::FLOAT", "1::TINYINT"),
        ("3.0", "1"),
    ):
        ((got,),) = con.execute(f"SELECT predict('value', {charges}, {tenure})").fetchall()
        assert got == pytest.approx(wide, rel=1e-12)


def test_enums_feed_string_features(con: sqlml.Session, frame: pd.DataFrame, churn: Any) -> None:
    con.execute("CREATE TYPE plan_t AS ENUM ('max', 'basic', 'pro')")
    query = "SELECT predict('churn', * REPLACE (plan::plan_t AS plan)) FROM customers ORDER BY id"
    assert [r[0] for r in con.execute(query).fetchall()] == churn.predict(frame[FEATURES]).tolist()


def test_mixed_case_and_odd_column_names(con: sqlml.Session) -> None:
    from sklearn.linear_model import LinearRegression

    names = ['Größe "x"', "select", "a b", "Ünï"]
    rng = np.random.default_rng(1)
    train = pd.DataFrame(rng.normal(size=(30, 4)), columns=names)
    model = LinearRegression().fit(train, train.sum(axis=1) + rng.normal(size=30))
    con.create_model("odd", model)
    con.register("train", train)
    con.execute("CREATE TABLE odd_table AS SELECT * FROM train")
    for query in (
        "SELECT predict('odd', *) FROM odd_table",
        "SELECT predict('odd', o) FROM odd_table o",
        "SELECT predict('odd', o.*) FROM odd_table o",
        'SELECT predict(\'odd\', "Größe ""x""", "select", "a b", "Ünï") FROM odd_table',
    ):
        got = [r[0] for r in con.execute(query).fetchall()]
        np.testing.assert_allclose(got, model.predict(train), rtol=1e-9)


def test_labels_of_every_type(con: sqlml.Session) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    x = pd.DataFrame({"a": rng.normal(size=200)})
    codes = (x.a > 0).astype(int) + (x.a > 1).astype(int)
    for name, labels, python in (
        ("strings", np.array(["it's", 'say "x"\nnew line', "Ünï"])[codes], str),
        ("integers", np.array([-5, 7, 2**40])[codes], int),
        ("booleans", codes.to_numpy() > 0, bool),
        ("floats", np.array([1.0, -2.0, 3.0])[codes], float),
    ):
        model = LogisticRegression().fit(x, labels)
        con.create_model(name, model)
        con.register("x_frame", x)
        rows = con.sql(
            f"SELECT predict('{name}', *) AS p, predict_proba('{name}', *) AS m FROM x_frame"
        )
        assert rows is not None
        found = rows.fetchall()
        assert [r[0] for r in found] == model.predict(x).tolist()
        assert all(type(r[0]) is python for r in found)
        first = (
            model.classes_[0].item() if hasattr(model.classes_[0], "item") else model.classes_[0]
        )
        np.testing.assert_allclose(
            [r[1][first] for r in found], model.predict_proba(x)[:, 0], rtol=1e-6
        )
    literal = 'say "x"\nnew line'
    ((count,),) = con.execute(
        "SELECT count(*) FROM x_frame WHERE predict_proba('strings', *, class := ?) > 0.5",
        [literal],
    ).fetchall()
    assert count > 0


def test_what_show_answers_blocks_nothing_until_it_is_read(con: sqlml.Session) -> None:
    for asked in (
        "SHOW MODELS",
        "DESCRIBE MODEL churn",
        "EXPLAIN SELECT predict('churn', *) FROM customers",
    ):
        con.execute(asked)
        assert con.sql("SELECT 1").fetchall() == [(1,)]
        con.execute(asked)
        assert con.sql("SELECT count(predict('churn', *)) FROM customers").fetchall()[0][0] > 0
    con.execute("DESCRIBE MODEL churn")
    assert con.fetchone() is not None
    with suppress(duckdb.Error):  # DuckDB 2.0 may refuse, as for any result that is half read
        con.sql("SELECT 1")
    assert con.fetchone() is not None
