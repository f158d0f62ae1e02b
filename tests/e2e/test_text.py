"""Texts in SQL: they cross into the scoring function as they are, and score as in the source."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.types import Array

WORDS = (
    "good",
    "bad",
    "Straße",
    "ΟΔΟΣ",
    "日本語",
    "it's",
    "x",
    "naïve",
    "extraordinarily-long-word",
    "İ",
)


def texts(rows: int, seed: int) -> Array:
    """Documents of no byte and of a thousand, in several scripts, some with a NUL inside."""
    rng = np.random.default_rng(seed)
    made = np.empty(rows, object)
    size = rng.choice([0, 1, 1, 2, 5, 12, 80], rows)
    made[:] = [" ".join(rng.choice(WORDS, n)) + ("\0b" if n == 5 else "") for n in size]
    return made


def reviews(rows: int, seed: int = 0) -> pd.DataFrame:
    """Two columns of texts, a number and a category."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "title": texts(rows, seed),
            "body": texts(rows, seed + 1),
            "stars": rng.normal(3, 1, rows),
            "shop": rng.choice(["a", "b", "it's"], rows),
        }
    )


def target(frame: pd.DataFrame) -> Array:
    return np.where(frame.title.str.count("good") + frame.stars > 3.2, "yes", "no")


def mixed() -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("number", StandardScaler(), ["stars"]),
            ("title", TfidfVectorizer(), "title"),
            ("body", CountVectorizer(analyzer="char_wb", ngram_range=(2, 3)), "body"),
            ("shop", OneHotEncoder(handle_unknown="ignore"), ["shop"]),
        ]
    )


MODELS: dict[str, Callable[[], Any]] = {
    "mixed": lambda: make_pipeline(mixed(), LogisticRegression(max_iter=300)),
    "trees": lambda: make_pipeline(mixed(), RandomForestClassifier(8, random_state=0)),
}


@cache
def fitted(name: str) -> Any:
    frame = reviews(400)
    return MODELS[name]().fit(frame.drop(columns="id"), target(frame))


@pytest.mark.by_day(2)
@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("name", list(MODELS))
def test_texts_numbers_and_categories_in_one_call(name: str, backend: str) -> None:
    frame, model = reviews(1500, 5), fitted(name)
    with sqlml.connect() as db:
        db.execute("CREATE TABLE reviews AS SELECT * FROM frame")
        db.create_model("m", model, backend=backend)
        query = (
            "SELECT predict('m', *), predict_proba('m', *, class := 'yes') FROM reviews ORDER BY id"
        )
        rows = db.execute(query).fetchall()
    want = model.predict_proba(frame)[:, list(model.classes_).index("yes")]
    assert [r[0] for r in rows] == model.predict(frame).tolist()
    np.testing.assert_allclose([r[1] for r in rows], want, rtol=1e-9, atol=1e-12)


@pytest.mark.nightly
def test_a_hundred_thousand_rows_on_several_threads() -> None:
    frame = reviews(10_000, 9)
    vectorizers = [
        ("t", HashingVectorizer(ngram_range=(1, 2)), "title"),
        ("b", TfidfVectorizer(), "body"),
    ]
    model = make_pipeline(ColumnTransformer(vectorizers), Ridge())
    model.fit(frame.head(500)[["title", "body"]], frame.stars.head(500))
    with sqlml.connect() as db:
        db.execute("SET threads = 4")
        db.execute("CREATE TABLE reviews AS SELECT frame.* FROM frame, range(15)")
        db.create_model("m", model)
        query = "SELECT id, predict('m', *) FROM reviews WHERE id % 3 <> 1"
        rows = np.array(db.execute(query).fetchall())
    want = model.predict(frame[["title", "body"]])
    assert len(rows) == 15 * np.sum(frame.id % 3 != 1) == 100_005
    np.testing.assert_allclose(rows[:, 1], want[rows[:, 0].astype(int)], rtol=1e-12)


def test_a_vectorizer_alone_gives_a_list_of_numbers() -> None:
    documents = pd.Series(["the cat", "the dog and the cat", ""])
    with sqlml.connect() as db:
        db.execute(
            "CREATE TABLE docs AS SELECT * FROM (VALUES (1, 'the cat the'), (2, '')) t(id, d)"
        )
        db.create_model("counts", CountVectorizer().fit(documents), inputs=["d"])
        rows = db.execute("SELECT transform('counts', d) FROM docs ORDER BY id").fetchall()
        assert rows == [([0.0, 1.0, 0.0, 2.0],), ([0.0, 0.0, 0.0, 0.0],)]
        named = db.execute("SELECT transform('counts', d := 'dog' || chr(0) || 'and')").fetchone()
        assert named == ([1.0, 0.0, 1.0, 0.0],)


def test_null_is_an_error_that_names_the_fix() -> None:
    model = make_pipeline(TfidfVectorizer(), Ridge()).fit(["a good text", "a bad one"], [1, 0])
    with sqlml.connect() as db:
        db.execute("CREATE TABLE docs AS SELECT * FROM (VALUES ('good'), (NULL)) t(text)")
        db.create_model("m", model)
        with pytest.raises(errors.MissingValueError, match="'text' has NULL.*coalesce"):
            db.execute("SELECT predict('m', *) FROM docs").fetchall()
        filled = "SELECT predict('m', text := coalesce(text, '')) FROM docs"
        want = model.predict(["good", ""])
        np.testing.assert_allclose([r[0] for r in db.execute(filled).fetchall()], want)
        kept = "SELECT predict('m', *) FROM docs WHERE text IS NOT NULL"
        assert len(db.execute(kept).fetchall()) == 1


def test_a_view_and_explain_know_the_texts(tmp_path: Any) -> None:
    path = str(tmp_path / "shop.duckdb")
    frame, model = reviews(50, 3), fitted("mixed")
    with sqlml.connect(path) as db:
        db.execute("CREATE TABLE reviews AS SELECT * FROM frame")
        db.create_model("m", model)
        db.execute("CREATE VIEW scored AS SELECT id, predict('m', *) AS label FROM reviews")
        if db.plan("SELECT predict('m', *) FROM reviews").to_dict()["calls"][0]["route"] != "arrow":
            plan = " ".join(db.explain("SELECT predict('m', *) FROM reviews").split())
            assert "in SQL nothing" in plan and "1 DOUBLE and 3 VARCHAR columns" in plan
        db.execute("SET sqlml_route = 'arrow'")
        plan = " ".join(db.explain("SELECT predict('m', *) FROM reviews").split())
        assert "with the texts of title, body" in plan
        assert "codes of shop" in plan and "packed as DOUBLE[2]" in plan
    with sqlml.connect(path) as db:
        rows = db.execute("SELECT label FROM scored ORDER BY id").fetchall()
    assert [r[0] for r in rows] == model.predict(frame).tolist()


def test_an_enum_is_a_text_and_a_number_is_not() -> None:
    model = make_pipeline(TfidfVectorizer(), Ridge()).fit(["a good text", "a bad one"], [1, 0])
    with sqlml.connect() as db:
        db.execute("CREATE TABLE docs AS SELECT 'good'::ENUM('good', 'bad') AS text, 1 AS n")
        db.create_model("m", model)
        (found,) = db.execute("SELECT predict('m', *) FROM docs").fetchone()
        np.testing.assert_allclose(found, model.predict(["good"])[0])
        with pytest.raises(errors.ColumnTypeError, match="takes strings"):
            db.execute("SELECT predict('m', text := n) FROM docs")
