"""Data that separates a right scorer from a nearly right one, shared by all tests.

Random floats are a weak oracle: they never meet a threshold, a NULL or an unseen category. The
builders here make the rows that do; nothing in this file knows a library or computes an answer.

* `mixed_frame`: a pandas frame of every column type that a table has, with NULLs.
* `threshold_rows`: rows that lie on the thresholds of a tree ensemble and next to them.
* `ensembles`: the tree ensembles inside a Program, to feed `threshold_rows`.
* `special_rows`: NaN, infinities, zeros of both signs, subnormals and the largest floats.
* `batch`: a frame or matrix as the inputs of a Program, the way a SQL table arrives.
* `classes`: labels for a classifier, as strings, integers, booleans or floats.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.scorer.python_rows import encode_json
from sqlml.types import NESTED, Array

CITIES = ("Bern", "Oslo", "Lima", "", "Zürich", "O'Hare", "日本")
PLANS = ("free", "basic", "pro")


def mixed_frame(rows: int, seed: int = 0, nulls: float = 0.1, strings: str = "str") -> pd.DataFrame:
    """A table of `rows` rows: numbers, strings and booleans, with `nulls` of them missing.

    Columns: age, income (float64, NaN), ratio (float32), visits (int64), level (int8), active
    (bool), constant (float64), city, plan (strings; None for NULL), and zip (int64, few values).

    Args:
        strings: dtype of the string columns, "str" (pandas 3's own: NaN for NULL) or "object"
            (None for NULL).
    """
    rng = np.random.default_rng(seed)

    def gone() -> Array:
        return rng.random(rows) < nulls

    def text(values: Sequence[str], missing: Array) -> pd.Series[Any]:
        drawn = rng.choice(np.array(values, object), rows)
        return pd.Series(np.where(missing, None, drawn), dtype=strings)

    return pd.DataFrame(
        {
            "age": np.where(gone(), np.nan, rng.integers(18, 90, rows).astype(float)),
            "income": np.where(gone(), np.nan, rng.lognormal(10, 1, rows)),
            "ratio": rng.random(rows, np.float32),
            "visits": rng.integers(-3, 20, rows),
            "level": rng.integers(0, 4, rows).astype(np.int8),
            "active": rng.random(rows) < 0.5,
            "constant": np.full(rows, 7.25),
            "city": text(CITIES, gone()),
            "plan": text(PLANS, gone()),
            "zip": rng.choice(np.array([3000, 8001, 8002, 9000]), rows),
        }
    )


def classes(kind: Literal["string", "int64", "bool", "float64"], codes: Array) -> Array:
    """Labels of `kind` for class numbers `codes` (n,); booleans have two classes."""
    if kind == "string":
        return np.array(["no", "yes", "maybe", "Zürich", ""], object)[codes]
    if kind == "bool":
        return np.asarray(np.asarray(codes) % 2 == 1)
    if kind == "float64":
        return np.asarray(codes) * 2.0 - 1.0
    return np.asarray(codes) * 10 - 7


def ensembles(program: Program) -> list[Ensemble]:
    """The tree ensembles of `program`, in the order of its nodes."""
    return [Ensemble.of(node.attrs) for node in program.nodes if node.op == "tree_ensemble"]


def neighbours(values: Array) -> Array:
    """Each value with the floats just below and above it, in float64 and in float32; float64."""
    wide = np.asarray(values, np.float64).ravel()
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
        near = [
            wide,
            np.nextafter(wide, -np.inf),
            np.nextafter(wide, np.inf),
            narrow.astype(np.float64),
            np.nextafter(narrow, np.float32(-np.inf)).astype(np.float64),
            np.nextafter(narrow, np.float32(np.inf)).astype(np.float64),
        ]
    return np.unique(np.concatenate(near))


def threshold_rows(
    trees: Ensemble | Mapping[int, Array], like: Array, limit: int = 2000, seed: int = 0
) -> Array:
    """Rows (m <= limit, width) float64 on the thresholds of `trees` and next to them.

    Each row is one of `like` (n, width) with one feature set to a threshold of that feature, to
    one of its float64 or float32 neighbours, or to NaN where `like` has NaN in that feature too.

    Args:
        trees: an Ensemble, or feature number -> thresholds for a library's own numbers.
        like: rows whose other features are kept, so that every part of a tree is reached.
    """
    rng = np.random.default_rng(seed)
    like = np.asarray(like, np.float64)
    if isinstance(trees, Ensemble):
        found = {int(f): trees.threshold[trees.feature == f] for f in np.unique(trees.feature)}
    else:
        found = {int(f): np.asarray(t) for f, t in trees.items()}
    pairs = [(f, v) for f, t in found.items() for v in neighbours(t[np.isfinite(t)])]
    pairs += [(f, np.nan) for f in found if np.isnan(like[:, f]).any()]
    if len(pairs) > limit:
        pairs = [pairs[i] for i in np.sort(rng.choice(len(pairs), limit, replace=False))]
    rows = like[rng.integers(0, len(like), len(pairs))].copy()
    for row, (feature, value) in zip(rows, pairs, strict=True):
        row[feature] = value
    finite = np.isfinite(rows) | np.isnan(rows)
    return rows[finite.all(axis=1)]


def special_rows(
    width: int, *, nan: bool = True, infinite: bool = True, largest: float = 1.7e308
) -> Array:
    """Rows (m, width) float64 where one feature after the other takes each special value."""
    values = [0.0, -0.0, 5e-324, 1e-35, -1e-35, 1e-45, largest, -largest]
    values += [np.nan] if nan else []
    values += [np.inf, -np.inf] if infinite else []
    rows = np.ones((len(values) * width, width))
    for feature in range(width):
        rows[feature * len(values) : (feature + 1) * len(values), feature] = values
    return rows


def batch(program: Program, data: Any, names: Sequence[str] | None = None) -> dict[str, Array]:
    """The inputs of `program` out of `data`, as a SQL table hands them over.

    Numbers arrive in their own dtype, or as float64 with NaN for NULL; strings as objects with
    None for NULL.

    Args:
        data: a pandas frame (columns by name, in any order) or an (n, width) matrix.
        names: names of the matrix' columns; by default a feature reads the column of its number
            (x0, f0, Column_0, ...).
    """
    if isinstance(data, pd.DataFrame):
        columns: dict[str, Any] = {str(c): data[c] for c in data.columns}
    else:
        matrix = np.asarray(data)
        places = {name: i for i, name in enumerate(names or ())}
        for f in program.features if names is None else ():
            places[f.name] = int(re.findall(r"\d+$", f.name)[0])
        columns = {n: pd.Series(matrix[:, i]) for n, i in places.items()}
    out: dict[str, Array] = {}
    for feature in program.features:
        series = columns[feature.name]
        if feature.kind in NESTED:
            texts = encode_json(series, feature.kind, feature.name)
            rows = [None if gone else texts.text(i) for i, gone in enumerate(texts.missing)]
            out[feature.name] = np.array(rows, object)
        elif feature.kind == "string":
            array = series.astype(object).to_numpy(copy=True)
            array[pd.isna(array)] = None
            out[feature.name] = array
        elif series.dtype.kind in "biuf" and isinstance(series.dtype, np.dtype):
            out[feature.name] = series.to_numpy()
        else:
            out[feature.name] = pd.to_numeric(series).to_numpy(np.float64, na_value=np.nan)
    return out
