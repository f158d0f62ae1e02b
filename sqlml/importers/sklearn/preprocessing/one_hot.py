"""OneHotEncoder: codes, then one 0/1 column per category that is neither dropped nor grouped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.categories import Categories, Unknown, read_categories

UNKNOWN: Mapping[str, Unknown] = MappingProxyType(
    {
        "error": "raise",
        "ignore": "keep",
        "infrequent_if_exist": "group",
        "warn": "group",
    }
)


def one_hot_encoder(model: Any, frame: Frame) -> Frame:
    """(n, sum of kept categories) float64 of 0 and 1; unknown categories as handle_unknown says.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot tell apart.
    """
    check(model, "categories_", "drop_idx_")
    if model.handle_unknown not in UNKNOWN:
        raise UnsupportedModelError(
            f"OneHotEncoder(handle_unknown={model.handle_unknown!r}) is not known to sqlml"
        )
    parts = [_one_column(model, frame, i) for i in range(frame.width)]
    return replace(Frame.hstack(frame.builder, parts), sparse=bool(model.sparse_output))


def _one_column(model: Any, frame: Frame, i: int) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=True)
    builder = frame.builder
    codes = categories.codes(frame, i, "OneHotEncoder", unknown=UNKNOWN[model.handle_unknown])
    value = builder.op("one_hot", codes, width=len(categories.slots), dtype="float64")
    dropped = _dropped_slot(model, i)
    code_of = {slot: code for code, slot in enumerate(categories.slots)}
    columns = [code_of[slot] for slot in range(len(code_of)) if slot != dropped]
    if columns != list(range(len(categories.slots))):
        value = builder.op("select", value, indices=np.array(columns, np.int64))
    return Frame.of(builder, value, [_name(frame.names[i], categories, c) for c in columns])


def _dropped_slot(model: Any, i: int) -> int | None:
    """The number, after grouping, of the category that `drop` removes."""
    if model.drop_idx_ is None or model.drop_idx_[i] is None:
        return None
    dropped = int(model.drop_idx_[i])
    rare = model._infrequent_indices[i] if getattr(model, "_infrequent_enabled", False) else None
    if rare is None:
        return dropped
    if dropped in rare:
        return len(model.categories_[i]) - len(rare)
    return dropped - int((np.asarray(rare) < dropped).sum())


def _name(feature: str, categories: Categories, code: int) -> str:
    if code == categories.group:
        return f"{feature}_infrequent_sklearn"
    if code == categories.missing_code:
        return f"{feature}_NULL"
    first = categories.infrequent - 1 if categories.infrequent else 0
    return f"{feature}_{categories.values[code + first]}"
