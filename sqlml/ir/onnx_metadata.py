"""The Program in the metadata of an ONNX file that sqlml wrote, next to the graph made from it.

Two entries of the ModelProto's `metadata_props`: the stored Program (`ir/store.py`) in base64,
because their values are texts, and the sha256 of the graph. Once the graph is edited, its sha256
changes and the Program is ignored: the file then means what its graph says.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

from sqlml.errors import ArtifactError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.limits import FORMAT_VERSION

PROGRAM = f"sqlml.program.{FORMAT_VERSION}"
"""Key of the Program. A file with a Program of another format is read by its graph."""
GRAPH = "sqlml.graph.sha256"
"""Key of the graph's digest."""
MAX_PROTO_BYTES = (1 << 31) - 1
"""Largest message of protobuf, and so the largest ONNX file."""


def add_program(proto: Any, stored: bytes) -> None:
    """Put a stored Program into the onnx.ModelProto `proto`, where the file can hold both."""
    text = base64.b64encode(stored).decode("ascii")
    if proto.ByteSize() + len(text) + 1024 > MAX_PROTO_BYTES:
        return
    proto.metadata_props.add(key=PROGRAM, value=text)
    proto.metadata_props.add(key=GRAPH, value=_digest(proto))


def program_of(proto: Any) -> Program | None:
    """The Program that `proto`, an onnx.ModelProto, was made of; None if it has none, or its graph
    has changed.

    Raises:
        ArtifactError: the Program is damaged or hostile.
    """
    held = {entry.key: entry.value for entry in proto.metadata_props}
    if PROGRAM not in held or held.get(GRAPH) != _digest(proto):
        return None
    try:
        stored = base64.b64decode(held[PROGRAM], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArtifactError(f"the Program in the ONNX file is damaged ({error})") from None
    return store.loads(stored)


def _digest(proto: Any) -> str:
    """The sha256 of the graph and of the operator sets that it is written in."""
    made = hashlib.sha256(proto.graph.SerializeToString(deterministic=True))
    for domain, version in sorted((o.domain, o.version) for o in proto.opset_import):
        made.update(f"\n{domain} {version}".encode())
    return made.hexdigest()
