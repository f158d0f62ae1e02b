"""Encoders: OneHotEncoder, OrdinalEncoder, TargetEncoder, LabelEncoder and LabelBinarizer.

Source: `sklearn/preprocessing/_encoders.py`. Codes have an order of our own, in which grouping
needs one subtraction and no table:

* with infrequent values, 0 is the infrequent group and 1.. are the frequent categories in
  scikit-learn's order; without, 0.. are the frequent categories;
* a missing category (NaN or None) is last, unless it belongs to the group.

`slots` maps such a code to the number that scikit-learn gives the category after grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, to_python
from sqlml.importers.sklearn.estimator_checks import check, explain_option, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.types import DATETIME, Array, Kind

Missing = Literal["nan", "none"]
Unknown = Literal["raise", "keep", "group"]


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """The categories of one column of an encoder.

    `values` are those that are not missing, the `infrequent` ones first; float64 (dates as
    microseconds since 1970) or object (strings). `group` is the code of the infrequent group.
    """

    kind: Kind
    values: Array
    infrequent: int
    missing: Missing | None
    missing_code: int
    group: int | None
    slots: tuple[int, ...]
    floats: bool

    def codes(self, frame: Frame, i: int, step: str, *, unknown: Unknown) -> Value:
        """Return column `i` as (n, 1) int64 codes.

        An `unknown` category raises while scoring, keeps -1, or gets the group's code (or -1).
        """
        b = frame.builder
        missing = -1 if self.missing is None else int(self.values.size)
        if missing > 0 and self.missing_code == self.group and self.infrequent:
            missing = 0  # It is grouped below.
        column = self._read_column(frame, i, step)
        codes = b.op("encode", column, categories=self.values, missing=missing)
        if unknown == "raise":
            codes = b.op("require_known", codes, feature=frame.names[i], step=step)
        if self.group is None:
            return codes
        grouped = codes
        if self.infrequent > 1:
            grouped = b.op("maximum", b.op("sub", codes, self.infrequent - 1), 0)
        if unknown == "raise":
            return grouped
        return b.op("where", b.op("lt", codes, 0), -1 if unknown == "keep" else self.group, grouped)

    def _read_column(self, frame: Frame, i: int, step: str) -> Value:
        if self.kind == "string":
            column = frame.strings(i)
            node = frame.builder.node(column)
            if self.missing == "none" and node.op == "fill" and "missing" not in node.attrs:
                raise UnsupportedModelError(
                    f"column {frame.names[i]!r}: the imputer before {step} fills NaN and leaves "
                    "None, which then becomes a category; SQL has one NULL, so fit both with "
                    "SimpleImputer(missing_values=None)"
                )
            return column
        if self.kind == DATETIME:
            return frame.moments(i)
        column = frame.numbers(i)
        if not self.floats:
            return column
        return frame.builder.op(
            "require_finite", column, features=(frame.names[i],), allow_nan=True, step=step
        )


def read_categories(model: Any, i: int, feature: str, *, group_missing: bool) -> Categories:
    """Read the categories of column `i`; `group_missing` includes NaN in grouping."""
    raw = np.asarray(model.categories_[i])
    dates = _to_microseconds(raw)
    items = to_python(raw if dates is None else dates)
    nulls = _find_nulls(items)
    if len(nulls) > 1:
        raise UnsupportedModelError(
            f"column {feature!r} has the categories None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit, e.g. df.fillna(np.nan)"
        )
    null = nulls[0] if nulls else None
    missing: Missing | None = None if null is None else "none" if items[null] is None else "nan"
    is_apart = missing == "nan" and not group_missing
    infrequent, slots = _group_infrequent(model, i, len(items), null if is_apart else None)
    known = [j for j in range(len(items)) if j != null]
    rare = [j for j in known if j in infrequent]
    common = [j for j in known if j not in infrequent]
    kind, values = _convert_categories([items[j] for j in [*rare, *common]], raw, feature)
    kind = kind if dates is None else DATETIME
    order = [*[slots[j] for j in rare[:1]], *[slots[j] for j in common]]
    missing_code = -1
    if null is not None and rare and null in infrequent:
        missing_code = 0
    elif null is not None:
        missing_code = len(order)
        order.append(slots[null])
    group = order.index(slots[min(infrequent)]) if infrequent else None
    return Categories(
        kind, values, len(rare), missing, missing_code, group, tuple(order), raw.dtype.kind == "f"
    )


def _find_nulls(items: Sequence[Any]) -> list[int]:
    return [i for i, item in enumerate(items) if item is None or item != item]


def _to_microseconds(raw: Array) -> Array | None:
    """Return dates as float64 microseconds since 1970; None for other categories."""
    if raw.dtype == object and raw.size and all(isinstance(c, date | None) for c in raw):
        raw = raw.astype("datetime64[us]")
    if raw.dtype.kind != "M":
        return None
    rounded = raw.astype("datetime64[us]")
    if (rounded.astype(raw.dtype) != raw)[~np.isnat(raw)].any():
        return None  # Columns of the engine do not tell nanoseconds apart here.
    return np.where(np.isnat(raw), np.nan, rounded.astype(np.int64).astype(np.float64))


def _list_infrequent(model: Any, i: int) -> set[int]:
    rare = model._infrequent_indices[i] if getattr(model, "_infrequent_enabled", False) else None
    return set() if rare is None else {int(j) for j in rare}


def _group_infrequent(
    model: Any, i: int, count: int, apart: int | None
) -> tuple[set[int], list[int]]:
    """Return the infrequent categories, and the number of each category after grouping.

    `apart` is a missing category outside the grouping; it gets the last number.
    """
    infrequent = _list_infrequent(model, i)
    frequent = [j for j in range(count) if j not in infrequent and j != apart]
    slots = [len(frequent)] * count
    for slot, j in enumerate(frequent):
        slots[j] = slot
    if apart is not None:
        slots[apart] = len(frequent) + bool(infrequent)
    return infrequent, slots


def _convert_categories(items: Sequence[Any], raw: Array, feature: str) -> tuple[Kind, Array]:
    if all(isinstance(c, str) for c in items) and raw.dtype.kind in "OU":
        return "string", np.array(items, object)
    is_fine = raw.dtype.kind in "Mm" and not all(isinstance(c, float) for c in items)
    if is_fine or not all(isinstance(c, bool | int | float) for c in items):
        kinds = raw.dtype.name if is_fine else ", ".join(sorted({type(c).__name__ for c in items}))
        raise UnsupportedModelError(
            f"column {feature!r} has categories of type {kinds}; sqlml takes strings, numbers "
            "and booleans, or dates to the microsecond, but not a mixture: cast the column before "
            "fit"
        )
    values = np.array(items, np.float64)
    if _are_rounded(values, items):
        raise UnsupportedModelError(
            f"column {feature!r} has integers above 2^53 as categories, which DOUBLE cannot tell "
            "apart; convert them to strings"
        )
    return "number", values


def _are_rounded(values: Array, items: Sequence[Any]) -> bool:
    return any(int(v) != c for v, c in zip(values, items, strict=True) if isinstance(c, int))


UNKNOWN: Mapping[str, Unknown] = {
    "error": "raise",
    "ignore": "keep",
    "infrequent_if_exist": "group",
    "warn": "group",
}


def one_hot_encoder(model: Any, frame: Frame) -> Frame:
    """Return (n, sum of kept categories) float64 of 0 and 1."""
    check(model, "categories_", "drop_idx_")
    if model.handle_unknown not in UNKNOWN:
        raise explain_option(model, "handle_unknown")
    parts = [_one_hot_column(model, frame, i) for i in range(frame.width)]
    return replace(Frame.hstack(frame.builder, parts), sparse=bool(model.sparse_output))


def _one_hot_column(model: Any, frame: Frame, i: int) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=True)
    b = frame.builder
    codes = categories.codes(frame, i, "OneHotEncoder", unknown=UNKNOWN[model.handle_unknown])
    value = b.op("one_hot", codes, width=len(categories.slots), dtype="float64")
    dropped = _find_dropped_slot(model, i)
    code_of = {slot: code for code, slot in enumerate(categories.slots)}
    columns = [code_of[slot] for slot in range(len(code_of)) if slot != dropped]
    if columns != list(range(len(categories.slots))):
        value = b.op("select", value, indices=np.array(columns, np.int64))
    names = [_name_column(frame.names[i], categories, code) for code in columns]
    return Frame.from_value(b, value, names)


def _find_dropped_slot(model: Any, i: int) -> int | None:
    """Return the number, after grouping, of the category that `drop` removes."""
    if model.drop_idx_ is None or model.drop_idx_[i] is None:
        return None
    dropped, rare = int(model.drop_idx_[i]), _list_infrequent(model, i)
    if dropped in rare:
        return len(model.categories_[i]) - len(rare)
    return dropped - sum(j < dropped for j in rare)


def _name_column(feature: str, categories: Categories, code: int) -> str:
    if code == categories.group:
        return f"{feature}_infrequent_sklearn"
    if code == categories.missing_code:
        return f"{feature}_NULL"
    first = categories.infrequent - 1 if categories.infrequent else 0
    return f"{feature}_{categories.values[code + first]}"


def ordinal_encoder(model: Any, frame: Frame) -> Frame:
    check(model, "categories_")
    dtype = np.dtype(model.dtype)
    if not _can_hold_codes(dtype, model):
        raise UnsupportedModelError(
            f"OrdinalEncoder(dtype={dtype.name}) wraps or rounds its codes; use float64"
        )
    parts = [_ordinal_column(model, frame, i) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _can_hold_codes(dtype: np.dtype[Any], model: Any) -> bool:
    if dtype.kind not in "iuf":
        return False
    written = [float(max(map(len, model.categories_), default=0))]
    if model.handle_unknown == "use_encoded_value":
        written.append(float(model.unknown_value))
    written.append(float(getattr(model, "encoded_missing_value", np.nan)))
    numbers = np.array([n for n in written if n == n])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(((numbers >= info.min) & (numbers <= info.max)).all())
    return bool((numbers.astype(dtype) == numbers).all() and numbers[0] <= 2 / np.finfo(dtype).eps)


def _ordinal_column(model: Any, frame: Frame, i: int) -> Frame:
    b = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    uses_value = model.handle_unknown == "use_encoded_value"
    codes = categories.codes(frame, i, "OrdinalEncoder", unknown="keep" if uses_value else "raise")
    value = b.op("cast", codes, dtype="float64")
    slots = categories.slots
    if slots != tuple(range(len(slots))):
        value = _move_group_last(b, value, slots, frame.names[i])
    if categories.missing == "nan":
        is_missing = b.op("eq", codes, categories.missing_code)
        value = b.op("where", is_missing, float(model.encoded_missing_value), value)
    if uses_value:
        value = b.op("where", b.op("lt", codes, 0), float(model.unknown_value), value)
    return Frame.from_value(b, value, [frame.names[i]])


def _move_group_last(b: Builder, value: Value, slots: tuple[int, ...], feature: str) -> Value:
    """Convert our codes (infrequent group first) to scikit-learn's (group last)."""
    group = slots[0]
    if slots[1 : group + 1] != tuple(range(group)):
        raise UnsupportedModelError(
            f"column {feature!r}: put None last in OrdinalEncoder(categories=...), as "
            "categories='auto' does"
        )
    return b.op("where", b.op("eq", value, 0.0), float(group), b.op("sub", value, 1.0))


def target_encoder(model: Any, frame: Frame) -> Frame:
    """Return one float64 column per column, or per column and class for more than two classes."""
    check(model, "categories_", "encodings_", "target_mean_")
    means = np.atleast_1d(np.asarray(model.target_mean_, np.float64))
    if len(model.encodings_) != frame.width * means.size:
        raise UnsupportedModelError(
            f"TargetEncoder has {len(model.encodings_)} encodings for {frame.width} columns and "
            f"{means.size} targets; fit it again"
        )
    parts = [_target_column(model, frame, i, means) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _target_column(model: Any, frame: Frame, i: int, means: Array) -> Frame:
    b = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    codes = categories.codes(frame, i, "TargetEncoder", unknown="keep")
    slots = np.array(categories.slots, np.int64)
    codes = b.op("where", b.op("lt", codes, 0), slots.size, codes)
    values = []
    for t, mean in enumerate(means):
        encoding = np.asarray(model.encodings_[i * means.size + t], np.float64)
        values.append(b.op("take", np.append(encoding[slots], mean), codes))
    name = frame.names[i]
    names = [name] if means.size == 1 else [f"{name}_{c}" for c in model.classes_]
    return Frame(b, tuple(values), tuple(names))


def label_schema(model: Any) -> Schema:
    return Schema(None, 1)


def label_encoder(model: Any, frame: Frame) -> Outputs:
    check(model, "classes_")
    classes, missing = _read_classes(model)
    codes = _encode_labels(model, frame, classes, missing)
    codes = frame.builder.op("require_known", codes, feature=frame.names[0], step="LabelEncoder")
    return Outputs({"transform": codes})


def label_binarizer(model: Any, frame: Frame) -> Frame:
    """Return pos_label in the column of the class, neg_label elsewhere; one column for two classes.

    An unknown label has neg_label everywhere; NULL raises.
    """
    check(model, "classes_", "y_type_")
    if str(model.y_type_).startswith("multilabel"):
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on a 0/1 matrix of labels, which it passes through; leave "
            "the step out"
        )
    classes, missing = _read_classes(model)
    if missing != -1:
        raise UnsupportedModelError(
            "LabelBinarizer was fitted on missing labels, which it refuses later; drop those rows"
        )
    b = frame.builder
    codes = _encode_labels(model, frame, classes, -1, refuse_null=True)
    hot = b.op("one_hot", codes, width=classes.size, dtype="bool")
    if classes.size == 1:
        hot = b.op("and", hot, False)
    elif classes.size == 2:
        hot = b.op("select", hot, indices=np.ones(1, np.int64))
    value = b.op("where", hot, float(model.pos_label), float(model.neg_label))
    names = [f"{frame.names[0]}_{c}" for c in model.classes_][-value.type.width :]
    return Frame(b, (value,), tuple(names), bool(model.sparse_output))


def _read_classes(model: Any) -> tuple[Array, int]:
    """Return the classes for `encode` (float64 or strings), and the missing one's index or -1."""
    items = to_python(np.asarray(model.classes_))
    nulls = _find_nulls(items)
    if len(nulls) > 1 or (nulls and nulls[0] != len(items) - 1):
        raise UnsupportedModelError(
            f"{type(model).__name__} has the classes None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit"
        )
    known = items[: nulls[0]] if nulls else items
    missing = nulls[0] if nulls else -1
    if all(isinstance(c, str) for c in known):
        return np.array(known, object), missing
    values = np.array([float(c) for c in known if isinstance(c, bool | int | float)])
    if values.size != len(known) or _are_rounded(values, known):
        raise UnsupportedModelError(
            f"{type(model).__name__} has classes that are neither strings nor numbers that DOUBLE "
            "holds; convert them to strings"
        )
    return values, missing


def _encode_labels(
    model: Any, frame: Frame, classes: Array, missing: int, refuse_null: bool = False
) -> Value:
    b, step = frame.builder, type(model).__name__
    if classes.dtype == object:
        x = frame.strings(0)
        codes = b.op("encode", x, categories=classes, missing=missing)
        return _check_not_null(b, x, codes, frame.names[0], step) if refuse_null else codes
    kind = np.asarray(model.classes_).dtype.kind
    x = numbers(frame, step) if refuse_null or kind in "biu" else frame.matrix()
    if refuse_null:
        x = _check_integers(b, x, frame.names[0], step)
    elif kind in "iu":
        x = b.op("trunc", x)  # column_or_1d casts labels to the dtype of the classes.
    if kind == "b":
        x = b.op("cast", b.op("cast", x, dtype="bool"), dtype="float64")
    return b.op("encode", x, categories=classes, missing=missing)


def _check_integers(b: Builder, x: Value, feature: str, step: str) -> Value:
    """Check that x contains only integers: other numbers are not labels ("continuous")."""
    is_integer = b.op("and", b.op("eq", x, b.op("trunc", x)), b.op("lt", b.op("abs", x), 2.0**63))
    invalid = b.op("cast", b.op("not", is_integer), dtype="int64")
    zero = b.op("require_known", b.op("neg", invalid), feature=feature, step=step)
    return b.op("add", x, b.op("cast", zero, dtype="float64"))


def _check_not_null(b: Builder, x: Value, codes: Value, feature: str, step: str) -> Value:
    missing = b.op("neg", b.op("cast", b.op("isnan", x), dtype="int64"))
    return b.op("add", codes, b.op("require_known", missing, feature=feature, step=step))
