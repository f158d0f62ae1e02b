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
    return lambda ops, args: ops.unary(op_name, read_rows(args, "self"))


def _make_binary(op_name: str) -> Rule:
    def rule(ops: TensorBuilder, args: Arguments) -> RowTensor:
        other: Operand = args["other"]
        if args.get("alpha", 1) != 1:
            other = ops.elementwise("mul", cast(RowTensor, other), args["alpha"])
        return ops.elementwise(op_name, args["self"], other)

    return rule


def _make_logical(op_name: str) -> Rule:
    return lambda ops, args: ops.elementwise(
        op_name, _to_bool(ops, args["self"]), _to_bool(ops, args["other"])
    )


def _make_bitwise(op_name: str) -> Rule:
    def rule(ops: TensorBuilder, args: Arguments) -> RowTensor:
        if not all(
            isinstance(x, RowTensor) and x.dtype == "bool" for x in (args["self"], args["other"])
        ):
            raise Unsupported("a bitwise operator on numbers")
        return ops.elementwise(op_name, args["self"], args["other"])

    return rule


def _to_bool(ops: TensorBuilder, x: Operand) -> Any:
    """Convert numbers to booleans: 0 becomes false, all others true."""
    if isinstance(x, RowTensor):
        return x if x.dtype == "bool" else ops.elementwise("ne", x, 0)
    return np.asarray(x).astype(bool)


def _convert_division(ops: TensorBuilder, args: Arguments) -> RowTensor:
    if args.get("rounding_mode") is not None:
        raise Unsupported("a division that rounds")
    dtype = promote([args["self"], args["other"]])
    dtype = dtype if is_floating(dtype) else "float32"
    return ops.elementwise("div", args["self"], args["other"], dtype=dtype)


def _convert_reverse_subtraction(ops: TensorBuilder, args: Arguments) -> RowTensor:
    swapped = {"self": args["other"], "other": args["self"], "alpha": args.get("alpha", 1)}
    return cast(RowTensor, _make_binary("sub")(ops, swapped))


def _convert_power(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x, exponent = read_rows(args, "self"), args["exponent"]
    if exponent in (2, 3):
        square = ops.elementwise("mul", x, x)
        return square if exponent == 2 else ops.elementwise("mul", square, x)
    if exponent == 0.5:
        return ops.unary("sqrt", x)
    if exponent == -1:
        return _convert_reciprocal(ops, args)
    raise Unsupported(f"power {exponent!r}")


def _convert_reciprocal(ops: TensorBuilder, args: Arguments) -> RowTensor:
    return ops.elementwise("div", 1.0, ops.to_floating(read_rows(args, "self")))


def _make_reduction(op_name: str, mean: bool = False) -> Rule:
    """Make a rule that reduces column axes with `op_name`; `mean` divides by their length."""

    def rule(ops: TensorBuilder, args: Arguments) -> RowTensor:
        x = read_rows(args, "self")
        dims = args.get("dim")
        if dims in (None, []) or args.get("dtype") is not None:
            raise Unsupported("a reduction of the whole batch")
        axes = [resolve_column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])]
        if mean:
            x = ops.to_floating(x)
        elif op_name == "sum" and not is_floating(x.dtype):
            x = ops.cast(x, "int64")
        if x.dtype == "bool":
            raise Unsupported("a reduction of booleans")
        result = ops.reduce(op_name, x, axes, keep=bool(args.get("keepdim")))
        if mean:
            result = ops.elementwise("div", result, float(math.prod(x.shape[i] for i in axes)))
        return result

    return rule


def _convert_where(ops: TensorBuilder, args: Arguments) -> RowTensor:
    if read_rows(args, "condition").dtype != "bool":
        raise Unsupported("a condition that is not bool")
    return ops.where(args["condition"], args["self"], args["other"])


def _convert_sign(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
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
    **{name: _make_binary(name) for name in ("add", "sub", "mul")},
    **{name: _make_binary(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "div": _convert_division,
    "true_divide": _convert_division,
    "rsub": _convert_reverse_subtraction,
}
"""Operator -> rule for both overloads, whose second operand is a tensor or a number."""

RULES: Mapping[str, Rule] = {
    **{f"aten.{name}.default": _make_unary(name) for name in _FLOAT_FUNCTIONS},
    "aten.asin.default": _make_unary("arcsin"),
    "aten.acos.default": _make_unary("arccos"),
    "aten.atan.default": _make_unary("arctan"),
    "aten.neg.default": lambda m, a: m.op("neg", read_rows(a, "self")),
    "aten.abs.default": lambda m, a: m.op("abs", read_rows(a, "self")),
    **{f"aten.{name}.Tensor": rule for name, rule in _WITH_SCALARS.items()},
    **{f"aten.{name}.Scalar": rule for name, rule in _WITH_SCALARS.items()},
    "aten.maximum.default": _make_binary("maximum"),
    "aten.minimum.default": _make_binary("minimum"),
    "aten.logical_and.default": _make_logical("and"),
    "aten.logical_or.default": _make_logical("or"),
    **{f"aten.{name}.Tensor": _make_bitwise("and") for name in ("bitwise_and", "__and__")},
    **{f"aten.{name}.Tensor": _make_bitwise("or") for name in ("bitwise_or", "__or__")},
    "aten.logical_not.default": lambda m, a: m.op("not", _to_bool(m, read_rows(a, "self"))),
    "aten.sign.default": _convert_sign,
    "aten.square.default": lambda m, a: m.elementwise("mul", a["self"], read_rows(a, "self")),
    "aten.pow.Tensor_Scalar": _convert_power,
    "aten.reciprocal.default": _convert_reciprocal,
    "aten.rsqrt.default": lambda m, a: _convert_reciprocal(m, {"self": m.unary("sqrt", a["self"])}),
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

    Raises Unsupported if the IR cannot express an operator or its arguments.
    """
    ops = TensorBuilder(frame.builder)
    values: dict[str, Any] = dict(graph.constants)
    for tensor, value in read_inputs(graph, frame):
        values[tensor.name] = RowTensor(value, tensor.shape[1:])
    use_counts = Counter([graph.output])
    for call in graph.calls:
        use_counts.update(_walk_references(list(call.arguments.values())))
    producers = {result: call for call in graph.calls for result in call.results}
    for call in graph.calls:
        name = _get_functional_name(call, use_counts, producers)
        rule = RULES.get(name)
        if rule is None:
            raise Unsupported(f"operator {call.target}")
        arguments = {key: _resolve(value, values) for key, value in call.arguments.items()}
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
    """Yield each input with its value: the next columns of `frame`, cast to the input's dtype."""
    start = 0
    for tensor in graph.inputs:
        columns = frame.select(range(start, start + tensor.width))
        start += tensor.width
        is_integer = tensor.dtype in ("int8", "int16", "int32", "int64", "bool")
        value = columns.matrix("float64" if is_integer else cast(DType, tensor.dtype))
        if is_integer:
            checks = {"allow_nan": False, "step": f"a module that reads {tensor.dtype}"}
            value = frame.builder.op("require_finite", value, features=columns.names, **checks)
            value = frame.builder.op("cast", value, dtype=tensor.dtype)
        yield tensor, value


def _get_functional_name(
    call: OperatorCall, use_counts: Counter[str], producers: dict[str, OperatorCall]
) -> str:
    """Return the operator of `call`, without the final underscore if it works in place.

    An in-place operator has the same result as its functional form if no other operator reads the
    overwritten memory. Raise Unsupported if another operator may read it: if the tensor, or a
    tensor of which it may be a view, is used more than once or is an input or constant.
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

    Such a module must not be decomposed: the decompositions of torch 2.13 copy the input of a
    disabled dropout, so the in-place operator would no longer change that input.
    """
    representative_by_tensor: dict[
        str, str
    ] = {}  # tensor -> the first tensor that shares its memory
    shared_with_dropout: set[str] = set()  # representatives
    for call in graph.calls:
        target = _get_first_tensor(call)
        if target is None or not (call.target in LAYOUT or _is_in_place(call)):
            continue
        representative = representative_by_tensor.get(target, target)
        if _is_in_place(call) and representative in shared_with_dropout:
            return True
        if call.target in DROPOUTS:
            shared_with_dropout.add(representative)
        representative_by_tensor.update(dict.fromkeys(call.results, representative))
    return False


def _is_in_place(call: OperatorCall) -> bool:
    operator = call.target.split(".")[1] if call.target.count(".") == 2 else ""
    is_special = operator.startswith("__")
    return operator.endswith("_") and not is_special and call.target not in RULES


def _get_first_tensor(call: OperatorCall) -> str | None:
    """Return the name of the first argument of `call` if it is a tensor, otherwise None."""
    target = call.arguments.get(call.positional[0]) if call.positional else None
    return target.name if isinstance(target, Ref) else None


def _walk_references(arguments: list[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Ref):
            yield argument.name
        elif isinstance(argument, list):
            yield from _walk_references(argument)


def _resolve(value: Any, values_by_name: dict[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values_by_name.get(value.name)  # None if no rule computes it
    if isinstance(value, list):
        return [_resolve(v, values_by_name) for v in value]
    return value
