"""Transformers whose rows hold many values: MultiLabelBinarizer and FeatureHasher.

A row is one value of a column: a list, a map or a list of pairs (`types.NESTED`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, MAX_DENSE, Frame, RawColumn, Schema
from sqlml.importers.sklearn.feature_extraction.text import exact_dtype, whole_text
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value
from sqlml.ir.operators.items import pack_items
from sqlml.types import DType

LABELS = "labels"
"""Name of the column that MultiLabelBinarizer reads, unless `inputs` names another."""
ITEMS = "items"
"""Name of the column that FeatureHasher reads, unless `inputs` names another."""

_FORM: Mapping[str, DType] = MappingProxyType({"dict": "map", "pair": "pairs", "string": "list"})


def one_list(model: Any) -> Schema:
    """The one column of lists that MultiLabelBinarizer reads."""
    return Schema((LABELS,), 1)


def hashed_columns(model: Any) -> Schema:
    """FeatureHasher reads one column of maps, pairs or lists; or several, of a string each."""
    return Schema((ITEMS,), ANY_COUNT if model.input_type == "string" else 1)


def multi_label_binarizer(model: Any, frame: Frame) -> Frame:
    """1 in the column of each class that a row's list has; other labels are left out.

    Raises:
        UnsupportedModelError: not fitted, no classes, or classes that are not single values.
    """
    check(model, "classes_")
    classes = [c.item() if isinstance(c, np.generic) else c for c in model.classes_]
    if not classes:
        raise UnsupportedModelError("MultiLabelBinarizer was fitted without any label")
    for label in classes:
        if not isinstance(label, str | int | float | None) or label != label:
            raise UnsupportedModelError(
                f"MultiLabelBinarizer knows the label {label!r}, which a SQL list cannot hold; "
                "use strings or numbers"
            )
    words, ends = pack_items(classes)
    value = frame.builder.op(
        "has_items",
        _column(frame, "list", "MultiLabelBinarizer"),
        kind="list",
        dtype="float64",
        feature=frame.names[0],
        step="MultiLabelBinarizer",
        words=words,
        ends=ends,
    )
    if not model.sparse_output and len(classes) <= MAX_DENSE:
        value = frame.builder.op("densify", value, fill=0.0)
    names = tuple(str(label) for label in classes)
    return Frame.of(frame.builder, value, names, bool(model.sparse_output))


def feature_hasher(model: Any, frame: Frame) -> Frame:
    """The names of a row with their weights, each in the column that its hash gives.

    Raises:
        UnsupportedModelError: a dtype that rounds the weights.
    """
    check(model)
    form = _FORM.get(model.input_type)
    if form is None:
        raise UnsupportedModelError(f"FeatureHasher(input_type={model.input_type!r}) is unknown")
    rows_of_strings = form == "list" and not (
        frame.width == 1 and isinstance(frame.blocks[0], RawColumn)
    )
    value = _hashed_strings(model, frame) if rows_of_strings else _hashed(model, frame, form)
    names = ("hashed",) * value.type.width
    return Frame.of(frame.builder, value, names, True)


def _hashed(model: Any, frame: Frame, form: DType) -> Value:
    dtype = exact_dtype(model)
    if form != "list" and np.dtype(model.dtype).kind in "iu":
        raise UnsupportedModelError(
            f"FeatureHasher(dtype={np.dtype(model.dtype).name}) rounds the weights; use float64"
        )
    return frame.builder.op(
        "hash_items",
        _column(frame, form, "FeatureHasher"),
        kind=form,
        dtype=dtype,
        feature=frame.names[0],
        step="FeatureHasher",
        width=int(model.n_features),
        alternate_sign=bool(model.alternate_sign),
    )


def _hashed_strings(model: Any, frame: Frame) -> Value:
    """Rows of as many strings as there are columns, as a matrix of strings has them."""
    return frame.builder.op(
        "hash_tokens",
        *[frame.strings(i) for i in range(frame.width)],
        **whole_text("FeatureHasher", frame.names),
        dtype=exact_dtype(model),
        width=int(model.n_features),
        alternate_sign=bool(model.alternate_sign),
    )


def _column(frame: Frame, form: DType, step: str) -> Value:
    if frame.width != 1:
        raise UnsupportedModelError(
            f"{step} reads one column of lists or maps, not {frame.width}; give it only its own "
            "column, as in ColumnTransformer([('i', step, 'items')])"
        )
    return frame.nested(0, form)
