"""Each pass on small Programs: the text before and after is kept in tests/golden/passes.

Set SQLML_UPDATE_GOLDEN=1 to write the files anew, and read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Program, render
from sqlml.passes import KERNEL_PASSES, MODEL_PASSES, TENSOR_PASSES
from sqlml.passes.fold_arguments import fold_arguments
from sqlml.passes.lower import lower

GOLDEN = Path(__file__).parents[2] / "golden" / "passes"


def three(b: Builder) -> Value:
    return b.op("concat", *[b.input(n, "float64") for n in "abc"])


def row(b: Builder, *numbers: float) -> Value:
    return b.constant(np.array(numbers))


def scaled(b: Builder, x: Value) -> Value:
    return b.op("div", b.op("sub", x, row(b, 1.0, 2.0, 3.0)), row(b, 2.0, 4.0, 0.5))


def linear(b: Builder, x: Value, *weights: float) -> Value:
    return b.op("linear", x, weights=np.array([weights]).T, bias=np.array([0.5]))


def checked(b: Builder, x: Value, allow_nan: bool = False) -> Value:
    return b.op("require_finite", x, features=("a", "b", "c"), allow_nan=allow_nan, step="Ridge")


def stump(b: Builder, x: Value, feature: int, threshold: float) -> Value:
    return b.op(
        "tree_ensemble",
        x,
        roots=np.array([0], np.int32),
        feature=np.array([feature], np.int32),
        threshold=np.array([threshold], x.type.dtype),
        left=np.array([-1], np.int32),
        right=np.array([-2], np.int32),
        default_left=np.array([True]),
        leaf_values=np.array([[1.0], [2.0]]),
        target=np.array([0], np.int32),
        base=np.zeros(1),
        compare="le",
    )


def constants() -> Program:
    b = Builder()
    factor = b.op("add", row(b, 1.0), row(b, 2.0))
    return b.build({"label": b.op("mul", b.input("a", "float64"), factor)})


def repeats() -> Program:
    b = Builder()
    x = checked(b, checked(b, three(b)), allow_nan=True)
    x = b.op("maximum", b.op("maximum", x, row(b, 0.0)), row(b, 1.0))
    return b.build({"transform": b.op("neg", b.op("neg", b.op("abs", b.op("neg", x))))})


def sigmoid_label() -> Program:
    b = Builder()
    p = b.op("sigmoid", b.op("cast", b.input("a", "float64"), dtype="float32"))
    half = b.constant(np.array([0.5], np.float32))
    return b.build({"label": b.op("cast", b.op("gt", p, half), dtype="int64")})


def label_of_two_probabilities() -> Program:
    b = Builder()
    p = b.op("sigmoid", b.input("a", "float64"))
    return b.build(
        {"label": b.op("cast", b.op("gt", p, b.op("sub", row(b, 1.0), p)), dtype="int64")}
    )


def ignored_column() -> Program:
    b = Builder()
    return b.build({"label": linear(b, scaled(b, three(b)), 2.0, 0.0, -1.0)})


def selected_late() -> Program:
    b = Builder()
    x = checked(b, scaled(b, three(b)))
    return b.build({"transform": b.op("select", x, indices=np.array([2, 0]))})


def selected_trees() -> Program:
    """Three trees over three columns, of which the second and the first are selected."""
    b = Builder()
    inner, leaves = np.arange(3, dtype=np.int32), np.arange(6, dtype=np.int32)
    trees = b.op(
        "tree_ensemble",
        three(b),
        roots=inner,
        feature=inner,
        threshold=np.array([1.0, 2.0, 3.0]),
        left=~leaves[::2],
        right=~leaves[1::2],
        default_left=np.zeros(3, bool),
        leaf_values=leaves[:, None].astype(np.float64),
        target=inner,
        base=np.array([0.5, 0.25, 0.125]),
        compare="le",
    )
    return b.build({"score": b.op("select", trees, indices=np.array([1, 0]))})


def products_of_columns() -> Program:
    """Each column is a factor of several products, and is scaled once all the same."""
    b = Builder()
    x = scaled(b, three(b))
    factors = [b.op("select", x, indices=np.array(k)) for k in ([0, 0, 2], [0, 2, 2])]
    return b.build({"transform": b.op("mul", *factors)})


def selected_categories() -> Program:
    b = Builder()
    names = np.array(["basic", "free", "pro"], object)
    code = b.op("encode", b.input("plan", "string"), categories=names, missing=2)
    hot = b.op("one_hot", code, width=3, dtype="float64")
    return b.build({"transform": b.op("select", hot, indices=np.array([2, 0]))})


def scaled_linear() -> Program:
    b = Builder()
    return b.build({"label": linear(b, scaled(b, checked(b, three(b))), 2.0, 1.0, -1.0)})


def checked_late() -> Program:
    b = Builder()
    x = b.op("impute", three(b), fill=np.array([0.0, 9.0, 0.0]), missing=float("nan"))
    names = np.array(["free", "pro"], object)
    code = b.op("encode", b.input("plan", "string"), categories=names, missing=-1)
    hot = b.op("one_hot", code, width=2, dtype="float64")
    x = b.op("concat", scaled(b, checked(b, x, allow_nan=True)), hot)
    features = ("a", "b", "c", "free", "pro")
    x = b.op("require_finite", x, features=features, allow_nan=False, step="Lasso")
    return b.build({"transform": x})


def scaled_beside_others() -> Program:
    b = Builder()
    x = b.op("concat", scaled(b, three(b)), b.input("d", "float64"))
    return b.build({"label": linear(b, x, 2.0, 1.0, -1.0, 3.0)})


def scaled_tree() -> Program:
    b = Builder()
    x = b.op("cast", scaled(b, checked(b, three(b))), dtype="float32")
    return b.build({"label": stump(b, x, 1, 0.25)})


def one_hot_tree(zeros_are_missing: bool = False) -> Program:
    """Tests of two categories and of a number; a test of a one-hot column that always holds."""
    b = Builder()
    names = np.array(["basic", "free", "pro"], object)
    code = b.op("encode", b.input("plan", "string"), categories=names, missing=-1)
    hot = b.op("one_hot", code, width=3, dtype="float64")
    x = b.op("concat", b.input("a", "float64"), b.op("select", hot, indices=np.array([2, 0])))
    if zeros_are_missing:
        x = b.op("where", b.op("eq", x, row(b, 0.0)), row(b, np.nan), x)
    tree = b.op(
        "tree_ensemble",
        b.op("cast", x, dtype="float32"),
        roots=np.array([0], np.int32),
        feature=np.array([1, 2, 0, 2], np.int32),
        threshold=np.array([0.5, 0.5, 1.25, 1.0], np.float32),
        left=np.array([1, -1, -2, -4], np.int32),
        right=np.array([3, 2, -3, -5], np.int32),
        default_left=np.array([True, False, False, True]),
        leaf_values=np.arange(5.0).reshape(5, 1),
        target=np.array([0], np.int32),
        base=np.zeros(1),
        compare="le",
    )
    return b.build({"score": tree})


def sparse_one_hot_tree() -> Program:
    """Make the tree of `one_hot_tree` read a sparse matrix, in which zeros are missing values."""
    return one_hot_tree(zeros_are_missing=True)


def imputed_tree() -> Program:
    b = Builder()
    x = b.op("impute", three(b), fill=np.array([0.0, 9.0, 0.0]), missing=float("nan"))
    return b.build({"label": stump(b, x, 1, 0.25)})


def twice_the_same() -> Program:
    b = Builder()
    x = three(b)
    return b.build({"label": b.op("add", b.op("neg", x), b.op("neg", x))})


def voting() -> Program:
    b = Builder()
    x = three(b)
    both = b.op("add", linear(b, x, 1.0, 2.0, 3.0), linear(b, x, 4.0, 5.0, 6.0))
    return b.build({"label": both})


def scattered() -> Program:
    b = Builder()
    x = b.input("x", "float32", 4)
    parts = [b.op("select", x, indices=np.array(i)) for i in ([1, 2], [3])]
    wide = b.op("concat", *[b.op("cast", p, dtype="float64") for p in parts])
    return b.build({"transform": b.op("cast", wide, dtype="float32")})


def two_stumps() -> Program:
    b = Builder()
    x = three(b)
    return b.build({"label": b.op("add", stump(b, x, 0, 1.0), stump(b, x, 1, 1.0))})


def voting_stumps() -> Program:
    """Each tree votes for one of two classes, with a weight."""
    b = Builder()
    x, total = three(b), None
    for feature, weight in enumerate((0.5, 0.75, 2.0)):
        tree = stump(b, x, feature, 1.0)
        index = b.op("cast", b.op("gt", tree, b.op("sub", row(b, 3.0), tree)), dtype="int64")
        is_class = b.op("eq", index, b.constant(np.array([0, 1])))
        votes = b.op("mul", b.op("where", is_class, row(b, 1.0), row(b, -1.0)), row(b, weight))
        total = votes if total is None else b.op("add", total, votes)
    assert total is not None
    return b.build({"label": b.op("argmax", total, axis=1)})


def lowered_stump() -> Program:
    return lower(two_stumps(), "gemm")


def lowered_walk() -> Program:
    b = Builder()
    x = b.input("a", "float64")
    leaf = b.op("cast", b.op("gt", x, row(b, 0.0)), dtype="int64")
    table = b.constant(np.array([1, 0, 2, 1], np.int64))
    at = b.op("add", b.op("mul", leaf, b.constant(np.array([2], np.int64))), leaf)
    taken = b.op("take", b.constant(np.array([0.5, 1.5, 2.5])), b.op("take", table, at))
    return b.build({"score": taken})


def hot_product() -> Program:
    b = Builder()
    code = b.op("encode", b.input("c", "float64"), categories=np.arange(5.0), missing=-1)
    hot = b.op("one_hot", code, width=5, dtype="float64")
    x = b.op("concat", b.input("a", "float64"), hot)
    return lower(b.build({"score": linear(b, x, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)}), "tt")


def a_is_two(program: Program) -> Program:
    """`fold_arguments` for rows where a = 2."""
    return fold_arguments(program, {"a": 2.0})


def checked_stump() -> Program:
    b = Builder()
    x = b.op("select", checked(b, three(b)), indices=np.array([0, 2]))
    return b.build({"score": stump(b, b.op("cast", x, dtype="float32"), 1, 0.5)})


def counted_stump() -> Program:
    b = Builder()
    value = stump(b, b.input("a", "float64"), 0, 0.5)
    known = {"cover": np.array([10.0]), "leaf_cover": np.array([7.0, 3.0]), "gain": np.array([2.5])}
    again = b.op("tree_ensemble", b.value(0), **{**b.node(value).attrs, **known})
    return b.build({"score": again})


def wide_categories() -> Program:
    b = Builder()
    x = b.op("one_hot", b.input("code", "int64"), width=64, dtype="float64")
    some = b.op("select", x, indices=np.arange(64)[::-1])
    row = b.op("concat", b.input("a", "float64"), some, b.input("b", "float64"))
    weights = np.arange(132.0).reshape(66, 2)
    return b.build({"score": b.op("linear", row, weights=weights, bias=np.array([0.5, 1.0]))})


PROGRAMS: Mapping[str, tuple[Callable[[], Program], ...]] = MappingProxyType(
    {
        "drop_statistics": (counted_stump,),
        "fold_constants": (constants,),
        "fold_missing_zeros": (sparse_one_hot_tree,),
        "fold_into_leaves": (voting_stumps,),
        "fold_monotone": (repeats,),
        "compare_margins": (sigmoid_label, label_of_two_probabilities),
        "inject_selection": (ignored_column, two_stumps),
        "push_selection": (
            selected_late,
            products_of_columns,
            selected_categories,
            selected_trees,
        ),
        "sink_checks": (checked_late,),
        "fold_scaling": (scaled_linear, scaled_beside_others),
        "fold_into_trees": (scaled_tree, imputed_tree),
        "settle_missing": (checked_stump,),
        "share_work": (twice_the_same,),
        "merge_linears": (voting,),
        "take_categories": (wide_categories,),
        "fold_layout": (scattered,),
        "fold_one_hot": (one_hot_tree,),
        "sparse_weights": (hot_product,),
        "narrow_dtypes": (lowered_stump, lowered_walk),
        "fold_arguments": (two_stumps,),
    }
)

PASSES = MappingProxyType(
    {
        **{p.__name__: p for p in (*MODEL_PASSES, *KERNEL_PASSES, *TENSOR_PASSES)},
        "fold_arguments": a_is_two,
    }
)


def test_every_pass_has_a_golden_file() -> None:
    assert set(PROGRAMS) == set(PASSES)
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(PASSES)


_TINY = re.compile(r"(?<=value=\[)[0-9.]+e-(0[78]|1[56])(?=\])")
"""The margin at which a sigmoid exceeds 1/2: a few units in the last place of 1, in float32 or
float64, which depend on the processor."""


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_text_before_and_after(name: str) -> None:
    made = []
    for make in PROGRAMS[name]:
        before = make()
        after = PASSES[name](before)
        assert render(after) != render(before), f"{name} does nothing to {make.__name__}"
        title = make.__name__.replace("_", " ")
        texts = (_TINY.sub("tiny", render(program)) for program in (before, after))
        made.append("# {}\n\n{}\n\nbecomes\n\n{}\n".format(title, *texts))
    text = "\n".join(made)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("SQLML_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_a_second_run_changes_nothing() -> None:
    for name, makes in PROGRAMS.items():
        for make in makes:
            once = PASSES[name](make())
            if "a" in once.inputs or name != "fold_arguments":
                assert render(PASSES[name](once)) == render(once), name
