"""`compare`: how far a model's outputs are from its source's, and whether that is too far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.ir.program import Program
from sqlml.types import Array

if TYPE_CHECKING:
    from sqlml.ir.program import Program


# `Asked`: what a library is asked of a model.
#
# A separate process imports this module: it must stay light.


@dataclass(frozen=True, slots=True)
class Asked:
    """What to ask of a model: the outputs by name, whether there are classes, and which columns are
    texts; `numbers` says that all columns are numbers, and `labels` are the classes of the first
    target."""

    outputs: tuple[str, ...]
    classes: bool
    texts: tuple[str, ...]
    numbers: bool
    labels: tuple[Any, ...] = ()

    @classmethod
    def of(cls, program: Program) -> Asked:
        """What a Program has."""
        kinds = {f.name: f.kind for f in program.features}
        return cls(
            tuple(program.outputs),
            bool(program.labels),
            tuple(name for name, kind in kinds.items() if kind == "string"),
            all(kind == "number" for kind in kinds.values()),
            program.labels[0].values if program.labels else (),
        )


BOUND = 1e-6
"""Largest relative difference of a number: the contract of docs/exactness.md."""

_BOUNDS = MappingProxyType({"torch": 2e-5, "onnx": 2e-5})


def bound_of(family: str | None) -> float:
    """What the numbers of a model of this package may differ by."""
    return _BOUNDS.get(family or "", BOUND)


NEAR_ZERO = 1e-3
"""Numbers smaller than this share of the largest are measured by that; those of a source that
answers in float32, whose sums keep seven digits of the terms, by the largest itself."""

UNSURE = 0.01
"""The share of labels that may differ where no score tells how near a tie they are: of clusters
and neighbours at equal distances the library itself decides otherwise from batch to batch."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One output of `rows` rows: the largest difference, absolute and of the numbers' own size;
    the labels that differ, and how many of those are not ties; and what is allowed."""

    output: str
    rows: int
    absolute: float
    relative: float
    flips: int
    surely: int
    bound: float

    @property
    def agrees(self) -> bool:
        """Whether it is within the contract."""
        return self.relative <= self.bound and not self.surely


def compare(
    program: Program,
    ours: Mapping[str, Array],
    theirs: Mapping[str, Array],
    bound: float,
) -> tuple[Difference, ...]:
    """The differences of the outputs that both have: numbers (n, k), and labels as they are."""
    return tuple(
        _labels(name, ours, theirs, bound)
        if name == "label" and program.labels
        else _numbers(name, ours[name], theirs[name], bound)
        for name in ours
        if name in theirs
    )


def _numbers(name: str, ours: Array, theirs: Array, bound: float) -> Difference:
    if ours.shape != theirs.shape:
        return Difference(name, len(theirs), np.inf, np.inf, 0, 0, bound)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        apart[np.isnan(apart)] = np.inf
        finite = np.abs(b[np.isfinite(b)])
        share = 1.0 if theirs.dtype == np.float32 else NEAR_ZERO
        size = np.maximum(np.abs(b), share * (finite.max() if finite.size else 0.0))
        relative = np.where(apart == 0.0, 0.0, apart / size)
    relative[np.isnan(relative)] = np.inf
    absolute, largest = (float(x.max(initial=0.0)) for x in (apart, relative))
    return Difference(name, len(theirs), absolute, largest, 0, 0, bound)


def _labels(
    name: str, ours: Mapping[str, Array], theirs: Mapping[str, Array], bound: float
) -> Difference:
    a, b = ours[name], theirs[name]
    if a.shape != b.shape:
        return Difference(name, len(b), 0.0, 0.0, len(b), len(b), bound)
    other = (a.astype(object) != b.astype(object)).any(axis=tuple(range(1, a.ndim)))
    flips = int(other.sum())
    near = _near_ties(theirs, bound)
    if near is None:
        surely = flips if flips > UNSURE * len(b) else 0
    else:
        surely = int((other & ~near).sum())
    return Difference(name, len(b), 0.0, 0.0, flips, surely, bound)


def _near_ties(theirs: Mapping[str, Array], bound: float) -> Array | None:
    """The rows (n,) whose best two classes are as good as equal; None if no output tells."""
    for name in ("proba", "score"):
        scores = theirs.get(name)
        if scores is None or not len(scores):
            continue
        if scores.shape[1] == 1:
            near: Array = np.abs(scores[:, 0]) <= bound
            return near
        top = np.sort(scores, axis=1)[:, -2:]
        near = np.abs(top[:, 1] - top[:, 0]) <= bound * np.maximum(np.abs(top[:, 1]), 1.0)
        return near
    return None
