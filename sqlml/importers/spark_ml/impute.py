"""ImputerModel.

Source: the class's own file in `org/apache/spark/ml/feature`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection

import numpy as np

from sqlml.importers.spark_ml.columns import Columns
from sqlml.importers.spark_ml.stages import Stage


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
