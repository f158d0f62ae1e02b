"""Verification of an imported Program against its source library, on generated rows or a frame."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ScoringError, VerificationError
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import find_null_inputs
from sqlml.planner.program.verification_rows import can_make_samples, make_sample_frames
from sqlml.scorer.scorer import Scorer
from sqlml.types import Feature
from sqlml.verifying.ask_library import Predictions, has_source
from sqlml.verifying.compare import Difference, compare_outputs
from sqlml.verifying.rounding_ties import find_rounding_ties
from sqlml.verifying.source import SourceModel, open_object_source, score_frame

if TYPE_CHECKING:
    import pandas as pd


LARGE_PROGRAM_BYTES, LARGE_PROGRAM_ROWS = 64 << 20, 16
"""If a Program exceeds this number of bytes, only this number of rows per frame is compared."""

TIME_LIMIT = 1.0
"""Seconds after which no more frames are compared, so that registering a model stays fast."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The largest difference of each output, or the reason why no rows were compared."""

    differences: tuple[Difference, ...] = ()
    rows: int = 0
    skipped: str = ""

    @property
    def agrees(self) -> bool:
        return all(difference.agrees for difference in self.differences)

    @property
    def complaint(self) -> str:
        """A description of all differences that exceed their tolerance."""
        return "; ".join(
            f"{d.certain_flips} of {d.rows} labels differ"
            if d.certain_flips
            else f"{d.output} differs by {d.relative:.1e} relative ({d.tolerance:.0e} is allowed)"
            for d in self.differences
            if not d.agrees
        )

    def to_dict(self) -> dict[str, Any]:
        if self.skipped:
            return {"skipped": self.skipped}
        return {
            "rows": self.rows,
            "deviation": max((d.relative for d in self.differences), default=0.0),
            "label_flips": max((d.flips for d in self.differences), default=0),
        }


def verify_object(model: Any, program: Program, features: Sequence[Feature]) -> Verification:
    """Compare a Program with the object from which it was imported, on generated rows."""
    if not has_source(model):
        return Verification(skipped=f"no way to score a {type(model).__name__}")
    return verify_source(open_object_source(model, program), program, features)


def verify_source(
    source_context: AbstractContextManager[SourceModel],
    program: Program,
    features: Sequence[Feature],
) -> Verification:
    """Compare the reference interpreter's results with those of the source, on generated rows."""
    if find_spec("pandas") is None:
        return Verification(skipped="pandas is not installed")
    if not can_make_samples(features):
        return Verification(skipped="no rows can be made for columns of lists or maps")
    differences: list[Difference] = []
    row_count, skipped = 0, ""
    scorer = Scorer(program, features, {"backend": "reference"})
    with source_context as source:
        start = time.perf_counter()
        for frame in make_sample_frames(program, features):
            if program.nbytes > LARGE_PROGRAM_BYTES:
                frame = frame.head(LARGE_PROGRAM_ROWS)
            frame = _drop_null_texts(frame, source, program)
            if frame.empty:
                continue
            try:
                frame_differences = _compare_frame(source, scorer, frame, skip_random=True)
            except (VerificationError, ScoringError) as error:
                skipped = skipped or error.message.splitlines()[0]
                continue
            differences += frame_differences
            row_count += len(frame)
            if time.perf_counter() - start > TIME_LIMIT:
                break
    merged = _merge_by_output(differences)
    return Verification(merged, row_count) if merged else Verification(skipped=skipped)


def verify_rows(
    source: SourceModel,
    program: Program,
    features: Sequence[Feature],
    options: Mapping[str, Any],
    frame: pd.DataFrame,
) -> Verification:
    """Compare a Program, registered with `options`, with its source on the rows of a frame.

    Rows that the options score as NULL are left out, because the library may reject such rows.
    Raise VerificationError if no rows are left, or if the library rejects a row.
    """
    scorer = Scorer(program, features, options)
    frame = frame[frame[sorted(find_null_inputs(options, program))].notna().all(axis=1)]
    if frame.empty:
        raise VerificationError(
            "each of these rows lacks a value, so on_null makes all scores NULL"
        )
    frame = _drop_null_texts(frame, source, program)
    if frame.empty:
        raise VerificationError(
            "a text is NULL in each of these rows, and the model's library has no NULL for texts"
        )
    differences = _compare_frame(source, scorer, frame, skip_random=False)
    return Verification(_merge_by_output(differences), len(frame))


def _drop_null_texts(frame: pd.DataFrame, source: SourceModel, program: Program) -> pd.DataFrame:
    """Drop rows with missing strings if the source, such as ONNX, does not support them."""
    if source.knows_null_texts:
        return frame
    string_columns = [f.name for f in program.features if f.kind == "string"]
    return frame[frame[string_columns].notna().all(axis=1)]


def _compare_frame(
    source: SourceModel, scorer: Scorer, frame: pd.DataFrame, skip_random: bool
) -> tuple[Difference, ...]:
    """Compare the predictions of `scorer` and `source` for the rows of `frame`.

    If predictions differ, try other representations of missing strings, and ignore rounding ties.
    If `skip_random`, leave out outputs that are nondeterministic in the source.
    """
    program, tolerance = scorer.program, source.tolerance
    variants = _vary_missing_texts(frame, [f.name for f in program.features if f.kind == "string"])
    frame = next(variants)
    # sqlml scores first, because for rejected rows a source such as Spark may log pages of errors.
    ours = score_frame(scorer, frame, program.outputs) if skip_random else {}
    theirs = source.predict(frame)
    ours = ours or score_frame(scorer, frame, theirs)
    differences = compare_outputs(program, ours, theirs, tolerance)
    if all(difference.agrees for difference in differences):
        return differences

    def predict_variant(variant: Program) -> Predictions:
        return score_frame(Scorer(variant, scorer.features, {"backend": "reference"}), frame, ours)

    for variant in chain([frame], variants):
        with suppress(VerificationError):  # A library may score None but reject NaN.
            their_variant = source.predict(variant)
            ties = find_rounding_ties(program, predict_variant, ours, their_variant, tolerance)
            rows = [i for i in range(len(frame)) if i not in ties]
            left, right = ({name: x[rows] for name, x in p.items()} for p in (ours, their_variant))
            other_differences = compare_outputs(program, left, right, tolerance)
            if all(difference.agrees for difference in other_differences):
                return other_differences
    if not skip_random:
        return differences
    repeated_differences = compare_outputs(program, source.predict(frame), theirs, tolerance)
    deterministic = {difference.output for difference in repeated_differences if difference.agrees}
    return tuple(difference for difference in differences if difference.output in deterministic)


def _vary_missing_texts(frame: pd.DataFrame, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield `frame` with missing strings as None, then with NaN in some or all columns."""
    text_columns = {name: frame[name].astype(object) for name in names}
    is_present = {n: column.notna() for n, column in text_columns.items() if column.isna().any()}
    # Vary four columns separately; further columns share the choice of the fourth column.
    for values in product((None, np.nan), repeat=min(len(is_present), 4)):
        choices = [*values, *values[-1:] * len(is_present)]
        filled = dict(text_columns)
        for (name, present), value in zip(is_present.items(), choices, strict=False):
            filled[name] = filled[name].where(present, value)
        yield frame.assign(**filled)


def _merge_by_output(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    merged: dict[str, Difference] = {}
    for difference in differences:
        total = merged.get(difference.output, replace(difference, rows=0, flips=0, certain_flips=0))
        merged[difference.output] = replace(
            total,
            rows=total.rows + difference.rows,
            absolute=max(total.absolute, difference.absolute),
            relative=max(total.relative, difference.relative),
            flips=total.flips + difference.flips,
            certain_flips=total.certain_flips + difference.certain_flips,
        )
    return tuple(merged.values())
