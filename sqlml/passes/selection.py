"""Feature selection pushed down towards the inputs. Exact.

Hummingbird, section 5.2: a select moves through operators that work column by column (casts,
imputers, scalers, one-hot vocabularies, checks) and stops at those that mix columns. Where it
chooses a column several times, one that chooses it once moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators import elementwise
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.ir.utf8_column import choose
from sqlml.passes.fold_layout import chosen_parts, same_rows
from sqlml.passes.fold_layout import select as fold_select
from sqlml.types import TEXTUAL, Array


def push_selection(program: Program) -> Program:
    """Return `program` with its selects as near to the inputs as they go."""
    return rewrite(program, _push_selection, ops=("select",))


def _push_selection(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return _push(b, inputs[0], node.attrs["indices"])


def _push(b: Builder, x: Value, indices: Array) -> Value:
    if np.array_equal(indices, np.arange(x.type.width)):
        return x
    if not indices.size:
        return _nothing(b, x)
    used, places = np.unique(indices, return_inverse=True)
    if used.size < indices.size:
        # A column that is chosen several times, as factors of products are, is computed once.
        return fold_select(b, _push(b, x, used), places.astype(np.int64))
    node = b.node(x)
    if node.op == "concat":
        pieces = chosen_parts(b, x, indices, partial(_push, b))
        return same_rows(b, b.beside(pieces), x.type.sparse)
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(b, node, indices)
    if OPS[node.op].group == "injective" and node.op in _ELEMENTWISE:
        moved = [_push_operand(b, b.value(i), x, indices) for i in node.inputs]
        if all(m is not None for m in moved):
            return b.op(node.op, *[m for m in moved if m is not None], **node.attrs)
    return fold_select(b, x, indices)


def _nothing(b: Builder, x: Value) -> Value:
    """No column of `x`: only one input, which still counts the rows."""
    dtype, sparse, node = x.type.dtype, x.type.sparse, b.node(x)
    while node.inputs and (below := b.value(node.inputs[0])).type.rowwise:
        if below.type.dtype in TEXTUAL or len(below.type.shape) != 2:
            break
        x, node = below, b.node(below)
    none = same_rows(b, fold_select(b, x, np.empty(0, np.int64)), sparse)
    return none if none.type.dtype == dtype else b.op("cast", none, dtype=dtype)


_ELEMENTWISE = frozenset(elementwise.UNARY_FLOAT) | frozenset(
    "add sub mul div maximum minimum lt le gt ge eq ne and or not isnan where cast neg abs sign "
    "square pow mod".split()
)


def _push_operand(b: Builder, v: Value, x: Value, indices: Array) -> Value | None:
    """Operand `v` of an elementwise operator with result `x`, narrowed to the chosen columns."""
    if v.type.rowwise:
        if len(v.type.shape) != 2:
            return None
        return _push(b, v, indices) if v.type.width == x.type.width else v
    node = b.node(v)
    if node.op != "constant" or len(v.type.shape) > 1:
        return None
    value: Array = node.attrs["value"]
    return b.constant(value[indices]) if value.shape == (x.type.width,) else v


def _impute(b: Builder, node: Node, indices: Array) -> Value:
    x = _push(b, b.value(node.inputs[0]), indices)
    fill: Array = node.attrs["fill"]
    return b.op("impute", x, fill=fill[indices], missing=node.attrs["missing"])


def _require_finite(b: Builder, node: Node, indices: Array) -> Value:
    x = _push(b, b.value(node.inputs[0]), indices)
    features: tuple[str, ...] = node.attrs["features"]
    chosen = {"features": tuple(features[i] for i in indices)}
    bounds = {key: node.attrs[key][indices] for key in ("low", "high") if key in node.attrs}
    return b.op("require_finite", x, **{**node.attrs, **chosen, **bounds})


def _one_hot(b: Builder, node: Node, indices: Array) -> Value:
    """Drop vocabulary (1-to-m): a category whose column nobody reads is as good as unknown.

    Only right above its `encode`, whose codes a check has not looked at and which `missing` may
    not name, and where each column is chosen once.
    """
    codes = b.value(node.inputs[0])
    source = b.node(codes)
    known = source.attrs["categories"] if source.op == "encode" else np.empty(0)
    once = np.unique(indices).size == indices.size
    distinct = known.size == node.attrs["width"] and len(set(known.tolist())) == known.size
    if source.op != "encode" or not once or not distinct:
        return fold_select(b, b.op("one_hot", codes, **node.attrs), indices)
    missing = np.flatnonzero(indices == source.attrs["missing"])
    fewer = b.op(
        "encode",
        b.value(source.inputs[0]),
        categories=known[indices],
        missing=int(missing[0]) if missing.size else -1,
    )
    return b.op("one_hot", fewer, width=indices.size, dtype=node.attrs["dtype"])


def _stored(b: Builder, node: Node, indices: Array) -> Value:
    """Operators over sparse rows that do the same to every column."""
    return b.op(node.op, _push(b, b.value(node.inputs[0]), indices), **node.attrs)


def _scale_stored(b: Builder, node: Node, indices: Array) -> Value:
    factors: Array = node.attrs["factors"]
    chosen = factors[indices] if factors.shape == (node.type.width,) else factors
    return b.op("scale_stored", _push(b, b.value(node.inputs[0]), indices), factors=chosen)


def _vocabulary(b: Builder, node: Node, indices: Array) -> Value:
    """Drop vocabulary (1-to-m): a word or item whose column nobody reads is not looked for."""
    x = b.value(node.inputs[0])
    if np.unique(indices).size != indices.size:  # a word has one column only
        return fold_select(b, b.op(node.op, x, **node.attrs), indices)
    words, ends = choose(node.attrs["words"], node.attrs["ends"], indices)
    return b.op(node.op, x, **{**node.attrs, "words": words, "ends": ends})


def _linear(b: Builder, node: Node, indices: Array) -> Value:
    """Outputs of a linear model: only the weights of those that are read."""
    weights, bias = node.attrs["weights"][:, indices], node.attrs["bias"][indices]
    return b.op("linear", b.value(node.inputs[0]), weights=weights, bias=bias)


def _select(b: Builder, node: Node, indices: Array) -> Value:
    inner: Array = node.attrs["indices"]
    return _push(b, b.value(node.inputs[0]), inner[indices])


def _pieces(b: Builder, node: Node, indices: Array) -> Value:
    """search_sorted and interpolate: the points of the chosen columns."""
    x = _push(b, b.value(node.inputs[0]), indices)
    offsets: Array = node.attrs["offsets"]
    parts = [np.arange(offsets[i], offsets[i + 1]) for i in indices]
    chosen = np.concatenate(parts)
    narrowed = {k: node.attrs[k][chosen] for k in ("edges", "points", "values") if k in node.attrs}
    cuts = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return b.op(node.op, x, **{**node.attrs, **narrowed, "offsets": cuts})


def _bspline(b: Builder, node: Node, indices: Array) -> Value:
    """1-to-m: the columns that any chosen function belongs to, then a select of the functions."""
    knots: Array = node.attrs["knots"]
    each = node.type.width // len(knots)
    used, owner = np.unique(indices // each, return_inverse=True)
    x = _push(b, b.value(node.inputs[0]), used)
    made = b.op("bspline", x, knots=knots[used], degree=node.attrs["degree"])
    return fold_select(b, made, owner.astype(np.int64) * each + indices % each)


_RULES: Mapping[str, Callable[[Builder, Node, Array], Value]] = MappingProxyType(
    {
        "bspline": _bspline,
        "count_tokens": _vocabulary,
        "has_items": _vocabulary,
        "densify": _stored,
        "map_stored": _stored,
        "require_finite_stored": _stored,
        "scale_stored": _scale_stored,
        "sparsify": _stored,
        "impute": _impute,
        "interpolate": _pieces,
        "linear": _linear,
        "one_hot": _one_hot,
        "require_finite": _require_finite,
        "search_sorted": _pieces,
        "select": _select,
    }
)


# Feature selection injected: keep only the columns that trees test and weights touch.
#
# Exact on every row that the source library scores. It raises on a NULL, infinity or unknown
# category in a column that the model then ignores; that check goes with the column.
#
# Hummingbird, section 5.2 ("feature selection injection"). A tree ensemble that never tests a
# column, or a linear model whose weights for it are all zero, gets a select in front;
# `push_selection` then moves it down to the inputs, so that unused columns are never read. A
# check for NULL or infinity on a column that nobody reads any more goes with it.


def inject_selection(program: Program) -> Program:
    """Return `program` with a select before each operator that ignores some columns."""
    return rewrite(program, _inject_selection, ops=("tree_ensemble", "linear"))


def _reaches_words(b: Builder, x: Value) -> bool:
    """Whether a select in front of a linear model pays off: one that stays above sparse rows costs
    as much as what it saves, since a row's product reads few weights anyway."""
    if not x.type.sparse:
        return True
    node = b.node(x)
    if node.op in ("concat", "scale_stored", "map_stored", "require_finite_stored", "cast"):
        return any(_reaches_words(b, b.value(i)) for i in node.inputs)
    return node.op in ("count_tokens", "has_items")


def _inject_selection(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "tree_ensemble":
        feature: Array = node.attrs["feature"]
        used = np.unique(feature).astype(np.int64)
        if used.size == inputs[0].type.width:
            return None
        renamed = np.searchsorted(used, feature).astype(np.int32)
        x = b.op("select", inputs[0], indices=used)
        return b.op("tree_ensemble", x, **{**node.attrs, "feature": renamed})
    weights: Array = node.attrs["weights"]
    used = np.flatnonzero(weights.any(axis=1)).astype(np.int64)
    if used.size == inputs[0].type.width or not _reaches_words(b, inputs[0]):
        return None
    x = b.op("select", inputs[0], indices=used)
    return b.op("linear", x, **{**node.attrs, "weights": weights[used]})
