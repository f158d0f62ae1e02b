"""`samples`: rows to compare a model on, made of what its Program knows.

Thresholds of trees and their neighbours, known categories, small whole numbers, numbers of several
sizes; then the same with values missing, and with categories that the model has never seen. A
source may refuse the latter two, so they are frames of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.order import run
from sqlml.types import NESTED, Array, Feature

ROWS = 128

_THRESHOLDS = 64
"""Of one column, at most."""

_UNSEEN = "\N{SNOWMAN} never seen"


def samples(program: Program, features: Sequence[Feature], seed: int = 0) -> Iterator[pd.DataFrame]:
    """Frames of `ROWS` rows with the columns `features`: plain rows, missing values, unseen ones.

    Args:
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    thresholds = _thresholds(program)
    plain = {f.name: _column(f, program, thresholds, rng) for f in features}
    yield pd.DataFrame(plain)
    gone = {}
    for f in features:
        column = pd.Series(plain[f.name])
        gone[f.name] = column.mask(rng.random(ROWS) < 0.2, np.nan if f.kind == "number" else None)
    yield pd.DataFrame(gone)
    if any(f.kind == "string" for f in features):
        unseen = {
            f.name: np.where(rng.random(ROWS) < 0.2, _UNSEEN, plain[f.name])
            if f.kind == "string"
            else plain[f.name]
            for f in features
        }
        yield pd.DataFrame(unseen)


def samples_suit(features: Sequence[Feature]) -> bool:
    """Whether rows can be made: of lists and maps only their texts are known."""
    return not any(f.kind in NESTED for f in features)


def _column(
    feature: Feature, program: Program, thresholds: dict[str, Array], rng: np.random.Generator
) -> Any:
    if feature.kind == "string":
        known = _categories(program, feature.name)
        return rng.choice(np.array(known or ["a", "b"], object), ROWS)
    numbers = np.concatenate(
        [
            rng.normal(size=ROWS),
            rng.normal(size=ROWS) * 30 + 40,
            rng.integers(0, 6, ROWS).astype(np.float64),
        ]
    )
    own = thresholds.get(feature.name)
    if own is not None:
        picked = rng.choice(own, min(own.size, _THRESHOLDS), replace=False)
        narrow = picked.astype(np.float32)
        beside = [np.nextafter(narrow, np.float32(side)) for side in (-np.inf, np.inf)]
        near = np.concatenate([picked, narrow, *beside]).astype(np.float64)
        spread = rng.uniform(own.min(), own.max(), ROWS)
        numbers = np.concatenate([near, spread, numbers[: ROWS // 4]])
    return rng.choice(numbers[np.isfinite(numbers)], ROWS)


def _categories(program: Program, name: str) -> list[str]:
    """The categories that the model knows of a column of strings."""
    found: list[str] = []
    for node in program.nodes:
        if node.inputs[:1] == (program.inputs.get(name),):
            for value in node.attrs.values():
                if isinstance(value, np.ndarray) and value.dtype == object:
                    found += [v for v in value.tolist() if isinstance(v, str)]
    return list(dict.fromkeys(found))


def _thresholds(program: Program) -> dict[str, Array]:
    """Column -> the thresholds of the trees that test it, as the values of the column itself."""
    ready = run(program)
    names: list[list[str | None]] = []
    found: dict[str, list[Array]] = {}
    for node in ready.nodes:
        read = [names[i] for i in node.inputs]
        if node.op == "input":
            names.append([node.attrs["name"]])
        elif node.op == "concat":
            names.append([name for part in read for name in part])
        elif node.op == "select":
            names.append([read[0][i] for i in node.attrs["indices"]])
        elif node.op in _SAME:
            names.append(read[0])
        else:
            names.append([None] * node.type.width)
        if node.op == "tree_ensemble":
            e = Ensemble.of(node.attrs)
            for column, name in enumerate(read[0]):
                values = e.threshold[e.feature == column].astype(np.float64)
                values = values[np.isfinite(values)]
                if name is not None and values.size:
                    found.setdefault(name, []).append(values)
    return {name: np.unique(np.concatenate(values)) for name, values in found.items()}


_SAME = ("cast", "require_finite", "impute", "reshape")
"""Operators whose columns are those of their input."""
