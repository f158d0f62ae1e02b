"""Assertions that an imported scikit-learn object computes what the object itself computes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sqlml.errors import ScoringError
from sqlml.importers.registry import Imported, import_model
from sqlml.ir import reference, store
from sqlml.types import Array
from tests.support.oracles import batch


def multiplies_fused() -> bool:
    """Tell whether BLAS rounds a product and a sum once, as with x86-64 since 2013, and ARM64."""
    most = 1 + 2.0**-30
    left, right = np.array([[1.0, most]] * 16), np.array([[-(1 + 2.0**-29), most]] * 16)
    return bool(((left @ right.T) == 2.0**-60).all())


needs_fused_blas = pytest.mark.skipif(
    not multiplies_fused(),
    reason="scikit-learn decides by the rounding of BLAS, and sqlml by that of a fused one",
)


def count_calls(work: Callable[[], Any]) -> int:
    """Count the calls of Python's and C's functions that `work` makes on this thread."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def scored(imported: Imported, data: Any) -> dict[str, Array]:
    """Every output of the imported Program on `data`, by the reference interpreter."""
    names = [feature.name for feature in imported.features]
    return reference.run(imported.program, batch(imported.program, data, names))


def assert_same(model: Any, data: Any, *, exact: bool = False) -> Imported:
    """Assert that `model` and its Program agree on `data` in everything that the model offers.

    Labels must be equal; other outputs within 1e-9 relative, or bit for bit for scores, regression
    values, averaged tree probabilities and transforms when `exact`.
    """
    imported = import_model(model)
    assert store.loads(store.dumps(imported.program)).hash == imported.program.hash
    ours = scored(imported, data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if "label" in ours:
            label = ours["label"]
            theirs = np.asarray(model.predict(data)).reshape(label.shape)
            if imported.program.labels:
                assert imported.program.output_type("label").dtype == "int64"
                for t, labels in enumerate(imported.program.labels):
                    decoded = labels.array()[label[:, t]]
                    np.testing.assert_array_equal(decoded, theirs[:, t].astype(decoded.dtype))
            else:
                assert_close(label, theirs, exact)
        for output, method in (
            ("proba", "predict_proba"),
            ("score", "decision_function"),
            ("samples", "score_samples"),
            ("transform", "transform"),
        ):
            offered = hasattr(model, method)
            assert (output in ours) == offered, f"{output} where {method} is {offered}"
            if offered:
                theirs = getattr(model, method)(data)
                if isinstance(theirs, list):  # one array per target
                    theirs = np.concatenate(theirs, axis=1)
                theirs = theirs.toarray() if hasattr(theirs, "toarray") else np.asarray(theirs)
                if theirs.ndim == 1:
                    theirs = theirs[:, None]
                bits = exact and (output != "proba" or "score" not in ours)
                assert_close(ours[output], theirs.astype(np.float64), bits)
    return imported


def assert_close(ours: Array, theirs: Array, exact: bool = False) -> None:
    """Equal in shape and value, NaN and infinity included; bit for bit when `exact`."""
    assert ours.shape == theirs.shape
    if exact:
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-300 + 1e-12, equal_nan=True)


def assert_both_raise(model: Any, data: Any, error: type[ScoringError], match: str = "") -> None:
    """Assert that scikit-learn refuses `data` with a ValueError and we with `error`."""
    method = model.predict if hasattr(model, "predict") else model.transform
    with pytest.raises(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method(data)
    imported = import_model(model)
    with pytest.raises(error, match=match):
        scored(imported, data)
