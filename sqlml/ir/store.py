"""The stored form of a Program: versioned, checked and free of code.

Layout, little-endian::

    6 bytes   magic b"SQLML\\0"
    u16       format version
    u32       length of the header
    header    JSON: nodes, inputs, outputs, labels, and where each array lies in the payload
    u64       length of the payload once decompressed
    payload   zstandard frame: the raw bytes of all arrays behind each other
    32 bytes  sha256 of all that stands before

Nothing is unpickled, every length is checked before memory is taken for it, and the Program is
verified before anybody sees it, so a damaged or hostile file ends in ArtifactError.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.config import FORMAT_VERSION, MAX_NODES, MAX_PROGRAM_BYTES
from sqlml.errors import ArtifactError, ProgramError
from sqlml.ir.program import Node, Program, freeze
from sqlml.ir.spec import verify
from sqlml.types import DTYPES, Labels, TensorType

MAGIC = b"SQLML\0"
_HEAD = struct.Struct("<6sHI")
_SIZE = struct.Struct("<Q")
_DIGEST = 32
_MAX_RATIO = 20_000
"""Largest believable compression ratio; beyond it a length is taken for a decompression bomb."""


def dumps(program: Program) -> bytes:
    """Serialise a Program; equal Programs give equal bytes under one zstandard version."""
    payload = bytearray()

    def pack(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                return {"strings": value.tolist()}  # one axis: only categories are strings
            start = len(payload)
            payload.extend(value.tobytes())
            return {"array": [value.dtype.name, list(value.shape), start]}
        if isinstance(value, tuple):
            return {"tuple": [pack(v) for v in value]}
        if isinstance(value, float):
            return {"float": value.hex()}
        return value

    nodes = [
        [
            node.op,
            list(node.inputs),
            {k: pack(v) for k, v in node.attrs.items()},
            [node.type.dtype, list(node.type.shape)],
        ]
        for node in program.nodes
    ]
    header = {
        "nodes": nodes,
        "inputs": list(program.inputs.items()),
        "outputs": list(program.outputs.items()),
        "labels": None
        if program.labels is None
        else [program.labels.kind, [pack(v) for v in program.labels.values]],
    }
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    body = pa.compress(bytes(payload), codec="zstd", asbytes=True) if payload else b""
    blob = b"".join(
        [_HEAD.pack(MAGIC, FORMAT_VERSION, len(text)), text, _SIZE.pack(len(payload)), body]
    )
    return blob + hashlib.sha256(blob).digest()


def loads(blob: bytes) -> Program:
    """Read what `dumps` wrote.

    Raises:
        ArtifactError: damaged, hostile, or written by a later version of sqlml.
    """
    try:
        return verify(_loads(blob))
    except ArtifactError:
        raise
    except ProgramError as error:
        raise ArtifactError(f"the stored model is not a legal program: {error}") from None
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        OSError,
        MemoryError,
        struct.error,
        pa.ArrowException,
    ) as error:
        raise ArtifactError(
            f"the stored model is damaged ({type(error).__name__}: {error}); create it again"
        ) from None


def _loads(blob: bytes) -> Program:
    if len(blob) < _HEAD.size + _SIZE.size + _DIGEST or not blob.startswith(MAGIC):
        raise ArtifactError("this is not a stored sqlml model (its first bytes are others)")
    _, version, header_size = _HEAD.unpack_from(blob)
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"the stored model has format {version}; this sqlml reads up to {FORMAT_VERSION}: "
            "upgrade sqlml"
        )
    if hashlib.sha256(blob[:-_DIGEST]).digest() != blob[-_DIGEST:]:
        raise ArtifactError("the stored model is damaged (its checksum differs); create it again")
    start = _HEAD.size + header_size
    if start + _SIZE.size + _DIGEST > len(blob):
        raise ArtifactError("the stored model is cut off; create it again")
    header = json.loads(blob[_HEAD.size : start])
    (size,) = _SIZE.unpack_from(blob, start)
    body = blob[start + _SIZE.size : -_DIGEST]
    if size > MAX_PROGRAM_BYTES or size > len(body) * _MAX_RATIO:
        raise ArtifactError(f"the stored model claims {size} bytes; that is over the limit")
    payload = (
        pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=True) if size else b""
    )
    if len(payload) != size:
        raise ArtifactError("the stored model is shorter than it says; create it again")

    def unpack(value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list | float):
                raise ValueError("a bare list or float")
            return value
        ((kind, content),) = value.items()
        if kind == "array":
            name, shape, offset = content
            dtype = np.dtype(name)
            if dtype.kind not in "biuf" or any(not isinstance(d, int) or d < 0 for d in shape):
                raise ValueError(f"array of {name} {shape}")
            return np.frombuffer(payload, dtype, math.prod(shape), offset).reshape(shape)
        if kind == "strings":
            if not all(isinstance(s, str) for s in content):
                raise ValueError("a string array holds something else")
            strings = np.empty(len(content), object)
            strings[:] = content
            return strings
        if kind == "tuple":
            return tuple(unpack(v) for v in content)
        if kind == "float":
            return float.fromhex(content)
        raise ValueError(f"unknown value {kind!r}")

    if len(header["nodes"]) > MAX_NODES:
        raise ArtifactError(f"the stored model has more than {MAX_NODES} operators")
    nodes = []
    for op, inputs, attrs, (dtype, shape) in header["nodes"]:
        if dtype not in DTYPES or not all(type(i) is int for i in [*inputs, *shape]):
            raise ValueError(f"node {op!r} has type {dtype!r} {shape!r}")
        nodes.append(
            Node(
                op,
                tuple(inputs),
                freeze({k: unpack(v) for k, v in attrs.items()}),
                TensorType(dtype, tuple(shape)),
            )
        )
    labels = None
    if header["labels"] is not None:
        kind, values = header["labels"]
        python = {"string": str, "int64": int, "float64": float, "bool": bool}[kind]
        labels = Labels(kind, tuple(unpack(v) for v in values))
        if not all(type(v) is python for v in labels.values):
            raise ValueError("labels of mixed types")
    return Program(
        tuple(nodes),
        MappingProxyType({str(k): int(i) for k, i in header["inputs"]}),
        MappingProxyType({str(k): int(i) for k, i in header["outputs"]}),
        labels,
    )
