"""`are_texts`: whether the values of a column are sentences, and not names."""

from __future__ import annotations

import re
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
    """Whether texts are of several words each, as TfidfVectorizer counts words, with spaces between
    them: a UUID or an address of mail is one.

    >>> are_texts(["a fine day today", "it rains and rains"]), are_texts(["New York", "A G T"])
    (True, False)
    >>> are_texts(["ann.smith@example.org", "bob.miller@example.org"])
    False
    """
    some = _some(values)
    counts = [min(len(_WORD.findall(text)), len(text.split())) for text in some]
    return bool(some) and sum(counts) >= _WORDS * len(some) and len(_known(some)) > 1


def vectorizer(values: Sequence[str], sparse: bool, seed: int) -> Any:
    """What makes numbers of texts: weights of their words, or, if not `sparse`, of topics (latent
    semantic analysis)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(max_features=MOST_WORDS)
    if sparse:
        return words
    topics = max(min(TOPICS, len(_known(_some(values))) // 4), 1)  # some may be held out
    return make_pipeline(words, TruncatedSVD(topics, random_state=seed))


_WORD = re.compile(r"(?u)\b\w\w+\b")
"""As TfidfVectorizer has it."""


def _some(values: Sequence[str]) -> Sequence[str]:
    return values[:: max(len(values) // _SAMPLE, 1)]


def _known(texts: Sequence[str]) -> set[str]:
    """The different words."""
    return {word for text in texts for word in _WORD.findall(text.lower())}
