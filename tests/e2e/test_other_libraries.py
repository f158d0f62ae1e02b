"""CatBoost, skops and torch in SQL: from files and from objects, with the library's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import sqlml
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.errors import BackendError, MissingValueError, UntrustedArtifactError

NUMBERS = ["a", "b"]
SMALL: dict[str, Any] = {
    "iterations": 6,
    "depth": 3,
    "verbose": 0,
    "allow_writing_files": False,
    "thread_count": 1,
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(400, 2)), columns=NUMBERS)
    frame["city"] = rng.choice(np.array(["Bern", "Oslo", "", "it's"], object), 400)
    frame["zip"] = rng.choice([3000, 8001, 9000], 400)
    return frame


@pytest.fixture(scope="module")
def y(table: pd.DataFrame) -> Any:
    return (table.a + (table.city == "Oslo") * 2 - (table.zip == 9000) > 0).to_numpy()


@pytest.fixture
def db(table: pd.DataFrame) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("frame", table.reset_index(names="id"))
        con.execute("CREATE TABLE t AS SELECT * FROM frame")
        con.unregister("frame")
        yield con


def answers(db: sqlml.Session, call: str) -> list[Any]:
    return [row[0] for row in db.execute(f"SELECT {call} FROM t ORDER BY id").fetchall()]


def test_catboost_file_with_categories(
    db: sqlml.Session, table: pd.DataFrame, y: Any, tmp_path: Path
) -> None:
    gaps = table.assign(a=table.a.where(table.a < 1.5))
    db.execute("UPDATE t SET a = NULL WHERE a >= 1.5")
    pool = cb.Pool(gaps, y, cat_features=["city", "zip"])
    model = cb.CatBoostClassifier(**SMALL, one_hot_max_size=9).fit(pool)
    model.save_model(str(tmp_path / "m.json"), format="json", pool=pool)
    db.execute(f"CREATE MODEL m FROM '{tmp_path / 'm.json'}'")
    assert answers(db, "predict('m', *)") == model.predict(gaps).tolist()
    raw = model.predict(gaps, prediction_type="RawFormulaVal")
    np.testing.assert_array_equal(answers(db, "predict_score('m', *)"), raw)
    # Without the pool CatBoost keeps hashes alone, so the texts themselves reach the function.
    db.create_model("hashed", model)
    assert answers(db, "predict('hashed', *)") == model.predict(gaps).tolist()
    np.testing.assert_array_equal(answers(db, "predict_score('hashed', *)"), raw)
    db.execute("UPDATE t SET city = 'Neuland' WHERE id % 3 = 0")
    unseen = gaps.assign(city=gaps.city.where(gaps.index % 3 != 0, "Neuland"))
    assert answers(db, "predict('hashed', *)") == model.predict(unseen).tolist()
    scorer = sqlml.compile(model)
    np.testing.assert_array_equal(scorer.predict(gaps), model.predict(gaps))


def test_catboost_statistics_of_categories(
    db: sqlml.Session, table: pd.DataFrame, y: Any, tmp_path: Path
) -> None:
    names = ["city", "zip"]
    model = cb.CatBoostClassifier(**{**SMALL, "iterations": 40}, cat_features=names)
    model.fit(table, y)
    model.save_model(str(tmp_path / "m.json"), format="json")
    assert "OnlineCtr" in (tmp_path / "m.json").read_text()
    db.execute(f"CREATE MODEL of_file FROM '{tmp_path / 'm.json'}'")
    db.create_model("m", model)
    db.execute("UPDATE t SET city = 'Neuland' WHERE id % 3 = 0")
    unseen = table.assign(city=table.city.where(table.index % 3 != 0, "Neuland"))
    raw = model.predict(unseen, prediction_type="RawFormulaVal")
    for call in ("predict_score('m', *)", "predict_score('of_file', *)"):
        for route in ("arrow", "native") if IS_DUCKDB_2 else ("arrow",):
            db.execute(f"SET sqlml_route = '{route}'")
            np.testing.assert_array_equal(answers(db, call), raw)
    with pytest.raises(MissingValueError, match="city"):
        answers(db, "predict('m', * REPLACE (NULL AS city))")


def test_catboost_numbers_and_several_targets(
    db: sqlml.Session, table: pd.DataFrame, y: Any, tmp_path: Path
) -> None:
    one = cb.CatBoostRegressor(**SMALL).fit(table[NUMBERS], table.a * 2)
    db.create_model("one", one)
    np.testing.assert_array_equal(answers(db, "predict('one', a, b)"), one.predict(table[NUMBERS]))
    targets = np.stack([table.a, -table.b], axis=1)
    several = cb.CatBoostRegressor(**SMALL, loss_function="MultiRMSE")
    several.fit(table[NUMBERS], targets)
    scorer = sqlml.compile(several)
    np.testing.assert_array_equal(scorer.predict(table), several.predict(table[NUMBERS]))
    for strategy in ("gemm", "tt", "ptt"):
        got = scorer.predict(table, backend="torch", strategy=strategy)
        np.testing.assert_array_equal(got, several.predict(table[NUMBERS]))


def test_skops_file(db: sqlml.Session, table: pd.DataFrame, y: Any, tmp_path: Path) -> None:
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(table[NUMBERS], y)
    skops.io.dump(forest, tmp_path / "m.skops")
    db.execute(f"CREATE MODEL m FROM '{tmp_path / 'm.skops'}' FORMAT SKOPS")
    assert answers(db, "predict('m', *)") == forest.predict(table[NUMBERS]).tolist()
    booster = cb.CatBoostClassifier(**SMALL).fit(table[NUMBERS], y)
    skops.io.dump(booster, tmp_path / "b.skops")
    with pytest.raises(UntrustedArtifactError, match=r"catboost\.core"):
        db.execute(f"CREATE MODEL b FROM '{tmp_path / 'b.skops'}'")


def test_torch_file_and_module(db: sqlml.Session, table: pd.DataFrame, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 1)).double().eval()
    x = torch.from_numpy(table[NUMBERS].to_numpy())
    want = module(x).detach().numpy()[:, 0]
    rows = ({0: torch.export.Dim("rows", min=1)},)
    program = torch.export.export(module, (x,), dynamic_shapes=rows)
    torch.export.save(program, tmp_path / "m.pt2")
    db.execute(f"CREATE MODEL m INPUT (a DOUBLE, b DOUBLE) FROM '{tmp_path / 'm.pt2'}'")
    np.testing.assert_allclose(answers(db, "predict('m', *)"), want, rtol=1e-12)
    db.create_model("n", module, inputs=NUMBERS)
    np.testing.assert_allclose(answers(db, "predict('n', a, b)"), want, rtol=1e-12)


class Sorted(nn.Module):
    """What the IR has no operator for."""

    def forward(self, x: Any) -> Any:
        return x.sort(1).values[:, -1]


def test_hybrid_pipelines_run_whole(db: sqlml.Session, table: pd.DataFrame) -> None:
    torch.manual_seed(0)
    prepare = make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(sparse_output=False), ["city"])
    )
    wide = torch.from_numpy(prepare.fit_transform(table[[*NUMBERS, "city"]]))
    for name, last in (("plain", nn.Linear(6, 1)), ("opaque", Sorted())):
        module = nn.Sequential(nn.Linear(wide.shape[1], 6), nn.ReLU(), last).double().eval()
        db.create_model(name, Pipeline([("prepare", prepare), ("net", module)]))
        want = module(wide).detach().numpy().ravel()
        got = answers(db, f"predict('{name}', *)")
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    plan = str(db.execute("EXPLAIN SELECT predict('opaque', *) FROM t").fetchall())
    assert "torch" in plan
    with pytest.raises(BackendError, match="torch"):
        db.create_model("forced", module[-1], inputs=["a", "b"], backend="native")
        answers(db, "predict('forced', a, b)")
