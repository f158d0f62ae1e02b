"""A Scorer of texts: many by calls of machine code, a few without a table, all the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml.errors import MissingValueError
from sqlml.scorer import scoring_paths
from tests.e2e.test_native_texts import MODELS

WORDS = ["good", "Bad", "the", "x-ray", "naïve", "Straße", "日本", "9", "b", "GREAT", "it's", ""]
HARD = "İstanbul good İ bad"  # its lower case has more characters
ROWS = 1_300


def texts() -> list[str]:
    rng = np.random.default_rng(3)
    made = [" ".join(rng.choice(WORDS, rng.integers(0, 12))) for _ in range(ROWS)]
    for row in (0, 5, 511, 512, 900, ROWS - 1):
        made[row] = HARD
    return made


@pytest.mark.parametrize("name", MODELS)
def test_many_and_few_texts_are_scored_alike(name: str) -> None:
    given = texts()
    y = np.array([len(text) % 3 for text in given])
    model = MODELS[name]().fit(given, y)
    scorer = sqlml.compile(model, threads=1)
    whole = scorer.predict_proba(given)
    rounding = 1e-6 if name == "single" else 1e-11
    np.testing.assert_allclose(whole, model.predict_proba(given), rtol=rounding, atol=1e-14)
    for rows in (
        slice(0, 1),
        slice(6, 7),
        slice(500, 500 + scoring_paths.MAX_FEW_ROWS),
        slice(893, 910),
    ):
        np.testing.assert_array_equal(scorer.predict_proba(given[rows]), whole[rows], str(rows))
    labels = scorer.predict(given)
    assert scorer.predict(given[7:9]).tolist() == labels[7:9].tolist()
    assert labels.tolist() == model.predict(given).tolist()


def test_few_texts_in_any_form() -> None:
    both = make_column_transformer((TfidfVectorizer(), "body"), (CountVectorizer(), "Title"))
    frame = pd.DataFrame({"body": texts(), "more": 1, "Title": texts()[::-1]})
    model = make_pipeline(both, LogisticRegression()).fit(frame, np.arange(ROWS) % 2)
    scorer = sqlml.compile(model)
    want = model.predict_proba(frame)
    forms: dict[str, Any] = {
        "frame": frame,
        "spelled otherwise": frame.rename(columns={"Title": "TITLE"}),
        "objects": frame.astype(object),
        "array": frame.to_numpy(object),
        "backwards": frame.iloc[:, ::-1],
    }
    for what, form in forms.items():
        for rows in (slice(1, 2), slice(5, 6), slice(20, 23)):
            got = scorer.predict_proba(form[rows])
            np.testing.assert_allclose(got, want[rows], rtol=1e-12, err_msg=f"{what} {rows}")
    assert [d is not None for d in scorer._text_scorers.values()] == [True]


def test_what_is_no_text_is_refused_as_in_a_table() -> None:
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts(), np.arange(ROWS) % 2)
    scorer = sqlml.compile(model)
    assert scorer.predict(["good"]).shape == (1,)
    for bad in ([None], ["good", None], np.array([["good"], [None]], object)):
        with pytest.raises(MissingValueError, match="has NULL, which CountVectorizer"):
            scorer.predict(bad)
    assert scorer.predict([]).shape == (0,)
    assert (
        scorer.predict_proba([np.str_("good")]).tolist() == model.predict_proba(["good"]).tolist()
    )
