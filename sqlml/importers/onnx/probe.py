"""Run an ONNX model in a child process for a trial, and map the inputs of a graph to features.

The trial runs in a child process because a malicious graph may crash or hang onnxruntime, or fill
the memory. The trial finds the types of the outputs, and whether the result for a row depends on
other rows. The child process imports numpy, onnxruntime, and onnx if installed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.onnx.document import GraphNode, OnnxModel, Port
from sqlml.ir.builder import Value
from sqlml.types import INTEGERS, Array


def has_open_width(port: Port) -> bool:
    """Return whether an input has shape (n, k) with an open number of columns k."""
    return port.dtype is not None and port.shape is not None and port.shape[1:] == (None,)


def widen_inputs(model: OnnxModel, count: int | None = None) -> OnnxModel:
    """Return the model with open input widths replaced by the widths that nodes need.

    If the user names the columns, `count` is the total number of columns. If the width of a single
    input remains unknown, this input gets the remaining columns.
    """
    widths = {p.name: find_width_in_graph(model, p.name) for p in model.inputs if has_open_width(p)}
    if not widths:
        return model
    inexact_names = [name for name, width in widths.items() if not width.is_exact]
    if count is not None and len(inexact_names) == 1:
        (name,) = inexact_names
        other_ports = [p for p in model.inputs if p.name != name]
        other_columns = sum(count_features(p) for p in other_ports if p.name not in widths)
        other_columns += sum(width.columns for n, width in widths.items() if n != name)
        min_columns = other_columns + max(1, widths[name].columns)
        if count < min_columns:
            raise UnsupportedModelError(
                f"the ONNX model reads at least {min_columns} columns, but inputs names {count}"
            )
        widths[name] = TableWidth(count - other_columns, True)
    ports = list(model.inputs)
    for i, port in enumerate(ports):
        if port.shape and port.name in widths and widths[port.name].columns:
            ports[i] = replace(port, shape=(port.shape[0], widths[port.name].columns))
    return replace(model, inputs=tuple(ports))


@dataclass(frozen=True, slots=True)
class TableWidth:
    """The number of columns of a table: exactly `columns`, or at least `columns` if not `is_exact`.

    TableWidth(0, False) means that the width is unknown.
    """

    columns: int
    is_exact: bool


def find_width_in_graph(model: OnnxModel, name: str) -> TableWidth:
    """Find the width of the input `name` from the weights of the operators that read the input."""
    exact_widths, min_width, aliases = set[int](), 0, {name}
    for node in model.nodes:
        if aliases.isdisjoint(node.inputs):
            continue
        if node.op in _KEEP_WIDTH:
            aliases.update(node.outputs[:1])
        input_index = next(i for i, n in enumerate(node.inputs) if n in aliases)
        width = _find_width(node, input_index, model.constants)
        if width.is_exact:
            exact_widths.add(width.columns)
        else:
            min_width = max(min_width, width.columns)
    if len(exact_widths) == 1 and min(exact_widths) >= max(1, min_width):
        return TableWidth(min(exact_widths), True)
    return TableWidth(0 if exact_widths else min_width, False)


_KEEP_WIDTH = frozenset(
    "Abs Add BatchNormalization Binarizer Cast Clip Div Dropout Exp Identity Imputer IsNaN "
    "LabelEncoder Log Mul Neg Normalizer Relu Scaler Sigmoid Sqrt Sub Tanh Where".split()
)
"""Operators with as many output columns as columns of the first input."""

_PER_COLUMN_ATTRIBUTES = ("offset", "scale", "imputed_value_floats", "imputed_value_int64s")
"""Attributes with one number per column, or a single number for all columns."""

_CLASS_LISTS = ("intercepts", "classlabels_ints", "classlabels_strings")
"""Attributes of LinearClassifier with one entry per row of `coefficients`."""


def _find_width(node: GraphNode, input_index: int, constants: Mapping[str, Array]) -> TableWidth:
    attrs = node.attrs
    feature_ids = attrs.get("nodes_featureids")
    if feature_ids is not None:
        return TableWidth(int(np.max(feature_ids, initial=-1)) + 1, False)
    if node.op == "LinearRegressor":
        return _find_matrix_width(attrs.get("coefficients"), int(attrs.get("targets", 1)))
    if node.op == "LinearClassifier":
        num_scores = next((len(attrs[name]) for name in _CLASS_LISTS if name in attrs), 0)
        return _find_matrix_width(attrs.get("coefficients"), num_scores)
    if node.op in ("SVMClassifier", "SVMRegressor"):
        vector_counts = attrs.get("vectors_per_class", attrs.get("n_supports", 0))
        return _find_matrix_width(attrs.get("support_vectors"), int(np.sum(vector_counts)))
    if node.op == "FeatureVectorizer" and input_index < len(attrs.get("inputdimensions", ())):
        return TableWidth(int(attrs["inputdimensions"][input_index]), True)
    lengths = [len(attrs[name]) for name in _PER_COLUMN_ATTRIBUTES if name in attrs]
    if max(lengths, default=0) > 1:
        return TableWidth(max(lengths), True)
    constant_inputs = [constants[name] for name in node.inputs if name in constants]
    if not constant_inputs or not constant_inputs[0].size:
        return TableWidth(0, False)
    weight = constant_inputs[0]
    if node.op in ("MatMul", "Gemm") and input_index == 0:
        return TableWidth(weight.shape[1 if attrs.get("transB") else 0], weight.ndim <= 2)
    if node.op in ("ArrayFeatureExtractor", "Gather") and weight.dtype.kind == "i":
        return TableWidth(int(weight.max()) + 1, False)
    if node.op == "Reshape" and weight.size == 2 and weight.dtype.kind == "i":
        return TableWidth(int(weight.ravel()[1]), weight.ravel()[1] > 0)
    if node.op in _KEEP_WIDTH and weight.ndim and weight.shape[-1] > 1:
        return TableWidth(weight.shape[-1], True)
    return TableWidth(0, False)


def _find_matrix_width(entries: Array | None, num_rows: int) -> TableWidth:
    """Return the width of a matrix with `num_rows` rows, given as a flat list of `entries`."""
    if entries is None or num_rows < 1 or not len(entries) or len(entries) % num_rows:
        return TableWidth(0, False)
    return TableWidth(len(entries) // num_rows, True)


def count_features(port: Port) -> int:
    """Return the number of features of an input; reject inputs with an open or unknown shape."""
    shape = port.shape
    if port.dtype is None or shape is None:
        problem = "is not a tensor of a known shape"
    elif not shape or None in shape[1:]:
        problem = f"has an open shape {shape}; export it with a fixed number of columns"
    elif shape[0] is not None:
        problem = f"has a fixed shape {shape}, whose first axis may not be the rows"
        problem += "; export it with an open first axis"
    else:
        return math.prod(port.inner)
    raise UnsupportedModelError(f"input {port.name!r} of the ONNX model {problem}")


def split_frame(ports: Iterable[Port], frame: Frame) -> Iterator[tuple[Port, Frame]]:
    """Yield each input of `ports` and the next columns of `frame`, which the input reads."""
    start = 0
    for port in ports:
        count = count_features(port)
        yield port, frame.select(range(start, start + count))
        start += count


def read_numbers(columns: Frame, port: Port) -> Value:
    """Return a numeric input in the dtype of `port`; NULL and fractions in integers are errors."""
    assert port.dtype is not None
    builder, value = columns.builder, columns.matrix("float64")
    if port.dtype in INTEGERS or port.dtype == "bool":
        step = f"the ONNX model ({port.dtype})"
        attrs: dict[str, Any] = {"features": columns.names, "allow_nan": False, "step": step}
        if port.dtype == "int64":
            width = value.type.width
            attrs |= {"low": np.full(width, -(2.0**63)), "high": np.full(width, _MAX_INT64)}
        value = _require_exact(columns, port, builder.op("require_finite", value, **attrs))
    return builder.cast(value, port.dtype)


_MAX_INT64 = 2.0**63 - 1024
"""The largest float64 within int64."""

_RANGES = {dtype: (np.iinfo(dtype).min, np.iinfo(dtype).max) for dtype in INTEGERS}
_RANGES["bool"] = (0, 1)


def _require_exact(columns: Frame, port: Port, value: Value) -> Value:
    """Require that a cast to the dtype of `port` changes no number of `value`."""
    builder, rounded = columns.builder, value
    # For int64, `require_finite` has already rejected numbers out of range.
    if port.dtype != "int64":
        for op, bound in zip(("maximum", "minimum"), _RANGES[str(port.dtype)], strict=True):
            rounded = builder.op(op, rounded, builder.constant(np.array([float(bound)])))
    rounded = builder.op("trunc", rounded)
    if value.type.width == 1:
        is_exact = builder.op("eq", value, rounded)
    else:
        error = builder.op("abs", builder.op("sub", value, rounded))
        max_error = builder.op("max", error, axis=1)
        is_exact = builder.op("eq", max_error, builder.constant(np.zeros(1)))
    message = (
        f"the ONNX model reads {', '.join(columns.names[:12])} as {port.dtype}, and a row has a "
        "number that does not fit; round it in SQL, for example with CAST(... AS BIGINT)"
    )
    return builder.op("require", value, is_exact, message=message)


NUM_TRIAL_ROWS = 5
TRIAL_STRINGS = ("", "a", "one", "Two words", "3")


def probe(model: bytes, inputs: dict[str, tuple[str, tuple[int, ...]]], outputs: list[str]) -> Any:
    """Run a model on a few random rows in a child process, and check that rows are independent.

    `inputs` maps an input's name to a numpy dtype (or "string") and to the shape after the row
    axis. Return {"outputs": {name: [dtype, width]}}, {"error": reason}, or {"missing": True} if
    onnxruntime is not installed.
    """
    request = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    try:
        with Child(f"{__name__}:run_trial", request, model) as child:
            return json.loads(child.first)
    except ChildEnded as end:
        return {"error": f"a process that tries it {end}"}
    except ChildFailed as failure:
        return {"error": failure.message}


def run_trial(request: bytes, model: bytes) -> Generator[bytes, bytes, None]:
    """Yield the result of `_try_model` as JSON; this function runs in the child process."""
    yield json.dumps(_try_model(json.loads(request), model)).encode()


def _accept_unknown_categories(model: bytes) -> bytes:
    """Return the model with OneHotEncoder nodes that accept unknown categories (zeros = 1)."""
    try:
        import onnx
    except ModuleNotFoundError:
        return model
    proto = onnx.ModelProto.FromString(model)
    encoders = (node for node in proto.graph.node if node.op_type == "OneHotEncoder")
    for attribute in chain.from_iterable(encoder.attribute for encoder in encoders):
        if attribute.name == "zeros":
            attribute.i = 1
    return bytes(proto.SerializeToString(deterministic=True))


def _try_model(request: Any, model: bytes) -> dict[str, Any]:
    """Run the model on a batch and on each row alone; return the result of `probe`."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return {"missing": True}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    output_names = request["outputs"]
    errors = []
    # A graph may reject random values, so also try zeros, and accept unknown categories.
    for scale, modify_model in ((1.0, None), (0.0, None), (1.0, _accept_unknown_categories)):
        content = model if modify_model is None else modify_model(model)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feed = {
            name: (
                rng.choice(np.array(TRIAL_STRINGS, object), (NUM_TRIAL_ROWS, *shape))
                if dtype == "string"
                else (rng.normal(0, 2, (NUM_TRIAL_ROWS, *shape)) * scale).astype(dtype)
            )
            for name, (dtype, shape) in request["inputs"].items()
        }
        try:
            batch_results = session.run(output_names, feed)
            break
        except Exception as error:  # onnxruntime's exceptions have no common base class
            errors.append(str(error))
    else:
        return {"error": errors[0]}
    outputs = {}
    for name, batch in zip(output_names, batch_results, strict=True):
        if not isinstance(batch, np.ndarray) or batch.shape[:1] != (NUM_TRIAL_ROWS,):
            return {"error": f"output {name!r} does not have one entry per row"}
        outputs[name] = [batch.dtype.name, int(batch.size // NUM_TRIAL_ROWS)]
    for i in range(NUM_TRIAL_ROWS):
        row_results = session.run(output_names, {n: x[i : i + 1] for n, x in feed.items()})
        for name, row, batch in zip(output_names, row_results, batch_results, strict=True):
            expected, actual = batch[i : i + 1], np.asarray(row)
            if expected.dtype.kind == "f" and actual.shape == expected.shape:
                is_same = np.allclose(actual, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
            else:
                is_same = np.array_equal(actual, expected)
            if not is_same:
                return {"error": f"output {name!r} of a row depends on the other rows"}
    return {"outputs": outputs}
