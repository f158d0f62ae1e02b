"""Clusterers, densities, transformers and texts in queries as users write them, and in files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import skops.io
import torch
from skl2onnx import to_onnx
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

import sqlml
from sqlml import errors
from sqlml.importers.registry import import_model
from sqlml.importers.skops import read_skops
from sqlml.types import Array
from tests.e2e import family_zoo, model_zoo
from tests.e2e.family_zoo import FAMILIES

MODELS = {
    "cluster": "KMeans",
    "component": "PCA",
    "density": "KernelDensity",
    "mix": "GaussianMixture",
    "odd": "IsolationForest",
    "encoded": "TargetEncoder alone",
    "two": "MultiOutputRegressor",
    "texts": "text, categories and numbers",
}
"""Name in SQL -> name in the zoo."""


def source(name: str) -> tuple[Any, pd.DataFrame]:
    """The fitted model and the rows that it is asked."""
    entry = FAMILIES[MODELS[name]]
    return family_zoo.model(MODELS[name]), family_zoo.view(family_zoo.rows(False), entry)


@pytest.fixture(scope="module")
def db() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        rows = family_zoo.rows(False)
        made = model_zoo.arrow(rows).append_column("note", pa.array(rows.note))
        con.register("made", made)
        con.execute("CREATE TABLE t AS SELECT * FROM made")
        con.unregister("made")
        for name, entry in MODELS.items():
            con.create_model(name, family_zoo.model(entry), verify=False)
        yield con


def rows(db: sqlml.Session, query: str) -> list[Any]:
    return db.execute(query).fetchall()


@pytest.fixture(scope="module")
def clusters() -> Array:
    model, x = source("cluster")
    return np.asarray(model.predict(x))


# -- clusters


@pytest.mark.parametrize("group", ["c", "1", "ALL", "predict('cluster', *)"])
def test_group_by_a_cluster(db: sqlml.Session, clusters: Array, group: str) -> None:
    found = rows(
        db, f"SELECT predict('cluster', *) AS c, count(*) FROM t GROUP BY {group} ORDER BY c"
    )
    assert dict(found) == {int(c): int((clusters == c).sum()) for c in np.unique(clusters)}


def test_filter_by_a_cluster_and_by_its_distance(db: sqlml.Session, clusters: Array) -> None:
    model, x = source("cluster")
    ids = rows(db, "SELECT id FROM t WHERE predict('cluster', *) IN (1, 2) ORDER BY id")
    assert [i for (i,) in ids] == np.flatnonzero(np.isin(clusters, (1, 2))).tolist()
    ((nearest,),) = rows(
        db,
        "SELECT max(d) FROM (FROM t SELECT predict('cluster', *) AS c, "
        "transform('cluster', *)[c + 1] AS d)",
    )
    assert nearest == pytest.approx(model.transform(x).min(axis=1).max(), rel=1e-9)


def test_join_on_the_same_cluster(db: sqlml.Session, clusters: Array) -> None:
    ((pairs,),) = rows(
        db,
        "SELECT count(*) FROM t AS a JOIN t AS b "
        "ON predict('cluster', a.*) = predict('cluster', b.*) AND a.id < b.id",
    )
    sizes = np.unique(clusters, return_counts=True)[1]
    assert pairs == sum(n * (n - 1) // 2 for n in sizes)


def test_a_cluster_in_update_pivot_and_delete(db: sqlml.Session, clusters: Array) -> None:
    db.execute("BEGIN")
    db.execute("ALTER TABLE t ADD COLUMN c BIGINT")
    db.execute("UPDATE t SET c = predict('cluster', t.*)")
    assert [c for (c,) in rows(db, "SELECT c FROM t ORDER BY id")] == clusters.tolist()
    wide = rows(db, "PIVOT (SELECT c, active FROM t) ON active USING count(*) GROUP BY c")
    assert sum(no + yes for _, no, yes in wide) == len(clusters)
    gone = rows(db, "DELETE FROM t WHERE predict('cluster', t.*) = 0 RETURNING id")
    assert len(gone) == (clusters == 0).sum()
    db.execute("ROLLBACK")


# -- densities and anomalies


@pytest.mark.parametrize("name", ["density", "mix", "component"])
def test_predict_score_of_a_density_is_its_score_of_samples(db: sqlml.Session, name: str) -> None:
    model, x = source(name)
    found = rows(db, f"SELECT predict_score('{name}', *) FROM t ORDER BY id")
    np.testing.assert_allclose([s for (s,) in found], model.score_samples(x), rtol=1e-9)
    plan = rows(db, f"EXPLAIN SELECT predict_score('{name}', *) FROM t")[0][1]
    assert "samples" in plan


def test_where_both_are_there_predict_score_is_the_decision_function(db: sqlml.Session) -> None:
    model, x = source("odd")
    found = rows(db, "SELECT predict('odd', *), predict_score('odd', *) FROM t ORDER BY id")
    assert [p for p, _ in found] == model.predict(x).tolist()
    np.testing.assert_allclose([s for _, s in found], model.decision_function(x), rtol=1e-9)
    assert all((p == -1) == (s < 0) for p, s in found)


def test_a_view_keeps_the_scores_of_a_density(tmp_path: Path) -> None:
    model, x = source("density")
    path = tmp_path / "densities.duckdb"
    with sqlml.connect(path) as con:
        con.register("frame", x.assign(id=np.arange(len(x))))
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("density", model)
        con.execute("CREATE VIEW v AS SELECT id, predict_score('density', *) AS d FROM t")
    with sqlml.connect(path, read_only=True) as con:
        lowest = rows(
            con, "SELECT id FROM v WHERE d < (SELECT quantile_cont(d, 0.1) FROM v) ORDER BY d, id"
        )
    want = model.score_samples(x)
    assert {i for (i,) in lowest} == set(np.flatnonzero(want < np.quantile(want, 0.1)))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("predict('density', *)", "it predicts nothing; use predict_score"),
        ("transform('density', *)", r"it transforms nothing; use predict_score\(\.\.\)"),
        ("predict_proba('cluster', *)", r"no probabilities; use predict\(\.\.\) or transform"),
        ("predict_score('cluster', *)", "no decision function and no scores of samples; use"),
        ("predict('encoded', *)", "predicts nothing; use transform"),
    ],
)
def test_what_a_model_does_not_offer_names_what_it_does(
    db: sqlml.Session, call: str, says: str
) -> None:
    with pytest.raises(errors.BindError, match=says):
        rows(db, f"SELECT {call} FROM t")


# -- transformers


@pytest.mark.parametrize(
    "query",
    [
        "SELECT t.id, unnest(transform('component', *)) AS v FROM t",
        "SELECT t.id, x.v FROM t, unnest(transform('component', t.*)) AS x(v)",
        "SELECT t.id, x.v FROM t CROSS JOIN LATERAL unnest(transform('component', t.*)) AS x(v)",
        "SELECT t.id, x.v FROM t, LATERAL (SELECT unnest(transform('component', t.*))) AS x(v)",
        "SELECT id, v FROM (SELECT id, transform('component', *) AS p FROM t), unnest(p) AS q(v)",
    ],
)
def test_unnest_a_transform(db: sqlml.Session, query: str) -> None:
    model, x = source("component")
    want = model.transform(x)
    found = rows(db, f"SELECT id, list(v ORDER BY v) FROM ({query}) GROUP BY id ORDER BY id")
    np.testing.assert_allclose([v for _, v in found], np.sort(want, axis=1), rtol=1e-9)


def test_unnest_probabilities_beside_other_models(db: sqlml.Session, clusters: Array) -> None:
    model, x = source("mix")
    found = rows(
        db,
        "SELECT t.id, e.key, e.value FROM t, unnest(map_entries(predict_proba('mix', t.*))) AS x(e)"
        " WHERE predict('cluster', t.*) = 1 ORDER BY ALL",
    )
    chosen = np.flatnonzero(clusters == 1)
    assert [i for i, _, _ in found] == np.repeat(chosen, 3).tolist()
    want = model.predict_proba(x)[chosen].ravel()
    np.testing.assert_allclose([p for _, _, p in found], want, rtol=1e-9, atol=1e-15)


def test_the_nearest_rows_by_their_components(db: sqlml.Session) -> None:
    model, x = source("component")
    made = model.transform(x)
    found = rows(
        db,
        "WITH e AS (SELECT id, transform('component', *)::DOUBLE[3] AS p FROM t) "
        "SELECT id FROM e ORDER BY array_distance(p, (SELECT p FROM e WHERE id = 3)), id LIMIT 5",
    )
    distance = np.linalg.norm(made - made[3], axis=1).round(12)
    assert [i for (i,) in found] == np.lexsort((np.arange(len(x)), distance))[:5].tolist()


def test_a_macro_around_a_transform(db: sqlml.Session) -> None:
    model, _ = source("encoded")
    db.execute("CREATE MACRO encoded_of(c, z) AS transform('encoded', city := c, zip := z)")
    (found,) = rows(db, "SELECT encoded_of(NULL, 3000), encoded_of('Oslo', 9000)")
    frame = pd.DataFrame({"city": [None, "Oslo"], "zip": [3000, 9000]})
    np.testing.assert_allclose(found, model.transform(frame), rtol=1e-12)


# -- aggregates and texts


def test_aggregates_over_a_list_of_targets(db: sqlml.Session) -> None:
    model, x = source("two")
    found = rows(db, "SELECT max(predict('two', *)[1]), avg(predict('two', *)[2]) FROM t")
    want = model.predict(x)
    np.testing.assert_allclose(found[0], (want[:, 0].max(), want[:, 1].mean()), rtol=1e-12)


def test_a_missing_text_is_an_error_until_it_is_filled(db: sqlml.Session) -> None:
    some = "CASE WHEN id % 3 > 0 THEN note END"
    with pytest.raises(errors.MissingValueError, match=r"'note' has NULL.*coalesce"):
        rows(db, f"SELECT predict('texts', * REPLACE ({some} AS note)) FROM t")
    model, x = source("texts")
    filled = x.assign(note=x.note.where(np.arange(len(x)) % 3 > 0, ""))
    found = rows(
        db, f"SELECT predict('texts', * REPLACE (coalesce({some}, '') AS note)) FROM t ORDER BY id"
    )
    assert [label for (label,) in found] == model.predict(filled).tolist()


def test_a_bare_null_feeds_a_column_of_strings(db: sqlml.Session) -> None:
    model, x = source("texts")
    found = rows(db, "SELECT predict('texts', * REPLACE (NULL AS city)) FROM t ORDER BY id")
    none = x.assign(city=pd.Series([None] * len(x), dtype="str"))
    assert [label for (label,) in found] == model.predict(none).tolist()


# -- pickles of scorers, and files


@pytest.mark.parametrize("name", list(MODELS))
def test_a_scorer_survives_pickle_and_a_model_its_export(
    db: sqlml.Session, name: str, tmp_path: Path
) -> None:
    model, x = source(name)
    scorer = pickle.loads(pickle.dumps(sqlml.compile(model)))
    for method in ("predict", "predict_proba", "decision_function", "score_samples", "transform"):
        if hasattr(model, method):
            want = getattr(model, method)(x)
            want = want.toarray() if hasattr(want, "toarray") else want
            got = getattr(scorer, method)(x)
            if got.dtype == object:
                assert got.tolist() == want.tolist()
            else:
                np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-13)
        else:
            with pytest.raises(AttributeError, match="this model has no output"):
                getattr(scorer, method)(x)
    path = tmp_path / "model.sqlml"
    db.execute(f"EXPORT MODEL {name} TO '{path}'")
    db.execute(f"CREATE OR REPLACE MODEL back FROM '{path}'")
    functions = {"predict": "label", "predict_score": "score", "transform": "transform"}
    offered = [f for f, output in functions.items() if output in scorer.program.outputs]
    for function in offered or ["predict_score"]:
        both = f"{function}('{name}', *), {function}('back', *)"
        assert all(a == b for a, b in rows(db, f"SELECT {both} FROM t"))


NO_SKOPS = ("Birch", "CatBoost", "LightGBM", "XGBoost")
"""What skops cannot write, and libraries whose types it does not trust."""


def test_skops_files_hold_what_is_imported() -> None:
    for name in FAMILIES:
        if not name.startswith(NO_SKOPS):
            content = skops.io.dumps(family_zoo.model(name))
            made = import_model(read_skops(content)).program
            assert made.hash == import_model(family_zoo.model(name)).program.hash, name


def test_a_skops_file_scores(db: sqlml.Session, tmp_path: Path) -> None:
    model, x = source("odd")
    skops.io.dump(model, tmp_path / "m.skops")
    db.execute(f"CREATE OR REPLACE MODEL m FROM '{tmp_path / 'm.skops'}'")
    found = rows(db, "SELECT predict('m', *) FROM t ORDER BY id")
    assert [label for (label,) in found] == model.predict(x).tolist()


@pytest.mark.parametrize("backend", ["auto", "onnxruntime"])
def test_an_onnx_file_of_neighbours(db: sqlml.Session, tmp_path: Path, backend: str) -> None:
    x = family_zoo.rows(False)[["ratio", "level"]].to_numpy(np.float32)
    model = KNeighborsClassifier(3).fit(x, np.where(x[:, 0] > 0.5, "high", "low"))
    path = tmp_path / "m.onnx"
    path.write_bytes(to_onnx(model, x[:1], options={"zipmap": False}).SerializeToString())
    db.execute(
        f"CREATE OR REPLACE MODEL m INPUT (ratio FLOAT, level TINYINT) FROM '{path}' "
        f"OPTIONS (backend = '{backend}')"
    )
    found = rows(db, "SELECT predict('m', *), predict_proba('m', *) FROM t ORDER BY id")
    assert [label for label, _ in found] == model.predict(x).tolist()
    np.testing.assert_allclose(
        [list(p.values()) for _, p in found], model.predict_proba(x), rtol=1e-6
    )


@pytest.mark.parametrize("backend", ["auto", "torch", "onnxruntime"])
def test_a_torch_module_of_a_table_column(db: sqlml.Session, backend: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double().eval()
    names = ["ratio", "level", "active"]
    db.create_model("net", module, inputs=names, or_replace=True, backend=backend)
    x = torch.from_numpy(family_zoo.rows(False)[names].to_numpy(np.float64))
    found = rows(db, "SELECT predict('net', *) FROM t ORDER BY id")
    np.testing.assert_allclose([v for (v,) in found], module(x).detach().numpy(), rtol=1e-12)
