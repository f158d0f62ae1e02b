"""VectorAssembler: columns side by side as one vector.

Source: the class's own file in `org/apache/spark/ml/feature`.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.spark_ml.columns import Columns
from sqlml.importers.spark_ml.stages import Stage


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
