"""`RECIPES`: any kind of tree ensemble, for property tests of backends."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.random_trees import Recipe

FLOATS = ("float16", "float32", "float64")

RECIPES = st.builds(
    Recipe,
    seed=st.integers(0, 2**32 - 1),
    trees=st.integers(0, 8),
    depth=st.integers(0, 8),
    dtype=st.sampled_from(FLOATS),
    leaves=st.sampled_from(FLOATS),
    values=st.integers(1, 3),
    outputs=st.integers(3, 5),
    compare=st.sampled_from(["lt", "le"]),
    sets=st.booleans(),
    chain=st.booleans(),
)
