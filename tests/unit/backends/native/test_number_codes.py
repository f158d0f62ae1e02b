"""The kernel that looks up numbers gives the codes that the operator `encode` gives."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.rows.number_codes import make_code_kernel
from sqlml.ir import reference

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e300, 2.0**53, 0.5]

CATEGORIES = {
    "none": np.zeros(0),
    "NaN alone": np.array([np.nan]),
    "equal ones": np.array([1.0, 0.0, -0.0, 1.0, np.nan, 1.0]),
    "special": np.array(SPECIAL),
    "consecutive": np.arange(5000.0),
    "powers of two": 2.0 ** np.arange(-1000, 1000),
    "multiples of a large power": np.arange(-3000.0, 3000.0) * 2.0**40,
    "random": np.random.default_rng(0).normal(size=20_000),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CATEGORIES)
@pytest.mark.parametrize("missing", [-1, 0])
def test_codes(name: str, dtype: str, missing: int) -> None:
    categories = CATEGORIES[name][:300] if name != "random" else CATEGORIES[name]
    with np.errstate(over="ignore"):
        rows = np.concatenate([CATEGORIES[name], -CATEGORIES[name], SPECIAL]).astype(dtype)
    rows = np.random.default_rng(1).permutation(rows)[:3000].reshape(-1, 1)
    attrs = {"categories": categories, "missing": missing}
    expected_codes = reference.FUNCTIONS["encode"]([rows.astype(np.float64)], attrs)
    got = make_code_kernel(categories, missing, np.dtype(dtype))(rows)
    np.testing.assert_array_equal(got, expected_codes)


def test_codes_of_columns_between_others() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    out = np.full((4, 3), 9.0)
    kernel = make_code_kernel(np.array([4.0, 7.0]), -1, np.dtype(np.float64))
    kernel.kernel(rows[:, 1:2], *kernel.constants, out[:, 2:])
    assert out.tolist() == [[9, 9, -1], [9, 9, 0], [9, 9, 1], [9, 9, -1]]
