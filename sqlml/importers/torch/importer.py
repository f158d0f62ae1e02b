"""Importers of torch.nn.Module, torch.export.ExportedProgram and .pt2 files.

A module is a regressor: what it returns for a row, (n,) or (n, k), is the row's `label`, one
number or k of them. A softmax or sigmoid at its end is its own business. It takes one matrix
(n, columns), or several tensors that take the columns in their order; columns are cast to the
dtype that it reads. A module that behaves differently in training is accepted only after `eval()`.

If operators of the IR can express its graph, it becomes these, and then runs on every backend.
float64 modules agree with torch within 1e-12, float32 modules within float32's own rounding
(about 1e-6 of the largest number in a sum). Otherwise the module stays whole as `torch_module`,
which the torch backend runs.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.child_process import Child, Ended, Failed
from sqlml.errors import UnsupportedModelError, named
from sqlml.importers.frame import ANY_COUNT, Frame, Outputs, Schema
from sqlml.importers.row_tensors import Uncovered
from sqlml.importers.torch.graph import convert, inputs, overwrites_dropout
from sqlml.importers.torch.tensors import kind_of
from sqlml.ir.builder import Value
from sqlml.ir.operators.torch_module import runner
from sqlml.ir.torch_archive import Exported, read_exported

# Whether a whole torch module scores each row by itself: tried here, or in a process of its own.
#
# torch is native code, and the operators of a hostile archive may crash it, hang it or fill the
# memory. A module of this process has run already; an archive from elsewhere is tried in a child.


ROWS = 5


def check_rows(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run the module of an archive on a few rows, together and one by one.

    Args:
        attrs: the dtype and width that the operator `torch_module` is to have.

    Raises:
        UnsupportedModelError: rows depend on each other, or it calls what sqlml does not run.
        SqlmlError: what scoring raises.
    """
    run = runner(archive, attrs)
    import torch

    rng = np.random.default_rng(0)
    batch = []
    for tensor in read_exported(archive).inputs:
        numbers = rng.integers(0, 2, (ROWS, tensor.width)) + rng.random((ROWS, tensor.width))
        batch.append(torch.from_numpy(numbers).to(getattr(torch, tensor.dtype)))
    with torch.inference_mode():
        together = run(*batch).numpy().astype(np.float64)
        alone = [run(*[t[i : i + 1] for t in batch]).numpy() for i in range(ROWS)]
    apart = np.concatenate(alone).astype(np.float64)
    close = np.isclose(together, apart, rtol=1e-3, atol=1e-4, equal_nan=True)
    if not close.all():
        raise UnsupportedModelError(
            "the torch module's numbers for a row depend on the other rows, and SQL scores rows "
            "in batches of any size; remove what mixes rows, or what is random"
        )


def check_rows_elsewhere(archive: bytes, attrs: Mapping[str, Any]) -> None:
    """Run `check_rows` in a process of its own: a hostile module may crash or hang torch.

    Raises:
        UnsupportedModelError, SqlmlError: as `check_rows`, and where torch ends on the module.
    """
    about = json.dumps({"dtype": str(attrs["dtype"]), "width": int(attrs["width"])}).encode()
    try:
        with Child(f"{__name__}:conversation", about, archive):
            return
    except Ended as how:
        raise UnsupportedModelError(f"a process that tries the torch module {how}") from None
    except Failed as failed:
        raise named(failed.name, failed.message) or UnsupportedModelError(
            f"torch cannot run the module ({failed.name}: {failed.message})"
        ) from None


def conversation(about: bytes, archive: bytes) -> Generator[bytes, bytes, None]:
    """Run in the child: its one answer says that all is well."""
    check_rows(archive, json.loads(about))
    yield b""


WIDTHS = {
    "torch.nn.modules.linear.Linear": "in_features",
    "torch.nn.modules.batchnorm.BatchNorm1d": "num_features",
}
"""Layers that say how many columns a module takes, where one of them is its first."""


def module_schema(model: Any) -> Schema:
    """The columns of a module: as many as its first layer takes, or as the user names."""
    for layer in model.modules():
        if next(iter(layer.children()), None) is None and any(True for _ in layer.parameters()):
            path = f"{type(layer).__module__}.{type(layer).__qualname__}"
            width = getattr(layer, WIDTHS[path], None) if path in WIDTHS else None
            return Schema(None, int(width) if width else ANY_COUNT)
    return Schema(None, ANY_COUNT)


def program_schema(model: Any) -> Schema:
    """The columns that an exported program reads."""
    return file_schema(_archive(model))


def file_schema(model: Exported) -> Schema:
    """The columns that the program of a .pt2 file reads."""
    return Schema(None, model.features)


def import_module(model: Any, frame: Frame) -> Outputs:
    """torch.nn.Module: exported for as many columns as there are, then as an exported program.

    Raises:
        UnsupportedModelError: torch.export cannot trace it; the message says why.
    """
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "a TorchScript module cannot be exported; give sqlml the nn.Module that it was made of"
        )
    numbers = [t for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()]
    dtype = numbers[0].dtype if numbers else torch.float32
    if dtype not in (torch.float32, torch.float64):
        raise UnsupportedModelError(f"a module of {dtype} is not covered; convert it with .float()")
    restless = next((m for m in model.modules() if m.training and _differs(m)), None)
    if restless is not None:
        raise UnsupportedModelError(
            f"the module is in training mode, where {type(restless).__name__} makes a row's "
            "prediction depend on chance or on the other rows; call its eval() first"
        )
    try:
        still = copy.deepcopy(model).eval().cpu()
        example = torch.zeros(3, frame.width, dtype=dtype)
        rows = torch.export.Dim("rows", min=1)
        signature = ({0: rows},)
        exported = torch.export.export(still, (example,), dynamic_shapes=signature, strict=False)
    except Exception as error:  # tracing runs the module's own code
        raise UnsupportedModelError(
            f"torch.export cannot trace this {type(model).__name__} for {frame.width} columns "
            f"({type(error).__name__}: {_first_line(error)}); it must take one "
            "matrix (rows, columns). Name its columns with inputs=, or export it yourself with "
            "torch.export.export and give sqlml the exported program"
        ) from error
    return import_program(exported, frame)


def _differs(layer: Any) -> bool:
    """Whether a layer of torch's own computes something else in training."""
    from torch.nn import modules

    if isinstance(layer, modules.batchnorm._NormBase):
        return bool(layer.track_running_stats)
    rates = [getattr(layer, name, 0.0) for name in ("p", "dropout")]
    drops = any(isinstance(rate, float) and rate > 0 for rate in rates)
    of_torch = type(layer).__module__.startswith("torch.nn.")
    return of_torch and (drops or isinstance(layer, modules.RReLU))


def import_program(model: Any, frame: Frame) -> Outputs:
    """A torch.export.ExportedProgram.

    Raises:
        UnsupportedModelError: its rows depend on each other, or torch cannot save or run it.
    """
    archive = _archive(model)
    _check_width(archive, frame)
    try:
        return _label(frame, convert(archive, frame))
    except Uncovered:
        if overwrites_dropout(archive):
            return _label(frame, _opaque(archive, frame, check_rows))
        # torch's own decompositions leave fewer kinds of operators.
        return _imported(_archive(model.run_decompositions()), frame, check_rows)


def import_file(model: Exported, frame: Frame) -> Outputs:
    """What torch.export.save wrote: operators of the IR, or the whole module.

    Raises:
        UnsupportedModelError: its rows depend on each other, or torch cannot run it.
    """
    _check_width(model, frame)
    return _imported(model, frame, check_rows_elsewhere)


def _imported(model: Exported, frame: Frame, check: Check) -> Outputs:
    try:
        return _label(frame, convert(model, frame))
    except Uncovered:
        return _label(frame, _opaque(model, frame, check))


def _first_line(error: Exception) -> str:
    """What an exception says first; tracing appends pages to it.

    >>> _first_line(ValueError("no\\nway")), _first_line(ValueError())
    ('no', 'without a message')
    """
    return next(iter(str(error).strip().splitlines()), "without a message")


def _archive(model: Any) -> Exported:
    import torch

    content = io.BytesIO()
    try:
        torch.export.save(model, content)
    except Exception as error:  # whatever its serializer does not know
        raise UnsupportedModelError(
            f"torch.export cannot save this program: {type(error).__name__}: {error}"
        ) from error
    return read_exported(content.getvalue())


def _check_width(model: Exported, frame: Frame) -> None:
    if frame.width != model.features:
        raise UnsupportedModelError(
            f"the torch module reads {model.features} columns, but gets {frame.width}"
        )


def _label(frame: Frame, value: Value) -> Outputs:
    if kind_of(value.type.dtype) < 2:
        value = frame.builder.op("cast", value, dtype="float64")
    return Outputs({"label": value})


Check = Callable[[bytes, Mapping[str, Any]], None]
"""`check_rows`, or `check_rows_elsewhere`."""


def _opaque(model: Exported, frame: Frame, check: Check) -> Value:
    """The whole module as one operator, once it is seen to score each row by itself.

    Raises:
        UnsupportedModelError: its rows depend on each other, or it calls what sqlml does not run.
    """
    if not model.width:
        raise UnsupportedModelError("the torch module returns no number for a row")
    dtype = {"bool": "bool", "float64": "float64"}.get(model.dtype)
    dtype = dtype or ("float32" if model.dtype.startswith("float") else "int64")
    attrs = {"dtype": dtype, "width": model.width}
    check(model.content, attrs)
    values = [value for _, value in inputs(model, frame)]
    archive = np.frombuffer(model.content, np.uint8)
    return frame.builder.op("torch_module", *values, archive=archive, **attrs)


MODULE = "torch.nn.modules.module.Module"
PROGRAM = "torch.export.exported_program.ExportedProgram"
FILE = "torch.export file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        MODULE: import_module,
        PROGRAM: import_program,
        FILE: import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {
        MODULE: module_schema,
        PROGRAM: program_schema,
        FILE: file_schema,
    }
)
FAMILIES: frozenset[str] = frozenset((MODULE,))
"""Classes whose subclasses are imported as they are: users write their own."""
