"""`are_texts`: whether the values of a column are sentences, and not names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_WORDS = 20_000
"""Words and terms of a column of texts that count: the most frequent ones."""

TOPICS = 50
"""Numbers that a text becomes for estimators that take no thousands of columns."""

_WORDS = 3.0
"""Words that a text has on average."""

_SAMPLE = 1000


def are_texts(values: Sequence[str]) -> bool:
    """Whether texts are of several words each.

    >>> are_texts(["a fine day", "it rains and rains"]), are_texts(["New York", "x-17", ""])
    (True, False)
    """
    some = values[:: max(len(values) // _SAMPLE, 1)]
    return bool(some) and sum(len(text.split()) for text in some) >= _WORDS * len(some)


def vectorizer(values: Sequence[str], sparse: bool, seed: int) -> Any:
    """What makes numbers of texts: weights of their words, or, if not `sparse`, of topics (latent
    semantic analysis)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(max_features=MOST_WORDS)
    if sparse:
        return words
    known = {word for text in values[:: max(len(values) // _SAMPLE, 1)] for word in text.split()}
    topics = max(min(TOPICS, len(known) // 2), 1)
    return make_pipeline(words, TruncatedSVD(topics, random_state=seed))
