"""Columns of lists, maps and pairs: MultiLabelBinarizer, FeatureHasher, and what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MultiLabelBinarizer, StandardScaler

from sqlml.types import Array
from tests.contract.estimators.case import Case

NAMES = ["dog", "cat", "", "Straße", "日本", 'a"b\\', "a=b", "\x00", "\u2028 x", "ice cream"]
NUMBERS: list[Any] = [1, 0, 1.5, -2.25, True, False, 1e-3, 2**60, np.float32(0.1), np.int8(7)]
BITS = frozenset({"transform"})


def column(rows: list[Any]) -> pd.Series[Any]:
    made = np.empty(len(rows), object)
    made[:] = rows
    return pd.Series(made, dtype=object)


def sizes(rows: int, rng: np.random.Generator) -> Array:
    drawn = rng.choice([0, 1, 2, 5, 12], rows)
    drawn[:1] = 12
    return np.asarray(drawn)


def drawn(rng: np.random.Generator, pool: list[Any], size: int) -> list[Any]:
    return [pool[k] for k in rng.integers(0, len(pool), size)]


def lists(rows: int, seed: int) -> pd.DataFrame:
    """Lists of strings, with repetitions, and a number beside them."""
    rng = np.random.default_rng(seed)
    made = [drawn(rng, NAMES, n) for n in sizes(rows, rng)]
    return pd.DataFrame({"items": column(made), "price": rng.normal(3, 2, rows)})


def sets(rows: int, seed: int) -> pd.DataFrame:
    """Sets, tuples and lists of strings; some are only met after the fit (seed 0)."""
    rng = np.random.default_rng(seed)
    pool = NAMES + (["new", "NEW"] if seed else [])
    kinds = [set, tuple, list, frozenset, np.array]
    made = [kinds[i % 5](drawn(rng, pool, n)) for i, n in enumerate(sizes(rows, rng))]
    return pd.DataFrame({"labels": column(made)})


def codes(rows: int, seed: int) -> pd.DataFrame:
    """Lists of whole numbers, as some of the equal numbers of other types."""
    rng = np.random.default_rng(seed)
    pool: list[Any] = [-3, 0, 1, 7, 2**53 + 1, 2**62]
    other: list[Any] = [float(2**53), -3.0, True, 2.5, np.float32(7), 2**80, "7", None, np.nan]
    pool = pool + other if seed else pool
    made = [drawn(rng, pool, n) for n in sizes(rows, rng)]
    return pd.DataFrame({"labels": column(made)})


def maps(rows: int, seed: int) -> pd.DataFrame:
    """Dicts of names to numbers and strings."""
    table = pairs(rows, seed)
    return table.assign(items=column([dict(row) for row in table["items"]]))


def pairs(rows: int, seed: int) -> pd.DataFrame:
    """Lists of names with numbers and strings; a name may come twice."""
    rng = np.random.default_rng(seed)
    made = [
        list(zip(drawn(rng, NAMES, n), drawn(rng, NUMBERS + NAMES, n), strict=True))
        for n in sizes(rows, rng)
    ]
    return pd.DataFrame({"items": column(made), "price": rng.normal(3, 2, rows)})


def dogs(table: pd.DataFrame, seed: int) -> Array:
    """Two classes that one name and the price tell apart."""
    score = np.array([float("dog" in dict(row)) for row in table["items"]]) * 3 + table.price
    return np.asarray(score > np.median(score), np.int64)


def size(table: pd.DataFrame, seed: int) -> Array:
    return np.array([len(row) + 0.1 * seed for row in table["items"]], np.float64)


def hashed(*steps: Any, **options: Any) -> ColumnTransformer:
    """FeatureHasher on the column of items, and the price."""
    hasher = FeatureHasher(**{"n_features": 16, **options})
    part = make_pipeline(hasher, *steps) if steps else hasher
    return ColumnTransformer([("i", part, "items"), ("p", StandardScaler(), ["price"])])


def binarizer(name: str, data: Any, **options: Any) -> Case:
    made = f"MultiLabelBinarizer {name}".strip()
    return Case(made, lambda: MultiLabelBinarizer(**options), data=data, bits=BITS, column="labels")


CASES: tuple[Case, ...] = (
    binarizer("", sets),
    binarizer("numbers", codes),
    binarizer("sparse", sets, sparse_output=True),
    binarizer("given", sets, classes=["zebra", *NAMES[::-2]]),
    binarizer("mixed", codes, classes=[7, "7", 2.5, None, 0, 1e300, 2.0**53]),
    Case("FeatureHasher dict", lambda: hashed(), data=maps),
    Case("FeatureHasher pair", lambda: hashed(input_type="pair"), data=pairs),
    Case("FeatureHasher string", lambda: hashed(input_type="string"), data=lists),
    Case("FeatureHasher narrow", lambda: hashed(n_features=1, dtype=np.float32), data=maps),
    Case("FeatureHasher unsigned", lambda: hashed(n_features=7, alternate_sign=False), data=maps),
    Case("FeatureHasher int", lambda: hashed(input_type="string", dtype=np.int32), data=lists),
    Case(
        "FeatureHasher alone",
        lambda: FeatureHasher(2**11),
        data=maps,
        column="items",
        bits=BITS,
    ),
    Case(
        "FeatureHasher tf-idf",
        lambda: hashed(TfidfTransformer(), input_type="string", alternate_sign=False),
        data=lists,
    ),
    Case(
        "FeatureHasher LogisticRegression",
        lambda: make_pipeline(hashed(n_features=2**14), LogisticRegression(max_iter=50)),
        dogs,
        maps,
    ),
    Case(
        "FeatureHasher RandomForestClassifier",
        lambda: make_pipeline(
            hashed(MaxAbsScaler(), input_type="pair"), RandomForestClassifier(5, random_state=0)
        ),
        dogs,
        pairs,
    ),
    Case(
        "FeatureHasher Ridge",
        lambda: make_pipeline(hashed(input_type="string"), Ridge()),
        size,
        lists,
    ),
)
