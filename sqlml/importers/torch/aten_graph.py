"""The aten operators of an exported module as operators of the IR.

Numbers equal those of eager torch up to the rounding of their dtype: torch sums products in blocks,
and its float32 functions are its own approximations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from sqlml.errors import ProgramError
from sqlml.importers.frame import Frame
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.importers.torch.aten_rules import ACTIVATIONS, DROPOUTS, LAYERS, LAYOUT
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Operand,
    Rule,
    find_kind,
    promote,
    resolve_column_axis,
    rows,
)
from sqlml.ir.builder import Value
from sqlml.ir.torch_archive import Call, ExportedModule, Input, Ref
from sqlml.types import DType


def _unary(op: str) -> Rule:
    return lambda m, a: m.unary(op, rows(a, "self"))


def _binary(op: str) -> Rule:
    def rule(m: Maker, a: Arguments) -> Rows:
        other: Operand = a["other"]
        if a.get("alpha", 1) != 1:
            other = m.elementwise("mul", cast(Rows, other), a["alpha"])
        return m.elementwise(op, a["self"], other)

    return rule


def _logical(op: str) -> Rule:
    return lambda m, a: m.elementwise(op, _truth(m, a["self"]), _truth(m, a["other"]))


def _bitwise(op: str) -> Rule:
    def rule(m: Maker, a: Arguments) -> Rows:
        if not all(isinstance(x, Rows) and x.dtype == "bool" for x in (a["self"], a["other"])):
            raise Uncovered("a bitwise operator over numbers")
        return m.elementwise(op, a["self"], a["other"])

    return rule


def _truth(m: Maker, x: Operand) -> Any:
    if isinstance(x, Rows):
        return x if x.dtype == "bool" else m.elementwise("ne", x, 0)
    return np.asarray(x).astype(bool)


def _divide(m: Maker, a: Arguments) -> Rows:
    if a.get("rounding_mode") is not None:
        raise Uncovered("a division that rounds")
    first, second = a["self"], a["other"]
    dtype = promote([first, second])
    return m.elementwise("div", first, second, dtype=dtype if find_kind(dtype) == 2 else "float32")


def _reverse_subtract(m: Maker, a: Arguments) -> Rows:
    swapped = {"self": a["other"], "other": a["self"], "alpha": a.get("alpha", 1)}
    return cast(Rows, _binary("sub")(m, swapped))


def _power(m: Maker, a: Arguments) -> Rows:
    x, exponent = rows(a, "self"), a["exponent"]
    if exponent == 2:
        return m.elementwise("mul", x, x)
    if exponent == 3:
        return m.elementwise("mul", m.elementwise("mul", x, x), x)
    if exponent == 0.5:
        return m.unary("sqrt", x)
    if exponent == -1:
        return _reciprocal(m, a)
    raise Uncovered(f"power {exponent!r}")


def _reciprocal(m: Maker, a: Arguments) -> Rows:
    return m.elementwise("div", 1.0, m.floating(rows(a, "self")))


def _reduce(op: str, mean: bool = False) -> Rule:
    def rule(m: Maker, a: Arguments) -> Rows:
        x = rows(a, "self")
        dims = a.get("dim")
        if dims in (None, []) or a.get("dtype") is not None:
            raise Uncovered("a reduction of the whole batch")
        axes = [resolve_column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])]
        if mean:
            x = m.floating(x)
        elif op == "sum" and find_kind(x.dtype) < 2:
            x = m.cast(x, "int64")
        if x.dtype == "bool":
            raise Uncovered("a reduction of booleans")
        result = m.reduce(op, x, axes, keep=bool(a.get("keepdim")))
        if mean:
            result = m.elementwise("div", result, float(math.prod(x.shape[i] for i in axes)))
        return result

    return rule


def _where(m: Maker, a: Arguments) -> Rows:
    condition = rows(a, "condition")
    if condition.dtype != "bool":
        raise Uncovered("a condition that is not bool")
    return m.where(condition, a["self"], a["other"])


def _sign(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if x.dtype == "bool":
        raise Uncovered("the sign of booleans")
    # torch returns 0 for NaN.
    above, below = m.elementwise("gt", x, 0), m.elementwise("lt", x, 0)
    return m.elementwise("sub", m.cast(above, x.dtype), m.cast(below, x.dtype))


_WHERE_OVERLOADS = ("self", "ScalarOther", "ScalarSelf", "Scalar")
_FLOAT = (
    "exp log log1p expm1 sqrt sigmoid tanh exp2 log2 log10 sin cos tan sinh cosh trunc floor ceil "
    "isnan"
).split()
_WITH_SCALARS: Mapping[str, Rule] = {
    **{name: _binary(name) for name in ("add", "sub", "mul")},
    **{name: _binary(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "div": _divide,
    "true_divide": _divide,
    "rsub": _reverse_subtract,
}
"""The operators whose other operand is a tensor or a number, with one overload for each."""

RULES: Mapping[str, Rule] = {
    **{f"aten.{name}.default": _unary(name) for name in _FLOAT},
    "aten.asin.default": _unary("arcsin"),
    "aten.acos.default": _unary("arccos"),
    "aten.atan.default": _unary("arctan"),
    "aten.neg.default": lambda m, a: m.op("neg", rows(a, "self")),
    "aten.abs.default": lambda m, a: m.op("abs", rows(a, "self")),
    **{f"aten.{name}.Tensor": rule for name, rule in _WITH_SCALARS.items()},
    **{f"aten.{name}.Scalar": rule for name, rule in _WITH_SCALARS.items()},
    "aten.maximum.default": _binary("maximum"),
    "aten.minimum.default": _binary("minimum"),
    "aten.logical_and.default": _logical("and"),
    "aten.logical_or.default": _logical("or"),
    **{f"aten.{name}.Tensor": _bitwise("and") for name in ("bitwise_and", "__and__")},
    **{f"aten.{name}.Tensor": _bitwise("or") for name in ("bitwise_or", "__or__")},
    "aten.logical_not.default": lambda m, a: m.op("not", _truth(m, rows(a, "self"))),
    "aten.sign.default": _sign,
    "aten.square.default": lambda m, a: m.elementwise("mul", rows(a, "self"), rows(a, "self")),
    "aten.pow.Tensor_Scalar": _power,
    "aten.reciprocal.default": _reciprocal,
    "aten.rsqrt.default": lambda m, a: _reciprocal(m, {"self": m.unary("sqrt", a["self"])}),
    "aten.sum.dim_IntList": _reduce("sum"),
    "aten.mean.dim": _reduce("sum", mean=True),
    "aten.amax.default": _reduce("max"),
    "aten.amin.default": _reduce("min"),
    "aten.argmax.default": _reduce("argmax"),
    **{f"aten.where.{overload}": _where for overload in _WHERE_OVERLOADS},
    **ACTIVATIONS,
    **LAYERS,
    **LAYOUT,
}


def convert_graph(graph: ExportedModule, frame: Frame) -> Value:
    """Convert a graph over the columns of `frame` to (n, k)."""
    maker = Maker(frame.builder)
    values: dict[str, Any] = dict(graph.constants)
    for tensor, value in read_inputs(graph, frame):
        values[tensor.name] = Rows(value, tensor.shape[1:])
    uses = Counter(
        name for call in graph.calls for name in _list_references(list(call.arguments.values()))
    )
    uses[graph.output] += 1
    makers = {result: call for call in graph.calls for result in call.results}
    for call in graph.calls:
        name = _find_functional_name(call, uses, makers)
        rule = RULES.get(name)
        if rule is None:
            raise Uncovered(f"operator {call.target}")
        arguments = {k: _resolve(v, values) for k, v in call.arguments.items()}
        try:
            outcome = rule(maker, arguments)
        except (ProgramError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Uncovered(f"operator {call.target} ({error})") from error
        results = outcome if isinstance(outcome, tuple) else (outcome,)
        values.update(zip(call.results, results, strict=False))
    result = values.get(graph.output)
    if not isinstance(result, Rows) or result.value.type.dtype != graph.dtype:
        raise Uncovered("a result that does not depend on the rows, or of another dtype")
    if result.shape != graph.shape:
        raise Uncovered(f"a result of shape {result.shape}, not {graph.shape}")
    return result.value


def read_inputs(graph: ExportedModule, frame: Frame) -> Iterator[tuple[Input, Value]]:
    """Return each input of the module with its columns of `frame`, in order and in its dtype."""
    start = 0
    for tensor in graph.inputs:
        columns = frame.select(range(start, start + tensor.width))
        start += tensor.width
        is_integer = tensor.dtype in ("int8", "int16", "int32", "int64", "bool")
        value = columns.matrix("float64" if is_integer else cast(DType, tensor.dtype))
        if is_integer:
            step = f"a module that reads {tensor.dtype}"
            value = frame.builder.op(
                "require_finite", value, features=columns.names, allow_nan=False, step=step
            )
            value = frame.builder.op("cast", value, dtype=tensor.dtype)
        yield tensor, value


def _find_functional_name(call: Call, uses: Counter[str], makers: dict[str, Call]) -> str:
    """Return the name of `call` without the underscore of an in-place operator.

    This is equivalent if no other operator reads the overwritten memory under any name.
    """
    if not _is_in_place(call):
        return call.target
    target = _find_first_tensor(call)
    while target is not None and uses[target] == 1 and target in makers:
        if makers[target].target not in LAYOUT:
            package, operator, overload = call.target.split(".")
            return f"{package}.{operator[:-1]}.{overload}"
        target = _find_first_tensor(makers[target])
    raise Uncovered(f"operator {call.target} on a tensor that is read elsewhere")


def overwrites_dropout(graph: ExportedModule) -> bool:
    """Return whether an in-place operator may overwrite memory that a dropout shares.

    torch's own decomposition of a disabled dropout makes a copy (2.13), and so changes the result
    of such a module.
    """
    owner: dict[str, str] = {}  # the representative of all names that share memory
    shared: set[str] = set()  # representatives whose memory a dropout shares
    for call in graph.calls:
        target = _find_first_tensor(call)
        if target is None or not (call.target in LAYOUT or _is_in_place(call)):
            continue
        representative = owner.get(target, target)
        if _is_in_place(call) and representative in shared:
            return True
        if call.target in DROPOUTS:
            shared.add(representative)
        owner.update(dict.fromkeys(call.results, representative))
    return False


def _is_in_place(call: Call) -> bool:
    operator = call.target.split(".")[1] if call.target.count(".") == 2 else ""
    is_special = operator.startswith("__")
    return operator.endswith("_") and not is_special and call.target not in RULES


def _find_first_tensor(call: Call) -> str | None:
    target = call.arguments.get(call.positional[0]) if call.positional else None
    return target.name if isinstance(target, Ref) else None


def _list_references(arguments: list[Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list):
            yield from _list_references(value)


def _resolve(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values.get(value.name)  # None if no rule computes it
    if isinstance(value, list):
        return [_resolve(v, values) for v in value]
    return value
