"""VectorAssembler: columns side by side as one vector.

Source: the class's own file in `org/apache/spark/ml/feature`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.estimator_checks import numbers
from sqlml.importers.spark_ml.stages import Column, Columns, Stage
from sqlml.importers.untrusted_documents import MAX_OUTPUTS
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def vector_assembler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """All columns side by side; with "keep" a NULL is NaN, else a NULL and NaN are refused."""
    keep = stage.invalid("error", "keep") == "keep"
    parts: list[Frame] = []
    run: list[Frame] = []  # neighbours that come from the table as they are
    b = columns.builder

    def checked() -> None:
        if run:
            frame = Frame.hstack(b, run)
            value = numbers(frame, stage.kind, allow_nan=keep)
            parts.append(Frame.of(b, value, frame.names))
            run.clear()

    for name in stage.texts("inputCols"):
        column = columns.any(name)
        if column.raw:
            run.append(column.frame)
        else:
            checked()
            parts.append(column.frame)
    checked()
    if not parts:
        raise stage.damaged("it reads no column")
    whole = Frame.hstack(b, parts)
    columns.put(stage.text("outputCol"), whole.matrix(), whole.names, vector=True)


# Binarizer and Bucketizer: numbers become few numbers.
#
# Sources: the classes' own files in `org/apache/spark/ml/feature`.


def binarizer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """1 above the threshold, else 0: of NULL and NaN too."""
    pairs = stage.columns
    shared = stage.number("threshold", 0.0)
    given = stage.numbers("thresholds") if "inputCols" in stage.params else None
    if given is not None and len(given) != len(pairs):
        raise stage.damaged(f"it has {len(given)} thresholds for {len(pairs)} columns")
    b = columns.builder
    for (read, made), threshold in zip(pairs, given or (shared,) * len(pairs), strict=True):
        if made not in wanted:
            continue
        column = columns.any(read)
        above = b.op("gt", column.frame.matrix(), b.constant(np.full(1, threshold)))
        value = b.op("cast", above, dtype="float64")
        columns.put(made, value, column.frame.names, vector=column.vector)


def bucketizer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """The number of the bucket that a number lies in; the last one holds its upper end, too."""
    stage.invalid("error")
    if "inputCols" in stage.params:
        raise stage.unsupported("several columns at once are not covered; use one for each column")
    ((read, made),) = stage.columns
    splits = stage.numbers("splits")
    if splits is None or len(splits) < 3 or any(np.diff(splits) <= 0):
        raise stage.damaged("its splits do not increase")
    b = columns.builder
    frame = columns.scalar(read, stage.kind).frame
    x = b.op(
        "require_finite",
        frame.matrix(),
        features=frame.names,
        allow_nan=False,
        step=stage.kind,
        low=np.array(splits[:1]),
        high=np.array(splits[-1:]),
    )
    inner = np.array(splits[1:-1])
    offsets = np.array([0, inner.size], np.int64)
    bucket = b.op("search_sorted", x, edges=inner, offsets=offsets, side="right")
    columns.put(made, b.op("cast", bucket, dtype="float64"), frame.names, vector=False)


# StringIndexerModel and OneHotEncoderModel.
#
# Sources: the classes' own files in `org/apache/spark/ml/feature`.


def string_indexer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """The place of a text among the labels, as a number; with "keep", NULL and unseen texts are one
    more category at the end."""
    keep = stage.invalid("error", "keep") == "keep"
    labels = stage.data["labels"]
    if len(labels) != len(stage.columns):
        raise stage.damaged(f"it has labels for {len(labels)} columns, not {len(stage.columns)}")
    b = columns.builder
    for (read, made), known in zip(stage.columns, labels, strict=True):
        if made not in wanted:
            continue
        if not all(isinstance(v, str) for v in known) or len(set(known)) != len(known):
            raise stage.damaged("its labels are not distinct strings")
        column = columns.scalar(read, stage.kind)
        if not column.raw:
            raise stage.unsupported(
                f"it reads {read!r}, which an earlier stage makes; index a column of the table"
            )
        categories = np.empty(len(known), object)
        categories[:] = known
        codes = b.op("encode", column.frame.strings(0), categories=categories, missing=-1)
        if keep:
            beyond = b.constant(np.full(1, len(known), np.int64))
            unseen = b.op("lt", codes, b.constant(np.zeros(1, np.int64)))
            codes = b.op("where", unseen, beyond, codes)
        else:
            codes = b.op("require_known", codes, feature=read, step=stage.kind)
        columns.put_codes(made, codes, len(known) + keep, read)


def one_hot_encoder(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """A vector that is 1 at the category's place.

    With handleInvalid="keep" one more place, the last, stands for numbers outside the categories;
    dropLast leaves out the last place.
    """
    keep = stage.invalid("error", "keep") == "keep"
    sizes = stage.data["sizes"]
    if len(sizes) != len(stage.columns):
        raise stage.damaged(f"it has {len(sizes)} sizes for {len(stage.columns)} columns")
    b = columns.builder
    for (read, made), size in zip(stage.columns, sizes, strict=True):
        if made not in wanted:
            continue
        if not 0 < size <= MAX_OUTPUTS:
            raise stage.damaged(f"it has {size} categories for the column {read!r}")
        column = columns.scalar(read, stage.kind)
        if column.codes is not None and column.categories <= size:
            codes = column.codes
        else:
            codes = _valid_codes(stage, b, column, size, keep)
        width = size + keep - stage.flag("dropLast", True)
        hot = b.op("one_hot", codes, width=width, dtype="float64")
        columns.put(made, hot, tuple(f"{read}_{i}" for i in range(width)), vector=True)


def _valid_codes(stage: Stage, b: Builder, column: Column, size: int, keep: bool) -> Value:
    """A number as a code below `size`; of others `size` with "keep", else they are refused."""
    # A raw NULL would be NULL in Spark and NaN another category; SQL cannot tell them apart.
    x = numbers(column.frame, stage.kind) if column.raw else column.frame.matrix()
    from_zero = b.op("ge", x, b.constant(np.zeros(1)))
    below = b.op("lt", x, b.constant(np.full(1, float(size))))
    other = b.constant(np.full(1, float(size) if keep else -1.0))
    x = b.op("where", b.op("and", from_zero, below), x, other)
    codes = b.op("cast", x, dtype="int64")
    if keep:
        return codes
    return b.op("require_known", codes, feature=column.frame.names[0], step=stage.kind)


# ImputerModel.
#
# Source: the class's own file in `org/apache/spark/ml/feature`.


def imputer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """What the column lacks, and NaN, become the number that was found in training."""
    missing = stage.params.get("missingValue", math.nan)
    if not (missing == "NaN" or isinstance(missing, float) and math.isnan(missing)):
        raise stage.unsupported(
            f"missingValue={missing!r} fills NULL and leaves NaN, which sqlml does not tell apart; "
            "write such values as NULL in the query, and fit with missingValue=NaN"
        )
    b = columns.builder
    for read, made in stage.columns:
        if made not in wanted:
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
        columns.put(made, filled, (read,), vector=False)


# StandardScalerModel, MinMaxScalerModel, MaxAbsScalerModel, RobustScalerModel, Normalizer.
#
# Spark multiplies by 1 / deviation where scikit-learn divides, and makes 0 of a column that did
# not vary (`org/apache/spark/ml/feature/StandardScaler.scala` and its neighbours).


def standard_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - mean) * (1 / std)."""
    shift = stage.vector("mean") if stage.flag("withMean", False) else None
    scale = _inverse(stage.vector("std"), 0.0) if stage.flag("withStd", True) else None
    _scaled(stage, columns, shift, scale, stage.vector("std").size)


def robust_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - median) * (1 / range)."""
    shift = stage.vector("median") if stage.flag("withCentering", False) else None
    scale = _inverse(stage.vector("range"), 0.0) if stage.flag("withScaling", True) else None
    _scaled(stage, columns, shift, scale, stage.vector("range").size)


def max_abs_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """x * (1 / maxAbs); a column of zeros stays."""
    scale = _inverse(stage.vector("maxAbs"), 1.0)
    _scaled(stage, columns, None, scale, scale.size)


def min_max_scaler(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """(x - low) * ((max - min) / (high - low)) + min; the middle for a column that did not vary."""
    low, high = stage.vector("originalMin"), stage.vector("originalMax")
    least, most = stage.number("min", 0.0), stage.number("max", 1.0)
    if low.shape != high.shape:
        raise stage.damaged("it has different numbers of minima and maxima")
    span = high - low
    scale = np.divide(most - least, span, out=np.zeros_like(span), where=span != 0)
    frame = _read(stage, columns, low.size)
    b, x = frame.builder, frame.matrix()
    value = b.op("mul", b.op("sub", x, b.constant(low)), b.constant(scale))
    value = b.op("add", value, b.constant(np.full(1, least)))
    constant = scale == 0
    if constant.any():
        middle = b.constant(np.full(1, (least + most) / 2))
        middle = b.op("where", b.op("isnan", x), x, middle)
        value = b.op("where", b.constant(constant[None, :]), middle, value)
    _put(stage, columns, frame, value)


def normalizer(stage: Stage, columns: Columns, wanted: Collection[str]) -> None:
    """x divided by the norm of its row, unless that is 0."""
    frame = _read(stage, columns, None)
    b, x = frame.builder, frame.matrix()
    norm = _norm(stage, b, x, stage.number("p", 2.0))
    nothing = b.op("eq", norm, b.constant(np.zeros(1)))
    norm = b.op("where", nothing, b.constant(np.ones(1)), norm)
    _put(stage, columns, frame, b.op("div", x, norm))


def _norm(stage: Stage, b: Builder, x: Value, p: float) -> Value:
    if p == 1.0:
        return b.op("sum", b.op("abs", x), axis=1)
    if p == 2.0:
        return b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
    if p == math.inf:
        return b.op("max", b.op("abs", x), axis=1)
    raise stage.unsupported(f"p={p} is not covered; use 1, 2 or infinity")


def _inverse(x: Array, instead: float) -> Array:
    """1 / x, and `instead` where x is 0."""
    made: Array = np.divide(1.0, x, out=np.full_like(x, instead), where=x != 0)
    return made


def _scaled(
    stage: Stage, columns: Columns, shift: Array | None, scale: Array | None, width: int
) -> None:
    frame = _read(stage, columns, width)
    b, value = frame.builder, frame.matrix()
    if shift is not None:
        if shift.size != width:
            raise stage.damaged(f"it shifts {shift.size} columns and scales {width}")
        value = b.op("sub", value, b.constant(shift))
    if scale is not None:
        value = b.op("mul", value, b.constant(scale))
    _put(stage, columns, frame, value)


def _read(stage: Stage, columns: Columns, width: int | None) -> Frame:
    return columns.vector(stage.text("inputCol"), stage.kind, width)


def _put(stage: Stage, columns: Columns, frame: Frame, value: Value) -> None:
    columns.put(stage.text("outputCol"), value, frame.names, vector=True)
