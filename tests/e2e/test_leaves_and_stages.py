"""predict_leaf and trees := n, beside the functions of the libraries."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomTreesEmbedding,
    StackingClassifier,
    VotingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sqlml
from sqlml.errors import (
    BindError,
    ConfigError,
    MissingOutputError,
    UnsupportedModelError,
)
from sqlml.planner.plan import call_draft
from sqlml.session.session import Session

NUMBERS = ["a", "b", "c"]
STAGES = 5


def make_rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(240, 3)), columns=NUMBERS)
    rows["code"] = random.integers(0, 6, 240).astype(float)
    rows["kind"] = random.choice(["u", "v", "w"], 240)
    score = rows.a * rows.b + rows.c + (rows.kind == "u") + np.isin(rows.code, [1, 4])
    rows["y"] = score.round(2)
    rows["k"] = np.digitize(score, [0.0, 1.0])
    rows.loc[::9, "a"] = np.nan
    return rows


ROWS = make_rows()
COLUMNS = [*NUMBERS, "code"]
X, COMPLETE = ROWS[COLUMNS], ROWS[COLUMNS].fillna(0.5)
CATEGORIES = ROWS[[*NUMBERS, "kind"]].astype({"kind": "category"})


def fetch(con: Session, query: str, *parameters: object) -> list[Any]:
    """The first column of a query."""
    return [row[0] for row in con.execute(query, list(parameters)).fetchall()]


@pytest.fixture(scope="module")
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        frame = ROWS.assign(id=range(len(ROWS)))
        connection.register("frame", frame)
        connection.execute("CREATE TABLE t AS FROM frame")
        connection.register("frame", frame.fillna(0.5))
        connection.execute("CREATE TABLE complete AS FROM frame")
        connection.create_model("boosted", BOOSTED)
        connection.create_model("forest", FOREST)
        connection.create_model("linear", LinearRegression().fit(COMPLETE, ROWS.y))
        yield connection


XGB = {"n_estimators": STAGES, "max_depth": 3, "n_jobs": 1}
LGBM: dict[str, Any] = {"n_estimators": STAGES, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
RF = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
CAT: dict[str, Any] = {
    **{"iterations": STAGES, "depth": 3, "verbose": 0, "allow_writing_files": False},
    **{"thread_count": 1, "one_hot_max_size": 4, "cat_features": ["kind"]},
}
BOOSTED = xgb.XGBClassifier(**XGB).fit(X, ROWS.k)
FOREST = RandomForestClassifier(STAGES, max_depth=4, random_state=0).fit(X, ROWS.k)


def fit_booster(name: str) -> tuple[Any, pd.DataFrame]:
    """Return a fitted booster and the rows that it reads."""
    library, *options = name.split()
    task = options.pop()
    target = {"classes": ROWS.k, "two": ROWS.k > 0, "number": ROWS.y}[task]
    is_classifier = task != "number"
    if library == "xgboost":
        parameters = {
            "dart": {"booster": "dart", "rate_drop": 0.5},
            "parallel": {"num_parallel_tree": 2, "subsample": 0.7},
            "categorical": {"enable_categorical": True, "max_cat_to_onehot": 1},
            "vector": {"multi_strategy": "multi_output_tree"},
        }.get(options[0] if options else "", {})
        rows = CATEGORIES if "categorical" in options else X
        target = np.c_[ROWS.y, ROWS.c] if "vector" in options else target
        estimator = xgb.XGBClassifier if is_classifier else xgb.XGBRegressor
        return estimator(**XGB, **parameters).fit(rows, target), rows
    if library == "lightgbm":
        parameters = {
            "dart": {"boosting_type": "dart"},
            "rf": RF,
            "linear": {"linear_tree": True},
            "linear-rf": {**RF, "linear_tree": True},
        }.get(options[0] if options else "", {})
        rows = CATEGORIES if "categorical" in options else X
        estimator = lgb.LGBMClassifier if is_classifier else lgb.LGBMRegressor
        return estimator(**LGBM, **parameters).fit(rows, target), rows
    rows = ROWS[[*NUMBERS, "kind"]]
    estimator = cb.CatBoostClassifier if is_classifier else cb.CatBoostRegressor
    return estimator(**CAT, grow_policy=options[0]).fit(rows, target), rows


BOOSTERS = [
    *("xgboost classes", "xgboost two", "xgboost number", "xgboost dart classes"),
    *("xgboost parallel classes", "xgboost categorical classes", "xgboost vector number"),
    *("lightgbm classes", "lightgbm two", "lightgbm number", "lightgbm categorical classes"),
    *("lightgbm dart classes", "lightgbm rf two", "lightgbm linear classes"),
    *("lightgbm linear-rf number", "catboost SymmetricTree classes", "catboost Depthwise two"),
    *("catboost Lossguide classes", "catboost Depthwise number"),
]


def find_leaves(model: Any, rows: pd.DataFrame, count: int | None = None) -> np.ndarray:
    """The leaves that the library itself returns."""
    if isinstance(model, xgb.XGBModel):
        leaves = model.apply(rows, iteration_range=None if count is None else (0, count))
    elif isinstance(model, lgb.LGBMModel):
        leaves = model.predict(rows, pred_leaf=True, num_iteration=count)
    else:
        leaves = model.calc_leaf_indexes(rows, ntree_end=count or 0)
    return np.asarray(leaves).reshape(len(rows), -1)


def stage_options(model: Any, count: int) -> dict[str, Any]:
    """The library's own option for the first iterations."""
    if isinstance(model, xgb.XGBModel):
        return {"iteration_range": (0, count)}
    return {"num_iteration" if isinstance(model, lgb.LGBMModel) else "ntree_end": count}


@pytest.mark.parametrize("name", BOOSTERS)
def test_boosters_equal_their_library(name: str) -> None:
    model, rows = fit_booster(name)
    scorer = sqlml.compile(model)
    np.testing.assert_array_equal(scorer.predict_leaf(rows), find_leaves(model, rows))
    for count in (1, 3, STAGES):
        leaves = scorer.predict_leaf(rows, trees=count)
        np.testing.assert_array_equal(leaves, find_leaves(model, rows, count))
        options = stage_options(model, count)
        predicted = np.squeeze(model.predict(rows, **options))
        np.testing.assert_array_equal(scorer.predict(rows, trees=count), predicted)
        if hasattr(model, "predict_proba"):
            expected = model.predict_proba(rows, **options)
            probabilities = scorer.predict_proba(rows, trees=count)
            np.testing.assert_allclose(probabilities, expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", ["xgboost classes", "lightgbm classes", "catboost Lossguide two"])
def test_files_equal_the_library_that_reads_them(name: str, tmp_path: Path) -> None:
    model, rows = fit_booster(name)
    source = model.get_booster() if isinstance(model, xgb.XGBModel) else model
    source = model.booster_ if isinstance(model, lgb.LGBMModel) else source
    endings = {"xgboost": ("json", "ubj"), "lightgbm": ("txt",), "catboost": ("cbm", "json")}
    for ending in endings[name.split()[0]]:
        path = tmp_path / f"model.{ending}"
        expected = find_leaves(model, rows)
        if ending == "json" and name.startswith("catboost"):
            # CatBoost's JSON has no numbers of leaves, so CatBoost itself numbers them anew.
            pool = cb.Pool(rows, cat_features=["kind"])
            model.save_model(path, format="json", pool=pool)
            again = cb.CatBoostClassifier()
            again.load_model(path, format="json")
            expected = again.calc_leaf_indexes(pool)
        else:
            source.save_model(path)
        scorer = sqlml.compile(path)
        np.testing.assert_array_equal(scorer.predict_leaf(rows), expected)
        assert scorer.predict_leaf(rows, trees=2).shape[1] == expected.shape[1] // STAGES * 2


def list_scikit_learn_models() -> dict[str, tuple[Any, Any]]:
    forest = RandomForestClassifier(STAGES, random_state=0, max_leaf_nodes=12)
    return {
        "tree": (DecisionTreeClassifier(max_leaf_nodes=9), ROWS.k),
        "forest": (forest, ROWS.k),
        "two targets": (ExtraTreesRegressor(STAGES, max_depth=4), np.c_[ROWS.y, ROWS.c]),
        "boosting": (GradientBoostingClassifier(n_estimators=STAGES), ROWS.k),
        "two classes": (GradientBoostingClassifier(n_estimators=STAGES), ROWS.k > 0),
        "exponential": (
            GradientBoostingClassifier(loss="exponential", n_estimators=STAGES),
            ROWS.k > 0,
        ),
        "init": (
            GradientBoostingRegressor(
                n_estimators=STAGES, init=DecisionTreeRegressor(max_depth=2), max_leaf_nodes=6
            ),
            ROWS.y,
        ),
        "pipeline": (make_pipeline(RandomTreesEmbedding(3), clone_forest(forest)), ROWS.k),
        "embedding": (RandomTreesEmbedding(STAGES, random_state=0), ROWS.k),
    }


def clone_forest(forest: Any) -> Any:
    return RandomForestClassifier(**forest.get_params())


@pytest.mark.parametrize("name", list_scikit_learn_models())
def test_scikit_learn_models_equal_apply_and_staged_predict(name: str) -> None:
    model, target = list_scikit_learn_models()[name]
    rows = COMPLETE.to_numpy()
    model.fit(rows, target)
    scorer = sqlml.compile(model)
    read_rows = rows if name != "pipeline" else model[0].transform(rows)
    leaves = (model[-1] if name == "pipeline" else model).apply(read_rows)
    np.testing.assert_array_equal(scorer.predict_leaf(rows), leaves.reshape(len(rows), -1))
    if hasattr(model, "staged_predict"):
        for count, expected in enumerate(model.staged_predict(rows), 1):
            np.testing.assert_array_equal(scorer.predict(rows, trees=count), expected)
            staged = leaves[:, :count].reshape(len(rows), -1)
            np.testing.assert_array_equal(scorer.predict_leaf(rows, trees=count), staged)
    if name in ("forest", "two targets"):
        first = copy.copy(model)
        first.estimators_, first.n_estimators = model.estimators_[:3], 3
        np.testing.assert_array_equal(scorer.predict(rows, trees=3), first.predict(rows))


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "poisson"])
def test_hist_gradient_boosting_has_node_indices_and_stages(loss: str) -> None:
    is_classifier = loss == "log_loss"
    estimator = HistGradientBoostingClassifier if is_classifier else HistGradientBoostingRegressor
    model = estimator(loss=loss, max_iter=STAGES, categorical_features=[3], min_samples_leaf=5)
    model.fit(X.to_numpy(), ROWS.k if is_classifier else ROWS.y - ROWS.y.min())
    scorer = sqlml.compile(model)
    for count, expected in enumerate(model.staged_predict(X.to_numpy()), 1):
        predicted = scorer.predict(X.to_numpy(), trees=count)
        np.testing.assert_allclose(predicted, expected, rtol=1e-15)
    leaves = scorer.predict_leaf(X.to_numpy())
    raw = np.tile(np.ravel(model._baseline_prediction), (len(X), 1))
    predictors = list(itertools.chain.from_iterable(model._predictors))
    for tree, predictor in enumerate(predictors):
        reached = predictor.nodes[leaves[:, tree]]
        assert reached["is_leaf"].all()
        raw[:, tree % raw.shape[1]] += reached["value"]
    np.testing.assert_array_equal(raw, model._raw_predict(X.to_numpy()))


def test_early_stopping_ends_the_iterations() -> None:
    model = xgb.XGBClassifier(n_estimators=60, early_stopping_rounds=2, n_jobs=1)
    model.fit(X[:160], ROWS.k[:160], eval_set=[(X[160:], ROWS.k[160:])], verbose=False)
    count = model.best_iteration + 1
    scorer = sqlml.compile(model)
    np.testing.assert_array_equal(scorer.predict_leaf(X), model.apply(X))
    with pytest.raises(ConfigError, match=f"it has {count} boosting iterations"):
        scorer.predict(X, trees=60)
    booster = sqlml.compile(model.get_booster())
    all_leaves = model.get_booster().predict(xgb.DMatrix(X), pred_leaf=True)
    np.testing.assert_array_equal(booster.predict_leaf(X), all_leaves)


def test_onnx_files_return_the_ids_of_nodes(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    rows = COMPLETE.to_numpy(np.float32)
    model = RandomForestClassifier(STAGES, max_depth=4, random_state=0).fit(rows, ROWS.k)
    onnx_model = skl2onnx.to_onnx(model, rows[:1], options={"zipmap": False})
    (tmp_path / "m.onnx").write_bytes(onnx_model.SerializeToString())
    scorer = sqlml.compile(tmp_path / "m.onnx")
    np.testing.assert_array_equal(scorer.predict_leaf(rows), model.apply(rows))


def test_ensembles_of_scikit_learn_have_the_leaves_of_their_members() -> None:
    rows = COMPLETE.to_numpy()
    boosted = AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=4)
    for model in (boosted, BaggingClassifier(n_estimators=4), IsolationForest(n_estimators=4)):
        model.fit(rows, ROWS.k)
        features = getattr(model, "estimators_features_", [range(4)] * 4)
        pairs = zip(model.estimators_, features, strict=True)
        expected = np.stack([tree.apply(rows[:, list(used)]) for tree, used in pairs], axis=1)
        scorer = sqlml.compile(model)
        np.testing.assert_array_equal(scorer.predict_leaf(rows), expected)
        with pytest.raises(ConfigError, match="its library does not score with the first trees"):
            scorer.predict(rows, trees=2)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        StackingClassifier([("tree", DecisionTreeClassifier())], LogisticRegression()),
        make_pipeline(RandomTreesEmbedding(3), LogisticRegression()),
        VotingRegressor([("tree", DecisionTreeRegressor()), ("linear", LinearRegression())]),
        MultiOutputRegressor(GradientBoostingRegressor(n_estimators=2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_that_are_not_one_ensemble_have_no_leaves(model: Any) -> None:
    target = np.c_[ROWS.y, ROWS.c] if isinstance(model, MultiOutputRegressor) else ROWS.k
    scorer = sqlml.compile(model.fit(COMPLETE.to_numpy(), target))
    reason = "does not fit this model: it is not a single ensemble of trees"
    with pytest.raises(UnsupportedModelError, match=f"predict_leaf {reason}"):
        scorer.predict_leaf(COMPLETE.to_numpy())
    with pytest.raises(ConfigError, match=f"trees=1 {reason}"):
        scorer.predict(COMPLETE.to_numpy(), trees=1)


def test_boosters_without_iterations_have_no_leaves() -> None:
    booster = xgb.train({}, xgb.DMatrix(X, ROWS.y), num_boost_round=0)
    with pytest.raises(UnsupportedModelError, match="it has no trees"):
        sqlml.compile(booster).predict_leaf(X)


def test_scorer_checks_and_compiles_the_number_of_trees() -> None:
    scorer = sqlml.compile(BOOSTED, trees=2)
    expected = BOOSTED.predict_proba(X, iteration_range=(0, 2))
    np.testing.assert_allclose(scorer.predict_proba(X.to_numpy()), expected, rtol=3e-7)
    assert scorer.predict_leaf(X).shape == (len(X), 6)
    full = sqlml.compile(BOOSTED)
    both = (full.explain(X, trees=2).values, scorer.explain(X).values)
    np.testing.assert_array_equal(*both)
    for count in (0, -1, 1.0, True, "2"):
        with pytest.raises(ConfigError, match="trees must be a positive integer"):
            full.predict(X, trees=count)
    assert "predict_leaf" in dir(full)
    assert "predict_leaf" not in dir(sqlml.compile(LinearRegression().fit(COMPLETE, ROWS.y)))


LEAVES = BOOSTED.apply(X).astype(int)


@pytest.mark.parametrize("setting", ["route = 'auto'", "route = 'arrow'", "backend = 'sql'"])
def test_sql_returns_the_same_on_each_route(con: Session, setting: str) -> None:
    con.execute(f"SET sqlml_{setting}")
    try:
        query = "SELECT predict_leaf('boosted', *) FROM t ORDER BY id"
        np.testing.assert_array_equal(np.array(fetch(con, query)), LEAVES)
        query = "SELECT predict('boosted', *, trees := 2) FROM t ORDER BY id"
        assert fetch(con, query) == BOOSTED.predict(X, iteration_range=(0, 2)).tolist()
    finally:
        con.execute(f"RESET sqlml_{setting.split()[0]}")


def test_sql_calls_differ_in_their_trees(con: Session) -> None:
    items = [
        "predict_score('boosted', *)",
        *(f"predict_score('boosted', *, trees := {count})" for count in (1, 2)),
        "predict_leaf(MODEL boosted, t.*)",
        "predict_leaf('boosted', a, b, c, code, trees := 1)",
    ]
    rows = con.execute(f"SELECT {', '.join(items)} FROM t ORDER BY id").fetchall()
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    for column, count in zip(columns, (STAGES, 1, 2), strict=False):
        margin = BOOSTED.predict(X, output_margin=True, iteration_range=(0, count))
        np.testing.assert_array_equal(column, margin)
    np.testing.assert_array_equal(columns[3], LEAVES)
    np.testing.assert_array_equal(columns[4], LEAVES[:, :3])


def test_a_key_computes_only_its_tree(con: Session) -> None:
    whole, first = "predict_leaf('forest', *)", "predict_leaf('forest', *, trees := 3)"
    keys = ("[2]", "[2]", "[-1]", "[9]", "[1:2]", "['2']", "")
    calls = [*(f"{whole}{key}" for key in keys), f"{first}[1]", f"{first}[5]"]
    rows = con.execute(f"SELECT {', '.join(calls)} FROM t ORDER BY id").fetchall()
    for row, leaves in zip(rows, FOREST.apply(X).tolist(), strict=True):
        keyed = (leaves[1], leaves[1], leaves[4], None, leaves[:2], leaves[1])
        assert row == (*keyed, leaves, leaves[0], None)
    assert "output            leaf of tree 2\n" in str(con.explain(f"SELECT {calls[0]} FROM t"))


def test_leaves_group_and_filter_rows(con: Session) -> None:
    query = """
        WITH leaves AS (SELECT predict_leaf('forest', t.*)[2] AS leaf, y FROM t)
        SELECT leaf, count(*), (SELECT count(*) FROM t WHERE predict_leaf('forest', *)[2] = leaf)
        FROM leaves GROUP BY leaf ORDER BY leaf
    """
    leaves, counts = np.unique(FOREST.apply(X)[:, 1], return_counts=True)
    expected = list(zip(leaves.tolist(), counts.tolist(), counts.tolist(), strict=True))
    assert con.execute(query).fetchall() == expected
    query = "SELECT predict_leaf('forest', *) AS l, count(*) FROM t GROUP BY l ORDER BY l"
    groups = np.unique(FOREST.apply(X), axis=0, return_counts=True)
    expected = list(zip(groups[0].tolist(), groups[1].tolist(), strict=True))
    assert con.execute(query).fetchall() == expected
    query = (
        "SELECT predict_leaf('forest', *)[2], count(*) FROM t GROUP BY predict_leaf('forest', *)"
    )
    assert sorted(con.execute(query).fetchall()) == sorted((leaf[1], n) for leaf, n in expected)
    (leaf_type,) = fetch(con, "SELECT DISTINCT typeof(predict_leaf('forest', *)) FROM t")
    assert leaf_type == "INTEGER[]"
    probability = "predict_proba('forest', *, class := 1, trees := 2)"
    query = f"SELECT count(*) FROM t WHERE {probability} > 0.4"
    first = copy.copy(FOREST)
    first.estimators_, first.n_estimators = FOREST.estimators_[:2], 2
    assert fetch(con, query) == [(first.predict_proba(X)[:, 1] > 0.4).sum()]


def test_comparisons_use_the_margin_of_the_first_trees(con: Session) -> None:
    model = lgb.LGBMClassifier(**LGBM, **RF).fit(X, ROWS.k > 0)
    con.create_model("averaged", model)
    for threshold in (0.3, 0.5, 0.7):
        query = f"""
            SELECT count(*) FROM t
            WHERE predict_proba('averaged', *, class := true, trees := 2) > {threshold}
        """
        expected = (model.predict_proba(X, num_iteration=2)[:, 1] > threshold).sum()
        assert fetch(con, query) == [expected]


def test_trees_can_be_a_parameter(con: Session) -> None:
    query = "SELECT sum(predict('forest', *, trees := ?)) FROM t WHERE id < ?"
    for count in (1, 4):
        first = copy.copy(FOREST)
        first.estimators_, first.n_estimators = FOREST.estimators_[:count], count
        assert fetch(con, query, count, 100) == [first.predict(X[:100]).sum()]
    with pytest.raises(BindError, match="it has 5 trees"):
        fetch(con, query, 6, 100)


def test_each_row_can_name_its_model(con: Session) -> None:
    query = """
        SELECT predict_leaf(name, *, trees := 1) FROM
        (SELECT *, CASE WHEN id % 2 = 0 THEN 'boosted' ELSE 'forest' END AS name FROM t) ORDER BY id
    """
    leaves, forest_leaves = fetch(con, query), FOREST.apply(X)
    assert leaves[::2] == LEAVES[::2, :3].tolist()
    assert leaves[1::2] == forest_leaves[1::2, :1].tolist()


def test_views_work_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with sqlml.connect(path) as con:
        con.create_model("boosted", BOOSTED)
        con.execute(
            "CREATE VIEW v AS SELECT predict_leaf('boosted', *) AS leaf, "
            "predict_score('boosted', *, trees := 2) AS score FROM (VALUES (0.1, 0.2, -1, 3)) "
            "r(a, b, c, code)"
        )
    script = f"import sqlml; print(sqlml.connect({str(path)!r}).sql('FROM v').fetchall())"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    row = pd.DataFrame([[0.1, 0.2, -1, 3]], columns=COLUMNS)
    score = BOOSTED.predict(row, output_margin=True, iteration_range=(0, 2))[0].tolist()
    assert child.stdout.strip() == str([(BOOSTED.apply(row)[0].astype(int).tolist(), score)])


def test_first_trees_read_fewer_columns(con: Session) -> None:
    stump = xgb.XGBRegressor(n_estimators=3, max_depth=1, n_jobs=1).fit(X, ROWS.c)
    con.create_model("stumps", stump)
    query = "SELECT sum(predict('stumps', c := c, trees := 1)) FROM t"
    expected = stump.predict(X, iteration_range=(0, 1)).astype(float).sum()
    assert fetch(con, query)[0] == pytest.approx(expected)
    plan = str(con.explain("SELECT predict('stumps', *, trees := 1) FROM t"))
    assert "columns read      c DOUBLE\n" in plan


def test_literal_arguments_prune_the_first_trees(
    con: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_draft, "MIN_SECONDS", 0)
    rows = X.assign(c=1.0)
    call = "predict_score('boosted', *, c := 1, trees := 2)"
    margin = BOOSTED.predict(rows, output_margin=True, iteration_range=(0, 2))
    np.testing.assert_array_equal(fetch(con, f"SELECT {call} FROM t ORDER BY id"), margin)
    assert "c = 1.0, (trees) = 2: literal" in str(con.explain(f"SELECT {call} FROM t"))
    leaves = fetch(con, "SELECT predict_leaf('forest', *, c := 1) FROM t ORDER BY id")
    assert leaves == FOREST.apply(rows).tolist()


def test_contributions_of_the_first_trees(con: Session) -> None:
    query = (
        "SELECT explain('boosted', *, class := 1, baseline := true, trees := 2) FROM t ORDER BY id"
    )
    parts = np.array([list(row.values()) for row in fetch(con, query)])
    margin = BOOSTED.predict(X, output_margin=True, iteration_range=(0, 2))[:, 1]
    np.testing.assert_allclose(parts.sum(axis=1), margin, rtol=1e-5, atol=1e-6)
    background = "background := (FROM t LIMIT 3)"
    query = query.replace("trees := 2", f"trees := 2, {background}")
    parts = np.array([list(row.values()) for row in fetch(con, query)])
    np.testing.assert_allclose(parts.sum(axis=1), margin, rtol=1e-5, atol=1e-6)


def test_trained_models_have_leaves_and_stages(con: Session) -> None:
    con.execute("""
        CREATE MODEL trained OPTIONS (
            model_type = 'boosted_tree_classifier', label = 'k', max_iterations = 4
        ) AS SELECT a, c, kind, k FROM t
    """)
    leaves = fetch(con, "SELECT predict_leaf('trained', *) FROM t")
    assert {len(row) for row in leaves} == {12}
    assert fetch(con, "SELECT DISTINCT len(predict_leaf('trained', *, trees := 3)) FROM t") == [9]
    same = "predict_proba('trained', *, trees := 4) = predict_proba('trained', *)"
    assert fetch(con, f"SELECT DISTINCT {same} FROM t") == [True]


def test_calibrated_probabilities_keep_the_leaves(con: Session) -> None:
    con.create_model("two", xgb.XGBClassifier(**XGB).fit(X, ROWS.k > 0), verify=False)
    for version, method in enumerate(("isotonic", "sigmoid"), 2):
        rows = "(SELECT * REPLACE (k > 0 AS k) FROM t)"
        con.execute(
            f"ALTER MODEL two CALIBRATE USING {rows} OPTIONS (label = 'k', method = '{method}')"
        )
        same = f"predict_leaf('two/{version}', *) = predict_leaf('two/1', *)"
        assert fetch(con, f"SELECT DISTINCT {same} FROM t") == [True]


def test_steps_before_the_trees_and_null_rows(con: Session) -> None:
    prepare = make_column_transformer(
        (SimpleImputer(), NUMBERS), (OneHotEncoder(handle_unknown="ignore"), ["kind"])
    )
    pipeline = make_pipeline(prepare, RandomForestClassifier(3, max_depth=3, random_state=0))
    pipeline.fit(ROWS[[*NUMBERS, "kind"]], ROWS.k)
    con.create_model("prepared", pipeline, on_null="null")
    leaves = pipeline[-1].apply(pipeline[0].transform(ROWS[[*NUMBERS, "kind"]]))
    assert fetch(con, "SELECT predict_leaf('prepared', *) FROM t ORDER BY id") == leaves.tolist()
    con.create_model("nulls", RandomForestClassifier(2).fit(COMPLETE, ROWS.k), on_null="null")
    query = "SELECT predict_leaf('nulls', a := NULL, b := 1, c := 1, code := 1)"
    assert len(fetch(con, query)[0] or [1, 2]) == 2


def test_the_nodes_of_a_tree_have_the_numbers_of_its_leaves(con: Session) -> None:
    leaves = fetch(con, "SELECT leaf FROM ml_tree(MODEL forest, 1) WHERE leaf IS NOT NULL")
    children = FOREST.estimators_[1].tree_.children_left
    assert sorted(leaves) == np.flatnonzero(children < 0).tolist()


BAD_CALLS: Sequence[tuple[str, type[Exception], str]] = [
    ("predict_leaf('linear', *)", MissingOutputError, "'linear': it is not a single ensemble"),
    ("predict('linear', *, trees := 1)", BindError, "trees := 1 does not fit model 'linear'"),
    ("predict('boosted', *, trees := 6)", BindError, "it has 5 boosting iterations"),
    ("predict_leaf('forest', *, trees := 6)", BindError, "it has 5 trees"),
    *(
        (f"predict('boosted', *, trees := {text})", BindError, "a whole number of at least 1")
        for text in ("0", "-1", "2.5", "1e0", "'2'", "NULL", "true", "id", "1 + 1")
    ),
    ("predict('boosted', *, trees := 1, trees := 1)", BindError, "given twice"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_calls(con: Session, call: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fetch(con, f"SELECT {call} FROM complete")


def test_leaves_are_no_table(con: Session) -> None:
    with pytest.raises(BindError, match=r"write SELECT \*, predict_leaf\('boosted', \*\) FROM t\n"):
        fetch(con, "SELECT * FROM predict_leaf('boosted', t)")


def test_versions_of_an_older_sqlml_are_created_again(con: Session) -> None:
    stored = Path(__file__).parents[1] / "golden" / "stored" / "format3.kind.sqlml"
    con.execute(f"CREATE MODEL old FROM '{stored}'")
    with pytest.raises(
        MissingOutputError, match="an older sqlml stored it: create the model again"
    ):
        fetch(con, "SELECT predict_leaf('old', *) FROM complete")
    with pytest.raises(BindError, match="or an older sqlml stored it"):
        fetch(con, "SELECT predict('old', *, trees := 1) FROM complete")
