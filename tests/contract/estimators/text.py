"""Vectorizers, and what reads their sparse rows: linear models, trees, naive Bayes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from sqlml.types import Array
from tests.contract.estimators.case import Case, counts

WORDS = (
    "the and not good bad café CAFÉ Straße STRASSE ΟΔΟΣ Οδος ﬁne 日本 it's e-mail x A1_b ½ İzmir "
    "naïve nai\u0308ve"
).split()


def documents(rows: int, seed: int) -> pd.DataFrame:
    """A column of texts and one of numbers; some texts are empty, or hold odd spaces."""
    rng = np.random.default_rng(seed)
    space = np.array([" ", "  ", "\t\n", "\u00a0", "\u2003 ", ", ", ".", "\0"], object)
    made = np.empty(rows, object)
    for i in range(rows):
        size = int(rng.choice([0, 1, 3, 10, 25]))
        pairs = zip(rng.choice(np.array(WORDS, object), size), rng.choice(space, size), strict=True)
        made[i] = "".join(word + gap for word, gap in pairs)
    if rows:
        made[0] = " ".join(WORDS)
    return pd.DataFrame({"text": pd.Series(made, dtype="str"), "price": rng.normal(3, 2, rows)})


def pleased(table: pd.DataFrame, seed: int) -> Array:
    """Two classes that a word and the price tell apart."""
    score = table.text.str.count("good") + table.price / 3
    return np.asarray(score > np.median(score), np.int64)


def length(table: pd.DataFrame, seed: int) -> Array:
    return np.asarray(table.text.str.len() / 10 + table.price, np.float64)


def column(*steps: Any, price: bool = False) -> Callable[[], Any]:
    """The steps on the texts alone; the price beside them if `price`."""

    def make() -> Any:
        part = steps[0] if len(steps) == 1 else make_pipeline(*steps)
        beside = [("price", StandardScaler(), ["price"])] if price else []
        return ColumnTransformer([("text", part, "text"), *beside])

    return make


def ahead(model: Any, *steps: Any, price: bool = True) -> Callable[[], Any]:
    return lambda: make_pipeline(column(*steps, price=price)(), model)


def transforms(name: str, *steps: Any) -> Case:
    return Case(name, column(*steps), None, documents, rtol=1e-12)


CASES: tuple[Case, ...] = (
    transforms("CountVectorizer", CountVectorizer()),
    transforms("CountVectorizer binary", CountVectorizer(binary=True, ngram_range=(1, 3))),
    transforms("CountVectorizer char", CountVectorizer(analyzer="char", ngram_range=(1, 3))),
    transforms("CountVectorizer char_wb", CountVectorizer(analyzer="char_wb", ngram_range=(2, 5))),
    transforms("CountVectorizer case", CountVectorizer(lowercase=False, max_features=9)),
    transforms("CountVectorizer ascii", CountVectorizer(strip_accents="ascii", min_df=3)),
    transforms(
        "CountVectorizer unicode", CountVectorizer(strip_accents="unicode", stop_words="english")
    ),
    transforms(
        "CountVectorizer pattern",
        CountVectorizer(token_pattern=r"(?i)[a-zé']+", stop_words=["the"], ngram_range=(2, 2)),
    ),
    transforms("CountVectorizer group", CountVectorizer(token_pattern=r"(\w)\w*", dtype=np.int32)),
    transforms(
        "CountVectorizer vocabulary", CountVectorizer(vocabulary={"good": 1, "bad": 0, "the": 2})
    ),
    transforms("TfidfVectorizer", TfidfVectorizer()),
    transforms("TfidfVectorizer l1", TfidfVectorizer(norm="l1", sublinear_tf=True)),
    transforms("TfidfVectorizer raw", TfidfVectorizer(norm=None, smooth_idf=False, binary=True)),
    transforms("TfidfVectorizer tf", TfidfVectorizer(use_idf=False, analyzer="char", min_df=0.1)),
    transforms("TfidfVectorizer float32", TfidfVectorizer(dtype=np.float32, sublinear_tf=True)),
    transforms("HashingVectorizer", HashingVectorizer(n_features=50)),
    transforms(
        "HashingVectorizer unsigned",
        HashingVectorizer(n_features=64, alternate_sign=False, norm=None, ngram_range=(1, 2)),
    ),
    transforms(
        "HashingVectorizer binary",
        HashingVectorizer(n_features=7, binary=True, norm="l1", dtype=np.float32),
    ),
    transforms("TfidfTransformer counts", CountVectorizer(), TfidfTransformer(norm="l1")),
    transforms(
        "TfidfTransformer hashed",
        HashingVectorizer(n_features=30, norm=None, alternate_sign=False),
        TfidfTransformer(sublinear_tf=True),
    ),
    transforms("MaxAbsScaler of texts", CountVectorizer(), MaxAbsScaler()),
    transforms(
        "TruncatedSVD of texts", TfidfVectorizer(), TruncatedSVD(n_components=3, random_state=0)
    ),
    Case(
        "TfidfVectorizer LogisticRegression",
        ahead(LogisticRegression(), TfidfVectorizer()),
        pleased,
        documents,
    ),
    Case(
        "HashingVectorizer wide LogisticRegression",
        ahead(LogisticRegression(), HashingVectorizer(n_features=2**14)),
        pleased,
        documents,
    ),
    Case(
        "TfidfVectorizer l1 weights",
        ahead(
            LogisticRegression(solver="liblinear", l1_ratio=1.0),
            CountVectorizer(ngram_range=(1, 2)),
        ),
        pleased,
        documents,
    ),
    Case(
        "TfidfVectorizer Ridge", ahead(Ridge(), TfidfVectorizer(), price=False), length, documents
    ),
    Case(
        "TfidfVectorizer SGDClassifier",
        ahead(SGDClassifier(random_state=0), TfidfVectorizer(dtype=np.float32)),
        pleased,
        documents,
    ),
    Case(
        "CountVectorizer MultinomialNB",
        ahead(MultinomialNB(), CountVectorizer(), price=False),
        pleased,
        documents,
    ),
    Case(
        "TfidfVectorizer ComplementNB",
        ahead(ComplementNB(), TfidfVectorizer(), price=False),
        pleased,
        documents,
    ),
    Case(
        "TfidfVectorizer RandomForestClassifier",
        ahead(RandomForestClassifier(5, random_state=0), TfidfVectorizer(analyzer="char_wb")),
        pleased,
        documents,
    ),
    Case(
        "CountVectorizer GradientBoostingRegressor",
        ahead(GradientBoostingRegressor(n_estimators=5, random_state=0), CountVectorizer()),
        length,
        documents,
    ),
    *(
        Case(f"{name} alone", make, data=documents, column="text")
        for name, make in (
            ("CountVectorizer", lambda: CountVectorizer(ngram_range=(1, 2), min_df=2)),
            ("HashingVectorizer", lambda: HashingVectorizer(n_features=64)),
            ("TfidfVectorizer", lambda: TfidfVectorizer(sublinear_tf=True)),
        )
    ),
    Case("TfidfTransformer alone", lambda: TfidfTransformer(), data=counts),
    Case("TfidfTransformer l1", lambda: TfidfTransformer(norm="l1", use_idf=False), data=counts),
)
