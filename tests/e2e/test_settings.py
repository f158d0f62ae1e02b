"""`SET sqlml_backend = ..`: options of a session, before those of its models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import sqlml
from sqlml import errors

QUERY = "SELECT predict_proba('m', *, class := true) FROM t"


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    x = np.random.default_rng(0).normal(size=(200, 3))
    forest = RandomForestClassifier(20, max_depth=6, random_state=0).fit(x, x[:, 0] > x[:, 1])
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT random() AS a, random() AS b, random() AS c FROM range(9)"
        )
        con.create_model("m", forest, inputs=["a", "b", "c"], verify=False)
        con.create_model(
            "own", forest, inputs=["a", "b", "c"], backend="torch", strategy="gemm", verify=False
        )
        yield con


def ways(con: sqlml.Session, query: str = QUERY) -> tuple[str, str, str]:
    plan = con.plan(query)
    assert plan is not None
    spec = plan.calls[0].spec
    return spec.backend, spec.strategy, spec.device


def test_a_setting_comes_before_the_model_until_it_is_reset(con: sqlml.Session) -> None:
    first, want = ways(con), con.execute(QUERY).fetchall()
    assert first[0] == "native"
    con.execute("SET sqlml_backend = 'torch'")
    assert ways(con)[0] == "torch"
    got = con.execute(QUERY).fetchall()
    np.testing.assert_allclose(got, want, rtol=1e-12)
    con.execute("set session SQLML_strategy to gemm; SELECT 1")
    assert ways(con) == ("torch", "gemm", "cpu")
    con.execute("RESET sqlml_strategy")
    con.execute("SET LOCAL sqlml_backend = DEFAULT")
    assert ways(con) == first
    assert ways(con, QUERY.replace("'m'", "'own'"))[:2] == ("torch", "gemm")
    con.execute("SET sqlml_backend = native; SET sqlml_strategy = 'auto'")
    assert ways(con, QUERY.replace("'m'", "'own'"))[0] == "native"


def test_explain_names_the_setting(con: sqlml.Session) -> None:
    con.execute("SET sqlml_backend = 'onnxruntime'")
    assert "onnxruntime backend" in con.explain(QUERY)


def test_a_setting_is_the_sessions_own(con: sqlml.Session) -> None:
    con.execute("SET sqlml_backend = 'torch'")
    assert ways(con.cursor())[0] == "native"
    con.sql("RESET sqlml_backend")
    assert ways(con)[0] == "native"


def test_other_settings_and_variables_are_the_engines(con: sqlml.Session) -> None:
    con.execute("SET threads = 1; SET VARIABLE sqlml_backend = 'torch'; RESET threads")
    assert con.execute("SELECT getvariable('sqlml_backend')").fetchall() == [("torch",)]
    assert ways(con)[0] == "native"


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (
            "SET sqlml_backed = 'torch'",
            "ConfigError",
            "unknown setting sqlml_backed; .*sqlml_backend",
        ),
        (
            "SET sqlml_backend = 'cuda'",
            "ConfigError",
            "unknown backend 'cuda'; sqlml_backend takes auto, sql, .*torch",
        ),
        ("SET sqlml_backend = 3", "ConfigError", "unknown backend 3"),
        (
            "SET sqlml_device = 'gpu'",
            "ConfigError",
            "unknown device 'gpu'; sqlml_device takes auto, cpu, cuda",
        ),
        ("RESET sqlml_nothing", "ConfigError", "unknown setting sqlml_nothing"),
        ("SET GLOBAL sqlml_backend = 'torch'", "ParseError", "leave GLOBAL out"),
        ("SET sqlml_backend 'torch'", "ParseError", "expected = and a value"),
        ("SET sqlml_backend =", "ParseError", "expected a value"),
        ("SET sqlml_backend = NULL", "ParseError", "RESET restores the default"),
        ("SET sqlml_backend = 'torch' 'x'", "ParseError", "end of the statement"),
    ],
)
def test_what_cannot_be_set(con: sqlml.Session, statement: str, error: str, message: str) -> None:
    with pytest.raises(getattr(errors, error), match=message):
        con.execute(statement)
    assert ways(con)[0] == "native"


def test_a_strategy_that_the_backend_lacks_says_so_at_the_call(con: sqlml.Session) -> None:
    con.execute("SET sqlml_backend = 'native'; SET sqlml_strategy = 'gemm'")
    with pytest.raises(errors.ConfigError, match="no strategy 'gemm'") as caught:
        con.execute(QUERY)
    assert "LINE 1: SELECT predict_proba" in str(caught.value)
