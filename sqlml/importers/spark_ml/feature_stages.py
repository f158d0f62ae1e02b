"""Import the stages of Spark ML that compute features: assemblers, encoders, imputers and scalers.

The formulas are those of the classes in `org/apache/spark/ml/feature`. Unlike scikit-learn, Spark's
scalers multiply by 1 / deviation instead of dividing, and return 0 for a constant column
(StandardScaler.scala and others).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from itertools import groupby

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import check_array
from sqlml.importers.spark_ml.pipeline_stages import Column, Columns, Stage
from sqlml.importers.untrusted_documents import MAX_OUTPUTS
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def import_vector_assembler(stage: Stage, columns: Columns) -> None:
    """Import VectorAssembler, which joins columns; with handleInvalid "keep", NULL becomes NaN."""
    keep_invalid = stage.get_handle_invalid("error", "keep") == "keep"
    builder = columns.builder
    blocks: list[Frame] = []
    input_columns = map(columns.any, stage.texts("inputCols"))
    # Check adjacent columns of the table together.
    for is_raw, group in groupby(input_columns, key=lambda column: column.raw):
        frames = [column.frame for column in group]
        if is_raw:
            frame = Frame.hstack(builder, frames)
            value = check_array(frame, stage.kind, allow_nan=keep_invalid)
            frames = [Frame.from_value(builder, value, frame.names)]
        blocks += frames
    if not blocks:
        raise stage.damaged("it reads no column")
    vector = Frame.hstack(builder, blocks)
    columns.put(stage.text("outputCol"), vector.matrix(), vector.names, vector=True)


def import_binarizer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Import Binarizer, which returns 1 for x > threshold, and otherwise 0, even for NULL."""
    column_pairs = stage.columns
    default_threshold = stage.number("threshold", 0.0)
    thresholds = stage.numbers("thresholds") if "inputCols" in stage.params else None
    if thresholds is None:
        thresholds = (default_threshold,) * len(column_pairs)
    if len(thresholds) != len(column_pairs):
        raise stage.damaged(f"it has {len(thresholds)} thresholds for {len(column_pairs)} columns")
    builder = columns.builder
    for (source, output), threshold in zip(column_pairs, thresholds, strict=True):
        if output not in needed:
            continue
        column = columns.any(source)
        is_above = builder.op("gt", column.frame.matrix(), builder.constant(np.full(1, threshold)))
        value = builder.op("cast", is_above, dtype="float64")
        columns.put(output, value, column.frame.names, vector=column.vector)


def import_bucketizer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Import Bucketizer, which returns a bucket's index; only the last bucket contains its end."""
    stage.get_handle_invalid("error")
    if "inputCols" in stage.params:
        reason = "several columns at once are not supported; use a Bucketizer for each column"
        raise stage.unsupported(reason)
    ((source, output),) = stage.columns
    splits = stage.numbers("splits")
    if splits is None or len(splits) < 3 or any(np.diff(splits) <= 0):
        raise stage.damaged("its splits do not increase")
    builder = columns.builder
    frame = columns.scalar(source, stage.kind).frame
    attrs = {"features": frame.names, "allow_nan": False, "step": stage.kind}
    low, high = np.array(splits[:1]), np.array(splits[-1:])
    x = builder.op("require_finite", frame.matrix(), **attrs, low=low, high=high)
    inner_splits = np.array(splits[1:-1])
    offsets = np.array([0, inner_splits.size], np.int64)
    bucket = builder.op("search_sorted", x, edges=inner_splits, offsets=offsets, side="right")
    columns.put(output, builder.op("cast", bucket, dtype="float64"), frame.names, vector=False)


def import_string_indexer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Import StringIndexer, which returns the index of a string in the list of labels.

    With handleInvalid "keep", NULL and unknown strings get the index after the last label.
    Otherwise, they are errors.
    """
    keep_invalid = stage.get_handle_invalid("error", "keep") == "keep"
    labels = stage.data["labels"]
    if len(labels) != len(stage.columns):
        raise stage.damaged(f"it has labels for {len(labels)} columns, not {len(stage.columns)}")
    builder = columns.builder
    for (source, output), column_labels in zip(stage.columns, labels, strict=True):
        if output not in needed:
            continue
        num_labels = len(column_labels)
        are_strings = all(isinstance(label, str) for label in column_labels)
        if not are_strings or len(set(column_labels)) != num_labels:
            raise stage.damaged("its labels are not distinct strings")
        column = columns.scalar(source, stage.kind)
        if not column.raw:
            raise stage.unsupported(
                f"it reads {source!r}, which an earlier stage computes; index a column of the table"
            )
        categories = np.array(column_labels, object)
        codes = builder.op(
            "encode", column.frame.read_strings(0), categories=categories, missing=-1
        )
        if keep_invalid:
            is_unknown = builder.op("lt", codes, builder.constant(np.zeros(1, np.int64)))
            unknown_code = builder.constant(np.full(1, num_labels, np.int64))
            codes = builder.op("where", is_unknown, unknown_code, codes)
        else:
            codes = builder.op("require_known", codes, feature=source, step=stage.kind)
        columns.put_codes(output, codes, num_labels + keep_invalid, source)


def import_one_hot_encoder(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Import OneHotEncoder, which returns a vector with a 1 at the index of the category.

    With handleInvalid "keep", unknown numbers get a separate index. Otherwise, they are errors.
    """
    keep_invalid = stage.get_handle_invalid("error", "keep") == "keep"
    sizes = stage.data["sizes"]
    if len(sizes) != len(stage.columns):
        raise stage.damaged(f"it has {len(sizes)} sizes for {len(stage.columns)} columns")
    builder = columns.builder
    for (source, output), size in zip(stage.columns, sizes, strict=True):
        if output not in needed:
            continue
        if not 0 < size <= MAX_OUTPUTS:
            raise stage.damaged(f"it has {size} categories for the column {source!r}")
        column = columns.scalar(source, stage.kind)
        codes = column.codes
        if codes is None or column.categories > size:
            codes = _build_codes(stage, builder, column, size, keep_invalid)
        width = size + keep_invalid - stage.flag("dropLast", True)
        one_hot = builder.op("one_hot", codes, width=width, dtype="float64")
        columns.put(output, one_hot, tuple(f"{source}_{i}" for i in range(width)), vector=True)


def _build_codes(stage: Stage, builder: Builder, column: Column, size: int, keep: bool) -> Value:
    """Build codes below `size` from numbers; if `keep` is true, other numbers become `size`."""
    # Spark distinguishes NULL from NaN, which is an unknown category. SQL does not: reject both.
    x = check_array(column.frame, stage.kind) if column.raw else column.frame.matrix()
    is_nonnegative = builder.op("ge", x, builder.constant(np.zeros(1)))
    is_below_size = builder.op("lt", x, builder.constant(np.full(1, float(size))))
    unknown_code = builder.constant(np.full(1, float(size) if keep else -1.0))
    x = builder.op("where", builder.op("and", is_nonnegative, is_below_size), x, unknown_code)
    codes = builder.op("cast", x, dtype="int64")
    if keep:
        return codes
    return builder.op("require_known", codes, feature=column.frame.names[0], step=stage.kind)


def import_imputer(stage: Stage, columns: Columns, needed: Collection[str]) -> None:
    """Import ImputerModel, which replaces NULL and NaN with a constant for each column."""
    missing = stage.params.get("missingValue", math.nan)
    if not (missing == "NaN" or isinstance(missing, float) and math.isnan(missing)):
        raise stage.unsupported(
            f"missingValue={missing!r} fills NULL and leaves NaN, which sqlml cannot distinguish; "
            "write such values as NULL in the query, and fit with missingValue=NaN"
        )
    builder = columns.builder
    for source, output in stage.columns:
        if output not in needed:
            continue
        fill = stage.data["surrogates"].get(source)
        if not isinstance(fill, float) or not math.isfinite(fill):
            raise stage.damaged(f"it fills {source!r} with {fill!r}")
        if not fill.is_integer():
            warnings.warn(
                f"{stage.kind} fills {source!r} with {fill}, as Spark does in a column of DOUBLE; "
                f"in an integer column Spark fills {math.trunc(fill)}: if it was fitted on such a "
                "column, cast it to DOUBLE before fit",
                UserWarning,
                stacklevel=2,
            )
        x = columns.scalar(source, stage.kind).frame.matrix()
        filled = builder.op("impute", x, fill=np.array([fill]), missing=math.nan)
        columns.put(output, filled, (source,), vector=False)


def import_standard_scaler(stage: Stage, frame: Frame) -> Value:
    """Build (x - mean) * (1 / std); withMean and withStd select the operations."""
    shift = stage.vector("mean") if stage.flag("withMean", False) else None
    scale = _invert_nonzero(stage.vector("std"), 0.0) if stage.flag("withStd", True) else None
    return _shift_and_scale(stage, frame, shift, scale)


def import_robust_scaler(stage: Stage, frame: Frame) -> Value:
    """Build (x - median) * (1 / range); withCentering and withScaling select the operations."""
    shift = stage.vector("median") if stage.flag("withCentering", False) else None
    scale = _invert_nonzero(stage.vector("range"), 0.0) if stage.flag("withScaling", True) else None
    return _shift_and_scale(stage, frame, shift, scale)


def import_max_abs_scaler(stage: Stage, frame: Frame) -> Value:
    """Build x * (1 / maxAbs); a column of zeros is unchanged."""
    return _shift_and_scale(stage, frame, None, _invert_nonzero(stage.vector("maxAbs"), 1.0))


def import_min_max_scaler(stage: Stage, frame: Frame) -> Value:
    """Build x scaled from low, high to min, max; a constant column becomes (min + max) / 2."""
    low, high = stage.vector("originalMin"), stage.vector("originalMax")
    new_min, new_max = stage.number("min", 0.0), stage.number("max", 1.0)
    if low.shape != high.shape:
        raise stage.damaged("it has different numbers of minima and maxima")
    span = high - low
    scale = np.divide(new_max - new_min, span, out=np.zeros_like(span), where=span != 0)
    builder = frame.builder
    x = frame.matrix()
    value = builder.op("mul", builder.op("sub", x, builder.constant(low)), builder.constant(scale))
    value = builder.op("add", value, builder.constant(np.full(1, new_min)))
    is_constant = scale == 0
    if is_constant.any():
        middle = builder.constant(np.full(1, (new_min + new_max) / 2))
        middle = builder.op("where", builder.op("isnan", x), x, middle)
        value = builder.op("where", builder.constant(is_constant[None, :]), middle, value)
    return value


def import_normalizer(stage: Stage, frame: Frame) -> Value:
    """Import Normalizer, which divides each row by the norm of the row, unless the norm is 0."""
    builder = frame.builder
    x = frame.matrix()
    norm = _compute_norm(stage, builder, x, stage.number("p", 2.0))
    is_zero = builder.op("eq", norm, builder.constant(np.zeros(1)))
    return builder.op("div", x, builder.op("where", is_zero, builder.constant(np.ones(1)), norm))


def _compute_norm(stage: Stage, builder: Builder, x: Value, p: float) -> Value:
    if p == 1.0:
        return builder.op("sum", builder.op("abs", x), axis=1)
    if p == 2.0:
        return builder.op("sqrt", builder.op("sum", builder.op("square", x), axis=1))
    if p == math.inf:
        return builder.op("max", builder.op("abs", x), axis=1)
    raise stage.unsupported(f"p={p} is not supported; use 1, 2 or infinity")


def _invert_nonzero(x: Array, default: float) -> Array:
    return np.divide(1.0, x, out=np.full_like(x, default), where=x != 0)


def _shift_and_scale(stage: Stage, frame: Frame, shift: Array | None, scale: Array | None) -> Value:
    """Build (x - shift) * scale; skip the operation if `shift` or `scale` is None."""
    builder = frame.builder
    value = frame.matrix()
    for op, operand in (("sub", shift), ("mul", scale)):
        if operand is not None:
            if operand.size != frame.width:
                raise stage.damaged(f"it has {operand.size} numbers for {frame.width} columns")
            value = builder.op(op, value, builder.constant(operand))
    return value
