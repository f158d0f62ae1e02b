"""Encoders: OneHotEncoder, OrdinalEncoder, TargetEncoder, LabelEncoder and LabelBinarizer.

The encoders follow `sklearn/preprocessing/_encoders.py`, but number categories in another order, so
that a subtraction groups the infrequent categories. If there are infrequent categories, their group
is 0, and the frequent categories are 1, 2, ...; otherwise, the categories are 0, 1, ... A missing
category is last, unless it is infrequent. `slots` maps such a code to scikit-learn's number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, to_python
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator, make_option_error
from sqlml.ir.builder import Builder, Value
from sqlml.types import DATETIME, Array, Kind

Missing = Literal["nan", "none"]
Unknown = Literal["raise", "keep", "group"]


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """The categories of one column of an encoder.

    `values` are the present categories: float64 (dates as microseconds since 1970) or object
    (strings). The first `num_infrequent` of them are infrequent. `group` is the code of the
    infrequent group, or None if there is no group. `missing` is the kind of the missing category,
    and `missing_code` is its code, or -1. `slots` maps each code to scikit-learn's number.
    `has_floats` is true if the training column had a float dtype.
    """

    kind: Kind
    values: Array
    num_infrequent: int
    missing: Missing | None
    missing_code: int
    group: int | None
    slots: tuple[int, ...]
    has_floats: bool

    def encode(self, frame: Frame, i: int, step: str, *, unknown: Unknown) -> Value:
        """Encode column `i` of the frame as (n, 1) int64 codes.

        An unknown category raises an error while scoring if `unknown` is "raise", gets the code -1
        if `unknown` is "keep", and otherwise the code of the infrequent group.
        """
        op = frame.builder.op
        encoded_null = -1 if self.missing is None else int(self.values.size)
        if encoded_null > 0 and self.missing_code == self.group and self.num_infrequent:
            encoded_null = 0  # This is an infrequent category's code, which is grouped below.
        column = self._read_column(frame, i, step)
        codes = op("encode", column, categories=self.values, missing=encoded_null)
        if unknown == "raise":
            codes = op("require_known", codes, feature=frame.names[i], step=step)
        if self.group is None:
            return codes
        grouped = codes
        if self.num_infrequent > 1:
            grouped = op("maximum", op("sub", codes, self.num_infrequent - 1), 0)
        if unknown == "raise":
            return grouped
        return op("where", op("lt", codes, 0), -1 if unknown == "keep" else self.group, grouped)

    def _read_column(self, frame: Frame, i: int, step: str) -> Value:
        if self.kind == "string":
            column = frame.read_strings(i)
            node = frame.builder.node(column)
            if self.missing == "none" and node.op == "fill" and "missing" not in node.attrs:
                raise UnsupportedModelError(
                    f"column {frame.names[i]!r}: the imputer before {step} fills NaN and leaves "
                    "None, which then becomes a category; SQL has one NULL, so fit both with "
                    "SimpleImputer(missing_values=None)"
                )
            return column
        if self.kind == DATETIME:
            return frame.read_moments(i)
        column = frame.read_numbers(i)
        if not self.has_floats:
            return column
        attrs = {"features": (frame.names[i],), "allow_nan": True, "step": step}
        return frame.builder.op("require_finite", column, **attrs)


def read_categories(model: Any, i: int, feature: str, *, group_missing: bool) -> Categories:
    """Read the categories of column `i`; if `group_missing` is true, NaN may be infrequent."""
    raw_categories = np.asarray(model.categories_[i])
    dates = _to_microseconds(raw_categories)
    categories = to_python(raw_categories if dates is None else dates)
    null_indices = _find_null_indices(categories)
    if len(null_indices) > 1:
        raise UnsupportedModelError(
            f"column {feature!r} has the categories None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit, e.g. df.fillna(np.nan)"
        )
    null_index = null_indices[0] if null_indices else None
    missing: Missing | None = None
    if null_index is not None:
        missing = "none" if categories[null_index] is None else "nan"
    is_separate = missing == "nan" and not group_missing
    infrequent, slots = _group_rare(model, i, len(categories), null_index if is_separate else None)
    present_indices = [j for j in range(len(categories)) if j != null_index]
    rare = [j for j in present_indices if j in infrequent]
    common = [j for j in present_indices if j not in infrequent]
    ordered_categories = [categories[j] for j in [*rare, *common]]
    kind, values = _convert_categories(ordered_categories, raw_categories.dtype, feature)
    kind = kind if dates is None else DATETIME
    slots_by_code = [slots[j] for j in [*rare[:1], *common]]
    missing_code = -1
    if null_index is not None and rare and null_index in infrequent:
        missing_code = 0
    elif null_index is not None:
        missing_code = len(slots_by_code)
        slots_by_code.append(slots[null_index])
    group = slots_by_code.index(slots[min(infrequent)]) if infrequent else None
    codes = (missing_code, group, tuple(slots_by_code))
    return Categories(kind, values, len(rare), missing, *codes, raw_categories.dtype.kind == "f")


def _find_null_indices(values: Sequence[Any]) -> list[int]:
    return [i for i, value in enumerate(values) if value is None or value != value]


def _to_microseconds(values: Array) -> Array | None:
    """Convert dates to microseconds since 1970, or return None if this is not exact."""
    if values.dtype == object and values.size and all(isinstance(c, date | None) for c in values):
        values = values.astype("datetime64[us]")
    if values.dtype.kind != "M":
        return None
    rounded = values.astype("datetime64[us]")
    if (rounded.astype(values.dtype) != values)[~np.isnat(values)].any():
        return None  # The engine's timestamps are not more precise than microseconds.
    return np.where(np.isnat(values), np.nan, rounded.astype(np.int64).astype(np.float64))


def _find_infrequent(model: Any, i: int) -> set[int]:
    if not getattr(model, "_infrequent_enabled", False) or model._infrequent_indices[i] is None:
        return set()
    return {int(j) for j in model._infrequent_indices[i]}


def _group_rare(model: Any, i: int, count: int, separate: int | None) -> tuple[set[int], list[int]]:
    """Return the infrequent indices and all slots; the index `separate` is never grouped."""
    infrequent = _find_infrequent(model, i)
    frequent = [j for j in range(count) if j not in infrequent and j != separate]
    slots = [len(frequent)] * count
    for slot, j in enumerate(frequent):
        slots[j] = slot
    if separate is not None:
        slots[separate] = len(frequent) + bool(infrequent)
    return infrequent, slots


def _convert_categories(
    categories: Sequence[Any], raw_dtype: np.dtype[Any], feature: str
) -> tuple[Kind, Array]:
    if all(isinstance(c, str) for c in categories) and raw_dtype.kind in "OU":
        return "string", np.array(categories, object)
    is_too_precise = raw_dtype.kind in "Mm" and not all(isinstance(c, float) for c in categories)
    if is_too_precise or not all(isinstance(c, bool | int | float) for c in categories):
        types = {raw_dtype.name} if is_too_precise else {type(c).__name__ for c in categories}
        type_names = ", ".join(sorted(types))
        raise UnsupportedModelError(
            f"column {feature!r} has categories of type {type_names}; sqlml supports strings, "
            "numbers and booleans, or dates to the microsecond, but not a mixture: cast the column "
            "before fit"
        )
    values = np.array(categories, np.float64)
    if _loses_precision(values, categories):
        raise UnsupportedModelError(
            f"column {feature!r} has integers above 2^53 as categories, which DOUBLE cannot tell "
            "apart; convert them to strings"
        )
    return "number", values


def _loses_precision(values: Array, originals: Sequence[Any]) -> bool:
    return any(int(v) != c for v, c in zip(values, originals, strict=True) if isinstance(c, int))


UNKNOWN: Mapping[str, Unknown] = {
    "error": "raise",
    "ignore": "keep",
    "infrequent_if_exist": "group",
    "warn": "group",
}


def import_one_hot_encoder(model: Any, frame: Frame) -> Frame:
    """Return a 0/1 column for each category that the option `drop` does not remove."""
    check_estimator(model, "categories_", "drop_idx_")
    if model.handle_unknown not in UNKNOWN:
        raise make_option_error(model, "handle_unknown")
    frames = [_encode_one_hot(model, frame, i) for i in range(frame.width)]
    return replace(Frame.hstack(frame.builder, frames), sparse=bool(model.sparse_output))


def _encode_one_hot(model: Any, frame: Frame, i: int) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=True)
    builder = frame.builder
    codes = categories.encode(frame, i, "OneHotEncoder", unknown=UNKNOWN[model.handle_unknown])
    indicators = builder.op("one_hot", codes, width=len(categories.slots), dtype="float64")
    dropped_slot = _find_dropped_slot(model, i)
    code_by_slot = {slot: code for code, slot in enumerate(categories.slots)}
    columns = [code_by_slot[slot] for slot in range(len(code_by_slot)) if slot != dropped_slot]
    if columns != list(range(len(categories.slots))):
        indicators = builder.op("select", indicators, indices=np.array(columns, np.int64))
    names = [_name_column(frame.names[i], categories, code) for code in columns]
    return Frame.from_value(builder, indicators, names)


def _find_dropped_slot(model: Any, i: int) -> int | None:
    """Return the slot that the option `drop` removes from column `i`, or None."""
    if model.drop_idx_ is None or model.drop_idx_[i] is None:
        return None
    dropped_index = int(model.drop_idx_[i])
    infrequent = _find_infrequent(model, i)
    if dropped_index in infrequent:
        return len(model.categories_[i]) - len(infrequent)
    return dropped_index - sum(j < dropped_index for j in infrequent)


def _name_column(feature: str, categories: Categories, code: int) -> str:
    if code == categories.group:
        return f"{feature}_infrequent_sklearn"
    if code == categories.missing_code:
        return f"{feature}_NULL"
    return f"{feature}_{categories.values[code + max(0, categories.num_infrequent - 1)]}"


def import_ordinal_encoder(model: Any, frame: Frame) -> Frame:
    check_estimator(model, "categories_")
    dtype = np.dtype(model.dtype)
    if not _can_hold_codes(dtype, model):
        raise UnsupportedModelError(
            f"OrdinalEncoder(dtype={dtype.name}) wraps or rounds its codes; use float64"
        )
    columns = (_encode_ordinal(model, frame, i) for i in range(frame.width))
    return Frame.hstack(frame.builder, columns)


def _can_hold_codes(dtype: np.dtype[Any], model: Any) -> bool:
    if dtype.kind not in "iuf":
        return False
    output_values = [float(max(map(len, model.categories_), default=0))]
    if model.handle_unknown == "use_encoded_value":
        output_values.append(float(model.unknown_value))
    output_values.append(float(getattr(model, "encoded_missing_value", np.nan)))
    finite_values = np.array([value for value in output_values if value == value])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(((finite_values >= info.min) & (finite_values <= info.max)).all())
    is_exact = (finite_values.astype(dtype) == finite_values).all()
    return bool(is_exact and finite_values[0] <= 2 / np.finfo(dtype).eps)


def _encode_ordinal(model: Any, frame: Frame, i: int) -> Frame:
    op = frame.builder.op
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    uses_value = model.handle_unknown == "use_encoded_value"
    codes = categories.encode(frame, i, "OrdinalEncoder", unknown="keep" if uses_value else "raise")
    ordinals = op("cast", codes, dtype="float64")
    slots = categories.slots
    if slots != tuple(range(len(slots))):
        ordinals = _move_group_last(frame.builder, ordinals, slots, frame.names[i])
    if categories.missing == "nan":
        is_missing = op("eq", codes, categories.missing_code)
        ordinals = op("where", is_missing, float(model.encoded_missing_value), ordinals)
    if uses_value:
        ordinals = op("where", op("lt", codes, 0), float(model.unknown_value), ordinals)
    return Frame.from_value(frame.builder, ordinals, [frame.names[i]])


def _move_group_last(builder: Builder, codes: Value, slots: tuple[int, ...], feature: str) -> Value:
    """Move the infrequent group, whose code is 0, to the end, like scikit-learn."""
    op = builder.op
    group = slots[0]
    if slots[1 : group + 1] != tuple(range(group)):
        raise UnsupportedModelError(
            f"column {feature!r}: put None last in OrdinalEncoder(categories=...), as "
            "categories='auto' does"
        )
    return op("where", op("eq", codes, 0.0), float(group), op("sub", codes, 1.0))


def import_target_encoder(model: Any, frame: Frame) -> Frame:
    """Return one encoding per column or, for a multiclass target, per column and class."""
    check_estimator(model, "categories_", "encodings_", "target_mean_")
    target_means = np.atleast_1d(np.asarray(model.target_mean_, np.float64))
    if len(model.encodings_) != frame.width * target_means.size:
        raise UnsupportedModelError(
            f"TargetEncoder has {len(model.encodings_)} encodings for {frame.width} columns and "
            f"{target_means.size} targets; fit it again"
        )
    frames = [_encode_by_target(model, frame, i, target_means) for i in range(frame.width)]
    return Frame.hstack(frame.builder, frames)


def _encode_by_target(model: Any, frame: Frame, i: int, target_means: Array) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    codes = categories.encode(frame, i, "TargetEncoder", unknown="keep")
    slots = np.array(categories.slots, np.int64)
    codes = frame.builder.op("where", frame.builder.op("lt", codes, 0), slots.size, codes)
    values = []
    for target, mean in enumerate(target_means):
        encoding = np.asarray(model.encodings_[i * target_means.size + target], np.float64)
        values.append(frame.builder.op("take", np.append(encoding[slots], mean), codes))
    name = frame.names[i]
    names = [name] if target_means.size == 1 else [f"{name}_{c}" for c in model.classes_]
    return Frame(frame.builder, tuple(values), tuple(names))


def read_label_schema(model: Any) -> Schema:
    return Schema(None, 1)


def import_label_encoder(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "classes_")
    classes, missing_index = _read_classes(model)
    codes = _encode_labels(model, frame, classes, missing_index)
    codes = frame.builder.op("require_known", codes, feature=frame.names[0], step="LabelEncoder")
    return Outputs({"transform": codes})


def import_label_binarizer(model: Any, frame: Frame) -> Frame:
    """Return one column per class: `pos_label` in rows of the class, and `neg_label` elsewhere.

    If there are two classes, return only the column of the second class.
    """
    check_estimator(model, "classes_", "y_type_")
    if str(model.y_type_).startswith("multilabel"):
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on a 0/1 matrix of labels, which it passes through; leave "
            "the step out"
        )
    classes, missing_index = _read_classes(model)
    if missing_index != -1:
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on missing labels, which its transform rejects; drop these "
            "rows"
        )
    op = frame.builder.op
    codes = _encode_labels(model, frame, classes, -1, refuse_null=True)
    indicators = op("one_hot", codes, width=classes.size, dtype="bool")
    if classes.size == 1:
        indicators = op("and", indicators, False)
    elif classes.size == 2:
        indicators = op("select", indicators, indices=np.ones(1, np.int64))
    outputs = op("where", indicators, float(model.pos_label), float(model.neg_label))
    names = [f"{frame.names[0]}_{c}" for c in model.classes_][-outputs.type.width :]
    return Frame(frame.builder, (outputs,), tuple(names), bool(model.sparse_output))


def _read_classes(model: Any) -> tuple[Array, int]:
    """Return the classes, float64 or strings, and the index of the missing class, or -1."""
    classes = to_python(np.asarray(model.classes_))
    null_indices = _find_null_indices(classes)
    if len(null_indices) > 1 or (null_indices and null_indices[0] != len(classes) - 1):
        raise UnsupportedModelError(
            f"{type(model).__name__} has the classes None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit"
        )
    known_classes = classes[: null_indices[0]] if null_indices else classes
    missing_index = null_indices[0] if null_indices else -1
    if all(isinstance(c, str) for c in known_classes):
        return np.array(known_classes, object), missing_index
    values = np.array([float(c) for c in known_classes if isinstance(c, bool | int | float)])
    if values.size != len(known_classes) or _loses_precision(values, known_classes):
        raise UnsupportedModelError(
            f"{type(model).__name__} has classes that are neither strings nor exact DOUBLEs; "
            "convert them to strings"
        )
    return values, missing_index


def _encode_labels(
    model: Any, frame: Frame, classes: Array, missing_code: int, refuse_null: bool = False
) -> Value:
    op = frame.builder.op
    step = type(model).__name__
    if classes.dtype == object:
        x = frame.read_strings(0)
        codes = op("encode", x, categories=classes, missing=missing_code)
        if not refuse_null:
            return codes
        is_null = op("neg", op("cast", op("isnan", x), dtype="int64"))
        return op("add", codes, op("require_known", is_null, feature=frame.names[0], step=step))
    class_kind = np.asarray(model.classes_).dtype.kind
    x = check_array(frame, step) if refuse_null or class_kind in "biu" else frame.matrix()
    if refuse_null:
        x = _require_integers(frame.builder, x, frame.names[0], step)
    elif class_kind in "iu":
        x = op("trunc", x)  # column_or_1d casts labels to the dtype of the classes.
    if class_kind == "b":
        x = op("cast", op("cast", x, dtype="bool"), dtype="float64")
    return op("encode", x, categories=classes, missing=missing_code)


def _require_integers(builder: Builder, x: Value, feature: str, step: str) -> Value:
    """Return `x` with a check that raises an error while scoring for other than integers."""
    op = builder.op
    is_integer = op("and", op("eq", x, op("trunc", x)), op("lt", op("abs", x), 2.0**63))
    invalid = op("cast", op("not", is_integer), dtype="int64")
    zero = op("require_known", op("neg", invalid), feature=feature, step=step)
    return op("add", x, op("cast", zero, dtype="float64"))
