"""`ExportedModule`: the graph of a torch.export archive (.pt2), read as data.

torch.export.load may execute code in an archive: pickles and sympy expressions. This module parses
the JSON of the graph, reads raw weights and rejects pickles. torch/_export/serde/schema.py and
torch/export/pt2_archive define the format, schema version 8.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.ir.damaged_file import ZIP_ERRORS, report_damage
from sqlml.limits import MAX_ARTIFACT_BYTES, MAX_NODES
from sqlml.types import ROWS, Array

SCHEMA_VERSION = 8
DTYPES: Mapping[int, str] = {
    **dict(enumerate("uint8 int8 int16 int32 int64 float16 float32 float64".split(), start=1)),
    12: "bool",
}
"""Map the number of a dtype in archives to the dtype's name in numpy."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference, by name, to a tensor or a number in the graph."""

    name: str


@dataclass(frozen=True, slots=True)
class DTypeArg:
    name: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, layout or memory format, which changes no values; `number` is torch's code."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call of `torch.ops.<target>`; `positional` names the positional arguments."""

    target: str
    arguments: Mapping[str, Any]
    positional: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument of the module; shape[0] is ROWS."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.shape[1] if len(self.shape) == 2 else 1


@dataclass(frozen=True, slots=True, eq=False)
class ExportedModule:
    """An exported module that returns the tensor `output` of `dtype` and `shape`; shape[0] is ROWS.

    `constants` maps names to weights. `content` has the bytes of the archive.
    """

    written_by: str
    inputs: tuple[Input, ...]
    constants: Mapping[str, Array]
    calls: tuple[OperatorCall, ...]
    output: str
    dtype: str
    shape: tuple[int, ...]
    content: bytes

    @property
    def features(self) -> int:
        return sum(i.width for i in self.inputs)

    @property
    def width(self) -> int:
        return math.prod(self.shape[1:])


def read_exported(content: bytes) -> ExportedModule:
    """Read an archive that torch.export.save of torch 2.9 or newer wrote.

    Raise UnsupportedModelError if the schema version is unsupported, or if the module does not map
    rows of numbers to one tensor.
    """
    archive, fix = "the torch.export archive", "save it again with torch.export.save"
    with report_damage(archive, fix, *ZIP_ERRORS):
        return _ArchiveReader(content).read()


class _ArchiveReader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.zip = zipfile.ZipFile(io.BytesIO(content))
        entries = self.zip.infolist()
        if any(e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries):
            raise ArtifactError("the archive is compressed in a way that torch does not use")
        self.names = {e.filename.partition("/")[2]: e.filename for e in entries}
        if self.find_names("code/", ".py"):
            raise ArtifactError(
                "this is TorchScript (torch.jit.save), whose code sqlml does not run; start from "
                "the module that it was made from, and write it with torch.export.save("
                "torch.export.export(module.eval(), (rows,), "
                "dynamic_shapes=({0: torch.export.Dim('rows')},)), file), where rows is a tensor "
                "of two rows or more"
            )
        # torch does not compress entries, so their sizes cannot exceed that of the archive.
        if sum(e.file_size for e in entries) > min(len(content), MAX_ARTIFACT_BYTES):
            raise ArtifactError("the archive claims to unpack to more than its size")

    def find_names(self, prefix: str, suffix: str) -> list[str]:
        return [n for n in self.names if n.startswith(prefix) and n.endswith(suffix)]

    def read(self) -> ExportedModule:
        key, document = self.read_document()
        graph, signature = document["graph_module"]["graph"], document["graph_module"]["signature"]
        if len(graph["nodes"]) > MAX_NODES:
            raise ArtifactError(f"the graph has more than {MAX_NODES} operators")
        types_of_tensors = graph["tensor_values"]
        inputs, constants = self.read_inputs(key, signature["input_specs"], types_of_tensors)
        outputs = signature["output_specs"]
        if len(outputs) != 1 or list(outputs[0]) != ["user_output"]:
            raise UnsupportedModelError(
                f"the module must return one tensor and not modify itself; it has {len(outputs)} "
                "results"
            )
        result_tensor = outputs[0]["user_output"]["arg"].get("as_tensor")
        if result_tensor is None or not inputs:
            raise UnsupportedModelError("the module must take tensors and return a tensor")
        dtype, shape = _read_dtype_and_shape(types_of_tensors[result_tensor["name"]])
        calls = tuple(_read_call(node) for node in graph["nodes"])
        _check_names({*constants, *(i.name for i in inputs)}, calls, result_tensor["name"])
        return ExportedModule(
            written_by=f"torch {str(document.get('torch_version', '')).partition('+')[0]}".strip(),
            inputs=inputs,
            constants=constants,
            calls=calls,
            output=result_tensor["name"],
            dtype=dtype,
            shape=_check_rowwise(shape, "the result"),
            content=self.content,
        )

    def read_document(self) -> tuple[str, Any]:
        """Return the name and the JSON document of the archive's only model."""
        models = self.find_names("models/", ".json")
        if "data.pkl" in self.names:
            raise ArtifactError(
                "torch.save wrote this file, and reading it would execute the code that it "
                "contains; write it with torch.export.save(torch.export.export(module, ...), file)"
            )
        if len(models) != 1:
            raise ArtifactError(
                "not an archive of torch.export.save, or one of torch before 2.9; save it again "
                "with torch.export.save of a newer torch"
            )
        document = json.loads(self.read_bytes(models[0]))
        version = document["schema_version"]["major"]
        if version != SCHEMA_VERSION:
            raise UnsupportedModelError(
                f"the archive has version {version} of torch's format, but sqlml reads "
                f"{SCHEMA_VERSION}; save it with another version of torch"
            )
        return models[0].removeprefix("models/").removesuffix(".json"), document

    def read_inputs(
        self, key: str, specs: Any, types_of_tensors: Any
    ) -> tuple[tuple[Input, ...], dict[str, Array]]:
        """Return the inputs of model `key`, and the weights and other constants by name."""
        weights = self.read_entries("weights", f"{key}_weights")
        other_constants = self.read_entries("constants", f"{key}_consta")
        sources = {
            "parameter": ("parameter_name", weights),
            # Buffers that are not persistent are stored as constants.
            "buffer": ("buffer_name", {**other_constants, **weights}),
            "tensor_constant": ("tensor_constant_name", other_constants),
        }
        inputs: list[Input] = []
        constants: dict[str, Array] = {}
        for spec in specs:
            ((kind, content),) = spec.items()
            if kind == "user_input":
                name = content["arg"]["as_tensor"]["name"]
                dtype, shape = _read_dtype_and_shape(types_of_tensors[name])
                inputs.append(Input(name, dtype, _check_rowwise(shape, "an input")))
            elif kind in sources:
                name_field, entries = sources[kind]
                constants[content["arg"]["name"]] = self.read_tensor(entries[content[name_field]])
            else:
                raise UnsupportedModelError(f"the module takes a {kind}; only tensors work")
        return tuple(inputs), constants

    def read_bytes(self, name: str) -> bytes:
        return self.zip.read(self.names[name])

    def read_entries(self, folder: str, file_prefix: str) -> dict[str, tuple[str, Any]]:
        """Map the name of each tensor in `folder` to a file in the archive and metadata."""
        prefix = f"data/{folder}/"
        config_names = self.find_names(prefix + file_prefix, ".json")
        metadata = json.loads(self.read_bytes(config_names[0]))["config"] if config_names else {}
        return {name: (prefix + entry["path_name"], entry) for name, entry in metadata.items()}

    def read_tensor(self, file_and_metadata: tuple[str, Any]) -> Array:
        """Read a tensor by offset and strides, if these stay within the tensor's file."""
        file_name, metadata = file_and_metadata
        if metadata["use_pickle"] is not False:
            raise UnsupportedModelError(
                "a weight of the archive is pickled, and reading it would execute code; export a "
                "module of plain tensors"
            )
        tensor_meta = metadata["tensor_meta"]
        dtype, shape = _read_dtype_and_shape(tensor_meta)
        if any(size < 0 for size in shape):
            raise ArtifactError("a weight of the archive has no fixed shape")
        flat = np.frombuffer(self.read_bytes(file_name), dtype)
        strides = [_read_integer(s["as_int"]) for s in tensor_meta["strides"]]
        offset = _read_integer(tensor_meta["storage_offset"]["as_int"])
        last_offset = offset + sum((size - 1) * s for size, s in zip(shape, strides, strict=True))
        is_negative = offset < 0 or min(strides, default=0) < 0
        if math.prod(shape) and (is_negative or last_offset >= flat.size):
            raise ArtifactError("a weight of the archive is shorter than stated")
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        if math.prod(shape) > max(flat.size, 1) * 64:
            raise ArtifactError("a weight of the archive repeats itself too often")
        byte_strides = tuple(s * flat.itemsize for s in strides)
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, byte_strides, writeable=False)
        return np.ascontiguousarray(view).reshape(shape)


def _check_names(defined: set[Any], calls: tuple[OperatorCall, ...], output: str) -> None:
    if not all(isinstance(name, str) for name in defined):
        raise ArtifactError("a tensor of the archive has no name")

    def check_defined(value: Any) -> None:
        if isinstance(value, list):
            for element in value:
                check_defined(element)
        elif isinstance(value, Ref) and value.name not in defined:
            raise ArtifactError(f"the graph reads {value.name!r} before it is defined")

    for call in calls:
        check_defined(list(call.arguments.values()))
        for name in call.results:
            if name and name in defined:
                raise ArtifactError(f"the graph defines {name!r} twice")
            defined.add(name)
    check_defined(Ref(output))


def _read_dtype_and_shape(meta: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor; a dynamic dimension becomes ROWS."""
    dtype = DTYPES.get(meta["dtype"])
    if dtype is None:
        problem = f"the module uses torch dtype number {meta['dtype']}"
        raise UnsupportedModelError(f"{problem}; convert it with .float()")
    shape = tuple(_read_integer(d["as_int"]) if "as_int" in d else ROWS for d in meta["sizes"])
    return dtype, shape


def _check_rowwise(shape: tuple[int, ...], subject: str) -> tuple[int, ...]:
    if not shape or shape[0] != ROWS:
        raise UnsupportedModelError(
            f"{subject} of the module has the fixed shape {shape}; export it for any number of "
            "rows: dynamic_shapes=({0: torch.export.Dim('rows')},)"
        )
    if len(shape) > 2 and subject == "an input" or any(size < 0 for size in shape[1:]):
        problem = f"has shape {shape}, not (rows, columns)"
        raise UnsupportedModelError(f"{subject} of the module {problem}")
    return shape


def _read_call(node: Mapping[str, Any]) -> OperatorCall:
    target = node["target"]
    if not isinstance(target, str):
        raise ArtifactError("an operator of the archive has no name")
    arguments, positional = {}, []
    for position, argument in enumerate(node["inputs"]):
        name = str(argument["name"]) or f"#{position}"
        arguments[name] = _read_argument(argument["arg"])
        if argument.get("kind") != 2:
            positional.append(name)
    results: list[str] = []
    for output in node["outputs"]:
        ((kind, value),) = output.items()
        if kind == "as_tensors":
            if len(node["outputs"]) != 1:
                raise UnsupportedModelError(f"{target} returns several lists, not one")
            results += [str(tensor["name"]) for tensor in value]
        elif kind == "as_none":
            results.append("")
        else:
            results.append(str(value.get("name", value.get("as_name"))))
    target = target.removeprefix("torch.ops.")
    return OperatorCall(target, arguments, tuple(positional), tuple(results))


def _read_argument(arg: Mapping[str, Any]) -> Any:
    ((kind, value),) = arg.items()
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(str(value["name"]))
        case "as_tensors":
            return [Ref(str(v["name"])) for v in value]
        case "as_optional_tensors" | "as_sym_ints":
            return [Ref(str(v["as_name"])) if "as_name" in v else _read_argument(v) for v in value]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return Ref(str(value["as_name"])) if "as_name" in value else next(iter(value.values()))
        case "as_scalar_type":
            return DTypeArg(DTYPES.get(value, "?"))
        case "as_memory_format":
            return Placement(kind, _read_integer(value))
        case "as_device" | "as_layout":
            return Placement(kind)
        case "as_float":
            return float(value)  # Infinities are stored as strings.
        case "as_int" | "as_bool" | "as_string" | "as_ints" | "as_floats" | "as_bools":
            return value
    raise UnsupportedModelError(f"an operator of the archive has an argument of kind {kind}")


def _read_integer(value: Any) -> int:
    if type(value) is not int:
        raise ArtifactError(f"the archive has {value!r} where an integer is expected")
    return value
