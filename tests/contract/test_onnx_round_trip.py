"""A model written as ONNX and read again is the same model: every estimator of the suite.

The file is compared with the source library twice: run by plain onnxruntime, and imported again,
where it must become operators of our own. The usual run takes every 20th case; the nightly one
takes them all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sqlml.backends import base
from sqlml.errors import BackendError, ScoringError
from sqlml.importers.registry import Imported
from sqlml.ir import store
from sqlml.types import Array
from tests import oracles
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted
from tests.contract.estimators.table import ALL
from tests.onnx_checks import load, theirs

NAMES = {"label": "label", "proba": "probabilities", "score": "scores", "samples": "samples"}

CASES = [
    pytest.param(case, id=case.name, marks=[] if i % 20 == 0 else [pytest.mark.nightly])
    for i, case in enumerate(ALL)
]


@pytest.mark.parametrize("case", CASES)
def test_what_is_exported_comes_back(case: Case) -> None:
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
    program = back.program
    assert set(program.outputs) == set(fitted.imported.program.outputs)
    assert program.labels == fitted.imported.program.labels
    assert not any(node.op == "onnx_graph" for node in program)
    assert store.loads(store.dumps(program)).hash == program.hash
    for name in ("reference", "native"):
        backend = base.load(name)
        if backend.supports(program) is not None:
            continue
        compiled = backend.compile(program)
        for data in (fresh, fresh.head(1)):
            answers = fitted.asked(data)
            assert answers is not None
            fitted.compare(compiled.run(inputs(back, data)), answers, name)
        for output, made in compiled.run(inputs(back, fresh.head(0))).items():
            assert made.shape == (0, program.output_type(output).width)
        odd_rows(fitted, back, compiled, name)


def inputs(back: Imported, data: pd.DataFrame) -> dict[str, Array]:
    return oracles.batch(back.program, data, [feature.name for feature in back.features])


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


def odd_rows(fitted: Fitted, back: Imported, compiled: Any, name: str) -> None:
    """NaN and infinity: the same numbers, or both refuse."""
    table = fitted.table
    read = fitted.imported.program.inputs
    numeric = [c for c in table.columns if table[c].dtype.kind == "f" and c in read][:2]
    for column in numeric:
        for value in (np.nan, np.inf, -np.inf, -0.0):
            frame = table.head(2).copy()
            frame.loc[frame.index[0], column] = value
            answers = fitted.asked(frame)
            if answers is None:
                with pytest.raises(ScoringError):
                    compiled.run(inputs(back, frame))
            else:
                made = compiled.run(inputs(back, frame))
                fitted.compare(made, answers, name)
