"""Checks of the kernels of rows accept sqlml's own calls, and no call that leaves an array."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from sqlml.backends.native.jit.specialise import FLAG, reads, specialise, to_kinds
from sqlml.backends.native.kernel_calls import INPUT, RESULT, Call, RowKernel, Rows
from sqlml.backends.native.rows import column_kernels, matmul_tiles, normal_distribution
from sqlml.backends.native.rows.column_kernels import LineKernel
from sqlml.backends.native.rows.combinations import make_combination_kernel
from sqlml.backends.native.rows.distance_kernels import make_pairwise_kernel
from sqlml.backends.native.rows.first_nearest import make_first_nearest_kernel
from sqlml.backends.native.rows.linear_kernels import _one_output, _outputs
from sqlml.backends.native.rows.number_codes import make_code_kernel
from sqlml.backends.native.rows.piecewise_kernels import (
    make_bspline_kernel,
    make_interpolation_kernel,
    make_search_kernel,
)
from sqlml.backends.native.rows.sparse import call_add, call_add_products, call_fill
from sqlml.backends.native.rows.weighted_median import make_median_kernel
from sqlml.backends.native.text.city_hash import make_number_hash_kernel
from sqlml.ir.operators.categories import Combination, pack_combinations
from sqlml.types import ROWS, TensorType
from tests.support.exported_calls import (
    find_calls,
    has_rows_where_annotated,
    is_safe,
    load_guarded,
    name_kernel,
    run_damaged,
)
from tests.support.guarded_arrays import (
    list_arguments,
    replace_constants,
    run_cases,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

DOUBLE, SINGLE, LONG = (np.dtype(name) for name in ("float64", "float32", "int64"))
RNG = np.random.default_rng(0)
NORMALS = RNG.normal(size=200)


def x(width: int, dtype: np.dtype[Any] = DOUBLE) -> Rows:
    return Rows(INPUT, dtype, width)


def out(width: int, dtype: np.dtype[Any] = DOUBLE) -> Rows:
    return Rows(RESULT, dtype, width)


def call(kernel: RowKernel | None, width: int, dtype: np.dtype[Any] = DOUBLE) -> Call:
    """A call of a kernel for rows of some width."""
    assert kernel is not None
    return kernel.make_call(x(width, dtype), out(kernel.width, kernel.dtype))


def call_line(function: Callable[..., Any], width: int, *constants: Any) -> Call:
    kernel = LineKernel.of(function, TensorType("float64", (ROWS, width)), *constants)
    return kernel.make_call(x(width).flatten(), out(width).flatten())


def call_limits(width: int) -> Call:
    low, high = np.full(width, -1.0), np.full(width, 2.0)
    kinds = (reads(DOUBLE, 2), *to_kinds(low, high), FLAG)
    return Call(specialise(column_kernels._is_outside, kinds), (x(width), low, high, True))


def call_linear(function: Callable[..., Any], columns: int, outputs: int) -> Call:
    weights = NORMALS[: columns * outputs].reshape(columns, outputs).astype(np.float32)
    kernel = RowKernel.of(function, SINGLE, (weights, weights[0].copy()), outputs, SINGLE)
    return call(kernel, columns, SINGLE)


def call_norms() -> Call:
    means, rotations = NORMALS[:12].reshape(3, 4), np.zeros((3, 8, 4))
    rotations[:, :5] = NORMALS[:60].reshape(3, 5, 4)
    constants = (means, rotations.reshape(-1, 4), 5)
    return call(RowKernel.of(matmul_tiles._norms, DOUBLE, constants, 3, DOUBLE), 4)


def call_combinations() -> Call:
    tables = [
        Combination(np.array([0, 2]), np.array([-9, 4, 1 << 62]), NORMALS[:8].reshape(4, 2)),
        Combination(np.array([], np.int64), np.array([0]), NORMALS[:2].reshape(2, 1)),
        Combination(np.array([3, 2, 2]), np.arange(20), NORMALS[:21].reshape(21, 1)),
    ]
    return call(make_combination_kernel(pack_combinations(tables)), 5)


def find_neighbour_calls() -> list[Call]:
    calls = []
    for options in (
        {"algorithm": "kd_tree"},
        {"algorithm": "ball_tree", "metric": "manhattan"},
        {"algorithm": "brute", "metric": "chebyshev"},
    ):
        points = RNG.normal(size=(60, 3))
        model = KNeighborsRegressor(3, leaf_size=5, **options).fit(points, points[:, 0])
        calls += find_calls(model, "_find_nearest")[:1]
    return calls


def find_first_neighbour_calls() -> list[Call]:
    numbers = NORMALS.astype(np.float32)
    return [
        call(make_first_nearest_kernel({"points": points, "squared": k == 1, "k": k}), 3, SINGLE)
        for k, points in ((1, numbers[:3].reshape(1, 3)), (4, numbers[:150].reshape(50, 3)))
    ]


POINTS, OFFSETS = np.sort(NORMALS[:9]), np.array([0, 4, 5, 9])
EMPTY_COLUMN = np.array([0, 4, 4, 9])
KNOTS = np.cumsum(np.ones((3, 9)), axis=1) - 4.0

SAMPLES: Mapping[str, Callable[[], Sequence[Call]]] = {
    "_convert": lambda: [
        column_kernels.call_convert(x(3, SINGLE).flatten(), out(3).flatten()),
        column_kernels.call_convert(x(1, LONG).flatten(), out(1, np.dtype(np.int32)).flatten()),
    ],
    "_take": lambda: [
        column_kernels.call_take(x(6), np.array([5, 0, 2, 2]), out(4)),
        column_kernels.call_take(x(6), np.array([1, 5]), Rows(RESULT, DOUBLE, 2, 1, 4)),
        column_kernels.call_take(Rows(INPUT, SINGLE, 3, 2, 7), np.arange(3), out(3)),
    ],
    "_shift": lambda: [
        column_kernels.call_shift(x(2, LONG), np.array([0, 3]), out(2, np.dtype(np.int32)))
    ],
    "_impute": lambda: [
        call(column_kernels.make_impute_kernel(NORMALS[:3], np.nan), 3),
        call(column_kernels.make_impute_kernel(NORMALS[:3].astype(np.float32), 2.0), 3, SINGLE),
    ],
    "_one_hot": lambda: [call(column_kernels.make_one_hot_kernel(5, LONG, DOUBLE), 1, LONG)],
    "_argmax": lambda: [call(column_kernels.make_argmax_kernel(DOUBLE), 4)],
    "_has_infinity": lambda: [column_kernels.call_check(x(4), True)],
    "_has_nan_times_zero": lambda: [column_kernels.call_check(x(4, SINGLE), False)],
    "_is_outside": lambda: [call_limits(3)],
    "_map": lambda: [
        call_line(column_kernels._map, 3, NORMALS[:12], NORMALS[12:24], code, True)
        for code in (column_kernels.SUB_DIV, column_kernels.MUL_ADD, column_kernels.ABOVE)
    ],
    "_normalise": lambda: [
        call_line(column_kernels._normalise, width, np.array([width, code]), NORMALS[:1])
        for width, code in ((3, 0), (19, 1), (8, 2))
    ],
    "_one_output": lambda: [call_linear(_one_output, 4, 1)],
    "_outputs": lambda: [call_linear(_outputs, 4, 3)],
    "_pairwise": lambda: [
        call(make_pairwise_kernel({"points": NORMALS[:12].reshape(3, 4), "metric": metric}), 4)
        for metric in ("manhattan", "chebyshev", "sqeuclidean", "dot")
    ],
    "_find_nearest": find_neighbour_calls,
    "_find_first": find_first_neighbour_calls,
    "_find_medians": lambda: [
        call(make_median_kernel(np.abs(NORMALS[:width]), DOUBLE), width) for width in (1, 9)
    ],
    "number_codes._look_up": lambda: [
        call(make_code_kernel(np.array([3.0, -1.0, np.nan, 7.0]), 2, DOUBLE), 1)
    ],
    "_find_probabilities": lambda: [
        call(normal_distribution.make_probability_kernel(3, DOUBLE), 3)
    ],
    "_find_quantiles": lambda: [call(normal_distribution.make_quantile_kernel(3, DOUBLE), 3)],
    "_search": lambda: [
        call(make_search_kernel(POINTS, offsets, side, dtype), 3)
        for offsets, side, dtype in ((OFFSETS, "left", LONG), (EMPTY_COLUMN, "right", DOUBLE))
    ],
    "_interpolate": lambda: [call(make_interpolation_kernel(POINTS, NORMALS[:9], OFFSETS), 3)],
    "_bspline": lambda: [call(make_bspline_kernel(KNOTS, degree), 3) for degree in (0, 1, 3)],
    "find_combinations": lambda: [call_combinations()],
    "_fill": lambda: [call_fill(NORMALS[:3], out(3))],
    "_add": lambda: [call_add(NORMALS[:3], out(3))],
    "_add_products": lambda: [call_add_products(x(4), NORMALS[:12].reshape(4, 3), out(3))],
    "_norms": lambda: [call_norms()],
    "hash_numbers": lambda: [call(make_number_hash_kernel(), 1)],
}
"""Maps the end of a kernel's name to calls of it, as sqlml makes them."""


def test_samples_are_of_all_kernels_of_rows() -> None:
    for name, make_calls in SAMPLES.items():
        for sample in make_calls():
            assert name_kernel(sample).endswith(name)
            assert is_safe(sample)
            assert has_rows_where_annotated(sample)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_accepted_stays_inside_its_arrays(name: str) -> None:
    samples = SAMPLES[name]()
    outcome = run_cases(lambda case: run_damaged(samples, case), range(300))
    assert not outcome.failures, outcome
    assert outcome.accepted > 5


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLES)
def test_scratch_arrays_are_not_left_either(name: str) -> None:
    samples = SAMPLES[name]()
    guarded = load_guarded(samples)
    outcome = run_cases(
        lambda case: run_damaged(samples, case, guarded), range(20_000), total_seconds=60
    )
    assert not outcome.failures, outcome


def put(index: Any, value: Any) -> Callable[[Any], Any]:
    """Return a function that copies an array with another number at an index."""

    def change(array: Any) -> Any:
        changed = array.copy()
        changed[index] = value
        return changed

    return change


LEAST, MOST = -(1 << 63), (1 << 63) - 1

HOSTILE: Mapping[str, tuple[str, Mapping[int, Any]]] = {
    "a result wider than the rows": ("_convert", {1: out(4).flatten()}),
    "a column after the last": ("_take", {1: put(0, 6)}),
    "a column before the first": ("_take", {1: put(3, -1)}),
    "the least column": ("_take", {1: put(3, LEAST)}),
    "too few results of columns": ("_take", {2: out(3)}),
    "too few offsets of classes": ("_shift", {1: np.zeros(1, np.int64)}),
    "rows wider than the fill": ("_impute", {0: x(4), 3: out(4)}),
    "no missing number": ("_impute", {2: np.empty(0)}),
    "no code": ("_one_hot", {0: x(0, LONG)}),
    "no maximum": ("_argmax", {0: x(0)}),
    "a map of no numbers": ("_map", {1: np.empty(0), 2: np.empty(0)}),
    "a map with too few factors": ("_map", {2: np.empty(11)}),
    "norms of rows without columns": ("_normalise", {1: put(0, 0)}),
    "norms of rows of negative width": ("_normalise", {1: put(0, -3)}),
    "norms of rows of another width": ("_normalise", {1: put(0, 2)}),
    "weights for fewer columns": ("_outputs", {1: np.zeros((3, 3), np.float32)}),
    "weights without numbers": ("_outputs", {1: np.zeros((0, 1 << 40), np.float32)}),
    "weights for fewer outputs": ("_outputs", {1: np.zeros((4, 2), np.float32)}),
    "too few biases": ("_outputs", {2: np.zeros(2, np.float32)}),
    "points of fewer columns": ("_pairwise", {1: np.zeros((3, 3))}),
    "no neighbours": ("_find_nearest", {7: out(1)}),
    "neighbours in expanded form": ("_find_nearest", {5: put(2, 1)}),
    "no settings of neighbours": ("_find_nearest", {5: np.empty(0, np.int64)}),
    "too few numbers of points": ("_find_nearest", {2: np.arange(59)}),
    "a leaf that begins too early": ("_find_nearest", {3: put((-1, 0), -1)}),
    "a leaf that ends too late": ("_find_nearest", {3: put((-1, 1), 61)}),
    "a leaf with the most points": ("_find_nearest", {3: put((-1, 1), MOST)}),
    "leaves that share points": ("_find_nearest", {3: put((-1, 0), 0)}),
    "a tree of which a child is missing": ("_find_nearest", {3: lambda a: a[:-1].copy()}),
    "a tree without nodes": ("_find_nearest", {3: np.empty((0, 2), np.int64)}),
    "nodes without numbers": ("_find_nearest", {3: np.empty(((1 << 40) + 1, 0), np.int64)}),
    "bounds of balls for boxes": ("_find_nearest", {4: lambda a: a[:, :4].copy()}),
    "too few panels of points": ("_find_first", {2: 49}),
    "no points": ("_find_first", {2: 0}),
    "a negative count of points": ("_find_first", {2: LEAST}),
    "points without a panel": ("_find_first", {1: np.empty((0, 3, 48), np.float32), 2: 0}),
    "points of no columns": ("_find_first", {0: x(0, SINGLE), 1: np.empty((1, 0, 48), np.float32)}),
    "narrow panels": ("_find_first", {1: np.empty((1, 3, 47), np.float32)}),
    "more neighbours than points": ("_find_first", {4: out(4)}),
    "half a neighbour": ("_find_first", {4: out(3)}),
    "medians of no columns": ("_find_medians", {0: x(0), 1: np.empty(0)}),
    "too few weights of medians": ("_find_medians", {0: x(2)}),
    "too few codes of numbers": ("number_codes._look_up", {2: np.empty(2)}),
    "numbers without an empty slot": ("number_codes._look_up", {1: np.nan_to_num}),
    "six slots of numbers": ("number_codes._look_up", {1: np.full(6, np.nan), 2: np.empty(6)}),
    "no slots of numbers": ("number_codes._look_up", {1: np.empty(0), 2: np.empty(0)}),
    "polynomials without coefficients": ("_find_quantiles", {2: np.empty((2, 0))}),
    "one polynomial": ("_find_quantiles", {3: np.empty((1, 8))}),
    "edges that begin too early": ("_search", {2: put(0, -1)}),
    "edges that descend": ("_search", {2: put(1, 6)}),
    "edges that end too late": ("_search", {2: put(-1, 10)}),
    "edges from the least to the most": ("_search", {2: np.array([0, LEAST, MOST, 9])}),
    "too few columns of edges": ("_search", {2: np.array([0, 4, 9])}),
    "no points between which to interpolate": ("_interpolate", {4: EMPTY_COLUMN}),
    "too few slopes": ("_interpolate", {3: np.empty(8)}),
    "too few values": ("_interpolate", {2: np.empty(8)}),
    "splines of a negative degree": ("_bspline", {2: -1, 3: out(3 * 9)}),
    "splines of too high a degree": ("_bspline", {2: 4, 3: out(3 * 4)}),
    "splines of the least degree": ("_bspline", {2: LEAST}),
    "knots of too few columns": ("_bspline", {1: KNOTS[:2].copy()}),
    "too few results of splines": ("_bspline", {3: out(23)}),
    "a combination of a missing column": ("find_combinations", {1: put(0, 5)}),
    "a combination of a missing position": ("find_combinations", {2: put(0, 3)}),
    "positions that end too late": ("find_combinations", {3: put(-1, 6)}),
    "positions that descend": ("find_combinations", {3: put(0, -2)}),
    "a table without empty slots": ("find_combinations", {4: np.ones_like}),
    "a table that begins too early": ("find_combinations", {5: put(0, -1)}),
    "a table that ends too late": ("find_combinations", {5: put(-1, 100)}),
    "tables that share slots": ("find_combinations", {5: put(1, 0)}),
    "a table of one slot": ("find_combinations", {6: put(1, 64)}),
    "a table of too many slots": ("find_combinations", {6: put(1, LEAST)}),
    "values that begin too early": ("find_combinations", {9: put(0, -1)}),
    "values that begin too late": ("find_combinations", {9: put(2, MOST)}),
    "a negative count of values": ("find_combinations", {10: put(0, -1)}),
    "too many values per slot": ("find_combinations", {10: put(2, 2), 11: out(5)}),
    "too few results of combinations": ("find_combinations", {11: out(3)}),
    "fewer numbers than results": ("_fill", {0: np.empty(2)}),
    "fewer sums than results": ("_add_products", {1: np.empty((4, 2))}),
    "no classes": ("_norms", {1: np.empty((0, 4)), 4: out(0)}),
    "norms of no columns": ("_norms", {0: x(0), 1: np.empty((3, 0)), 2: np.empty((1 << 40, 0))}),
    "a negative count of norms": ("_norms", {3: -1}),
    "too many norms": ("_norms", {3: 9}),
    "rotations that are not padded": ("_norms", {2: np.zeros((15, 4))}),
    "hashes of no numbers": ("hash_numbers", {0: x(0)}),
}
"""Maps what is wrong to a kernel and changed arguments of its first sample."""


@pytest.mark.parametrize("wrong", HOSTILE)
def test_hostile_arguments_are_refused(wrong: str) -> None:
    name, changes = HOSTILE[wrong]
    sample = SAMPLES[name]()[0]
    items = list_arguments(sample.arguments)
    changed = {k: change(items[k]) if callable(change) else change for k, change in changes.items()}
    assert not is_safe(replace_constants(sample, changed))
