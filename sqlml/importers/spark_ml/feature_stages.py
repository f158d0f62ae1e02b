"""The stages of Spark ML that compute features: assemblers, encoders, imputers and scalers.

Sources: the files of the classes in `org/apache/spark/ml/feature`. Scalers multiply by 1 /
deviation where scikit-learn divides, and return 0 for a constant column (StandardScaler.scala and
others).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import check_array
from sqlml.importers.spark_ml.pipeline_stages import Column, Columns, Stage
from sqlml.importers.untrusted_documents import MAX_OUTPUTS
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def vector_assembler(stage: Stage, columns: Columns) -> None:
    """Concatenate columns to a vector; NULL becomes NaN with "keep", else it is an error."""
    keep = stage.invalid("error", "keep") == "keep"
    blocks: list[Frame] = []
    run: list[Frame] = []  # adjacent raw columns
    b = columns.builder

    def check_finite() -> None:
        if run:
            frame = Frame.hstack(b, run)
            value = check_array(frame, stage.kind, allow_nan=keep)
            blocks.append(Frame.from_value(b, value, frame.names))
            run.clear()

    for name in stage.texts("inputCols"):
        column = columns.any(name)
        if column.raw:
            run.append(column.frame)
        else:
            check_finite()
            blocks.append(column.frame)
    check_finite()
    if not blocks:
        raise stage.damaged("it reads no column")
    vector = Frame.hstack(b, blocks)
    columns.put(stage.text("outputCol"), vector.matrix(), vector.names, vector=True)


def binarizer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Return 1 above the threshold, else 0, also for NULL and NaN."""
    pairs = stage.columns
    shared = stage.number("threshold", 0.0)
    x = stage.numbers("thresholds") if "inputCols" in stage.params else None
    if x is not None and len(x) != len(pairs):
        raise stage.damaged(f"it has {len(x)} thresholds for {len(pairs)} columns")
    b = columns.builder
    for (read, output), threshold in zip(pairs, x or (shared,) * len(pairs), strict=True):
        if output not in needed:
            continue
        column = columns.any(read)
        above = b.op("gt", column.frame.matrix(), b.constant(np.full(1, threshold)))
        value = b.op("cast", above, dtype="float64")
        columns.put(output, value, column.frame.names, vector=column.vector)


def bucketizer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Return the number of the bucket of each number; the last one includes its upper end."""
    stage.invalid("error")
    if "inputCols" in stage.params:
        raise stage.unsupported("several columns at once are not covered; use one for each column")
    ((read, output),) = stage.columns
    splits = stage.numbers("splits")
    if splits is None or len(splits) < 3 or any(np.diff(splits) <= 0):
        raise stage.damaged("its splits do not increase")
    b = columns.builder
    frame = columns.scalar(read, stage.kind).frame
    ends = {"low": np.array(splits[:1]), "high": np.array(splits[-1:])}
    check = {"features": frame.names, "allow_nan": False, "step": stage.kind, **ends}
    x = b.op("require_finite", frame.matrix(), **check)
    inner = np.array(splits[1:-1])
    offsets = np.array([0, inner.size], np.int64)
    bucket = b.op("search_sorted", x, edges=inner, offsets=offsets, side="right")
    columns.put(output, b.op("cast", bucket, dtype="float64"), frame.names, vector=False)


def string_indexer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Return the index of each text among the labels; "keep" numbers NULL and others last."""
    keep = stage.invalid("error", "keep") == "keep"
    labels = stage.data["labels"]
    if len(labels) != len(stage.columns):
        raise stage.damaged(f"it has labels for {len(labels)} columns, not {len(stage.columns)}")
    b = columns.builder
    for (read, output), column_labels in zip(stage.columns, labels, strict=True):
        if output not in needed:
            continue
        count = len(column_labels)
        are_texts = all(isinstance(v, str) for v in column_labels)
        if not are_texts or len(set(column_labels)) != count:
            raise stage.damaged("its labels are not distinct strings")
        column = columns.scalar(read, stage.kind)
        if not column.raw:
            raise stage.unsupported(
                f"it reads {read!r}, which an earlier stage makes; index a column of the table"
            )
        categories = np.empty(count, object)
        categories[:] = column_labels
        codes = b.op("encode", column.frame.strings(0), categories=categories, missing=-1)
        if keep:
            is_unknown = b.op("lt", codes, b.constant(np.zeros(1, np.int64)))
            codes = b.op("where", is_unknown, b.constant(np.full(1, count, np.int64)), codes)
        else:
            codes = b.op("require_known", codes, feature=read, step=stage.kind)
        columns.put_codes(output, codes, count + keep, read)


def one_hot_encoder(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Return a vector that is 1 at the index of the category; "keep" adds one for other numbers."""
    keep = stage.invalid("error", "keep") == "keep"
    sizes = stage.data["sizes"]
    if len(sizes) != len(stage.columns):
        raise stage.damaged(f"it has {len(sizes)} sizes for {len(stage.columns)} columns")
    b = columns.builder
    for (read, vector), size in zip(stage.columns, sizes, strict=True):
        if vector not in needed:
            continue
        if not 0 < size <= MAX_OUTPUTS:
            raise stage.damaged(f"it has {size} categories for the column {read!r}")
        column = columns.scalar(read, stage.kind)
        codes = column.codes
        if codes is None or column.categories > size:
            codes = _check_codes(stage, b, column, size, keep)
        width = size + keep - stage.flag("dropLast", True)
        hot = b.op("one_hot", codes, width=width, dtype="float64")
        columns.put(vector, hot, tuple(f"{read}_{i}" for i in range(width)), vector=True)


def _check_codes(stage: Stage, b: Builder, column: Column, size: int, keep: bool) -> Value:
    """Return numbers as codes below `size`; others become `size` with "keep", else errors."""
    # Spark treats a raw NULL as NULL and NaN as another category; SQL cannot distinguish them.
    x = check_array(column.frame, stage.kind) if column.raw else column.frame.matrix()
    from_zero = b.op("ge", x, b.constant(np.zeros(1)))
    below = b.op("lt", x, b.constant(np.full(1, float(size))))
    other = b.constant(np.full(1, float(size) if keep else -1.0))
    x = b.op("where", b.op("and", from_zero, below), x, other)
    codes = b.op("cast", x, dtype="int64")
    if keep:
        return codes
    return b.op("require_known", codes, feature=column.frame.names[0], step=stage.kind)


def imputer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Replace the column's missing value, and NaN, by the number that training found."""
    missing = stage.params.get("missingValue", math.nan)
    if not (missing == "NaN" or isinstance(missing, float) and math.isnan(missing)):
        raise stage.unsupported(
            f"missingValue={missing!r} fills NULL and leaves NaN, which sqlml does not tell apart; "
            "write such values as NULL in the query, and fit with missingValue=NaN"
        )
    b = columns.builder
    for read, output in stage.columns:
        if output not in needed:
            continue
        fill = stage.data["surrogates"].get(read)
        if not isinstance(fill, float) or not math.isfinite(fill):
            raise stage.damaged(f"it fills {read!r} with {fill!r}")
        if not fill.is_integer():
            warnings.warn(
                f"{stage.kind} fills {read!r} with {fill}, as Spark does in a column of DOUBLE; "
                f"in an integer column Spark fills {math.trunc(fill)}: if it was fitted on such a "
                "column, cast it to DOUBLE before fit",
                UserWarning,
                stacklevel=2,
            )
        x = columns.scalar(read, stage.kind).frame.matrix()
        filled = b.op("impute", x, fill=np.array([fill]), missing=math.nan)
        columns.put(output, filled, (read,), vector=False)


def standard_scaler(stage: Stage, frame: Frame) -> Value:
    """Return (x - mean) * (1 / std)."""
    shift = stage.vector("mean") if stage.flag("withMean", False) else None
    scale = _invert(stage.vector("std"), 0.0) if stage.flag("withStd", True) else None
    return _scale(stage, frame, shift, scale)


def robust_scaler(stage: Stage, frame: Frame) -> Value:
    """Return (x - median) * (1 / range)."""
    shift = stage.vector("median") if stage.flag("withCentering", False) else None
    scale = _invert(stage.vector("range"), 0.0) if stage.flag("withScaling", True) else None
    return _scale(stage, frame, shift, scale)


def max_abs_scaler(stage: Stage, frame: Frame) -> Value:
    """Return x * (1 / maxAbs); a column of zeros stays."""
    return _scale(stage, frame, None, _invert(stage.vector("maxAbs"), 1.0))


def min_max_scaler(stage: Stage, frame: Frame) -> Value:
    """Return (x - low) * ((max - min) / (high - low)) + min; constant columns are centered."""
    low, high = stage.vector("originalMin"), stage.vector("originalMax")
    least, most = stage.number("min", 0.0), stage.number("max", 1.0)
    if low.shape != high.shape:
        raise stage.damaged("it has different numbers of minima and maxima")
    span = high - low
    scale = np.divide(most - least, span, out=np.zeros_like(span), where=span != 0)
    b, x = frame.builder, frame.matrix()
    value = b.op("mul", b.op("sub", x, b.constant(low)), b.constant(scale))
    value = b.op("add", value, b.constant(np.full(1, least)))
    is_constant = scale == 0
    if is_constant.any():
        middle = b.constant(np.full(1, (least + most) / 2))
        middle = b.op("where", b.op("isnan", x), x, middle)
        value = b.op("where", b.constant(is_constant[None, :]), middle, value)
    return value


def normalizer(stage: Stage, frame: Frame) -> Value:
    """Divide x by the norm of its row, unless that is 0."""
    b, x = frame.builder, frame.matrix()
    norm = _compute_norm(stage, b, x, stage.number("p", 2.0))
    is_zero = b.op("eq", norm, b.constant(np.zeros(1)))
    return b.op("div", x, b.op("where", is_zero, b.constant(np.ones(1)), norm))


def _compute_norm(stage: Stage, b: Builder, x: Value, p: float) -> Value:
    if p == 1.0:
        return b.op("sum", b.op("abs", x), axis=1)
    if p == 2.0:
        return b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
    if p == math.inf:
        return b.op("max", b.op("abs", x), axis=1)
    raise stage.unsupported(f"p={p} is not covered; use 1, 2 or infinity")


def _invert(x: Array, default: float) -> Array:
    """Return 1 / x, and `default` where x is 0."""
    inverse: Array = np.divide(1.0, x, out=np.full_like(x, default), where=x != 0)
    return inverse


def _scale(stage: Stage, frame: Frame, shift: Array | None, scale: Array | None) -> Value:
    b, value = frame.builder, frame.matrix()
    for op, factors in (("sub", shift), ("mul", scale)):
        if factors is not None:
            if factors.size != frame.width:
                raise stage.damaged(f"it has {factors.size} numbers for {frame.width} columns")
            value = b.op(op, value, b.constant(factors))
    return value
