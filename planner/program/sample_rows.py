"""`samples`: rows to compare a model on, made of what its Program knows.

Thresholds of trees and their neighbours, known categories, small integers, numbers of several
sizes; then the same with values missing, and with categories that the model has never seen. A
source may refuse some of them, so they are frames of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.order import run
from sqlml.types import DATETIME, NESTED, Array, Feature

if TYPE_CHECKING:
    import pandas as pd

ROWS = 128

_THRESHOLDS = 64
"""Of one column, at most."""

_MICROSECONDS = (-(10**15), 2 * 10**15)
"""Dates and timestamps lie between these, from 1938 to 2033."""

_UNSEEN = "\N{SNOWMAN} never seen"


def samples(program: Program, features: Sequence[Feature]) -> Iterator[pd.DataFrame]:
    """Frames of `ROWS` rows with the columns `features`.

    Plain rows; tame ones, whose numbers are 1, 2 and 3; missing values; unseen categories; and
    zeros and ones, where a graph of ONNX reads columns as booleans.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    known = _known(program)
    texts = {f.name for f in features if f.kind == "string"}
    plain = {f.name: _column(f, known, rng) for f in features}
    yield pd.DataFrame(plain)
    numbers = {f.name for f in features if f.kind not in ("string", DATETIME)}
    small = {n: rng.integers(1, 4, ROWS) * 1.0 if n in numbers else c for n, c in plain.items()}
    yield pd.DataFrame(small)
    gone = {}
    for name, column in plain.items():
        nothing = None if name in texts else np.nan
        gone[name] = pd.Series(column).mask(rng.random(ROWS) < 0.2, nothing)
    yield pd.DataFrame(gone)
    if texts:
        others = {n: np.where(rng.random(ROWS) < 0.2, _UNSEEN, plain[n]) for n in texts}
        yield pd.DataFrame(plain | others)[list(plain)]
    if any(node.op == "cast" and node.type.dtype == "bool" for node in program.nodes):
        bits = {n: rng.integers(0, 2, ROWS) * 1.0 if n in numbers else c for n, c in plain.items()}
        yield pd.DataFrame(bits)


def samples_suit(features: Sequence[Feature]) -> bool:
    """Whether rows can be made: of lists and maps only their texts are known."""
    return not any(f.kind in NESTED for f in features)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a Program knows of a column: thresholds of trees, and categories."""

    thresholds: tuple[Array, ...] = ()
    categories: tuple[Any, ...] = ()


def _column(feature: Feature, known: Mapping[str, _Known], rng: np.random.Generator) -> Any:
    own = known.get(feature.name, _Known())
    if feature.kind == "string":
        return rng.choice(np.array(own.categories or ("a", "b"), object), ROWS)
    if feature.kind == DATETIME:
        return rng.integers(*_MICROSECONDS, ROWS).astype("datetime64[us]")
    if own.categories:
        return rng.choice(np.array(own.categories, np.float64), ROWS)
    numbers = np.concatenate(
        [
            rng.normal(size=ROWS),
            rng.normal(size=ROWS) * 30 + 40,
            rng.integers(0, 6, ROWS).astype(np.float64),
        ]
    )
    if own.thresholds:
        all_of_them = np.unique(np.concatenate(own.thresholds))
        picked = rng.choice(all_of_them, min(all_of_them.size, _THRESHOLDS), replace=False)
        narrow = picked.astype(np.float32)
        beside = [np.nextafter(narrow, np.float32(side)) for side in (-np.inf, np.inf)]
        near = np.concatenate([picked, narrow, *beside]).astype(np.float64)
        spread = rng.uniform(all_of_them[0], all_of_them[-1], ROWS)
        numbers = np.concatenate([near, spread, numbers[: ROWS // 4]])
    return rng.choice(numbers[np.isfinite(numbers)], ROWS)


def _known(program: Program) -> dict[str, _Known]:
    """Column -> what the steps that read the column itself reveal about it."""
    found: dict[str, _Known] = {}
    for traced in (program, run(program)):
        names: list[list[str | None]] = []
        for node in traced.nodes:
            read = [names[i] for i in node.inputs]
            names.append(_names(node, read))
            for column, name in enumerate(read[0] if read else ()):
                if name is not None:
                    had = found.get(name, _Known())
                    found[name] = replace(
                        had,
                        thresholds=had.thresholds + _thresholds(node, column),
                        categories=had.categories + _categories(node),
                    )
    return found


def _names(node: Node, read: list[list[str | None]]) -> list[str | None]:
    """The columns of the table that a node's columns are."""
    if not node.type.rowwise:
        return []
    if node.op == "input":
        return [node.attrs["name"]] * node.type.width
    if node.op == "concat":
        made = [name for part in read for name in part]
    elif node.op == "select" and read[0]:
        made = [read[0][i] for i in node.attrs["indices"]]
    else:
        made = read[0] if node.op in _SAME and read else []
    return made if len(made) == node.type.width else [None] * node.type.width


def _thresholds(node: Node, column: int) -> tuple[Array, ...]:
    if node.op != "tree_ensemble":
        return ()
    e = Ensemble.of(node.attrs)
    values = e.threshold[e.feature == column].astype(np.float64)
    values = values[np.isfinite(values)]
    return (values,) if values.size else ()


def _categories(node: Node) -> tuple[Any, ...]:
    """The categories of a step that encodes one column."""
    values = node.attrs.get("categories")
    if not isinstance(values, np.ndarray):
        return ()
    return tuple(v for v in values.tolist() if isinstance(v, str) or np.isfinite(v))


_SAME = ("cast", "require_finite", "impute", "reshape")
"""Operators whose columns are those of their input."""
