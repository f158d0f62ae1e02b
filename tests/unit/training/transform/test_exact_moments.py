"""Means and deviations of columns, whatever the order of their rows."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from sqlml.training.transform.preprocessors import compute_exact_moments

DRAW = np.random.default_rng(7)
COLUMNS = {
    "numbers": DRAW.normal(size=10_000),
    "far from zero": DRAW.normal(size=1000) + 1e8,
    "an outlier": np.append(DRAW.random(1000), 1e9),
    "tiny": DRAW.normal(size=100) * 1e-300,
    "huge": DRAW.normal(size=100) * 1e300,
    "one value": np.full(10, 0.1),
    "one row": np.array([3.5]),
    "two": np.array([-1.0, 1.0]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_moments_are_those_of_numpy(name: str) -> None:
    values = COLUMNS[name]
    moments = []
    for order in (values, values[::-1], DRAW.permutation(values)):
        with duckdb.connect() as con:
            con.register("t", pa.table({"x": order}))
            moments.append(compute_exact_moments(_asking(con), "x"))
    assert moments[0] == moments[1] == moments[2]
    size = float(np.abs(values).max())
    exact = values.astype(np.longdouble)
    assert moments[0][0] == pytest.approx(float(exact.mean()), rel=1e-15, abs=1e-15 * size)
    assert moments[0][1] == pytest.approx(
        float(exact.std(ddof=1)) if len(values) > 1 else 0.0, rel=1e-12, abs=1e-12 * size
    )


def test_columns_without_finite_values() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT NULL::DOUBLE AS x")
        assert compute_exact_moments(_asking(con), "x") == (0.0, 0.0)
        con.execute("INSERT INTO t VALUES ('inf'), (1)")
        assert compute_exact_moments(_asking(con), "x") == (0.0, 0.0)


def _asking(con: duckdb.DuckDBPyConnection) -> Any:
    def ask(aggregates: str) -> tuple[Any, ...]:
        row = con.execute(f"SELECT {aggregates} FROM t").fetchone()
        assert row is not None
        return row

    return ask
