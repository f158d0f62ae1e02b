"""The feature pipeline: a ColumnTransformer from a query's columns to an estimator's input."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.training.options.request import Request
from sqlml.training.rows.training_columns import TrainingColumn

Categories = Mapping[str, Sequence[str]]

MAX_TERMS = 20_000
"""Maximum terms of a text column; the most frequent terms are kept."""

TOPICS = 50
"""Numbers per text, for estimators that cannot use thousands of columns."""


def are_texts(values: Sequence[str]) -> bool:
    """Return whether the values are texts of several words, counted as in TfidfVectorizer.

    A UUID or an e-mail address is a single word.

    >>> are_texts(["a fine day today", "it rains and rains"]), are_texts(["New York", "A G T"])
    (True, False)
    >>> are_texts(["ann.smith@example.org", "bob.miller@example.org"])
    False
    """
    texts = _sample_texts(values)
    word_count = sum(min(len(_WORD.findall(text)), len(text.split())) for text in texts)
    return bool(texts) and word_count >= 3 * len(texts) and len(_find_words(texts)) > 1


def make_vectorizer(values: Sequence[str], sparse: bool, seed: int) -> Any:
    """Return a text vectorizer: term weights if `sparse`, otherwise topics (LSA)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer(max_features=MAX_TERMS)
    if sparse:
        return vectorizer
    # Some words may only occur in rows that are held out.
    n_topics = max(min(TOPICS, len(_find_words(_sample_texts(values))) // 4), 1)
    return make_pipeline(vectorizer, TruncatedSVD(n_topics, random_state=seed))


_WORD = re.compile(r"(?u)\b\w\w+\b")
"""The token pattern of TfidfVectorizer."""


def _sample_texts(values: Sequence[str]) -> Sequence[str]:
    return values[:: max(len(values) // 1000, 1)]


def _find_words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text.lower())}


MAX_NATIVE_CATEGORIES: Mapping[str, int] = {
    **dict.fromkeys(("xgboost", "lightgbm"), 1000),
    **dict.fromkeys(("sklearn", "catboost"), 254),
}
"""Maps packages to the maximum number of categories per column that their trees support.

A column with more categories becomes label means. CatBoost would compute statistics instead, which
sqlml cannot import.
"""

MAX_ONE_HOT = 50
"""Maximum categories of a column that is one-hot encoded."""

FOLDS = 5
"""Number of folds. Each fold is encoded with the label means of the other folds."""

MISSING = "NULL"
"""Name of a missing category for CatBoost, which requires a name for each category."""


@dataclass(frozen=True, slots=True)
class FeatureGroups:
    """Feature names grouped by how they are encoded, each group in the order of the query.

    numbers: numeric columns. categories: categorical columns that the estimator supports natively,
    or that are one-hot encoded. target_encoded: categorical columns that become means of the label.
    texts: columns of texts with several words.
    """

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    target_encoded: tuple[str, ...]
    texts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All features in the order of the estimator's input."""
        return (*self.numbers, *self.categories, *self.target_encoded, *self.texts)


def group_features(
    features: Sequence[TrainingColumn], names: Categories, texts: Collection[str], request: Request
) -> FeatureGroups:
    number_columns = tuple(f.name for f in features if f.role == "number")
    categories = [f.name for f in features if f.role == "category"]
    text_columns = tuple(name for name in categories if name in texts)
    other_columns = [name for name in categories if name not in texts]
    max_categories = _get_max_categories(request)
    categorical = tuple(name for name in other_columns if len(names[name]) <= max_categories)
    target_encoded = tuple(name for name in other_columns if len(names[name]) > max_categories)
    return FeatureGroups(number_columns, categorical, target_encoded, text_columns)


def find_text_columns(
    features: Sequence[TrainingColumn],
    category_names: Categories,
    keys: Collection[str],
    request: Request,
) -> frozenset[str]:
    """Return the columns of texts with several words, if they are `keys` or have many values."""
    if request.trainer.features == "named":  # CatBoost reads texts itself.
        return frozenset()
    max_count = _get_max_categories(request)
    categories = {f.name: category_names[f.name] for f in features if f.role == "category"}
    return frozenset(
        name
        for name, values in categories.items()
        if (name in keys or len(values) > max_count) and are_texts(values)
    )


def learns_in_blocks(groups: FeatureGroups, category_names: Categories, request: Request) -> bool:
    """Return whether the features can be encoded without means, terms or counts of all rows."""
    merges_rare = request.trainer.features == "scaled" and not request.has_label
    has_rare = merges_rare and any(
        len(category_names[name]) >= MAX_ONE_HOT for name in groups.categories
    )
    drops_categories = request.encoding == "dummy" and groups.categories
    return not (groups.target_encoded or groups.texts or has_rare or drops_categories)


def _get_max_categories(request: Request) -> float:
    if not request.has_label:
        return float("inf")
    if request.encoding is not None:
        return 0 if request.encoding == "target" else float("inf")
    if request.trainer.features in ("ordinal", "named"):
        return MAX_NATIVE_CATEGORIES[request.trainer.package]
    return MAX_ONE_HOT


def make_transformer(groups: FeatureGroups, category_names: Categories, request: Request) -> Any:
    """Return an unfitted ColumnTransformer that encodes each of `groups` for the estimator."""
    from sklearn.compose import ColumnTransformer

    features_form = request.trainer.features
    steps: list[tuple[str, Any, list[str] | str]] = []
    if groups.numbers:
        number_transformer = _make_scaler(request) if features_form == "scaled" else "passthrough"
        steps.append(("number", number_transformer, list(groups.numbers)))
    if groups.categories:
        category_lists = [np.array(category_names[name], object) for name in groups.categories]
        encoder = _make_encoder(features_form, category_lists, request)
        steps.append(("category", encoder, list(groups.categories)))
    if groups.target_encoded:
        steps.append(("target", _make_target_encoder(request), list(groups.target_encoded)))
    is_linear = request.model_type in ("linear_reg", "logistic_reg")
    steps += [
        (f"text_{n}", make_vectorizer(category_names[name], is_linear, request.seed), name)
        for n, name in enumerate(groups.texts)
    ]
    transformer = ColumnTransformer(steps)
    return transformer.set_output(transform="pandas") if features_form == "named" else transformer


def _make_scaler(request: Request) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    imputer = SimpleImputer(add_indicator=True, keep_empty_features=True)
    return make_pipeline(imputer, StandardScaler()) if request.standardize else imputer


def _make_target_encoder(request: Request) -> Any:
    import sklearn
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.preprocessing import TargetEncoder

    is_classifier = request.task == "classify"
    target_type = "auto" if is_classifier else "continuous"
    if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9):
        return TargetEncoder(target_type=target_type, random_state=request.seed)
    folds_class = StratifiedKFold if is_classifier else KFold
    folds = folds_class(n_splits=FOLDS, shuffle=True, random_state=request.seed)
    return TargetEncoder(target_type=target_type, cv=folds)


def _make_encoder(features_form: str, categories: list[Any], request: Request) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    if features_form == "named":
        return SimpleImputer(strategy="constant", fill_value=MISSING)
    if features_form == "ordinal":
        return OrdinalEncoder(
            categories=categories,
            handle_unknown="use_encoded_value",
            unknown_value=np.nan,
            encoded_missing_value=np.nan,
        )
    # scikit-learn's trees do not support missing values in a sparse matrix.
    options: dict[str, Any] = {"sparse_output": features_form == "scaled"}
    if request.encoding == "dummy":
        options["drop"] = "first"
    if not request.has_label:
        options |= {"handle_unknown": "infrequent_if_exist", "max_categories": MAX_ONE_HOT}
    return OneHotEncoder(**{"handle_unknown": "ignore", **options})
