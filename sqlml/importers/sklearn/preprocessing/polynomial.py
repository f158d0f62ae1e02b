"""PolynomialFeatures: each degree is the one before times one more column, as scikit-learn does."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value

Term = tuple[int, ...]
"""The columns that are multiplied, in rising order; a column twice for its square."""


def polynomial_features(model: Any, frame: Frame) -> Frame:
    """(n, terms) float64: 1 when include_bias, then the products of each degree in turn."""
    check(model, "n_output_features_", "_min_degree", "_max_degree")
    b = frame.builder
    x = numbers(frame, "PolynomialFeatures")
    parts: list[Value] = [_ones(b, x)] if model.include_bias else []
    names = ["1"] if model.include_bias else []
    choose = combinations if model.interaction_only else combinations_with_replacement
    terms: list[Term] = [(i,) for i in range(frame.width)]
    value = x
    for degree in range(1, int(model._max_degree) + 1):
        if degree > 1:
            place = {term: i for i, term in enumerate(terms)}
            terms = list(choose(range(frame.width), degree))
            if not terms:
                break
            before = np.array([place[term[1:]] for term in terms], np.int64)
            first = np.array([term[0] for term in terms], np.int64)
            value = b.op(
                "mul", b.op("select", value, indices=before), b.op("select", x, indices=first)
            )
        if degree >= model._min_degree:
            parts.append(value)
            names += [" ".join(frame.names[i] for i in term) for term in terms]
    made = b.beside(parts)
    return Frame(b, (made,), tuple(names), frame.sparse)


def _ones(b: Builder, x: Value) -> Value:
    first = b.op("select", x, indices=np.zeros(1, np.int64))
    return b.op("where", b.op("isnan", first), 1.0, 1.0)
