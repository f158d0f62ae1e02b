"""Convert labels and categories of ai.onnx.ml: LabelEncoder, OneHotEncoder and CategoryMapper.

The child process that runs onnxruntime imports this module, so the imports must be fast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from sqlml.importers.frame import build_labels
from sqlml.importers.onnx.document import GraphNode, OnnxModel
from sqlml.importers.onnx.graph_items import (
    Call,
    Choice,
    Const,
    Item,
    Texts,
    find_shape,
    to_strings,
)
from sqlml.importers.onnx.tensor_layout import to_choice
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Builder, Value
from sqlml.types import FLOATS, INTEGERS, Array, DType, Labels, dtype_of


def read_class_values(call: Call, integer_name: str, string_name: str) -> Array:
    """Return the distinct class labels in attribute `string_name`, or if empty, `integer_name`."""
    strings = call.texts(string_name)
    labels = to_strings(strings) if strings else call.vector(integer_name, "int64")
    if len(set(labels.tolist())) != labels.size or not labels.size:
        raise call.error("its class labels are not distinct")
    return labels


def cast_labels(values: Array, dtype: DType) -> Array:
    """Cast labels like ONNX's Cast; raise Unsupported if `dtype` cannot represent a label."""
    if dtype == "string":
        if values.dtype != object and values.dtype.kind not in "iu":
            raise Unsupported(f"it converts {values.dtype} labels to strings")
        return to_strings([str(v) for v in values.tolist()])
    if values.dtype == object:
        strings = values.tolist()
        if not all(_INTEGER.fullmatch(text) for text in strings):
            raise Unsupported("it converts strings that are not integers to numbers")
        values = np.array([int(text) for text in strings], np.int64)
    if dtype in INTEGERS and values.dtype.kind == "f":
        min_value = float(np.iinfo(dtype).min)
        if not ((values >= min_value) & (values < -min_value)).all():
            raise Unsupported(f"a label is out of the range of {dtype}")
    return values.astype(dtype)


_INTEGER = re.compile(r"-?[0-9]{1,18}")


def find_class_list(node: GraphNode) -> Array | None:
    """Return the class labels in the attributes of `node`, or None if there are no labels."""
    for name in ("classlabels_strings", "classlabels_int64s", "classlabels_ints"):
        value = node.attrs.get(name)
        if isinstance(value, list) and value:
            return to_strings(value)
        if isinstance(value, np.ndarray) and value.size:
            return value
    return None


def find_probability_keys(model: OnnxModel) -> dict[str, Array]:
    """Map each output of a ZipMap node to the class labels that name the probabilities."""
    zip_maps = (node for node in model.nodes if node.op == "ZipMap" and node.outputs)
    keys_by_name = {node.outputs[0]: find_class_list(node) for node in zip_maps}
    return {name: keys for name, keys in keys_by_name.items() if keys is not None}


def index_labels(
    index: Value, values: Sequence[Any], keys: Sequence[Any] | None, builder: Builder
) -> tuple[Value, Labels]:
    """Return the class index of each row, int64 (n, 1), and the distinct labels in class order.

    `index` (n, 1) is an index into `values`, which may repeat labels. `keys` are the labels in the
    order of the scores. If `keys` is None, the classes have the order of `values`.
    """
    labels = list(dict.fromkeys(values))
    if keys is not None:
        if not set(labels) <= set(keys):
            raise Unsupported(f"its labels {labels[:3]} are not the keys of its probabilities")
        # True == 1 in Python, so equal keys and labels may differ in type. Keep the label's type.
        label_by_key = {label: label for label in labels}
        labels = [label_by_key.get(key, key) for key in keys]
    class_by_label = {label: i for i, label in enumerate(labels)}
    class_indices = np.array([class_by_label[v] for v in values], np.int64)
    if not np.array_equal(class_indices, np.arange(class_indices.size)):
        index = builder.op("take", builder.constant(class_indices), index)
    return builder.cast(index, "int64"), build_labels(labels)


def _read_attribute(call: Call, prefix: str) -> Array | None:
    """Return the numbers or strings in the attribute that begins with `prefix`, or None."""
    for suffix, dtype in (("int64s", "int64"), ("floats", "float32")):
        if call.attr(f"{prefix}_{suffix}") is not None:
            return call.vector(f"{prefix}_{suffix}", dtype)
    if call.attr(f"{prefix}_strings") is not None:
        return to_strings(call.texts(f"{prefix}_strings"))
    tensor = call.attr(f"{prefix}_tensor")
    return None if tensor is None else np.asarray(tensor).ravel()


def _read_default(call: Call, values: Array) -> Array:
    tensor = call.attr("default_tensor")
    if tensor is not None:
        return np.asarray(tensor).ravel()[:1].astype(values.dtype)
    if values.dtype == object:
        return to_strings([call.text("default_string", "_Unused")])
    if values.dtype.kind == "f":
        return np.array([call.number("default_float", -0.0)], values.dtype)
    return np.array([call.integer("default_int64", -1)], values.dtype)


def convert_label_encoder(call: Call) -> Item:
    """Convert LabelEncoder, which maps keys to values and any other input to a default."""
    if call.attr("classes_strings") is not None:
        strings = to_strings(call.texts("classes_strings"))
        return _map_numbers_or_strings(call, np.arange(strings.size), strings)
    keys, values = _read_attribute(call, "keys"), _read_attribute(call, "values")
    if keys is None or values is None or keys.size != values.size:
        raise call.error("its keys and values do not match")
    return _map_keys(call, keys, np.concatenate([values, _read_default(call, values)]))


def convert_category_mapper(call: Call) -> Item:
    """Convert CategoryMapper, which maps strings to integers, or integers to strings."""
    numbers, strings = call.vector("cats_int64s", "int64"), to_strings(call.texts("cats_strings"))
    if numbers.size != strings.size:
        raise call.error("its cats_int64s and cats_strings have different lengths")
    return _map_numbers_or_strings(call, numbers, strings)


def _map_numbers_or_strings(call: Call, numbers: Array, strings: Array) -> Item:
    """Map `strings` to `numbers` if input 0 has strings; otherwise, map `numbers` to `strings`."""
    tensor = call.item(0)
    if isinstance(tensor, Texts) or (isinstance(tensor, Choice) and tensor.values.dtype == object):
        default = np.array([call.integer("default_int64", -1)], np.int64)
        return _map_keys(call, strings, np.concatenate([numbers, default]))
    default = to_strings([call.text("default_string", "_Unused")])
    return _map_keys(call, numbers, np.concatenate([strings, default]))


def _map_keys(call: Call, keys: Array, values: Array) -> Item:
    """Map inputs that equal `keys[i]` to `values[i]`, and unknown inputs to the last value."""
    tensor = call.item(0)
    tensor = to_choice(call.builder, tensor) or tensor
    key_indices: dict[object, int] = {}
    nan_index = keys.size
    for i, key in enumerate(keys.tolist()):
        if key != key:
            nan_index = min(nan_index, i)
        else:
            key_indices.setdefault(key, i)
    if isinstance(tensor, Choice) and (tensor.values.dtype == object) == (keys.dtype == object):
        value_indices = [key_indices.get(v, keys.size) for v in tensor.values.tolist()]
        return Choice(tensor.index, values[value_indices], tensor.inner, tensor.margins)
    distinct_indices = np.array(list(key_indices.values()), np.int64)
    distinct_keys = keys[distinct_indices]
    # `_encode_keys` returns an index into `mapped_values`, which end with NaN and unknown inputs.
    mapped_values = values[np.concatenate([distinct_indices, [nan_index, keys.size]])]
    columns = _split_columns(call, tensor, keys)
    codes = [_encode_keys(call, column, distinct_keys) for column in columns]
    inner = tensor.inner if isinstance(tensor, RowTensor | Texts) else ()
    if len(codes) == 1:
        return Choice(codes[0], mapped_values, inner)
    if values.dtype == object:
        raise Unsupported("it makes several columns of strings")
    blocks = [call.op("take", call.builder.constant(mapped_values), code) for code in codes]
    return RowTensor(call.op("concat", *blocks), inner)


def _split_columns(call: Call, tensor: Item, keys: Array) -> list[Value]:
    if isinstance(tensor, Texts):
        if keys.dtype != object:
            raise Unsupported("it looks strings up among numbers")
        return list(tensor.columns)
    if isinstance(tensor, Const) or keys.dtype == object:
        raise Unsupported("it looks numbers up among strings, or a constant")
    x = call.rows(0)
    value = call.cast(x.value, dtype_of(keys))
    width = math.prod(x.inner)
    if width == 1:
        return [value]
    return [call.op("select", value, indices=np.array([i], np.int64)) for i in range(width)]


def _encode_keys(call: Call, column: Value, keys: Array) -> Value:
    """Build the index of each input in `keys`, followed by an index for NaN and one for unknown."""
    nan_code = call.scalar(keys.size, "int64")
    if not keys.size:
        if column.type.dtype not in FLOATS:
            raise Unsupported("it has no keys")
        return call.op("where", call.op("isnan", column), nan_code, call.scalar(1, "int64"))
    codes = call.op("encode", column, categories=keys, missing=-1)
    if column.type.dtype in FLOATS:
        codes = call.op("where", call.op("isnan", column), nan_code, codes)
    is_unknown = call.op("lt", codes, call.scalar(0, "int64"))
    return call.op("where", is_unknown, call.scalar(keys.size + 1, "int64"), codes)


def convert_one_hot_encoder(call: Call) -> Item:
    """Convert OneHotEncoder to float32 (n, columns, categories).

    If attribute `zeros` is 1, an unknown category becomes zeros. Otherwise, scoring rejects it.
    """
    tensor = call.item(0)
    strings = call.texts("cats_strings")
    keys = to_strings(strings) if strings else call.vector("cats_int64s", "int64")
    if not keys.size or len(set(keys.tolist())) != keys.size:
        raise call.error("its categories are not distinct")
    columns, inner = _split_columns(call, tensor, keys), find_shape(tensor)[1:]
    blocks = []
    for i, column in enumerate(columns):
        codes = call.op("encode", column, categories=keys, missing=-1)
        if not call.integer("zeros", 1):
            name = call.column_names[i] if len(columns) == len(call.column_names) else f"column {i}"
            name = _find_input_name(call.builder, column) or name
            codes = call.op("require_known", codes, feature=name, step="OneHotEncoder")
        blocks.append(call.op("one_hot", codes, width=int(keys.size), dtype="float32"))
    return RowTensor(call.builder.concat(blocks), (*inner, int(keys.size)))


def _find_input_name(builder: Builder, column: Value) -> str | None:
    """Return the name of the only input that `column` depends on, or None if there are others."""
    node = builder.node(column)
    while node.op != "input":
        sources = [i for i in node.inputs if builder.value(i).type.rowwise]
        if len(sources) != 1:
            return None
        node = builder.node(builder.value(sources[0]))
    return str(node.attrs["name"])


def is_score_name(name: str) -> bool:
    """Return whether the output `name` holds scores rather than probabilities."""
    return name.lower().startswith("score")


def find_label_columns(names: Collection[str], labels: Sequence[Any]) -> list[str]:
    """Return the output in `names` for each label: skl2onnx writes "i" or "s" before the label.

    Return an empty list if a label has no output.
    """
    if not 1 < len(labels) <= len(names):
        return []
    columns: list[str] = []
    for label in labels:
        candidates = (f"i{label}", f"s{label}", f"s{label}.0")  # the last for an integral float
        columns += [name for name in candidates if name in names][:1]
    return columns if len(columns) == len(labels) else []
