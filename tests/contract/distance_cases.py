"""Programs of one distance operator each, for `operator_cases.CASES`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators import distances

Make = Callable[[Builder], Value]


def moderate(b: Builder, dtype: str, width: int, gaps: bool = False) -> Value:
    """Whole numbers between -4 and 4, many of them equal; no infinity, and NaN only in `gaps`."""
    x = b.input("x", dtype, width)
    if not gaps:
        x = b.op("where", b.op("isnan", x), b.constant(np.zeros(1, dtype)), x)
    x = b.op("maximum", x, b.constant(np.full(1, -4, dtype)))
    return b.op("trunc", b.op("minimum", x, b.constant(np.full(1, 4, dtype))))


def points(dtype: str, rows: int = 40, width: int = 3) -> np.ndarray:
    return np.random.default_rng(2).integers(-4, 5, (rows, width)).astype(dtype)


def pairwise(metric: str, dtype: str, **attrs: object) -> Make:
    def make(b: Builder) -> Value:
        x = moderate(b, dtype, 3)
        if metric == "chi2":
            x = b.op("abs", x)
        fixed = points(dtype)
        fixed = np.abs(fixed) if metric == "chi2" else fixed
        return b.op("pairwise", x, points=fixed, metric=metric, **attrs)

    return make


def nearest(metric: str, k: int, ties: str = "heap", gaps: bool = False, **attrs: object) -> Make:
    def make(b: Builder) -> Value:
        fixed = points("float64")
        return b.op(
            "nearest",
            moderate(b, "float64", 3, gaps),
            points=fixed,
            metric=metric,
            k=k,
            ties=ties,
            **attrs,
        )

    return make


def tree(kind: str) -> dict[str, np.ndarray]:
    """Two levels over the points sorted by their first column."""
    fixed = points("float64")
    order = np.argsort(fixed[:, 0], kind="stable")
    leaves = np.array([[0, 40], [0, 20], [20, 40]])
    held = [fixed[order[start:end]] for start, end in leaves]
    if kind == "kd_tree":
        bounds = np.stack([np.concatenate([p.min(0), p.max(0)]) for p in held])
    else:
        centres = [p.mean(0) for p in held]
        radii = [np.sqrt(((p - c) ** 2).sum(1)).max() for p, c in zip(held, centres, strict=True)]
        bounds = np.stack([[*c, r] for c, r in zip(centres, radii, strict=True)])
    return {"order": order, "leaves": leaves, "bounds": bounds}


def couple(classes: int) -> Make:
    def make(b: Builder) -> Value:
        pairs = classes * (classes - 1) // 2
        x = b.op("add", moderate(b, "float64", pairs), b.constant(np.full(1, 4.5)))
        x = b.op("div", x, b.constant(np.full(1, 9.0)))
        return b.op("couple", x, classes=classes)

    return make


def require(b: Builder) -> Value:
    x = moderate(b, "float64", 1)
    fine = b.op("lt", x, b.constant(np.full(1, 5.0)))
    return b.op("require", x, fine, message="the value is 5 or more")


_PARAMETERS: dict[str, list[dict[str, object]]] = {
    "minkowski": [{"p": 3.0}, {"p": 1.5, "weights": True}],
    "sqeuclidean": [{}, {"weights": True}],
    "mahalanobis": [{"inverse": True}],
}

INVERSE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 3.0]])


def _with_weights(attrs: dict[str, object], dtype: str) -> dict[str, object]:
    if "inverse" in attrs:
        return {**attrs, "inverse": INVERSE.astype(dtype)}
    if "weights" not in attrs:
        return attrs
    return {**attrs, "weights": np.array([0.5, 2.0, 0.0], dtype)}


CASES: dict[str, list[Make]] = {
    "pairwise": [
        pairwise(metric, dtype, **_with_weights(attrs, dtype))
        for metric in sorted(distances.METRICS)
        for attrs in _PARAMETERS.get(metric, [{}])
        for dtype in ("float64", "float32")
    ]
    + [pairwise(metric, "float64", expanded=True) for metric in ("sqeuclidean", "cosine")],
    "nearest": [
        *(nearest(m, 4) for m in ("sqeuclidean", "manhattan", "chebyshev", "canberra")),
        nearest("sqeuclidean", 1, squared=True),
        nearest("sqeuclidean", 40),
        nearest("sqeuclidean", 4, expanded=True),
        nearest("minkowski", 5, p=3.0),
        nearest("cosine", 5, "partition"),
        nearest("cosine", 5, "partition", expanded=True),
        nearest("mahalanobis", 5, "partition", inverse=INVERSE),
        nearest("hamming", 3, "partition"),
        nearest("sqeuclidean", 6, "kd_tree", **tree("kd_tree")),
        nearest("chebyshev", 6, "kd_tree", **tree("kd_tree")),
        nearest("sqeuclidean", 6, "ball_tree", **tree("ball_tree")),
        *(nearest(m, 4, gaps=True) for m in ("sqeuclidean", "manhattan", "chebyshev")),
        nearest("sqeuclidean", 4, expanded=True, gaps=True),
        *(
            nearest(m, 6, kind, gaps=True, **tree(kind))
            for m in ("sqeuclidean", "chebyshev")
            for kind in ("kd_tree", "ball_tree")
        ),
    ],
    "require": [require],
    "couple": [couple(k) for k in (2, 3, 6)],
}
