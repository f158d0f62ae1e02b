"""StringIndexerModel and OneHotEncoderModel.

Sources: the classes' own files in `org/apache/spark/ml/feature`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sqlml.importers.claimed_sizes import MAX_OUTPUTS
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.spark_ml.columns import Column, Columns
from sqlml.importers.spark_ml.stages import Stage
from sqlml.ir.builder import Builder, Value


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
