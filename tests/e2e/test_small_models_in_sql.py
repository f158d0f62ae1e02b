"""Small trees run as SQL expressions, and give what the source library gives, whatever the row."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sqlml
from sqlml.errors import BackendError, MissingValueError

from .child import run

NAMES = ["a", "B", "c d"]
RNG = np.random.default_rng(0)
TRAIN = pd.DataFrame(RNG.normal(size=(300, 3)).round(1), columns=NAMES)
HOLES = TRAIN.mask(RNG.random(TRAIN.shape) < 0.1)
VALUE = np.sin(3 * TRAIN.a) + TRAIN.B * TRAIN["c d"]
CLASS = np.where(VALUE > 0.1, "yes", "it's no")
THREE = np.digitize(VALUE, [-0.4, 0.4])

TREE = DecisionTreeClassifier(max_depth=3, random_state=0).fit(TRAIN, CLASS)
STRICT = GradientBoostingClassifier(n_estimators=2, max_depth=2, random_state=0).fit(TRAIN, CLASS)
MODELS: dict[str, Any] = {
    "a tree": TREE,
    "a tree, missing values": DecisionTreeClassifier(max_depth=3).fit(HOLES, CLASS),
    "a tree of three classes": DecisionTreeClassifier(max_depth=2).fit(TRAIN, THREE),
    "a tree of booleans": DecisionTreeClassifier(max_depth=3).fit(TRAIN, CLASS == "yes"),
    "a regression": DecisionTreeRegressor(max_depth=3).fit(HOLES, VALUE),
    "one leaf": DecisionTreeRegressor(max_depth=1).fit(TRAIN, np.ones(300)),
    "scaled": make_pipeline(
        SimpleImputer(), StandardScaler(), DecisionTreeClassifier(max_depth=3)
    ).fit(HOLES, CLASS),
    "a forest": RandomForestClassifier(2, max_depth=2, random_state=1).fit(TRAIN, CLASS),
    "a forest of numbers": RandomForestRegressor(2, max_depth=2, random_state=1).fit(TRAIN, VALUE),
    "boosted": STRICT,
    "by histograms": HistGradientBoostingClassifier(max_iter=2, max_depth=2).fit(HOLES, CLASS),
    "XGBoost": xgboost.XGBClassifier(n_estimators=2, max_depth=2).fit(
        HOLES.rename(columns=str), CLASS == "yes"
    ),
    "LightGBM": lightgbm.LGBMClassifier(
        n_estimators=2, max_depth=2, min_child_samples=5, verbose=-1
    ).fit(HOLES.rename(columns={"c d": "c_d"}), CLASS),
    "isolation": IsolationForest(n_estimators=2, max_samples=4, random_state=3).fit(TRAIN),
}

EDGES = [0.0, -0.0, 5e-324, 1e-40, 3.4e38, -3.4e38, 2.0**24 + 1, 0.1, np.nextafter(0.1, 1)]
"""Values that rounding and comparing might get wrong; thresholds are added to them."""


def thresholds(model: Any) -> list[float]:
    """Thresholds of a fitted tree, with the floats next to them, in single and double precision."""
    tree = getattr(model, "tree_", None)
    if tree is None:
        return []
    found = tree.threshold[tree.children_left >= 0]
    singles = found.astype(np.float32)
    both = [found, *(np.nextafter(found, to) for to in (-np.inf, np.inf))]
    both += [singles, *(np.nextafter(singles, np.float32(to)) for to in (-np.inf, np.inf))]
    return np.concatenate(both).astype(float).tolist()


def rows(model: Any) -> pd.DataFrame:
    values = EDGES + thresholds(model)
    if hasattr(model, "steps"):  # scaled, the largest are too large for a float32
        values = [v for v in values if abs(v) < 1e38]
    picked = np.random.default_rng(1).choice(np.array(values), size=(200, 3))
    return pd.concat([TRAIN, pd.DataFrame(picked, columns=NAMES)], ignore_index=True)


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.execute("SET sqlml_route = 'arrow'")  # where expressions pay sooner
        yield session


def explained(con: sqlml.Session, query: str) -> str:
    return con.explain(query).split("\n\n")[0]


def scored(con: Any, call: str, table: str = "t") -> list[Any]:
    return [row[0] for row in con.execute(f"SELECT {call} FROM {table} ORDER BY id").fetchall()]


def create(con: sqlml.Session, name: str, model: Any, **options: Any) -> None:
    con.create_model(name, model, inputs=NAMES if hasattr(model, "booster_") else None, **options)


def check(con: Any, model: Any, frame: pd.DataFrame) -> None:
    """All outputs of `m` for the rows of t against the source library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = frame.rename(columns={"c d": "c_d"}) if hasattr(model, "booster_") else frame
        assert scored(con, "predict('m', *)") == model.predict(frame).tolist()
        if not hasattr(model, "predict_proba"):
            return
        want = model.predict_proba(frame)
        got = scored(con, "predict_proba('m', *)")
        assert [list(row) for row in got] == [model.classes_.tolist()] * len(frame)
        exact = isinstance(model, DecisionTreeClassifier)
        close = {"rtol": 0 if exact else 1e-12, "atol": 0}
        if isinstance(model, xgboost.XGBClassifier):
            close["rtol"] = 1e-6
        np.testing.assert_allclose([list(row.values()) for row in got], want, **close)
        last = repr(model.classes_.tolist()[-1]).replace('"it\'s no"', "'it''s no'")
        got = scored(con, f"predict_proba('m', *, class := {last})")
        np.testing.assert_allclose(got, want[:, -1], **close)


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("name", "kind"),
    [(n, "DOUBLE") for n in MODELS]
    + [(n, "FLOAT") for n in ("a tree", "a regression", "scaled", "XGBoost", "LightGBM")],
)
def test_all_outputs_at_and_around_thresholds(con: Any, name: str, kind: str) -> None:
    model = MODELS[name]
    frame = rows(model)
    if kind == "FLOAT":
        frame = frame.astype(np.float32).astype(float)
    con.register("frame", frame.assign(id=np.arange(len(frame))))
    con.execute(f"CREATE TABLE t AS SELECT * REPLACE (a::{kind} AS a, B::{kind} AS B) FROM frame")
    create(con, "m", model)
    assert "the whole model" in explained(con, "SELECT predict('m', *) FROM t")
    check(con, model, frame)


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("TINYINT", 1),
        ("USMALLINT", 1),
        ("INTEGER", 1000),
        ("UINTEGER", 1),
        ("BIGINT", 2**55),
        ("HUGEINT", 2**70),
        ("DECIMAL(9, 3)", 1),
        ("DECIMAL(38, 20)", 1),
        ("BOOLEAN", 1),
    ],
)
@pytest.mark.parametrize("name", ["a tree", "a tree, missing values"])
def test_columns_of_other_types(con: Any, name: str, kind: str, scale: int) -> None:
    model = MODELS[name]
    train = (TRAIN * scale).round(3 if "DEC" in kind else 0)
    train = train.abs() if kind[0] == "U" or kind == "BOOLEAN" else train
    train = train.clip(upper=1) if kind == "BOOLEAN" else train
    gaps = train.mask(HOLES.isna()) if name != "a tree" else train
    model = type(model)(**model.get_params()).fit(gaps, CLASS == "yes")
    con.register("frame", train.assign(id=np.arange(len(train))))
    con.execute(f"CREATE TABLE t AS SELECT id, COLUMNS(* EXCLUDE id)::{kind} FROM frame")
    create(con, "m", model)
    assert "the whole model" in explained(con, "SELECT predict('m', *) FROM t")
    check(con, model, train)
    con.execute("UPDATE t SET a = NULL WHERE id % 7 = 0")
    if name != "a tree":
        check(con, model, train.assign(a=train.a.where(train.index % 7 != 0)))


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "name",
    [
        n
        for n in MODELS
        if n
        in (
            "a tree, missing values",
            "a regression",
            "scaled",
            "by histograms",
            "XGBoost",
            "LightGBM",
        )
    ],
)
@pytest.mark.parametrize("hole", ["NULL", "'nan'"])
def test_missing_values_go_where_the_library_sends_them(con: Any, name: str, hole: str) -> None:
    model = MODELS[name]
    frame = rows(model)
    gone = np.random.default_rng(5).random(frame.shape) < 0.3
    con.register("frame", frame.assign(id=np.arange(len(frame))))
    con.execute("CREATE TABLE t AS FROM frame")
    for k, column in enumerate(NAMES):
        con.register("places", pd.DataFrame({"place": np.flatnonzero(gone[:, k])}))
        con.execute(f'UPDATE t SET "{column}" = {hole} WHERE id IN (SELECT place FROM places)')
    create(con, "m", model)
    check(con, model, frame.mask(gone))


@pytest.mark.parametrize("name", ["by histograms", "XGBoost", "LightGBM"])
def test_infinities_where_the_library_takes_them(con: Any, name: str) -> None:
    model = MODELS[name]
    values = np.random.default_rng(2).choice([np.inf, -np.inf, 0.3], size=(60, 3))
    frame = pd.DataFrame(values, columns=NAMES)
    con.register("frame", frame.assign(id=np.arange(60)))
    con.execute("CREATE TABLE t AS FROM frame")
    create(con, "m", model)
    if name == "XGBoost":  # it refuses them itself, and so do we as far as its trees look at them
        by_sql, by_udf = [], []
        create(con, "u", model, backend="native")
        for made, call in ((by_sql, "m"), (by_udf, "u")):
            made += scored(con, f"predict_proba('{call}', *, class := true)")
        assert by_sql == by_udf
        return
    check(con, model, frame)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("hole", ["NULL", "'nan'", "'inf'", "'-inf'", "1e39", "-3.5e38"])
@pytest.mark.parametrize("name", ["boosted", "a tree, missing values"])
def test_a_refused_row_is_refused_as_by_the_function(con: Any, name: str, hole: str) -> None:
    if name != "boosted" and hole in ("NULL", "'nan'"):
        return
    con.register("frame", TRAIN.assign(id=np.arange(300)))
    con.execute("CREATE TABLE t AS FROM frame")
    con.execute(f"UPDATE t SET a = {hole} WHERE id = 123")
    create(con, "by_sql", MODELS[name])
    create(con, "by_udf", MODELS[name], backend="native")
    messages = []
    for call in ("by_sql", "by_udf"):
        with pytest.raises(MissingValueError) as caught:
            scored(con, f"predict('{call}', *)")
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "'a'" in messages[0]
    rest = con.execute("SELECT count(predict('by_sql', *)) FROM t WHERE id <> 123").fetchone()
    assert rest == (299,)


def test_what_stays_with_the_function(con: Any) -> None:
    con.register("frame", TRAIN.assign(id=np.arange(300), city="Ulm"))
    con.execute("CREATE TABLE t AS FROM frame")
    create(con, "m", TREE)
    deep = DecisionTreeClassifier(random_state=0).fit(TRAIN, np.roll(CLASS, 1))
    con.create_model("deep", deep)
    con.create_model("forced", TREE, backend="native")
    con.create_model(
        "words",
        make_pipeline(OneHotEncoder(), DecisionTreeClassifier()).fit(
            pd.DataFrame({"city": ["Ulm", "Bern"]}), [1, 2]
        ),
    )
    for query in (
        "SELECT predict('deep', *) FROM t",
        "SELECT predict('forced', *) FROM t",
        "SELECT predict('words', *) FROM t",
        "SELECT predict('m', * REPLACE (random() AS a)) FROM t",  # it would be drawn several times
        "SELECT predict('m', a + 1, B, \"c d\") FROM t",
    ):
        assert "the whole model" not in explained(con, query), query
    assert deep.tree_.node_count > 150
    assert scored(con, "predict('deep', *)") == deep.predict(TRAIN).tolist()
    many = ", ".join("predict('m', *)" for _ in range(9))
    assert "the whole model" not in explained(con, f"SELECT {many} FROM t")


def test_a_model_that_takes_all_rows_needs_no_function(con: Any) -> None:
    con.register("frame", HOLES.assign(id=np.arange(300)))
    con.execute("CREATE TABLE t AS FROM frame")
    create(con, "m", MODELS["XGBoost"])
    plan = con.plan("SELECT predict('m', *) FROM t")
    assert plan is not None and plan.functions == {} and "sqlml_" not in plan.sql
    text = explained(con, "SELECT predict('m', *) FROM t")
    assert "in UDF            nothing" in text and "the whole model\n" in text
    analysed = con.explain("SELECT predict('m', *) FROM t", analyze=True)
    assert "no row went to the function" not in analysed
    con.execute("CREATE VIEW v AS SELECT predict('m', *) AS y FROM t")
    assert con.connection.sql("SELECT count(y) FROM v").fetchall() == [(300,)]


def test_it_works_wherever_an_expression_may_stand(con: Any) -> None:
    con.register("frame", TRAIN.assign(id=np.arange(300)))
    con.execute("CREATE TABLE t AS FROM frame")
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(TRAIN, CLASS)
    create(con, "m", tree)
    label, sure = tree.predict(TRAIN), tree.predict_proba(TRAIN)[:, 1]
    query = (
        "SELECT id FROM t x WHERE predict('m', x.*) = 'yes' "
        "AND predict_proba('m', x.*, class := 'yes') < 0.9 ORDER BY id"
    )
    assert "the whole model" in explained(con, query)
    got = [row[0] for row in con.execute(query).fetchall()]
    assert got == np.flatnonzero((label == "yes") & (sure < 0.9)).tolist()
    want = pd.Series(label).value_counts().to_dict()
    grouped = con.execute("SELECT predict('m', *) AS y, count(*) FROM t GROUP BY y").fetchall()
    assert dict(grouped) == want
    kinds = con.execute("DESCRIBE SELECT predict('m', *) y, predict_proba('m', *) p FROM t")
    assert [row[1] for row in kinds.fetchall()] == ["VARCHAR", "MAP(VARCHAR, DOUBLE)"]


def test_a_view_is_read_in_another_process(tmp_path: Path) -> None:
    with sqlml.connect(tmp_path / "d.db") as con:
        con.register("frame", TRAIN.assign(id=np.arange(300)))
        con.execute("CREATE TABLE t AS FROM frame")
        create(con, "m", TREE)
        con.execute("CREATE VIEW v AS SELECT id, predict('m', *) AS y FROM t")
    code = "import sqlml; print(sqlml.connect('d.db').execute({!r}).fetchone())"
    done = run(code.format("SELECT count(*) FROM v WHERE y = 'yes'"), tmp_path)
    assert done.stdout.strip() == f"({(TREE.predict(TRAIN) == 'yes').sum()},)", done.stderr


def test_backend_sql_is_asked_for(con: Any) -> None:
    con.register("frame", TRAIN.assign(id=np.arange(300), city=CLASS))
    con.execute("CREATE TABLE t AS FROM frame")
    deep = DecisionTreeClassifier(max_depth=7, random_state=0).fit(TRAIN, CLASS)
    naive = GaussianNB().fit(TRAIN, CLASS)
    for name, model in (("deep", deep), ("naive", naive), ("m", TREE)):
        con.create_model(name, model, backend="sql")
        text = explained(con, f"SELECT predict('{name}', *) FROM t")
        assert "the whole model" in text and "requested" in text
        assert scored(con, f"predict('{name}', *)") == model.predict(TRAIN).tolist()
        moved = TRAIN.assign(a=TRAIN.a + 1)
        call = f"predict_proba('{name}', a := a + 1, B := B, \"c d\" := \"c d\", class := 'yes')"
        want = model.predict_proba(moved)[:, list(model.classes_).index("yes")]
        np.testing.assert_allclose(scored(con, call), want, rtol=1e-9, atol=1e-300)
    codes = make_pipeline(OneHotEncoder(), DecisionTreeClassifier()).fit(
        pd.DataFrame({"city": CLASS}), CLASS
    )
    con.create_model("codes", codes, backend="sql")
    assert scored(con, "predict('codes', *)") == CLASS.tolist()
    con.execute("ALTER TABLE t ALTER city SET DATA TYPE VARCHAR")


def test_backend_sql_says_why_it_cannot(con: Any) -> None:
    from sklearn.neighbors import KNeighborsClassifier

    con.register("frame", TRAIN.assign(id=np.arange(300)))
    con.create_model("near", KNeighborsClassifier().fit(TRAIN, CLASS), backend="sql")
    with pytest.raises(BackendError, match=r"'near'.*backend 'sql'.*use backend 'auto'"):
        con.execute("SELECT predict('near', *) FROM frame")
