"""`torch_module`: a torch module whose operators the IR does not have, as one operator.

It keeps the archive of torch.export and interprets its graph (`ir/torch_archive.py`) with torch.
Nothing is unpickled and nothing of the archive is executed: an operator is looked up by name
among torch's own core operators and those of `COMPOSITE`, none of which touches anything but
tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, ScoringError, UnsupportedModelError
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.torch_archive import Call, DTypeArg, Place, Ref, read_exported
from sqlml.types import Array, TensorType, matrix

COMPOSITE = frozenset(
    (
        "adaptive_avg_pool1d adaptive_avg_pool2d addmm alias alpha_dropout amax amin argmax "
        "argmin avg_pool1d avg_pool2d baddbmm batch_norm bilinear cat celu chunk clamp_max "
        "clamp_min concat contiguous conv1d conv2d conv3d cosine_similarity detach dropout "
        "einsum elu embedding expand_as feature_dropout flatten full_like gelu glu group_norm "
        "gru hardsigmoid hardswish hardtanh instance_norm kthvalue layer_norm leaky_relu "
        "lift_fresh_copy linalg_vector_norm linear log_sigmoid log_softmax logsumexp lstm "
        "matmul max_pool1d max_pool2d mean mish movedim new_full new_ones new_zeros normalize "
        "numpy_T one_hot ones_like outer pairwise_distance pixel_shuffle prelu relu6 reshape "
        "rms_norm rnn_relu rnn_tanh rsub scaled_dot_product_attention selu silu softmax "
        "softplus softsign split square squeeze stack std sum t to transpose tril triu "
        "true_divide unbind unflatten unsqueeze var view where zeros_like"
    ).split()
)
"""Non-core operators that an archive may call: they turn tensors into tensors."""

REFUSED = frozenset(("as_strided", "empty", "empty_like", "empty_strided", "rand", "randn"))
"""Core operators that read uninitialised memory, or are random."""


def _counted(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    """Arithmetic of numbers of rows and columns, and of nothing else."""

    def count(a: Any, b: Any) -> int:
        if type(a) is not int or type(b) is not int:
            raise TypeError("a size that is not an integer")
        return function(a, b)

    return count


_COUNTS: Mapping[str, Callable[[Any, Any], int]] = MappingProxyType(
    {
        "_operator.add": _counted(operator.add),
        "_operator.sub": _counted(operator.sub),
        "_operator.mul": _counted(operator.mul),
        "_operator.floordiv": _counted(operator.floordiv),
    }
)

_ASSERTIONS = frozenset(("aten._assert_tensor_metadata.default", "aten._assert_scalar.default"))
"""What the exporter noted about dtypes and sizes; they compute nothing."""

_FORMATS: Mapping[int, str] = MappingProxyType(
    {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
)

Runner = Callable[..., Any]


def _torch_module_type(types: Types, attrs: Attrs) -> TensorType:
    archive, dtypes = array(attrs, "archive"), ("bool", "int64", "float32", "float64")
    need(archive.ndim == 1 and archive.dtype == np.uint8, "the torch archive must be bytes")
    need(archive.size > 0, "the torch archive is empty")
    need(
        all(t.rowwise and len(t.shape) == 2 and t.dtype != "string" for t in types),
        "torch_module reads rows of numbers",
    )
    need(attrs["dtype"] in dtypes, "torch_module makes numbers")
    need(attrs["width"] > 0, "width must be an integer above 0")
    return matrix(attrs["dtype"], attrs["width"])


def runner(content: bytes, attrs: Attrs, device: Any = None) -> Runner:
    """Archive -> a function of the input tensors (n, k) each, to (n, width) on `device`, with the
    dtype and width that `attrs` promise.

    Raises:
        ArtifactError, UnsupportedModelError: the archive is damaged, or calls an operator on
            something other than tensors.
        MissingDependencyError: torch is not installed.
    """
    torch = _torch()
    graph = read_exported(content)
    dtype, width = getattr(torch, str(attrs["dtype"])), attrs["width"]
    place = torch.device("cpu") if device is None else device
    constants = {n: torch.from_numpy(a.copy()).to(place) for n, a in graph.constants.items()}
    steps = [(call, operator_of(torch, call)) for call in graph.calls]

    def run(*tensors: Any) -> Any:
        count = int(tensors[0].shape[0])
        if not count:
            return torch.empty((0, width), dtype=dtype, device=place)
        try:
            made = interpreted(*tensors)
        except (RuntimeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ScoringError(f"the torch module cannot score these rows: {error}") from error
        if made.shape[0] != count or made.numel() != count * width:
            raise ScoringError(
                f"the torch module made {tuple(made.shape)} for {count} rows, not {width} numbers "
                "per row"
            )
        return made.reshape(count, width).to(dtype)

    def interpreted(*tensors: Any) -> Any:
        values: dict[str, Any] = dict(constants)
        count = int(tensors[0].shape[0])
        for given, tensor in zip(graph.inputs, tensors, strict=True):
            tensor = tensor.to(getattr(torch, given.dtype))
            values[given.name] = tensor.reshape(count) if len(given.shape) == 1 else tensor
        for call, function in steps:
            positional, named = _arguments(torch, call, values, place)
            made = function(*positional, **named)
            results = made if isinstance(made, tuple | list) else (made,)
            values.update(zip(call.results, results, strict=False))
        return values[graph.output]

    return run


def operator_of(torch: Any, call: Call) -> Any:
    """The torch operator that a call names.

    Raises:
        UnsupportedModelError: it is not among those that an archive may call.
    """
    package, _, rest = call.target.partition(".")
    name, _, overload = rest.partition(".")
    if call.target in _ASSERTIONS:
        return lambda *args, **named: None
    plain = name.removesuffix("_")
    if package == "aten" and name.isidentifier() and overload.isidentifier():
        found = getattr(getattr(torch.ops.aten, name, None), overload, None)
        base = getattr(getattr(torch.ops.aten, plain, None), overload, None)
        tags = () if base is None else base.tags
        core, dice = torch.Tag.core in tags, torch.Tag.nondeterministic_seeded in tags
        allowed = plain in COMPOSITE or (core and not dice and plain not in REFUSED)
        if found is not None and allowed:
            return found
        if call.target == "aten.sym_size.int":
            return lambda x, dim: int(x.shape[dim])
    if call.target in _COUNTS:
        return _COUNTS[call.target]
    raise UnsupportedModelError(
        f"the module calls {call.target}, which sqlml does not run; write it with other operators"
    )


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "this torch module needs torch, which is not installed: pip install 'sqlml[torch]'"
        ) from None
    return torch


def _arguments(
    torch: Any, call: Call, values: Mapping[str, Any], device: Any
) -> tuple[list[Any], dict[str, Any]]:
    def filled(value: Any) -> Any:
        if isinstance(value, Ref):
            return values[value.name]
        if isinstance(value, list):
            return [filled(v) for v in value]
        if isinstance(value, DTypeArg):
            return getattr(torch, value.name)
        return value

    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if isinstance(value, Place):
            if value.kind == "as_device":
                named[name] = device
            elif value.kind == "as_memory_format":
                named[name] = getattr(torch, _FORMATS[value.number])
        elif name in call.positional:
            positional.append(filled(value))
        else:
            named[name] = filled(value)
    return positional, named


@lru_cache(maxsize=8)
def _runner(content: bytes, dtype: str, width: int) -> Runner:
    return runner(content, {"dtype": dtype, "width": width})


def _torch_module(args: Sequence[Array], attrs: Attrs) -> Array:
    torch = _torch()
    run = _runner(attrs["archive"].tobytes(), str(attrs["dtype"]), attrs["width"])
    with torch.inference_mode():
        made: Array = run(*[torch.from_numpy(np.array(a)) for a in args]).numpy()
    return made


OPERATORS: tuple[Op, ...] = (
    Op(
        "torch_module",
        "both",
        "opaque",
        _torch_module_type,
        _torch_module,
        {"archive": "array", "dtype": "str", "width": "int"},
        arity=(1, None),
    ),
)
