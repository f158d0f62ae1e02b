"""`check_content` rejects ONNX models that refer to other files or use forbidden operators.

onnxruntime opens any file that a tensor names as external data, and a stored model may come from a
stranger's database. The package onnx may be missing, so this module walks the fields of the
Protocol Buffers encoding (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.limits import MAX_NODES

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains of the operators that may run."""

MAX_DEPTH = 16
"""Deepest nesting of graphs within nodes."""

MESSAGES: Mapping[str, Mapping[int, str]] = {
    "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
    "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
    "NodeProto": {5: "AttributeProto"},
    "AttributeProto": {
        **dict.fromkeys((5, 10), "TensorProto"),
        **dict.fromkeys((6, 11), "GraphProto"),
        **dict.fromkeys((22, 23), "SparseTensorProto"),
    },
    "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
    "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
    "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
    "TensorProto": {},
}
"""Map each message type to the fields that lead to tensors: field number and message type."""

_OP_TYPE, _DOMAIN, _EXTERNAL_DATA, _DATA_LOCATION = 4, 7, 13, 14
"""Field numbers: two of a NodeProto, then two of a TensorProto."""
_STRING = b"|".join(b"\\x%02x[\\x00-\\xff]{%d}" % (n, n) for n in range(16))
_LIST_ENTRIES = re.compile(
    rb"(?:\x3d[\x00-\xff]{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f]|\x4a(?:%b)){1,4096}" % _STRING
)
"""A pattern of entries of the lists `floats`, `ints` and `strings` of an AttributeProto. Trees have
millions of entries, so one match skips up to 4,096 of them."""
_VARINT, _LENGTH, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}
"""Wire types of the encoding, and the sizes of fixed types; ONNX never used groups."""


def check_content(content: bytes) -> None:
    """Raise ArtifactError if a serialised onnx.ModelProto is damaged or too large.

    Raise UnsupportedModelError if the model has operators from domains other than `DOMAINS`, local
    functions, weights in other files, sparse weights, or a Loop.
    """
    # onnxruntime would read its own format, which this function cannot check.
    if content[4:8] == b"ORTM":
        raise UnsupportedModelError("the model is in onnxruntime's own format; keep the ONNX file")
    pending, node_count = [("ModelProto", 0, len(content), 0)], 0
    while pending:
        message_type, offset, end, depth = pending.pop()
        message_fields = MESSAGES[message_type]
        while offset < end:
            is_attribute = message_type == "AttributeProto"
            if is_attribute and (match := _LIST_ENTRIES.match(content, offset, end)):
                offset = match.end()
                continue
            key, offset = _read_varint(content, offset, end)
            field, wire_type = key >> 3, key & 7
            if wire_type == _VARINT:
                value, offset = _read_varint(content, offset, end)
                if message_type == "TensorProto" and field == _DATA_LOCATION and value:
                    raise _make_external_data_error()
            elif wire_type == _LENGTH:
                size, start = _read_varint(content, offset, end)
                offset = start + size
                if offset > end:
                    raise _make_damage_error("a field is longer than its message")
                if field in message_fields:
                    _check_message(message_type, message_fields[field])
                    inner_depth = depth + (message_fields[field] == "GraphProto")
                    if inner_depth > MAX_DEPTH:
                        raise ArtifactError("the ONNX graph is nested too deeply")
                    node_count += message_fields[field] == "NodeProto"
                    pending.append((message_fields[field], start, offset, inner_depth))
                elif message_type == "NodeProto" and field in (_OP_TYPE, _DOMAIN):
                    _check_operator(field, content[start:offset])
                elif message_type == "TensorProto" and field == _EXTERNAL_DATA:
                    raise _make_external_data_error()
            elif wire_type in _FIXED_BYTES:
                offset += _FIXED_BYTES[wire_type]
            else:
                raise _make_damage_error(f"a field has the unknown wire type {wire_type}")
        if offset > end:
            raise _make_damage_error("a field is longer than its message")
        if node_count > MAX_NODES:
            raise ArtifactError(f"the ONNX graph has more than {MAX_NODES} nodes")


def _read_varint(content: bytes, offset: int, end: int) -> tuple[int, int]:
    """Decode a variable-length integer (7 bits per byte); return it and the offset after it."""
    value = shift = 0
    while offset < end and shift < 70:
        byte = content[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), offset
        shift += 7
    raise _make_damage_error("a number is truncated")


def _check_message(parent_type: str, message_type: str) -> None:
    if message_type == "FunctionProto":
        raise UnsupportedModelError(
            "the ONNX model defines its own functions; inline them with onnx.inliner"
        )
    if (parent_type, message_type) == ("GraphProto", "SparseTensorProto"):
        raise UnsupportedModelError("the ONNX model has sparse weights; store them dense")


def _check_operator(field: int, content: bytes) -> None:
    name = content.decode("utf-8", "replace")
    if field == _DOMAIN and name not in DOMAINS:
        raise UnsupportedModelError(
            f"the ONNX model has operators of domain {name!r}, which only its vendor's runtime "
            "supports; export it with standard operators"
        )
    if field == _OP_TYPE and name == "Loop":
        raise UnsupportedModelError(
            "the ONNX model has a Loop, whose length cannot be bounded; export it without one"
        )


def _make_external_data_error() -> UnsupportedModelError:
    return UnsupportedModelError(
        "the ONNX model keeps its weights in other files; save it as one file "
        "(onnx.save_model(..., save_as_external_data=False))"
    )


def _make_damage_error(reason: str) -> ArtifactError:
    return ArtifactError(f"damaged or truncated: not an ONNX model ({reason})")
