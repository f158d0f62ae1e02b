"""Convert the aten operators of an exported module to operators of the IR.

Results equal those of eager torch except for rounding: torch sums products in blocks, and
approximates float32 functions with its own formulas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from sqlml.errors import ProgramError
from sqlml.importers.frame import Frame
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.importers.torch.aten_rules import ACTIVATIONS, DROPOUTS, LAYERS, LAYOUT
from sqlml.importers.torch.tensors import (
    Arguments,
    Operand,
    Rule,
    TensorBuilder,
    is_floating,
    promote,
    read_rows,
    resolve_column_axis,
)
from sqlml.ir.builder import Value
from sqlml.ir.torch_archive import ExportedModule, Input, OperatorCall, Ref
from sqlml.types import DType


def _make_unary(op_name: str) -> Rule:
    return lambda ops, arguments: ops.unary(op_name, read_rows(arguments))


def _make_binary(op_name: str) -> Rule:
    def rule(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
        other: Operand = arguments["other"]
        if arguments.get("alpha", 1) != 1:
            other = ops.elementwise("mul", cast(RowTensor, other), arguments["alpha"])
        return ops.elementwise(op_name, arguments["self"], other)

    return rule


def _make_logical(op_name: str) -> Rule:
    return lambda ops, arguments: ops.elementwise(
        op_name, *[_to_bool(ops, arguments[name]) for name in ("self", "other")]
    )


def _make_bitwise(op_name: str) -> Rule:
    def rule(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
        operands = (arguments["self"], arguments["other"])
        if not all(isinstance(x, RowTensor) and x.dtype == "bool" for x in operands):
            raise Unsupported("a bitwise operator on numbers")
        return ops.elementwise(op_name, *operands)

    return rule


def _to_bool(ops: TensorBuilder, x: Operand) -> Any:
    if isinstance(x, RowTensor):
        return x if x.dtype == "bool" else ops.elementwise("ne", x, 0)
    return np.asarray(x).astype(bool)


def _convert_division(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    if arguments.get("rounding_mode") is not None:
        raise Unsupported("a division that rounds")
    dtype = promote([arguments["self"], arguments["other"]])
    dtype = dtype if is_floating(dtype) else "float32"
    return ops.elementwise("div", arguments["self"], arguments["other"], dtype=dtype)


def _convert_reverse_subtraction(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    swapped = {**arguments, "self": arguments["other"], "other": arguments["self"]}
    return cast(RowTensor, _make_binary("sub")(ops, swapped))


def _convert_power(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x, exponent = read_rows(arguments), arguments["exponent"]
    if exponent in (2, 3):
        square = ops.elementwise("mul", x, x)
        return square if exponent == 2 else ops.elementwise("mul", square, x)
    if exponent == 0.5:
        return ops.unary("sqrt", x)
    if exponent == -1:
        return _convert_reciprocal(ops, arguments)
    raise Unsupported(f"power {exponent!r}")


def _convert_reciprocal(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    return ops.elementwise("div", 1.0, ops.to_floating(read_rows(arguments)))


def _make_reduction(op_name: str, mean: bool = False) -> Rule:
    """Make a rule that reduces column axes with `op_name`, then divides by their size if `mean`."""

    def rule(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
        x = read_rows(arguments)
        dims = arguments.get("dim")
        if dims in (None, []) or arguments.get("dtype") is not None:
            raise Unsupported("a reduction of the whole batch")
        axes = [resolve_column_axis(dim, x) for dim in (dims if isinstance(dims, list) else [dims])]
        if mean:
            x = ops.to_floating(x)
        elif op_name == "sum" and not is_floating(x.dtype):
            x = ops.cast(x, "int64")
        if x.dtype == "bool":
            raise Unsupported("a reduction of booleans")
        result = ops.reduce(op_name, x, axes, keep=bool(arguments.get("keepdim")))
        if mean:
            result = ops.elementwise("div", result, float(math.prod(x.shape[a] for a in axes)))
        return result

    return rule


def _convert_where(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    if read_rows(arguments, "condition").dtype != "bool":
        raise Unsupported("a condition that is not bool")
    return ops.where(arguments["condition"], arguments["self"], arguments["other"])


def _convert_sign(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    if x.dtype == "bool":
        raise Unsupported("the sign of booleans")
    # torch returns 0 for NaN.
    is_above, is_below = ops.elementwise("gt", x, 0), ops.elementwise("lt", x, 0)
    return ops.elementwise("sub", ops.cast(is_above, x.dtype), ops.cast(is_below, x.dtype))


_WHERE_OVERLOADS = ("self", "ScalarOther", "ScalarSelf", "Scalar")
_FLOAT_FUNCTIONS = (
    "exp log log1p expm1 sqrt sigmoid tanh exp2 log2 log10 sin cos tan sinh cosh trunc floor ceil "
    "isnan"
).split()
_WITH_SCALARS: Mapping[str, Rule] = {
    **{name: _make_binary(name) for name in "add sub mul lt le gt ge eq ne".split()},
    **dict.fromkeys(("div", "true_divide"), _convert_division),
    "rsub": _convert_reverse_subtraction,
}
"""Maps an operator to the rule for both overloads: the second operand is a tensor or a number."""

RULES: Mapping[str, Rule] = {
    **{f"aten.{name}.default": _make_unary(name) for name in _FLOAT_FUNCTIONS},
    **{f"aten.a{name}.default": _make_unary(f"arc{name}") for name in ("sin", "cos", "tan")},
    "aten.neg.default": lambda ops, arguments: ops.op("neg", read_rows(arguments)),
    "aten.abs.default": lambda ops, arguments: ops.op("abs", read_rows(arguments)),
    **{f"aten.{name}.Tensor": rule for name, rule in _WITH_SCALARS.items()},
    **{f"aten.{name}.Scalar": rule for name, rule in _WITH_SCALARS.items()},
    **{f"aten.{name}.default": _make_binary(name) for name in ("maximum", "minimum")},
    **{f"aten.logical_{name}.default": _make_logical(name) for name in ("and", "or")},
    **{f"aten.{name}.Tensor": _make_bitwise("and") for name in ("bitwise_and", "__and__")},
    **{f"aten.{name}.Tensor": _make_bitwise("or") for name in ("bitwise_or", "__or__")},
    "aten.logical_not.default": lambda ops, arguments: ops.op(
        "not", _to_bool(ops, read_rows(arguments))
    ),
    "aten.sign.default": _convert_sign,
    "aten.square.default": lambda ops, arguments: _convert_power(ops, {**arguments, "exponent": 2}),
    "aten.pow.Tensor_Scalar": _convert_power,
    "aten.reciprocal.default": _convert_reciprocal,
    "aten.rsqrt.default": lambda ops, arguments: _convert_reciprocal(
        ops, {"self": ops.unary("sqrt", arguments["self"])}
    ),
    "aten.sum.dim_IntList": _make_reduction("sum"),
    "aten.mean.dim": _make_reduction("sum", mean=True),
    "aten.amax.default": _make_reduction("max"),
    "aten.amin.default": _make_reduction("min"),
    "aten.argmax.default": _make_reduction("argmax"),
    **{f"aten.where.{overload}": _convert_where for overload in _WHERE_OVERLOADS},
    **ACTIVATIONS,
    **LAYERS,
    **LAYOUT,
}


def convert_graph(graph: ExportedModule, frame: Frame) -> Value:
    """Build the result (n, k) of an exported module that reads the columns of `frame`.

    Raises Unsupported if the IR cannot express an operator or the arguments of an operator.
    """
    ops = TensorBuilder(frame.builder)
    values: dict[str, Any] = dict(graph.constants)
    for graph_input, value in read_inputs(graph, frame):
        values[graph_input.name] = RowTensor(value, graph_input.shape[1:])
    use_counts = Counter([graph.output])
    for call in graph.calls:
        use_counts.update(_walk_references(list(call.arguments.values())))
    producers = {result: call for call in graph.calls for result in call.results}
    for call in graph.calls:
        rule = RULES.get(_get_functional_name(call, use_counts, producers))
        if rule is None:
            raise Unsupported(f"operator {call.target}")
        arguments = {name: _resolve_references(v, values) for name, v in call.arguments.items()}
        try:
            returned = rule(ops, arguments)
        except (ProgramError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Unsupported(f"operator {call.target} ({error})") from error
        results = returned if isinstance(returned, tuple) else (returned,)
        values.update(zip(call.results, results, strict=False))
    result = values.get(graph.output)
    if not isinstance(result, RowTensor) or result.dtype != graph.dtype:
        raise Unsupported("a result that does not depend on the rows, or of another dtype")
    if result.shape != graph.shape:
        raise Unsupported(f"a result of shape {result.shape}, not {graph.shape}")
    return result.value


def read_inputs(graph: ExportedModule, frame: Frame) -> Iterator[tuple[Input, Value]]:
    """Yield each input, and the next columns of `frame` as a value in the input's dtype."""
    start = 0
    for graph_input in graph.inputs:
        dtype = graph_input.dtype
        columns = frame.select(range(start, start + graph_input.width))
        start += graph_input.width
        is_integer = dtype in ("int8", "int16", "int32", "int64", "bool")
        value = columns.matrix("float64" if is_integer else cast(DType, dtype))
        if is_integer:
            attrs = {"allow_nan": False, "step": f"a module that reads {dtype}"}
            value = frame.builder.op("require_finite", value, features=columns.names, **attrs)
            value = frame.builder.op("cast", value, dtype=dtype)
        yield graph_input, value


def _get_functional_name(
    call: OperatorCall, use_counts: Counter[str], producers: dict[str, OperatorCall]
) -> str:
    """Return the name of the called operator, in functional form if the operator works in place.

    In-place and functional operators have equal results if no other operator reads the overwritten
    memory. Raise Unsupported if another operator may read the memory, because the overwritten
    tensor or its base tensor is used more than once, or is an input or a constant.
    """
    if not _is_in_place(call):
        return call.target
    target = _get_first_tensor(call)
    while target is not None and use_counts[target] == 1 and target in producers:
        if producers[target].target not in LAYOUT:
            package, operator, overload = call.target.split(".")
            return f"{package}.{operator[:-1]}.{overload}"
        target = _get_first_tensor(producers[target])
    raise Unsupported(f"operator {call.target} on a tensor that is read elsewhere")


def overwrites_dropout(graph: ExportedModule) -> bool:
    """Return whether an in-place operator may overwrite memory that a dropout shares.

    Such a module must not be decomposed. The decompositions of torch 2.13 copy the input of a
    disabled dropout, so the in-place operator would no longer change that input.
    """
    base_tensors: dict[str, str] = {}  # maps a tensor to the first tensor in the same memory
    bases_with_dropout: set[str] = set()
    for call in graph.calls:
        target = _get_first_tensor(call)
        if target is None or not (call.target in LAYOUT or _is_in_place(call)):
            continue
        base = base_tensors.get(target, target)
        if _is_in_place(call) and base in bases_with_dropout:
            return True
        if call.target in DROPOUTS:
            bases_with_dropout.add(base)
        base_tensors.update(dict.fromkeys(call.results, base))
    return False


def _is_in_place(call: OperatorCall) -> bool:
    operator = call.target.split(".")[1] if call.target.count(".") == 2 else ""
    is_special = operator.startswith("__")
    return operator.endswith("_") and not is_special and call.target not in RULES


def _get_first_tensor(call: OperatorCall) -> str | None:
    argument = call.arguments.get(call.positional[0]) if call.positional else None
    return argument.name if isinstance(argument, Ref) else None


def _walk_references(arguments: list[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.name
        elif isinstance(argument, list):
            yield from _walk_references(argument)


def _resolve_references(argument: Any, values: dict[str, Any]) -> Any:
    if isinstance(argument, list):
        return [_resolve_references(item, values) for item in argument]
    return values.get(argument.name) if isinstance(argument, Ref) else argument
