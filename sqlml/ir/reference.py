"""The reference interpreter: slow numpy code that *is* the meaning of every operator.

Backends, lowerings and passes are tested against it, and it against the source libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import InputTypeError, MissingValueError, UnknownCategoryError
from sqlml.ir.program import Attrs, Node, Program
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, numpy_dtype

Function = Callable[[Sequence[Array], Attrs], Array]


def run(
    program: Program,
    inputs: Mapping[str, Array],
    outputs: Sequence[str] | None = None,
    functions: Mapping[str, Function] | None = None,
) -> dict[str, Array]:
    """Evaluate `program` on a batch.

    Args:
        inputs: name -> array (n,) or (n, width), of the input's dtype or one that casts to it;
            strings as objects with None for NULL. All have the same n, which may be 0.
        outputs: names of the outputs wanted (default: all).
        functions: operator functions that stand in for the reference's own.

    Returns:
        name -> array (n, k) of the output's dtype.

    Raises:
        InputTypeError: an input is absent, or its shape or dtype does not fit.
        MissingValueError, UnknownCategoryError: as the model's own checks say.
    """
    table = FUNCTIONS if functions is None else {**FUNCTIONS, **functions}
    wanted = tuple(program.outputs) if outputs is None else tuple(outputs)
    values: dict[int, Array] = {}
    last_use = _last_uses(program, wanted)
    with np.errstate(all="ignore"):
        for i, node in enumerate(program.nodes):
            if i not in last_use:
                continue
            if node.op == "input":
                values[i] = conform(node, inputs)
            else:
                values[i] = table[node.op]([values[j] for j in node.inputs], node.attrs)
            for j in node.inputs:
                if last_use[j] == i:
                    values.pop(j, None)
    return {name: values[program.outputs[name]] for name in wanted}


def _last_uses(program: Program, outputs: Sequence[str]) -> dict[int, int]:
    """For each node that `outputs` need: the last node that reads it."""
    last = {program.outputs[name]: len(program.nodes) for name in outputs}
    for i in range(len(program.nodes) - 1, -1, -1):
        if i in last:
            for j in program.nodes[i].inputs:
                last.setdefault(j, i)
    return last


def conform(node: Node, inputs: Mapping[str, Array]) -> Array:
    """The batch's array for input `node`, as (n, width) of its dtype."""
    name = str(node.attrs["name"])
    if name not in inputs:
        raise InputTypeError(f"the batch has no column {name!r}")
    array = np.asarray(inputs[name])
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2 or array.shape[1] != node.type.width:
        raise InputTypeError(f"column {name!r} has shape {array.shape}, not (n, {node.type.width})")
    dtype = numpy_dtype(node.type.dtype)
    if node.type.dtype == "string":
        if array.dtype.kind not in "OUT":
            raise InputTypeError(f"column {name!r} is {array.dtype}, not strings; cast it")
        return array.astype(object)
    if array.dtype.kind not in "biuf":
        raise InputTypeError(f"column {name!r} is {array.dtype}, not numbers; cast it")
    return array.astype(dtype, copy=False)


def _exp(args: Sequence[Array], attrs: Attrs) -> Array:
    """float32 by way of float64: rounded once, as libm's expf is and numpy's own is not."""
    (x,) = args
    return np.exp(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else np.exp(x)


def _sigmoid(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    if x.dtype == np.float32:  # XGBoost's own formula (common/math.h), NaN kept
        limited = np.where(np.isnan(x), x, np.minimum(-x, np.float32(88.7)))
        return np.float32(1) / (_exp([limited], attrs) + np.float32(1) + np.float32(1e-16))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softmax(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    if not x.shape[1]:
        return x
    e = _exp([x - x.max(axis=1, keepdims=True)], attrs)
    total = e.sum(axis=1, keepdims=True, dtype=str(attrs["sum_dtype"]))
    shares: Array = e / total.astype(x.dtype)
    return shares


def _isnan(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    if x.dtype == object:
        return np.array([is_missing(v) for v in x.ravel()], bool).reshape(x.shape)
    return np.isnan(x)


def is_missing(value: object) -> bool:
    """Whether a string column's entry is missing: None, NaN or pandas' NA.

    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    return value is None or value != value or not isinstance(value, str)


def _fill(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    gone = _isnan(args, attrs)
    if "missing" in attrs:
        return np.where(x == attrs["missing"], attrs["value"], x)
    return np.where(gone, np.array(attrs["value"], object), x)


def _encode(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    categories: Array = attrs["categories"]
    codes = np.full(x.shape, -1, np.int64)
    gone = _isnan(args, attrs) if x.dtype.kind in "fO" else np.zeros(x.shape, bool)
    for code, category in enumerate(categories):
        codes[(x == category) & ~gone] = code
    codes[gone] = attrs["missing"]
    return codes


def _require_known(args: Sequence[Array], attrs: Attrs) -> Array:
    (codes,) = args
    if (codes < 0).any():
        raise UnknownCategoryError(
            f"column {attrs['feature']!r} has a category (or NULL) that {attrs['step']} has never "
            "seen; filter such rows, or fit the encoder with handle_unknown='ignore'"
        )
    return codes


def _require_finite(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    bad = np.isinf(x) if attrs["allow_nan"] else ~np.isfinite(x)
    if bad.any():
        row, col = np.argwhere(bad)[0]
        features: tuple[str, ...] = attrs["features"]
        what = "NULL or NaN" if np.isnan(x[row, col]) else "infinity (or a value too large)"
        fix = (
            "put an imputer before it, fill the column in SQL (coalesce), or filter such rows"
            if np.isnan(x[row, col])
            else "filter such rows or clip the column"
        )
        raise MissingValueError(
            f"column {features[col]!r} has {what}, which {attrs['step']} does not take; {fix}"
        )
    return x


def _one_hot(args: Sequence[Array], attrs: Attrs) -> Array:
    (codes,) = args
    width: int = attrs["width"]
    hot: Array = (codes == np.arange(width)).astype(str(attrs["dtype"]))
    return hot


def _impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    missing: float = attrs["missing"]
    gone = np.isnan(x) if missing != missing else x == missing
    return np.where(gone, attrs["fill"], x).astype(x.dtype)


def _linear(args: Sequence[Array], attrs: Attrs) -> Array:
    """Summed column by column, so that a row scores the same in every batch (BLAS does not)."""
    (x,) = args
    scores: Array = np.zeros((x.shape[0], attrs["weights"].shape[1]), x.dtype)
    for column, weights in zip(x.T, attrs["weights"], strict=True):
        scores += column[:, None] * weights
    scores += attrs["bias"]
    return scores


def exit_leaves(e: Ensemble, x: Array) -> Array:
    """The exit leaf of each row in each tree, (n, trees)."""
    n = x.shape[0]
    at = np.broadcast_to(e.roots.astype(np.int64), (n, e.trees)).copy()
    rows = np.arange(n)[:, None]
    while (at >= 0).any():
        node = np.maximum(at, 0)
        value = x[rows, e.feature[node]] if e.nodes else np.zeros(at.shape, x.dtype)
        threshold = e.threshold[node]
        left = value < threshold if e.compare == "lt" else value <= threshold
        if e.categorical is not None:
            left = np.where(e.categorical[node], is_member(e, node, value), left)
        left = np.where(np.isnan(value), e.default_left[node], left)
        at = np.where(at < 0, at, np.where(left, e.left[node], e.right[node]))
    return ~at


def is_member(e: Ensemble, node: Array, value: Array) -> Array:
    """Whether trunc(value) is a member of the categorical node's set; NaN is not."""
    if e.set_offsets is None or e.set_words is None or not e.set_words.size:
        return np.zeros(value.shape, bool)
    begin, end = e.set_offsets[node], e.set_offsets[node + 1]
    whole = np.trunc(np.where(np.isnan(value), -1, value))
    inside = (whole >= 0) & (value >= 0) & (whole < (end - begin).astype(np.int64) * 32)
    code = np.where(inside, whole, 0).astype(np.int64)
    words = e.set_words[np.minimum(begin + code // 32, e.set_words.size - 1)]
    member: Array = inside & ((words >> (code % 32).astype(np.uint32)) & 1).astype(bool)
    return member


def _tree_ensemble(args: Sequence[Array], attrs: Attrs) -> Array:
    e = Ensemble.of(attrs)
    leaves = exit_leaves(e, args[0])
    out = np.repeat(e.base[None, :], args[0].shape[0], axis=0)
    values = e.leaf_values.shape[1]
    for t in range(e.trees):
        start = int(e.target[t])
        out[:, start : start + values] += e.leaf_values[leaves[:, t]]
    return out


def _accumulate(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    base: Array = attrs["base"]
    target: Array = attrs["target"]
    out = np.repeat(base[None, :], x.shape[0], axis=0)
    for t in range(x.shape[1]):
        out[:, target[t] : target[t] + x.shape[2]] += x[:, t]
    return out


def _take(args: Sequence[Array], attrs: Attrs) -> Array:
    table, index = args
    if index.size and (index.min() < 0 or index.max() >= table.shape[0]):
        raise IndexError("take reaches outside its table")
    return table[index]


def _elementwise(function: Callable[..., Any]) -> Function:
    return lambda args, attrs: function(*args)


def _reduction(function: Callable[..., Any]) -> Function:
    return lambda args, attrs: function(args[0], axis=attrs["axis"], keepdims=True)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "constant": lambda args, attrs: attrs["value"],
        "exp": _exp,
        "log": _elementwise(np.log),
        "log1p": _elementwise(np.log1p),
        "expm1": _elementwise(np.expm1),
        "sqrt": _elementwise(np.sqrt),
        "sigmoid": _sigmoid,
        "tanh": _elementwise(np.tanh),
        "trunc": _elementwise(np.trunc),
        "neg": _elementwise(np.negative),
        "abs": _elementwise(np.abs),
        "sign": _elementwise(np.sign),
        "square": _elementwise(np.square),
        "add": _elementwise(np.add),
        "sub": _elementwise(np.subtract),
        "mul": _elementwise(np.multiply),
        "div": _elementwise(np.divide),
        "maximum": _elementwise(np.maximum),
        "minimum": _elementwise(np.minimum),
        "lt": _elementwise(np.less),
        "le": _elementwise(np.less_equal),
        "gt": _elementwise(np.greater),
        "ge": _elementwise(np.greater_equal),
        "eq": _elementwise(np.equal),
        "ne": _elementwise(np.not_equal),
        "and": _elementwise(np.logical_and),
        "or": _elementwise(np.logical_or),
        "shift_right": _elementwise(np.right_shift),
        "bit_and": _elementwise(np.bitwise_and),
        "not": _elementwise(np.logical_not),
        "isnan": _isnan,
        "where": _elementwise(np.where),
        "cast": lambda args, attrs: args[0].astype(str(attrs["dtype"])),
        "concat": lambda args, attrs: np.concatenate(args, axis=1),
        "select": lambda args, attrs: args[0][:, attrs["indices"]],
        "reshape": lambda args, attrs: args[0].reshape(args[0].shape[0], *attrs["shape"]),
        "take": _take,
        "gather": lambda args, attrs: np.take_along_axis(args[0], args[1].astype(np.int64), 1),
        "sum": lambda args, attrs: args[0].sum(
            axis=attrs["axis"], keepdims=True, dtype=args[0].dtype
        ),
        "max": _reduction(np.max),
        "min": _reduction(np.min),
        "argmax": _reduction(np.argmax),
        "softmax": _softmax,
        "accumulate": _accumulate,
        "matmul": _elementwise(np.matmul),
        "batch_matmul": lambda args, attrs: np.einsum("nti,til->ntl", *args),
        "fill": _fill,
        "encode": _encode,
        "require_known": _require_known,
        "require_finite": _require_finite,
        "one_hot": _one_hot,
        "impute": _impute,
        "linear": _linear,
        "tree_ensemble": _tree_ensemble,
    }
)
