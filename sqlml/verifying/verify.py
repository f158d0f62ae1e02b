"""`verify_object`, `verify_rows`: a Program held against the model that it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sqlml.errors import ScoringError
from sqlml.ir.program import Program
from sqlml.scorer import Scorer
from sqlml.types import Array, Feature
from sqlml.verifying.comparison import Difference, compare
from sqlml.verifying.sample import ROWS, samples, samples_suit
from sqlml.verifying.sources import Answers, answers, has_source


@dataclass(frozen=True, slots=True)
class Verification:
    """What a comparison gave: over all frames the largest difference of each output, or why there
    is none."""

    differences: tuple[Difference, ...] = ()
    rows: int = 0
    skipped: str = ""

    @property
    def agrees(self) -> bool:
        """Whether nothing was found that is beyond the contract."""
        return all(d.agrees for d in self.differences)

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
    """Compare a Program with the object that it was imported from, on rows of its own making.

    The Program runs in the reference interpreter: this is about the import, and compiles nothing.
    """
    if not has_source(model):
        return Verification(skipped=f"no way to ask a {type(model).__name__}")
    if not samples_suit(features):
        return Verification(skipped="no rows can be made for columns of lists or maps")
    found: list[Difference] = []
    rows, why = 0, ""
    scorer = Scorer(program, features, {"backend": "reference"})
    for frame in samples(program, features):
        try:
            theirs = answers(model, frame, program)
        except Exception as error:  # whatever the library raises: it does not score such rows
            why = why or f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        found += compare(program, _ours(scorer, frame, theirs), theirs)
        rows += ROWS
    return Verification(_largest(found), rows) if found else Verification(skipped=why)


def verify_rows(
    model: Any,
    program: Program,
    features: Sequence[Feature],
    options: Mapping[str, Any],
    frame: pd.DataFrame,
) -> Verification:
    """Compare a Program, run as its options say, with an object on the rows of a frame.

    Raises:
        Exception: whatever the library raises of these rows.
        ScoringError: sqlml refuses them.
    """
    theirs = answers(model, frame, program)
    ours = _asked(Scorer(program, features, options), frame, theirs)
    return Verification(_largest(compare(program, ours, theirs)), len(frame))


_METHODS = {
    "label": Scorer.predict,
    "proba": Scorer.predict_proba,
    "score": Scorer.decision_function,
    "samples": Scorer.score_samples,
    "transform": Scorer.transform,
}


def _ours(scorer: Scorer, frame: pd.DataFrame, theirs: Answers) -> dict[str, Array]:
    """What the Program says; of a row that it refuses while its source does not, NaN throughout."""
    try:
        return _asked(scorer, frame, theirs)
    except ScoringError:
        return {name: np.full(value.shape, np.nan, object) for name, value in theirs.items()}


def _asked(scorer: Scorer, frame: pd.DataFrame, theirs: Answers) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for name in theirs:
        value = _METHODS[name](scorer, frame)
        value = np.concatenate(value, axis=1) if isinstance(value, list) else value
        made[name] = value.reshape(len(value), -1)
    return made


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
