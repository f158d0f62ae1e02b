"""Convert TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml.

Results equal those of onnxruntime (core/providers/cpu/ml/tree_ensemble_aggregator.h): the sum
starts at 0, the leaves are added tree by tree, and base_values are added last. NaN fails every test
except `!=`, unless missing_value_tracks_true sends it to the true branch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import ProgramError
from sqlml.importers.onnx import estimators
from sqlml.importers.onnx.estimators import apply_transform, read_post_transform
from sqlml.importers.onnx.graph_items import Call, Choice, Item
from sqlml.importers.onnx.labels import read_class_values
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees, build_ensemble
from sqlml.types import Array, DType

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
"""The modes of a node: the comparisons, numbered as in TreeEnsemble, and LEAF."""
_TESTS = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_MODES = {"LEAF": LEAF, **{f"BRANCH_{test}": mode for mode, test in enumerate(_TESTS)}}


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The inner nodes and leaves of all trees, as parallel arrays.

    Node i of tree `tree[i]` compares feature `feature[i]` with `split[i]`; `mode[i]` is the test.
    `true[i]` and `false[i]` are the indices of the children, or -1 at a leaf. `roots` has the index
    of each tree's root. `sets` maps MEMBER nodes to the values that pass the test. `number` has the
    ID of each node in the file.
    """

    tree: Array
    roots: Array
    feature: Array
    mode: Array
    split: Array
    true: Array
    false: Array
    tracks_true: Array
    sets: dict[int, Array]
    number: Array


def read_classic_nodes(call: Call, dtype: DType) -> tuple[Nodes, dict[tuple[int, int], int]]:
    """Return the nodes of an older operator, and a map from (tree ID, node ID) to node index."""
    tree_ids = call.vector("nodes_treeids", "int64")
    num_nodes = tree_ids.size
    modes = [_MODES.get(mode, -1) for mode in call.texts("nodes_modes")]
    if -1 in modes or MEMBER in modes:
        raise call.error("a node has an unknown mode")
    integer_names = "nodeids featureids truenodeids falsenodeids missing_value_tracks_true".split()
    columns = {name: call.vector(f"nodes_{name}", "int64") for name in integer_names}
    if not columns["missing_value_tracks_true"].size:
        columns["missing_value_tracks_true"] = np.zeros(num_nodes, np.int64)
    columns["modes"] = np.array(modes, np.int64)
    columns["values"] = call.vector_or_tensor("nodes_values")
    for name, values in columns.items():
        if values.size != num_nodes:
            raise call.error(f"nodes_{name} has {values.size} entries instead of {num_nodes}")
    if not num_nodes:
        raise call.error("it has no trees")
    keys = zip(tree_ids.tolist(), columns["nodeids"].tolist(), strict=True)
    node_indices = {key: i for i, key in enumerate(keys)}
    roots = np.concatenate([[0], np.flatnonzero(np.diff(tree_ids)) + 1])
    if len(node_indices) != num_nodes or np.unique(tree_ids[roots]).size != roots.size:
        raise call.error("several nodes have the same ID")
    is_leaf = columns["modes"] == LEAF

    def find_children(name: str) -> Array:
        child_keys = zip(tree_ids.tolist(), columns[name].tolist(), strict=True)
        children = np.array([node_indices.get(key, -2) for key in child_keys], np.int64)
        children[is_leaf] = -1
        if -2 in children:
            raise call.error("a branch leads to a node that does not exist")
        return children

    nodes = Nodes(
        tree=np.repeat(np.arange(roots.size), np.diff(np.append(roots, num_nodes))),
        roots=roots,
        feature=columns["featureids"],
        mode=columns["modes"],
        split=columns["values"].astype(dtype),
        true=find_children("truenodeids"),
        false=find_children("falsenodeids"),
        tracks_true=columns["missing_value_tracks_true"] == 1,
        sets={},
        number=columns["nodeids"],
    )
    _merge_chains(nodes, columns["values"])
    return nodes, node_indices


def _merge_chains(nodes: Nodes, split_values: Array) -> None:
    """Merge each chain `x == a, else x == b, ...` into one MEMBER node, in place.

    The nodes of a chain share one true branch. onnxmltools writes LightGBM's categorical splits
    this way. The first node becomes the MEMBER node, and the others are no longer reached.
    `split_values` are the compared numbers, in the dtype of the file.
    """
    mode, feature, true, false = nodes.mode, nodes.feature, nodes.true, nodes.false
    is_equality = mode == EQ
    next_node = np.where(is_equality, false, 0)
    has_successor = is_equality & is_equality[next_node] & (feature == feature[next_node])
    has_successor &= (true == true[next_node]) & (next_node != np.arange(mode.size))
    has_predecessor = np.zeros(mode.size, bool)
    has_predecessor[next_node[has_successor]] = True
    for first_node in np.flatnonzero(has_successor & ~has_predecessor):
        members, node = [split_values[first_node]], first_node
        while has_successor[node]:
            node = next_node[node]
            members.append(split_values[node])
        nodes.sets[int(first_node)] = np.array(members)
        mode[first_node], false[first_node] = MEMBER, false[node]


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The weights of all leaves: the leaf `node[i]` adds `weight[i]` to the output `column[i]`."""

    node: Array
    column: Array
    weight: Array


def read_classic_leaves(
    call: Call, node_indices: dict[tuple[int, int], int], prefix: str, dtype: DType
) -> Leaves:
    """Read the leaves; `prefix` is "class" for a classifier, or "target" for a regressor.

    `node_indices` maps (tree ID, node ID) to a node's index.
    """
    names = ("treeids", "nodeids", "ids")
    tree_ids, node_ids, columns = (call.vector(f"{prefix}_{name}", "int64") for name in names)
    weights = call.vector_or_tensor(f"{prefix}_weights")
    if not tree_ids.size == node_ids.size == columns.size == weights.size:
        raise call.error("the arrays of its leaves have different lengths")
    keys = zip(tree_ids.tolist(), node_ids.tolist(), strict=True)
    leaf_indices = [node_indices.get(key, -1) for key in keys]
    if -1 in leaf_indices:
        raise call.error("a weight refers to a node that does not exist")
    return Leaves(np.array(leaf_indices, np.int64), columns, weights.astype(dtype))


def read_modern_nodes(call: Call, dtype: DType) -> tuple[Nodes, Leaves]:
    """Read the nodes and leaves of a TreeEnsemble.

    The file numbers inner nodes and leaves separately, both from 0. In the returned Nodes, the
    leaves come after the inner nodes.
    """
    roots = call.vector("tree_roots", "int64")
    features = call.vector("nodes_featureids", "int64")
    num_inner = features.size
    tensors = {name: call.attr(name) for name in ("nodes_modes", "nodes_splits", "leaf_weights")}
    if not all(isinstance(x, np.ndarray) and x.ndim == 1 for x in tensors.values()):
        raise call.error("modes, splits or weights are not tensors")
    weights = tensors["leaf_weights"].astype(dtype)
    columns = call.vector("leaf_targetids", "int64")
    num_leaves = weights.size
    modes = tensors["nodes_modes"].astype(np.int64)
    tracks_true = call.vector("nodes_missing_value_tracks_true", "int64")
    tracks_true = tracks_true if tracks_true.size else np.zeros(num_inner, np.int64)
    children = {}
    for branch in ("true", "false"):
        child = call.vector(f"nodes_{branch}nodeids", "int64")
        is_leaf = call.vector(f"nodes_{branch}leafs", "int64")
        if child.size != num_inner or is_leaf.size != num_inner:
            raise call.error("the arrays of its branches have different lengths")
        if ((child < 0) | (child >= np.where(is_leaf == 1, num_leaves, num_inner))).any():
            raise call.error("a branch leads to a node that does not exist")
        children[branch] = np.where(is_leaf == 1, num_inner + child, child)
    lengths = {modes.size, tensors["nodes_splits"].size, tracks_true.size}
    if lengths != {num_inner} or columns.size != num_leaves:
        raise call.error("its arrays have different lengths")
    if not roots.size or num_inner == 0:
        raise call.error("it has no trees")
    if modes.min() < 0 or modes.max() > 6:
        raise call.error("a node has an unknown mode")
    if roots.min() < 0 or roots.max() >= num_inner:
        raise call.error("a root does not exist")
    has_equal_branches = children["true"] == children["false"]
    shared_leaf = children["false"][has_equal_branches] - num_inner
    if shared_leaf.size:
        # A tree of one leaf is stored as a node with two branches to this leaf. Copy the leaf.
        if (shared_leaf < 0).any():
            raise call.error("both branches of a node lead to the same inner node")
        first_copy = num_inner + num_leaves
        children["false"][has_equal_branches] = first_copy + np.arange(shared_leaf.size)
        weights = np.concatenate([weights, weights[shared_leaf]])
        columns = np.concatenate([columns, columns[shared_leaf]])
        num_leaves = weights.size
    leaf_zeros = np.zeros(num_leaves, np.int64)
    leaf_numbers = np.concatenate([np.arange(num_leaves - shared_leaf.size), shared_leaf])
    nodes = Nodes(
        tree=_find_trees(call, roots, children, num_leaves),
        roots=roots,
        feature=np.concatenate([features, leaf_zeros]),
        mode=np.concatenate([modes, np.full(num_leaves, LEAF)]),
        split=np.concatenate([tensors["nodes_splits"].astype(dtype), leaf_zeros.astype(dtype)]),
        true=np.concatenate([children["true"], leaf_zeros - 1]),
        false=np.concatenate([children["false"], leaf_zeros - 1]),
        tracks_true=np.concatenate([tracks_true == 1, leaf_zeros == 1]),
        sets=_read_member_sets(call, modes),
        number=np.concatenate([np.arange(num_inner), leaf_numbers]),
    )
    return nodes, Leaves(num_inner + np.arange(num_leaves), columns, weights)


def _find_trees(call: Call, roots: Array, children: dict[str, Array], num_leaves: int) -> Array:
    """Return the tree index of each node; reject a node that is reached twice."""
    num_inner = children["true"].size
    tree_indices = np.zeros(num_inner + num_leaves, np.int64)
    tree_indices[roots] = np.arange(roots.size)
    is_visited = np.zeros(tree_indices.size, bool)
    level = roots
    while level.size:
        if is_visited[level].any():
            raise call.error("a node has two parents, or there is a cycle")
        is_visited[level] = True
        inner = level[level < num_inner]
        level = np.concatenate([children["true"][inner], children["false"][inner]])
        tree_indices[level] = np.tile(tree_indices[inner], 2)
    return tree_indices


def _read_member_sets(call: Call, modes: Array) -> dict[int, Array]:
    """Map each BRANCH_MEMBER node to a set of values; NaN ends each set in membership_values."""
    member_nodes = np.flatnonzero(modes == MEMBER)
    if not member_nodes.size:
        return {}
    values = call.attr("membership_values")
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        raise call.error("its sets are not a tensor of numbers")
    members = values.ravel()
    ends = np.flatnonzero(np.isnan(members))
    if ends.size != member_nodes.size:
        raise call.error("a set is missing")
    ranges = zip(member_nodes.tolist(), [0, *ends[:-1] + 1], ends, strict=True)
    return {node: members[start:end] for node, start, end in ranges}


MAX_CATEGORY = 1 << 16
"""The largest integer in a test for equality."""


def _sum_leaves(call: Call, x: Value, nodes: Nodes, leaves: Leaves, num_outputs: int) -> Value:
    """Build the sums (n, num_outputs) of the leaf weights that each row reaches."""
    x, raw_trees, compare = _build_tests(call, x, nodes)
    if ((leaves.column < 0) | (leaves.column >= num_outputs)).any():
        raise call.error("a leaf adds to an output that does not exist")
    if not raw_trees.leaf[leaves.node].all():
        raise Unsupported("an inner node has a weight")
    num_trees = nodes.roots.size
    leaf_trees = nodes.tree[leaves.node]
    min_columns = np.full(num_trees, num_outputs, np.int64)
    max_columns = np.full(num_trees, -1, np.int64)
    np.minimum.at(min_columns, leaf_trees, leaves.column)
    np.maximum.at(max_columns, leaf_trees, leaves.column)
    width, targets = num_outputs, np.zeros(num_trees, np.int64)
    if (max_columns <= min_columns).all():  # each tree adds to a single column
        width, targets = 1, np.where(max_columns < 0, 0, min_columns)
    if nodes.mode.size * width > 1 << 28:
        raise call.error("its leaves have too many weights")
    node_values = np.zeros((nodes.mode.size, width), leaves.weight.dtype)
    np.add.at(node_values, (leaves.node, leaves.column - targets[leaf_trees]), leaves.weight)
    base = np.zeros(num_outputs, leaves.weight.dtype)
    try:
        raw_trees = replace(raw_trees, value=node_values)
        ensemble = build_ensemble(raw_trees, target=targets, base=base, compare=compare)
        return call.op("tree_ensemble", x, **ensemble.attrs())
    except ProgramError as error:
        raise call.error(str(error)) from None


def _build_tests(call: Call, x: Value, nodes: Nodes) -> tuple[Value, RawTrees, str]:
    """Convert the nodes to trees of an Ensemble.

    Return `x` prepared for tests of equality, the trees without leaf values, and the comparison
    that all numeric splits share ("lt" or "le").
    """
    mode, split = nodes.mode, nodes.split
    is_inner = mode != LEAF
    tested_features = nodes.feature[is_inner]
    if ((tested_features < 0) | (tested_features >= x.type.width)).any():
        raise call.error("it tests a feature that does not exist")
    if np.isnan(split[is_inner]).any():
        raise Unsupported("a threshold is NaN")
    # x >= t is the test x < t with swapped branches. Similarly, x > t and x != t are swapped.
    is_swapped = np.isin(mode, (GTE, GT, NEQ))
    is_strict = np.isin(mode, (LT, GTE))
    is_reached = _find_reached_nodes(nodes)
    is_exact = np.isin(mode, (EQ, NEQ, MEMBER)) & is_reached
    is_ordered = is_inner & ~is_exact & is_reached
    compare = "lt" if is_ordered.any() and is_strict[is_ordered].all() else "le"
    if compare == "le" and is_strict.any():
        if np.isneginf(split[is_strict & is_inner]).any():
            raise Unsupported("a threshold is minus infinity")
        split = np.where(is_strict, np.nextafter(split, split.dtype.type(-np.inf)), split)
    # x != t is true for NaN, regardless of missing_value_tracks_true.
    default_left = (is_swapped ^ nodes.tracks_true) & (mode != NEQ)
    sets: dict[int, Array] = {}
    if is_exact.any():
        x, sets = _build_exact_columns(call, x, nodes, is_exact, is_ordered)
        split = np.where(is_exact, 0, split).astype(split.dtype)
    raw_trees = RawTrees(
        roots=nodes.roots,
        feature=nodes.feature,
        threshold=split,
        left=np.where(is_swapped, nodes.false, nodes.true),
        right=np.where(is_swapped, nodes.true, nodes.false),
        leaf=~is_inner,
        default_left=default_left & is_inner,
        value=np.zeros((mode.size, 0)),
        sets=sets or None,
        number=nodes.number if (nodes.number.astype(np.int32) == nodes.number).all() else None,
    )
    return x, raw_trees, compare


def _find_reached_nodes(nodes: Nodes) -> Array:
    is_reached = np.zeros(nodes.mode.size, bool)
    is_reached[nodes.roots] = True
    for children in (nodes.true, nodes.false):
        is_reached[children[children >= 0]] = True
    return is_reached


def _build_exact_columns(
    call: Call, x: Value, nodes: Nodes, is_exact: Array, is_ordered: Array
) -> tuple[Value, dict[int, Array]]:
    """Return `x` prepared for tests of equality, and a map from these nodes to the tested integers.

    In the columns with such tests, fractions become -1, which fails all tests. `is_exact` and
    `is_ordered` are masks of the nodes that test for equality and for order.
    """
    category_features = np.unique(nodes.feature[is_exact])
    if np.isin(category_features, nodes.feature[is_ordered]).any():
        raise Unsupported("a feature is tested both for order and for equality")
    sets: dict[int, Array] = {}
    for i in np.flatnonzero(is_exact).tolist():
        members = nodes.sets.get(i, nodes.split[i : i + 1])
        if not ((members == np.trunc(members)) & (members >= 0) & (members <= MAX_CATEGORY)).all():
            raise Unsupported("a node tests for equality with something other than a small integer")
        sets[i] = members.astype(np.int64)
    is_integer = call.op("or", call.op("eq", x, call.op("trunc", x)), call.op("isnan", x))
    columns = call.op("where", is_integer, x, call.scalar(-1, x.type.dtype))
    is_category_feature = np.isin(np.arange(x.type.width), category_features)
    return call.op("where", call.builder.constant(is_category_feature), columns, x), sets


def _read_input(call: Call) -> Value:
    """Return input 0, a table of numbers, cast to float32 unless the dtype is float64."""
    x = call.table(0)
    return x.value if x.dtype == "float64" else call.cast(x.value, "float32")


def _aggregate(
    call: Call, x: Value, function: str, num_outputs: int, nodes: Nodes, leaves: Leaves
) -> Value:
    if function in ("SUM", "AVERAGE"):
        total = _sum_leaves(call, x, nodes, leaves, num_outputs)
        if function == "SUM":
            return total
        return call.op("div", total, call.scalar(nodes.roots.size, total.type.dtype))
    if function not in ("MIN", "MAX"):
        raise call.error(f"unknown aggregate_function {function!r}")
    if num_outputs != 1:
        raise Unsupported(f"{function} over trees with several outputs")
    if not np.isin(np.flatnonzero(nodes.mode == LEAF), leaves.node).all():
        raise Unsupported(f"{function} over trees with leaves without a weight")
    # Write each tree to a separate column, then reduce the columns.
    leaves = Leaves(leaves.node, nodes.tree[leaves.node], leaves.weight)
    tree_results = _sum_leaves(call, x, nodes, leaves, nodes.roots.size)
    return call.op(function.lower(), tree_results, axis=1)


def _add_base_values(call: Call, total: Value, base_values: Array) -> Value:
    if not base_values.size:
        return total
    if base_values.size != total.type.width:
        raise Unsupported(f"{base_values.size} base_values for {total.type.width} outputs")
    return call.op("add", total, call.builder.constant(base_values.astype(total.type.dtype)))


def _transform_targets(call: Call, total: Value, transform: str) -> Value:
    """Apply a post_transform; as in onnxruntime, only PROBIT changes a single target."""
    is_applied = total.type.width > 1 or transform == "PROBIT"
    return apply_transform(call, total, transform) if is_applied else total


def convert_regressor(call: Call) -> Item:
    """Convert TreeEnsembleRegressor to float32 (n, n_targets)."""
    x = _read_input(call)
    num_targets = call.integer("n_targets", 1)
    if not 0 < num_targets <= 1 << 16:
        raise call.error(f"it has {num_targets} targets")
    nodes, node_indices = read_classic_nodes(call, x.type.dtype)
    leaves = read_classic_leaves(call, node_indices, "target", x.type.dtype)
    function = call.text("aggregate_function", "SUM")
    total = _aggregate(call, x, function, num_targets, nodes, leaves)
    total = _add_base_values(call, total, call.vector_or_tensor("base_values"))
    result = _transform_targets(call, total, read_post_transform(call))
    return RowTensor(call.cast(result, "float32"), (num_targets,))


def convert_classifier(call: Call) -> tuple[Item, ...]:
    """Convert TreeEnsembleClassifier to labels (n,) and scores (n, classes)."""
    x = _read_input(call)
    class_values = read_class_values(call, "classlabels_int64s", "classlabels_strings")
    nodes, node_indices = read_classic_nodes(call, x.type.dtype)
    leaves = read_classic_leaves(call, node_indices, "class", x.type.dtype)
    base_values = call.vector_or_tensor("base_values")
    transform = read_post_transform(call)
    num_classes = len(class_values)
    used_columns = np.unique(leaves.column)
    if num_classes < 2 or not used_columns.size:
        raise Unsupported("it has fewer than two classes")
    if num_classes == 2:
        if used_columns.tolist() != [0]:
            raise Unsupported("it has two classes, and weights for the second class")
        return _convert_binary(call, x, nodes, leaves, base_values, class_values)
    if base_values.size not in (0, num_classes):
        raise Unsupported(f"{base_values.size} base_values for {num_classes} classes")
    if not base_values.size and not _has_weight_for_every_class(nodes, leaves, num_classes):
        raise Unsupported("some leaves have no weight for a class")
    total = _sum_leaves(call, x, nodes, leaves, num_classes)
    scores = _add_base_values(call, total, base_values)
    margins = None if transform == "NONE" else scores
    label = Choice(estimators.build_argmax(call, scores), class_values, (), margins)
    scores = call.cast(apply_transform(call, scores, transform), "float32")
    return label, RowTensor(scores, (num_classes,))


def _has_weight_for_every_class(nodes: Nodes, leaves: Leaves, num_classes: int) -> bool:
    """Return whether every row gets a weight for every class from at least one tree.

    Otherwise, the scores of onnxruntime are not the sums of the weights.
    """
    has_weight = np.zeros((nodes.mode.size, num_classes), bool)
    has_weight[leaves.node, leaves.column] = True
    leaf_nodes = np.flatnonzero(nodes.mode == LEAF)
    always_adds = np.ones((nodes.roots.size, num_classes), bool)
    np.logical_and.at(always_adds, nodes.tree[leaf_nodes], has_weight[leaf_nodes])
    return bool(always_adds.any(axis=0).all())


def _convert_binary(
    call: Call, x: Value, nodes: Nodes, leaves: Leaves, base_values: Array, class_values: Array
) -> tuple[Item, ...]:
    """Convert a classifier of two classes whose leaves only have weights for the second class.

    onnxruntime predicts the second class above 0.5 if no weight is negative, otherwise above 0.
    """
    if base_values.size > 1:
        raise Unsupported("it has base_values for each of two classes")
    if not _has_weight_for_every_class(nodes, leaves, 1):
        raise Unsupported("some leaves have no weight")
    may_be_negative = not (leaves.weight >= 0).all()
    score = _add_base_values(call, _sum_leaves(call, x, nodes, leaves, 1), base_values)
    threshold = call.scalar(0 if may_be_negative else 0.5, score.type.dtype)
    transform = read_post_transform(call)
    margins = None if transform == "NONE" else score
    label = Choice(call.cast(call.op("gt", score, threshold), "int64"), class_values, (), margins)
    scores = estimators.expand_score(call, score, transform, may_be_negative)
    return label, RowTensor(call.cast(scores, "float32"), (2,))


def convert_ensemble(call: Call) -> Item:
    """Convert TreeEnsemble (opset 5) to (n, n_targets) in the dtype of the input."""
    x = call.table(0)
    if x.dtype not in ("float32", "float64"):
        raise Unsupported("its input is not a table of float32 or float64")
    num_targets = call.integer("n_targets", 1)
    function_code = call.integer("aggregate_function", 1)
    transform_code = call.integer("post_transform", 0)
    if not (0 <= function_code < 4 and 0 <= transform_code < 5 and 0 < num_targets <= 1 << 16):
        raise call.error("an attribute has an unknown value")
    nodes, leaves = read_modern_nodes(call, x.dtype)
    function = ("AVERAGE", "SUM", "MIN", "MAX")[function_code]
    total = _aggregate(call, x.value, function, num_targets, nodes, leaves)
    result = _transform_targets(call, total, estimators.TRANSFORMS[transform_code])
    return RowTensor(result, (num_targets,))
