"""Import category_encoders, which encode each column by a table of its categories.

Their tables and options have many forms. Each column is encoded by itself, so the encoder itself is
called: on each category, on one that it has not seen, and on a missing one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, look_up_rows, to_category_array
from sqlml.importers.model_checks import explain_unfitted
from sqlml.ir.builder import Value
from sqlml.types import Array

if TYPE_CHECKING:
    import pandas as pd


UNSEEN = "a category that sqlml made up"


@dataclass(frozen=True, slots=True)
class ColumnOutputs:
    """The outputs (k, outputs) of an encoder for the k categories of one column.

    unseen, missing: (outputs,) for another category and for NULL; None if they are errors.
    """

    categories: Array
    of_categories: Array
    unseen: Array | None
    missing: Array | None

    def table(self, outputs: slice, default: Array) -> Array:
        """Return the outputs of categories, missing and unseen, (k + 2, n), or `default`."""
        others = [default if row is None else row for row in (self.missing, self.unseen)]
        return np.concatenate([self.of_categories, others])[:, outputs]


def apply_encoder(model: Any, frame: Frame, categories: Mapping[Any, Array]) -> Frame:
    """Encode the columns of a frame like a fitted encoder; others stay as they are.

    `categories` are those of training without NULL, objects for strings, else float64.
    """
    # Unknown categories, about which the encoders warn, are passed on purpose.
    with warnings.catch_warnings(action="ignore"):
        return _apply_encoder(model, frame, categories)


def _apply_encoder(model: Any, frame: Frame, training_categories: Mapping[Any, Array]) -> Frame:
    if not all(isinstance(name, str) for name in training_categories):
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on an array; fit it on a frame with named columns"
        )
    import pandas as pd

    # A row of training categories, with zeros in the other columns.
    names = [str(name) for name in model.feature_names_in_]
    first = {name: categories[:1].tolist() for name, categories in training_categories.items()}
    base = pd.DataFrame({name: first.get(name, [0.0]) for name in model.feature_names_in_})
    encoded_base = model.transform(base)
    outputs = [str(name) for name in encoded_base.columns]
    column_outputs = {
        name: _probe_column(model, base, name, categories)
        for name, categories in training_categories.items()
    }
    constant = encoded_base.to_numpy(np.float64)[0]
    owners = _find_owners(model, names, outputs, column_outputs)
    codes: dict[str, Value] = {}
    blocks: list[Frame] = []
    for owner, group in groupby(range(len(outputs)), key=owners.__getitem__):
        positions = list(group)
        if owner is None:
            blocks += [frame.select([names.index(outputs[position])]) for position in positions]
            continue
        chosen = slice(positions[0], positions[-1] + 1)
        column, i = column_outputs[owner], names.index(owner)
        value = _encode_one_hot(model, frame, i, column, chosen)
        if value is None:
            if owner not in codes:
                codes[owner] = _encode_column(model, frame, i, column)
            value = look_up_rows(frame.builder, column.table(chosen, constant), codes[owner])
        blocks.append(Frame.from_value(frame.builder, value, outputs[chosen]))
    return Frame.hstack(frame.builder, blocks)


def _find_owners(
    model: Any, names: list[str], outputs: list[str], column_outputs: Mapping[str, ColumnOutputs]
) -> list[str | None]:
    """Return the column that each output depends on; None for one that is not encoded."""
    moved = {name: _find_dependent(column) for name, column in column_outputs.items()}
    owners: list[str | None] = []
    for position, output in enumerate(outputs):
        if output in names and output not in column_outputs:
            owners.append(None)
            continue
        columns = [name for name, moves in moved.items() if moves[position]]
        if len(columns) > 1:
            raise UnsupportedModelError(
                f"{type(model).__name__} makes column {output!r} of several columns "
                f"({', '.join(map(str, columns[:3]))}); encode them one by one"
            )
        owners.append(str(columns[0] if columns else next(iter(column_outputs))))
    return owners


def _encode_one_hot(
    model: Any, frame: Frame, i: int, column: ColumnOutputs, outputs: slice
) -> Value | None:
    """Return outputs that are 1 for one category and 0 for the others, without a table, or None."""
    table = column.table(outputs, np.zeros(column.of_categories.shape[1]))
    count, width = len(column.categories), table.shape[1]
    ones = table == 1
    is_hot = (ones | (table == 0)).all() and (ones.sum(axis=0) == 1).all()
    if width < 2 or not is_hot or (ones.sum(axis=1) > 1).any():
        return None
    b, category_of = frame.builder, ones.argmax(axis=0).astype(np.int64)
    codes = _encode_column(model, frame, i, column, unseen=bool(ones[count + 1].any()))
    width_of_codes = count if category_of.max() < count else count + 2
    hot = b.op("one_hot", codes, width=width_of_codes, dtype="float64")
    is_in_order = np.array_equal(category_of, np.arange(width_of_codes))
    return hot if is_in_order else b.op("select", hot, indices=category_of)


def _probe_column(model: Any, base: pd.DataFrame, name: Any, categories: Array) -> ColumnOutputs:
    other = UNSEEN if categories.dtype == object else float(np.abs(categories).max()) + 1.5
    return ColumnOutputs(
        categories,
        _encode_rows(model, base, name, categories),
        _encode_value(model, base, name, other),
        _encode_value(model, base, name, None if categories.dtype == object else np.nan),
    )


def _encode_rows(model: Any, base: pd.DataFrame, name: Any, values: Array) -> Array:
    """Encode rows that differ in one column, (rows, outputs) float64."""
    rows = base.iloc[[0] * len(values)].reset_index(drop=True)
    rows[name] = values
    try:
        outputs: Array = model.transform(rows).to_numpy(np.float64)
        again = model.transform(rows.head(REPEATED_ROWS)).to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not encode its own categories of {name!r}: {error}"
        ) from None
    if not np.array_equal(outputs[:REPEATED_ROWS], again, equal_nan=True):
        raise UnsupportedModelError(f"{type(model).__name__} encodes at random; set its sigma None")
    return outputs


REPEATED_ROWS = 64
"""The number of rows that are encoded twice to detect random outputs."""


def _encode_value(model: Any, base: pd.DataFrame, name: Any, value: Any) -> Array | None:
    """Encode a value in a row after a training category, which sets pandas' type, or None."""
    import pandas as pd

    rows = base.iloc[[0, 0]].reset_index(drop=True)
    rows[name] = pd.Series([base[name].iloc[0], value])
    try:
        return np.asarray(model.transform(rows).to_numpy(np.float64)[1])
    except ValueError:  # The option handle_unknown or handle_missing is "error".
        return None


def _find_dependent(column: ColumnOutputs) -> Array:
    values = column.table(slice(None), column.of_categories[0])
    is_same = (values == values[:1]) | (np.isnan(values) & np.isnan(values[:1]))
    return np.asarray(~is_same.all(axis=0))


def _encode_column(
    model: Any, frame: Frame, i: int, column: ColumnOutputs, unseen: bool = True
) -> Value:
    """Return column `i` as indices into the table of categories, the missing and the unseen one.

    Without `unseen`, the index of the unseen category may be -1.
    """
    b = frame.builder
    count, step = len(column.categories), type(model).__name__
    x = frame.strings(i) if column.categories.dtype == object else frame.numbers(i)
    codes = b.op("encode", x, categories=column.categories, missing=count)
    if column.unseen is None:
        codes = b.op("require_known", codes, feature=frame.names[i], step=step)
    elif unseen or column.missing is None:
        codes = b.op("where", b.op("lt", codes, 0), count + 1, codes)
    if column.missing is None:
        codes = b.op("where", b.op("eq", codes, count), -1, codes)
        codes = b.op("require_known", codes, feature=frame.names[i], step=step)
    return codes


def import_encoder(model: Any, frame: Frame) -> Frame:
    if not getattr(model, "_dim", None):
        raise explain_unfitted(model)
    return apply_encoder(model, frame, {name: _read_categories(model, name) for name in model.cols})


def _read_categories(model: Any, name: Any) -> Array:
    mapping = (getattr(model, "ordinal_encoder", None) or model).mapping
    if not isinstance(mapping, Mapping):
        mapping = {entry["col"]: entry["mapping"] for entry in mapping}
    values = [value for value in mapping[name].index if not (value is None or value != value)]
    if not values:
        raise UnsupportedModelError(f"column {name!r} of {type(model).__name__} has no categories")
    return to_category_array(values, str(name))


_CLASSES = (
    "backward_difference.BackwardDifferenceEncoder basen.BaseNEncoder binary.BinaryEncoder "
    "cat_boost.CatBoostEncoder count.CountEncoder gray.GrayEncoder "
    "helmert.HelmertEncoder james_stein.JamesSteinEncoder leave_one_out.LeaveOneOutEncoder "
    "m_estimate.MEstimateEncoder one_hot.OneHotEncoder ordinal.OrdinalEncoder "
    "polynomial.PolynomialEncoder quantile_encoder.QuantileEncoder rankhot.RankHotEncoder "
    "sum_coding.SumEncoder target_encoder.TargetEncoder woe.WOEEncoder"
)

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame]] = {
    f"category_encoders.{path}": import_encoder for path in _CLASSES.split()
}
