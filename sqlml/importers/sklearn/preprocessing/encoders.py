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
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.types import DATETIME, Array, Kind

Missing = Literal["nan", "none"]
Unknown = Literal["raise", "keep", "group"]


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """The categories of one column of an encoder.

    `values` are the categories that are not missing, the `infrequent` ones first; float64 (dates as
    microseconds since 1970) or object (strings). `missing` is the kind of the missing category, if
    there is one, and `missing_code` its code. `group` is the code of the infrequent group, or None.
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

        Args:
            unknown: raise UnknownCategoryError while scoring, keep -1, or use the code of the
                infrequent group (-1 if there is none).
        """
        builder = frame.builder
        codes = builder.op(
            "encode", self._column(frame, i, step), categories=self.values, missing=self._missing()
        )
        if unknown == "raise":
            codes = builder.op("require_known", codes, feature=frame.names[i], step=step)
        if self.group is None:
            return codes
        is_unknown = builder.op("lt", codes, 0)
        if self.infrequent > 1:
            grouped = builder.op("maximum", builder.op("sub", codes, self.infrequent - 1), 0)
        else:
            grouped = codes
        if unknown == "raise":
            return grouped
        other = -1 if unknown == "keep" else self.group
        return builder.op("where", is_unknown, other, grouped)

    def _missing(self) -> int:
        """Return the code of a missing value before grouping."""
        if self.missing is None:
            return -1
        if self.missing_code == self.group and self.infrequent:
            return 0
        return int(self.values.size)

    def _column(self, frame: Frame, i: int, step: str) -> Value:
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
    """Read the categories of column `i` of a fitted OneHotEncoder or OrdinalEncoder.

    Args:
        group_missing: include NaN in grouping (OneHotEncoder) or not (OrdinalEncoder).

    Raises:
        UnsupportedModelError: categories of mixed types, of types other than strings, numbers and
            dates, or both NaN and None, which are one NULL in SQL.
    """
    raw = np.asarray(model.categories_[i])
    dates = _microseconds(raw)
    items = [
        c.item() if isinstance(c, np.generic) else c for c in (raw if dates is None else dates)
    ]
    nulls = [j for j, c in enumerate(items) if c is None or c != c]
    if len(nulls) > 1:
        raise UnsupportedModelError(
            f"column {feature!r} has the categories None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit, e.g. df.fillna(np.nan)"
        )
    at = nulls[0] if nulls else None
    missing: Missing | None = None if at is None else "none" if items[at] is None else "nan"
    own_missing = missing == "nan" and not group_missing
    infrequent, slots = _grouping(model, i, len(items), at if own_missing else None)
    known = [j for j in range(len(items)) if j != at]
    rare = [j for j in known if j in infrequent]
    common = [j for j in known if j not in infrequent]
    kind, values = _values([items[j] for j in [*rare, *common]], raw, feature)
    kind = kind if dates is None else DATETIME
    order = [slots[j] for j in common]
    group_slot = slots[next(iter(infrequent))] if infrequent else None
    if rare:
        assert group_slot is not None
        order.insert(0, group_slot)
    missing_code = -1
    if at is not None:
        if rare and at in infrequent:
            missing_code = 0
        else:
            missing_code = len(order)
            order.append(slots[at])
    group = None if group_slot is None else order.index(group_slot)
    return Categories(
        kind, values, len(rare), missing, missing_code, group, tuple(order), raw.dtype.kind == "f"
    )


def _microseconds(raw: Array) -> Array | None:
    """Return dates and timestamps as float64 microseconds since 1970; None for other categories."""
    if raw.dtype == object and raw.size and all(isinstance(c, date | None) for c in raw):
        raw = raw.astype("datetime64[us]")
    if raw.dtype.kind != "M":
        return None
    whole = raw.astype("datetime64[us]")
    if (whole.astype(raw.dtype) != raw)[~np.isnat(raw)].any():
        return None  # nanoseconds, which no column of the engine's tells apart here
    return np.where(np.isnat(raw), np.nan, whole.astype(np.int64).astype(np.float64))


def _grouping(model: Any, i: int, count: int, apart: int | None) -> tuple[set[int], list[int]]:
    """Return the infrequent categories of column `i`, and the number of each after grouping.

    `apart` is a missing category outside the grouping; it gets the last number.
    """
    rare: Array | None = None
    if getattr(model, "_infrequent_enabled", False):
        rare = model._infrequent_indices[i]
    infrequent = set() if rare is None else {int(j) for j in rare}
    frequent = [j for j in range(count) if j not in infrequent and j != apart]
    slots = [len(frequent)] * count
    for slot, j in enumerate(frequent):
        slots[j] = slot
    if apart is not None:
        slots[apart] = len(frequent) + bool(infrequent)
    return infrequent, slots


def _values(items: Sequence[Any], raw: Array, feature: str) -> tuple[Kind, Array]:
    if all(isinstance(c, str) for c in items) and raw.dtype.kind in "OU":
        return "string", np.array(items, object)
    fine = raw.dtype.kind in "Mm" and not all(isinstance(c, float) for c in items)
    if fine or not all(isinstance(c, (bool, int, float)) for c in items):
        kinds = raw.dtype.name if fine else ", ".join(sorted({type(c).__name__ for c in items}))
        raise UnsupportedModelError(
            f"column {feature!r} has categories of type {kinds}; sqlml takes strings, numbers "
            "and booleans, or dates to the microsecond, but not a mixture: cast the column before "
            "fit"
        )
    values = np.array(items, np.float64)
    if any(int(v) != c for v, c in zip(values, items, strict=True) if isinstance(c, int)):
        raise UnsupportedModelError(
            f"column {feature!r} has integers above 2^53 as categories, which DOUBLE cannot tell "
            "apart; convert them to strings"
        )
    return "number", values


UNKNOWN: Mapping[str, Unknown] = MappingProxyType(
    {
        "error": "raise",
        "ignore": "keep",
        "infrequent_if_exist": "group",
        "warn": "group",
    }
)


def one_hot_encoder(model: Any, frame: Frame) -> Frame:
    """Return (n, sum of kept categories) float64 of 0 and 1.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot distinguish.
    """
    check(model, "categories_", "drop_idx_")
    if model.handle_unknown not in UNKNOWN:
        raise UnsupportedModelError(
            f"OneHotEncoder(handle_unknown={model.handle_unknown!r}) is not known to sqlml"
        )
    parts = [_one_hot_column(model, frame, i) for i in range(frame.width)]
    return replace(Frame.hstack(frame.builder, parts), sparse=bool(model.sparse_output))


def _one_hot_column(model: Any, frame: Frame, i: int) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=True)
    builder = frame.builder
    codes = categories.codes(frame, i, "OneHotEncoder", unknown=UNKNOWN[model.handle_unknown])
    value = builder.op("one_hot", codes, width=len(categories.slots), dtype="float64")
    dropped = _dropped_slot(model, i)
    code_of = {slot: code for code, slot in enumerate(categories.slots)}
    columns = [code_of[slot] for slot in range(len(code_of)) if slot != dropped]
    if columns != list(range(len(categories.slots))):
        value = builder.op("select", value, indices=np.array(columns, np.int64))
    return Frame.from_value(
        builder, value, [_column_name(frame.names[i], categories, c) for c in columns]
    )


def _dropped_slot(model: Any, i: int) -> int | None:
    """Return the number, after grouping, of the category that `drop` removes."""
    if model.drop_idx_ is None or model.drop_idx_[i] is None:
        return None
    dropped = int(model.drop_idx_[i])
    rare = model._infrequent_indices[i] if getattr(model, "_infrequent_enabled", False) else None
    if rare is None:
        return dropped
    if dropped in rare:
        return len(model.categories_[i]) - len(rare)
    return dropped - int((np.asarray(rare) < dropped).sum())


def _column_name(feature: str, categories: Categories, code: int) -> str:
    if code == categories.group:
        return f"{feature}_infrequent_sklearn"
    if code == categories.missing_code:
        return f"{feature}_NULL"
    first = categories.infrequent - 1 if categories.infrequent else 0
    return f"{feature}_{categories.values[code + first]}"


def ordinal_encoder(model: Any, frame: Frame) -> Frame:
    """Return one float64 column of category numbers per column.

    Raises:
        UnsupportedModelError: not fitted, categories that SQL cannot distinguish, or a dtype too
            narrow for its codes.
    """
    check(model, "categories_")
    dtype = np.dtype(model.dtype)
    if not _holds(dtype, model):
        raise UnsupportedModelError(
            f"OrdinalEncoder(dtype={dtype.name}) wraps or rounds its codes; use float64"
        )
    parts = [_ordinal_column(model, frame, i) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _holds(dtype: np.dtype[Any], model: Any) -> bool:
    """Return whether `dtype` can represent every number that the encoder may write."""
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
    builder = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    use_value = model.handle_unknown == "use_encoded_value"
    codes = categories.codes(frame, i, "OrdinalEncoder", unknown="keep" if use_value else "raise")
    value = builder.op("cast", codes, dtype="float64")
    slots = categories.slots
    if slots != tuple(range(len(slots))):
        value = _group_last(builder, value, slots, frame.names[i])
    if categories.missing == "nan":
        is_missing = builder.op("eq", codes, categories.missing_code)
        value = builder.op("where", is_missing, float(model.encoded_missing_value), value)
    if use_value:
        is_unknown = builder.op("lt", codes, 0)
        value = builder.op("where", is_unknown, float(model.unknown_value), value)
    return Frame.from_value(builder, value, [frame.names[i]])


def _group_last(builder: Builder, value: Value, slots: tuple[int, ...], feature: str) -> Value:
    """Convert our codes (infrequent group first) to scikit-learn's (group last)."""
    group = slots[0]
    if slots[1 : group + 1] != tuple(range(group)):
        raise UnsupportedModelError(
            f"column {feature!r}: put None last in OrdinalEncoder(categories=...), as "
            "categories='auto' does"
        )
    is_group = builder.op("eq", value, 0.0)
    less_one = builder.op("sub", value, 1.0)
    return builder.op("where", is_group, float(group), less_one)


def target_encoder(model: Any, frame: Frame) -> Frame:
    """Return one float64 column per column, or per column and class for more than two classes.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot distinguish.
    """
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
        table = np.append(encoding[slots], mean)
        values.append(b.op("take", table, codes))
    name = frame.names[i]
    names = [name] if means.size == 1 else [f"{name}_{c}" for c in model.classes_]
    return Frame(b, tuple(values), tuple(names))


def label_schema(model: Any) -> Schema:
    """Return the schema of one column without a name."""
    return Schema(None, 1)


def label_encoder(model: Any, frame: Frame) -> Outputs:
    """Return the integer number of the class; an unknown label raises."""
    check(model, "classes_")
    classes, missing = _classes(model)
    codes = _codes(model, frame, classes, missing)
    b = frame.builder
    codes = b.op("require_known", codes, feature=frame.names[0], step="LabelEncoder")
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
    """Return the classes for `encode` (float64 or strings), and the missing one's index."""
    raw = np.asarray(model.classes_)
    items = [c.item() if isinstance(c, np.generic) else c for c in raw]
    nulls = [i for i, c in enumerate(items) if c is None or c != c]
    if len(nulls) > 1 or (nulls and nulls[0] != len(items) - 1):
        raise UnsupportedModelError(
            f"{type(model).__name__} has the classes None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit"
        )
    known = items[: nulls[0]] if nulls else items
    missing = nulls[0] if nulls else -1
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
        return _check_not_null(b, x, codes, frame.names[0], step) if refuse_null else codes
    kind = np.asarray(model.classes_).dtype.kind
    if refuse_null or kind in "biu":
        x = numbers(frame, step)
    else:
        x = frame.matrix()
    if refuse_null:
        x = _check_integers(b, x, frame.names[0], step)
    elif kind in "iu":
        x = b.op("trunc", x)  # column_or_1d casts the labels to the dtype of the classes
    if kind == "b":
        x = b.op("cast", b.op("cast", x, dtype="bool"), dtype="float64")
    return b.op("encode", x, categories=classes, missing=missing)


def _check_integers(b: Builder, x: Value, feature: str, step: str) -> Value:
    """Check that x contains only integers: other numbers are not labels ("continuous")."""
    whole = b.op("eq", x, b.op("trunc", x))
    small = b.op("lt", b.op("abs", x), 2.0**63)
    bad = b.op("cast", b.op("not", b.op("and", whole, small)), dtype="int64")
    none = b.op("require_known", b.op("neg", bad), feature=feature, step=step)
    return b.op("add", x, b.op("cast", none, dtype="float64"))


def _check_not_null(b: Builder, x: Value, codes: Value, feature: str, step: str) -> Value:
    """Return `codes` after checking that no string is NULL."""
    missing = b.op("neg", b.op("cast", b.op("isnan", x), dtype="int64"))
    return b.op("add", codes, b.op("require_known", missing, feature=feature, step=step))
