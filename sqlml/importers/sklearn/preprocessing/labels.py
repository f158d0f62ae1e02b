"""LabelEncoder and LabelBinarizer on one column, the one that holds the labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def label_schema(model: Any) -> Schema:
    """One column, since labels have no name."""
    return Schema(None, 1)


def label_encoder(model: Any, frame: Frame) -> Outputs:
    """The number of the class, a whole one; an unknown label raises."""
    check(model, "classes_")
    classes, missing = _classes(model)
    codes = _codes(model, frame, classes, missing)
    b = frame.builder
    codes = b.op("require_known", codes, feature=frame.names[0], step="LabelEncoder")
    return Outputs({"transform": codes})


def label_binarizer(model: Any, frame: Frame) -> Frame:
    """pos_label in the column of the class and neg_label elsewhere; one column for two classes.

    An unknown label has neg_label everywhere; NULL raises.
    """
    check(model, "classes_", "y_type_")
    if str(model.y_type_).startswith("multilabel"):
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on a 0/1 matrix of labels, which it passes through; leave "
            "the step out"
        )
    classes, missing = _classes(model)
    if missing != -1:
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on missing labels, which it refuses later; drop those rows"
        )
    b = frame.builder
    codes = _codes(model, frame, classes, -1, refuse_null=True)
    hot = b.op("one_hot", codes, width=classes.size, dtype="bool")
    if classes.size == 1:
        hot = b.op("and", hot, False)
    elif classes.size == 2:
        hot = b.op("select", hot, indices=np.ones(1, np.int64))
    value = b.op("where", hot, float(model.pos_label), float(model.neg_label))
    names = [f"{frame.names[0]}_{c}" for c in model.classes_][-value.type.width :]
    return Frame(b, (value,), tuple(names), bool(model.sparse_output))


def _classes(model: Any) -> tuple[Array, int]:
    """The classes as encode takes them (float64 or strings), and the place of a missing one."""
    raw = np.asarray(model.classes_)
    items = [c.item() if isinstance(c, np.generic) else c for c in raw]
    gone = [i for i, c in enumerate(items) if c is None or c != c]
    if len(gone) > 1 or (gone and gone[0] != len(items) - 1):
        raise UnsupportedModelError(
            f"{type(model).__name__} has the classes None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit"
        )
    known = items[: gone[0]] if gone else items
    missing = gone[0] if gone else -1
    if all(isinstance(c, str) for c in known):
        return np.array(known, object), missing
    values = np.array([float(c) for c in known if isinstance(c, (bool, int, float))])
    if values.size != len(known) or any(
        int(v) != c for v, c in zip(values, known, strict=True) if isinstance(c, int)
    ):
        raise UnsupportedModelError(
            f"{type(model).__name__} has classes that are neither strings nor numbers that DOUBLE "
            "holds; convert them to strings"
        )
    return values, missing


def _codes(
    model: Any, frame: Frame, classes: Array, missing: int, refuse_null: bool = False
) -> Value:
    b, step = frame.builder, type(model).__name__
    if classes.dtype == object:
        x = frame.strings(0)
        codes = b.op("encode", x, categories=classes, missing=missing)
        return _without_null(b, x, codes, frame.names[0], step) if refuse_null else codes
    kind = np.asarray(model.classes_).dtype.kind
    if refuse_null or kind in "biu":
        x = numbers(frame, step)
    else:
        x = frame.matrix()
    if refuse_null:
        x = _whole(b, x, frame.names[0], step)
    elif kind in "iu":
        x = b.op("trunc", x)  # column_or_1d casts the labels to the dtype of the classes
    if kind == "b":
        x = b.op("cast", b.op("cast", x, dtype="bool"), dtype="float64")
    return b.op("encode", x, categories=classes, missing=missing)


def _whole(b: Builder, x: Value, feature: str, step: str) -> Value:
    """x, checked to hold only integers: others are not labels ("continuous")."""
    whole = b.op("eq", x, b.op("trunc", x))
    small = b.op("lt", b.op("abs", x), 2.0**63)
    bad = b.op("cast", b.op("not", b.op("and", whole, small)), dtype="int64")
    none = b.op("require_known", b.op("neg", bad), feature=feature, step=step)
    return b.op("add", x, b.op("cast", none, dtype="float64"))


def _without_null(b: Builder, x: Value, codes: Value, feature: str, step: str) -> Value:
    """`codes`, once every string is there."""
    gone = b.op("neg", b.op("cast", b.op("isnan", x), dtype="int64"))
    return b.op("add", codes, b.op("require_known", gone, feature=feature, step=step))
