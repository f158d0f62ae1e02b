"""`convert`: the graph of an exported module as operators of the IR, where they say all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sqlml.errors import ProgramError
from sqlml.importers.frame import Frame
from sqlml.importers.torch.layout import LAYOUT
from sqlml.importers.torch.rules import RULES
from sqlml.importers.torch.tensors import Maker, Rows, Uncovered
from sqlml.ir.builder import Value
from sqlml.ir.exported import Call, Exported, Input, Ref


def convert(graph: Exported, frame: Frame) -> Value:
    """What `graph` makes of the columns of `frame`: (n, k).

    Raises:
        Uncovered: an operator that the IR does not have, or one across rows.
    """
    maker = Maker(frame.builder)
    values: dict[str, Any] = dict(graph.constants)
    for tensor, value in inputs(graph, frame):
        values[tensor.name] = Rows(value, flat=len(tensor.shape) == 1)
    uses = Counter(name for call in graph.calls for name in _reads(list(call.arguments.values())))
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
    return maker.reshape(result, (graph.width,)).value


def inputs(graph: Exported, frame: Frame) -> Iterator[tuple[Input, Value]]:
    """Each input of the module with its columns of `frame`, in order, in its dtype."""
    start = 0
    for tensor in graph.inputs:
        columns = frame.take(range(start, start + tensor.width))
        start += tensor.width
        whole = tensor.dtype in ("int8", "int16", "int32", "int64", "bool")
        value = columns.matrix("float64" if whole else tensor.dtype)  # type: ignore[arg-type]
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

    In place is the same where nobody else reads what is overwritten.
    """
    package, _, rest = call.target.partition(".")
    operator, _, overload = rest.partition(".")
    if not operator.endswith("_") or operator.startswith("__") or call.target in RULES:
        return call.target
    target = call.arguments.get(call.positional[0]) if call.positional else None
    maker = makers.get(target.name) if isinstance(target, Ref) else None
    if maker is None or maker.target in LAYOUT or uses[target.name] != 1:  # type: ignore[union-attr]
        raise Uncovered(f"operator {call.target} on a tensor that is read elsewhere")
    return f"{package}.{operator[:-1]}.{overload}"


def _reads(arguments: list[Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list):
            yield from _reads(value)


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, list):
        return [_filled(v, values) for v in value]
    return value
