"""A model written as ONNX and read again is the same model: every estimator of the suite.

Plain onnxruntime answers from the file as the source library does, and an import of the file gives
the very Program that was exported. The usual run takes every 20th case; the nightly one takes all.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sqlml.errors import BackendError
from sqlml.types import Array
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted
from tests.contract.estimators.table import ALL
from tests.support.onnx_checks import load, theirs

NAMES = {"label": "label", "proba": "probabilities", "score": "scores", "samples": "samples"}


@pytest.mark.by_day(20)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_what_is_exported_answers_and_comes_back(case: Case) -> None:
    fitted = Fitted.of(case)
    try:
        content = fitted.scorer.to_onnx()
    except BackendError as error:
        assert "cannot be written as ONNX" in str(error)
        assert "FORMAT SQLML" in str(error)
        return
    fresh = case.data(200, 7)
    want = fitted.asked(fresh)
    assert want is not None
    run_by_onnxruntime(fitted, content, fresh, want)

    back = load(content)
    assert back.program.hash == fitted.imported.program.hash
    read = fitted.imported.program.features
    assert [f for f in back.features if f.kind != "any"] == list(read)


def run_by_onnxruntime(
    fitted: Fitted, content: bytes, data: pd.DataFrame, want: dict[str, Array]
) -> None:
    """The file alone, without us."""
    batch = fitted.inputs(data)
    if any(
        v.dtype == object and not all(type(t) is str for t in v.ravel()) for v in batch.values()
    ):
        return  # ONNX has no NULL
    known = fitted.imported.program.inputs
    feed = {
        name: np.reshape(batch[name], (-1, 1)).astype(
            object if fitted.imported.program.input_type(name).dtype == "string" else np.float64
        )
        for name in known
    }
    names = [NAMES.get(output, output) for output in fitted.imported.program.outputs]
    made = dict(zip(names, theirs(content, feed), strict=True))
    labelled = bool(fitted.imported.program.labels)
    for output, expected in want.items():
        got = made[NAMES.get(output, output)].reshape(expected.shape)
        if output == "label" and labelled:
            assert fitted.case.near or (got == expected).all()
        else:
            fitted.compare({output: got}, {output: expected}, "onnxruntime")
