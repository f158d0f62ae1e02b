"""`check_content`: whether an ONNX model is all in its bytes, and made of operators that may run.

onnxruntime opens the files that a tensor names as external data, wherever in the model it is: among
the weights, in an attribute, a branch, a function or a sparse tensor. A stored model may come from
a stranger's database, and is read where the package onnx is not installed. So this walks the fields
of the Protocol Buffers encoding (https://protobuf.dev/programming-guides/encoding) and skips what
holds no tensor; weights are never copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.limits import MAX_NODES

DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""Domains of the operators that may run."""

MAX_DEPTH = 16
"""Deepest nesting of graphs within nodes."""

MESSAGES: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
        "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
        "NodeProto": {5: "AttributeProto"},
        "AttributeProto": {
            5: "TensorProto",
            6: "GraphProto",
            10: "TensorProto",
            11: "GraphProto",
            22: "SparseTensorProto",
            23: "SparseTensorProto",
        },
        "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
        "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
        "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
        "TensorProto": {},
    }
)
"""Message of onnx.proto -> its fields that lead to tensors, and their messages."""

_OP_TYPE, _DOMAIN = 4, 7
"""Fields of a NodeProto."""
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
"""Fields of a TensorProto."""
_SHORT = b"|".join(b"\\x%02x[\\x00-\\xff]{%d}" % (n, n) for n in range(16))
_LISTED = re.compile(
    rb"(?:\x3d[\x00-\xff]{4}|\x40[\x80-\xff]{0,9}[\x00-\x7f]|\x4a(?:" + _SHORT + rb")){1,4096}"
)
"""Entries of the lists `floats`, `ints` and `strings` of an AttributeProto, of which trees have
millions."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
"""Kinds of fields of the encoding; groups, which ONNX never had, are not among them."""


def check_content(content: bytes) -> None:
    """Check a serialised onnx.ModelProto.

    Raises:
        ArtifactError: it is damaged, nested too deeply, or has too many nodes.
        UnsupportedModelError: operators of other domains, local functions, weights in other files,
            sparse weights, Loop.
    """
    if content[4:8] == b"ORTM":  # onnxruntime would read its own format, which this does not
        raise UnsupportedModelError("the model is in onnxruntime's own format; keep the ONNX file")
    messages, nodes = [("ModelProto", 0, len(content), 0)], 0
    while messages:
        kind, at, end, depth = messages.pop()
        inner = MESSAGES[kind]
        while at < end:
            if kind == "AttributeProto" and (listed := _LISTED.match(content, at, end)):
                at = listed.end()
                continue
            key, at = _varint(content, at, end)
            field, how = key >> 3, key & 7
            if how == _VARINT:
                value, at = _varint(content, at, end)
                if kind == "TensorProto" and field == _DATA_LOCATION and value:
                    raise _elsewhere()
            elif how == _LENGTH:
                size, at = _varint(content, at, end)
                start, at = at, at + size
                if at > end:
                    raise _damaged("a field is longer than what holds it")
                if field in inner:
                    _check_kind(kind, inner[field])
                    below = depth + (inner[field] == "GraphProto")
                    if below > MAX_DEPTH:
                        raise ArtifactError("the ONNX graph is nested too deeply")
                    nodes += inner[field] == "NodeProto"
                    messages.append((inner[field], start, at, below))
                elif kind == "NodeProto" and field in (_OP_TYPE, _DOMAIN):
                    _check_operator(field, content[start:at])
                elif kind == "TensorProto" and field == _EXTERNAL_DATA:
                    raise _elsewhere()
            else:
                if how not in (_EIGHT_BYTES, _FOUR_BYTES):
                    raise _damaged(f"a field of an unknown kind {how}")
                at += 8 if how == _EIGHT_BYTES else 4
        if at > end:
            raise _damaged("a field is longer than what holds it")
        if nodes > MAX_NODES:
            raise ArtifactError(f"the ONNX graph has more than {MAX_NODES} nodes")


def _varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7
    raise _damaged("a number is cut off")


def _check_kind(outer: str, kind: str) -> None:
    if kind == "FunctionProto":
        raise UnsupportedModelError(
            "the ONNX model defines its own functions; inline them with onnx.inliner"
        )
    if (outer, kind) == ("GraphProto", "SparseTensorProto"):
        raise UnsupportedModelError("the ONNX model has sparse weights; store them dense")


def _check_operator(field: int, text: bytes) -> None:
    """The name or the domain of a node."""
    if field == _DOMAIN and text.decode("utf-8", "replace") not in DOMAINS:
        raise UnsupportedModelError(
            f"the ONNX model has operators of domain {text.decode('utf-8', 'replace')!r}, which "
            "only its vendor's runtime supports; export it with standard operators"
        )
    if field == _OP_TYPE and text == b"Loop":
        raise UnsupportedModelError(
            "the ONNX model has a Loop, whose length cannot be bounded; export it without one"
        )


def _elsewhere() -> UnsupportedModelError:
    return UnsupportedModelError(
        "the ONNX model keeps its weights in other files; save it as one file "
        "(onnx.save_model(..., save_as_external_data=False))"
    )


def _damaged(reason: str) -> ArtifactError:
    return ArtifactError(f"damaged or cut off: not an ONNX model ({reason})")
