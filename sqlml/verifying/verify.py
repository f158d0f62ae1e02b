"""`verify_object`, `verify_source`, `verify_rows`: a Program held against what it was made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ScoringError, VerificationError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.planner.binding.refused_nulls import refused
from sqlml.planner.program.sample_rows import samples, samples_suit
from sqlml.scorer.scorer import Scorer
from sqlml.types import Array, Feature
from sqlml.verifying.ask_library import Answers, has_source
from sqlml.verifying.compare import Difference, compare
from sqlml.verifying.source import Source, scored, source_of_object

if TYPE_CHECKING:
    import pandas as pd


# Answers that only rounding decides: whether a source's is one of them.
#
# The terms of a sum may be added in any order. A library adds differently for one row than for
# several, and differently on another machine, and each of these sums is the exact one of weights
# that are about an ulp off. Mostly that is the last digit of an answer. But nearest neighbours
# after a PCA may lie at the same distance, and which of them count is decided by that digit; and
# of the difference of two distances of 1e19 it may be all that is left. Squared distances that a
# library makes of squares, |x|^2 - 2 x.y + |y|^2, are that far off the direct ones where columns
# spread far less than they are large, as behind a Normalizer.


VARIANTS = 8
"""Programs that are tried."""

_REACH = 4.0
"""How much farther than the variants' numbers the source's number may be from ours."""

_SUMS: Mapping[str, tuple[str, ...]] = {
    "linear": ("weights", "bias"),
    "pairwise": ("points",),
    "sum": (),
    "sub": (),
}
"""Operators that add terms up -> the constants in these; `sum` and `sub` have their terms from
elsewhere."""

AnswersOf = Mapping[str, Array]
"""Output -> its values for each row: numbers or labels, (n, ..)."""


def decided_by_rounding(
    program: Program,
    answer: Callable[[Program], AnswersOf],
    ours: AnswersOf,
    theirs: AnswersOf,
    bound: float,
) -> frozenset[int]:
    """The rows whose answers differ, but might not if sums were rounded differently.

    Args:
        answer: the outputs of a Program like `program` for the same rows.
        bound: the largest relative difference of a number.
    """
    rows = differing_rows(ours, theirs, bound)
    if not len(rows):
        return frozenset()
    try:
        variants = [answer(other) for other in rounded_otherwise(program)]
    except ScoringError:  # one of them refuses a row: then nothing tells
        return frozenset()
    return frozenset(
        row
        for row in rows.tolist()
        if all(
            _reached(ours[name][row], theirs[name][row], [v[name][row] for v in variants], bound)
            for name in ours.keys() & theirs.keys()
        )
    )


def rounded_otherwise(program: Program) -> Iterator[Program]:
    """`program` with the constants of its sums an ulp off, up or down, in several ways.

    There are none for a Program without sums.
    """
    if not any(node.op in _SUMS for node in program.nodes):
        return
    for seed in range(VARIANTS):
        dice = np.random.default_rng(seed)

        def nudged(
            b: Builder, node: Node, inputs: Sequence[Value], dice: np.random.Generator = dice
        ) -> Value:
            if node.op in ("sum", "sub"):
                return b.op(node.op, _terms(b, inputs[0], dice), *inputs[1:], **node.attrs)
            made = {name: _nudged(node.attrs[name], dice) for name in _SUMS[node.op]}
            value = b.op(node.op, *inputs, **{**node.attrs, **made})
            if node.op == "linear":
                return value
            ones = np.ones(value.type.width, value.type.dtype)
            value = b.op("mul", value, _nudged(ones, dice))
            direct = node.attrs["metric"] == "sqeuclidean" and "weights" not in node.attrs
            return _as_of_squares(b, value, inputs[0], dice) if direct else value

        yield rewrite(program, nudged, keep_inputs=True, ops=_SUMS.keys())


def _terms(b: Builder, terms: Value, dice: np.random.Generator) -> Value:
    """Terms of a sum (n, ..), an ulp off where they are floats and their number is known."""
    kind = terms.type
    shape = kind.shape[1:]
    fixed = not kind.rowwise or kind.sparse or min(shape, default=-1) < 0
    if fixed or np.dtype(kind.dtype).kind != "f":
        return terms
    return b.op("mul", terms, _nudged(np.ones(shape, kind.dtype), dice))


def _as_of_squares(b: Builder, distance: Value, x: Value, dice: np.random.Generator) -> Value:
    """Squared distances (n, m), off as if they were made of squares: a sum of k terms is mostly
    within sqrt(k) / 2 ulps of |x|^2."""
    dtype = np.dtype(distance.type.dtype)
    signs = dice.choice([-1, 1], distance.type.width)
    size = b.op("sum", b.op("square", x), axis=1)
    off = np.finfo(dtype).eps * max(1.0, x.type.width**0.5 / 2)
    ulps = (off * signs).astype(dtype)
    return b.op("add", distance, b.op("mul", size, ulps))


def _nudged(values: Array, dice: np.random.Generator) -> Array:
    """Zeros stay what they are: their terms add nothing."""
    towards = np.where(dice.integers(0, 2, values.shape) == 1, np.inf, -np.inf)
    moved = np.nextafter(values, towards.astype(values.dtype))
    return np.where((values == 0) | ~np.isfinite(values), values, moved)


def _reached(ours: Array, theirs: Array, variants: Sequence[Array], bound: float) -> bool:
    """Whether one row's answer is as near as the variants' are."""
    a, b = np.atleast_1d(ours), np.atleast_1d(theirs)
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return any(np.array_equal(np.atleast_1d(v), b) for v in (a, *variants))
    away = np.max([np.abs(np.atleast_1d(v) - a) for v in variants], axis=0, initial=0.0)
    near = np.isclose(a, b, rtol=bound, atol=0.0, equal_nan=True)
    return bool((near | (np.abs(a - b) <= _REACH * away)).all())


def differing_rows(ours: AnswersOf, theirs: AnswersOf, bound: float) -> Array:
    """The indices of the rows in which some output differs; none if the shapes differ.

    >>> differing_rows({"score": np.array([[1.0], [2]])}, {"score": np.array([[1.0], [3]])}, 0.1)
    array([1])
    """
    found: set[int] = set()
    for name in ours.keys() & theirs.keys():
        a, b = ours[name], theirs[name]
        if a.shape != b.shape:
            return np.empty(0, np.int64)
        if a.dtype.kind == "f" and b.dtype.kind == "f":
            other = ~np.isclose(a, b, rtol=bound, atol=0.0, equal_nan=True)
        else:
            other = a.astype(object) != b.astype(object)
        found.update(np.flatnonzero(other.reshape(len(b), -1).any(axis=1)).tolist())
    return np.array(sorted(found), np.int64)


LARGE, FEW = 64 << 20, 16
"""Bytes of a Program from which on it is compared on so few rows."""

SECONDS = 1.0
"""After so long no more rows are compared: registering a model stays quick."""


MOST_TEXTS = 4
"""Most text columns to try with None and with NaN separately; more are taken as one."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a comparison: the largest difference of each output over all frames, or why it
    was skipped."""

    differences: tuple[Difference, ...] = ()
    rows: int = 0
    skipped: str = ""

    @property
    def agrees(self) -> bool:
        """Whether nothing was found that is beyond the contract."""
        return all(d.agrees for d in self.differences)

    @property
    def complaint(self) -> str:
        """What is beyond the contract, in words."""
        return "; ".join(
            f"{d.surely} of {d.rows} labels differ"
            if d.surely
            else f"{d.output} differs by {d.relative:.1e} of its size ({d.bound:.0e} is allowed)"
            for d in self.differences
            if not d.agrees
        )

    def to_dict(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        if self.skipped:
            return {"skipped": self.skipped}
        return {
            "rows": self.rows,
            "deviation": max((d.relative for d in self.differences), default=0.0),
            "label_flips": max((d.flips for d in self.differences), default=0),
        }


def verify_object(model: Any, program: Program, features: Sequence[Feature]) -> Verification:
    """Compare a Program with the object that it was imported from, as `verify_source` does."""
    if not has_source(model):
        return Verification(skipped=f"no way to ask a {type(model).__name__}")
    return verify_source(source_of_object(model, program), program, features)


def verify_source(
    made_of: AbstractContextManager[Source], program: Program, features: Sequence[Feature]
) -> Verification:
    """Compare a Program with what it was imported from, on rows of its own making.

    The Program runs in the reference interpreter: this is about the import, and compiles nothing.

    Raises:
        ArtifactError: the source's library ends on it.
    """
    if not _has_pandas():
        return Verification(skipped="pandas is not installed")
    if not samples_suit(features):
        return Verification(skipped="no rows can be made for columns of lists or maps")
    found: list[Difference] = []
    rows, why = 0, ""
    scorer = Scorer(program, features, {"backend": "reference"})
    with made_of as source:
        start = time.perf_counter()
        for frame in samples(program, features):
            if program.nbytes > LARGE:
                frame = frame.head(FEW)
            frame = _without_null_texts(frame, source, program)
            if frame.empty:
                continue
            try:
                differences = _compared(source, scorer, frame, careful=True)
            except (VerificationError, ScoringError) as error:  # one of the two refuses such rows
                why = why or error.message.splitlines()[0]
                continue
            found += differences
            rows += len(frame)
            if time.perf_counter() - start > SECONDS:
                break
    return Verification(_largest(found), rows) if found else Verification(skipped=why)


def _has_pandas() -> bool:
    try:
        import pandas  # noqa: F401
    except ImportError:
        return False
    return True


def verify_rows(
    source: Source,
    program: Program,
    features: Sequence[Feature],
    options: Mapping[str, Any],
    frame: pd.DataFrame,
) -> Verification:
    """Compare a Program, run as its options say, with its source on the rows of a frame.

    Rows that the options answer with NULL are left out: the library may well refuse them.

    Raises:
        VerificationError: the library refuses these rows.
        ScoringError: sqlml refuses them.
        ArtifactError: the library ends on them.
    """
    scorer = Scorer(program, features, options)
    frame = frame[frame[sorted(refused(options, program))].notna().all(axis=1)]
    if frame.empty:
        raise VerificationError(
            "each of these rows lacks a value, so on_null makes all of them NULL"
        )
    frame = _without_null_texts(frame, source, program)
    if frame.empty:
        raise VerificationError(
            "a text is NULL in each of these rows, which the library of the model does not know"
        )
    return Verification(_largest(_compared(source, scorer, frame, careful=False)), len(frame))


def _without_null_texts(frame: pd.DataFrame, source: Source, program: Program) -> pd.DataFrame:
    """Leave out rows that lack a text where the source has no NULL for texts, as ONNX has none."""
    if source.knows_null_texts:
        return frame
    texts = [f.name for f in program.features if f.kind == "string"]
    return frame[frame[texts].notna().all(axis=1)]


def _compared(
    source: Source, scorer: Scorer, frame: pd.DataFrame, careful: bool
) -> tuple[Difference, ...]:
    """The differences on the rows of a frame.

    SQL has one NULL, and models were fitted on None or on NaN: whichever agrees is meant.

    Args:
        careful: outputs that the source draws at random are left out.

    Raises:
        VerificationError: the library refuses these rows.
        ScoringError: sqlml refuses them.
    """
    program, bound = scorer.program, source.bound
    variants = _variants(frame, [f.name for f in program.features if f.kind == "string"])
    frame = next(variants)
    # What sqlml refuses is not asked of the source, which may log pages about it, as Spark does.
    ours = scored(scorer, frame, program.outputs) if careful else {}
    theirs = source.answers(frame)
    ours = ours or scored(scorer, frame, theirs)
    first = compare(program, ours, theirs, bound)
    if all(d.agrees for d in first):
        return first

    def answer(other: Program) -> Answers:
        return scored(Scorer(other, scorer.features, {"backend": "reference"}), frame, ours)

    for other in chain([frame], variants):
        with suppress(VerificationError):  # the library may score None but not NaN
            meant = source.answers(other)
            ties = decided_by_rounding(program, answer, ours, meant, bound)
            rest = [i for i in range(len(frame)) if i not in ties]
            second = compare(program, _only(ours, rest), _only(meant, rest), bound)
            if all(d.agrees for d in second):
                return second
    if not careful:
        return first
    again = compare(program, source.answers(frame), theirs, bound)
    steady = {d.output for d in again if d.agrees}
    return tuple(d for d in first if d.output in steady)


def _only(answers: Answers, rows: Sequence[int]) -> Answers:
    return {name: values[rows] for name, values in answers.items()}


def _variants(frame: pd.DataFrame, texts: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The frame with None for each missing text, and with NaN in one, some or all such columns."""
    held = {name: frame[name].astype(object) for name in texts}
    gone = {name: column.notna() for name, column in held.items() if column.isna().any()}
    for values in product((None, np.nan), repeat=min(len(gone), MOST_TEXTS)):
        nothing = dict(zip_longest(gone, values, fillvalue=values[-1] if values else None))
        yield frame.assign(
            **{n: c.where(gone[n], nothing[n]) if n in gone else c for n, c in held.items()}
        )


def _largest(found: Sequence[Difference]) -> tuple[Difference, ...]:
    """One for each output, which stands for all of its frames."""
    outputs = dict.fromkeys(d.output for d in found)
    return tuple(_joined([d for d in found if d.output == output]) for output in outputs)


def _joined(found: Sequence[Difference]) -> Difference:
    return Difference(
        found[0].output,
        sum(d.rows for d in found),
        max(d.absolute for d in found),
        max(d.relative for d in found),
        sum(d.flips for d in found),
        sum(d.surely for d in found),
        found[0].bound,
    )
