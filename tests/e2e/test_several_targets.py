"""Models of several targets in SQL: lists, one entry per target, equal to the source library."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml import errors
from sqlml.types import Array, Labels
from tests.support import oracles

ROWS = 200


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=["a", "b", "c"])


@pytest.fixture(scope="module")
def codes(table: pd.DataFrame) -> Array:
    """Class numbers of three targets with 3, 2 and 4 classes."""
    total = table.to_numpy() @ np.array([[1, 2, 0.5], [1, -1, 1], [0, 1, 3]])
    edges = ([-1, 1], [0], [-2, 0, 2])
    return np.stack([np.digitize(total[:, t], e) for t, e in enumerate(edges)], axis=1)


@pytest.fixture
def con(table: pd.DataFrame) -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("frame", table.assign(id=np.arange(ROWS)))
        session.execute("CREATE TABLE t AS SELECT * FROM frame")
        session.unregister("frame")
        yield session


def answers(con: sqlml.Session, call: str) -> tuple[str, list[Any]]:
    """The type of a call's column, and its values in the order of the rows."""
    relation = con.sql(f"SELECT {call} AS answer FROM t ORDER BY id")
    assert relation is not None
    return str(relation.types[0]), [row[0] for row in relation.fetchall()]


def described(con: sqlml.Session) -> dict[str, str]:
    return dict(con.execute("DESCRIBE MODEL m").fetchall())


# -- regressors


@pytest.mark.parametrize("backend", ["native", "reference", "torch"])
def test_a_regressor_of_two_targets_returns_a_list_of_doubles(
    con: sqlml.Session, table: pd.DataFrame, backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    targets = np.stack([table.a * 2 - table.b, table.c**2], axis=1)
    for model in (LinearRegression(), RandomForestRegressor(4, random_state=0)):
        model.fit(table, targets)
        con.create_model("m", model, or_replace=True, backend=backend)
        kind, got = answers(con, "predict('m', *)")
        assert kind == "DOUBLE[]"
        np.testing.assert_allclose(np.array(got), model.predict(table), rtol=1e-12)
    assert answers(con, "predict('m', *)[2]")[0] == "DOUBLE"
    assert described(con)["targets"] == "2"
    assert described(con)["classes"] == ""


def test_a_regressor_of_one_target_in_a_matrix_returns_a_number(
    con: sqlml.Session, table: pd.DataFrame
) -> None:
    con.create_model("m", LinearRegression().fit(table, table[["a"]] * 3))
    assert answers(con, "predict('m', *)")[0] == "DOUBLE"
    assert described(con)["targets"] == "1"


def test_a_result_without_rows_keeps_its_type(
    con: sqlml.Session, table: pd.DataFrame, codes: Array
) -> None:
    con.create_model("m", RandomForestClassifier(3, random_state=0).fit(table, codes))
    for call, kind in (("predict", "BIGINT[]"), ("predict_proba", "MAP(BIGINT, DOUBLE)[]")):
        relation = con.sql(f"SELECT {call}('m', *) AS x FROM t WHERE a > 1e9")
        assert relation is not None
        assert (str(relation.types[0]), relation.fetchall()) == (kind, [])


# -- classifiers


@pytest.mark.parametrize(
    ("kind", "sql"),
    [("string", "VARCHAR"), ("int64", "BIGINT"), ("bool", "BOOLEAN"), ("float64", "DOUBLE")],
)
def test_a_classifier_returns_a_label_and_a_map_per_target(
    con: sqlml.Session, table: pd.DataFrame, codes: Array, kind: Any, sql: str
) -> None:
    labels = oracles.classes(kind, codes)
    model = RandomForestClassifier(5, max_depth=4, random_state=0).fit(table, labels)
    con.create_model("m", model)
    found, got = answers(con, "predict('m', *)")
    assert found == f"{sql}[]"
    assert got == model.predict(table).astype(labels.dtype).tolist()
    found, maps = answers(con, "predict_proba('m', *)")
    assert found == f"MAP({sql}, DOUBLE)[]"
    theirs = model.predict_proba(table)
    for t, classes in enumerate(model.classes_):
        assert all(list(row[t]) == classes.tolist() for row in maps)
        np.testing.assert_array_equal([list(row[t].values()) for row in maps], theirs[t])


def test_a_chosen_class_is_a_list_with_null_where_a_target_lacks_it(
    con: sqlml.Session, table: pd.DataFrame, codes: Array
) -> None:
    model = RandomForestClassifier(5, max_depth=4, random_state=0)
    model.fit(table, oracles.classes("string", codes))
    con.create_model("m", model)
    theirs = model.predict_proba(table)
    kind, got = answers(con, "predict_proba('m', *, class := 'maybe')")
    assert kind == "DOUBLE[]"
    places = [c.tolist().index("maybe") if "maybe" in c else None for c in model.classes_]
    assert places.count(None) == 1
    for t, place in enumerate(places):
        column = [row[t] for row in got]
        assert column == ([None] * ROWS if place is None else theirs[t][:, place].tolist())
    with pytest.raises(errors.BindError, match="no class 'never'; its classes are 'maybe', 'no'"):
        con.execute("SELECT predict_proba('m', *, class := 'never') FROM t")


def test_many_labels_in_each_target(con: sqlml.Session, table: pd.DataFrame) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 40, (ROWS, 3)) * 3 - 5
    model = DecisionTreeClassifier(max_depth=8, random_state=0).fit(table, labels)
    con.create_model("m", model)
    assert answers(con, "predict('m', *)")[1] == model.predict(table).tolist()


def test_multilabel_gives_the_probability_of_each_label(
    con: sqlml.Session, table: pd.DataFrame, codes: Array
) -> None:
    flags = (codes > 0).astype(int)
    for model in (
        ClassifierChain(LogisticRegression(), order=[2, 0, 1], chain_method="predict_proba"),
        MLPClassifier((4,), max_iter=30, random_state=0),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(table, flags)
        con.create_model("m", model, or_replace=True)
        kind, got = answers(con, "predict('m', *)")
        assert (kind, got) == ("BIGINT[]", model.predict(table).tolist())
        theirs = model.predict_proba(table)
        for chosen, want in (("1", theirs), ("0", 1 - theirs)):
            kind, got = answers(con, f"predict_proba('m', *, class := {chosen})")
            assert kind == "DOUBLE[]"
            np.testing.assert_allclose(got, want, rtol=1e-9)
        kind, maps = answers(con, "predict_proba('m', *)")
        assert kind == "MAP(BIGINT, DOUBLE)[]"
        both = [[[row[t][0], row[t][1]] for t in range(3)] for row in maps]
        np.testing.assert_allclose(both, np.stack([1 - theirs, theirs], axis=2), rtol=1e-9)


def test_scores_are_a_list(con: sqlml.Session, table: pd.DataFrame, codes: Array) -> None:
    model = RidgeClassifier().fit(table, (codes > 0).astype(int))
    con.create_model("m", model)
    kind, got = answers(con, "predict_score('m', *)")
    assert kind == "DOUBLE[]"
    np.testing.assert_allclose(got, model.decision_function(table), rtol=1e-12)
    assert answers(con, "predict('m', *)")[1] == model.predict(table).tolist()


def mixed(table: pd.DataFrame, codes: Array, binary: bool) -> Any:
    """A Program whose targets have labels of different types, which no list can hold."""
    chosen = np.minimum(codes, 1) if binary else codes
    method = ClassifierChain if binary else MultiOutputClassifier
    program = sqlml.compile(method(LogisticRegression()).fit(table, chosen)).program
    words = [("no", "yes", "maybe", "other")[: len(s)] for s in program.labels]
    labels = (Labels("string", words[0]), program.labels[1], Labels("string", words[2]))
    return type(program)(program.nodes, program.inputs, program.outputs, labels), method, chosen


@pytest.mark.parametrize("binary", [False, True])
def test_labels_of_different_types_make_a_struct(
    con: sqlml.Session, table: pd.DataFrame, codes: Array, binary: bool
) -> None:
    program, method, chosen = mixed(table, codes, binary)
    model = method(LogisticRegression()).fit(table, chosen)
    con.create_model("m", program)
    kind, got = answers(con, "predict('m', *)")
    assert kind == "STRUCT(t0 VARCHAR, t1 BIGINT, t2 VARCHAR)"
    numbers = model.predict(table).astype(int)
    want = [[s.values[i] for s, i in zip(program.labels, row, strict=True)] for row in numbers]
    assert [list(row.values()) for row in got] == want
    assert sqlml.compile(program).predict(table).tolist() == want
    kind, maps = answers(con, "predict_proba('m', *)")
    assert kind == (
        "STRUCT(t0 MAP(VARCHAR, DOUBLE), t1 MAP(BIGINT, DOUBLE), t2 MAP(VARCHAR, DOUBLE))"
    )
    theirs = model.predict_proba(table)
    yes = [[row["t0"]["yes"], row["t1"][1], row["t2"]["yes"]] for row in maps]
    second = theirs if binary else np.stack([p[:, 1] for p in theirs], axis=1)
    np.testing.assert_allclose(yes, second, rtol=1e-9)
    kind, picked = answers(con, "predict_proba('m', *, class := 'yes')")
    assert kind == "DOUBLE[]"
    assert picked == [[y[0], None, y[2]] for y in yes]


# -- places and shapes


def test_it_stands_wherever_an_expression_stands(
    con: sqlml.Session, table: pd.DataFrame, codes: Array, tmp_path: Path
) -> None:
    model = RandomForestClassifier(3, max_depth=3, random_state=0)
    labels = oracles.classes("string", codes)
    model.fit(table, labels)
    want = model.predict(table)
    con.create_model("m", model)
    con.execute(
        "CREATE VIEW v AS SELECT id, predict('m', *) AS p, predict_proba('m', *) AS q FROM t"
    )
    assert [r[0] for r in con.execute("SELECT p FROM v ORDER BY id").fetchall()] == want.tolist()
    counted = con.execute("SELECT count(*) FROM t WHERE predict('m', *)[2] = 'yes'").fetchall()
    assert counted == [(int((want[:, 1] == "yes").sum()),)]
    grouped = con.execute("SELECT predict('m', *) AS p, count(*) FROM t GROUP BY p").fetchall()
    assert sum(n for _, n in grouped) == ROWS
    assert {tuple(p) for p, _ in grouped} == {tuple(row) for row in want.tolist()}
    longest = con.execute(
        "SELECT max(list_max(map_values(m))) FROM (SELECT unnest(q) AS m FROM v)"
    ).fetchall()
    assert longest == [(max(p.max() for p in model.predict_proba(table)),)]


def test_a_prediction_feeds_another_model(con: sqlml.Session, table: pd.DataFrame) -> None:
    first = LinearRegression().fit(table, np.stack([table.a + table.b, table.c], axis=1))
    second = LinearRegression().fit(table[["a"]].rename(columns={"a": "x"}), table.b)
    con.create_model("first", first)
    con.create_model("second", second)
    _, got = answers(con, "predict('second', x := predict('first', *)[1])")
    x = pd.DataFrame({"x": first.predict(table)[:, 0]})
    np.testing.assert_allclose(got, second.predict(x), rtol=1e-12)


def test_explain_and_describe_name_the_targets(
    con: sqlml.Session, table: pd.DataFrame, codes: Array
) -> None:
    labels = oracles.classes("string", codes)
    con.create_model("m", RandomForestClassifier(3, random_state=0).fit(table, labels))
    assert described(con)["targets"] == "3"
    assert described(con)["classes"] == (
        "t0: maybe, no, yes; t1: no, yes; t2: Zürich, maybe, no, yes"
    )
    shown = con.execute("SHOW MODELS").fetchall()
    assert ["t0=maybe", "t0=no", "t0=yes", "t1=no", "t1=yes"] == shown[0][5][:5]
    plan = dict(con.execute("EXPLAIN SELECT predict('m', *) FROM t").fetchall())["sqlml_plan"]
    assert "label, 3 targets" in plan
    plan = dict(
        con.execute("EXPLAIN SELECT predict_proba('m', *, class := 'yes') FROM t").fetchall()
    )["sqlml_plan"]
    assert "proba, class 'yes', 3 targets" in plan


def test_the_model_survives_the_database(table: pd.DataFrame, codes: Array, tmp_path: Path) -> None:
    path = tmp_path / "kept.duckdb"
    model = RandomForestClassifier(3, random_state=0).fit(table, codes)
    with sqlml.connect(path) as con:
        con.create_model("m", model)
        con.register("frame", table)
        con.execute("CREATE TABLE t AS SELECT * FROM frame")
        con.execute("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t")
    with sqlml.connect(path, read_only=True) as con:
        for query in ("SELECT predict('m', *) FROM t", "SELECT p FROM v"):
            got = [row[0] for row in con.execute(query).fetchall()]
            assert got == model.predict(table).tolist()


# -- boosters


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
@pytest.mark.parametrize("how", ["object", "json", "ubj"])
def test_xgboost_of_several_targets(
    con: sqlml.Session, table: pd.DataFrame, codes: Array, strategy: str, how: str, tmp_path: Path
) -> None:
    params = {"n_estimators": 4, "max_depth": 3, "multi_strategy": strategy, "n_jobs": 1}
    flags = (codes > 0).astype(int)
    for model, target in (
        (xgb.XGBRegressor(**params), table.to_numpy()),
        (xgb.XGBClassifier(**params), flags),
    ):
        model.fit(table, target)
        if how == "object":
            con.create_model("m", model, or_replace=True)
        else:
            path = tmp_path / f"model.{how}"
            model.save_model(path)
            con.execute(f"CREATE OR REPLACE MODEL m FROM '{path}' FORMAT XGBOOST")
        want = model.predict(table)
        kind, got = answers(con, "predict('m', *)")
        assert kind == ("BIGINT[]" if target is flags else "DOUBLE[]")
        np.testing.assert_allclose(got, want, rtol=1e-6)
    kind, got = answers(con, "predict_proba('m', *, class := 1)")
    np.testing.assert_allclose(got, model.predict_proba(table), rtol=1e-6)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_lightgbm_with_linear_leaves(
    con: sqlml.Session, table: pd.DataFrame, tmp_path: Path, backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    params = {"n_estimators": 6, "num_leaves": 5, "linear_tree": True, "verbose": -1, "n_jobs": 1}
    model = lgb.LGBMRegressor(**params).fit(table, table.a * table.b + table.c)
    path = tmp_path / "model.txt"
    model.booster_.save_model(path)
    con.execute(f"CREATE MODEL m FROM '{path}' FORMAT LIGHTGBM OPTIONS (backend='{backend}')")
    assert answers(con, "predict('m', *)") == ("DOUBLE", model.predict(table).tolist())
    con.execute("UPDATE t SET b = NULL WHERE id % 3 = 0")
    gaps = table.assign(b=table.b.where(np.arange(ROWS) % 3 != 0))
    assert answers(con, "predict('m', *)")[1] == model.predict(gaps).tolist()


# -- outside SQL


def test_the_scorer_answers_as_the_source_does(table: pd.DataFrame, codes: Array) -> None:
    labels = oracles.classes("string", codes)
    model = MultiOutputClassifier(DecisionTreeClassifier(max_depth=4)).fit(table, labels)
    scorer = sqlml.compile(model)
    for rows in (table, table.head(1), table.head(0)):
        if len(rows):
            assert scorer.predict(rows).tolist() == model.predict(rows).tolist()
            for ours, theirs in zip(
                scorer.predict_proba(rows), model.predict_proba(rows), strict=True
            ):
                np.testing.assert_array_equal(ours, theirs)
        assert scorer.predict(rows).shape == (len(rows), 3)
        assert [p.shape for p in scorer.predict_proba(rows)] == [(len(rows), k) for k in (3, 2, 4)]
    assert [c.tolist() for c in scorer.classes_] == [c.tolist() for c in model.classes_]

    flags = (codes > 0).astype(int)
    chain = ClassifierChain(LogisticRegression(), order=[1, 2, 0]).fit(table, flags)
    scorer = sqlml.compile(chain)
    np.testing.assert_array_equal(scorer.predict(table), chain.predict(table))
    np.testing.assert_allclose(scorer.predict_proba(table), chain.predict_proba(table), rtol=1e-9)
    ours, theirs = scorer.decision_function(table), chain.decision_function(table)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
