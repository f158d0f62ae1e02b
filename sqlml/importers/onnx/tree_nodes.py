"""The nodes and leaves of ai.onnx.ml's trees as arrays: both ways in which ONNX writes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.onnx.items import Call
from sqlml.types import Array, DType

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(8)
"""The modes of a node, as a TreeEnsemble numbers all but the last."""
_MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
    "BRANCH_MEMBER": MEMBER,
    "LEAF": LEAF,
}


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The nodes of all trees, concatenated, arrays (N,); `true` and `false` are the numbers of
    a node's children among all, -1 at leaves."""

    tree: Array
    roots: Array
    feature: Array
    mode: Array
    split: Array
    true: Array
    false: Array
    tracks_true: Array
    sets: dict[int, Array]


def classic_nodes(call: Call, dtype: DType) -> tuple[Nodes, dict[tuple[int, int], int]]:
    """The nodes of a TreeEnsembleClassifier or Regressor; and where each (tree, node id) stands.

    Args:
        dtype: of the thresholds.
    """
    tree = call.vector("nodes_treeids", "int64")
    number = call.vector("nodes_nodeids", "int64")
    n = tree.size
    modes = call.texts("nodes_modes")
    known = [_MODES.get(m, -1) for m in modes]
    if -1 in known or MEMBER in known:
        raise ArtifactError(f"operator {call.node.op}: a node has an unknown mode")
    wide = call.attr("nodes_values_as_tensor")
    split = call.vector("nodes_values") if wide is None else np.asarray(wide).ravel()
    tracks = call.vector("nodes_missing_value_tracks_true", "int64")
    columns = {
        "nodeids": number,
        "modes": np.array(known, np.int64),
        "values": split,
        "featureids": call.vector("nodes_featureids", "int64"),
        "truenodeids": call.vector("nodes_truenodeids", "int64"),
        "falsenodeids": call.vector("nodes_falsenodeids", "int64"),
        "missing_value_tracks_true": tracks if tracks.size else np.zeros(n, np.int64),
    }
    for name, values in columns.items():
        if values.size != n:
            raise ArtifactError(f"operator {call.node.op}: nodes_{name} has {values.size} of {n}")
    if not n:
        raise ArtifactError(f"operator {call.node.op} has no trees")
    place = {key: i for i, key in enumerate(zip(tree.tolist(), number.tolist(), strict=True))}
    starts = np.concatenate([[0], np.flatnonzero(np.diff(tree)) + 1])
    if len(place) != n or np.unique(tree[starts]).size != starts.size:
        raise ArtifactError(f"operator {call.node.op} has a node twice")
    leaf = columns["modes"] == LEAF

    def absolute(name: str) -> Array:
        keys = zip(tree.tolist(), columns[name].tolist(), strict=True)
        found = [-1 if end else place.get(key, -2) for end, key in zip(leaf, keys, strict=True)]
        if -2 in found:
            raise ArtifactError(f"operator {call.node.op}: a branch leads nowhere")
        return np.array(found, np.int64)

    true, false = absolute("truenodeids"), absolute("falsenodeids")
    feature, mode = columns["featureids"], columns["modes"]
    sets = _merge_chains(mode, feature, split, true, false)
    nodes = Nodes(
        tree=np.repeat(np.arange(starts.size), np.diff(np.append(starts, n))),
        roots=starts,
        feature=feature,
        mode=mode,
        split=split.astype(dtype),
        true=true,
        false=false,
        tracks_true=columns["missing_value_tracks_true"] == 1,
        sets=sets,
    )
    return nodes, place


def _merge_chains(
    mode: Array, feature: Array, split: Array, true: Array, false: Array
) -> dict[int, Array]:
    """Chains of `x == a, else x == b ..` with one true branch, as sets of their first nodes.

    onnxmltools writes LightGBM's categorical splits so. `mode` and `false` change in place; the
    other nodes of a chain have no parent any more.
    """
    equal = mode == EQ
    after = np.where(equal, false, 0)
    joins = equal & equal[after] & (feature == feature[after]) & (true == true[after])
    joins &= after != np.arange(mode.size)
    inside = np.zeros(mode.size, bool)
    inside[after[joins]] = True
    sets: dict[int, Array] = {}
    for head in np.flatnonzero(joins & ~inside):
        members, at = [split[head]], head
        while joins[at]:
            at = after[at]
            members.append(split[at])
        sets[int(head)] = np.array(members)
        mode[head], false[head] = MEMBER, false[at]
    return sets


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """What leaves add: arrays (E,) of node, output column and weight."""

    node: Array
    column: Array
    weight: Array


def classic_leaves(
    call: Call, place: dict[tuple[int, int], int], prefix: str, dtype: DType
) -> Leaves:
    """The leaves of a TreeEnsembleClassifier ("class") or Regressor ("target"), by `prefix`.

    Args:
        place: where each (tree, node id) stands, from `classic_nodes`.
        dtype: of the weights.
    """
    trees = call.vector(f"{prefix}_treeids", "int64")
    numbers = call.vector(f"{prefix}_nodeids", "int64")
    column = call.vector(f"{prefix}_ids", "int64")
    wide = call.attr(f"{prefix}_weights_as_tensor")
    weight = call.vector(f"{prefix}_weights") if wide is None else np.asarray(wide).ravel()
    if not trees.size == numbers.size == column.size == weight.size:
        raise ArtifactError(f"operator {call.node.op}: its leaves' weights do not fit")
    found = [place.get(k, -1) for k in zip(trees.tolist(), numbers.tolist(), strict=True)]
    if -1 in found:
        raise ArtifactError(f"operator {call.node.op}: a weight belongs to no node")
    return Leaves(np.array(found, np.int64), column, weight.astype(dtype))


def modern_nodes(call: Call, dtype: DType) -> tuple[Nodes, Leaves]:
    """The trees of a TreeEnsemble, which numbers nodes and leaves apart: leaves come last here."""
    roots = call.vector("tree_roots", "int64")
    feature = call.vector("nodes_featureids", "int64")
    n = feature.size
    arrays = {k: call.attr(k) for k in ("nodes_modes", "nodes_splits", "leaf_weights")}
    if not all(isinstance(a, np.ndarray) and a.ndim == 1 for a in arrays.values()):
        raise ArtifactError("TreeEnsemble: modes, splits or weights are not tensors")
    weight = arrays["leaf_weights"].astype(dtype)
    column = call.vector("leaf_targetids", "int64")
    count = weight.size
    codes = arrays["nodes_modes"].astype(np.int64)
    tracks = call.vector("nodes_missing_value_tracks_true", "int64")
    tracks = tracks if tracks.size else np.zeros(n, np.int64)
    children = {}
    for side in ("true", "false"):
        at = call.vector(f"nodes_{side}nodeids", "int64")
        is_leaf = call.vector(f"nodes_{side}leafs", "int64")
        if at.size != n or is_leaf.size != n:
            raise ArtifactError("TreeEnsemble: its branches do not fit")
        if n and (at.min() < 0 or (at >= np.where(is_leaf == 1, count, n)).any()):
            raise ArtifactError("TreeEnsemble: a branch leads nowhere")
        children[side] = np.where(is_leaf == 1, n + at, at)
    sizes = (codes.size, arrays["nodes_splits"].size, tracks.size)
    if set(sizes) != {n} or column.size != count or not roots.size:
        raise ArtifactError("TreeEnsemble: its arrays do not fit")
    if n == 0 or codes.min() < 0 or codes.max() > 6 or roots.min() < 0 or roots.max() >= n:
        raise ArtifactError("TreeEnsemble: an unknown mode or root")
    same = children["true"] == children["false"]
    if same.any():  # a lone leaf, written as a node with one child: the leaf is doubled
        doubled = children["false"][same]
        if (doubled < n).any():
            raise ArtifactError("TreeEnsemble: a node has one child twice")
        children["false"][same] = n + count + np.arange(doubled.size)
        weight = np.concatenate([weight, weight[doubled - n]])
        column = np.concatenate([column, column[doubled - n]])
    total = weight.size
    ends = np.zeros(total, np.int64)
    nodes = Nodes(
        tree=_owners(roots, children, n, total),
        roots=roots,
        feature=np.concatenate([feature, ends]),
        mode=np.concatenate([codes, np.full(total, LEAF)]),
        split=np.concatenate([arrays["nodes_splits"].astype(dtype), ends.astype(dtype)]),
        true=np.concatenate([children["true"], ends - 1]),
        false=np.concatenate([children["false"], ends - 1]),
        tracks_true=np.concatenate([tracks == 1, ends == 1]),
        sets=_member_sets(call, codes),
    )
    return nodes, Leaves(n + np.arange(total), column, weight)


def _owners(roots: Array, children: dict[str, Array], n: int, leaves: int) -> Array:
    """The tree of each node, level by level; a cycle is found later, so levels are bounded."""
    owner = np.zeros(n + leaves, np.int64)
    owner[roots] = np.arange(roots.size)
    level = roots
    seen = np.zeros(n + leaves, bool)
    while level.size:
        if seen[level].any():
            raise ArtifactError("TreeEnsemble: a node has two parents, or there is a cycle")
        seen[level] = True
        inner = level[level < n]
        below = np.concatenate([children["true"][inner], children["false"][inner]])
        owner[below] = np.tile(owner[inner], 2)
        level = below
    return owner


def _member_sets(call: Call, codes: Array) -> dict[int, Array]:
    """membership_values: a set for each BRANCH_MEMBER node in order, ended by NaN."""
    members = np.flatnonzero(codes == MEMBER)
    if not members.size:
        return {}
    values = call.attr("membership_values")
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f":
        raise ArtifactError("TreeEnsemble: its sets are not a tensor of numbers")
    ends = np.flatnonzero(np.isnan(values.ravel()))
    if ends.size != members.size:
        raise ArtifactError("TreeEnsemble: a set is missing")
    starts = np.concatenate([[0], ends[:-1] + 1])
    flat = values.ravel()
    return {int(m): flat[s:e] for m, s, e in zip(members, starts, ends, strict=True)}
