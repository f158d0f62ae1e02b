"""Databases and files of each version of the formats, kept, read and scored.

`tests/golden/stored/format<N>.db` and the files beside it were written by the sqlml whose Program
format was N; `format<N>.json` has their models' answers. What is there is never written again: run
with SQLML_UPDATE_GOLDEN=1, this module adds the files of a new version of the format.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml
from sqlml.limits import FORMAT_VERSION

pytestmark = pytest.mark.version

STORED = Path(__file__).parents[1] / "golden" / "stored"
FORMATS = sorted(int(p.stem.removeprefix("format")) for p in STORED.glob("format*.json"))
QUERIES = {
    "churn": "predict('churn', *)",
    "churn probabilities": "predict_proba('churn', *)",
    "the first churn": "predict_proba('churn@first', *, class := 'no')",
    "champion": "predict_proba('kind@champion', *)",
    "amount": "predict('amount', *)",
    "mood": "predict_score('mood', note := plan)",
}
MODELS = ("churn", "kind", "amount", "mood")


def table() -> pd.DataFrame:
    """Twelve rows with everything that a column may hold."""
    return pd.DataFrame(
        {
            "n": range(12),
            "a": [0.5, -1.0, np.nan, 3.25, 1e30, -0.0, 2.0, 2.0000001, 7.5, -8.0, 0.1, 5.0],
            "b": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "plan": [
                "free",
                "pro",
                "it's",
                None,
                "日本",
                "free",
                "pro",
                "",
                "new",
                "free",
                "x",
                "pro",
            ],
        }
    )


def answers(con: sqlml.Session) -> dict[str, list[Any]]:
    """What the queries say, as JSON holds it."""
    return {
        name: [
            {str(k): v for k, v in value.items()} if isinstance(value, dict) else value
            for (value,) in con.execute(f"SELECT {call} FROM t ORDER BY n").fetchall()
        ]
        for name, call in QUERIES.items()
    }


def write(folder: Path) -> None:
    """A database and files of this version, and the answers of their models."""
    frame = table().ffill()
    churn = make_pipeline(
        make_column_transformer(
            (SimpleImputer(), ["a", "b"]), (OneHotEncoder(handle_unknown="ignore"), ["plan"])
        ),
        LogisticRegression(),
    )
    labels = np.where(frame.n % 3 == 0, "yes", "no")
    kinds = np.array(["red", "green", "it's blue"])[frame.n % 3]
    path = folder / f"format{FORMAT_VERSION}.db"
    with sqlml.connect() as con:
        con.execute(f"ATTACH '{path}' AS g (BLOCK_SIZE 16384, STORAGE_VERSION 'v1.4.0'); USE g")
        con.register("frame", table())
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("churn", churn.fit(frame, labels), comment="it's the first")
        con.create_model(
            "churn", churn.set_params(logisticregression__C=9.0).fit(frame, labels), or_replace=True
        )
        forest = RandomForestClassifier(4, max_depth=3, random_state=0)
        con.create_model("kind", forest.fit(frame[["a", "b"]].clip(-9, 9), kinds))
        con.add_version("kind", forest.fit(frame[["b"]], kinds))
        con.execute("ALTER MODEL kind SET ALIAS champion = 2; ALTER MODEL kind SET TAG k = 'v'")
        boosted = GradientBoostingRegressor(n_estimators=5, max_depth=2, random_state=0)
        con.create_model("amount", boosted.fit(frame[["b"]], frame.a.clip(-9, 9)))
        words = make_pipeline(TfidfVectorizer(analyzer="char"), LogisticRegression())
        con.create_model("mood", words.fit(frame.plan + "abc", labels), inputs=["note"])
        con.execute("UPDATE t SET plan = coalesce(plan, 'none')")
        for name in MODELS:
            con.execute(f"EXPORT MODEL {name} TO '{folder}/format{FORMAT_VERSION}.{name}.sqlml'")
        expected = json.dumps(answers(con), indent=1, ensure_ascii=False)
        (folder / f"format{FORMAT_VERSION}.json").write_text(expected + "\n", encoding="utf-8")
        con.execute("USE memory; DETACH g")


def test_this_version_has_its_files() -> None:
    if os.environ.get("SQLML_UPDATE_GOLDEN") and FORMAT_VERSION not in FORMATS:
        write(STORED)
    assert (STORED / f"format{FORMAT_VERSION}.db").exists()


def assert_as_before(found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    assert set(found) == set(expected)
    for name, values in found.items():
        for value, before in zip(values, expected[name], strict=True):
            if isinstance(value, dict):
                assert list(value) == list(before)
                assert list(value.values()) == pytest.approx(list(before.values()), rel=1e-12)
            elif isinstance(value, float):
                assert value == pytest.approx(before, rel=1e-12)
            else:
                assert value == before


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_database_answers_as_it_did(version: int, read_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "golden.db"
    shutil.copy(STORED / f"format{version}.db", path)
    expected = json.loads((STORED / f"format{version}.json").read_text(encoding="utf-8"))
    with sqlml.connect(path, read_only=read_only) as con:
        assert_as_before(answers(con), expected)
        shown = con.execute("SHOW MODELS").fetchall()
        assert [row[0] for row in shown] == sorted(MODELS)
        assert dict(con.execute("DESCRIBE MODEL kind@champion").fetchall())["tags"] == "k=v"
        if not read_only:
            con.execute("ALTER MODEL kind SET DEFAULT_VERSION = 2; ALTER MODEL kind RENAME TO new")
            con.execute("ALTER MODEL churn DROP VERSION 1; DROP MODEL amount; DROP MODEL mood")
            assert con.execute("SELECT count(*) FROM sqlml.catalog_programs").fetchall() == [(3,)]


@pytest.mark.parametrize("version", FORMATS)
def test_files_answer_as_they_did(version: int) -> None:
    expected = json.loads((STORED / f"format{version}.json").read_text(encoding="utf-8"))
    with sqlml.connect() as con:
        frame = table().assign(plan=lambda t: t.plan.fillna("none"))
        con.register("t", frame)
        for name in MODELS:
            con.execute(f"CREATE MODEL {name} FROM '{STORED}/format{version}.{name}.sqlml'")
        for name in ("churn", "churn probabilities", "amount", "mood"):
            found = con.execute(f"SELECT {QUERIES[name]} FROM t ORDER BY n").fetchall()
            values = [v for (v,) in found]
            made = {
                name: [
                    {str(k): v for k, v in value.items()} if isinstance(value, dict) else value
                    for value in values
                ]
            }
            assert_as_before(made, {name: expected[name]})
