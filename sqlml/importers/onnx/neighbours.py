"""Convert the search for neighbours that skl2onnx writes: a Scan that measures, and a TopK.

The Scan computes the distance of all rows to one point after the other. The distances of TopK are
then those of the operator `nearest`, which does not keep the distances to all points.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sqlml.importers.onnx.document import GraphBody, GraphNode
from sqlml.importers.onnx.graph_items import Call, Item, Stack
from sqlml.importers.row_tensors import RowTensor, Unsupported


def convert_scan(call: Call) -> tuple[Item, ...]:
    """Convert a Scan over the points of a constant (m, k) to the rows and their squared distances.

    Other distances run as a whole graph, because onnxruntime adds their terms in an order that
    depends on the position of the row.
    """
    body = call.attr("body")
    is_simple = isinstance(body, GraphBody) and call.integer("num_scan_inputs", 0) == 1
    if (
        not is_simple
        or len(call.inputs) != 2
        or set(call.node.attrs) != {"body", "num_scan_inputs"}
    ):
        raise Unsupported("its body is not a distance")
    x, points = call.table(0), call.const(1)
    if x.dtype != "float32" or points.dtype != np.float32 or points.shape[1:] != x.inner:
        raise Unsupported("its body is not a distance between float32 rows")
    if not _is_squared_distance(body):
        raise Unsupported("its body is not a squared euclidean distance")
    distances = call.op("pairwise", x.value, points=points, metric="sqeuclidean")
    return x, Stack(RowTensor(distances, (len(points),)), 1)


def _is_squared_distance(body: GraphBody) -> bool:
    """Return True if a body maps (rows, point) to (rows, squared distances of rows and point)."""
    producers = {name: node for node in body.nodes for name in node.outputs}
    if not len(body.inputs) == len(body.outputs) == 2:
        return False
    rows, _ = _skip_identity(producers, body.outputs[0])
    _, squares = _skip_identity(producers, body.outputs[1])
    # A sum without keepdims is one number per row, so it is along the only axis of the columns.
    if squares is None or squares.op != "ReduceSumSquare" or squares.attrs.get("keepdims", 1) != 0:
        return False
    _, difference = _skip_identity(producers, squares.inputs[0])
    if difference is None or difference.op != "Sub":
        return False
    return rows == body.inputs[0] and set(difference.inputs) == set(body.inputs)


def _skip_identity(producers: Mapping[str, GraphNode], name: str) -> tuple[str, GraphNode | None]:
    """Return the value `name` before Identity operators, and the node that computes it."""
    for _ in range(len(producers) + 1):
        node = producers.get(name)
        if node is None or node.op != "Identity" or not node.inputs:
            return name, node
        name = node.inputs[0]
    raise Unsupported("its body is a cycle")


def convert_top_k(call: Call) -> tuple[Item, ...]:
    """Convert TopK to the distances and the indices of the nearest points, (n, k).

    As in onnxruntime, points at equal distances are in the order of their indices.
    """
    x, counts = call.table(0), call.ints(1) if len(call.inputs) == 2 else []
    is_ascending = not call.integer("largest", 1) and call.integer("sorted", 1)
    if len(counts) != 1 or not is_ascending or call.axis(-1, 2) != 1:
        raise Unsupported("it does not search for the nearest points")
    node = call.builder.node(x.value)
    is_square = node.op != "sqrt"
    if not is_square:
        node = call.builder.node(call.builder.value(node.inputs[0]))
    if node.op != "pairwise" or node.attrs["metric"] != "sqeuclidean":
        raise Unsupported("it does not search for the nearest points")
    (k,) = counts
    if not 0 < k <= x.inner[0]:
        raise call.error(f"it chooses {k} of {x.inner[0]} numbers")
    rows, points = call.builder.value(node.inputs[0]), node.attrs["points"]
    attrs = {"points": points, "metric": "sqeuclidean", "squared": is_square, "ties": "index"}
    neighbours = call.op("nearest", rows, **attrs, k=k)
    columns = np.arange(2 * k)
    distances = call.cast(call.op("select", neighbours, indices=columns[:k]), "float32")
    indices = call.cast(call.op("select", neighbours, indices=columns[k:]), "int64")
    return RowTensor(distances, (k,)), RowTensor(indices, (k,))
