"""`scored_by_name`: the rows of a batch, those that give one name together, and back in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute

from sqlml.types import Array
from sqlml.udfs.batch_function import arrow_of


def scored_by_name(
    names: pa.Array | pa.ChunkedArray,
    kind: pa.DataType,
    score: Callable[[str, Array], pa.Array | None],
) -> pa.Array:
    """What `score` makes of each row, an array of `kind`.

    Args:
        names: (n,) texts; where one is NULL, the result is NULL.
        score: a name, and the places (m,) of its rows -> an array (m,); None: they have NULL.
    """
    parts, places = [], [np.empty(0, np.int64)]
    for name, rows in _places(names):
        made = None if name is None else score(name, rows)
        if made is not None and len(rows) == len(names):
            return made
        parts.append(pa.nulls(len(rows), kind) if made is None else made)
        places.append(rows)
    order = np.concatenate(places)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    joined = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return joined.take(arrow_of(back, pa.int64()))


def _places(names: pa.Array | pa.ChunkedArray) -> Iterator[tuple[str | None, Array]]:
    """Each name, and where it stands, in order."""
    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays(names.chunks) if names.num_chunks else names.combine_chunks()
    coded = names.dictionary_encode() if not pa.types.is_dictionary(names.type) else names
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, ends):
        code = codes[rows[0]]
        yield (None if code < 0 else coded.dictionary[int(code)].as_py()), rows
