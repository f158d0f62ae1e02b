"""The stored form of a Program: versioned, checked and free of code.

Layout, little-endian::

    6 bytes   magic b"SQLML\0"
    u16       format version
    u32       length of the header
    header    JSON: nodes, inputs, outputs, and the labels of each target. An array has a dtype, a
              shape, an offset in the payload, the stored dtype, and a flag for shuffled bytes. A
              model file also has a description (`about`). If shorter, the JSON is stored as b"z",
              the length of the JSON as u32, and a zstandard frame
    u64       length of the decompressed payload
    payload   zstandard frame: the stored bytes of all arrays, concatenated
    32 bytes  sha256 of everything before it

Each array is stored in the narrowest dtype that keeps all numbers: integers in fewer bytes, and
float64 as float32 if every value survives bit for bit. If that compresses better, bytes are
shuffled as in Blosc (F. Alted, "Why modern CPUs are starving", 2010): the lowest bytes of all
numbers come first, then the next bytes, because bytes of one rank are alike.

Nothing is unpickled, every length is checked before memory is allocated, and the Program is
verified before it is returned. So a damaged or hostile file raises ArtifactError. An ONNX file of
sqlml also has the Program, as base64 in the metadata. Edits of the graph invalidate the Program.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from sqlml.errors import ArtifactError, ProgramError, UnsupportedModelError
from sqlml.ir.damaged_file import report_damage
from sqlml.ir.onnx_content import check_content
from sqlml.ir.ops import verify
from sqlml.ir.program import Node, Program, freeze
from sqlml.ir.torch_archive import read_exported
from sqlml.limits import FORMAT_VERSION, MAX_NODES, MAX_PROGRAM_BYTES
from sqlml.types import DTYPES, Array, Labels, TensorType

STORABLE_DTYPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("bool", "uint8", "int8", "float16", "float32"), ()),
    "int16": ("int8",),
    "int32": ("int8", "int16"),
    "uint32": ("uint8", "uint16"),
    "int64": ("int8", "int16", "int32"),
    "uint64": ("uint8", "uint16", "uint32"),
    "float64": ("float32",),
}
"""Map each allowed dtype of arrays to the narrower dtypes in which they may be stored."""


def pack_array(array: Array) -> tuple[bytes, str, bool]:
    """Return the bytes to store, the stored dtype, and whether the bytes are shuffled."""
    stored_array = _narrow_array(np.ascontiguousarray(array))
    flat, size = stored_array.reshape(-1), stored_array.dtype.itemsize
    if size == 1 or flat.size < 16:
        return flat.tobytes(), stored_array.dtype.name, False
    sample = flat[: (1 << 16) // size]  # Compressing the whole array would be slow.
    is_shuffled = _measure_compressed(_shuffle(sample)) < _measure_compressed(sample.tobytes())
    return (_shuffle(flat) if is_shuffled else flat.tobytes()), stored_array.dtype.name, is_shuffled


def unpack_array(
    stored: memoryview, dtype: str, shape: tuple[int, ...], stored_dtype: str, shuffled: bool
) -> Array:
    """Read an array of `dtype` and `shape` at the start of `stored`.

    `pack_array` returned `stored_dtype` and `shuffled`. Raise ValueError if the bytes do not fit.
    """
    if dtype not in STORABLE_DTYPES or stored_dtype not in (dtype, *STORABLE_DTYPES[dtype]):
        raise ValueError(f"an array of {dtype} stored as {stored_dtype}")
    np_dtype = np.dtype(stored_dtype)
    count = math.prod(shape)
    if count * np_dtype.itemsize > len(stored):
        raise ValueError(f"an array of {dtype} {shape} reaches beyond the payload")
    stored_bytes = stored[: count * np_dtype.itemsize]
    if shuffled:
        byte_ranks = np.frombuffer(stored_bytes, np.uint8).reshape(np_dtype.itemsize, count)
        flat = np.ascontiguousarray(byte_ranks.T).reshape(-1).view(np_dtype)
    else:
        flat = np.frombuffer(stored_bytes, np_dtype)
    array = flat.astype(dtype, copy=False).reshape(shape)
    array.setflags(write=False)
    return array


def _narrow_array(array: Array) -> Array:
    narrower_dtypes = STORABLE_DTYPES[array.dtype.name]
    if not array.size or not narrower_dtypes:
        return array
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            narrowed = array.astype(np.float32)
        bits = narrowed.astype(np.float64).view(np.uint64)
        return narrowed if np.array_equal(bits, array.view(np.uint64)) else array
    low, high = int(array.min()), int(array.max())
    candidates = (n for n in narrower_dtypes if np.iinfo(n).min <= low and high <= np.iinfo(n).max)
    return array.astype(next(candidates, array.dtype), copy=False)


def _shuffle(flat: Array) -> bytes:
    return flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize).T.tobytes()


def _measure_compressed(content: bytes) -> int:
    frame: Any = pa.compress(content, codec="zstd", asbytes=True)
    return len(frame)


MAGIC = b"SQLML\0"
_PREAMBLE = struct.Struct("<6sHI")
_PAYLOAD_SIZE = struct.Struct("<Q")
_HEADER_LENGTH = struct.Struct("<I")
_DIGEST_SIZE = 32
FOREIGN_MODELS: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
    "onnx_graph": ("model", check_content),
    "torch_module": ("archive", read_exported),
}
"""Map each operator that another runtime runs to a pair: the attribute with the model's bytes, and
a function that raises UnsupportedModelError if sqlml would not import these bytes."""
_MAX_RATIO = 33_000
"""Largest compression ratio of zstandard; a file that claims more is a decompression bomb."""
_MAX_HEADER_RATIO = 200
"""Largest compression ratio of a header, because parsed JSON needs a multiple of the memory."""
_MAX_WIDENING = 8
"""Maximum number of bytes of an array per byte in the payload: int64 stored as int8."""


def dumps(program: Program, about: Mapping[str, Any] | None = None) -> bytes:
    """Serialize a Program deterministically; `about` is the description to add to model files."""
    payload = bytearray()
    start_of_blob: dict[bytes, int] = {}

    def pack_value(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype == object:  # Only categories are strings, and have one axis.
                return {"strings": value.tolist()}
            stored, stored_dtype, shuffled = pack_array(value)
            start = len(payload)
            if value.dtype == np.uint8:  # The nodes of several outputs share a foreign model.
                start = start_of_blob.setdefault(stored, start)
            if start == len(payload):
                payload.extend(stored)
            return {"array": [value.dtype.name, list(value.shape), start, stored_dtype, shuffled]}
        if isinstance(value, tuple):
            return {"tuple": [pack_value(element) for element in value]}
        return {"float": value.hex()} if isinstance(value, float) else value

    def pack_node(node: Node) -> list[Any]:
        flags = ["sparse"] if node.type.sparse else []
        attrs = {key: pack_value(value) for key, value in node.attrs.items()}
        return [node.op, list(node.inputs), attrs, [node.type.dtype, list(node.type.shape), *flags]]

    header = {
        "nodes": list(map(pack_node, program.nodes)),
        "inputs": list(program.inputs.items()),
        "outputs": list(program.outputs.items()),
        "labels": [
            [s.kind, [pack_value(v) for v in s.values], *([s.sql_type] if s.sql_type else [])]
            for s in program.labels
        ],
    }
    if about is not None:
        header["about"] = dict(about)
    header_json = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    header_bytes = _encode_header(header_json)
    preamble = _PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(header_bytes))
    compressed_payload = _compress(payload) if payload else b""
    blob = b"".join([preamble, header_bytes, _PAYLOAD_SIZE.pack(len(payload)), compressed_payload])
    return blob + hashlib.sha256(blob).digest()


def _compress(content: bytes | bytearray) -> bytes:
    compressed: bytes = pa.Codec("zstd", compression_level=3).compress(content, asbytes=True)
    return compressed


def _encode_header(text: bytes) -> bytes:
    compressed = _compress(text)
    if len(compressed) + 5 >= len(text) or len(text) > len(compressed) * _MAX_HEADER_RATIO:
        return text
    return b"z" + _HEADER_LENGTH.pack(len(text)) + compressed


def read_header(stored: bytes) -> Any:
    """Return the JSON document in a stored header."""
    if stored[:1] == b"z":
        (size,) = _HEADER_LENGTH.unpack_from(stored, 1)
        frame = stored[1 + _HEADER_LENGTH.size :]
        if size > len(frame) * _MAX_HEADER_RATIO:
            raise ArtifactError(f"the stored model claims too large a header: {size} bytes")
        stored = _decompress(frame, size)
    return json.loads(stored)


def read_description(blob: bytes) -> Mapping[str, Any] | None:
    """Return the description in a stored model, an unchecked JSON object, or None if missing."""
    (size,) = _HEADER_LENGTH.unpack_from(blob, _PREAMBLE.size - _HEADER_LENGTH.size)
    about = read_header(blob[_PREAMBLE.size : _PREAMBLE.size + size]).get("about")
    if about is not None and not isinstance(about, dict):
        raise ArtifactError("the header of the model file is damaged; export it again")
    return about


def _decompress(frame: bytes, size: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(frame), "zstd") as stream:
        content: bytes = stream.read(size)
        if len(content) != size or stream.read(1):
            raise ArtifactError("the stored model is truncated; create it again")
    return content


def loads(blob: bytes) -> Program:
    """Read a Program that `dumps` wrote; raise ArtifactError if it is damaged or hostile."""
    expected_errors = (OSError, MemoryError, struct.error, pa.ArrowException)
    try:
        with report_damage("the stored model", "create it again", *expected_errors):
            program = verify(_parse_program(blob))
            _check_foreign_models(program)
            return program
    except ProgramError as error:
        raise ArtifactError(f"the stored model is not a legal program: {error}") from error


def _check_foreign_models(program: Program) -> None:
    # A foreign model has one node per output.
    nodes = [node for node in program.nodes if node.op in FOREIGN_MODELS]
    for op, content in {(n.op, n.attrs[FOREIGN_MODELS[n.op][0]].tobytes()) for n in nodes}:
        try:
            FOREIGN_MODELS[op][1](content)
        except UnsupportedModelError as error:
            raise ArtifactError(
                f"the stored model contains a foreign model that sqlml never stores: {error}; "
                "create it again"
            ) from error


def _parse_program(blob: bytes) -> Program:
    header, payload = _split_blob(blob)
    if len(header["nodes"]) > MAX_NODES:
        raise ArtifactError(f"the stored model has more than {MAX_NODES} operators")
    reader = _PayloadReader(payload)
    nodes = []
    for op_name, inputs, attrs, (dtype, shape, *flags) in header["nodes"]:
        if dtype not in DTYPES or not all(type(i) is int for i in [*inputs, *shape]):
            raise ValueError(f"node {op_name!r} has type {dtype!r} {shape!r}")
        frozen = freeze({key: reader.unpack(value) for key, value in attrs.items()})
        result_type = TensorType(dtype, tuple(shape), "sparse" in flags)
        nodes.append(Node(op_name, tuple(inputs), frozen, result_type))
    return Program(
        tuple(nodes),
        MappingProxyType({str(key): int(i) for key, i in header["inputs"]}),
        MappingProxyType({str(key): int(i) for key, i in header["outputs"]}),
        tuple(_read_labels(reader, *labels) for labels in header["labels"]),
    )


def _split_blob(blob: bytes) -> tuple[Any, memoryview]:
    if len(blob) < _PREAMBLE.size + _PAYLOAD_SIZE.size + _DIGEST_SIZE or not blob.startswith(MAGIC):
        raise ArtifactError("this is not a stored sqlml model: it lacks the magic bytes")
    _, version, header_size = _PREAMBLE.unpack_from(blob)
    problem = f"the stored model has format {version}"
    if version > FORMAT_VERSION:
        hint = f"this sqlml reads up to {FORMAT_VERSION}: upgrade sqlml"
        raise ArtifactError(f"{problem}; {hint}")
    if version < FORMAT_VERSION:
        raise ArtifactError(f"{problem}, which this sqlml no longer reads; create it again")
    if hashlib.sha256(blob[:-_DIGEST_SIZE]).digest() != blob[-_DIGEST_SIZE:]:
        raise ArtifactError("the stored model is damaged (its checksum differs); create it again")
    start = _PREAMBLE.size + header_size
    if start + _PAYLOAD_SIZE.size + _DIGEST_SIZE > len(blob):
        raise ArtifactError("the stored model is truncated; create it again")
    header = read_header(blob[_PREAMBLE.size : start])
    (size,) = _PAYLOAD_SIZE.unpack_from(blob, start)
    compressed_payload = blob[start + _PAYLOAD_SIZE.size : -_DIGEST_SIZE]
    if size > MAX_PROGRAM_BYTES or size > len(compressed_payload) * _MAX_RATIO:
        raise ArtifactError(f"the stored model claims {size} bytes, which exceeds the limit")
    return header, memoryview(_decompress(compressed_payload, size) if size else b"")


class _PayloadReader:
    """Unpacks the attribute values of a header; arrays are read from the payload."""

    def __init__(self, payload: memoryview) -> None:
        self._payload, self._unpacked_size = payload, 0

    def unpack(self, value: Any) -> Any:
        if not isinstance(value, dict):
            if isinstance(value, list | float):
                raise ValueError("a list or float is not packed")
            return value
        ((kind, content),) = value.items()
        match kind:
            case "array":
                return self._unpack_array(*content)
            case "strings":
                if not all(isinstance(string, str) for string in content):
                    raise ValueError("a string array holds other values")
                strings = np.empty(len(content), object)
                strings[:] = content
                return strings
            case "tuple":
                return tuple(self.unpack(element) for element in content)
            case "float":
                return float.fromhex(content)
        raise ValueError(f"unknown value {kind!r}")

    def _unpack_array(
        self, name: str, shape: Any, offset: Any, stored_dtype: str, shuffled: Any
    ) -> Array:
        if any(type(number) is not int or number < 0 for number in [*shape, offset]):
            raise ValueError(f"array of {name} {shape} at {offset!r}")
        if type(shuffled) is not bool:
            raise ValueError(f"the shuffled flag {shuffled!r} of an array")
        # Overlapping arrays could demand many copies of the same bytes.
        if shuffled or stored_dtype != name:
            self._unpacked_size += math.prod(shape) * np.dtype(name).itemsize
            if self._unpacked_size > len(self._payload) * _MAX_WIDENING:
                raise ValueError("arrays overlap in the payload")
        return unpack_array(self._payload[offset:], name, tuple(shape), stored_dtype, shuffled)


def _read_labels(reader: _PayloadReader, kind: Any, values: Any, *sql_type: Any) -> Labels:
    labels = Labels(kind, tuple(reader.unpack(value) for value in values), *sql_type)
    python_type = {"string": str, "int64": int, "float64": float, "bool": bool}[kind]
    if not all(type(value) is python_type for value in labels.values):
        raise ValueError("the labels have mixed types")
    if kind == "int64" and not all(-(2**63) <= value < 2**63 for value in labels.values):
        raise ValueError("a label exceeds 64 bits")
    return labels


PROGRAM_KEY = f"sqlml.program.{FORMAT_VERSION}"
"""Metadata key of the Program in an ONNX file. A Program of another format is ignored."""
GRAPH_DIGEST_KEY = "sqlml.graph.sha256"
"""Metadata key of the digest of the graph that the Program describes (`_hash_graph`)."""
MAX_PROTO_BYTES = (1 << 31) - 1
"""Maximum size of a protobuf message, and so of an ONNX file."""


def embed_program(proto: Any, stored: bytes) -> None:
    """Add a stored Program to the onnx.ModelProto `proto` if there is room."""
    text = base64.b64encode(stored).decode("ascii")
    if proto.ByteSize() + len(text) + 1024 > MAX_PROTO_BYTES:
        return
    proto.metadata_props.add(key=PROGRAM_KEY, value=text)
    proto.metadata_props.add(key=GRAPH_DIGEST_KEY, value=_hash_graph(proto))


def read_embedded_program(proto: Any) -> Program | None:
    """Return the Program in an onnx.ModelProto, or None if missing or if the graph was edited."""
    metadata = {prop.key: prop.value for prop in proto.metadata_props}
    if PROGRAM_KEY not in metadata or metadata.get(GRAPH_DIGEST_KEY) != _hash_graph(proto):
        return None
    try:
        stored = base64.b64decode(metadata[PROGRAM_KEY], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ArtifactError(f"the Program in the ONNX file is damaged ({error})") from None
    return loads(stored)


def _hash_graph(proto: Any) -> str:
    digest = hashlib.sha256(proto.graph.SerializeToString(deterministic=True))
    for domain, version in sorted((opset.domain, opset.version) for opset in proto.opset_import):
        digest.update(f"\n{domain} {version}".encode())
    return digest.hexdigest()
