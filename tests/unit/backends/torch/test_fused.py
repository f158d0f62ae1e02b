"""Strategy fused: columns and layout by hand, kernels in Triton's interpreter and as PTX.

tests/gpu runs the same kernels on a GPU.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

from sqlml.backends.torch.backend import TorchBackend
from sqlml.backends.torch.fused_trees import WIDEST, Columns, collect_columns, make_layout
from sqlml.errors import BackendError
from sqlml.ir import reference
from sqlml.ir.operators.forests import find_exit_leaves
from sqlml.ir.trees import Ensemble
from sqlml.passes.lower import lower
from sqlml.planner.program.choose import Choice
from sqlml.planner.program.prepare_program import compile_core
from tests.support.random_trees import Recipe, grow, program_of, rows_for

no_triton = find_spec("triton") is None


def with_triton(test: Any) -> Any:
    """`make nightly` installs triton in an environment of its own, and runs these there."""
    skip = pytest.mark.skipif(no_triton, reason="triton is not installed")
    return pytest.mark.nightly(skip(test))


no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: see tests/gpu")

RECIPES = [
    Recipe(seed=1),
    Recipe(seed=2, compare="le", dtype="float64", leaves="float64"),
    Recipe(seed=3, dtype="float16", leaves="float16", outputs=2),
    Recipe(seed=4, trees=0, outputs=2),
    Recipe(seed=5, trees=3, depth=0),
    Recipe(seed=6, trees=9, depth=4, values=3, outputs=5),
    Recipe(seed=7, trees=9, depth=3, values=2, outputs=2, sets=True),
    Recipe(seed=8, trees=3, depth=14, chain=True),
    Recipe(seed=9, trees=3, depth=13, chain=True, sets=True, dtype="float64"),
]


def staged(c: Columns, x: np.ndarray) -> np.ndarray:
    """(n, C): what the kernel rank_columns writes, one column after the other."""
    made = np.empty((x.shape[0], c.feature.size), np.int64)
    for j, (feature, size) in enumerate(zip(c.feature, c.size, strict=True)):
        value = -x[:, feature] if c.negated[j] else x[:, feature]
        gone = np.isnan(value)
        if size < 0:
            made[:, j] = np.where(gone, c.missing, np.searchsorted(c.edges[j], value))
        else:
            inside = (value >= 0) & (value < size)
            made[:, j] = np.where(inside, np.where(inside, value, 0).astype(int), size + gone)
    return made


def test_a_test_of_ranks_is_the_test_of_the_values() -> None:
    for recipe in RECIPES:
        e = grow(recipe)
        if not e.nodes:
            continue
        c, x = collect_columns(e), rows_for(e, 200)
        ranks = staged(c, x)[:, c.column]
        left = x[:, e.feature] < e.threshold
        if e.compare == "le":
            left = x[:, e.feature] <= e.threshold
        left = np.where(np.isnan(x[:, e.feature]), e.default_left, left)
        turned = c.negated[c.column] != 0  # these tests hold where a row goes right
        number = ~c.categorical
        np.testing.assert_array_equal(
            (ranks <= c.test)[:, number], (left != turned)[:, number], str(recipe)
        )
        for i in np.flatnonzero(c.categorical):
            word = c.words[c.test[i] + (ranks[:, i] >> 5)]
            member = (word >> (ranks[:, i] & 31)) & 1
            at_left = find_exit_leaves(_stump(e, int(i)), x)[:, 0] == 0
            np.testing.assert_array_equal(member == 1, at_left)


def _stump(e: Ensemble, node: int) -> Ensemble:
    """The one node as a tree: leaf 0 is left, leaf 1 is right."""
    assert e.categorical is not None and e.set_offsets is not None and e.set_words is not None
    own = slice(node, node + 1)
    words = e.set_words[e.set_offsets[node] : e.set_offsets[node + 1]]
    return Ensemble(
        np.zeros(1, np.int32),
        e.feature[own],
        e.threshold[own],
        np.array([-1], np.int32),
        np.array([-2], np.int32),
        e.default_left[own],
        np.zeros((2, 1), np.float32),
        np.zeros(1, np.int32),
        np.zeros(1, np.float32),
        e.compare,
        e.categorical[own],
        np.array([0, words.size], np.int32),
        words,
    )


def test_shallow_trees_are_perfect_and_others_lie_level_by_level() -> None:
    shallow = grow(Recipe(seed=1, trees=4, depth=3))
    made = make_layout(shallow, collect_columns(shallow))
    assert made.perfect and made.node.dtype == np.int32
    assert made.values.shape[0] == (1 << made.depth).sum()
    deep = grow(Recipe(seed=8, trees=3, depth=14, chain=True))
    made = make_layout(deep, collect_columns(deep))
    assert not made.perfect and made.depth.tolist() == [14] * 3
    assert made.child.size == deep.nodes + deep.leaf_values.shape[0]
    # Both children of a node are slots of the same tree; every leaf is there once.
    assert sorted(~made.child[made.child < 0]) == list(range(deep.leaf_values.shape[0]))


def test_outputs_are_summed_together_where_the_same_trees_add_to_them() -> None:
    wide = grow(Recipe(seed=1, trees=3, depth=2, values=WIDEST + 2, outputs=WIDEST + 2))
    made = make_layout(wide, collect_columns(wide))
    assert made.output.tolist() == [0, WIDEST] and made.count.tolist() == [WIDEST, 2]
    assert made.terms.tolist() == [[0, 0], [1, 0], [2, 0], [0, 128], [1, 128], [2, 128]]
    e = grow(Recipe(seed=1, trees=3, depth=2, values=2, outputs=3))
    overlapping = Ensemble(**{**e.attrs(), "target": np.array([0, 1, 0], np.int32)})
    made = make_layout(overlapping, collect_columns(overlapping))
    assert made.output.tolist() == [0, 1, 2] and made.count.tolist() == [1, 1, 1]
    assert made.terms.tolist() == [[0, 0], [2, 0], [0, 1], [1, 0], [2, 1], [1, 1]]


@pytest.mark.skipif(not no_triton, reason="triton is installed")
def test_without_triton_the_error_names_the_fix() -> None:
    program = program_of(grow(Recipe(seed=1)))
    with pytest.raises(BackendError, match=r"needs triton, which pip install 'sqlml\[gpu\]'"):
        TorchBackend().compile(lower(program, "fused"), device="cpu")
    with pytest.raises(BackendError, match="cannot run this model .*strategy fused needs"):
        compile_core(program, Choice("torch", "fused", "cpu", "option"))


@with_triton
@no_gpu
def test_without_a_gpu_the_error_names_the_fix() -> None:
    with pytest.raises(BackendError, match="needs a GPU.*use strategy='tt'"):
        TorchBackend().compile(lower(program_of(grow(Recipe(seed=1))), "fused"))


@pytest.fixture
def interpreter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield


@with_triton
@no_gpu
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: str(r.seed))
def test_interpreted_kernels_are_bit_for_bit_the_reference(
    recipe: Recipe, interpreter: None
) -> None:
    e = grow(recipe)
    program = program_of(e)
    model = TorchBackend().compile(lower(program, "fused"))
    for rows in (0, 1, 129):
        x = rows_for(e, rows, recipe.seed)
        got, want = model.run({"x": x})["score"], reference.run(program, {"x": x})["score"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


COMPILE = """
import itertools
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from sqlml.backends.torch.triton_kernels import rank_columns, sum_trees

def ptx(kernel, pointers, numbers, constants):
    signature = {**{k: "*" + v for k, v in pointers.items()}, **dict.fromkeys(numbers, "i32")}
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(kernel, {k: signature[k] for k in kernel.arg_names}, constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return made.asm["ptx"]

for perfect, sets, width, leaf in [(1, 0, 1, "fp32"), (0, 1, 4, "fp64"), (1, 1, 2, "fp16")]:
    whole = ("child", "words", "depth", "first_slot", "first_value", "group_output",
             "group_count", "group_begin", "terms")
    pointers = {**dict.fromkeys(whole, "i32"), **dict.fromkeys(("values", "base", "out"), leaf)}
    pointers |= {"staged": "i32" if sets else "i16", "node": "i64" if sets else "i32"}
    numbers = ("rows", "columns", "leaf_values", "outputs", "groups")
    constants = dict(PERFECT=bool(perfect), SETS=bool(sets), PACKED=not sets, WIDTH=width,
                     ROWS=128)
    code = ptx(sum_trees, pointers, numbers, constants)
    assert ".target sm_90" in code and ".ftz" not in code, code
for x, edges in [("fp32", "fp32"), ("fp16", "fp32"), ("fp64", "fp64")]:
    pointers = {"x": x, "feature": "i32", "negated": "i8", "size": "i32", "edges": edges,
                "staged": "i16"}
    constants = dict(MISSING=32767, SETS=True, STEPS=8, EACH=32, ROWS=128)
    code = ptx(rank_columns, pointers, ("rows", "features", "columns"), constants)
    assert ".target sm_90" in code and ".ftz" not in code, code
print("compiled")
"""


@with_triton
def test_the_kernels_compile_for_hopper_and_keep_denormal_numbers() -> None:
    """The compiler needs no GPU; it finds what the interpreter lets pass."""
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True)
    assert done.stdout.strip() == "compiled", done.stderr
