"""`Names`: the categories of a column, numbered as they come, batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.types import Array


class Names:
    """Texts with the numbers that they got when they were first seen."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._place)

    def codes(self, values: Any) -> Array:
        """(n,) int32 numbers of the texts in a pyarrow Array, -1 for NULL."""
        import pyarrow as pa

        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        place = self._place
        before = len(place)
        used = _used(coded)
        known = [place.setdefault(name, len(place)) for name in used]
        if len(place) > before:
            self._bytes += sum(len(name) + _BESIDE for name in used if place[name] >= before)
        of_dictionary = np.array([*known, -1], np.int32)
        indices = coded.indices
        if coded.null_count:  # of an ENUM, they have no sign
            indices = indices.cast(pa.int32()).fill_null(-1)
        made: Array = of_dictionary[indices.to_numpy(zero_copy_only=False)]
        return made

    @property
    def nbytes(self) -> int:
        """Memory that the names take, about."""
        return self._bytes

    def as_seen(self) -> tuple[str, ...]:
        """The names in the order of their numbers."""
        return tuple(self._place)

    def sorted(self) -> tuple[str, ...]:
        """The names in the order of their code points."""
        return tuple(sorted(self._place))

    def sorted_places(self) -> Array:
        """(k,) int32: number when it was first seen -> place among the sorted names."""
        made = np.empty(len(self._place), np.int32)
        for place, name in enumerate(self.sorted()):
            made[self._place[name]] = place
        return made


_BESIDE = 130
"""Bytes of a name besides its characters: an object of Python's, and its place."""


def _used(coded: Any) -> list[str]:
    """The names of a dictionary."""
    names: list[str] = coded.dictionary.to_pylist()
    return names
