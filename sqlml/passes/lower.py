"""Linear models in the leaves of trees, written as tensor operators.

Term by term for all trees at once: the weight and the feature of each leaf's k-th term are taken
from tables, and leaves with fewer terms keep what they have. The order of the additions is the
reference's, so the numbers are too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.errors import ConfigError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.passes import tree_strategies
from sqlml.passes.tree_strategies import Shape, lower_gemm, lower_ptt, lower_tt, shape_of
from sqlml.types import FLOATS, Array, numpy_dtype


def linear_leaves(b: Builder, leaves: Value, x: Value, attrs: Attrs) -> Value:
    """What a linear_leaves operator makes of `leaves` (n, trees) and `x` (n, features)."""
    value: Array = attrs["value"]
    begin: Array = attrs["begin"].astype(np.int64)
    feature: Array = attrs["feature"].astype(np.int64)
    weights: Array = attrs["weights"]
    counts = np.diff(begin)
    last = b.constant(np.array([value.size - 1], np.int64))
    leaf = b.op("minimum", b.op("maximum", leaves, b.constant(np.zeros(1, np.int64))), last)

    def of_leaf(table: Array) -> Value:
        return b.op("take", b.constant(table), leaf)

    out = of_leaf(attrs["const"])
    gone: Value | None = None
    for k in range(int(counts.max(initial=0))):
        has = k < counts
        place = np.where(has, begin[:-1] + k, 0)
        more = of_leaf(has)
        term = b.op("gather", x, of_leaf(feature[place]))
        nan = b.op("and", more, b.op("isnan", term))
        gone = nan if gone is None else b.op("or", gone, nan)
        added = b.op("add", out, b.op("mul", of_leaf(weights[place]), term))
        out = b.op("where", more, added, out)
    if gone is not None:
        out = b.op("where", gone, of_leaf(value), out)
    out = b.op("reshape", out, shape=(leaves.type.width, 1))
    return b.op("accumulate", out, base=attrs["base"], target=attrs["target"])


# Model operators other than trees, written as tensor operators.
#
# The checks (`require_finite`, `require_known`), strings (`fill`, `encode` of strings) and long
# lists of categories remain: a backend of tensors runs them on the host.


MAX_CATEGORIES = 256
"""Longest list of categories that a row is compared with one at a time."""

Lower = Callable[[Builder, Value, Attrs], Value | None]


def lower_model_ops(program: Program) -> Program:
    """Lower linear, one_hot, impute and encode; trees have strategies of their own."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op == "linear_leaves":
            return linear_leaves(builder, inputs[0], inputs[1], node.attrs)
        lower = LOWERINGS.get(node.op)
        return None if lower is None else lower(builder, inputs[0], node.attrs)

    return rewrite(program, rule, keep_inputs=True)


def _linear(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    if x.type.sparse:
        return None  # a kernel of the host runs it
    weights, bias = _array(attrs, "weights"), _array(attrs, "bias")
    return b.op("add", b.op("matmul", x, b.constant(weights)), b.constant(bias))


def _one_hot(b: Builder, codes: Value, attrs: Attrs) -> Value | None:
    width: int = attrs["width"]
    if width > np.iinfo(numpy_dtype(codes.type.dtype)).max:
        codes = b.op("cast", codes, dtype="int64")
    columns = b.constant(np.arange(width, dtype=numpy_dtype(codes.type.dtype)))
    return b.op("cast", b.op("eq", codes, columns), dtype=attrs["dtype"])


def _impute(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    missing: float = attrs["missing"]
    if missing != missing:
        gone = b.op("isnan", x)
    else:
        gone = b.op("eq", x, b.constant(np.array([missing], numpy_dtype(x.type.dtype))))
    return b.op("where", gone, b.constant(_array(attrs, "fill")), x)


def _encode(b: Builder, x: Value, attrs: Attrs) -> Value | None:
    categories = _array(attrs, "categories")
    if x.type.dtype == "string" or not 0 < categories.size <= MAX_CATEGORIES:
        return None
    # float32 holds all codes, and its maximum is fast; of equal categories the last one counts.
    codes = b.constant(np.arange(categories.size, dtype=np.float32))
    none = b.constant(np.array([-1], np.float32))
    same = b.op("eq", x, b.constant(categories))
    code = b.op("cast", b.op("max", b.op("where", same, codes, none), axis=1), dtype="int64")
    if x.type.dtype not in FLOATS:
        return code
    missing = b.constant(np.array([attrs["missing"]], np.int64))
    return b.op("where", b.op("isnan", x), missing, code)


def _array(attrs: Attrs, name: str) -> Array:
    value: Array = attrs[name]
    return value


LOWERINGS: Mapping[str, Lower] = MappingProxyType(
    {"linear": _linear, "one_hot": _one_hot, "impute": _impute, "encode": _encode}
)


# `lower`: from model operators to tensor operators, by the tree strategy of your choice.


STRATEGIES: Mapping[str, Callable[[Program], Program]] = MappingProxyType(
    {"gemm": lower_gemm, "tt": lower_tt, "ptt": lower_ptt}
)

REFUSALS: Mapping[str, Callable[[Shape], str | None]] = MappingProxyType(
    {"gemm": tree_strategies.gemm_refusal, "ptt": tree_strategies.ptt_refusal}
)
"""Strategies that do not suit all trees, and why not."""

WHOLE = ("traverse", "fused")
"""Strategies of backends that have a kernel for trees as they are."""


def refusal(program: Program, strategy: str) -> str | None:
    """Why `strategy` does not suit a tree of the program, before anything is lowered; None: it
    does."""
    why = REFUSALS.get(strategy)
    if why is None:
        return None
    trees = (Ensemble.of(n.attrs) for n in program.nodes if n.op == "tree_ensemble")
    return next((reason for e in trees if (reason := why(shape_of(e))) is not None), None)


def lower(program: Program, strategy: str) -> Program:
    """Lower all of `program` for a backend of tensors.

    Raises:
        ConfigError: unknown strategy.
        BackendError: the strategy does not suit a tree of the program; the message says why.
    """
    if strategy in WHOLE:
        return lower_model_ops(program)
    if strategy not in STRATEGIES:
        known = ", ".join(["traverse", *STRATEGIES, "fused"])
        raise ConfigError(f"unknown strategy {strategy!r}; strategies: {known}")
    return lower_model_ops(STRATEGIES[strategy](program))
