"""How a fitted model of `sklearn.neighbors` searches: metric, algorithm and ties, as attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.kernels.pairwise import dense
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_METRICS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("euclidean", "l2", "sqeuclidean", "seuclidean"), "sqeuclidean"),
        **dict.fromkeys(("manhattan", "l1", "cityblock"), "manhattan"),
        **dict.fromkeys(("chebyshev", "infinity"), "chebyshev"),
        **dict.fromkeys(("minkowski", "p"), "minkowski"),
        **{name: name for name in ("hamming", "canberra", "braycurtis", "cosine", "mahalanobis")},
    }
)
"""scikit-learn's metric -> the operator's."""

_IN_ORDER = frozenset(_METRICS) - {"hamming", "cosine", "mahalanobis"}
"""Metrics whose brute search keeps a heap; the others' partition all distances."""


def metric_attrs(model: Any, metric: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """The operator's attributes for a metric of scikit-learn.

    Raises:
        UnsupportedModelError: a metric that we do not cover.
    """
    step = type(model).__name__
    if callable(metric) or not isinstance(metric, str):
        raise UnsupportedModelError(
            f"{step} has a Python object as its metric, which cannot run inside SQL; "
            "use a metric by name"
        )
    if metric == "precomputed":
        raise UnsupportedModelError(
            f"{step} has metric='precomputed': its input is a matrix of distances, not a table "
            "of features; use a metric by name"
        )
    if metric not in _METRICS:
        raise UnsupportedModelError(
            f"{step} has metric {metric!r}, which sqlml does not cover; it covers "
            + ", ".join(sorted(_METRICS))
        )
    attrs: dict[str, Any] = {"metric": _METRICS[metric]}
    left = {key: value for key, value in params.items() if value is not None}
    if attrs["metric"] == "minkowski":
        attrs |= _minkowski(float(left.pop("p", 2)))
        if "w" in left and attrs["metric"] in ("minkowski", "sqeuclidean"):
            attrs["weights"] = np.asarray(left.pop("w"), np.float64)
    if metric == "seuclidean" and "V" in left:
        attrs["weights"] = 1.0 / np.asarray(left.pop("V"), np.float64)
    if metric == "mahalanobis" and left.keys() & {"V", "VI"}:
        covariance, inverse = left.pop("V", None), left.pop("VI", None)
        given = np.linalg.inv(covariance) if inverse is None else inverse
        attrs["inverse"] = np.asarray(given, np.float64)
    elif metric == "mahalanobis":
        raise _without_inverse(step)
    if left or (metric == "seuclidean" and "weights" not in attrs):
        raise UnsupportedModelError(
            f"{step} has metric {metric!r} with metric_params {sorted(params)}, which sqlml does "
            "not cover"
        )
    return attrs


def _without_inverse(step: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{step} has metric 'mahalanobis' and raises on every row: its search takes only the "
        "inverse of the covariance; fit it with metric_params={'VI': numpy.linalg.inv(V)}"
    )


def _minkowski(p: float) -> dict[str, Any]:
    if p == 2:
        return {"metric": "sqeuclidean"}
    if p == 1:
        return {"metric": "manhattan"}
    return {"metric": "chebyshev"} if np.isinf(p) else {"metric": "minkowski", "p": p}


def search_attrs(model: Any) -> dict[str, Any]:
    """Points, metric and rule for ties of a fitted model with `_fit_method`."""
    metric = model.effective_metric_
    attrs = metric_attrs(model, metric, model.effective_metric_params_)
    attrs["points"] = dense(model._fit_X)
    if model._fit_method in _TREES:
        if metric == "braycurtis":
            # It breaks the triangle inequality, so the tree skips points that are near.
            raise UnsupportedModelError(
                f"{type(model).__name__} searches a tree with metric 'braycurtis', which does not "
                "find the nearest points; fit it with algorithm='brute'"
            )
        attrs |= _TREES[model._fit_method](model._tree)
        attrs["ties"] = model._fit_method
        return attrs
    if metric == "mahalanobis" and set(model.effective_metric_params_) != {"VI"}:
        raise _without_inverse(type(model).__name__)  # scipy takes nothing else
    # A search among integers or float32 goes another way than one among float64.
    native = np.dtype(getattr(model._fit_X, "dtype", np.float64)) == np.float64
    sparse = hasattr(model._fit_X, "toarray")
    attrs["ties"] = "heap" if metric in _IN_ORDER and native and not sparse else "partition"
    if metric == "sqeuclidean":
        attrs["squared"] = True
    by_product = metric in ("euclidean", "sqeuclidean") and attrs["ties"] == "heap"
    if by_product or (metric == "cosine" and not sparse):
        attrs["expanded"] = True  # "l2" and "minkowski" with weights are computed directly
    return attrs


def nearest(model: Any, frame: Frame, k: int) -> tuple[Value, Value]:
    """Distances (n, k) and numbers (n, k) int64 of the nearest fitted points.

    Raises:
        UnsupportedModelError: fewer points than k were fitted.
    """
    attrs = search_attrs(model)
    points = len(attrs["points"])
    if k > points:
        raise UnsupportedModelError(
            f"{type(model).__name__} asks for {k} neighbours, but was fitted on {points} rows; "
            "it raises on every row, so fit it with a smaller n_neighbors"
        )
    builder = frame.builder
    found = builder.op("nearest", numbers(frame, type(model).__name__), k=k, **attrs)
    distance = builder.op("select", found, indices=np.arange(k))
    index = builder.op("select", found, indices=np.arange(k, 2 * k))
    return distance, builder.op("cast", index, dtype="int64")


def within(model: Any, frame: Frame) -> tuple[Value, Value]:
    """Distances (n, m) to all fitted points, and whether each lies within the radius (n, m)."""
    attrs = search_attrs(model)
    builder = frame.builder
    own = ("points", "metric", "p", "weights", "inverse", "expanded")
    kept = {key: attrs[key] for key in own if key in attrs}
    reduced = builder.op("pairwise", numbers(frame, type(model).__name__), **kept)
    radius = float(model.radius)
    if attrs["metric"] == "sqeuclidean" and "squared" not in attrs:
        distance, radius = builder.op("sqrt", reduced), radius * radius
    elif attrs["metric"] == "mahalanobis":
        distance = builder.op("sqrt", reduced)
        if attrs["ties"] == "partition":  # scipy has no squares
            reduced = distance
        else:
            radius = radius * radius
    elif attrs["metric"] == "minkowski":
        p = attrs["p"]
        distance, radius = builder.op("pow", reduced, 1.0 / p), radius**p
    else:
        distance = reduced
    return distance, builder.op("le", reduced, radius)


def inverse_distances(builder: Builder, distance: Value) -> Value:
    """1 / distance; in a row with distances of 0, 1 for these and 0 for the others."""
    weights = builder.op("div", 1.0, distance)
    touching = builder.op("eq", weights, np.inf)
    touching = builder.op("cast", touching, dtype="float64")
    any_touching = builder.op("max", touching, axis=1)
    some = builder.op("gt", any_touching, 0.0)
    return builder.op("where", some, touching, weights)


def weighting(model: Any) -> str:
    """ "uniform" or "distance".

    Raises:
        UnsupportedModelError: the weights are a function.
    """
    if callable(model.weights):
        raise UnsupportedModelError(
            f"{type(model).__name__} has a Python function as its weights, which cannot run "
            "inside SQL; use weights='uniform' or 'distance'"
        )
    return str(model.weights or "uniform")


def _nodes(tree: Any) -> tuple[Array, Array, Array, Array]:
    _, order, nodes, bounds = tree.get_arrays()
    ranges = np.stack([nodes["idx_start"], nodes["idx_end"]], axis=1).astype(np.int64)
    radius = np.asarray(nodes["radius"], np.float64)
    return np.asarray(order, np.int64), ranges, radius, np.asarray(bounds, np.float64)


def _kd_tree(tree: Any) -> dict[str, Any]:
    order, leaves, _, bounds = _nodes(tree)
    return {"order": order, "leaves": leaves, "bounds": np.concatenate(list(bounds), axis=1)}


def _ball_tree(tree: Any) -> dict[str, Any]:
    order, leaves, radius, bounds = _nodes(tree)
    joined = np.concatenate([bounds[0], radius[:, None]], axis=1)
    return {"order": order, "leaves": leaves, "bounds": joined}


_TREES: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {"kd_tree": _kd_tree, "ball_tree": _ball_tree}
)
