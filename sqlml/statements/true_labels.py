"""`label_column` and `label_codes`: the true labels among the rows of a query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.catalog.model import Model
from sqlml.errors import ConfigError, MissingColumnError
from sqlml.types import Array, fold, list_classes


def label_column(given: Any, model: Model, frame: Any) -> str:
    """The column of the true labels: the one that is given, or the only one that is no feature.

    Raises:
        MissingColumnError: the frame has no such column.
        ConfigError: none is given, and it has no or several others.
    """
    columns = [str(column) for column in frame.columns]
    if given is not None:
        found = [c for c in columns if fold(c) == fold(str(given))]
        if not found:
            raise MissingColumnError(
                f"the query has no column {given!r} with the labels; it has {', '.join(columns)}"
            )
        return found[0]
    features = {fold(f.name) for f in model.features}
    others = [c for c in columns if fold(c) not in features]
    if len(others) != 1:
        raise ConfigError(
            "name the column of the query with the true labels: OPTIONS (label = 'column')"
        )
    return others[0]


def label_codes(column: Any, model: Model) -> Array:
    """The places of a column's labels among the model's, (n,); -1 for NULL.

    Raises:
        ConfigError: a label is none of the model's.
    """
    labels = model.program.labels[0]
    places = {value: place for place, value in enumerate(labels.values)}
    values = column.to_numpy(object)
    missing = column.isna().to_numpy()
    try:
        codes = [-1 if m else places[_plain(v)] for v, m in zip(values, missing, strict=True)]
    except (KeyError, TypeError):
        odd = next(
            v for v, m in zip(values, missing, strict=True) if not m and not _is_among(v, places)
        )
        raise ConfigError(
            f"column {column.name!r} holds {odd!r}, which is not a class of model "
            f"{model.label}; its classes are {list_classes(labels.values)}"
        ) from None
    return np.array(codes, np.int64)


def _is_among(value: Any, places: Mapping[Any, int]) -> bool:
    try:
        return _plain(value) in places
    except TypeError:  # a list or a struct
        return False


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
