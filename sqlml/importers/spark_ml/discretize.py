"""Binarizer and Bucketizer: numbers become few numbers.

Sources: the classes' own files in `org/apache/spark/ml/feature`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sqlml.importers.spark_ml.columns import Columns
from sqlml.importers.spark_ml.stages import Stage


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
