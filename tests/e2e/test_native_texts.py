"""Models of whole texts as native functions: the numbers of the other route, and of scikit-learn.

Machine code cuts and counts the texts; Python looks at those whose lower case no table has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import sqlml
from sqlml.errors import MissingValueError, SqlmlError
from sqlml.udfs.duckdb.native import native_functions
from tests.e2e.native_models import NEEDS_NATIVE, routes

pytestmark = NEEDS_NATIVE

WORDS = [
    *("the of and a to in is it you that he was for on are with as his they be at one have this "
    "from or had by hot but some what there we can out other were all your when up use").split(),
    *("Straße", "ÉCOLE", "naïve", "北京", "x_1", "42", "don't", "co-op", "🙂", "o\u0301", "\t"),
]  # fmt: skip
HARD = ["İstanbul", "ΟΔΟΣ"]
"""Words whose lower case is longer, or another at their end."""

ROWS = 3000


def reviews() -> pd.DataFrame:
    """Texts of many lengths, a few of them empty, long, or hard to write in lower case."""
    rng = np.random.default_rng(0)
    often = rng.zipf(1.2, (ROWS, 30)) % len(WORDS)
    texts = [" ".join(np.array(WORDS)[row[: rng.integers(0, 30)]]) for row in often]
    titles = [" ".join(np.array(WORDS)[row[:3]]) for row in often[::-1]]
    texts[5], texts[700], texts[701] = "", " ".join(WORDS * 900), "Ⱥ" * 30_000
    texts[-1] = texts[-2] = f"a {HARD[0]} of {HARD[1]}"
    return pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "body": texts,
            "title": titles,
            "price": rng.normal(size=ROWS).round(2),
            "plan": rng.choice(["basic", "pro"], ROWS),
        }
    )


def columns(*pairs: tuple[Any, Any]) -> Any:
    return make_column_transformer(*pairs)


MODELS: dict[str, Callable[[], Any]] = {
    "words": lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression()),
    "stop words": lambda: make_pipeline(
        CountVectorizer(stop_words="english", ngram_range=(1, 2), dtype=np.int32), MultinomialNB()
    ),
    "accents": lambda: make_pipeline(
        TfidfVectorizer(strip_accents="unicode", ngram_range=(1, 2)), LogisticRegression()
    ),
    "presence": lambda: make_pipeline(CountVectorizer(binary=True), BernoulliNB()),
    "characters": lambda: make_pipeline(
        TfidfVectorizer(analyzer="char", ngram_range=(1, 3), norm="l1"), ComplementNB()
    ),
    "within words, hashed": lambda: make_pipeline(
        HashingVectorizer(n_features=64, analyzer="char_wb", ngram_range=(2, 4), norm=None),
        TfidfTransformer(),
        SGDClassifier(loss="log_loss", random_state=0),
    ),
    "case kept, one letter": lambda: make_pipeline(
        CountVectorizer(lowercase=False, token_pattern=r"(?u)\b\w+\b"),
        MaxAbsScaler(),
        TruncatedSVD(3, random_state=0),
        LogisticRegression(),
    ),
    "trees": lambda: make_pipeline(
        CountVectorizer(max_features=20), RandomForestClassifier(5, max_depth=3, random_state=0)
    ),
    "trees that read a few columns": lambda: make_pipeline(
        HashingVectorizer(n_features=300, norm="l2"),
        RandomForestClassifier(5, max_depth=3, random_state=0),
    ),
    "single": lambda: make_pipeline(
        TfidfVectorizer(dtype=np.float32, sublinear_tf=True), LogisticRegression()
    ),
}
SEVERAL: dict[str, Callable[[], Any]] = {
    "beside numbers": lambda: make_pipeline(
        columns(
            (TfidfVectorizer(), "body"),
            (StandardScaler(), ["price"]),
            (CountVectorizer(), "title"),
            (OneHotEncoder(), ["plan"]),
        ),
        LogisticRegression(max_iter=500),
    ),
}
BY_PYTHON: dict[str, Callable[[], Any]] = {
    "own pattern": lambda: make_pipeline(
        CountVectorizer(token_pattern=r"[a-z]+|\d"), LogisticRegression()
    ),
}
ALL = {**MODELS, **SEVERAL, **BY_PYTHON}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    table = reviews()
    y = np.where(table.body.str.len() > 60, "long", np.where(table.price > 0, "dear", "cheap"))
    with sqlml.connect() as con:
        con.register("made", table)
        con.execute("CREATE TABLE t AS FROM made")
        for name, make in ALL.items():
            x = table if name in SEVERAL else table.body
            con.create_model(name, make().fit(x[:1500], y[:1500]), verify=False)
        yield con


def query(name: str, call: str, table: str = "t") -> str:
    given = "*" if name in SEVERAL else "body"
    return f"SELECT {call}('{name}', {given}) FROM {table}"


def answer(con: sqlml.Session, text: str, route: str) -> Any:
    """The rows of a query by a route, or the error that it ends in."""
    con.execute(f"SET sqlml_route = '{route}'")
    try:
        return con.execute(text).fetchall()
    except SqlmlError as error:
        return type(error).__name__, error.message
    finally:
        con.execute("RESET sqlml_route")


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", ALL)
def test_both_routes_give_the_same(con: sqlml.Session, name: str) -> None:
    for call in ("predict", "predict_score", "predict_proba"):
        want, found = (answer(con, query(name, call), route) for route in ("arrow", "native"))
        if call == "predict_proba":  # machine code has an exp of its own
            values = [[list(row[0].values()) for row in rows] for rows in (want, found)]
            assert np.allclose(*values, rtol=1e-14, atol=1e-300)
        else:
            assert found == want
    expected = "native with python" if name in BY_PYTHON else "native"
    assert routes(con, query(name, "predict_proba")) == [expected]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", {**MODELS, **SEVERAL})
def test_they_are_those_of_scikit_learn(con: sqlml.Session, name: str) -> None:
    table = con.execute("FROM t ORDER BY id").df()
    y = np.where(table.body.str.len() > 60, "long", np.where(table.price > 0, "dear", "cheap"))
    x = table if name in SEVERAL else table.body
    model = ALL[name]().fit(x[:1500], y[:1500])
    rows = con.execute(query(name, "predict_proba", "(FROM t ORDER BY id)")).fetchall()
    found = np.array([[row[0][label] for label in model.classes_] for row in rows])
    tolerance = 1e-6 if name == "single" else 1e-12
    assert np.abs(found - model.predict_proba(x)).max() < tolerance


def blocks_of_python(con: sqlml.Session, asked: str, patch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each block that Python scores for a query."""
    blocks: list[int] = []
    given = native_functions._read_block

    def noted(function: Any, width: int, at: int, rows: int, texts: int) -> Any:
        blocks.append(rows)
        return given(function, width, at, rows, texts)

    with patch.context() as own:
        own.setattr(native_functions, "_read_block", noted)
        con.execute(asked).fetchall()
    return blocks


def test_python_scores_the_blocks_with_a_text_that_it_must_prepare(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    easy, often = (
        f"(FROM t WHERE id < {ROWS - 2})",
        "(SELECT repeat('hot ', 1100 + id) AS body FROM t WHERE id < 2)",
    )
    for name, table, blocks in (
        ("words", easy, []),
        ("words", "t", [ROWS - 2048]),
        ("characters", easy, []),
        ("within words, hashed", easy, []),
        ("trees that read a few columns", easy, []),
        ("beside numbers", easy, []),
        ("case kept, one letter", "t", []),
        ("accents", "(FROM t WHERE id = 701)", [1]),
        ("words", often, [2]),
        ("presence", often, []),
    ):
        asked = query(name, "predict", table)
        assert blocks_of_python(con, asked, monkeypatch) == blocks, (name, table)
        assert answer(con, asked, "native") == answer(con, asked, "arrow")


def test_a_missing_text_is_refused_by_either(con: sqlml.Session) -> None:
    holes = "(SELECT * REPLACE (CASE WHEN id <> 2500 THEN body END AS body) FROM t)"
    text = query("words", "predict", holes)
    assert answer(con, text, "native") == answer(con, text, "arrow")
    with pytest.raises(MissingValueError, match="'text' has NULL"):
        con.execute(text).fetchall()


def test_odd_characters(con: sqlml.Session) -> None:
    text = "(SELECT chr(0) || body || chr(127) || chr(1114111) AS body FROM t)"
    for name in MODELS:
        asked = query(name, "predict", text)
        assert answer(con, asked, "native") == answer(con, asked, "arrow")


def test_threads_share_the_function(con: sqlml.Session) -> None:
    con.execute("CREATE TABLE many AS SELECT body FROM t, range(100)")
    asked = "SELECT sum(predict_proba('words', body, class := 'long')) FROM many"
    found = []
    for threads in (1, 4):
        con.execute(f"SET threads = {threads}")
        found.append(con.execute(asked).fetchone()[0])
    con.execute("RESET threads")
    assert found[0] == pytest.approx(found[1], rel=1e-12)
