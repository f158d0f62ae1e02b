"""`Categories`: one column of an encoder's `categories_`, and its codes in the IR.

Codes are in an order of our own, in which grouping needs one subtraction and no table:

* with infrequent values: 0 is the infrequent group, 1.. the frequent ones in scikit-learn's order;
* without: 0.. the frequent ones;
* last a missing category (NaN or None), unless it belongs to the group.

`slots` maps such a code to the number that scikit-learn gives the category after grouping.
Source: `sklearn/preprocessing/_encoders.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.types import DATETIME, Array, Kind

Missing = Literal["nan", "none"]
Unknown = Literal["raise", "keep", "group"]


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """What an encoder knows of one column.

    `values` are the categories that are not missing, the `infrequent` ones first; float64 (of dates
    microseconds since 1970) or object (strings). `missing` is the kind of the missing category, if
    there is one, and `missing_code` its code. `group` is the code of the infrequent group, None
    without one.
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
        """Column `i` as (n, 1) int64 codes.

        Args:
            unknown: raise UnknownCategoryError at scoring, keep -1, or give the code of the
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
        """The code for a missing value before grouping."""
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
    """The categories of column `i` of a fitted OneHotEncoder or OrdinalEncoder.

    Args:
        group_missing: whether NaN takes part in grouping (OneHotEncoder) or not (OrdinalEncoder).

    Raises:
        UnsupportedModelError: categories of mixed or other types than strings, numbers and dates,
            or both NaN and None, which are one NULL in SQL.
    """
    raw = np.asarray(model.categories_[i])
    dates = _microseconds(raw)
    items = [
        c.item() if isinstance(c, np.generic) else c for c in (raw if dates is None else dates)
    ]
    gone = [j for j, c in enumerate(items) if c is None or c != c]
    if len(gone) > 1:
        raise UnsupportedModelError(
            f"column {feature!r} has the categories None and NaN, which are one NULL in SQL; "
            "replace one with the other before fit, e.g. df.fillna(np.nan)"
        )
    at = gone[0] if gone else None
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
    """Dates and timestamps as microseconds since 1970, float64; None for other categories."""
    if raw.dtype == object and raw.size and all(isinstance(c, date | None) for c in raw):
        raw = raw.astype("datetime64[us]")
    if raw.dtype.kind != "M":
        return None
    whole = raw.astype("datetime64[us]")
    if (whole.astype(raw.dtype) != raw)[~np.isnat(raw)].any():
        return None  # nanoseconds, which no column of the engine's tells apart here
    return np.where(np.isnat(raw), np.nan, whole.astype(np.int64).astype(np.float64))


def _grouping(model: Any, i: int, count: int, apart: int | None) -> tuple[set[int], list[int]]:
    """Infrequent categories of column `i`, and each category's number after grouping.

    `apart` is a missing category outside the grouping; it gets the number after all others.
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
