"""`lower`: rewrite model operators as tensor operators, with a strategy for trees.

Checks, operators on strings and encoders with long lists of categories are not lowered. A tensor
backend runs these operators on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.tree_strategies import REFUSALS, STRATEGIES, measure_structure
from sqlml.types import FLOATS, Array, numpy_dtype


def lower_linear_leaves(builder: Builder, leaves: Value, x: Value, attrs: Attrs) -> Value:
    """Lower a linear_leaves operator on `leaves` (n, trees) and `x` (n, features).

    All trees are computed at once, term by term. For each k, a table has the weight and the feature
    of each leaf's k-th term. The order of additions is that of the reference interpreter.
    """
    missing_values, weights = attrs["value"], attrs["weights"]
    begin, features = (attrs[name].astype(np.int64) for name in ("begin", "feature"))
    term_counts = np.diff(begin)
    last_leaf = builder.constant(np.array([missing_values.size - 1], np.int64))
    leaf_index = builder.op("maximum", leaves, builder.constant(np.zeros(1, np.int64)))
    leaf_index = builder.op("minimum", leaf_index, last_leaf)

    def look_up(table: Array) -> Value:
        return builder.op("take", builder.constant(table), leaf_index)

    total = look_up(attrs["const"])
    is_missing: Value | None = None
    for k in range(int(term_counts.max(initial=0))):
        leaf_has_term = k < term_counts
        term_index = np.where(leaf_has_term, begin[:-1] + k, 0)
        has_term = look_up(leaf_has_term)
        term = builder.op("gather", x, look_up(features[term_index]))
        term_is_missing = builder.op("and", has_term, builder.op("isnan", term))
        if is_missing is not None:
            term_is_missing = builder.op("or", is_missing, term_is_missing)
        is_missing = term_is_missing
        product = builder.op("mul", look_up(weights[term_index]), term)
        total = builder.op("where", has_term, builder.op("add", total, product), total)
    if is_missing is not None:
        total = builder.op("where", is_missing, look_up(missing_values), total)
    total = builder.op("reshape", total, shape=(leaves.type.width, 1))
    return builder.op("accumulate", total, base=attrs["base"], target=attrs["target"])


MAX_CATEGORIES = 256
"""Maximum number of categories to compare with each row; longer lists stay on the host."""


def lower_model_ops(program: Program) -> Program:
    """Lower all model operators of `program`, except for trees, to tensor operators."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        lower_node = LOWERINGS.get(node.op)
        return None if lower_node is None else lower_node(builder, *inputs, node.attrs)

    return rewrite(program, rule, keep_inputs=True)


def _lower_linear(builder: Builder, x: Value, attrs: Attrs) -> Value | None:
    if x.type.sparse:
        return None  # This operator runs on the host.
    return builder.op("add", builder.op("matmul", x, attrs["weights"]), attrs["bias"])


def _lower_one_hot(builder: Builder, codes: Value, attrs: Attrs) -> Value | None:
    width: int = attrs["width"]
    if width > np.iinfo(numpy_dtype(codes.type.dtype)).max:
        codes = builder.op("cast", codes, dtype="int64")
    columns = np.arange(width, dtype=numpy_dtype(codes.type.dtype))
    return builder.op("cast", builder.op("eq", codes, columns), dtype=attrs["dtype"])


def _lower_impute(builder: Builder, x: Value, attrs: Attrs) -> Value | None:
    missing = np.array([attrs["missing"]], numpy_dtype(x.type.dtype))
    marks_nan = np.isnan(attrs["missing"])
    is_missing = builder.op("isnan", x) if marks_nan else builder.op("eq", x, missing)
    return builder.op("where", is_missing, attrs["fill"], x)


def _lower_encode(builder: Builder, x: Value, attrs: Attrs) -> Value | None:
    categories: Array = attrs["categories"]
    if x.type.dtype == "string" or not 0 < categories.size <= MAX_CATEGORIES:
        return None
    # The maximum of float32 codes is fast and exact, and selects the last of equal categories.
    category_codes = builder.constant(np.arange(categories.size, dtype=np.float32))
    unknown_code = builder.constant(np.array([-1], np.float32))
    is_equal = builder.op("eq", x, builder.constant(categories))
    codes = builder.op("where", is_equal, category_codes, unknown_code)
    codes = builder.op("cast", builder.op("max", codes, axis=1), dtype="int64")
    if x.type.dtype not in FLOATS:
        return codes
    missing_code = builder.constant(np.array([attrs["missing"]], np.int64))
    return builder.op("where", builder.op("isnan", x), missing_code, codes)


LOWERINGS: Mapping[str, Callable[..., Value | None]] = {
    "linear_leaves": lower_linear_leaves,
    "linear": _lower_linear,
    "one_hot": _lower_one_hot,
    "impute": _lower_impute,
    "encode": _lower_encode,
}


WHOLE_TREE_STRATEGIES = ("traverse", "fused")
"""Strategies in which a kernel of the backend runs whole trees."""


def explain_refusal(program: Program, strategy: str) -> str | None:
    """Return why `strategy` does not support the trees of `program`, or None if supported."""
    if strategy not in REFUSALS:
        return None
    ensembles = (Ensemble.of(node.attrs) for node in program.nodes if node.op == "tree_ensemble")
    reasons = (REFUSALS[strategy](measure_structure(ensemble)) for ensemble in ensembles)
    return next((reason for reason in reasons if reason is not None), None)


def lower(program: Program, strategy: str) -> Program:
    """Lower `program` for a tensor backend.

    Raise BackendError if `strategy` does not support the trees, and ConfigError if it is unknown.
    """
    if strategy in WHOLE_TREE_STRATEGIES:
        return lower_model_ops(program)
    if strategy not in STRATEGIES:
        names = ", ".join(["traverse", *STRATEGIES, "fused"])
        raise ConfigError(f"unknown strategy {strategy!r}; strategies: {names}")
    return lower_model_ops(STRATEGIES[strategy](program))
