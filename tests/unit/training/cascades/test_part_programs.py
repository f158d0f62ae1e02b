"""Programs made of parts of a model, against the model itself and scikit-learn's own steps."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.importers.registry import import_model
from sqlml.ir.ops import verify
from sqlml.training.cascades.last_estimator import (
    SHUFFLED,
    build_shuffled_model,
    compute_features,
    compute_output,
    find_last_estimator,
)
from tests.unit.training.cascades.models import MODELS, arrays, fitted, rows


@pytest.mark.parametrize("name", MODELS)
def test_shuffling_a_column_is_what_the_model_says_of_such_rows(name: str) -> None:
    model, columns = fitted(name), MODELS[name][1]
    program = import_model(model).program
    last = find_last_estimator(program)
    frame, _ = rows(300, seed=1)
    order = np.random.default_rng(2).permutation(len(frame))
    held = arrays(frame[columns])
    other = {SHUFFLED.format(n): values[order] for n, values in held.items()}
    for column in ("x", "z"):
        places = [p for b in last.blocks if b.inputs == {column} for p in b.columns]
        if not places:
            continue
        moved = frame.assign(**{column: frame[column].to_numpy()[order]})
        made = verify(build_shuffled_model(last, places))
        got = compute_output(made, "label", {**held, **other})[:, 0]
        assert (got == model.predict(moved[columns])).all()


def test_shuffling_all_columns_shuffles_the_rows() -> None:
    model = fitted("texts")
    program = import_model(model).program
    last = find_last_estimator(program)
    frame, _ = rows(300, seed=1)
    order = np.random.default_rng(2).permutation(len(frame))
    held = arrays(frame)
    other = {SHUFFLED.format(n): values[order] for n, values in held.items()}
    every = [place for block in last.blocks for place in block.columns]
    got = compute_output(build_shuffled_model(last, every), "label", {**held, **other})[:, 0]
    assert (got == model.predict(frame)[order]).all()


@pytest.mark.parametrize("name", ["texts", "scaled", "stack"])
def test_the_matrix_is_what_the_last_step_is_given(name: str) -> None:
    model, columns = fitted(name), MODELS[name][1]
    program = import_model(model).program
    last = find_last_estimator(program)
    frame, _ = rows(700, seed=1)
    wanted = (
        model.transform(frame[columns]) if name == "stack" else model[:-1].transform(frame[columns])
    )
    wanted = wanted.toarray() if hasattr(wanted, "toarray") else np.asarray(wanted)
    places = list(range(0, wanted.shape[1], 2))
    got = compute_features(last, places, arrays(frame[columns]))
    got = got.toarray() if hasattr(got, "toarray") else got
    np.testing.assert_allclose(got, wanted[:, places], rtol=1e-12)
