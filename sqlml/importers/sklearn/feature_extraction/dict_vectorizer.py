"""DictVectorizer: the columns of a table as the keys of its dicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Schema, Sparse
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value
from sqlml.types import DType


def dict_vectorizer(model: Any, frame: Frame) -> Frame:
    """A column per number, and one per string value that was seen; in the vocabulary's order.

    A NULL number is NaN, as None is there; a NULL string or one never seen has no column.

    Raises:
        UnsupportedModelError: not fitted, a key with both numbers and strings, or a dtype that
            rounds.
    """
    check(model, "feature_names_", "vocabulary_")
    if np.dtype(model.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnsupportedModelError(
            f"DictVectorizer(dtype={np.dtype(model.dtype).name}) rounds numbers; use float64"
        )
    dtype: DType = "float32" if np.dtype(model.dtype) == np.float32 else "float64"
    keys = _keys(model)
    columns = {name: i for i, name in enumerate(frame.names)}
    if frame.width != len(keys):
        raise UnsupportedModelError(
            f"DictVectorizer reads the keys {', '.join(keys)}; give it these columns"
        )
    parts: list[Value] = []
    places: list[int] = []
    builder = frame.builder
    for (key, values), i in zip(keys.items(), range(frame.width), strict=True):
        i = columns.get(key, i)
        if values is None:
            parts.append(frame.numbers(i, dtype))
            places.append(int(model.vocabulary_[key]))
            continue
        words = np.array([value for value, _ in values], object)
        codes = builder.op("encode", frame.strings(i), categories=words, missing=-1)
        parts.append(builder.op("one_hot", codes, width=len(values), dtype=dtype))
        places += [place for _, place in values]
    value = builder.beside(parts)
    order = np.argsort(np.array(places, np.int64), kind="stable").astype(np.int64)
    if not np.array_equal(order, np.arange(order.size)):
        value = builder.op("select", value, indices=order)
    names = [str(n) for n in model.feature_names_]
    sparse: Sparse = bool(model.sparse)
    if sparse and None in keys.values():
        sparse = "with zeros"
    return Frame.of(builder, value, names, sparse)


def dict_schema(model: Any) -> Schema:
    """The keys of the dicts, in the order of their first columns."""
    check(model, "feature_names_", "vocabulary_")
    keys = tuple(_keys(model))
    return Schema(keys, len(keys))


def _keys(model: Any) -> dict[str, list[tuple[str, int]] | None]:
    """Key -> None for a number, else its values with their columns.

    A name with the separator is taken for a key and a value, the key up to the first separator.
    """
    keys: dict[str, list[tuple[str, int]] | None] = {}
    for key, value, place in _split(model):
        if value is None:
            if key in keys:
                raise _mixed(key)
            keys[key] = None
            continue
        values = keys.setdefault(key, [])
        if values is None:
            raise _mixed(key)
        values.append((value, place))
    return keys


def _split(model: Any) -> Iterator[tuple[str, str | None, int]]:
    for name, place in sorted(model.vocabulary_.items(), key=lambda item: item[1]):
        if not isinstance(name, str):
            raise UnsupportedModelError(
                f"DictVectorizer was fitted on the key {name!r}; a column's name is a string"
            )
        key, separator, value = name.partition(model.separator)
        yield key, value if separator else None, int(place)


def _mixed(key: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"DictVectorizer saw numbers and strings under the key {key!r}; a column holds one kind"
    )
