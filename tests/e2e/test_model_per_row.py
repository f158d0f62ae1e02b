"""`predict(shop_model, *)`: each row is scored by the model that it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sqlml
from sqlml.errors import (
    BindError,
    MissingColumnError,
    MissingValueError,
    UnknownModelError,
)
from sqlml.planner.rewrites import shared_calls
from tests.e2e.native_models import NEEDS_NATIVE

ROWS = 5_000
FEATURES = {
    "north": ["a", "b", "plan"],
    "south": ["plan", "c", "a"],
    "east": ["b", "plan"],
}


def pipeline(trees: int) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["plan"]), remainder="passthrough"
    )
    return make_pipeline(encode, RandomForestClassifier(trees, max_depth=5, random_state=trees))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    made = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "a": rng.normal(size=ROWS).round(2),
            "b": rng.normal(size=ROWS).round(2),
            "c": rng.integers(0, 9, ROWS),
            "plan": rng.choice(["basic", "pro", "team", None], ROWS),
            "shop": rng.choice([*FEATURES, None], ROWS, p=[0.5, 0.3, 0.15, 0.05]),
        }
    )
    made["y"] = np.where(made.a + made.b + (made.plan == "pro") > 0.5, "yes", "no")
    return made


@pytest.fixture(scope="module")
def models(frame: pd.DataFrame) -> Mapping[str, Any]:
    made = {}
    for trees, (shop, features) in enumerate(FEATURES.items(), 3):
        rows = frame[frame.shop == shop]
        made[shop] = pipeline(trees).fit(rows[features], rows.y)
    return made


@contextmanager
def open_session(frame: pd.DataFrame, models: Mapping[str, Any]) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("frame", frame)
        con.execute("CREATE TABLE t AS FROM frame")
        con.execute("CREATE TABLE shops AS SELECT DISTINCT shop FROM t WHERE shop IS NOT NULL")
        for shop, model in models.items():
            con.create_model(shop, model, verify=False)
        con.create_model("price", LinearRegression().fit([[0], [1]], [0, 1]), inputs=["a"])
        yield con


@pytest.fixture(scope="module")
def con(frame: pd.DataFrame, models: Mapping[str, Any]) -> Iterator[sqlml.Session]:
    with open_session(frame, models) as con:
        yield con


def expected(frame: pd.DataFrame, models: Mapping[str, Any], method: str = "predict") -> list[Any]:
    made = np.full(len(frame), None, object)
    for shop, model in models.items():
        rows = (frame.shop == shop).to_numpy()
        found = getattr(model, method)(frame.loc[rows, FEATURES[shop]])
        made[rows] = found if found.ndim == 1 else found[:, 1]
    return list(made)


def values(con: Any, query: str, parameters: Any = None) -> list[Any]:
    return [row[0] for row in con.execute(query, parameters).fetchall()]


def test_names_that_a_collation_takes_for_one(con: sqlml.Session) -> None:
    """Names differ in case, and the column's collation calls them equal."""
    con.execute("CREATE TEMP TABLE mixed (id INTEGER, name VARCHAR COLLATE NOCASE)")
    con.execute(
        "INSERT INTO mixed SELECT id, CASE id % 3 WHEN 0 THEN upper(shop) ELSE shop END FROM t"
    )
    query = "SELECT predict({}, t.*) FROM t JOIN mixed USING (id) ORDER BY id"
    try:
        assert values(con, query.format("mixed.name")) == values(con, query.format("t.shop"))
    finally:
        con.execute("DROP TABLE mixed")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT predict(shop, *) FROM t ORDER BY id",
        "SELECT predict(t.shop, t.*) FROM t ORDER BY id",
        "SELECT predict(MODEL (shop), plan := plan, a := a, b := b, c := c) FROM t ORDER BY id",
        "SELECT predict(shop, {'plan': plan, 'a': a, 'b': b, 'c': c}) FROM t ORDER BY id",
        "SELECT predict(shop, * EXCLUDE (y)) FROM (FROM t WHERE true) t ORDER BY id",
        "SELECT p FROM (SELECT id, predict(lower(upper(shop)), *) AS p FROM t) ORDER BY id",
        "WITH q AS (SELECT *, shop AS model FROM t) SELECT predict(model, *) FROM q ORDER BY id",
        "SELECT predict(shop || if(id % 2 = 0, '/1', ''), *) FROM t ORDER BY id",
        "WITH RECURSIVE q AS (SELECT id, predict(shop, *) AS p FROM t) SELECT p FROM q ORDER BY id",
        "SELECT predict(s.shop, t.*) FROM t LEFT JOIN shops s USING (shop) ORDER BY id",
        "SELECT (SELECT predict(MODEL (s.shop), a := t.a, b := t.b, c := t.c, plan := t.plan) "
        "FROM shops s WHERE s.shop = t.shop) FROM t ORDER BY id",
        "SELECT (SELECT predict(t.shop, t.*)) FROM t ORDER BY id",
        "SELECT predict(shop, *) FROM t WHERE random() < 2 ORDER BY id",
        "SELECT predict(e, *) FROM (SELECT *, shop::ENUM('north', 'south', 'east') AS e FROM t) "
        "ORDER BY id",
    ],
)
def test_each_row_has_what_its_model_says(
    con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any], query: str
) -> None:
    assert values(con, query) == expected(frame, models)


def test_probabilities_scores_and_explanations(
    con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any]
) -> None:
    want = np.array(expected(frame, models, "predict_proba"), float)
    for call in (
        "predict_proba(shop, *, class := 'yes')",
        "predict_proba(shop, *)['yes']",
        "predict_proba(MODEL (shop), *, class := ?)",
    ):
        given = ["yes"] if "?" in call else None
        got = values(con, f"SELECT {call} FROM t ORDER BY id", given)
        np.testing.assert_array_equal(np.array(got, float), want)
    above = "SELECT id FROM t WHERE predict_proba(shop, *, class := 'yes') > 0.7 ORDER BY id"
    assert values(con, above) == [*np.flatnonzero(want > 0.7)]
    both = con.execute(
        "SELECT explain(shop, *, class := 'yes', baseline := true) AS e, "
        "explain('east', *, class := 'yes', baseline := true) AS own "
        "FROM t WHERE shop = 'east' ORDER BY id LIMIT 40"
    ).fetchall()
    assert all(named == own and set(own) == {"b", "plan", "baseline"} for named, own in both)


def test_names_that_are_models_with_other_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    with sqlml.connect() as con:
        con.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
        first = RandomForestClassifier(3, random_state=0).fit(x, np.where(x[:, 0] > 0, "a", "b"))
        second = DecisionTreeClassifier(max_depth=3).fit(x, rng.choice(["c", "a", "d"], 300))
        third = KNeighborsClassifier(3).fit(x, np.where(x[:, 1] > 0, "a", "z"))
        con.create_model("first", first, inputs=["u", "v"])
        con.create_model("other.second", second, inputs=["u", "v"])
        con.create_model("third", first, inputs=["u", "v"])
        con.execute("ALTER MODEL third SET ALIAS before = 1")
        con.create_model("third", third, inputs=["u", "v"], or_replace=True)
        con.register("rows", pd.DataFrame(x, columns=["u", "v"]).assign(i=np.arange(300)))
        names = {
            "first": first,
            "other.second": second,
            "third": third,
            "third@before": first,
            "FIRST": first,
        }
        con.execute(
            "CREATE TABLE named AS SELECT *, $1[1 + i % 5] AS model FROM rows", [list(names)]
        )
        order = [list(names)[i % 5] for i in range(300)]
        got = con.execute(
            "SELECT predict(model, *), predict_proba(model, *), predict_proba(model, *)['z'] "
            "FROM named ORDER BY i"
        )
        for i, (label, proba, z) in enumerate(got.fetchall()):
            own = names[order[i]]
            assert z == proba.get("z")
            assert label == own.predict(x[i : i + 1])[0]
            want = dict(zip(own.classes_, own.predict_proba(x[i : i + 1])[0], strict=True))
            assert proba == pytest.approx(want, abs=1e-12)


def test_unknown_names(con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any]) -> None:
    named = "(SELECT *, CASE WHEN id % 7 = 0 THEN 'norht' ELSE shop END AS model FROM t) AS t"
    with pytest.raises(UnknownModelError, match="unknown model 'norht'; did you mean 'north'"):
        con.execute(f"SELECT predict(model, *) FROM {named}").fetchall()
    kept = f"SELECT predict(model, *) FROM {named} WHERE model <> 'norht' ORDER BY id"
    want = expected(frame, models)
    usual = [label for i, label in enumerate(want) if i % 7 and label is not None]
    assert values(con, kept) == usual
    query = f"SELECT predict(model, *, unknown_model := 'null') FROM {named} ORDER BY id"
    assert values(con, query) == [None if i % 7 == 0 else label for i, label in enumerate(want)]
    again = "SELECT predict('none of them' || shop, *, unknown_model := 'null') FROM t"
    assert set(values(con, again)) == {None}
    with pytest.raises(UnknownModelError, match="none of them"):
        con.execute("SELECT predict('none of them' || shop, *) FROM t")


def test_rows_that_come_only_after_planning_are_no_null(con: sqlml.Session) -> None:
    rows = "(SELECT shop, 1.0 AS a, 2.0 AS b, 3 AS c, 'pro' AS plan FROM shops)"
    query = f"SELECT predict(shop, *, unknown_model := 'null') FROM {rows} AS s USING SAMPLE 1 ROWS"
    for _ in range(12):
        try:
            assert values(con, query) != [None]
        except UnknownModelError as error:
            assert "when the query was planned" in str(error)


def test_a_model_that_does_not_fit_matters_only_where_it_is_asked(con: sqlml.Session) -> None:
    rows = "(SELECT id, a, b, plan, shop FROM t) AS t"
    with pytest.raises(MissingColumnError, match="south.*'c'"):
        con.execute(f"SELECT predict(shop, *) FROM {rows}").fetchall()
    kept = f"SELECT predict(shop, *) FROM {rows} WHERE shop <> 'south'"
    assert set(values(con, kept)) == {"yes", "no"}
    with pytest.raises(MissingColumnError, match="'c'"):
        con.execute(f"SELECT predict(shop, *) FROM {rows} WHERE shop = 'south'")


def test_many_models_keep_the_order_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_calls, "MAX_UNSORTED_MODELS", 16)
    rng = np.random.default_rng(1)
    x = rng.integers(-8, 9, (20_000, 3)) / 4.0
    with sqlml.connect() as con:
        con.execute("SET threads = 4")
        trees = []
        for k in range(40):
            tree = DecisionTreeRegressor(max_depth=4, random_state=k)
            trees.append(tree.fit(x[k::40], x[k::40, k % 3] * k))
            con.create_model(f"m{k}", trees[-1], inputs=["u", "v", "w"], verify=False)
        shop = rng.integers(0, 40, len(x))
        con.register("frame", pd.DataFrame(x, columns=["u", "v", "w"]).assign(shop=shop))
        con.execute("CREATE TABLE t AS SELECT *, 'm' || shop AS model FROM frame")
        want = np.empty(len(x))
        for k, tree in enumerate(trees):
            want[shop == k] = tree.predict(x[shop == k])
        query = "SELECT u, predict(model, *) AS p, v FROM t"
        made = con.execute(query).df()
        np.testing.assert_array_equal(made[["u", "p", "v"]], np.c_[x[:, 0], want, x[:, 1]])
        assert "ORDER BY" in con.plan(query).sql
        assert "sorted by it in FROM" in con.explain(query)
        filtered = con.execute("SELECT *, predict(model, *) AS p FROM t AS t WHERE u > 0").df()
        kept = x[:, 0] > 0
        assert list(filtered) == ["u", "v", "w", "shop", "model", "p"]
        np.testing.assert_array_equal(filtered.p, want[kept])
        twice = "SELECT predict(model, *) + predict(t.model, t.*, u := 0) AS p FROM t LIMIT 5"
        zero = np.array(
            [trees[s].predict([[0.0, *r[1:]]])[0] for s, r in zip(shop[:5], x[:5], strict=True)]
        )
        np.testing.assert_array_equal(con.execute(twice).df().p, want[:5] + zero)
        sums_query = (
            "SELECT model, sum(predict(model, *)) FROM t GROUP BY model ORDER BY model LIMIT 3"
        )
        assert "row_number" in con.plan(query).sql
        assert "row_number" not in con.plan(sums_query).sql  # Sums need no order of the rows.
        grouped = con.execute(sums_query).fetchall()
        sums = {f"m{k}": want[shop == k].sum() for k in range(40)}
        assert dict(grouped) == pytest.approx({m: sums[m] for m in sorted(sums)[:3]})


def test_rows_that_lie_together_are_not_sorted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_calls, "MAX_UNSORTED_MODELS", 2)
    file = f"'{tmp_path / 'rows.parquet'}'"
    x = np.arange(6.0)[:, None]
    with sqlml.connect() as con:
        for k in range(3):
            tree = DecisionTreeRegressor(random_state=0).fit(x, 10 * k + x[:, 0])
            con.create_model(f"m{k}", tree, inputs=["u"], verify=False)
        con.execute("CREATE TABLE together (u DOUBLE, model VARCHAR)")
        con.execute(
            "INSERT INTO together VALUES (1, NULL), (1, 'm2'), (2, 'm2'), (3, 'm0'), (4, NULL), "
            "(4, 'm1'), (5, 'm1')"
        )
        con.execute(f"COPY together TO {file}")
        want = [None, 21.0, 22.0, 3.0, None, 14.0, 15.0]
        for rows in ("together", "together AS t WHERE u > 0", file):
            query = f"SELECT predict(model, *) AS p FROM {rows}"
            assert "ORDER BY" not in con.plan(query).sql
            assert values(con, query) == want
        # Rows of the same model lie together only in all files together.
        files = f"'{tmp_path / 'part_*.parquet'}'"
        for part, kept in enumerate(("u < 3", "u > 2 OR model = 'm2'")):
            path = tmp_path / f"part_{part}.parquet"
            order = "ORDER BY model, u" if part else ""
            con.execute(f"COPY (FROM together WHERE {kept} {order}) TO '{path}'")
        query = f"SELECT predict(model, *) AS p FROM {files}"
        assert "ORDER BY" in con.plan(query).sql
        assert values(con, query) == [None, 21.0, 22.0, 3.0, 14.0, 15.0, 21.0, 22.0, None]
        assert "ORDER BY" not in con.plan(f"{query} WHERE model <> 'm2'").sql
        # What a column `rowid` or a subquery holds says nothing about the order.
        con.execute("CREATE TABLE named AS SELECT u, model, [u] AS rowid FROM together")
        for rows in ("named", "(SELECT *, 'a' AS file_row_number FROM together) AS t"):
            query = f"SELECT predict(model, *) AS p FROM {rows}"
            assert "ORDER BY" in con.plan(query).sql
            assert values(con, query) == want
        query = "SELECT predict(model, *) AS p FROM together"
        con.execute("INSERT INTO together VALUES (5, 'm2')")
        assert "ORDER BY" in con.plan(query).sql
        assert values(con, query) == [*want, 25.0]
        assert values(con, f"{query} WHERE u < 5") == want[:-1]
        assert "ORDER BY" not in con.plan(f"{query} WHERE u < 5").sql


def test_only_aggregates_that_need_no_order_get_rows_in_the_order_of_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_calls, "MAX_UNSORTED_MODELS", 2)
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, 'm' || i % 3 AS model, i // 6 AS g "
            "FROM range(12) r(i)"
        )
        x = np.arange(12.0)[:, None]
        for k in range(3):
            tree = DecisionTreeRegressor(random_state=0).fit(x, 100 * k + x[:, 0])
            con.create_model(f"m{k}", tree, inputs=["u"], verify=False)
        p = "predict(MODEL (model), u)"
        sums = f"SELECT g, sum({p}) AS s, max({p}) AS m FROM t GROUP BY g ORDER BY g"
        assert "row_number" not in con.plan(sums).sql
        assert con.execute(sums).fetchall() == [(0, 615.0, 205.0), (1, 651.0, 211.0)]
        for item, expected in {
            f"string_agg(({p})::INTEGER, ',')": "0,101,202,3,104,205",
            f"first(u) + 0 * sum({p})": 0.0,
            f"arg_min(u, ({p} > 0) AND u % 3 = 2)": 0,
            f"CASE WHEN sum({p}) > 0 THEN predict('m0', first(u)) END": 0.0,
        }.items():
            query = f"SELECT {item} FROM t GROUP BY g ORDER BY g"
            assert values(con, query)[0] == expected, item
        con.execute("CREATE MACRO sum(a) AS a")
        assert values(con, f"SELECT sum({p}) FROM t LIMIT 4") == [0.0, 101.0, 202.0, 3.0]


@NEEDS_NATIVE
def test_both_routes_give_the_same(
    con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any]
) -> None:
    for k, (shop, model) in enumerate(models.items()):
        con.create_model(f"a name of more than twelve bytes, {k}", model, verify=False)
        near = KNeighborsClassifier(1).fit([[k], [5], [9]], ["a", "b", "c"])
        con.create_model(f"k{k}", near, inputs=["c"])
        con.execute(f'ALTER MODEL "{shop}" SET ALIAS "für" = 1')
    name = "coalesce(shop, 'none' || c % 3)"
    long = "'a name of more than twelve bytes, ' || id % 3"
    calls = (
        "predict(shop || CASE id % 3 WHEN 1 THEN '@für' WHEN 2 THEN '/1' ELSE '' END, *)",
        f"predict(CASE WHEN id % 5 = 0 THEN shop WHEN id % 5 < 4 THEN {long} END, *)",
        f"predict_proba({name}, *, class := 'no', unknown_model := 'null')",
        "predict('k' || c % 3, *)",
        "predict(CASE WHEN c = 2 THEN shop ELSE 'k' || c % 3 END, *)",
    )
    con.execute("CREATE OR REPLACE TABLE many AS SELECT t.* FROM t, range(3)")
    for call in calls:
        query = f"SELECT {call} FROM many ORDER BY id"
        assert con.plan(query).to_dict()["calls"][0]["route"].startswith("native")
        got = values(con, query)
        con.execute("SET sqlml_route = 'arrow'")
        try:
            assert con.plan(query).to_dict()["calls"][0]["route"] == "arrow"
            assert values(con, query) == got
        finally:
            con.execute("RESET sqlml_route")
        assert len(set(got)) > 1
    listed = con.plan("SELECT predict_proba(shop, *) FROM many").to_dict()["calls"][0]
    assert listed["route"] == "arrow"


def test_thousands_of_unknown_names(con: sqlml.Session) -> None:
    tree = DecisionTreeRegressor().fit([[0.0], [1.0]], [5, 7])
    con.create_model("known_7", tree, inputs=["b"])
    con.execute("CREATE TABLE names AS SELECT 1 AS b, 'known_' || i AS m FROM range(4_000) r(i)")
    query = "SELECT sum(predict(m, *, unknown_model := 'null')) FROM names"
    assert values(con, query) == [7]
    plan = con.plan(query)
    assert con.plan(query) is plan  # no name is looked for by itself
    with pytest.raises(UnknownModelError, match="unknown model 'known_[0-9]+'"):
        con.execute(query.replace(", unknown_model := 'null'", "")).fetchall()
    con.create_model("known_7", tree, inputs=["b"], or_replace=True)
    con.create_model("known_8", tree, inputs=["b"])
    assert con.plan(query) is not plan
    assert values(con, query) == [14]
    con.execute("DROP MODEL known_7")
    assert values(con, query) == [7]


def test_plans_follow_the_rows_and_the_models(con: sqlml.Session, frame: pd.DataFrame) -> None:
    con.execute("CREATE OR REPLACE TABLE few AS SELECT 1.5 AS a, 0.5 AS b, 'pro' AS plan, 3 AS c")
    con.execute("ALTER TABLE few ADD COLUMN model VARCHAR DEFAULT 'price'")
    query = "SELECT predict(model, *) FROM few"
    assert values(con, query) == [pytest.approx(1.5)]
    assert con.plan(query).to_dict()["calls"][0]["models_of_rows"] == ["price"]
    con.execute("UPDATE few SET model = 'east'")
    assert values(con, query) in (["yes"], ["no"])
    con.execute("BEGIN")
    con.create_model("fresh", DecisionTreeRegressor().fit([[0.0], [1.0]], [5, 7]), inputs=["b"])
    con.execute("UPDATE few SET model = 'fresh'")
    assert values(con, query) in ([5], [7])
    con.execute("ROLLBACK")
    assert con.execute("SELECT predict(model, *) FROM few").fetchall() in ([("yes",)], [("no",)])


def test_rows_without_a_name(con: sqlml.Session) -> None:
    assert values(con, "SELECT predict(shop, *) FROM t WHERE false") == []
    assert values(con, "SELECT predict(shop, *) FROM t WHERE shop IS NULL LIMIT 2") == [None, None]
    assert con.execute("SELECT count(predict(shop, *)) FROM t LIMIT 0").fetchall() == []


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT predict(c, *) FROM t", BindError, "the name of a model is a VARCHAR, and c is"),
        (
            "SELECT predict(CASE WHEN random() < 0.5 THEN 'east' END, *) FROM t",
            BindError,
            "random.. may give another name",
        ),
        ("CREATE VIEW v AS SELECT predict(shop, *) AS p FROM t", BindError, "a view, macro or"),
        ("SELECT list_transform([1], x -> predict(shop, *)) FROM t", BindError, "lambda"),
        (
            "SELECT predict(m, *) FROM (SELECT *, CASE c WHEN 3 THEN 'price' ELSE 'east' END AS m "
            "FROM t)",
            BindError,
            "must give one type: 'east' gives VARCHAR, and 'price' gives DOUBLE",
        ),
        (
            "SELECT predict(shop, *, unknown_model := 'nothing') FROM t",
            BindError,
            "takes 'error' or 'null'",
        ),
        (
            "SELECT predict(shop, *, unknown_model := 'null', unknown_model := 'null') FROM t",
            BindError,
            "given twice",
        ),
        ("SELECT predict(nothing, *) FROM t", BindError, "no column nothing names models here"),
        ("SELECT predict(shop, *) FROM none", BindError, "cannot be read beforehand: .*none"),
        (
            "SELECT count(*) FROM t JOIN shops s ON predict(s.shop, t.*) = 'yes'",
            BindError,
            "the condition of a join",
        ),
        ("SELECT predict(shop, a, b) FROM t", duckdb.BinderException, r"predict\(MODEL \(column"),
        ("SELECT transform(shop, *) FROM t", BindError, "it transforms nothing"),
    ],
)
def test_what_cannot_be(con: sqlml.Session, query: str, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        con.execute(query).fetchall()


def test_a_function_of_the_users_own_stays_theirs(
    frame: pd.DataFrame, models: Mapping[str, Any]
) -> None:
    with open_session(frame, models) as con:
        con.execute("CREATE MACRO main.predict(x, y) AS x || y")
        call_of_macro = "SELECT predict(shop, '!') FROM t WHERE shop = 'east' LIMIT 1"
        assert values(con, call_of_macro) == ["east!"]
        predicted = values(con, "SELECT predict(shop, *) FROM t WHERE shop = 'east'")
        assert set(predicted) <= {"yes", "no"}


def test_the_table_form(con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any]) -> None:
    for form in ("ml_predict(MODEL (shop), TABLE t)", "ML.PREDICT(MODEL (shop), (FROM t))"):
        got = con.execute(f"SELECT * FROM {form} ORDER BY id").df()
        assert list(got) == [*frame, "predicted_label", "predicted_label_probs"]
        assert [None if pd.isna(v) else v for v in got.predicted_label] == expected(frame, models)
    named = "SELECT a, 'price' AS shop FROM t LIMIT 3"
    got = con.execute(f"FROM ml_predict(MODEL (shop), ({named}))").df()
    np.testing.assert_allclose(got.predicted_label, got.a)
    assert got.predicted_label_probs.isna().all()
    unknown = "(SELECT *, 'none' AS model FROM t)"
    form = f"ml_predict(MODEL (model), {unknown}, unknown_model := 'null')"
    assert set(values(con, f"SELECT predicted_label FROM {form}")) == {None}
    some = "(SELECT a, CASE WHEN id < 9 THEN 'aaa' ELSE 'price' END AS model FROM t LIMIT 12)"
    form = f"ml_predict(MODEL (model), {some}, unknown_model := 'null')"
    assert values(con, f"SELECT predicted_label IS NULL FROM {form} ORDER BY 1") == [
        *[False] * 3,
        *[True] * 9,
    ]
    with pytest.raises(UnknownModelError, match="none"):
        con.execute(f"FROM ml_predict(MODEL (model), {unknown})")
    with pytest.raises(BindError, match="ml_evaluate takes the name of one model"):
        con.execute("FROM ml_evaluate(MODEL (shop), TABLE t)")
    with pytest.raises(BindError, match="unknown_model goes with a model per row"):
        con.execute("FROM ml_predict(MODEL east, TABLE t, unknown_model := 'null')")


def test_a_regression_beside_its_library(con: sqlml.Session, frame: pd.DataFrame) -> None:
    x = frame[["a", "b"]]
    forest = RandomForestRegressor(5, max_depth=4, random_state=0).fit(x, frame.c)
    line = LinearRegression().fit(x, frame.c)
    logit = LogisticRegression().fit(x, frame.c > 4)
    con.create_model("forest", forest, or_replace=True)
    con.create_model("line", line, or_replace=True)
    con.create_model("logit", logit, or_replace=True)
    got = con.execute(
        "SELECT predict(CASE WHEN id % 2 = 0 THEN 'forest' ELSE 'line' END, *) AS p, "
        "predict_score(MODEL ('log' || 'it'), *) AS s FROM t ORDER BY id"
    ).df()
    even = frame.id % 2 == 0
    np.testing.assert_allclose(got.p[even], forest.predict(x)[even], rtol=1e-12)
    np.testing.assert_allclose(got.p[~even], line.predict(x)[~even], rtol=1e-12)
    np.testing.assert_allclose(got.s, logit.decision_function(x), rtol=1e-12)


def test_a_model_chooses_the_model_of_a_row(
    con: sqlml.Session, frame: pd.DataFrame, models: Mapping[str, Any]
) -> None:
    tree = DecisionTreeClassifier(max_depth=2).fit(frame[["c"]], np.where(frame.c > 4, *"xy"))
    con.create_model("chooser", tree, inputs=["c"], or_replace=True)
    chosen = "CASE predict('chooser', c := c) WHEN 'x' THEN 'north' ELSE 'east' END"
    for name in ("north", "east"):
        want = models[name].predict(frame[FEATURES[name]])[(frame.c > 4) == (name == "north")]
        where = f"{chosen} = '{name}'"
        query = f"SELECT predict({chosen}, *) FROM t WHERE {where} ORDER BY id"
        assert values(con, query) == list(want)


def test_a_row_that_its_model_refuses(con: sqlml.Session) -> None:
    near = KNeighborsClassifier(1).fit([[0.0], [1.0]], ["yes", "no"])
    con.create_model("strict", near, inputs=["a"], or_replace=True)
    con.create_model("mild", near, inputs=["a"], on_null="null", or_replace=True)
    con.execute(
        "CREATE OR REPLACE TABLE gaps AS SELECT * FROM (VALUES (1, NULL::DOUBLE, 'mild'), "
        "(2, 0.9, 'mild'), (3, 0.2, 'strict')) AS t(i, a, model)"
    )
    query = "SELECT predict(model, *) FROM gaps ORDER BY i"
    assert values(con, query) == [None, "no", "yes"]
    con.execute("INSERT INTO gaps VALUES (4, NULL, 'strict')")
    with pytest.raises(MissingValueError, match="a"):
        con.execute(query).fetchall()
