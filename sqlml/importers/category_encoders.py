"""Importers of category_encoders, which encode each column by a table of its categories."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, category_array
from sqlml.importers.model_checks import unfitted
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

if TYPE_CHECKING:
    import pandas as pd


# `encoded`: what an encoder makes of columns of categories, by asking it.
#
# Encoders keep their tables each in another way, and options change what they make of categories
# that are missing or unseen. Each encodes a column by itself: so it is asked what it makes of
# each category, of one that it has not seen, and of none.


UNSEEN = "a category that sqlml made up"
"""No encoder was trained with it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an encoder makes of one column.

    categories: objects for strings, else float64. made: (k, outputs) for the k categories.
    unseen, missing: (outputs,) for another category, and for none; None where that is an error.
    """

    categories: Array
    made: Array
    unseen: Array | None
    missing: Array | None


def encoded(model: Any, frame: Frame, known: Mapping[Any, Array]) -> Frame:
    """The columns that a fitted encoder makes, in its order; others as they are.

    Args:
        known: the categories that each column had in training, without the missing one: objects for
            strings, else float64.

    Raises:
        UnsupportedModelError: an output depends on several columns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of categories that are not known, which are asked for
        return _encoded(model, frame, known)


def _encoded(model: Any, frame: Frame, known: Mapping[Any, Array]) -> Frame:
    if not all(isinstance(name, str) for name in known):
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on an array; fit it on a frame with named columns"
        )
    names = [str(name) for name in model.feature_names_in_]
    base = _base(model, known)
    first = model.transform(base)
    outputs = [str(name) for name in first.columns]
    asked = {name: _ask(model, base, name, categories) for name, categories in known.items()}
    constant = first.to_numpy(np.float64)[0]
    owners = _owners(model, names, outputs, asked)
    b = frame.builder
    codes: dict[str, Value] = {}
    made: list[Frame] = []
    place = 0
    while place < len(outputs):
        owner, start = owners[place], place
        place += 1
        if owner is None:
            made.append(frame.take([names.index(outputs[start])]))
            continue
        while place < len(outputs) and owners[place] == owner:
            place += 1
        told, i = asked[owner], names.index(owner)
        value = _hot(model, frame, i, told, slice(start, place))
        if value is None:
            if owner not in codes:
                codes[owner] = _codes(model, frame, i, told)
            value = _looked_up(b, told, codes[owner], constant, slice(start, place))
        made.append(Frame.of(b, value, tuple(outputs[start:place])))
    return Frame.hstack(b, made)


def _owners(
    model: Any, names: list[str], outputs: list[str], asked: Mapping[str, Asked]
) -> list[str | None]:
    """The column that each output is made of; None for one that is not encoded.

    Raises:
        UnsupportedModelError: an output depends on several columns.
    """
    moved = {name: _moves(told) for name, told in asked.items()}
    owners: list[str | None] = []
    for place, output in enumerate(outputs):
        if output in names and output not in asked:
            owners.append(None)
            continue
        of = [name for name, moves in moved.items() if moves[place]]
        if len(of) > 1:
            raise UnsupportedModelError(
                f"{type(model).__name__} makes column {output!r} of several columns "
                f"({', '.join(map(str, of[:3]))}); encode them one by one"
            )
        owners.append(str(of[0] if of else next(iter(asked))))
    return owners


def _looked_up(b: Builder, told: Asked, codes: Value, constant: Array, places: slice) -> Value:
    """The outputs at some places by a table of the categories, the missing and the unseen one."""
    others = [constant if part is None else part for part in (told.missing, told.unseen)]
    table = np.concatenate([told.made[:, places], *(part[None, places] for part in others)])
    if table.shape[1] == 1:
        return b.op("take", table[:, 0].copy(), codes)
    return b.op("reshape", b.op("take", table, codes), shape=(table.shape[1],))


def _hot(model: Any, frame: Frame, i: int, told: Asked, places: slice) -> Value | None:
    """The outputs at some places where each is 1 for one category and 0 for the others; or None.

    That takes no table, which would have a number for each category and output.
    """
    rows = [told.made[:, places]]
    rows += [
        np.zeros((1, rows[0].shape[1])) if part is None else part[None, places]
        for part in (told.missing, told.unseen)
    ]
    table = np.concatenate(rows)
    count, width = len(told.categories), table.shape[1]
    ones = table == 1
    is_hot = (ones | (table == 0)).all() and (ones.sum(axis=0) == 1).all()
    if width < 2 or not is_hot or (ones.sum(axis=1) > 1).any():
        return None
    b, of = frame.builder, ones.argmax(axis=0).astype(np.int64)
    codes = _codes(model, frame, i, told, unseen=bool(ones[count + 1].any()))
    whole = count if of.max() < count else count + 2
    hot = b.op("one_hot", codes, width=whole, dtype="float64")
    return hot if np.array_equal(of, np.arange(whole)) else b.op("select", hot, indices=of)


def _base(model: Any, known: Mapping[Any, Array]) -> pd.DataFrame:
    """A row of known categories, and zeros in the other columns."""
    import pandas as pd

    first = {name: categories[:1].tolist() for name, categories in known.items()}
    return pd.DataFrame({name: first.get(name, [0.0]) for name in model.feature_names_in_})


def _ask(model: Any, base: pd.DataFrame, name: Any, categories: Array) -> Asked:
    other = UNSEEN if categories.dtype == object else float(np.abs(categories).max()) + 1.5
    return Asked(
        categories,
        _made(model, base, name, categories),
        _made_of_one(model, base, name, other),
        _made_of_one(model, base, name, None if categories.dtype == object else np.nan),
    )


def _made(model: Any, base: pd.DataFrame, name: Any, values: Array) -> Array:
    """What the encoder makes of rows that differ in one column, (rows, outputs) float64.

    Raises:
        UnsupportedModelError: it makes something else each time, or no numbers.
    """
    rows = base.iloc[[0] * len(values)].reset_index(drop=True)
    rows[name] = values
    try:
        made: Array = model.transform(rows).to_numpy(np.float64)
        again = model.transform(rows.head(_AGAIN)).to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not encode its own categories of {name!r}: {error}"
        ) from None
    if not np.array_equal(made[:_AGAIN], again, equal_nan=True):
        raise UnsupportedModelError(f"{type(model).__name__} encodes at random; set its sigma None")
    return made


_AGAIN = 64
"""Rows that tell whether an encoder makes something else each time."""


def _made_of_one(model: Any, base: pd.DataFrame, name: Any, value: Any) -> Array | None:
    """What the encoder makes of a value beside a known category, with which pandas infers the same
    type as for a table; None where it refuses it."""
    import pandas as pd

    rows = base.iloc[[0, 0]].reset_index(drop=True)
    rows[name] = pd.Series([base[name].iloc[0], value])
    try:
        made: Array = model.transform(rows).to_numpy(np.float64)
    except ValueError:  # handle_unknown or handle_missing is "error"
        return None
    second: Array = made[1]
    return second


def _moves(told: Asked) -> Array:
    """Whether each output depends on a column, bool (outputs,)."""
    rows = [told.made, *(part[None] for part in (told.unseen, told.missing) if part is not None)]
    values = np.concatenate(rows)
    alike = (values == values[:1]) | (np.isnan(values) & np.isnan(values[:1]))
    moves: Array = ~alike.all(axis=0)
    return moves


def _codes(model: Any, frame: Frame, i: int, told: Asked, unseen: bool = True) -> Value:
    """Column `i` as places in the table of its categories, the missing and the unseen one.

    Args:
        unseen: whether the unseen one has a place; else it may be -1.
    """
    b: Builder = frame.builder
    count, step = len(told.categories), type(model).__name__
    x = frame.strings(i) if told.categories.dtype == object else frame.numbers(i)
    codes = b.op("encode", x, categories=told.categories, missing=count)
    if told.unseen is None:
        codes = b.op("require_known", codes, feature=frame.names[i], step=step)
    elif unseen or told.missing is None:
        codes = b.op("where", b.op("lt", codes, 0), count + 1, codes)
    if told.missing is None:
        codes = b.op("where", b.op("eq", codes, count), -1, codes)
        codes = b.op("require_known", codes, feature=frame.names[i], step=step)
    return codes


def encoder(model: Any, frame: Frame) -> Frame:
    """The columns that the encoder makes, in its order; others as they are.

    Raises:
        UnsupportedModelError: not fitted, or an output depends on several columns.
    """
    if not getattr(model, "_dim", None):
        raise unfitted(model)
    return encoded(model, frame, {name: _categories(model, name) for name in model.cols})


def _categories(model: Any, name: Any) -> Array:
    """The categories that a column had in training, without the missing one.

    Raises:
        UnsupportedModelError: dates or other types.
    """
    inner = getattr(model, "ordinal_encoder", None) or model
    found = inner.mapping
    if isinstance(found, Mapping):
        kept = found[name].index
    else:
        kept = next(part["mapping"] for part in found if part["col"] == name).index
    values = [value for value in kept if not (value is None or value != value)]
    if not values:
        raise UnsupportedModelError(f"column {name!r} of {type(model).__name__} has no categories")
    return category_array(values, str(name))


_CLASSES = (
    "backward_difference.BackwardDifferenceEncoder basen.BaseNEncoder binary.BinaryEncoder "
    "cat_boost.CatBoostEncoder count.CountEncoder gray.GrayEncoder "
    "helmert.HelmertEncoder james_stein.JamesSteinEncoder leave_one_out.LeaveOneOutEncoder "
    "m_estimate.MEstimateEncoder one_hot.OneHotEncoder ordinal.OrdinalEncoder "
    "polynomial.PolynomialEncoder quantile_encoder.QuantileEncoder rankhot.RankHotEncoder "
    "sum_coding.SumEncoder target_encoder.TargetEncoder woe.WOEEncoder"
)

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame]] = MappingProxyType(
    {f"category_encoders.{path}": encoder for path in _CLASSES.split()}
)
