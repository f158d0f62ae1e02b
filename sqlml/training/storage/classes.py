"""`Classes`: the classes of a label, in their own SQL type."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.types import LABEL_TYPES, Array, LabelKind, Labels


class Classes:
    """The values of a label, numbered as they come; at the end in order."""

    def __init__(self, sql_type: str) -> None:
        self._sql_type = sql_type
        self._place: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def codes(self, values: Any) -> Array:
        """(n,) int64 numbers of the values in a pyarrow Array without NULL."""
        coded = values.dictionary_encode()
        place = self._place
        known = [place.setdefault(_plain(v), len(place)) for v in coded.dictionary.to_pylist()]
        made: Array = np.array([*known, -1], np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
        return made

    def plain(self, values: Any) -> list[Any]:
        """Values of a frame, or of an estimator's, as this class has them."""
        return [_plain(v.item() if hasattr(v, "item") else v) for v in values]

    def values(self) -> list[Any]:
        """The classes in order: numbers by size, texts by code points, false before true."""
        return sorted(self._place)

    def sorted_places(self) -> Array:
        """(k,) int64: number when it was first seen -> place in order."""
        made = np.empty(len(self._place), np.int64)
        for place, value in enumerate(self.values()):
            made[self._place[value]] = place
        return made

    def labels(self) -> Labels:
        """The classes as a Program has them."""
        values = tuple(self.values())
        kinds: dict[type, LabelKind] = {bool: "bool", int: "int64", float: "float64", str: "string"}
        kind = kinds[type(values[0])]
        known = LABEL_TYPES[kind].fullmatch(self._sql_type)
        return Labels(kind, values, self._sql_type if known else "")

    def is_numbered(self) -> bool:
        """Whether the classes are 0, 1, 2 .. themselves."""
        values = self.values()
        return all(type(v) is int for v in values) and values == list(range(len(values)))


def class_name(value: Any) -> str:
    """A class as options write it.

    >>> class_name(True), class_name(1.0), class_name(1.5), class_name("x")
    ('true', '1', '1.5', 'x')
    """
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def class_named(name: str, values: Sequence[Any]) -> Any:
    """The class that an option means: a number may be written in another way, 1.0 or '1'.

    Returns None if it is none of the values.
    """
    for value in values:
        if class_name(value) == name:
            return value
    if values and isinstance(values[0], float):
        with suppress(ValueError):
            return next((v for v in values if v == float(name)), None)
    return None


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value  # -0.0 is 0.0
