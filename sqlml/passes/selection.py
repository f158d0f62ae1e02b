"""Feature selection: inject selects in front of models, and push them towards the inputs. Exact.

A select moves down through operators that work column by column (Hummingbird, section 5.2). So
columns that a model ignores are never read, and never checked: the source library raises an error
for a NULL, infinity or unknown category in an ignored column, but sqlml does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass
from sqlml.ir.operators import elementwise
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node
from sqlml.ir.trees import Ensemble
from sqlml.ir.utf8_column import select_words
from sqlml.passes.fold_layout import fold_select, match_sparsity, select_from_concat
from sqlml.types import TEXTUAL, Array


@make_pass("select")
def push_selection(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return push_down(builder, inputs[0], node.attrs["indices"])


def push_down(builder: Builder, x: Value, indices: Array) -> Value:
    """Select the columns `indices` of `x`, computed from as few input columns as possible."""
    if np.array_equal(indices, np.arange(x.type.width)):
        return x
    if not indices.size:
        return _select_nothing(builder, x)
    used_columns, positions = np.unique(indices, return_inverse=True)
    if used_columns.size < indices.size:
        # Compute a column once, even if it is selected several times.
        x = push_down(builder, x, used_columns)
        return fold_select(builder, x, positions.astype(np.int64))
    node = builder.node(x)
    if node.op == "concat":
        selected = select_from_concat(builder, x, indices, partial(push_down, builder))
        return match_sparsity(builder, builder.concat(selected), x.type.sparse)
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(builder, node, indices)
    if OPS[node.op].group == "injective" and node.op in _ELEMENTWISE:
        pushed = (_push_down_operand(builder, builder.value(i), x, indices) for i in node.inputs)
        operands = [operand for operand in pushed if operand is not None]
        if len(operands) == len(node.inputs):
            return builder.op(node.op, *operands, **node.attrs)
    return fold_select(builder, x, indices)


def _select_nothing(builder: Builder, x: Value) -> Value:
    """Return no columns, selected from a value near the inputs with as many rows as `x`."""
    dtype, is_sparse, node = x.type.dtype, x.type.sparse, builder.node(x)
    while node.inputs and (source := builder.value(node.inputs[0])).type.rowwise:
        if source.type.dtype in TEXTUAL or len(source.type.shape) != 2:
            break
        x, node = source, builder.node(source)
    no_columns = fold_select(builder, x, np.empty(0, np.int64))
    return builder.cast(match_sparsity(builder, no_columns, is_sparse), dtype)


_ELEMENTWISE = frozenset(elementwise.UNARY_FLOAT) | frozenset(
    "add sub mul div maximum minimum lt le gt ge eq ne and or not isnan where cast neg abs sign "
    "square pow mod".split()
)


def _push_down_operand(builder: Builder, operand: Value, x: Value, indices: Array) -> Value | None:
    """Return the columns of `operand` from which `indices` of `x` are computed; None if unknown."""
    if operand.type.rowwise:
        if len(operand.type.shape) != 2:
            return None
        is_broadcast = operand.type.width != x.type.width
        return operand if is_broadcast else push_down(builder, operand, indices)
    node = builder.node(operand)
    if node.op != "constant" or len(operand.type.shape) > 1:
        return None
    value: Array = node.attrs["value"]
    return builder.constant(value[indices]) if value.shape == (x.type.width,) else operand


def _push_below_impute(builder: Builder, node: Node, indices: Array) -> Value:
    x = push_down(builder, builder.value(node.inputs[0]), indices)
    fill: Array = node.attrs["fill"]
    return builder.op("impute", x, fill=fill[indices], missing=node.attrs["missing"])


def _push_below_require_finite(builder: Builder, node: Node, indices: Array) -> Value:
    x = push_down(builder, builder.value(node.inputs[0]), indices)
    features: tuple[str, ...] = node.attrs["features"]
    selected_features = {"features": tuple(features[i] for i in indices)}
    bounds = {key: node.attrs[key][indices] for key in ("low", "high") if key in node.attrs}
    return builder.op("require_finite", x, **{**node.attrs, **selected_features, **bounds})


def _push_below_one_hot(builder: Builder, node: Node, indices: Array) -> Value:
    """Drop categories whose one-hot column is unused, if an `encode` computes the codes."""
    codes = builder.value(node.inputs[0])
    encoder = builder.node(codes)
    categories = encoder.attrs["categories"] if encoder.op == "encode" else np.empty(0)
    width = len(set(categories.tolist()))
    has_all_categories = encoder.op == "encode" and width == categories.size == node.attrs["width"]
    if not has_all_categories or np.unique(indices).size != indices.size:
        return fold_select(builder, builder.op("one_hot", codes, **node.attrs), indices)
    missing_code = next(iter(np.flatnonzero(indices == encoder.attrs["missing"]).tolist()), -1)
    attrs = {"categories": categories[indices], "missing": missing_code}
    selected_codes = builder.op("encode", builder.value(encoder.inputs[0]), **attrs)
    return builder.op("one_hot", selected_codes, width=indices.size, dtype=node.attrs["dtype"])


def _push_below_columnwise(builder: Builder, node: Node, indices: Array) -> Value:
    x = push_down(builder, builder.value(node.inputs[0]), indices)
    return builder.op(node.op, x, **node.attrs)


def _push_below_scale(builder: Builder, node: Node, indices: Array) -> Value:
    x, factors = push_down(builder, builder.value(node.inputs[0]), indices), node.attrs["factors"]
    has_factor_per_column = factors.shape == (node.type.width,)
    selected_factors = factors[indices] if has_factor_per_column else factors
    return builder.op("scale_stored", x, factors=selected_factors)


def _push_into_vocabulary(builder: Builder, node: Node, indices: Array) -> Value:
    x = builder.value(node.inputs[0])
    if np.unique(indices).size != indices.size:  # A word has only one column.
        return fold_select(builder, builder.op(node.op, x, **node.attrs), indices)
    words, ends = select_words(node.attrs["words"], node.attrs["ends"], indices)
    return builder.op(node.op, x, **{**node.attrs, "words": words, "ends": ends})


def _push_into_weights(builder: Builder, node: Node, indices: Array) -> Value:
    weights, bias = node.attrs["weights"][:, indices], node.attrs["bias"][indices]
    return builder.op("linear", builder.value(node.inputs[0]), weights=weights, bias=bias)


def _push_into_trees(builder: Builder, node: Node, indices: Array) -> Value:
    """Drop the trees whose values are not selected, if each tree has one value per leaf."""
    x, ensemble = builder.value(node.inputs[0]), Ensemble.of(node.attrs)
    trees = np.flatnonzero(np.isin(ensemble.target, indices))
    if ensemble.leaf_values.shape[1] > 1 or trees.size == ensemble.trees:
        return fold_select(builder, builder.op("tree_ensemble", x, **node.attrs), indices)
    selected = ensemble.keep_trees(trees)
    used_columns, feature = np.unique(selected.feature, return_inverse=True)
    order = np.argsort(indices)
    selected = replace(
        selected,
        feature=feature.astype(np.int32),
        target=order[np.searchsorted(indices, selected.target, sorter=order)].astype(np.int32),
        base=selected.base[indices],
        input_least=None,
        input_most=None,
    )
    x = push_down(builder, x, used_columns.astype(np.int64))
    return builder.op("tree_ensemble", x, **selected.attrs())


def _push_below_select(builder: Builder, node: Node, indices: Array) -> Value:
    inner_indices: Array = node.attrs["indices"]
    return push_down(builder, builder.value(node.inputs[0]), inner_indices[indices])


def _push_below_piecewise(builder: Builder, node: Node, indices: Array) -> Value:
    x = push_down(builder, builder.value(node.inputs[0]), indices)
    offsets: Array = node.attrs["offsets"]
    point_indices = [np.arange(offsets[i], offsets[i + 1]) for i in indices]
    attr_names = node.attrs.keys() & {"edges", "points", "values"}
    narrowed = {name: node.attrs[name][np.concatenate(point_indices)] for name in attr_names}
    new_offsets = np.cumsum([0, *map(len, point_indices)]).astype(np.int64)
    return builder.op(node.op, x, **{**node.attrs, **narrowed, "offsets": new_offsets})


def _push_below_bspline(builder: Builder, node: Node, indices: Array) -> Value:
    knots: Array = node.attrs["knots"]
    num_functions = node.type.width // len(knots)
    used_columns, column_of_function = np.unique(indices // num_functions, return_inverse=True)
    x = push_down(builder, builder.value(node.inputs[0]), used_columns)
    splines = builder.op("bspline", x, knots=knots[used_columns], degree=node.attrs["degree"])
    new_indices = column_of_function.astype(np.int64) * num_functions + indices % num_functions
    return fold_select(builder, splines, new_indices)


_RULES: Mapping[str, Callable[[Builder, Node, Array], Value]] = {
    **dict.fromkeys(("count_tokens", "has_items"), _push_into_vocabulary),
    **dict.fromkeys(("densify", "map_stored", "sparsify"), _push_below_columnwise),
    "require_finite_stored": _push_below_columnwise,
    **dict.fromkeys(("interpolate", "search_sorted"), _push_below_piecewise),
    "bspline": _push_below_bspline,
    "scale_stored": _push_below_scale,
    "impute": _push_below_impute,
    "linear": _push_into_weights,
    "one_hot": _push_below_one_hot,
    "require_finite": _push_below_require_finite,
    "select": _push_below_select,
    "tree_ensemble": _push_into_trees,
}


def _pays_off(builder: Builder, x: Value) -> bool:
    """Return whether a select pays off: of sparse rows, only if a vocabulary gets shorter."""
    if not x.type.sparse:
        return True
    node = builder.node(x)
    if node.op in ("concat", "scale_stored", "map_stored", "require_finite_stored", "cast"):
        return any(_pays_off(builder, builder.value(i)) for i in node.inputs)
    return node.op in ("count_tokens", "has_items")


@make_pass("tree_ensemble", "linear")
def inject_selection(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Put a select before each operator that ignores some columns."""
    if node.op == "tree_ensemble":
        feature: Array = node.attrs["feature"]
        used_columns = np.unique(feature).astype(np.int64)
        if used_columns.size == inputs[0].type.width:
            return None
        new_feature = np.searchsorted(used_columns, feature).astype(np.int32)
        x = builder.op("select", inputs[0], indices=used_columns)
        return builder.op("tree_ensemble", x, **{**node.attrs, "feature": new_feature})
    weights: Array = node.attrs["weights"]
    used_columns = np.flatnonzero(weights.any(axis=1)).astype(np.int64)
    if used_columns.size == inputs[0].type.width or not _pays_off(builder, inputs[0]):
        return None
    x = builder.op("select", inputs[0], indices=used_columns)
    return builder.op("linear", x, weights=weights[used_columns], bias=node.attrs["bias"])
