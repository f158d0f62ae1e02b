"""Labels and categories of ai.onnx.ml: class lists, LabelEncoder, OneHotEncoder, CategoryMapper."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.frame import labels_of
from sqlml.importers.onnx.document import GraphNode, OnnxModel
from sqlml.importers.onnx.items import Call, Choice, Const, Item, Texts, shape_of
from sqlml.importers.onnx.layout import as_choice
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.ir.builder import Builder, Value
from sqlml.types import FLOATS, INTEGERS, Array, DType, Labels, dtype_of


def strings(values: list[str]) -> Array:
    made = np.empty(len(values), object)
    made[:] = values
    return made


def class_values(call: Call, integers: str, texts: str) -> Array:
    """The class labels of a classifier: int64 or strings, each once."""
    found = call.texts(texts)
    values = strings(found) if found else call.vector(integers, "int64")
    if len(set(values.tolist())) != values.size or not values.size:
        raise ArtifactError(f"operator {call.node.op}: its class labels are not distinct")
    return values


def cast_labels(values: Array, wanted: DType) -> Array:
    """Labels in another type, as ONNX's Cast converts them.

    Raises:
        Uncovered: the text of a number that is no integer, or a number that the type cannot hold.
    """
    if wanted == "string":
        if values.dtype != object and values.dtype.kind not in "iu":
            raise Uncovered(f"it makes strings of {values.dtype} labels")
        return strings([str(v) for v in values.tolist()])
    if values.dtype == object:
        texts = values.tolist()
        if not all(_INTEGER.fullmatch(text) for text in texts):
            raise Uncovered("it makes numbers of texts that are not integers")
        values = np.array([int(text) for text in texts], np.int64)
    if wanted in INTEGERS and values.dtype.kind == "f":
        least = float(np.iinfo(wanted).min)
        if not ((values >= least) & (values < -least)).all():
            raise Uncovered(f"a label is not a number of {wanted}")
    return values.astype(wanted)


_INTEGER = re.compile(r"-?[0-9]{1,18}")


def class_list(node: GraphNode) -> Array | None:
    """The class labels among the attributes of a node: int64 or strings."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        value = node.attrs.get(name)
        if isinstance(value, list) and value:
            return strings(value)
        if isinstance(value, np.ndarray) and value.size:
            return value
    return None


def keys_of(model: OnnxModel) -> dict[str, Array]:
    """The keys of each map of probabilities that the graph gives."""
    listed = {n.outputs[0]: class_list(n) for n in model.nodes if n.op == "ZipMap" and n.outputs}
    return {name: keys for name, keys in listed.items() if keys is not None}


def numbered(
    index: Value, values: Sequence[Any], keys: Sequence[Any] | None, b: Builder
) -> tuple[Value, Labels]:
    """Class numbers int64 (n, 1), and the labels that they stand for, each once.

    Args:
        index: which of `values` a row has.
        keys: the labels in the order of the probabilities, where the graph lists them.

    Raises:
        Uncovered: a label is not among the keys.
    """
    order = list(dict.fromkeys(values))
    if keys is not None:
        if not set(order) <= set(keys):
            raise Uncovered(f"its labels {order[:3]} are not the keys of its probabilities")
        same = {label: label for label in order}  # a label's own type counts: True is 1
        order = [same.get(key, key) for key in keys]
    places = {label: i for i, label in enumerate(order)}
    place = np.array([places[v] for v in values], np.int64)
    if not np.array_equal(place, np.arange(place.size)):
        index = b.op("take", b.constant(place), index)
    return b.cast(index, "int64"), labels_of(order)


def _attribute(call: Call, prefix: str) -> Array | None:
    """keys_* or values_* of a LabelEncoder."""
    for suffix, dtype in (("int64s", "int64"), ("floats", "float32")):
        if call.attr(f"{prefix}_{suffix}") is not None:
            return call.vector(f"{prefix}_{suffix}", dtype)
    if call.attr(f"{prefix}_strings") is not None:
        return strings(call.texts(f"{prefix}_strings"))
    tensor = call.attr(f"{prefix}_tensor")
    return None if tensor is None else np.asarray(tensor).ravel()


def _default(call: Call, values: Array) -> Array:
    tensor = call.attr("default_tensor")
    if tensor is not None:
        return np.asarray(tensor).ravel()[:1].astype(values.dtype)
    if values.dtype == object:
        return strings([call.text("default_string", "_Unused")])
    if values.dtype.kind == "f":
        return np.array([call.number("default_float", -0.0)], values.dtype)
    return np.array([call.integer("default_int64", -1)], values.dtype)


def label_encoder(call: Call) -> Item:
    """LabelEncoder: each value looked up among the keys; what is not there gets the default."""
    classes = call.attr("classes_strings")
    if classes is not None:
        texts = strings(call.texts("classes_strings"))
        return _either_way(call, np.arange(texts.size), texts)
    keys, values = _attribute(call, "keys"), _attribute(call, "values")
    if keys is None or values is None or keys.size != values.size:
        raise ArtifactError("LabelEncoder: its keys and values do not match")
    return _mapped(call, keys, np.concatenate([values, _default(call, values)]))


def category_mapper(call: Call) -> Item:
    """CategoryMapper: strings to integers, or back."""
    numbers, texts = call.vector("cats_int64s", "int64"), strings(call.texts("cats_strings"))
    if numbers.size != texts.size:
        raise ArtifactError("CategoryMapper: its categories do not fit")
    return _either_way(call, numbers, texts)


def _either_way(call: Call, numbers: Array, texts: Array) -> Item:
    item = call.item(0)
    reads_texts = isinstance(item, Texts) or (
        isinstance(item, Choice) and item.values.dtype == object
    )
    if reads_texts:
        default = np.array([call.integer("default_int64", -1)], np.int64)
        return _mapped(call, texts, np.concatenate([numbers, default]))
    fallback = strings([call.text("default_string", "_Unused")])
    return _mapped(call, numbers, np.concatenate([texts, fallback]))


def _mapped(call: Call, keys: Array, values: Array) -> Item:
    """The value for each key; `values` has one entry more than `keys`, for all other keys."""
    item = call.item(0)
    item = as_choice(call.builder, item) or item
    lookup: dict[object, int] = {}
    nan = keys.size
    for i, key in enumerate(keys.tolist()):
        if key != key:
            nan = i if nan == keys.size else nan
        else:
            lookup.setdefault(key, i)
    if isinstance(item, Choice) and (item.values.dtype == object) == (keys.dtype == object):
        places = [lookup.get(v, keys.size) for v in item.values.tolist()]
        return Choice(item.index, values[places], item.inner)
    first = np.array(list(lookup.values()), np.int64)
    known = keys[first] if first.size else keys[:0]
    # The index that encode gives, one of `first`; what is unknown comes last.
    table = np.concatenate([first, [nan, keys.size]])
    codes = [_index(call, column, known, first.size) for column in _columns(call, item, keys)]
    inner = item.inner if isinstance(item, Rows | Texts) else ()
    if len(codes) == 1:
        return Choice(codes[0], values[table], inner)
    if values.dtype == object:
        raise Uncovered("it makes several columns of strings")
    taken = [call.op("take", call.builder.constant(values[table]), c) for c in codes]
    return Rows(call.op("concat", *taken), inner)


def _columns(call: Call, item: Item, keys: Array) -> list[Value]:
    if isinstance(item, Texts):
        if keys.dtype != object:
            raise Uncovered("it looks strings up among numbers")
        return list(item.columns)
    if isinstance(item, Const) or keys.dtype == object:
        raise Uncovered("it looks numbers up among strings, or a constant")
    x = call.rows(0)
    value = call.cast(x.value, dtype_of(keys))
    width = math.prod(x.inner)
    if width == 1:
        return [value]
    return [call.op("select", value, indices=np.array([i], np.int64)) for i in range(width)]


def _index(call: Call, x: Value, known: Array, count: int) -> Value:
    """(n, 1): the place among `known`; `count` for NaN, `count + 1` for anything else."""
    missing = call.builder.constant(np.array([count], np.int64))
    if not known.size:
        if x.type.dtype not in FLOATS:
            raise Uncovered("it has no keys")
        gone = call.op("isnan", x)
        return call.op("where", gone, missing, call.scalar(count + 1, "int64"))
    codes = call.op("encode", x, categories=known, missing=-1)
    if x.type.dtype in FLOATS:
        codes = call.op("where", call.op("isnan", x), missing, codes)
    unknown = call.op("lt", codes, call.scalar(0, "int64"))
    return call.op("where", unknown, call.scalar(count + 1, "int64"), codes)


def one_hot_encoder(call: Call) -> Item:
    """OneHotEncoder: float32 (n, c, categories) of c columns.

    A category that is not listed gives zeros, or is refused."""
    item = call.item(0)
    texts = call.texts("cats_strings")
    keys = strings(texts) if texts else call.vector("cats_int64s", "int64")
    if not keys.size or len(set(keys.tolist())) != keys.size:
        raise ArtifactError("OneHotEncoder: its categories are not distinct")
    columns, inner = _columns(call, item, keys), shape_of(item)[1:]
    parts = []
    for i, column in enumerate(columns):
        codes = call.op("encode", column, categories=keys, missing=-1)
        if not call.integer("zeros", 1):
            name = call.names[i] if len(columns) == len(call.names) else f"column {i}"
            codes = call.op("require_known", codes, feature=name, step="OneHotEncoder")
        parts.append(call.op("one_hot", codes, width=int(keys.size), dtype="float32"))
    joined = parts[0] if len(parts) == 1 else call.op("concat", *parts)
    return Rows(joined, (*inner, int(keys.size)))


# Tell a classifier's outputs apart by their names, as converters to ONNX give them.
#
# The process that asks onnxruntime imports this module, too: it must stay light.


def is_score(name: str) -> bool:
    """Whether an output of this name holds scores, though it has one number a class."""
    return name.lower().startswith("score")


def columns_of_labels(names: Collection[str], labels: Sequence[Any]) -> list[str]:
    """The outputs that are called as the labels, as skl2onnx calls columns of probabilities.

    They are i1 and i2, or sred and sblue; an empty list if one is missing.
    """
    columns: list[str] = []
    if not 1 < len(labels) <= len(names):
        return columns
    for label in labels:
        texts = (f"i{label}", f"s{label}", f"s{label}.0")  # the last of a float that is whole
        columns += [text for text in texts if text in names][:1]
    return columns if len(columns) == len(labels) else []
