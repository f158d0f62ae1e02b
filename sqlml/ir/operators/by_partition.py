"""`by_partition`: a model for each partition of the rows, as one operator.

The Programs of all partitions are stored one after another. Each is read when rows of its partition
arrive (`ir/partition_programs.py`). The first input has the index of each row's partition. The
others are the features, each of which may be read by some of the partitions only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_matrix
from sqlml.ir.program import Attrs
from sqlml.types import FLOATS, Array, TensorType, matrix, numpy_dtype

RunPartition = Callable[[int, Mapping[str, Any]], Array]
"""A function that maps a partition's index and its rows, by feature, to the output (n, width)."""


def _by_partition_type(types: Types, attrs: Attrs) -> TensorType:
    programs = array_attribute(attrs, "programs", "uint8", (None,))
    ends = array_attribute(attrs, "ends", "int64", (None,))
    are_ascending = ends.size > 0 and (np.diff(ends, prepend=0) > 0).all()
    require(are_ascending and ends[-1] == programs.size, "ends must ascend to the programs' size")
    require_matrix(types[0], "int64", 1)
    for feature_type in types[1:]:
        require_matrix(feature_type, width=1)
    names = attrs["names"]
    are_names = len(names) == len(types) - 1 and all(isinstance(n, str) for n in names)
    require(are_names and len(set(names)) == len(names), "by_partition must name each feature once")
    require(attrs["dtype"] in (*FLOATS, "int64"), "by_partition makes numbers")
    require(attrs["width"] > 0, "width must be an integer above 0")
    return matrix(attrs["dtype"], attrs["width"])


def score_by_partition(run_partition: RunPartition, args: Sequence[Any], attrs: Attrs) -> Array:
    """Score the rows of each partition together; return the output (n, width) of all rows.

    `args` has the partitions' indices, int64 (n, 1), and the features. A row with a negative index
    belongs to the last partition if `has_default`. Otherwise, its output is NaN, or -1 as an int64.
    """
    codes = np.maximum(args[0][:, 0], -1)
    features = dict(zip(attrs["names"], args[1:], strict=True))
    num_partitions = len(attrs["ends"])
    if attrs["has_default"]:
        codes = np.where(codes < 0, num_partitions - 1, codes)
    if codes.size and codes.max() >= num_partitions:
        message = f"a row belongs to partition {codes.max()}, and there are {num_partitions}"
        raise ProgramError(message)
    missing = np.nan if attrs["dtype"] in FLOATS else -1
    result = np.full((codes.size, attrs["width"]), missing, numpy_dtype(attrs["dtype"]))
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=-1))  # The code -1 has no start.
    for start, stop in pairwise([*starts, codes.size]):
        is_all = stop - start == codes.size
        rows: Any = slice(None) if is_all else order[start:stop]
        partition_rows = features if is_all else {name: x[rows] for name, x in features.items()}
        result[rows] = run_partition(int(sorted_codes[start]), partition_rows)
    return result


_BY_PARTITION = (
    "programs, ends, names: tuple, output: str, dtype: str, width: int, has_default: bool"
)

OPERATORS: tuple[Op, ...] = (
    # `reference.FUNCTIONS` has the function, because it runs Programs.
    Op("by_partition", "opaque", _by_partition_type, None, _BY_PARTITION, arity=(1, None)),
)
