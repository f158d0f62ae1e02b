"""Models of the families whose features a cascade tells apart, and rows to fit them on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

WORDS = "ant bee cat dog eel fox gnu hen ibis jay kiwi lynx mole newt owl pig".split()


def rows(n: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A text, a category and three numbers, and which of three classes each row is of."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "t": [" ".join(random.choice(WORDS, 6)) for _ in range(n)],
            "c": random.choice(["p", "q", "r"], n),
            **{name: random.normal(size=n) for name in "xyz"},
        }
    )
    score = frame.x + frame.y + frame.t.str.contains("cat") - frame.c.eq("p")
    return frame, np.digitize(score, [-0.3, 0.6])


def features() -> ColumnTransformer:
    """Words and characters of the text, the category one-hot, scaled numbers."""
    return ColumnTransformer(
        [
            ("w", TfidfVectorizer(), "t"),
            ("ch", TfidfVectorizer(analyzer="char", ngram_range=(2, 3)), "t"),
            ("o", OneHotEncoder(), ["c"]),
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["x", "y", "z"]),
        ]
    )


NUMBERS = ["x", "y", "z"]
MODELS: Mapping[str, tuple[Any, list[str]]] = {
    "texts": (make_pipeline(features(), LogisticRegression(max_iter=500)), list("tcxyz")),
    "net": (make_pipeline(features(), MLPClassifier((8,), max_iter=20)), list("tcxyz")),
    "scaled": (make_pipeline(StandardScaler(), LogisticRegression()), NUMBERS),
    "components": (make_pipeline(StandardScaler(), PCA(2), LogisticRegression()), NUMBERS),
    "boosted": (xgboost.XGBClassifier(n_estimators=5, max_depth=3), NUMBERS),
    "stack": (
        StackingClassifier(
            [("rf", RandomForestClassifier(3, random_state=0)), ("knn", KNeighborsClassifier())]
        ),
        NUMBERS,
    ),
    "vote": (
        VotingClassifier(
            [("rf", RandomForestClassifier(3, random_state=0)), ("lr", LogisticRegression())],
            voting="soft",
        ),
        NUMBERS,
    ),
}


@cache
def fitted(name: str) -> Any:
    """One of the models, fitted on `rows()`."""
    model, columns = MODELS[name]
    frame, labels = rows()
    return model.fit(frame[columns], labels)


def arrays(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The rows of a frame as inputs of a Program."""
    return {
        str(name): column.to_numpy(object if column.dtype.kind in "OU" else np.float64)
        for name, column in frame.astype({n: object for n in frame if n in "tc"}).items()
    }
