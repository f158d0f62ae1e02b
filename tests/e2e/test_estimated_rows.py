"""How many rows reach a call, as the engine estimates it: shown by EXPLAIN, and used to choose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.neural_network import MLPRegressor

import sqlml
from sqlml.backends import costs
from sqlml.planner.program.cost import ROWS

pytestmark = pytest.mark.version

FEATURES = ["a", "b"]


@pytest.fixture(scope="module")
def forest() -> Any:
    x = pd.DataFrame(np.random.default_rng(2).normal(size=(300, 2)), columns=FEATURES)
    return RandomForestRegressor(6, max_depth=6, random_state=0).fit(x, x.a * x.b)


@pytest.fixture
def con(forest: Any) -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.execute(
            "CREATE TABLE t AS SELECT i AS id, i * 0.5 AS a, -i::DOUBLE AS b, NULL::DOUBLE AS p "
            "FROM range(3000) r(i)"
        )
        session.execute("CREATE TABLE none AS FROM t LIMIT 0")
        session.create_model("m", forest, backend="native", verify=False)
        yield session


def call_of(con: sqlml.Session, query: str, params: Any = None) -> dict[str, Any]:
    plan = con.plan(query, params)
    assert plan is not None
    made: dict[str, Any] = plan.to_dict()["calls"][0]
    return made


def own_estimate(con: sqlml.Session, query: str) -> int:
    rows = con.connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    return int(json.loads(rows[0][1])[0]["extra_info"]["Estimated Cardinality"])


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT predict('m', *) FROM t", 3000),
        ("FROM t SELECT predict('m', *)", 3000),
        ("SELECT sum(predict('m', *)) FROM t", 3000),
        ("SELECT predict('m', 1.0, 2.0)", 1),
        ("SELECT predict('m', *) FROM (FROM t LIMIT 10)", 10),
        ("WITH x AS (FROM t LIMIT 7) SELECT predict('m', *) FROM x", 7),
        ("WITH y AS (FROM t LIMIT 7) SELECT * FROM (SELECT predict('m', *) FROM y)", 7),
        ("SELECT (SELECT predict('m', t.a, u.b) FROM none u LIMIT 1) FROM t", None),
        ("UPDATE t SET p = predict('m', *)", 3000),
        ("INSERT INTO none SELECT id, a, b, predict('m', *) FROM t", 3000),
        ("SELECT id FROM t WHERE predict('m', *) > 1", 3000),
        ("SELECT predict('m', *) FROM t WHERE predict('m', *) > 1 AND id = 5", 3000),
        ("SELECT predict('m', *) AS score FROM t WHERE score > 1", 3000),
        ("SELECT predict('m', *) FROM none", None),
        ("SELECT predict('m', *) FROM (FROM t WHERE predict('m', *) > 1)", None),
        ("SELECT predict('m', *) FROM t UNION ALL SELECT predict('m', *) FROM none", 3000),
    ],
)
def test_the_rows_of_the_calls_own_from(con: sqlml.Session, query: str, rows: int | None) -> None:
    """Where the engine has no estimate, or the NULLs in place of calls spoil it, none is shown."""
    plan = con.plan(query)
    assert plan is not None
    outermost = plan.calls[-1]
    assert (outermost if "FROM (FROM t WHERE" in query else plan.calls[0]).rows.estimate == rows
    made = plan.to_dict()["calls"][0]
    assert made["batch_rows"] == 2048
    text = con.explain(query)
    if rows is None:
        assert f"{ROWS:,} assumed, since the engine estimates none; 2,048 at a time" in text
    else:
        assert f"{rows:,} estimated by the engine; 2,048 at a time" in text


def test_a_filter_counts_where_it_is_known(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *) FROM t WHERE id < 10 AND a > 3"
    expected = own_estimate(con, "SELECT 1 FROM t WHERE id < 10 AND a > 3")
    assert 0 < expected < 3000
    assert call_of(con, query)["rows"] == expected
    assert call_of(con, query.replace("10", "?"), [10])["rows"] == 3000
    assert call_of(con, query.replace("10", "$top"), {"top": 10})["rows"] == 3000
    assert (
        call_of(con, "SELECT predict('m', *) FROM (SELECT a, b FROM t WHERE id = ?)", [5])["rows"]
        == ROWS
    )


def test_frames_and_tables_of_this_transaction(con: sqlml.Session) -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "b": 1.0})
    plan = con.plan("SELECT predict('m', *) FROM frame")
    assert plan is not None and plan.calls[0].rows.estimate == len(frame)
    con.execute("BEGIN")
    con.execute("CREATE TEMP TABLE mine AS FROM t LIMIT 20")
    expected = own_estimate(con, "SELECT 1 FROM mine")
    assert expected in (0, 20)  # 1.5 does not count rows that are not committed
    assert call_of(con, "SELECT predict('m', *) FROM mine")["rows"] == (expected or ROWS)
    con.execute("INSERT INTO mine FROM mine")  # the transaction goes on
    con.execute("ROLLBACK")


def test_an_unfinished_result_stays_as_it_is(con: sqlml.Session) -> None:
    con.connection.execute("SELECT i FROM range(100000) r(i)")
    assert con.connection.fetchone() == (0,)
    assert con._services.engine.estimate_rows("SELECT 1 FROM t") in (
        3000,
        None,
    )  # 2.0 does nothing else meanwhile
    assert con.connection.fetchone() == (1,)


def test_explain_asks_anew_and_a_plan_is_kept(con: sqlml.Session) -> None:
    query = "SELECT predict('m', *) FROM t"
    first = con.plan(query)
    assert "3,000 estimated" in con.explain(query)
    con.execute("INSERT INTO t FROM t")
    assert con.plan(query) is first  # rows are no question that a plan rests on
    assert "6,000 estimated" in con.explain(query)


@pytest.mark.parametrize("shown", ["all", "optimized_only", "physical_only"])
def test_the_users_own_settings_of_explain_change_nothing(con: sqlml.Session, shown: str) -> None:
    con.execute(f"SET explain_output = '{shown}'")
    assert call_of(con, "SELECT predict('m', *) FROM t")["rows"] == 3000


@pytest.fixture
def other_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which sqlml's own kernels are slow, and onnxruntime's calls."""
    path = tmp_path / "costs.json"
    slow_costs = {"native.arithmetic": 50.0, "native.product": 5.0, "onnxruntime.call": 100_000.0}
    path.write_text(json.dumps({**slow_costs, "torch.call": 1e9}))
    monkeypatch.setenv("SQLML_COSTS", str(path))
    costs.current_costs.cache_clear()
    yield
    monkeypatch.undo()
    costs.current_costs.cache_clear()


@pytest.mark.filterwarnings("ignore")
def test_the_way_to_run_is_chosen_by_the_rows(con: sqlml.Session, other_costs: None) -> None:
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(11)
    x = pd.DataFrame(rng.normal(size=(200, 2)), columns=FEATURES)
    model = MLPRegressor(hidden_layer_sizes=(16,), max_iter=5, random_state=0).fit(x, x.a)
    con.create_model("net", model)
    con.execute(
        "CREATE TABLE big AS SELECT i AS id, (i % 7)::DOUBLE AS a, 1.0 AS b FROM range(800000) r(i)"
    )
    con.execute("CREATE TABLE small AS FROM big LIMIT 10")
    few, many = (f"SELECT predict('net', *) FROM {name}" for name in ("small", "big"))
    assert call_of(con, few)["backend"] == "native"
    kept = con.plan(many)
    assert kept is not None
    made = kept.to_dict()["calls"][0]
    assert (made["backend"], made["rows"]) == ("onnxruntime", 800_000)
    assert {e["rows"] for e in made["estimates"]} == {1_000_000}
    text = con.explain(many)
    assert "800,000 estimated by the engine, taken as 1,000,000; 2,048 at a time" in text
    assert "for 1,000,000 rows on one thread" in text
    one = con.execute(few + " ORDER BY id").fetchall()
    same = con.execute(f"{many} WHERE id < 10 ORDER BY id").fetchall()
    np.testing.assert_allclose(one, same, rtol=1e-6)
    con.execute("INSERT INTO big FROM big LIMIT 100000")
    assert con.plan(many) is kept
    again = call_of(con, many + " -- once more")
    assert again["rows"] == 900_000 and again["function"] == made["function"]
    con.create_model("asked", model, backend="native")
    assert call_of(con, many.replace("net", "asked"))["backend"] == "native"
    both = con.plan("SELECT predict('net', *), id FROM big WHERE predict('net', *) > 0")
    assert both is not None
    assert {c.choice.backend for c in both.calls} == {"onnxruntime"}
