"""Random small ensembles behind casts, checks and imputers, as one CASE and by the reference."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from sqlml.backends.sql.expression import number_literal
from sqlml.errors import ScoringError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.passes.one_tree import MAX_TESTS, OneTree, build_one_tree
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.model_sql.tree_expression import build_tree_sql
from sqlml.types import DType
from tests.support.random_trees import WIDTH, Recipe, grow

VALUES = [0.0, -0.0, 1.0, 2.0, 0.1, np.float32(0.1), -1.5, 1e-45, 1e38, -1e38, 3.0, np.nan]


def program(seed: int, width: DType) -> Program:
    """Random trees over a matrix of `width`, with what may lie before and behind them."""
    rng = np.random.default_rng(seed)
    b = Builder()
    x = b.input("x", width, WIDTH)
    if rng.random() < 0.3:
        x = b.op("select", x, indices=rng.permutation(WIDTH))
    if rng.random() < 0.4:
        names = tuple("abcde")
        x = b.op("require_finite", x, features=names, allow_nan=bool(seed % 2), step="tree")
    if rng.random() < 0.3:
        x = b.op("impute", x, fill=rng.normal(size=WIDTH).astype(width), missing=float("nan"))
    if rng.random() < 0.3:
        x = b.op("sub", x, b.constant(rng.normal(size=WIDTH).astype(width)))
        x = b.op("mul", x, b.constant(np.full(WIDTH, 0.7, width)))
    inner = "float32" if width == "float32" else str(rng.choice(["float32", "float64"]))
    if inner != width:
        x = b.op("cast", x, dtype=inner)
    leaves, values = str(rng.choice(["float32", "float64"])), int(rng.integers(1, 4))
    recipe = Recipe(
        seed,
        trees=int(rng.integers(1, 4)),
        depth=int(rng.integers(0, 4)),
        dtype=inner,
        leaves=leaves,
        values=values,
        outputs=values,
        compare=str(rng.choice(["lt", "le"])),
    )
    score = b.op("tree_ensemble", x, **grow(recipe).attrs())
    behind = int(rng.integers(3))
    if behind == 1:
        score = b.op("sigmoid", score)
    elif behind == 2:
        score = b.op("argmax", score, axis=1)
    return b.build({"score": score})


def by_sql(one: OneTree, x: Any, packed: str, types: list[str]) -> tuple[Any, Any]:
    """The results and which rows they are right for."""
    columns = [BoundInput(f"c{k}", kind) for k, kind in enumerate(types)]

    def leaf(value: Any) -> str:
        return f"[{', '.join(number_literal(float(v)) for v in value)}]"

    value, valid_rows = build_tree_sql(one, columns, packed, leaf)
    gone = np.isnan(x) & (np.random.default_rng(0).random(x.shape) < 0.5)
    gone |= np.isnan(x) & [kind not in ("FLOAT", "DOUBLE") for kind in types]
    table = pa.table({f"c{k}": pa.array(x[:, k], mask=gone[:, k]) for k in range(WIDTH)})
    nulls = ", ".join(f"c{k}::{kind} AS c{k}" for k, kind in enumerate(types))
    con = duckdb.connect()
    con.register("given", table)
    con.execute(f"CREATE TABLE t AS SELECT {nulls} FROM given")
    rows = con.execute(f"SELECT {value}, coalesce({valid_rows or 'true'}, false) FROM t")
    values, fits = zip(*rows.fetchall(), strict=True)
    return np.array(values), np.array(fits)


def test_few_of_the_random_models_are_left_out() -> None:
    widths: list[DType] = ["float64", "float32"]
    made = [build_one_tree(program(seed, widths[seed % 3 == 0])) for seed in range(60)]
    assert sum(one is not None for one in made) >= 55


@pytest.mark.by_day(6)
@pytest.mark.parametrize("seed", range(60))
def test_the_same_as_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width: DType = "float32" if seed % 3 == 0 else "float64"
    model = program(seed, width)
    one = build_one_tree(model)
    if one is None:
        pytest.skip("too large, or a threshold of -inf")
    assert one.tests <= MAX_TESTS and one.mean_levels >= 0
    thresholds = [n.attrs["threshold"] for n in model.nodes if n.op == "tree_ensemble"][0]
    near = [
        f(thresholds)
        for f in (
            np.asarray,
            *(lambda t, to=to: np.nextafter(t, t.dtype.type(to)) for to in (-np.inf, np.inf)),
        )
    ]
    pool = np.concatenate([np.array(VALUES, np.float64), *near, [np.inf, -np.inf] * (seed % 2)])
    x = rng.choice(pool, size=(400, WIDTH)).astype(width)
    types = ["FLOAT" if width == "float32" else "DOUBLE"] * WIDTH
    got, fits = by_sql(one, x, types[0], types)
    want = []
    for row in x:
        try:
            want.append(reference.run(model, {"x": row[None]})["score"].ravel().astype(float))
        except ScoringError:
            want.append(None)
    np.testing.assert_array_equal(fits, [w is not None for w in want])
    held = np.flatnonzero(fits)
    np.testing.assert_array_equal(
        got[held], np.array([want[i] for i in held]).reshape(held.size, -1)
    )


@pytest.mark.by_day(3)
@pytest.mark.parametrize("kind", ["TINYINT", "INTEGER", "UINTEGER", "BIGINT", "DECIMAL(18, 2)"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 7])
def test_whole_numbers(seed: int, kind: str) -> None:
    model = program(seed + 100, "float64")
    one = build_one_tree(model)
    if one is None:
        pytest.skip("too large, or a threshold of -inf")
    low = 0 if kind.startswith("U") else -3
    x = np.random.default_rng(seed).choice([low, -low, 0, 1, 2, 100, np.nan], size=(200, WIDTH))
    got, fits = by_sql(one, x, "DOUBLE", [kind] * WIDTH)
    for row, value, fit in zip(x, got, fits, strict=True):
        try:
            want = reference.run(model, {"x": row[None]})["score"].ravel()
        except ScoringError:
            assert not fit
            continue
        assert fit
        np.testing.assert_array_equal(value, want.astype(float))


def test_what_is_no_small_tree() -> None:
    b = Builder()
    x = b.input("x", "float64", WIDTH)
    two = [b.op("tree_ensemble", x, **grow(Recipe(s, dtype="float64")).attrs()) for s in (1, 2)]
    assert build_one_tree(b.build({"score": b.op("add", *two)})) is None
    assert build_one_tree(b.build({"score": x})) is None
    sets = grow(Recipe(3, dtype="float64", sets=True))
    assert build_one_tree(b.build({"score": b.op("tree_ensemble", x, **sets.attrs())})) is None
    large = grow(Recipe(3, trees=20, dtype="float64"))
    assert build_one_tree(b.build({"score": b.op("tree_ensemble", x, **large.attrs())})) is None
