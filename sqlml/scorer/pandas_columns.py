"""Where a model's features lie in a frame, and the columns of a pandas frame, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.bounded_cache import Recent
from sqlml.errors import AmbiguousColumnError, MissingColumnError
from sqlml.limits import FOUND_BYTES
from sqlml.suggestions import closest
from sqlml.types import Array, Feature, features_behind_blanks, fold

FEW = 12
"""As many columns are read faster one by one than as a part of the frame, which takes 0.1 ms."""


class FrameColumns(Mapping[str, Any]):
    """Features' columns of a pandas frame by name, each cut out when it is asked for.

    A frame of hundreds of columns takes longer to take apart than most models take to run, so
    `numbers` reads all plain columns of numbers in one go.
    """

    __slots__ = ("_frame", "_labels", "_places")

    def __init__(self, frame: Any, places: Mapping[str, int]) -> None:
        self._frame = frame
        self._places = places
        unique = frame.columns.is_unique
        self._labels = frame.columns.tolist() if unique else [None] * frame.shape[1]

    def __getitem__(self, name: str) -> Any:
        place = self._places[name]
        label = self._labels[place]
        # By its label takes half as long as by its place.
        return self._frame[label] if type(label) is str else self._frame.iloc[:, place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, start: int, stop: int) -> FrameColumns:
        """Rows start..stop, without copying."""
        return FrameColumns(self._frame.iloc[start:stop], self._places)

    def numbers(self, names: Sequence[str], dtype: np.dtype[Any]) -> tuple[list[int], Array]:
        """Which of the columns `names` hold numpy's own numbers, and these: (n, k) of `dtype`.

        All others (nullable, Arrow's, objects ..) are to be read one by one.
        """
        dtypes = self._frame.dtypes.tolist()
        plain = {t for t in set(dtypes) if isinstance(t, np.dtype) and t.kind in "biuf"}
        places = [self._places[name] for name in names]
        chosen = [k for k, place in enumerate(places) if dtypes[place] in plain]
        wanted = [places[k] for k in chosen]
        if wanted == list(range(len(dtypes))):
            return chosen, self._frame.to_numpy(dtype)
        if len(wanted) > FEW:
            return chosen, self._frame.iloc[:, wanted].to_numpy(dtype)
        made = np.empty((len(self._frame), len(wanted)), dtype)
        for at, k in enumerate(chosen):
            made[:, at] = self[names[k]].to_numpy()
        return chosen, made


class _Same:
    """Features that compare equal only to themselves: comparing hundreds takes too long."""

    __slots__ = ("features",)

    def __init__(self, features: tuple[Feature, ...]) -> None:
        self.features = features

    def __hash__(self) -> int:
        return id(self.features)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.features is self.features


def find(
    features: tuple[Feature, ...], names: Sequence[str], blanks: bool = False
) -> Mapping[str, int]:
    """Map each feature's name to the place of its column among `names`.

    That is the column of that very name, else the one that has it in another case. A feature that
    may be anything may be absent.

    Args:
        blanks: a column feeds the feature that has _ for its blanks, as `Gaps.blanks` says.

    Raises:
        MissingColumnError: a feature is not among them.
        AmbiguousColumnError: two columns have its name.
    """
    if blanks:
        renamed = features_behind_blanks(features, names)
        names = [renamed[name].name if name in renamed else name for name in names]
    key = _Same(features), tuple(names)
    found = _found.get(key)
    if found is None:
        found = _find(*key)
        _found.put(key, found, _BYTES * (len(features) + len(names)))
    return found


_BYTES = 200
"""What a name takes, about."""

_found: Recent[tuple[_Same, tuple[str, ...]], Mapping[str, int]] = Recent(FOUND_BYTES)


def _find(same: _Same, names: tuple[str, ...]) -> Mapping[str, int]:
    exact, folded = _by_name(names), _by_name([fold(name) for name in names])
    found: dict[str, int] = {}
    for feature in same.features:
        own = exact.get(feature.name) or folded.get(fold(feature.name), [])
        if len(own) > 1:
            raise AmbiguousColumnError(
                f"{len(own)} columns are called {feature.name!r}; give each its own name"
            )
        if own:
            found[feature.name] = own[0]
        elif feature.kind != "any":
            raise _missing(feature.name, names)
    return MappingProxyType(found)


def _by_name(names: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def _missing(name: str, have: Sequence[str]) -> MissingColumnError:
    close = closest(name, have)
    hint = f" (did you mean {close!r}?)" if close is not None else ""
    return MissingColumnError(
        f"the model needs column {name!r}{hint}, not among: {', '.join(have[:30])}"
    )
