"""The tables and pipelines that are generated have their shapes, and follow from their seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.operators import iris
from benchmarks.pipeline_space import TRAINING_ROWS, draw
from benchmarks.tables import TABLES, table


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str) -> None:
    shape = TABLES[name]
    x, y = table(name, 400, seed=1)
    assert x.shape == (400, shape.features)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    assert np.isfinite(x).all()
    again, same = table(name, 400, seed=1)
    assert np.array_equal(x, again)
    assert np.array_equal(y, same)
    assert not np.array_equal(x, table(name, 400, seed=2)[0])
    if shape.classifies:
        assert set(y.tolist()) == set(range(len(shape.shares))), "every class occurs"
        assert np.argmax(np.bincount(y.astype(np.int64))) == np.argmax(shape.shares[::1])
    else:
        assert len(set(y.tolist())) > 10


def test_shares_of_classes_are_kept_in_a_large_table() -> None:
    _, y = table("covtype", 20_000, seed=0)
    shares = np.bincount(y.astype(np.int64)) / len(y)
    assert np.abs(shares - TABLES["covtype"].shares).max() < 0.005


def test_iris_has_as_many_columns_as_asked_for() -> None:
    x, species = iris(50, 20, seed=0)
    assert x.shape == (50, 20)
    assert x.dtype == np.float32
    assert set(species.tolist()) == {0, 1, 2}
    assert np.array_equal(x, iris(50, 20, seed=0)[0])


def test_pipelines_follow_from_their_seed() -> None:
    for index in range(6):
        one, two = draw([0, index, 0]), draw([0, index, 0])
        assert one.steps == two.steps
        assert repr(one.pipeline) == repr(two.pipeline)
        assert type(one.test) is type(two.test)
        assert pd.DataFrame(one.test).equals(pd.DataFrame(two.test))
        assert len(one.train) == len(one.target) == TRAINING_ROWS


def test_pipelines_are_of_many_kinds() -> None:
    drawn = [draw([0, index, 0], most_rows=500, most_columns=60) for index in range(150)]
    assert len({d.steps for d in drawn}) > 120
    assert len({d.steps.split(" > ")[-1] for d in drawn}) > 20
    assert 2.0 < np.mean([d.steps.count(" > ") + 1 for d in drawn]) < 4.0
    assert 0.7 < np.mean([d.classifies for d in drawn]) < 0.95
    frames = [d.test for d in drawn if isinstance(d.test, pd.DataFrame)]
    assert 0.3 < np.mean([any(n.startswith("c") for n in f) for f in frames])
    assert all(d.test.shape[0] <= 500 and d.test.shape[1] <= 60 for d in drawn)
