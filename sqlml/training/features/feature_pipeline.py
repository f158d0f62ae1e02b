"""`feature_transformer`: how the columns of a query become what an estimator takes.

It is an ordinary ColumnTransformer: EXPLAIN MODEL prints it, and `con.estimator('m')` returns it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.training.features.columns import TrainingColumn
from sqlml.training.options.request import Request

# `are_texts`: whether the values of a column are sentences, and not names.


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


MOST_NATIVE: Mapping[str, int] = MappingProxyType(
    {"xgboost": 1000, "lightgbm": 1000, "sklearn": 254, "catboost": 254}
)
"""Categories of a column that a library's trees take as they are; columns with more become means of
the label. scikit-learn's histograms have no more bins; CatBoost would make statistics of its own of
more, which sqlml does not import."""

MOST_ONE_HOT = 50
"""Categories of a column that become columns of 0 and 1."""

FOLDS = 5
"""Parts of the rows, each of which gets the means of the label that the others have."""

MISSING = "NULL"
"""The name of a missing category for CatBoost, whose categories are all names."""


@dataclass(frozen=True, slots=True)
class FeatureGroups:
    """The features by what is done to them, each group in the order of the query.

    numbers: numbers. few: categories that the estimator takes, or that become columns of 0 and 1.
    many: categories that become means of the label. texts: columns of several words.
    """

    numbers: tuple[str, ...]
    few: tuple[str, ...]
    many: tuple[str, ...]
    texts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All features in the order in which the estimator gets them."""
        return (*self.numbers, *self.few, *self.many, *self.texts)


def feature_groups(
    features: Sequence[TrainingColumn],
    names: Mapping[str, Sequence[str]],
    texts: Collection[str],
    request: Request,
) -> FeatureGroups:
    """Which features are treated alike.

    Args:
        features: that are learned from. names: of the categories of each. texts: names of features.
    """
    numbers = tuple(f.name for f in features if f.role == "number")
    categories = [f.name for f in features if f.role == "category"]
    most = _most(request)
    few = tuple(name for name in categories if len(names[name]) <= most and name not in texts)
    many = tuple(name for name in categories if name not in few and name not in texts)
    return FeatureGroups(numbers, few, many, tuple(n for n in categories if n in texts))


def text_columns(
    features: Sequence[TrainingColumn],
    names: Mapping[str, Sequence[str]],
    keys: Collection[str],
    request: Request,
) -> frozenset[str]:
    """The names of those features that are texts: nearly all different, or too many to be
    categories, and of several words.

    Args:
        keys: names of features that are nearly all different.
    """
    most = _most(request)
    return frozenset(
        f.name
        for f in features
        if f.role == "category"
        and request.trainer.features != "named"  # CatBoost would read them itself
        and (f.name in keys or len(names[f.name]) > most)
        and are_texts(names[f.name])
    )


def learns_in_blocks(
    groups: FeatureGroups, names: Mapping[str, Sequence[str]], request: Request
) -> bool:
    """Whether the features can be made some rows at a time: not means of the label, weights of
    words, or the most frequent of many categories."""
    rare = request.trainer.features == "scaled" and not request.has_label
    wide = rare and any(len(names[name]) >= MOST_ONE_HOT for name in groups.few)
    return not (groups.many or groups.texts or wide)


def _most(request: Request) -> float:
    """How many categories a column may have that does not become means of the label."""
    if not request.has_label:
        return float("inf")
    if request.encoding is not None:
        return 0 if request.encoding == "target" else float("inf")
    if request.trainer.features in ("ordinal", "named"):
        return MOST_NATIVE[request.trainer.package]
    return MOST_ONE_HOT


def feature_transformer(
    groups: FeatureGroups, names: Mapping[str, Sequence[str]], request: Request
) -> Any:
    """A ColumnTransformer that is not fitted."""
    from sklearn.compose import ColumnTransformer

    style = request.trainer.features
    steps: list[tuple[str, Any, list[str] | str]] = []
    if groups.numbers:
        numbers = _scaled(request) if style == "scaled" else "passthrough"
        steps.append(("number", numbers, list(groups.numbers)))
    if groups.few:
        known = [np.array(names[name], object) for name in groups.few]
        steps.append(("category", _encoder(style, known, request), list(groups.few)))
    if groups.many:
        steps.append(("target", _means_of_label(request), list(groups.many)))
    linear = request.model_type in ("linear_reg", "logistic_reg")
    steps += [
        (f"text_{n}", vectorizer(names[name], linear, request.seed), name)
        for n, name in enumerate(groups.texts)
    ]
    made = ColumnTransformer(steps)
    return made.set_output(transform="pandas") if style == "named" else made


def _scaled(request: Request) -> Any:
    """Means for missing numbers, and columns that say where; then scaled."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(add_indicator=True, keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler()) if request.standardize else imputer


def _means_of_label(request: Request) -> Any:
    """A TargetEncoder, whose training rows get the means of other folds."""
    import sklearn
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.preprocessing import TargetEncoder

    classes = request.task == "classify"
    kind = "auto" if classes else "continuous"
    if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
        return TargetEncoder(target_type=kind, random_state=request.seed)
    folds = (StratifiedKFold if classes else KFold)(
        n_splits=FOLDS, shuffle=True, random_state=request.seed
    )
    return TargetEncoder(target_type=kind, cv=folds)


def _encoder(style: str, known: list[Any], request: Request) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    if style == "named":
        return SimpleImputer(strategy="constant", fill_value=MISSING)
    if style == "ordinal":
        return OrdinalEncoder(
            categories=known,
            handle_unknown="use_encoded_value",
            unknown_value=np.nan,
            encoded_missing_value=np.nan,
        )
    # trees of scikit-learn take no gaps from a sparse matrix
    options = {"sparse_output": style == "scaled"}
    if request.has_label:
        return OneHotEncoder(handle_unknown="ignore", **options)
    return OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_ONE_HOT, **options
    )
