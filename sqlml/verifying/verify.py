"""`verify_object`, `verify_source`, `verify_rows`: a Program held against what it was made of."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ScoringError, VerificationError
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import refused
from sqlml.planner.program.sample_rows import samples, samples_suit
from sqlml.scorer.scorer import Scorer
from sqlml.types import Feature
from sqlml.verifying.ask_library import Answers, has_source
from sqlml.verifying.compare import Difference, compare
from sqlml.verifying.rounding import decided_by_rounding
from sqlml.verifying.source import Source, scored, source_of_object

if TYPE_CHECKING:
    import pandas as pd


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
