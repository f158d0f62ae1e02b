"""`DirectTexts`: a few rows of texts scored by one call of machine code.

What else stands between a text and its score, a table of the columns and arrays of each, takes ten
times as long as a kernel does for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.types import Array, Feature

FEW = 16
"""More rows are read as a table: their texts take longer than what stands around them."""


class DirectTexts:
    """Scores a model that reads columns of texts alone. Thread-safe.

    Args:
        filler: what `Compiled.text_filler` gives.
        follower: its calls for a few rows.
        places: where its texts stand among the `features`.
    """

    __slots__ = ("_dtype", "_features", "_names", "_places", "_run", "_width", "_x")

    def __init__(
        self, filler: Any, follower: Any, features: Sequence[Feature], places: Sequence[int]
    ) -> None:
        self._run = follower.run
        self._width, self._dtype = filler.width, filler.dtype
        self._features, self._places = features, places
        self._names = [features[place].name for place in places]
        self._x = np.empty((FEW, filler.columns), filler.input)

    def score(self, x: Any) -> Array | None:
        """(n, k); None for anything but a few rows of texts, or where Python has to score them."""
        columns = self._columns(x)
        if columns is None:
            return None
        rows = len(columns[0])
        if not 0 < rows <= FEW:
            return None
        try:
            encoded = [str.encode(text) for column in columns for text in column]
        except (TypeError, UnicodeEncodeError):  # what is no text, or no Unicode
            return None
        data = np.frombuffer(b"".join(encoded), np.uint8)
        at = data.__array_interface__["data"][0]
        ends = np.empty((2 * len(columns), rows), np.int64)
        k = 0
        for pair in range(0, len(ends), 2):
            for row in range(rows):
                ends[pair, row] = at
                at += len(encoded[k])
                ends[pair + 1, row] = at
                k += 1
        out = np.empty((rows, self._width), self._dtype)
        return out if self._run(self._x[:rows], ends, out, 0, rows, FEW) == rows else None

    def _columns(self, x: Any) -> list[list[Any]] | None:
        """The texts by column; None where another way reads them."""
        kind = type(x)
        if kind is np.ndarray:
            if x.ndim == 2 and x.dtype == object and x.shape[1] == len(self._features):
                return [x[:, place].tolist() for place in self._places] if len(x) <= FEW else None
        elif kind is list:
            if len(self._features) == 1 and x and type(x[0]) is str:
                return [x]
        elif _is_pandas_row(kind, x):
            labels = x.columns
            try:
                if labels.is_unique:
                    return [[x.iat[0, labels.get_loc(name)]] for name in self._names]
            except (KeyError, TypeError):  # another spelling, or labels that are no names
                pass
        return None


def _is_pandas_row(kind: type[Any], x: Any) -> bool:
    named = kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"
    return named and len(x) == 1
