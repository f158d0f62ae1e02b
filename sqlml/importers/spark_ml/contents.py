"""Read the learned values of stages from objects, or from the tables of a saved pipeline.

`Stage.data` maps names to learned values. A fitted object's attributes and the saved columns have
the same names, so `LEARNED` reads both. Trees have `nodes` (TreeNodes), `weights` (T,),
numFeatures and numClasses. Linear models have coefficients, (F,) or (K, F), and intercepts.

A row goes left at a numeric split if `feature <= threshold`, so NaN goes right. At a categorical
split, Spark stores the smaller of the two sets of categories. A value in neither set (NaN, a larger
code, or not an integer) follows the larger set (`org/apache/spark/ml/tree/Split.scala`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.spark_ml.pipeline_stages import FORESTS, PACKAGES, SCALA, SINGLE_TREES
from sqlml.importers.untrusted_documents import MAX_FEATURES, MAX_OUTPUTS, check_count
from sqlml.ir.trees import Ensemble, RawTrees, build_ensemble
from sqlml.types import Array

if TYPE_CHECKING:
    import pyarrow as pa


MAX_CATEGORIES = 1 << 27
"""The maximum number of categories in all splits of a model together."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeNodes:
    """The nodes of all trees, concatenated, in Spark's order.

    `tree` has the index of each node's tree. `stats` (N, K) has the number of training rows of each
    class at each node. `left` and `right` are indices within the tree, or -1 at a leaf.
    `categories` is the number of categories of the feature, or -1 at a numeric split. The slice
    `split_values[split_begin[i]:split_begin[i + 1]]` has the threshold of node i, or the categories
    that go left.
    """

    tree: Array
    prediction: Array
    stats: Array
    left: Array
    right: Array
    feature: Array
    categories: Array
    split_begin: Array
    split_values: Array
    num_trees: int

    def build_ensemble(self, values: Array, num_features: int) -> Ensemble:
        """Build an Ensemble with base 0; row i of `values` has the values of node i."""
        raw_trees = replace(self._build_raw_trees(num_features), value=values)
        target, base = np.zeros(self.num_trees, np.int32), np.zeros(values.shape[1])
        try:
            ensemble = build_ensemble(raw_trees, target=target, base=base, compare="le")
        except ProgramError as error:
            raise _make_damage_error(str(error)) from None
        if ensemble.nodes + ensemble.leaf_values.shape[0] != self.tree.size:
            raise _make_damage_error("a node has no parent")
        return ensemble

    @property
    def categorical_columns(self) -> Array:
        return np.unique(self.feature[(self.left >= 0) & (self.categories >= 0)])

    def _build_raw_trees(self, num_features: int) -> RawTrees:
        is_leaf = self.left < 0
        if (is_leaf != (self.right < 0)).any():
            raise _make_damage_error("a node has one child")
        sizes = np.bincount(self.tree, minlength=self.num_trees)
        if (sizes == 0).any():
            raise _make_damage_error("a tree has no node")
        roots = np.cumsum(sizes) - sizes
        for child in (self.left, self.right):
            if (child[~is_leaf] >= sizes[self.tree][~is_leaf]).any():
                raise _make_damage_error("a child belongs to no tree")
        if num_features > MAX_FEATURES or (self.feature[~is_leaf] >= num_features).any():
            raise _make_damage_error("a split reads a column that does not exist")
        if (self.feature[~is_leaf] < 0).any():
            raise _make_damage_error("a split has no column")
        tree_root = roots[self.tree]
        left = np.where(is_leaf, 0, self.left + tree_root)
        right = np.where(is_leaf, 0, self.right + tree_root)
        is_numeric = ~is_leaf & (self.categories < 0)
        if (np.diff(self.split_begin)[is_numeric] != 1).any():
            raise _make_damage_error("a numeric split does not have exactly one threshold")
        threshold = np.zeros(is_leaf.size)
        threshold[is_numeric] = self.split_values[self.split_begin[:-1][is_numeric]]
        if not np.isfinite(threshold).all():
            raise _make_damage_error("a threshold is not finite")
        # Spark numbers the leaves of a tree from left to right, and saves its nodes in pre-order.
        is_preorder = (
            self.left[~is_leaf] == (np.arange(is_leaf.size) - tree_root)[~is_leaf] + 1
        ).all()
        leaf_counts = np.cumsum(is_leaf)
        sets, is_swapped = self._find_sets(~is_leaf & (self.categories >= 0))
        return RawTrees(
            roots=roots,
            feature=np.where(is_leaf, 0, self.feature),
            threshold=threshold,
            left=np.where(is_swapped, right, left),
            right=np.where(is_swapped, left, right),
            leaf=is_leaf,
            default_left=np.zeros(is_leaf.size, bool),
            value=np.zeros((is_leaf.size, 1)),
            sets=sets or None,
            number=leaf_counts - leaf_counts[tree_root] + is_leaf[tree_root] - 1
            if is_preorder
            else None,
        )

    def _find_sets(self, is_categorical: Array) -> tuple[dict[int, Array], Array]:
        """Return the smaller set of each categorical node, and a mask of sets that go right."""
        sets: dict[int, Array] = {}
        is_swapped = np.zeros(is_categorical.size, bool)
        numeric_columns = self.feature[(self.left >= 0) & ~is_categorical]
        mixed = np.intersect1d(self.feature[is_categorical], numeric_columns)
        if mixed.size:
            raise _make_damage_error(f"column {mixed[0]} is split as numbers and as categories")
        if int(self.categories[is_categorical].sum()) > MAX_CATEGORIES:
            raise _make_damage_error("its splits have more categories than sqlml reads")
        for i in np.flatnonzero(is_categorical).tolist():
            num_categories = int(self.categories[i])
            members = self.split_values[self.split_begin[i] : self.split_begin[i + 1]]
            is_code = (members >= 0) & (members < num_categories) & (members == np.floor(members))
            codes = np.unique(members.astype(np.int64)) if is_code.all() else members[:0]
            if codes.size != members.size:
                raise _make_damage_error("a split reads categories that do not exist")
            is_swapped[i] = codes.size > num_categories // 2
            if is_swapped[i]:
                codes = np.setdiff1d(np.arange(num_categories, dtype=np.int64), codes)
            sets[i] = codes
        return sets, is_swapped


def _make_damage_error(reason: str) -> ArtifactError:
    return ArtifactError(f"the trees of the Spark model are damaged: {reason}")


ReadTable = Callable[[str], "pa.Table"]
Metadata = Mapping[str, Any]
Get = Callable[[str], Any]
"""A function that maps the name of an attribute or a saved column to a learned value."""

MAX_TREES = 1_000_000


def _read_row(read_table: ReadTable) -> dict[str, Any]:
    table = read_table("data")
    if table.num_rows != 1:
        raise ArtifactError(f"a table of the Spark model has {table.num_rows} rows, not one")
    (row,) = table.to_pylist()
    return dict(row)


def _read_vector(vector: Any) -> Array:
    """Convert a pyspark vector, or the struct that Spark saves for a vector, to an array."""
    if hasattr(vector, "toArray"):
        return np.asarray(vector.toArray())
    values = _to_floats(vector["values"])
    if vector["type"] == 1:  # dense; 0 is sparse
        return values
    size = check_count(vector["size"], MAX_FEATURES, "Spark", "numbers of a vector")
    return _expand_sparse(values, _to_ints(vector["indices"]), size)


def _expand_sparse(values: Array, indices: Array, size: int) -> Array:
    if indices.shape != values.shape or np.unique(indices).size != indices.size:
        raise ValueError("a sparse vector has different numbers of indices and values")
    if indices.size and not 0 <= indices.min() <= indices.max() < size:
        raise ValueError("an index of a sparse vector is out of range")
    expanded = np.zeros(size)
    expanded[indices] = values
    return expanded


def _read_matrix(saved_matrix: Any) -> tuple[Array, bool]:
    """Return a pyspark matrix, or a saved struct, as an array, and whether it was sparse."""
    if hasattr(saved_matrix, "toArray"):
        is_sparse = type(saved_matrix).__name__ != "DenseMatrix"
        return np.ascontiguousarray(saved_matrix.toArray(), np.float64), is_sparse
    num_rows = check_count(saved_matrix["numRows"], MAX_OUTPUTS, "Spark", "rows of a matrix")
    num_columns = check_count(saved_matrix["numCols"], MAX_FEATURES, "Spark", "columns of a matrix")
    values, is_by_row = _to_floats(saved_matrix["values"]), saved_matrix["isTransposed"]
    num_vectors, length = (num_rows, num_columns) if is_by_row else (num_columns, num_rows)
    is_sparse = saved_matrix["type"] != 1
    if is_sparse:
        starts, indices = _to_ints(saved_matrix["colPtrs"]), _to_ints(saved_matrix["rowIndices"])
        if starts.shape != (num_vectors + 1,) or starts[0] != 0 or starts[-1] != values.size:
            raise ValueError("the column offsets of a sparse matrix are inconsistent")
        if num_vectors * length > MAX_SPARSE_MATRIX:
            raise ArtifactError(f"a Spark matrix has {num_rows} x {num_columns} numbers")
        matrix = np.zeros((num_vectors, length))
        for i, (start, end) in enumerate(pairwise(starts.tolist())):
            matrix[i] = _expand_sparse(values[start:end], indices[start:end], length)
    else:
        matrix = values.reshape(num_vectors, length)
    return np.ascontiguousarray(matrix if is_by_row else matrix.T), is_sparse


MAX_SPARSE_MATRIX = 1 << 27


def _to_floats(values: Any) -> Array:
    return np.array(values, np.float64).reshape(-1)


def _to_ints(values: Any) -> Array:
    return np.array(values, np.int64).reshape(-1)


def _read_vectors(*names: str) -> Callable[[Get], dict[str, Any]]:
    return lambda get: {name: _read_vector(get(name)) for name in names}


def _read_linear(get: Get) -> dict[str, Any]:
    coefficients, intercept = _read_vector(get("coefficients")), _to_floats([get("intercept")])
    return {"coefficients": coefficients, "intercept": intercept}


def _read_logistic(get: Get) -> dict[str, Any]:
    coefficients, is_sparse = _read_matrix(get("coefficientMatrix"))
    learned = {"coefficients": coefficients, "intercepts": _read_vector(get("interceptVector"))}
    return {**learned, "sparse": is_sparse, "numClasses": get("numClasses")}


LEARNED: Mapping[str, Callable[[Get], dict[str, Any]]] = {
    "LinearRegressionModel": _read_linear,
    "LogisticRegressionModel": _read_logistic,
    "MaxAbsScalerModel": _read_vectors("maxAbs"),
    "MinMaxScalerModel": _read_vectors("originalMin", "originalMax"),
    "OneHotEncoderModel": lambda get: {"sizes": tuple(map(int, get("categorySizes")))},
    "RobustScalerModel": _read_vectors("range", "median"),
    "StandardScalerModel": _read_vectors("std", "mean"),
    "StringIndexerModel": lambda get: {"labels": tuple(map(tuple, get("labelsArray")))},
}
"""Maps the class of a stage to the reader of learned values from attributes or columns."""


def read_saved_data(class_name: str, read_table: ReadTable, metadata: Metadata) -> dict[str, Any]:
    """Read `Stage.data` of a saved stage from the tables and the metadata."""
    if class_name in SINGLE_TREES:
        nodes = read_tree_nodes(read_table("data"), 1)
        return {**_read_sizes(metadata), "nodes": nodes, "weights": np.ones(1)}
    if class_name in FORESTS:
        return _read_forest(read_table, metadata)
    if class_name == "KMeansModel":
        return _read_clusters(read_table)
    if class_name == "ImputerModel":
        return {"surrogates": _read_row(read_table)}
    if class_name not in LEARNED:
        return {}
    row = _read_row(read_table)
    learned = LEARNED[class_name](row.__getitem__)
    if class_name == "LogisticRegressionModel":
        if row["isMultinomial"] != (len(learned["coefficients"]) > 1):
            raise ValueError("isMultinomial does not match the coefficients")
    return learned


def _read_clusters(read_table: ReadTable) -> dict[str, Any]:
    rows = sorted(read_table("data").to_pylist(), key=lambda row: int(row["clusterIdx"]))
    if [row["clusterIdx"] for row in rows] != list(range(len(rows))):
        raise ValueError("the clusters are not numbered from 0")
    return {"centers": np.array([_read_vector(row["clusterCenter"]) for row in rows], np.float64)}


def _read_forest(read_table: ReadTable, metadata: Metadata) -> dict[str, Any]:
    table = read_table("treesMetadata")
    num_trees = check_count(metadata["numTrees"], MAX_TREES, "Spark", "trees")
    tree_ids, tree_metadata, weights = (table.column(i).to_pylist() for i in range(3))
    if table.num_rows != num_trees or sorted(tree_ids) != list(range(num_trees)):
        raise ValueError("its trees are not numbered from 0")
    for metadata_json in tree_metadata:
        class_name = json.loads(metadata_json)["class"]
        if class_name not in _TREE_CLASSES:
            raise ValueError(f"one of its trees is a {class_name}")
    nodes = read_tree_nodes(_flatten_struct(read_table("data"), "nodeData"), num_trees)
    weights_by_id = _expand_sparse(_to_floats(weights), _to_ints(tree_ids), num_trees)
    return _read_sizes(metadata) | {"nodes": nodes, "weights": weights_by_id}


_TREE_CLASSES = frozenset(f"{SCALA}{PACKAGES[kind]}.{kind}" for kind in SINGLE_TREES)


def _read_sizes(metadata: Metadata) -> dict[str, Any]:
    return {name: metadata[name] for name in ("numFeatures", "numClasses") if name in metadata}


def _flatten_struct(table: pa.Table, struct_name: str) -> pa.Table:
    """Replace the column `struct_name` of a table with one column per field of the struct."""
    import pyarrow as pa

    column = table.column(struct_name).combine_chunks()
    fields = {field.name: column.field(field.name) for field in column.type}
    other_columns = {name: table.column(name) for name in table.column_names if name != struct_name}
    return pa.table(other_columns | fields)


def read_tree_nodes(table: pa.Table, num_trees: int) -> TreeNodes:
    """Read a table of tree nodes, in the format that Spark has used since 3.0.

    The table of a single tree has no column treeID.
    """
    import pyarrow as pa

    if any(table.column(name).null_count for name in table.column_names):
        raise ValueError("a value of a tree is NULL")
    has_ids = "treeID" in table.column_names
    tree_ids = _read_column(table, "treeID") if has_ids else np.zeros(table.num_rows, np.int64)
    node_ids = _read_column(table, "id")
    order = np.lexsort((node_ids, tree_ids))
    tree_ids, node_ids = tree_ids[order], node_ids[order]
    if tree_ids.size and not 0 <= tree_ids.min() <= tree_ids.max() < num_trees:
        raise ValueError("a node belongs to no tree")
    starts = np.searchsorted(tree_ids, np.arange(num_trees))
    if not np.array_equal(node_ids, np.arange(node_ids.size) - starts[tree_ids]):
        raise ValueError("the nodes of a tree are not numbered from 0")
    table = table.take(pa.array(order))
    split = table.column("split").combine_chunks()
    split_begin, split_values = _join_lists(split.field("leftCategoriesOrThreshold"))
    stats_begin, stats = _join_lists(table.column("impurityStats").combine_chunks())
    if np.unique(np.diff(stats_begin)).size > 1:
        raise ValueError("the nodes of a tree have statistics of different lengths")
    left, right = _read_column(table, "leftChild"), _read_column(table, "rightChild")
    if min(left.min(initial=-1), right.min(initial=-1)) < -1:
        raise ValueError("a node has a child with a negative number")
    return TreeNodes(
        tree=tree_ids,
        prediction=_read_column(table, "prediction", np.float64),
        stats=stats.reshape(node_ids.size, -1) if stats.size else np.zeros((node_ids.size, 0)),
        left=left,
        right=right,
        feature=_to_array(split.field("featureIndex")),
        categories=_to_array(split.field("numCategories")),
        split_begin=split_begin,
        split_values=split_values,
        num_trees=num_trees,
    )


def _read_column(table: pa.Table, name: str, dtype: type = np.int64) -> Array:
    return _to_array(table.column(name).combine_chunks(), dtype)


def _to_array(column: pa.Array, dtype: type = np.int64) -> Array:
    array: Array = column.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in ("iu" if dtype is np.int64 else "f"):
        raise ValueError(f"a column of a tree has values of {column.type}")
    return array.astype(dtype)


def _join_lists(column: pa.ListArray) -> tuple[Array, Array]:
    """Return the offsets of the lists in a column, and the concatenated numbers."""
    if column.null_count or column.flatten().null_count:
        raise ValueError("a list of a tree contains NULL")
    sizes = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]), _to_array(column.flatten(), np.float64)
