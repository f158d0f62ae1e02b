"""Programs of one operator each, with inputs that are hard for it: NaN, infinities, ties, NULL."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.hashes import city_hash32
from sqlml.ir.operators import elementwise as elementwise_ops
from sqlml.ir.operators.categories import Combination, pack_combinations
from sqlml.ir.operators.categories import hash_combinations as hashes_of
from sqlml.ir.program import Program
from sqlml.types import NESTED
from tests.contract import distance_cases, item_cases, opaque_cases, text_cases
from tests.contract.text_cases import beside, sparse, words
from tests.support.random_trees import Recipe, covered, grow

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, np.nan, np.inf, -np.inf, 1e-45, 3e38, -88.8, 104.0]
WORDS = ["a", "b", "", None, "ß", "b ", float("nan"), "a", "\udc80", "zz"]
FLOATS = ("float32", "float64")

Make = Callable[[Builder], Value]


def floats(dtype: str, rows: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    some = np.concatenate([SPECIAL, rng.normal(size=20)])
    return rng.choice(some, (rows, width)).astype(dtype)


def batch(program: Program, rows: int) -> dict[str, np.ndarray]:
    """Rows for each input, by its type."""
    made: dict[str, np.ndarray] = {}
    rng = np.random.default_rng(7)
    for seed, (name, i) in enumerate(program.inputs.items()):
        kind = program.nodes[i].type
        shape = (rows, kind.width)
        if kind.dtype in NESTED:
            made[name] = rng.choice(np.array(item_cases.ROWS[kind.dtype], object), shape)
        elif kind.dtype == "string":
            made[name] = rng.choice(np.array(WORDS, object), shape)
        elif kind.dtype == "bool":
            made[name] = rng.random(shape) < 0.5
        elif kind.dtype.startswith("int"):
            made[name] = rng.integers(-3, 5, shape).astype(kind.dtype)
        else:
            made[name] = floats(kind.dtype, rows, kind.width, seed)
    return made


def elementwise(op: str, dtype: str, arity: int) -> Make:
    def make(b: Builder) -> Value:
        return b.op(op, *[b.input(f"x{i}", dtype, 3) for i in range(arity)])

    return make


def with_constant(op: str, dtype: str) -> Make:
    """The second side is one row, which is broadcast."""

    def make(b: Builder) -> Value:
        return b.op(op, b.input("x", dtype, 3), b.constant(np.array([1, 0, 2]).astype(dtype)))

    return make


def on(dtype: str, width: int, op: str, /, **attrs: object) -> Make:
    return lambda b: b.op(op, b.input("x", dtype, width), **attrs)


def cube(dtype: str, op: str, /, *constants: np.ndarray, **attrs: object) -> Make:
    """An operator of (n, 2, 3) values."""

    def make(b: Builder) -> Value:
        x = b.op("reshape", b.input("x", dtype, 6), shape=(2, 3))
        return flat(b, b.op(op, x, *map(b.constant, constants), **attrs))

    return make


def flat(b: Builder, x: Value) -> Value:
    return b.op("reshape", x, shape=(int(np.prod(x.type.shape[1:])),))


def gather(b: Builder) -> Value:
    codes = b.op("abs", b.input("k", "int64", 7))
    return b.op("gather", b.input("x", "float32", 5), codes)


def take(table: np.ndarray) -> Make:
    def make(b: Builder) -> Value:
        taken = b.op("take", b.constant(table), b.op("abs", b.input("k", "int64", 2)))
        return flat(b, taken) if table.ndim > 1 else taken

    return make


def where(dtype: str) -> Make:
    def make(b: Builder) -> Value:
        sides = b.input("x", dtype, 3), b.input("y", dtype, 1)
        return b.op("where", b.input("c", "bool", 3), *sides)

    return make


def concat(*dtypes: str) -> Make:
    return lambda b: b.op("concat", *[b.input(f"x{i}", d, 2) for i, d in enumerate(dtypes)])


def constant(b: Builder) -> Value:
    x = b.input("x", "float64", 1)
    folded = b.op("add", b.constant(np.array([1.0, 2.0])), b.constant(np.array([0.5])))
    return b.op("add", b.op("mul", x, b.constant(np.zeros(1))), folded)


def accumulate(dtype: str, target: list[int], values: int, outputs: int) -> Make:
    def make(b: Builder) -> Value:
        x = b.op("reshape", b.input("x", dtype, len(target) * values), shape=(len(target), values))
        first = np.linspace(-1, 1, outputs).astype(dtype)
        return b.op("accumulate", x, base=first, target=np.array(target, np.int32))

    return make


def moderate(b: Builder, dtype: str) -> Value:
    """Values whose sums do not overflow in one order of addition and not in another."""
    return b.op("minimum", b.input("x", dtype, 4), b.constant(np.array([1e30], dtype)))


def matmul(dtype: str) -> Make:
    weights = np.arange(12).reshape(4, 3).astype(dtype) / 7
    return lambda b: b.op("matmul", moderate(b, dtype), b.constant(weights))


def counts(b: Builder) -> Value:
    """The product of the GEMM strategy: rows of 0 and 1, and paths."""
    tested = b.op("cast", b.op("isnan", b.input("x", "float64", 6)), dtype="float32")
    paths = np.random.default_rng(0).integers(-1, 2, (2, 3, 4)).astype(np.float32)
    return flat(b, b.op("batch_matmul", b.op("reshape", tested, shape=(2, 3)), b.constant(paths)))


def linear(dtype: str) -> Make:
    weights, bias = np.linspace(-1, 1, 8).reshape(4, 2), np.array([0.5, -3])
    arrays = {"weights": weights.astype(dtype), "bias": bias.astype(dtype)}
    return lambda b: b.op("linear", moderate(b, dtype), **arrays)


def hashes(*categories: str) -> np.ndarray:
    return np.array([city_hash32(c) for c in categories], np.int64)


def whole(b: Builder) -> Value:
    """Hashes of whole numbers, small and large ones, and of some that are not whole."""
    x = b.input("x", "float64")
    return b.op("hash_categories", b.op("add", b.op("trunc", x), b.op("mul", x, x)))


def combinations(b: Builder) -> Value:
    """Of small numbers alone and in pairs, some known and some not; of no columns; of no keys."""
    x = b.op("trunc", b.input("x", "float64", 3))
    pairs = np.array([[i, j, 0] for i in range(-2, 3) for j in range(-1, 2)], np.float64)
    given = []
    for columns, width in (([1], 2), ([0, 1], 1), ([], 1), ([2, 0, 1], 3)):
        places = np.array(columns, np.int32)
        keys = np.unique(hashes_of(pairs, places))[: 9 if columns else 0]
        values = np.arange((keys.size + 1) * width, dtype=np.float32).reshape(-1, width)
        given.append(Combination(places, keys, values))
    return b.op("look_up_combinations", x, **pack_combinations(given))


def known(b: Builder) -> Value:
    codes = b.op("abs", b.input("k", "int64", 2))
    return b.op("require_known", codes, feature="k", step="OrdinalEncoder")


def finite(dtype: str) -> Make:
    def make(b: Builder) -> Value:
        x = b.op("trunc", b.op("sigmoid", b.input("x", dtype, 2)))
        names = {"features": ("a", "b"), "step": "DecisionTreeClassifier"}
        return b.op("require_finite", x, allow_nan=True, **names)

    return make


def inside(dtype: str) -> Make:
    def make(b: Builder) -> Value:
        x = b.op("trunc", b.op("sigmoid", b.input("x", dtype, 2)))
        bounds = {"low": np.array([0, -1], dtype), "high": np.array([1, 1], dtype)}
        names = {"features": ("a", "b"), "step": "Ridge"}
        return b.op("require_finite", x, allow_nan=True, **names, **bounds)

    return make


def points(dtype: str, name: str, counts: list[int]) -> dict[str, object]:
    """Break points for columns, some of them twice and one infinite."""
    rng = np.random.default_rng(4)
    columns = [np.sort(rng.choice([-2.5, 0.0, 1.0, 2.5, 7.0], count)) for count in counts]
    columns[-1][-1] = np.inf if name == "edges" else 9
    offsets = np.cumsum([0, *counts]).astype(np.int64)
    return {name: np.concatenate(columns).astype(dtype), "offsets": offsets}


VALUES = np.linspace(-3, 5, 12)
KNOTS = np.sort(np.random.default_rng(6).normal(size=(2, 14)).round(1), axis=1)
DONORS = np.where(
    np.random.default_rng(8).random((9, 3)) < 0.3,
    np.nan,
    np.random.default_rng(9).integers(-3, 3, (9, 3)),
)


def linear_leaves(counts: list[int], trees: int, outputs: int, dtype: str) -> Make:
    """Leaves with `counts` terms each; numbers of leaves reach beyond both ends."""
    rng = np.random.default_rng(1)
    total = sum(counts)
    attrs = {
        "value": np.linspace(-9, 9, len(counts)).astype(dtype),
        "const": np.linspace(2, 1, len(counts)).astype(dtype),
        "begin": np.cumsum([0, *counts]).astype(np.int32),
        "feature": rng.integers(0, 4, total).astype(np.int32),
        "weights": rng.normal(size=total).astype(dtype),
        "base": np.linspace(-1, 1, outputs).astype(dtype),
        "target": (np.arange(trees) % outputs).astype(np.int32),
    }

    def make(b: Builder) -> Value:
        return b.op("linear_leaves", b.input("k", "int64", trees), moderate(b, dtype), **attrs)

    return make


def trees(columns: int = 5, **recipe: object) -> Make:
    e = grow(Recipe(seed=3, **recipe))
    return on(e.threshold.dtype.name, columns, "tree_ensemble", **e.attrs())


def contributions(columns: int = 5, **recipe: object) -> Make:
    e = covered(grow(Recipe(seed=3, **recipe)))
    player = (np.arange(columns) % 3).astype(np.int32)
    attrs = {**e.attrs(), "player": player, "players": 4}
    return on(e.threshold.dtype.name, columns, "tree_contributions", **attrs)


def sampled(inputs: int, background: int) -> Make:
    """The contributions of numbers, a text among them, to a product of all of them."""
    inner = Builder()
    texts = inner.input("x0", "string")
    code = inner.op("encode", texts, categories=words("a", "b"), missing=-1)
    value = inner.op("cast", code, dtype="float64")
    for k in range(1, inputs):
        value = inner.op("mul", inner.op("add", value, 1.0), inner.input(f"x{k}", "float64"))
    program = inner.build({"y": value})
    draw = np.random.default_rng(2)
    held = np.full((background, inputs), "", object)
    held[:, 0] = draw.choice(["a", "b", "c"], background)
    attrs = {
        "program": np.frombuffer(store.dumps(program), np.uint8),
        "numbers": draw.normal(size=(background, inputs)),
        "texts": held.ravel(),
        "missing": draw.random((background, inputs)) < 0.2,
        "width": 1,
        "orders": 2,
        "seed": 3,
    }

    def make(b: Builder) -> Value:
        some = [b.input("t", "string")]
        for k in range(1, inputs):
            x = b.op("maximum", b.input(f"m{k}", "float64"), -2.0)
            some.append(b.op("minimum", x, 2.0))
        return b.op("sampled_contributions", *some, **attrs)

    return make


def both(make: Callable[[str], Make]) -> list[Make]:
    return [make(dtype) for dtype in FLOATS]


CASES: dict[str, list[Make]] = {
    "input": [lambda b, d=d: b.input("x", d, 2) for d in (*FLOATS, "int32", "bool", "string")],
    "constant": [constant],
    **{op: both(lambda d, op=op: elementwise(op, d, 1)) for op in elementwise_ops.UNARY_FLOAT},
    **{
        op: [elementwise(op, d, 1) for d in (*FLOATS, "int64", "int32")]
        for op in elementwise_ops.UNARY_NUMERIC
    },
    **{
        op: [
            *(elementwise(op, d, 2) for d in (*FLOATS, "int64", "int16")),
            *(with_constant(op, d) for d in FLOATS),
        ]
        for op in elementwise_ops.ARITHMETIC
    },
    "div": [*both(lambda d: elementwise("div", d, 2)), *both(lambda d: with_constant("div", d))],
    **{
        op: [elementwise(op, d, 2) for d in (*FLOATS, "int64", "bool")]
        + both(lambda d, op=op: with_constant(op, d))
        for op in elementwise_ops.COMPARISON
    },
    **{op: [elementwise(op, "bool", 2)] for op in elementwise_ops.LOGICAL},
    "shift_right": [
        lambda b: b.op("shift_right", b.input("x", "int64", 3), b.constant(np.array([0, 1, 5])))
    ],
    "bit_and": [elementwise("bit_and", d, 2) for d in ("int64", "int32", "int8")],
    "not": [elementwise("not", "bool", 1)],
    "isnan": [elementwise("isnan", d, 1) for d in (*FLOATS, "string")],
    "where": [where(d) for d in (*FLOATS, "int64", "bool", "string")],
    "cast": [
        *(on("float64", 3, "cast", dtype=d) for d in ("float32", "float64", "bool")),
        *(on("bool", 3, "cast", dtype=d) for d in ("float32", "int64", "int8")),
        *(on("int64", 3, "cast", dtype=d) for d in ("float32", "int32", "bool")),
        on("float32", 3, "cast", dtype="float64"),
        sparse("cast", dtype="float32"),
    ],
    "concat": [
        concat("float32"),
        concat("float64", "float64"),
        concat("int64", "float32"),
        concat("bool", "float32", "int8"),
        concat("string", "string"),
        beside,
    ],
    "select": [
        on("float64", 4, "select", indices=np.array([2, 0, 0])),
        on("float32", 4, "select", indices=np.array([0, 1, 2, 3])),
        on("float64", 4, "select", indices=np.array([1, 2])),
        on("int64", 4, "select", indices=np.zeros(0, np.int64)),
        on("string", 2, "select", indices=np.array([1])),
        sparse("select", indices=np.array([4, 0, 1])),
        sparse("select", indices=np.array([1, 0, 1, 1])),
        sparse("select", indices=np.zeros(0, np.int64)),
    ],
    "reshape": [cube("float64", "neg"), cube("int64", "neg")],
    "take": [
        take(np.arange(5.0)),
        take(np.arange(10, dtype=np.float32).reshape(5, 2)),
        take(np.array([True, False, True, False, False])),
    ],
    "gather": [gather],
    "sum": [
        *(on(d, 5, "sum", axis=1) for d in (*FLOATS, "int32")),
        on("float64", 0, "sum", axis=1),
        cube("float64", "sum", axis=2),
    ],
    "max": [*(on(d, 5, "max", axis=1) for d in (*FLOATS, "int64")), cube("float32", "max", axis=1)],
    "min": [*(on(d, 5, "min", axis=1) for d in (*FLOATS, "int64")), cube("float32", "min", axis=2)],
    "argmax": [
        *(on(d, 5, "argmax", axis=1) for d in (*FLOATS, "int64")),
        on("float64", 1, "argmax", axis=1),
        cube("float32", "argmax", axis=2),
    ],
    "softmax": [
        on(d, k, "softmax", sum_dtype=s)
        for d, s in (("float32", "float64"), ("float64", "float64"), ("float32", "float32"))
        for k in (0, 1, 4)
    ],
    "weighted_median": [
        on(d, len(w), "weighted_median", weights=np.array(w))
        for d in FLOATS
        for w in ([1.0], [2.0, 1, 1, 0.5], [0.25] * 4, [0.0, 0, 0])
    ],
    "accumulate": [
        accumulate("float32", [0] * 40, 1, 1),
        accumulate("float64", [0, 1, 2] * 9, 1, 3),
        accumulate("float32", [2, 0, 1, 1, 2, 0, 0], 2, 4),
        accumulate("float64", [], 1, 2),
        accumulate("float32", [0, 0, 0], 3, 3),
    ],
    "matmul": both(matmul),
    "batch_matmul": [counts],
    "fill": [
        on("string", 2, "fill", value="gone"),
        on("string", 2, "fill", value="gone", missing="b"),
    ],
    "encode": [
        *(on("string", 1, "encode", categories=words("b", "a", ""), missing=m) for m in (-1, 0, 3)),
        on("string", 1, "encode", categories=words("a", "b", "a"), missing=-1),
        on("string", 1, "encode", categories=words("a", "\udc80"), missing=-1),
        on("string", 1, "encode", categories=words(), missing=0),
        on("float64", 1, "encode", categories=np.array([2.5, 0.0, -1.0, np.inf]), missing=4),
        on("float32", 1, "encode", categories=np.array([1, np.nan, 1], np.float32), missing=-1),
        on("float64", 1, "encode", categories=np.arange(-500.0, 500.0), missing=2),
        on("float64", 1, "encode", categories=np.zeros(0), missing=0),
        on("int64", 1, "encode", categories=np.array([3, -1, 0]), missing=-1),
        on("bool", 1, "encode", categories=np.array([True, False]), missing=-1),
    ],
    "encode_hashed": [
        on("string", 1, "encode_hashed", hashes=hashes("a", "ß", "zz"), missing=m) for m in (-1, 3)
    ],
    "hash_categories": [on("string", 1, "hash_categories"), whole],
    "look_up_combinations": [combinations],
    "require_known": [known],
    "require_finite": both(finite) + both(inside),
    "one_hot": [
        *(on("int64", 1, "one_hot", width=w, dtype=d) for w in (0, 1, 3) for d in FLOATS),
        on("int32", 1, "one_hot", width=4, dtype="bool"),
        on("int8", 1, "one_hot", width=200, dtype="float64"),
    ],
    "impute": [
        on(d, 3, "impute", fill=np.array([9, np.nan, -1], d), missing=m)
        for d in FLOATS
        for m in (float("nan"), 1.0, 2.5)
    ],
    "linear": [
        *both(linear),
        sparse("linear", weights=np.linspace(-1, 1, 16).reshape(8, 2), bias=np.array([0.5, -3])),
        sparse(
            "linear", "float32", weights=np.ones((8, 1), np.float32), bias=np.ones(1, np.float32)
        ),
    ],
    **distance_cases.CASES,
    **item_cases.CASES,
    **opaque_cases.CASES,
    **text_cases.CASES,
    **{
        op: [
            *both(lambda d, op=op: elementwise(op, d, 2)),
            *both(lambda d, op=op: with_constant(op, d)),
        ]
        for op in ("pow", "mod")
    },
    "search_sorted": [
        on(d, 3, "search_sorted", **points(d, "edges", [2, 0, 5]), side=side)
        for d in FLOATS
        for side in ("left", "right")
    ],
    "interpolate": [
        on("float64", 3, "interpolate", **points("float64", "points", [4, 1, 7]), values=VALUES)
    ],
    "bspline": [
        on("float64", 2, "bspline", knots=KNOTS[:, : 2 * degree + 4], degree=degree)
        for degree in (0, 1, 3, 4)
    ],
    "knn_impute": [
        on("float64", 3, "knn_impute", rows=DONORS, neighbours=k, weights=weights, order=order)
        for k in (1, 3, 99)
        for weights, order in (("uniform", "F"), ("distance", "C"))
    ],
    "linear_leaves": [
        linear_leaves([1, 0, 3, 2], 5, 2, "float64"),
        linear_leaves([2, 4], 3, 1, "float32"),
        linear_leaves([0, 0], 2, 1, "float64"),
        linear_leaves([1], 0, 3, "float64"),
    ],
    "tree_ensemble": [
        trees(),
        trees(trees=1, depth=0),
        trees(trees=0),
        *(trees(columns, trees=4, depth=0, values=2, outputs=3) for columns in (0, 5)),
        trees(dtype="float64", compare="le", leaves="float64", sets=True),
    ],
    "sampled_contributions": [sampled(3, 4), sampled(9, 2), sampled(2, 1)],
    "tree_contributions": [
        contributions(),
        contributions(trees=1, depth=0),
        contributions(trees=0),
        contributions(trees=2, depth=40, chain=True),
        contributions(trees=4, depth=3, values=2, outputs=3),
        contributions(dtype="float64", compare="le", leaves="float64", sets=True),
    ],
}

ROUNDS = {
    *("exp", "log", "log1p", "expm1", "sqrt", "sigmoid", "tanh", "softmax"),
    *("sum", "matmul", "linear", "pairwise", "pow", "interpolate", "bspline"),
    *("tree_contributions", "sampled_contributions"),
    *(set(elementwise_ops.UNARY_FLOAT) - set(elementwise_ops.ROUNDING)),
}
"""Operators whose last digits depend on a library's series or order of summation (torch's float32
sqrt too: MKL's is off by one in the last place)."""
