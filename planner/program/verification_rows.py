"""Sample rows, derived from a Program, on which a model is compared with its source library.

The values are thresholds of trees and their neighbours, known categories, small integers, and
numbers of several magnitudes. Missing values and unknown categories are in separate frames, since
the source library may reject them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlml.ir.program import Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.passes import run
from sqlml.types import DATETIME, NESTED, Array, Feature

if TYPE_CHECKING:
    import pandas as pd

ROWS = 128
_MAX_THRESHOLDS = 64

_MICROSECONDS = (-(10**15), 2 * 10**15)
"""The range of sample dates in microseconds since 1970, from 1938 to 2033."""

_UNSEEN = "\N{SNOWMAN} never seen"


def make_sample_frames(program: Program, features: Sequence[Feature]) -> Iterator[pd.DataFrame]:
    """Yield data frames of `ROWS` rows: first plain rows, then rows of the numbers 1, 2 and 3.

    The next frames have unknown categories, and missing values in the columns that the model reads,
    since a library computes 0 * NaN for a column without weight. If an ONNX graph reads columns as
    booleans, the last frame has the numbers 0 and 1.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    known_values = _collect_known_values(program)
    plain = pd.DataFrame({f.name: _make_column(f, known_values, rng) for f in features})
    yield plain.copy()
    string_features = [f.name for f in features if f.kind == "string"]
    numeric_features = [f.name for f in features if f.kind not in ("string", DATETIME)]
    yield plain.assign(**{name: rng.integers(1, 4, ROWS) * 1.0 for name in numeric_features})
    read_names = run(program).inputs
    nulls = {
        f.name: None if f.kind == "string" else np.nan for f in features if f.name in read_names
    }
    columns = {name: plain[name].mask(rng.random(ROWS) < 0.2, v) for name, v in nulls.items()}
    yield plain.assign(**columns)
    if string_features:
        unseen = {n: np.where(rng.random(ROWS) < 0.2, _UNSEEN, plain[n]) for n in string_features}
        yield plain.assign(**unseen)
    if any(node.op == "cast" and node.type.dtype == "bool" for node in program.nodes):
        yield plain.assign(**{name: rng.integers(0, 2, ROWS) * 1.0 for name in numeric_features})


def can_make_samples(features: Sequence[Feature]) -> bool:
    """Return whether sample rows can be made. They cannot if a feature is a list or a map."""
    return not any(f.kind in NESTED for f in features)


class _KnownValues(NamedTuple):
    """The thresholds and categories with which a Program compares one input column."""

    thresholds: tuple[Array, ...] = ()
    categories: tuple[Any, ...] = ()


def _make_column(
    feature: Feature, values_by_column: Mapping[str, _KnownValues], rng: np.random.Generator
) -> Any:
    known_values = values_by_column.get(feature.name, _KnownValues())
    if feature.kind == "string":
        return rng.choice(np.array(known_values.categories or ("a", "b"), object), ROWS)
    if feature.kind == DATETIME:
        microseconds = rng.integers(*_MICROSECONDS, ROWS)
        if known_values.categories:
            microseconds = rng.choice(np.array(known_values.categories, np.int64), ROWS)
        return microseconds.astype("datetime64[us]")
    if known_values.categories:
        return rng.choice(np.array(known_values.categories, np.float64), ROWS)
    near_zero, shifted = rng.normal(size=ROWS), rng.normal(size=ROWS) * 30 + 40
    numbers = np.concatenate([near_zero, shifted, rng.integers(0, 6, ROWS).astype(np.float64)])
    if known_values.thresholds:
        thresholds = np.unique(np.concatenate(known_values.thresholds))
        sampled = rng.choice(thresholds, min(thresholds.size, _MAX_THRESHOLDS), replace=False)
        rounded = sampled.astype(np.float32)
        neighbours = [np.nextafter(rounded, np.float32(side)) for side in (-np.inf, np.inf)]
        near_thresholds = np.concatenate([sampled, rounded, *neighbours]).astype(np.float64)
        between_thresholds = rng.uniform(thresholds[0], thresholds[-1], ROWS)
        numbers = np.concatenate([near_thresholds, between_thresholds, numbers[: ROWS // 4]])
    return rng.choice(numbers[np.isfinite(numbers)], ROWS)


def _collect_known_values(program: Program) -> dict[str, _KnownValues]:
    """Collect the thresholds and categories that nodes compare with each unchanged input column."""
    values_by_column: dict[str, _KnownValues] = {}
    for traced_program in (program, run(program)):
        columns_by_node: list[list[str | None]] = []
        for node in traced_program.nodes:
            input_columns = [columns_by_node[i] for i in node.inputs]
            columns_by_node.append(_trace_columns(node, input_columns))
            for column, name in enumerate(input_columns[0] if input_columns else ()):
                if name is not None:
                    known_values = values_by_column.get(name, _KnownValues())
                    values_by_column[name] = _KnownValues(
                        known_values.thresholds + _find_thresholds(node, column),
                        known_values.categories + _find_categories(node),
                    )
    return values_by_column


def _trace_columns(node: Node, input_columns: list[list[str | None]]) -> list[str | None]:
    """Return the name of the input that each column of `node` passes on, or None."""
    if not node.type.rowwise:
        return []
    if node.op == "input":
        return [node.attrs["name"]] * node.type.width
    if node.op == "concat":
        names = [name for columns in input_columns for name in columns]
    elif node.op == "select" and input_columns[0]:
        names = [input_columns[0][i] for i in node.attrs["indices"]]
    else:
        names = input_columns[0] if node.op in _COLUMNWISE_OPS and input_columns else []
    return names if len(names) == node.type.width else [None] * node.type.width


def _find_thresholds(node: Node, column: int) -> tuple[Array, ...]:
    if node.op != "tree_ensemble":
        return ()
    ensemble = Ensemble.of(node.attrs)
    thresholds = ensemble.threshold[ensemble.feature == column].astype(np.float64)
    is_finite = np.isfinite(thresholds)
    return (thresholds[is_finite],) if is_finite.any() else ()


def _find_categories(node: Node) -> tuple[Any, ...]:
    categories = node.attrs.get("categories")
    categories = categories.tolist() if isinstance(categories, np.ndarray) else []
    return tuple(v for v in categories if isinstance(v, str) or np.isfinite(v))


_COLUMNWISE_OPS = ("cast", "require_finite", "impute", "reshape")
"""Operators whose columns correspond to the columns of their input."""
