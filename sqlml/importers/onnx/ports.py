"""Graph inputs as features: how many columns each stands for, and their numbers.

A table whose width the file leaves open is as wide as the weights of the operators that read it, or
takes the columns that the user names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.onnx.document import GraphNode, OnnxModel, Port
from sqlml.ir.builder import Value
from sqlml.types import INTEGERS, Array


def has_open_width(port: Port) -> bool:
    """Whether an input is a table whose number of columns is open."""
    return port.dtype is not None and port.shape is not None and port.shape[1:] == (None,)


def widened(model: OnnxModel, columns: int | None = None) -> OnnxModel:
    """A model whose tables of an open width are as wide as their operators need.

    Args:
        columns: the number of columns of all inputs, where it is known. The one table of which only
            the least width is known, or nothing, takes those that the others leave.

    Raises:
        UnsupportedModelError: there are fewer columns than the operators read.
    """
    found = {p.name: width_in_graph(model, p.name) for p in model.inputs if has_open_width(p)}
    if not found:
        return model
    loose = [name for name, known in found.items() if not known.is_exact]
    if columns is not None and len(loose) == 1:
        (name,) = loose
        others = sum(
            found[p.name].columns if p.name in found else width(p)
            for p in model.inputs
            if p.name != name
        )
        if columns - others < max(1, found[name].columns):
            raise UnsupportedModelError(
                f"the ONNX model reads at least {others + max(1, found[name].columns)} columns, "
                f"but inputs names {columns}"
            )
        found[name] = Width(columns - others, True)
    return replace(
        model,
        inputs=tuple(
            replace(p, shape=(p.shape[0], found[p.name].columns))
            if p.shape is not None and p.name in found and found[p.name].columns
            else p
            for p in model.inputs
        ),
    )


@dataclass(frozen=True, slots=True)
class Width:
    """The number of `columns` of a table, or the least that its operators read; 0 if unknown."""

    columns: int
    is_exact: bool


def width_in_graph(model: OnnxModel, name: str) -> Width:
    """The width that the weights of the operators tell that read a table called `name`."""
    exact, least, names = set[int](), 0, {name}
    for node in model.nodes:
        if names.isdisjoint(node.inputs):
            continue
        if node.op in _KEEPING:
            names.update(node.outputs[:1])
        place = next(i for i, n in enumerate(node.inputs) if n in names)
        known = _width_of(node, place, model.constants)
        if known.is_exact:
            exact.add(known.columns)
        else:
            least = max(least, known.columns)
    if len(exact) == 1 and min(exact) >= max(1, least):
        return Width(min(exact), True)
    return Width(0 if exact else least, False)


_KEEPING = frozenset(
    "Abs Add BatchNormalization Binarizer Cast Clip Div Dropout Exp Identity Imputer IsNaN "
    "LabelEncoder Log Mul Neg Normalizer Relu Scaler Sigmoid Sqrt Sub Tanh Where".split()
)
"""Operators whose result is as wide as the table that they read."""

_NUMBERS_A_COLUMN = ("offset", "scale", "imputed_value_floats", "imputed_value_int64s")
"""Attributes with a number for each column, or one for all."""

_ROWS_OF_COEFFICIENTS = ("intercepts", "classlabels_ints", "classlabels_strings")
"""Attributes with an entry for each row of coefficients."""


def _width_of(node: GraphNode, place: int, constants: Mapping[str, Array]) -> Width:
    """The width of input `place` of a node, as its weights tell it."""
    attrs = node.attrs
    columns = attrs.get("nodes_featureids")
    if columns is not None:
        return Width(int(np.max(columns, initial=-1)) + 1, False)
    if node.op == "LinearRegressor":
        return _divided(attrs.get("coefficients"), int(attrs.get("targets", 1)))
    if node.op == "LinearClassifier":
        rows = next((len(attrs[name]) for name in _ROWS_OF_COEFFICIENTS if name in attrs), 0)
        return _divided(attrs.get("coefficients"), rows)
    if node.op in ("SVMClassifier", "SVMRegressor"):
        counts = attrs.get("vectors_per_class", attrs.get("n_supports", 0))
        return _divided(attrs.get("support_vectors"), int(np.sum(counts)))
    if node.op == "FeatureVectorizer" and place < len(attrs.get("inputdimensions", ())):
        return Width(int(attrs["inputdimensions"][place]), True)
    each = [len(attrs[name]) for name in _NUMBERS_A_COLUMN if name in attrs]
    if max(each, default=0) > 1:
        return Width(max(each), True)
    weights = [constants[name] for name in node.inputs if name in constants]
    if not weights or not weights[0].size:
        return Width(0, False)
    first = weights[0]
    if node.op in ("MatMul", "Gemm") and place == 0:
        return Width(first.shape[1 if attrs.get("transB") else 0], first.ndim <= 2)
    if node.op in ("ArrayFeatureExtractor", "Gather") and first.dtype.kind == "i":
        return Width(int(first.max()) + 1, False)
    if node.op == "Reshape" and first.size == 2 and first.dtype.kind == "i":
        return Width(int(first.ravel()[1]), first.ravel()[1] > 0)
    if node.op in _KEEPING and first.ndim and first.shape[-1] > 1:
        return Width(first.shape[-1], True)
    return Width(0, False)


def _divided(numbers: Array | None, rows: int) -> Width:
    """The columns of a matrix that is given as a list of numbers, row by row."""
    if numbers is None or rows < 1 or not len(numbers) or len(numbers) % rows:
        return Width(0, False)
    return Width(len(numbers) // rows, True)


def width(port: Port) -> int:
    """The number of features that an input stands for.

    Raises:
        UnsupportedModelError: its width is open, or its number of rows is not.
    """
    if port.dtype is None or port.shape is None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model is not a tensor of a known shape"
        )
    if not port.shape or any(d is None for d in port.shape[1:]):
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has an open shape {port.shape}; export it with "
            "a fixed number of columns"
        )
    if port.shape[0] is not None:
        raise UnsupportedModelError(
            f"input {port.name!r} of the ONNX model has a fixed shape {port.shape}, whose first "
            "axis is not plainly the rows; export it with an open first axis"
        )
    return math.prod(port.inner)


def parts(ports: Iterable[Port], frame: Frame) -> Iterator[tuple[Port, Frame]]:
    """Each input with its columns of `frame`, in order."""
    start = 0
    for port in ports:
        count = width(port)
        yield port, frame.take(range(start, start + count))
        start += count


def numbers(part: Frame, port: Port) -> Value:
    """The columns of an input of numbers, in its dtype; integers and booleans have no NULL."""
    assert port.dtype is not None
    value = part.matrix("float64")
    if port.dtype in INTEGERS or port.dtype == "bool":
        value = part.builder.op(
            "require_finite",
            value,
            features=part.names,
            allow_nan=False,
            step=f"the ONNX model ({port.dtype})",
        )
        value = _whole(part, port, value)
    return part.builder.cast(value, port.dtype)


def _whole(part: Frame, port: Port, value: Value) -> Value:
    """`value`, checked to be exact in the port's dtype, the only one that ONNX takes."""
    b = part.builder
    least, most = (0, 1) if port.dtype == "bool" else _LIMITS[str(port.dtype)]
    inside = b.op("minimum", value, b.constant(np.array([float(most)])))
    exact = b.op("trunc", b.op("maximum", inside, b.constant(np.array([float(least)]))))
    # How far the farthest column is from a number of that dtype: 0 where all of them are one.
    off = b.op("max", b.op("abs", b.op("sub", value, exact)), axis=1)
    return b.op(
        "require",
        value,
        b.op("eq", off, b.constant(np.zeros(1))),
        message=f"the ONNX model reads {', '.join(part.names[:12])} as {port.dtype}, and a row "
        "has a number that is not one; round it in SQL, for instance with CAST(.. AS BIGINT)",
    )


# The largest float64 within int64 is below its end.
_LIMITS = {
    d: (np.iinfo(d).min, np.iinfo(d).max if d != "int64" else 2**63 - 1024) for d in INTEGERS
}
