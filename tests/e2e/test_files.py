"""CREATE MODEL .. FROM a file: each format, each clause, and scoring without the library."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml import errors
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder
from sqlml.types import Array
from tests.e2e import child

FEATURES = ["a", "b", "c"]
QUERY = "SELECT predict_score('m', *) AS s FROM t ORDER BY id"


def table() -> pd.DataFrame:
    """300 rows of whole and real numbers with gaps."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(300, 3)), columns=FEATURES)
    frame["b"] = rng.integers(0, 6, 300).astype(float)
    frame[rng.random(frame.shape) < 0.1] = np.nan
    return frame


@dataclass(frozen=True, slots=True)
class File:
    """A model file and what its own library says of `table()`: margins (300, K) and labels."""

    path: Path
    score: Array
    label: Array
    options: str = ""


@pytest.fixture(scope="module")
def x() -> pd.DataFrame:
    return table()


@pytest.fixture(scope="module")
def y(x: pd.DataFrame) -> Array:
    filled = x.fillna(0.3)
    return np.asarray((filled.a + filled.b / 3 > 0.8) + (filled.c * filled.a > 0.2), np.int64)


@pytest.fixture(scope="module")
def files(x: pd.DataFrame, y: Array, tmp_path_factory: pytest.TempPathFactory) -> dict[str, File]:
    """One file of each format that CREATE MODEL reads."""
    folder = tmp_path_factory.mktemp("models")
    booster = xgb.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(x, y)
    light = lgb.LGBMClassifier(n_estimators=5, num_leaves=7, n_jobs=1, verbose=-1).fit(x, y)
    pipeline = make_pipeline(SimpleImputer(), LogisticRegression())
    pipeline.fit(x, np.array(["low", "mid", "high"], object)[y])
    margin = booster.predict(x, output_margin=True)
    found: dict[str, File] = {}
    for name in ("model.json", "model.ubj"):
        booster.save_model(folder / name)
        found[name] = File(folder / name, margin, booster.predict(x))
    light.booster_.save_model(folder / "model.txt")
    raw = np.asarray(light.predict(x, raw_score=True))
    found["model.txt"] = File(folder / "model.txt", raw, np.asarray(light.predict(x)))
    decided = pipeline.decision_function(x)
    trusted = "OPTIONS (allow_pickle = true)"
    with (folder / "model.pkl").open("wb") as file:
        pickle.dump(pipeline, file)
    joblib.dump(pipeline, folder / "model.joblib", compress=3)
    for name in ("model.pkl", "model.joblib"):
        found[name] = File(folder / name, decided, pipeline.predict(x), trusted)
    (folder / "model.sqlml").write_bytes(store.dumps(import_model(pipeline).program))
    found["model.sqlml"] = File(folder / "model.sqlml", decided, pipeline.predict(x))
    return found


FORMATS = {
    "model.json": "XGBOOST",
    "model.ubj": "XGBOOST",
    "model.txt": "LIGHTGBM",
    "model.pkl": "PICKLE",
    "model.joblib": "PICKLE",
    "model.sqlml": "SQLML",
}


@pytest.fixture
def db(x: pd.DataFrame) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("frame", x.reset_index(names="id"))
        con.execute("CREATE TABLE t AS SELECT * FROM frame")
        con.unregister("frame")
        yield con


def create(db: sqlml.Session, file: File, clauses: str = "") -> None:
    db.execute(f"CREATE MODEL m FROM '{file.path}' {clauses} {file.options}")


def answers(db: sqlml.Session, call: str) -> list[Any]:
    return [row[0] for row in db.execute(f"SELECT {call} FROM t ORDER BY id").fetchall()]


def labels(db: sqlml.Session) -> list[Any]:
    return answers(db, "predict('m', *)")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("named", [False, True])
def test_each_format_scores_as_its_library(
    db: sqlml.Session, files: dict[str, File], name: str, named: bool
) -> None:
    file = files[name]
    create(db, file, f"FORMAT {FORMATS[name]}" if named else "")
    assert labels(db) == file.label.tolist()
    score = np.array(answers(db, "predict_score('m', *)"))
    if name in ("model.json", "model.ubj", "model.txt"):
        np.testing.assert_array_equal(score, file.score)
    else:
        np.testing.assert_allclose(score, file.score, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", FORMATS)
def test_compile_takes_the_path_of_a_file(
    files: dict[str, File], x: pd.DataFrame, name: str
) -> None:
    file = files[name]
    scorer = sqlml.compile(file.path, allow_pickle=bool(file.options))
    assert scorer.predict(x).tolist() == file.label.tolist()
    if file.options:
        with pytest.raises(errors.UntrustedArtifactError, match="is a pickle"):
            sqlml.compile(str(file.path))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.json", "no such file: 'none.json'"),
        ("/dev/null", "is a device"),
        (".", "is a directory"),
        ("s3://bucket/m.json", "not a path of this machine.*CREATE MODEL m FROM 's3://"),
    ],
)
def test_compile_says_what_is_wrong_with_a_path(path: str, message: str) -> None:
    with pytest.raises(errors.ArtifactError, match=message):
        sqlml.compile(path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_of_one_format_read_as_another_is_refused(
    db: sqlml.Session, files: dict[str, File], name: str
) -> None:
    for wrong in set(FORMATS.values()) - {FORMATS[name]}:
        clause = f"FORMAT {wrong} OPTIONS (allow_pickle = true)"
        with pytest.raises(errors.ModelError):
            db.execute(f"CREATE MODEL m FROM '{files[name].path}' {clause}")
    assert db.execute("SHOW MODELS").fetchall() == []


def test_the_extension_says_nothing(
    db: sqlml.Session, files: dict[str, File], tmp_path: Path
) -> None:
    path = tmp_path / "model of mine.pkl"
    path.write_bytes(files["model.json"].path.read_bytes())
    db.execute(f"CREATE MODEL m FROM '{path}'")
    assert labels(db) == files["model.json"].label.tolist()


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib"])
def test_a_pickle_needs_a_permission_of_statement_or_session(
    db: sqlml.Session, files: dict[str, File], name: str
) -> None:
    path = files[name].path
    for options in ("", "OPTIONS (allow_pickle = false)"):
        with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle = true"):
            db.execute(f"CREATE MODEL m FROM '{path}' {options}")
    with sqlml.attach(db.connection.cursor(), allow_pickle=True) as trusting:
        trusting.execute(f"CREATE MODEL m FROM '{path}'")
    assert labels(db) == files[name].label.tolist()


def test_a_relative_path_starts_at_the_working_directory(
    db: sqlml.Session, files: dict[str, File], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files["model.txt"]
    monkeypatch.chdir(file.path.parent)
    db.execute("CREATE MODEL m FROM 'model.txt'")
    monkeypatch.chdir(file.path.parent.parent)
    db.execute(f"CREATE MODEL n FROM './{file.path.parent.name}/model.txt'")
    assert labels(db) == answers(db, "predict('n', *)") == file.label.tolist()


def test_a_path_that_means_no_file_or_two_is_refused(
    db: sqlml.Session, files: dict[str, File], tmp_path: Path
) -> None:
    folder = files["model.txt"].path.parent
    with pytest.raises(errors.ArtifactError, match="2 files"):
        db.execute(f"CREATE MODEL m FROM '{folder}/model.[jt]?*[nt]'")
    with pytest.raises(Exception, match="absent"):
        db.execute(f"CREATE MODEL m FROM '{tmp_path}/absent.json'")
    assert db.execute("SHOW MODELS").fetchall() == []


@pytest.mark.parametrize("name", ["model.json", "model.txt"])
def test_sha256_pins_the_file(db: sqlml.Session, files: dict[str, File], name: str) -> None:
    file = files[name]
    digest = hashlib.sha256(file.path.read_bytes()).hexdigest()
    with pytest.raises(errors.ArtifactError, match=digest):
        create(db, file, f"OPTIONS (sha256 = '{digest[::-1]}')")
    create(db, file, f"OPTIONS (sha256 = '{digest.upper()}')")
    assert labels(db) == file.label.tolist()
    assert dict(db.execute("DESCRIBE MODEL m").fetchall())["options"] == ""


def test_a_pin_is_checked_before_a_pickle_runs(db: sqlml.Session, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    evil = b"cbuiltins\nexec\n(Vopen(%r, 'w')\ntR." % str(mark)
    path = tmp_path / "evil.pkl"
    path.write_bytes(evil)
    with pytest.raises(errors.UntrustedArtifactError):
        db.execute(f"CREATE MODEL m FROM '{path}'")
    with pytest.raises(errors.ArtifactError, match="sha256"):
        db.execute(f"CREATE MODEL m FROM '{path}' OPTIONS (allow_pickle = true, sha256 = 'aa')")
    assert not mark.exists()
    with pytest.raises(errors.ModelError):
        db.execute(f"CREATE MODEL m FROM '{path}' OPTIONS (allow_pickle = true)")
    assert mark.exists()  # the permission means what it says


def test_input_names_the_columns_of_a_model_without_names(
    db: sqlml.Session, x: pd.DataFrame, y: Array, tmp_path: Path
) -> None:
    path = tmp_path / "unnamed.json"
    model = xgb.XGBClassifier(n_estimators=3, max_depth=3, n_jobs=1).fit(x.to_numpy(), y)
    model.save_model(path)
    with pytest.raises(errors.ConfigError, match="the 3 columns.*names 2"):
        db.execute(f"CREATE MODEL m INPUT (a DOUBLE, b DOUBLE) FROM '{path}'")
    with pytest.raises(errors.ConfigError, match="'b' is declared VARCHAR"):
        db.execute(f"CREATE MODEL m INPUT (a DOUBLE, b VARCHAR, c DOUBLE) FROM '{path}'")
    assert db.execute("SHOW MODELS").fetchall() == []
    db.execute(f"CREATE MODEL m INPUT (a DOUBLE, \"b\" INTEGER, c DECIMAL(9, 2)) FROM '{path}'")
    assert labels(db) == model.predict(x.to_numpy()).tolist()
    turned = "c := a, b := b, a := c"
    db.execute(f"CREATE OR REPLACE MODEL m INPUT (c FLOAT, b FLOAT, a FLOAT) FROM '{path}'")
    assert answers(db, f"predict('m', {turned})") == model.predict(x.to_numpy()).tolist()


def test_input_may_give_a_model_other_names(db: sqlml.Session, files: dict[str, File]) -> None:
    file = files["model.txt"]
    clause = "INPUT (first DOUBLE, second DOUBLE, third DOUBLE)"
    db.execute(f"CREATE MODEL m {clause} FROM '{file.path}'")
    call = "predict('m', first := a, second := b, third := c)"
    assert answers(db, call) == file.label.tolist()


def test_a_stored_model_keeps_its_names(db: sqlml.Session, files: dict[str, File]) -> None:
    file = files["model.sqlml"]
    made = f"CREATE MODEL m INPUT ({{}}) FROM '{file.path}'"
    with pytest.raises(errors.ConfigError, match="keeps the names of its columns: a, b, c"):
        db.execute(made.format("first DOUBLE, second DOUBLE, third DOUBLE"))
    with pytest.raises(errors.ConfigError, match="'b' is declared VARCHAR"):
        db.execute(made.format("a DOUBLE, b VARCHAR, c DOUBLE"))
    db.execute(made.format("a DOUBLE, b DOUBLE, c DOUBLE"))
    assert labels(db) == file.label.tolist()


def test_a_stored_part_of_a_model_is_refused(db: sqlml.Session, tmp_path: Path) -> None:
    path = tmp_path / "part.sqlml"
    for width, output in ((2, "label"), (1, "x4")):
        b = Builder()
        value = b.op("select", b.input("a", "float64", width), indices=np.array([0]))
        path.write_bytes(store.dumps(b.build({output: value})))
        with pytest.raises(errors.UnsupportedModelError, match="part of a model"):
            db.execute(f"CREATE MODEL m FROM '{path}'")


def test_or_replace_and_if_not_exists(db: sqlml.Session, files: dict[str, File]) -> None:
    old, new = files["model.json"], files["model.sqlml"]
    create(db, old)
    with pytest.raises(errors.ModelExistsError):
        create(db, new)
    db.execute("CREATE MODEL IF NOT EXISTS M FROM 'there/is/no/such/file'")
    assert labels(db) == old.label.tolist()
    db.execute(f"CREATE OR REPLACE MODEL m FROM '{new.path}'")
    assert labels(db) == new.label.tolist()
    assert answers(db, "predict('m/1', *)") == old.label.tolist()
    db.execute(f"CREATE MODEL IF NOT EXISTS n FROM '{old.path}'")
    assert answers(db, "predict('n', *)") == old.label.tolist()


def test_comment_and_provenance_are_kept(db: sqlml.Session, files: dict[str, File]) -> None:
    create(db, files["model.json"], "COMMENT 'who said \"it''s so\"; 日本'")
    described = dict(db.execute("DESCRIBE MODEL m").fetchall())
    assert described["comment"] == 'who said "it\'s so"; 日本'
    assert described["library"] == f"xgboost {xgb.__version__}"
    (shown,) = db.execute("SHOW MODELS").fetchall()
    assert 'who said "it\'s so"; 日本' in shown


@pytest.mark.parametrize("strategy", ["gemm", "tt", "ptt"])
@pytest.mark.parametrize("name", ["model.json", "model.txt"])
def test_options_choose_backend_and_strategy(
    db: sqlml.Session, files: dict[str, File], name: str, strategy: str
) -> None:
    pytest.importorskip("torch", reason="the torch backend needs torch")
    file = files[name]
    create(db, file, f"OPTIONS (backend = 'torch', strategy = '{strategy}', device = 'cpu')")
    plan = db.plan(QUERY)
    assert plan is not None
    assert (plan.calls[0].spec.backend, plan.calls[0].spec.strategy) == ("torch", strategy)
    np.testing.assert_array_equal(answers(db, "predict_score('m', *)"), file.score)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("strategie = 'tt'", "unknown option 'strategie'"),
        ("strategy = 'fast'", "unknown strategy 'fast'"),
        ("backend = 'abacus'", "unknown backend 'abacus'"),
        ("device = 'tpu'", "unknown device 'tpu'"),
        ("on_null = 'skip'", "on_null cannot be 'skip'"),
    ],
)
def test_a_wrong_option_leaves_nothing_behind(
    db: sqlml.Session, files: dict[str, File], options: str, says: str
) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        create(db, files["model.json"], f"OPTIONS ({options})")
    assert db.execute("SHOW MODELS").fetchall() == []


_WITHOUT = """
import importlib.abc, json, sys

BLOCKED = {"xgboost", "lightgbm", "sklearn", "scipy", "joblib", "pandas", "torch"}

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
        return None

sys.meta_path.insert(0, Block())
import sqlml

folder, rows = sys.argv[1], json.load(sys.stdin)
con = sqlml.connect()
con.execute("CREATE TABLE t (id INTEGER, a DOUBLE, b DOUBLE, c DOUBLE)")
con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
out = {}
for name in ("model.json", "model.ubj", "model.txt", "model.sqlml"):
    con.execute(f"CREATE OR REPLACE MODEL m FROM '{folder}/{name}'")
    query = "SELECT predict('m', *), predict_score('m', *) FROM t ORDER BY id"
    out[name] = con.execute(query).fetchall()
assert not BLOCKED & {m.split(".")[0] for m in sys.modules}
print(json.dumps(out))
"""


def test_files_score_without_their_libraries(files: dict[str, File], x: pd.DataFrame) -> None:
    rows = [[i, *(None if np.isnan(v) else v for v in r)] for i, r in enumerate(x.to_numpy())]
    folder = files["model.json"].path.parent
    done = child.run(_WITHOUT, folder, str(folder), text=json.dumps(rows))
    assert done.returncode == 0, done.stderr
    for name, answer in json.loads(done.stdout).items():
        assert [label for label, _ in answer] == files[name].label.tolist()
        score = np.array([score for _, score in answer])
        np.testing.assert_allclose(score, files[name].score, rtol=1e-11, atol=1e-14)
        if name != "model.sqlml":
            np.testing.assert_array_equal(score, files[name].score)


def test_a_pickle_says_which_library_is_missing(files: dict[str, File], tmp_path: Path) -> None:
    code = _WITHOUT.split("folder, rows")[0] + (
        f"sqlml.connect().execute(\"CREATE MODEL m FROM '{files['model.pkl'].path}' "
        'OPTIONS (allow_pickle = true)")'
    )
    done = child.run(code, tmp_path)
    assert "MissingDependencyError" in done.stderr.splitlines()[-1]
    assert "sklearn" in done.stderr.splitlines()[-1]
