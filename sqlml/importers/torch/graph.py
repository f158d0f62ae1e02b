"""`convert`: the graph of an exported module as operators of the IR, if these can express all of
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from sqlml.errors import ProgramError
from sqlml.importers.frame import Frame
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.importers.torch.layout import DROPOUTS, LAYOUT
from sqlml.importers.torch.rules import RULES
from sqlml.importers.torch.tensors import Maker
from sqlml.ir.builder import Value
from sqlml.ir.torch_archive import Call, Exported, Input, Ref
from sqlml.types import DType


def convert(graph: Exported, frame: Frame) -> Value:
    """What `graph` makes of the columns of `frame`: (n, k).

    Raises:
        Uncovered: an operator that the IR does not have, or one across rows.
    """
    maker = Maker(frame.builder)
    values: dict[str, Any] = dict(graph.constants)
    for tensor, value in inputs(graph, frame):
        values[tensor.name] = Rows(value, tensor.shape[1:])
    uses = Counter(name for call in graph.calls for name in _reads(list(call.arguments.values())))
    uses[graph.output] += 1
    makers = {result: call for call in graph.calls for result in call.results}
    for call in graph.calls:
        name = _functional(call, uses, makers)
        rule = RULES.get(name)
        if rule is None:
            raise Uncovered(f"operator {call.target}")
        arguments = {k: _filled(v, values) for k, v in call.arguments.items()}
        try:
            made = rule(maker, arguments)
        except (ProgramError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Uncovered(f"operator {call.target} ({error})") from error
        results = made if isinstance(made, tuple) else (made,)
        values.update(zip(call.results, results, strict=False))
    result = values.get(graph.output)
    if not isinstance(result, Rows) or result.value.type.dtype != graph.dtype:
        raise Uncovered("a result that does not depend on the rows, or of another dtype")
    if result.shape != graph.shape:
        raise Uncovered(f"a result of shape {result.shape}, not {graph.shape}")
    return result.value


def inputs(graph: Exported, frame: Frame) -> Iterator[tuple[Input, Value]]:
    """Each input of the module with its columns of `frame`, in order, in its dtype."""
    start = 0
    for tensor in graph.inputs:
        columns = frame.take(range(start, start + tensor.width))
        start += tensor.width
        whole = tensor.dtype in ("int8", "int16", "int32", "int64", "bool")
        value = columns.matrix("float64" if whole else cast(DType, tensor.dtype))
        if whole:
            value = frame.builder.op(
                "require_finite",
                value,
                features=columns.names,
                allow_nan=False,
                step=f"a module that reads {tensor.dtype}",
            )
            value = frame.builder.op("cast", value, dtype=tensor.dtype)
        yield tensor, value


def _functional(call: Call, uses: Counter[str], makers: dict[str, Call]) -> str:
    """The name of `call` without the underscore of an operator that works in place.

    In place is the same where nobody else reads what is overwritten, by whatever name.
    """
    if not _in_place(call):
        return call.target
    target = _first(call)
    while target is not None and uses[target] == 1 and target in makers:
        if makers[target].target not in LAYOUT:
            package, operator, overload = call.target.split(".")
            return f"{package}.{operator[:-1]}.{overload}"
        target = _first(makers[target])
    raise Uncovered(f"operator {call.target} on a tensor that is read elsewhere")


def overwrites_dropout(graph: Exported) -> bool:
    """Whether an in-place operator may overwrite what a dropout shares with its input.

    torch's own decomposition of a dropout that is switched off makes a copy (2.13), and so
    changes what such a module computes.
    """
    owner: dict[str, str] = {}  # name -> one name for all that share memory with it
    shared: set[str] = set()  # those with a dropout among them
    for call in graph.calls:
        target = _first(call)
        if target is None or not (call.target in LAYOUT or _in_place(call)):
            continue
        own = owner.get(target, target)
        if _in_place(call) and own in shared:
            return True
        if call.target in DROPOUTS:
            shared.add(own)
        owner.update(dict.fromkeys(call.results, own))
    return False


def _in_place(call: Call) -> bool:
    operator = call.target.split(".")[1] if call.target.count(".") == 2 else ""
    dunder = operator.startswith("__")
    return operator.endswith("_") and not dunder and call.target not in RULES


def _first(call: Call) -> str | None:
    """The tensor that an operator reads first."""
    target = call.arguments.get(call.positional[0]) if call.positional else None
    return target.name if isinstance(target, Ref) else None


def _reads(arguments: list[Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list):
            yield from _reads(value)


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values.get(value.name)  # None of a result that no rule makes
    if isinstance(value, list):
        return [_filled(v, values) for v in value]
    return value
