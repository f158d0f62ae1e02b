"""`torch_module`: a torch module that the importer cannot translate, as one operator.

Torch interprets the graph in an archive of torch.export (`ir/torch_archive.py`). Nothing is
unpickled, and no code of the archive is executed: operators are looked up by name among torch's
core operators and those of `COMPOSITE`, which only compute tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, ScoringError, UnsupportedModelError
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.torch_archive import DTypeArg, OperatorCall, Placement, Ref, read_exported
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
"""Further operators that an archive may call, and that only compute tensors."""

REFUSED = frozenset(("as_strided", "empty", "empty_like", "empty_strided", "rand", "randn"))
"""Core operators that read uninitialised memory or are random."""


def _require_integers(function: Callable[[int, int], int]) -> Callable[[Any, Any], int]:
    """Return `function` with a check that raises TypeError if an argument is not an integer."""

    def compute_size(left: Any, right: Any) -> int:
        if type(left) is not int or type(right) is not int:
            raise TypeError("a size is not an integer")
        return function(left, right)

    return compute_size


_SIZE_ARITHMETIC: Mapping[str, Callable[[Any, Any], int]] = {
    f"_operator.{name}": _require_integers(getattr(operator, name))
    for name in ("add", "sub", "mul", "floordiv")
}

_ASSERTIONS = frozenset(("aten._assert_tensor_metadata.default", "aten._assert_scalar.default"))
"""Assertions of the exporter about dtypes and sizes, which compute nothing."""

_FORMATS: Mapping[int, str] = dict(
    enumerate(("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"), 1)
)

_RESULT_DTYPES = ("bool", "int64", "float32", "float64")

Runner = Callable[..., Any]


def _torch_module_type(types: Types, attrs: Attrs) -> TensorType:
    archive = array_attribute(attrs, "archive", "uint8", (None,))
    require(archive.size > 0, "the torch archive is empty")
    for x in types:
        require(require_matrix(x).dtype != "string", "torch_module takes numbers, not strings")
    require(attrs["dtype"] in _RESULT_DTYPES, "torch_module makes numbers")
    require(attrs["width"] > 0, "width must be an integer above 0")
    return matrix(attrs["dtype"], attrs["width"])


def make_runner(content: bytes, attrs: Attrs, device: Any = None) -> Runner:
    """Return a function that maps input tensors, (n, k) each, to a tensor (n, width) on `device`.

    `attrs` has the dtype and the width of the result. `device` is a torch device, by default the
    CPU. Raise UnsupportedModelError if the archive calls an operator that is not allowed.
    """
    torch = _import_torch()
    module = read_exported(content)
    dtype, width = getattr(torch, str(attrs["dtype"])), attrs["width"]
    target_device = torch.device("cpu") if device is None else device
    weights = module.constants.items()
    constants = {name: torch.from_numpy(w.copy()).to(target_device) for name, w in weights}
    steps = [(call, find_operator(torch, call)) for call in module.calls]

    def run(*tensors: Any) -> Any:
        num_rows = int(tensors[0].shape[0])
        if not num_rows:
            return torch.empty((0, width), dtype=dtype, device=target_device)
        try:
            result = run_graph(*tensors)
        except (RuntimeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ScoringError(f"the torch module cannot score these rows: {error}") from error
        if result.shape[0] != num_rows or result.numel() != num_rows * width:
            problem = f"{tuple(result.shape)} for {num_rows} rows, not {width} numbers per row"
            raise ScoringError(f"the torch module returned {problem}")
        return result.reshape(num_rows, width).to(dtype)

    def run_graph(*tensors: Any) -> Any:
        values: dict[str, Any] = dict(constants)
        num_rows = int(tensors[0].shape[0])
        for graph_input, tensor in zip(module.inputs, tensors, strict=True):
            shape = (num_rows,) if len(graph_input.shape) == 1 else tensor.shape
            tensor = tensor.to(getattr(torch, graph_input.dtype))
            values[graph_input.name] = tensor.reshape(shape)
        for call, function in steps:
            args, kwargs = _resolve_arguments(torch, call, values, target_device)
            result = function(*args, **kwargs)
            results = result if isinstance(result, tuple | list) else (result,)
            values.update(zip(call.results, results, strict=False))
        return values[module.output]

    return run


def find_operator(torch: Any, call: OperatorCall) -> Any:
    """Return the torch operator that `call` names, or raise UnsupportedModelError."""
    package, _, qualified_name = call.target.partition(".")
    name, _, overload = qualified_name.partition(".")
    if call.target in _ASSERTIONS:
        return lambda *args, **kwargs: None
    functional_name = name.removesuffix("_")
    if package == "aten" and name.isidentifier() and overload.isidentifier():
        function = getattr(getattr(torch.ops.aten, name, None), overload, None)
        functional = getattr(getattr(torch.ops.aten, functional_name, None), overload, None)
        tags = () if functional is None else functional.tags
        is_core, is_random = torch.Tag.core in tags, torch.Tag.nondeterministic_seeded in tags
        is_allowed = is_core and not is_random and functional_name not in REFUSED
        if function is not None and (is_allowed or functional_name in COMPOSITE):
            return function
        if call.target == "aten.sym_size.int":
            return lambda x, dim: int(x.shape[dim])
    if call.target in _SIZE_ARITHMETIC:
        return _SIZE_ARITHMETIC[call.target]
    raise UnsupportedModelError(
        f"the module calls {call.target}, which sqlml does not run; write it with other operators"
    )


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(
            "this torch module needs torch, which is not installed: pip install 'sqlml[torch]'"
        ) from None
    return torch


def _resolve_arguments(
    torch: Any, call: OperatorCall, values: Mapping[str, Any], device: Any
) -> tuple[list[Any], dict[str, Any]]:
    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            return values[value.name]
        if isinstance(value, list):
            return [resolve(element) for element in value]
        return getattr(torch, value.name) if isinstance(value, DTypeArg) else value

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in call.arguments.items():
        if isinstance(value, Placement):
            if value.kind == "as_device":
                kwargs[name] = device
            elif value.kind == "as_memory_format":
                kwargs[name] = getattr(torch, _FORMATS[value.number])
        elif name in call.positional:
            args.append(resolve(value))
        else:
            kwargs[name] = resolve(value)
    return args, kwargs


@lru_cache(maxsize=8)
def _make_cached_runner(content: bytes, dtype: str, width: int) -> Runner:
    return make_runner(content, {"dtype": dtype, "width": width})


def _torch_module(args: Sequence[Array], attrs: Attrs) -> Array:
    torch = _import_torch()
    run = _make_cached_runner(attrs["archive"].tobytes(), str(attrs["dtype"]), attrs["width"])
    with torch.inference_mode():
        result: Array = run(*[torch.from_numpy(np.array(array)) for array in args]).numpy()
    return result


_MODULE = "archive, dtype: str, width: int"
_OPERATOR = Op("torch_module", "opaque", _torch_module_type, _torch_module, _MODULE, (1, None))
OPERATORS: tuple[Op, ...] = (_OPERATOR,)
