"""Import torch.nn.Module, torch.export.ExportedProgram and .pt2 files.

A module is imported as a regressor: the result of the module, (n,) or (n, k), becomes the output
`label`. A module reads one matrix, or several tensors that divide the columns.

If the IR can express the graph of a module, the graph is converted operator by operator. float64
modules then agree with torch within 1e-12, float32 modules within about 1e-6 of the largest number
in a sum. Otherwise the module is kept whole as the operator `torch_module`, after a trial has shown
that no row's result depends on other rows. The trial of a file runs in a child process, because a
malicious archive may crash or hang torch, or fill the memory.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import UnsupportedModelError, make_error
from sqlml.importers.frame import ANY_COUNT, Frame, Leaf, Outputs, Schema
from sqlml.importers.row_tensors import Unsupported
from sqlml.importers.torch.aten_graph import convert_graph, overwrites_dropout, read_inputs
from sqlml.importers.torch.tensors import is_floating
from sqlml.ir.builder import Value
from sqlml.ir.operators.torch_module import make_runner
from sqlml.ir.torch_archive import ExportedModule, read_exported

ROWS = 5
"""The number of rows of a trial."""


def check_rows(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run a module on a few random rows; raise an error if a row's result depends on other rows.

    `archive` is a .pt2 file, and `attrs` are the attributes of the operator `torch_module`.
    """
    run = make_runner(archive, attrs)
    import torch

    rng = np.random.default_rng(0)
    inputs = []
    for spec in read_exported(archive).inputs:
        numbers = rng.integers(0, 2, (ROWS, spec.width)) + rng.random((ROWS, spec.width))
        inputs.append(torch.from_numpy(numbers).to(getattr(torch, spec.dtype)))
    with torch.inference_mode():
        batch_result = run(*inputs).numpy().astype(np.float64)
        results = [run(*[tensor[i : i + 1] for tensor in inputs]).numpy() for i in range(ROWS)]
    row_results = np.concatenate(results).astype(np.float64)
    if not np.isclose(batch_result, row_results, rtol=1e-3, atol=1e-4, equal_nan=True).all():
        raise UnsupportedModelError(
            "the torch module's numbers for a row depend on the other rows, but SQL scores rows "
            "in batches of any size; remove layers that mix rows or are random"
        )


def check_rows_in_child(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run `check_rows` in a child process, because a hostile module may crash torch."""
    request = json.dumps({"dtype": str(attrs["dtype"]), "width": int(attrs["width"])}).encode()
    try:
        with Child(f"{__name__}:run_check", request, archive):
            return
    except ChildEnded as end:
        raise UnsupportedModelError(f"a process that tries the torch module {end}") from None
    except ChildFailed as failure:
        raise make_error(failure.name, failure.message) or UnsupportedModelError(
            f"torch cannot run the module ({failure.name}: {failure.message})"
        ) from None


def run_check(request: bytes, archive: bytes) -> Generator[bytes, bytes, None]:
    """Run `check_rows` in the child process; yield empty bytes on success."""
    check_rows(archive, json.loads(request))
    yield b""


WIDTH_ATTRIBUTES = {
    "torch.nn.modules.linear.Linear": "in_features",
    "torch.nn.modules.batchnorm.BatchNorm1d": "num_features",
}
"""Maps a layer's class to the attribute that holds the number of input columns."""


def read_module_schema(model: Any) -> Schema:
    """Return a module's schema, with the width of the first layer, or ANY_COUNT if unknown."""
    for layer in model.modules():
        if next(iter(layer.children()), None) is None and any(True for _ in layer.parameters()):
            path = f"{type(layer).__module__}.{type(layer).__qualname__}"
            width = getattr(layer, WIDTH_ATTRIBUTES.get(path, ""), None)
            return Schema(None, int(width) if width else ANY_COUNT)
    return Schema(None, ANY_COUNT)


def import_module(model: Any, frame: Frame) -> Outputs:
    """Export a torch.nn.Module for the width of `frame`, and import the exported program."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "a TorchScript module cannot be exported; give sqlml the nn.Module that it was made of"
        )
    tensors = (*model.parameters(), *model.buffers())
    dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
    if dtype not in (torch.float32, torch.float64):
        reason = f"a module of {dtype} is not supported; convert it with .float()"
        raise UnsupportedModelError(reason)
    training_layers = (layer for layer in model.modules() if layer.training)
    differing_layer = next(filter(_differs_in_training, training_layers), None)
    if differing_layer is not None:
        raise UnsupportedModelError(
            f"the module is in training mode, where {type(differing_layer).__name__} makes a row's "
            "prediction depend on chance or on the other rows; call its eval() first"
        )
    try:
        module = copy.deepcopy(model).eval().cpu()
        example = torch.zeros(3, frame.width, dtype=dtype)
        open_axes = ({0: torch.export.Dim("rows", min=1)},)
        program = torch.export.export(module, (example,), dynamic_shapes=open_axes, strict=False)
    except Exception as error:  # tracing runs the code of the module
        raise UnsupportedModelError(
            f"torch.export cannot trace this {type(model).__name__} for {frame.width} columns "
            f"({type(error).__name__}: {_read_first_line(error)}); it must accept one "
            "matrix (rows, columns). Name its columns with inputs=, or export it yourself with "
            "torch.export.export and give sqlml the exported program"
        ) from error
    return import_program(program, frame)


def _differs_in_training(layer: Any) -> bool:
    from torch.nn import modules

    if isinstance(layer, modules.batchnorm._NormBase):
        return bool(layer.track_running_stats)
    rates = [getattr(layer, name, 0.0) for name in ("p", "dropout")]
    is_random = any(isinstance(rate, float) and rate > 0 for rate in rates)
    is_random |= isinstance(layer, modules.RReLU)
    return is_random and type(layer).__module__.startswith("torch.nn.")


def import_program(program: Any, frame: Frame) -> Outputs:
    archive = _save_archive(program)
    _check_width(archive, frame)
    try:
        return _build_label_output(frame, convert_graph(archive, frame))
    except Unsupported:
        if overwrites_dropout(archive):
            return _import_whole(archive, frame, check_rows)
        # torch's decompositions replace many operators with combinations of a few basic ones.
        return _import_archive(_save_archive(program.run_decompositions()), frame, check_rows)


def import_saved(model: ExportedModule, frame: Frame) -> Outputs:
    """Import a .pt2 file as operators of the IR, or else as a whole module."""
    _check_width(model, frame)
    return _import_archive(model, frame, check_rows_in_child)


def _import_archive(model: ExportedModule, frame: Frame, check: Check) -> Outputs:
    try:
        return _build_label_output(frame, convert_graph(model, frame))
    except Unsupported:
        return _import_whole(model, frame, check)


def _read_first_line(error: Exception) -> str:
    """Return the first line of an error message, because messages about tracing may fill pages.

    >>> _read_first_line(ValueError("no\\nway")), _read_first_line(ValueError())
    ('no', 'without a message')
    """
    return next(iter(str(error).strip().splitlines()), "without a message")


def _save_archive(program: Any) -> ExportedModule:
    import torch

    content = io.BytesIO()
    try:
        torch.export.save(program, content)
    except Exception as error:  # the serializer may raise any exception
        raise UnsupportedModelError(
            f"torch.export cannot save this program: {type(error).__name__}: {error}"
        ) from error
    return read_exported(content.getvalue())


def _check_width(model: ExportedModule, frame: Frame) -> None:
    if frame.width != model.features:
        reason = f"the torch module reads {model.features} columns, but gets {frame.width}"
        raise UnsupportedModelError(reason)


def _build_label_output(frame: Frame, value: Value) -> Outputs:
    if not is_floating(value.type.dtype):
        value = frame.builder.cast(value, "float64")
    return Outputs({"label": value})


Check = Callable[[bytes, Mapping[str, Any]], None]


def _import_whole(model: ExportedModule, frame: Frame, check: Check) -> Outputs:
    """Import the module as the operator `torch_module`, after `check` has tried a few rows."""
    if not model.width:
        raise UnsupportedModelError("the torch module returns no number for a row")
    dtype = model.dtype
    if dtype not in ("bool", "float64"):
        dtype = "float32" if dtype.startswith("float") else "int64"
    attrs = {"dtype": dtype, "width": model.width}
    check(model.content, attrs)
    values = [value for _, value in read_inputs(model, frame)]
    archive = np.frombuffer(model.content, np.uint8)
    result = frame.builder.op("torch_module", *values, archive=archive, **attrs)
    return _build_label_output(frame, result)


MODULE = "torch.nn.modules.module.Module"
PROGRAM = "torch.export.exported_program.ExportedProgram"
FILE = "torch.export file"

IMPORTERS: Mapping[str, Leaf] = {MODULE: import_module, PROGRAM: import_program, FILE: import_saved}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    MODULE: read_module_schema,
    PROGRAM: lambda program: Schema(None, _save_archive(program).features),
    FILE: lambda archive: Schema(None, archive.features),
}
FAMILIES: frozenset[str] = frozenset((MODULE,))
"""Classes whose importers also serve the subclasses that users write."""
