"""The native backend's own promises: what it imports, caches, fuses and bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.operators import find_source
from sqlml.backends.native.trees.lockstep_forest import number_siblings
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.random_trees import WIDTH, Recipe, grow, program_of, rows_for

OTHER_KERNELS = """
from sqlml.backends.native.jit import kernel_keys
kernel_keys.digest_sources = lambda function: 'changed sources'
"""
"""Without what was compiled ahead, as after a change of the kernels' sources."""

SCORE = """
import sys
import numpy as np
changed = "sqlml.backends.native.jit.specialise" in sys.modules
from sqlml.backends import base
from sqlml.ir.builder import Builder
assert changed or "numba" not in sys.modules, "numba is for the native backend alone"
b = Builder()
x = b.op("impute", b.input("x", "float64"), fill=np.array([7.0]), missing=float("nan"))
model = base.load_backend("native").compile(b.build({"transform": x}))
assert model.run({"x": np.array([np.nan, 2.0])})["transform"].tolist() == [[7.0], [2.0]]
heavy = {"torch", "sklearn", "xgboost", "lightgbm", "onnxruntime", "sqlglot"} & set(sys.modules)
assert not heavy, heavy
"""


def score_elsewhere(before: str = "", after: str = "", **env: str) -> str:
    """Score in a process of its own, and return what it wrote to its terminal."""
    root = str(Path(__file__).parents[4])
    ours, theirs = os.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        try:
            subprocess.run(
                [sys.executable, "-c", OTHER_KERNELS + before + SCORE + after],
                check=True,
                env={**os.environ, "PYTHONPATH": root, **env},
                timeout=120,
                stderr=theirs,
            )
            os.write(theirs, b"the end")
            written = b""
            while not written.endswith(b"the end"):
                written += terminal.read(4096)
        finally:
            os.close(theirs)
    return written.decode().removesuffix("the end").replace("\r\n", "\n")


def test_native_needs_no_torch_and_no_library_of_models(tmp_path: Path) -> None:
    told = score_elsewhere(NUMBA_CACHE_DIR=str(tmp_path))
    assert told == "sqlml: compiling kernels, once on this machine\n"
    assert list(tmp_path.rglob("*.kernel")), "compiled kernels are kept between processes"
    later = "assert 'numba' not in sys.modules"
    assert not score_elsewhere(after=later, NUMBA_CACHE_DIR=str(tmp_path))


CHANGED = """
from sqlml.backends.native.jit import kernel_keys
kernel_keys.digest_sources = lambda function: 'another sqlml'
"""


@pytest.mark.nightly
def test_machine_code_of_another_sqlml_is_not_used(tmp_path: Path) -> None:
    def kept() -> int:
        return len(list(tmp_path.rglob("*.kernel")))

    score_elsewhere(NUMBA_CACHE_DIR=str(tmp_path))
    first = kept()
    score_elsewhere(NUMBA_CACHE_DIR=str(tmp_path))
    assert kept() == first
    score_elsewhere(CHANGED, NUMBA_CACHE_DIR=str(tmp_path))
    assert kept() > first


@pytest.mark.nightly
def test_kernels_are_compiled_where_nothing_can_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("no folder can be made below a file")
    assert "for this process only" in score_elsewhere(NUMBA_CACHE_DIR=str(blocker))


@pytest.mark.nightly
def test_nobody_is_told_of_kernels_where_nobody_watches(tmp_path: Path) -> None:
    elsewhere = f"import sys; sys.stderr = open({str(tmp_path / 'log')!r}, 'w')\n"
    assert not score_elsewhere(elsewhere, NUMBA_CACHE_DIR=str(tmp_path))
    assert not (tmp_path / "log").read_text()
    score_elsewhere("import sys; sys.stderr = None\n", NUMBA_CACHE_DIR=str(tmp_path / "other"))


def test_the_gpu_is_for_torch() -> None:
    with pytest.raises(BackendError, match="backend='torch'"):
        NativeBackend().compile(program_of(grow(Recipe(seed=1))), device="cuda")


def test_trees_read_the_batch_through_select_concat_and_cast() -> None:
    """No value is made between a packed batch and the trees, and the one rounding is the cast's."""
    e = grow(Recipe(seed=1, trees=9))
    b = Builder()
    batch = b.input("batch", "float64", 8)
    parts = [b.op("select", batch, indices=np.array([i])) for i in (7, 0, 3, 3)]
    packed = b.op("cast", b.op("concat", *parts, parts[0]), dtype="float32")
    program = b.build({"score": b.op("tree_ensemble", packed, **e.attrs())})
    found = find_source(program, program.nodes[program.outputs["score"]].inputs[0], "float32")
    assert found.node == program.inputs["batch"]
    assert found.columns.tolist() == [7, 0, 3, 3, 7]
    x = rows_for(e, 300).astype(np.float64)
    x = np.concatenate([x * (1 + 1e-9), x[:, :3]], axis=1)
    np.testing.assert_array_equal(
        NativeBackend().compile(program).run({"batch": x})["score"],
        reference.run(program, {"batch": x})["score"],
    )


@pytest.mark.nightly
def test_a_cast_that_rounds_twice_is_not_folded() -> None:
    """float64 -> float32 -> float64 is not float64."""
    e = grow(Recipe(seed=1, trees=9, dtype="float64"))
    b = Builder()
    rounded = b.op("cast", b.input("x", "float64", WIDTH), dtype="float32")
    doubled = b.op("cast", rounded, dtype="float64")
    program = b.build({"score": b.op("tree_ensemble", doubled, **e.attrs())})
    assert find_source(program, doubled.index, "float64").node == rounded.index
    x = rows_for(e, 400)
    with np.errstate(over="ignore"):  # beside thresholds, nearer than float32 tells
        x = np.concatenate([x, x * (1 + 1e-12)])
    np.testing.assert_array_equal(
        NativeBackend().compile(program).run({"x": x})["score"],
        reference.run(program, {"x": x})["score"],
    )


@pytest.mark.nightly
def test_trees_of_integers_and_booleans() -> None:
    for dtype in ("int32", "bool"):
        e = grow(Recipe(seed=12, trees=9))
        b = Builder()
        x = b.op("cast", b.input("x", dtype, WIDTH), dtype="float32")
        program = b.build({"score": b.op("tree_ensemble", x, **e.attrs())})
        batch = {"x": np.random.default_rng(0).integers(0, 2, (200, WIDTH)).astype(dtype)}
        np.testing.assert_array_equal(
            NativeBackend().compile(program).run(batch)["score"],
            reference.run(program, batch)["score"],
        )


@pytest.mark.parametrize("leaves", ["float16", "float32"])
def test_half_precision_falls_back_to_the_reference(leaves: str) -> None:
    e = grow(Recipe(seed=3, dtype="float16", leaves=leaves))
    program, x = program_of(e), rows_for(e, 100)
    np.testing.assert_array_equal(
        NativeBackend().compile(program).run({"x": x})["score"],
        reference.run(program, {"x": x})["score"],
    )


def test_blocks_give_the_same_rows() -> None:
    """70,000 rows are more than one block; so are a few rows of a very wide value."""
    e = grow(Recipe(seed=4, trees=3))
    program, x = program_of(e), rows_for(e, 70_000)
    np.testing.assert_array_equal(
        NativeBackend().compile(program).run({"x": x})["score"],
        reference.run(program, {"x": x})["score"],
    )
    b = Builder()
    wide = b.op("one_hot", b.input("k", "int64"), width=20_000, dtype="float64")
    program = b.build({"transform": b.op("sum", wide, axis=1)})
    k = np.arange(19_600, 20_400)
    got = NativeBackend().compile(program).run({"k": k})["transform"]
    np.testing.assert_array_equal(got[:, 0], k < 20_000)


def test_siblings_lie_side_by_side_and_trees_behind_each_other() -> None:
    e = grow(Recipe(seed=5, trees=6, depth=6))
    places = number_siblings(e.roots, np.ones(6, int), e.left, e.right)
    inner = places.inner
    own = np.arange(inner.size)
    assert (places.first[~inner] == own[~inner]).all()
    assert (places.first[inner] > own[inner]).all()
    first = places.first[inner]
    children = np.sort(np.concatenate([first, first + 1, places.begin[:-1]]))
    np.testing.assert_array_equal(children, own)
    np.testing.assert_array_equal(places.reference[first], e.left[places.reference[inner]])
    np.testing.assert_array_equal(places.reference[first + 1], e.right[places.reference[inner]])
    assert (np.diff(places.begin) > 0).all()
    leaves = ~places.reference[~inner]
    assert sorted(leaves.tolist()) == list(range(e.leaf_values.shape[0]))
