"""EXPLAIN ANALYZE: what the functions of a query did while it ran, once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml.errors import MissingValueError

pytestmark = pytest.mark.version

ROWS = 5000
FEATURES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    made = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=FEATURES)
    made["id"] = np.arange(ROWS)
    return made


@pytest.fixture(scope="module")
def forest(frame: pd.DataFrame) -> Any:
    y = np.where(frame.a * frame.b > 0, "yes", "no")
    return RandomForestClassifier(8, max_depth=6, random_state=0).fit(frame[FEATURES], y)


@pytest.fixture(scope="module")
def linear(frame: pd.DataFrame) -> Any:
    y = frame.a - 2 * frame.b
    return make_pipeline(SimpleImputer(), LinearRegression()).fit(frame[FEATURES], y)


@pytest.fixture
def con(frame: pd.DataFrame, forest: Any, linear: Any) -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.execute("SET threads = 1")
        session.execute("CREATE TABLE t AS SELECT * FROM frame ORDER BY id")
        session.create_model("m", forest, verify=False)
        session.create_model("line", linear, verify=False)
        yield session


def analysed(con: sqlml.Session, query: str, params: Any = None) -> dict[str, Any]:
    plan = con.plan(query, params, analyze=True)
    assert plan is not None
    return plan.to_dict()


def block(con: sqlml.Session, query: str, params: Any = None) -> list[str]:
    """The plan's lines, those of one part as one line."""
    text = con.explain(query, params, analyze=True).split("\n\n")[0]
    assert max(map(len, text.splitlines())) <= 96
    return text.replace("\n" + " " * 20, " ").splitlines()


def line(lines: list[str], title: str) -> str:
    [found] = [text for text in lines if text.startswith(f"  {title} ")]
    return found[20:]


def test_all_rows_are_counted_and_the_time_is_part_of_the_whole(con: sqlml.Session) -> None:
    made = analysed(con, "SELECT predict('m', *) FROM t")
    measured = made["calls"][0]["measured"]
    assert measured["rows"] == ROWS and measured["rows_again"] == 0
    assert measured["batches"] == -(-ROWS // 2048)
    assert 0 < measured["seconds"] <= made["measured"]["in_functions"] * 1.001
    assert made["measured"]["in_functions"] < made["measured"]["seconds"] < 60
    again = analysed(con, "SELECT predict('m', *) FROM t")
    assert again["calls"][0]["measured"]["rows"] == ROWS  # and not those of the first time too


def test_the_text_tells_rows_batches_and_times(con: sqlml.Session) -> None:
    lines = block(con, "SELECT predict('m', *) FROM t WHERE id < 3000")
    measured = line(lines, "measured")
    assert measured.startswith("3,000 rows in 2 batches, ")
    assert "in the function on all threads (" in measured and measured.endswith(" a row)")
    assert lines[-1].startswith("  whole query") and "% of it in functions of sqlml" in lines[-1]
    rows = con.execute("EXPLAIN ANALYZE SELECT predict('m', *) FROM t").fetchall()
    assert [key for key, _ in rows] == ["sqlml_plan", "analyzed_plan"]
    assert "5,000 rows in 3 batches" in rows[0][1] and "Total Time" in rows[1][1]
    same = con.explain("EXPLAIN ANALYZE SELECT predict('m', *) FROM t")
    assert "5,000 rows in 3 batches" in same


def test_a_query_that_is_not_analysed_measures_nothing(con: sqlml.Session) -> None:
    plan = con.plan("SELECT predict('m', *) FROM t")
    assert plan is not None and plan.analysis is None and "measured" not in plan.to_dict()
    assert "measured" not in con.explain("SELECT predict('m', *) FROM t")
    assert con.plan("SELECT id FROM t", analyze=True) is None
    assert "sqlml" not in con.explain("SELECT id FROM t", analyze=True)


def test_calls_that_share_a_function_are_counted_once(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *), predict_proba('m', *, class := 'yes') FROM t"
    first, second = analysed(con, query)["calls"]
    assert first["measured"]["rows"] == ROWS and second["measured"] == {"with_call": 0}
    lines = block(con, query)
    told = [text[20:] for text in lines if text.startswith("  measured ")]
    assert told[0].endswith("for calls 1, 2")
    assert told[1] == "with call 1, whose function it shares"
    both = "SELECT predict('m', *) FROM t UNION ALL SELECT predict('m', *) FROM t WHERE id < 10"
    assert analysed(con, both)["calls"][0]["measured"]["rows"] == ROWS + 10


def test_rows_that_come_again_are_told(con: sqlml.Session) -> None:
    query = "SELECT id, predict('m', *) FROM t WHERE predict('m', *) = 'yes'"
    (filtered,) = con.execute(query.replace("id, predict('m', *)", "count(*)")).fetchone()
    measured = analysed(con, query)["calls"][0]["measured"]
    assert measured["rows"] == ROWS + measured["rows_again"]
    assert measured["rows_again"] in (0, filtered)  # or they are made in FROM once


def test_a_label_and_a_call_in_a_lambda_are_evaluated_once_for_what_asks_them(
    con: sqlml.Session, frame: pd.DataFrame
) -> None:
    """Not once for each class that the label is compared with."""
    labels = np.where(frame.a > 0.5, "low", np.where(frame.b > 0, "mid", "high"))
    several = RandomForestClassifier(8, max_depth=6, random_state=0).fit(frame[FEATURES], labels)
    con.create_model("several", several, or_replace=True)
    joined = "FROM (FROM t LIMIT 300) l FULL JOIN (FROM t LIMIT 300) r ON l.a < r.b WHERE "
    low = "predict('several', l.*) = 'low'"
    each = "u + predict_proba('m', l.*, class := 'yes')"
    query = f"{joined}{low} AND list_sum(list_transform([0, 1, 2], lambda u: {each})) >= 0"
    rows, kept = (
        con.execute(f"SELECT count(*) {joined}{condition}").fetchone()[0]
        for condition in ("true", low)
    )
    calls = {c["model"]: c for c in analysed(con, f"SELECT count(*) {query}")["calls"]}
    assert rows > kept > 1000
    assert calls["several"]["measured"]["rows"] == rows
    assert calls["m"]["measured"]["rows"] == 3 * kept


def test_a_model_in_sql_tells_how_many_rows_went_to_the_function(con: sqlml.Session) -> None:
    query = "SELECT predict('line', *) FROM t"
    made = analysed(con, query)["calls"][0]
    assert made["backend"] == "sql" and made["measured"]["rows"] == 0
    assert made["measured"]["batches"] == 0
    assert line(block(con, query), "measured") == (
        "no row went to the function: all were scored in SQL"
    )


def test_rows_that_sql_cannot_score_are_told(con: sqlml.Session) -> None:
    torch = pytest.importorskip("torch")  # whose linear layer makes NaN of NaN
    con.create_model("layer", torch.nn.Linear(3, 1).double(), inputs=FEATURES)
    con.execute("UPDATE t SET b = NULL WHERE id % 100 = 7")
    query = "SELECT predict('layer', *) FROM t"
    made = analysed(con, query)["calls"][0]
    assert made["backend"] == "sql" and made["measured"]["rows"] == ROWS // 100
    assert line(block(con, query), "measured").startswith("50 rows went to the function in ")


@pytest.mark.parametrize("name", ["m", "line"])
def test_a_statement_that_writes_runs_once(con: sqlml.Session, name: str) -> None:
    con.execute("CREATE TABLE scored (id BIGINT, p VARCHAR)")
    query = f"INSERT INTO scored SELECT id, predict('{name}', *) FROM t WHERE id < 100"
    expected = con.execute(query.split("scored ", 1)[1]).fetchall()
    con.execute(f"EXPLAIN ANALYZE {query}").fetchall()
    assert con.execute("SELECT count(*) FROM scored").fetchone() == (100,)
    con.explain(query, analyze=True)
    assert con.execute("SELECT count(*) FROM scored").fetchone() == (200,)
    con.plan(query, analyze=True)
    assert con.execute("SELECT count(*) FROM scored").fetchone() == (300,)
    con.plan(query)
    con.explain(query)
    assert con.execute("SELECT count(*) FROM scored").fetchone() == (300,)
    got = con.execute("SELECT DISTINCT id, p FROM scored ORDER BY id").fetchall()
    assert [(i, str(p)) for i, p in expected] == got


def test_it_runs_in_the_users_transaction(con: sqlml.Session) -> None:
    con.execute("BEGIN")
    con.execute("CREATE TABLE mine AS FROM t LIMIT 30")
    small = RandomForestClassifier(2, random_state=0).fit([[0.0], [1.0]], [0, 1])
    con.create_model("own", small, inputs=["a"], backend="native")
    query = "SELECT predict('own', *) FROM mine"
    assert analysed(con, query)["calls"][0]["measured"]["rows"] == 30
    assert len(con.execute(query).fetchall()) == 30
    con.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'mine'").fetchall()
    assert analysed(con, "SELECT predict('m', *) FROM t")["calls"][0]["measured"]["rows"] == ROWS


def test_parameters_are_given_once(con: sqlml.Session) -> None:
    query = "SELECT predict(?, *), id + ? FROM t WHERE id < ?"
    call = analysed(con, query, ["m", 1, 1000])["calls"][0]
    assert call["measured"]["rows"] == 1000
    assert line(block(con, query, ["m", 1, 7]), "measured").startswith("7 rows in 1 batch, ")
    rows = con.execute(f"EXPLAIN ANALYZE {query}", ["m", 1, 9]).fetchall()
    assert "9 rows in 1 batch, " in rows[0][1]
    named = "SELECT predict($model, *) FROM t WHERE id < $most"
    assert analysed(con, named, {"model": "m", "most": 12})["calls"][0]["measured"]["rows"] == 12


def test_no_rows_at_all(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *) FROM t WHERE id < 0"
    assert analysed(con, query)["calls"][0]["measured"] == {
        "rows": 0,
        "rows_again": 0,
        "batches": 0,
        "seconds": 0.0,
    }
    assert line(block(con, query), "measured") == "no row went to the function"


def test_an_error_inside_is_the_models_own(con: sqlml.Session, frame: pd.DataFrame) -> None:
    strict = LogisticRegression().fit(frame[FEATURES], frame.a > 0)
    con.create_model("strict", strict, backend="native")
    con.execute("UPDATE t SET b = NULL WHERE id = 4500")
    query = "SELECT predict('strict', *) FROM t"
    for run in (con.explain, con.plan):
        with pytest.raises(MissingValueError, match="'b'"):
            run(query, analyze=True)
    with pytest.raises(MissingValueError, match="'b'"):
        con.execute(f"EXPLAIN ANALYZE {query}")
    con.execute("UPDATE t SET b = 0 WHERE id = 4500")
    assert analysed(con, query)["calls"][0]["measured"]["rows"] == ROWS


def test_texts_are_measured_too(con: sqlml.Session) -> None:
    notes = ["late again", "on time", "very late", "on time again"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(notes, [1, 0, 1, 0])
    con.create_model("notes", model, inputs=["note"])
    con.execute("CREATE TABLE n AS SELECT unnest(['so late', 'on time', NULL]) AS note LIMIT 2")
    measured = analysed(con, "SELECT predict('notes', *) FROM n")["calls"][0]["measured"]
    assert measured["rows"] == 2 and measured["batches"] == 1 and measured["seconds"] > 0


def test_a_view_that_is_made_meanwhile_is_one_for_every_process(
    tmp_path: Path, frame: pd.DataFrame, forest: Any
) -> None:
    with sqlml.connect(tmp_path / "a.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT * FROM frame")
        con.create_model("m", forest)
        text = con.explain("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t", analyze=True)
        assert "measured" not in text and "  whole query" in text
        con.explain("CREATE TABLE made AS SELECT predict('m', *) AS p FROM t", analyze=True)
        expected = con.execute("FROM made").fetchall()
        assert con.execute("FROM v").fetchall() == expected
    with sqlml.connect(tmp_path / "a.duckdb") as con:  # its functions are made by their names
        assert con.execute("FROM v").fetchall() == expected


def test_several_sessions_at_once_count_their_own_rows(con: sqlml.Session) -> None:
    """While others analyse the same function, and one runs it plainly."""
    query = "SELECT predict('m', *) FROM t WHERE id < {}"
    counts = [300, 1000, 2500]
    seen: dict[int, list[int]] = {n: [] for n in counts}
    cursors = {n: con.cursor() for n in counts}
    plain, stop = con.cursor(), threading.Event()

    def analyse(n: int) -> None:
        for _ in range(6):
            call = analysed(cursors[n], query.format(n))["calls"][0]
            seen[n].append(call["measured"]["rows"])

    def score() -> None:
        while not stop.is_set():
            assert len(plain.execute(query.format(4000)).fetchall()) == 4000

    background = threading.Thread(target=score)
    background.start()
    threads = [threading.Thread(target=analyse, args=(n,)) for n in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    background.join()
    assert seen == {n: [n] * 6 for n in counts}


def test_many_threads_of_one_query(con: sqlml.Session) -> None:
    con.execute("SET threads = 4")
    con.execute("CREATE TABLE many AS SELECT t.* FROM t, range(80)")
    made = analysed(con, "SELECT sum(predict_proba('m', *, class := 'yes')) FROM many")
    assert made["calls"][0]["measured"]["rows"] == 80 * ROWS
    assert made["calls"][0]["measured"]["batches"] >= 80 * ROWS / 2048
    assert made["measured"]["in_functions"] <= made["measured"]["seconds"]
