"""Random tree ensembles, and rows that hit their thresholds, categories and NaN directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.ir.builder import Builder
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble

WIDTH = 5
THRESHOLDS = (0.0, -0.0, 1.0, 2.0, 0.1, -1.5, np.inf, -np.inf, 1e-45)


@dataclass(frozen=True)
class Recipe:
    """What to grow; each tree is single-leaf, random or a chain."""

    seed: int
    trees: int = 5
    depth: int = 5
    dtype: str = "float32"
    leaves: str = "float32"
    values: int = 1
    outputs: int = 1
    compare: str = "lt"
    sets: bool = False
    chain: bool = False
    single: str = ""  # "some" or "all" sets have one category; those have no words.


def grow(recipe: Recipe) -> Ensemble:
    """The ensemble of `recipe`, the same at each call."""
    rng = np.random.default_rng(recipe.seed)
    nodes: list[dict[str, Any]] = []
    members: dict[int, Any] = {}

    def node(depth: int, spine: bool, limit: int) -> int:
        i = len(nodes)
        value = rng.normal(size=recipe.values) * 10.0 ** rng.integers(-6, 7)
        bare: dict[str, Any] = {"feature": 0, "threshold": 0.0, "left": 0, "right": 0}
        nodes.append(bare | {"leaf": True, "nan": False, "v": value})
        if depth < limit and (spine or (not recipe.chain and rng.random() < 0.75)):
            threshold = rng.normal() if rng.random() < 0.5 else rng.choice(THRESHOLDS)
            nodes[i].update(
                feature=int(rng.integers(WIDTH)),
                threshold=threshold,
                leaf=False,
                nan=bool(rng.random() < 0.5),
            )
            if recipe.sets and rng.random() < 0.5:
                size = int(rng.integers(0, 30))
                if recipe.single == "all" or (recipe.single and rng.random() < 0.7):
                    size = 1
                members[i] = rng.choice(70, size, replace=False)
            side = bool(rng.random() < 0.5)
            nodes[i]["left"] = node(depth + 1, spine and side, limit)
            nodes[i]["right"] = node(depth + 1, spine and not side, limit)
        return i

    # The first tree and all chains are as deep as asked for, the others of any depth up to it.
    limits = rng.integers(0, recipe.depth + 1, recipe.trees)
    limits[slice(None) if recipe.chain else slice(1)] = recipe.depth
    roots = [node(0, recipe.chain, int(limit)) for limit in limits]

    def field(name: str, dtype: str) -> Any:
        return np.array([n[name] for n in nodes]).astype(dtype)

    raw = RawTrees(
        roots=np.array(roots, np.int64),
        feature=field("feature", "int64"),
        threshold=field("threshold", recipe.dtype),
        left=field("left", "int64"),
        right=field("right", "int64"),
        leaf=field("leaf", "bool"),
        default_left=field("nan", "bool"),
        value=np.array([n["v"] for n in nodes]).reshape(len(nodes), recipe.values),
        sets=members or None,
    )
    with np.errstate(over="ignore"):  # leaves of 10^6 in float16
        ensemble = build_ensemble(
            raw,
            target=rng.integers(0, recipe.outputs - recipe.values + 1, recipe.trees),
            base=rng.normal(size=recipe.outputs).astype(recipe.leaves),
            compare=recipe.compare,
        )
    if not recipe.single:
        return ensemble
    return drop_words(ensemble, (rng.random(ensemble.nodes) < 0.5) | (recipe.single == "all"))


def drop_words(e: Ensemble, at: np.ndarray) -> Ensemble:
    """`e` with sets of one category written as thresholds at those of the nodes `at`."""
    if e.set_offsets is None or e.set_words is None:
        return e
    categories = e.find_only_categories()
    single = (categories >= 0) & at
    sizes = np.diff(e.set_offsets)
    return replace(
        e,
        single=single,
        threshold=np.where(single, categories, e.threshold).astype(e.threshold.dtype),
        set_words=e.set_words[np.repeat(~single, sizes)],
        set_offsets=np.append(0, np.cumsum(np.where(single, 0, sizes))).astype(np.int32),
    )


def covered(e: Ensemble, seed: int = 0) -> Ensemble:
    """`e` with leaf values of similar size, and a cover for each node; some covers are 0."""
    rng = np.random.default_rng(seed)
    leaves = rng.integers(0, 9, e.leaf_values.shape[0]).astype(np.float64)
    cover = np.zeros(e.nodes)
    for node in reversed(range(e.nodes)):  # a child's number is above its parent's
        for child in (int(e.left[node]), int(e.right[node])):
            cover[node] += cover[child] if child >= 0 else leaves[~child]
    values = rng.normal(size=e.leaf_values.shape).astype(e.leaf_values.dtype)
    return replace(e, leaf_values=values, cover=cover, leaf_cover=leaves)


def program_of(e: Ensemble, width: int = WIDTH) -> Program:
    """A Program that scores `e` on its input "x"."""
    b = Builder()
    x = b.input("x", e.threshold.dtype.name, width)
    return verify(b.build({"score": b.op("tree_ensemble", x, **e.attrs())}))


def rows_for(e: Ensemble, n: int, seed: int = 0) -> np.ndarray:
    """(n, WIDTH) rows: thresholds and the floats beside them, categories, NaN, infinities."""
    rng = np.random.default_rng(seed)
    dtype = e.threshold.dtype
    up, down = (np.nextafter(e.threshold, np.array(s * np.inf, dtype)) for s in (1, -1))
    pool = np.concatenate([e.threshold, up, down, np.arange(-2, 75), np.arange(0, 70, 3) + 0.5])
    pool = np.append(pool, [np.nan] * 40 + [np.inf, -np.inf, -0.0, 1e30, -1e30, 2.0**31, 2.0**40])
    with np.errstate(over="ignore"):
        return rng.choice(pool, (n, WIDTH)).astype(dtype)
