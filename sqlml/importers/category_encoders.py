"""Import encoders of the library category_encoders, as one table of outputs per column.

The encoders store tables and options in many forms, but encode each column independently. Therefore
the encoder is called on each category, on an unseen category and on a missing value.
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
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.ir.builder import Value
from sqlml.types import Array

if TYPE_CHECKING:
    import pandas as pd


UNSEEN_CATEGORY = "a category that sqlml made up"


@dataclass(frozen=True, slots=True)
class ColumnOutputs:
    """The outputs of an encoder for the values of one input column.

    `of_categories`, (k, outputs), has the outputs for the k `categories`. `missing` has the outputs
    for NULL, and `unseen` for all other values. Each is None if the encoder rejects such a value.
    """

    categories: Array
    of_categories: Array
    unseen: Array | None
    missing: Array | None

    def build_table(self, outputs: slice, default: Array) -> Array:
        """Return a table of k + 2 rows: one per category, one for NULL and one for other values.

        `outputs` selects the columns. If the encoder rejects a value, the row is `default`.
        """
        others = [default if row is None else row for row in (self.missing, self.unseen)]
        return np.concatenate([self.of_categories, others])[:, outputs]


def apply_encoder(model: Any, frame: Frame, categories: Mapping[Any, Array]) -> Frame:
    """Encode each column in `categories` like the encoder `model`; keep the other columns.

    `categories` maps a column to the training categories without NULL. The categories are objects
    for strings, otherwise float64.
    """
    # The encoders warn about the unknown categories that the probes contain.
    with warnings.catch_warnings(action="ignore"):
        return _encode_frame(model, frame, categories)


def _encode_frame(model: Any, frame: Frame, training_categories: Mapping[Any, Array]) -> Frame:
    if not all(isinstance(name, str) for name in training_categories):
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on an array; fit it on a frame with named columns"
        )
    import pandas as pd

    names = [str(name) for name in model.feature_names_in_]
    # The base row has a training category in each encoded column, and zeros in other columns.
    zero = np.zeros(1)
    columns = {n: training_categories.get(n, zero)[:1].tolist() for n in model.feature_names_in_}
    base_row = pd.DataFrame(columns)
    encoded_base = model.transform(base_row)
    output_names = [str(name) for name in encoded_base.columns]
    probes = training_categories.items()
    column_outputs = {n: _probe_column(model, base_row, n, probe) for n, probe in probes}
    constant_outputs = encoded_base.to_numpy(np.float64)[0]
    input_of_output = _find_input_of_outputs(model, names, output_names, column_outputs)
    codes: dict[str, Value] = {}
    frames: list[Frame] = []
    for input_name, group in groupby(range(len(output_names)), key=input_of_output.__getitem__):
        positions = list(group)
        if input_name is None:
            frames += [frame.select([names.index(output_names[k])]) for k in positions]
            continue
        output_range = slice(positions[0], positions[-1] + 1)
        column = column_outputs[input_name]
        i = names.index(input_name)
        encoded = _encode_one_hot(model, frame, i, column, output_range)
        if encoded is None:
            if input_name not in codes:
                codes[input_name] = _encode_column(model, frame, i, column)
            table = column.build_table(output_range, constant_outputs)
            encoded = look_up_rows(frame.builder, table, codes[input_name])
        frames.append(Frame.from_value(frame.builder, encoded, output_names[output_range]))
    return Frame.hstack(frame.builder, frames)


def _find_input_of_outputs(
    model: Any, names: list[str], outputs: list[str], column_outputs: Mapping[str, ColumnOutputs]
) -> list[str | None]:
    """Return the input column of each output, or None for an output that copies a column."""
    varying = {name: _find_varying_outputs(column) for name, column in column_outputs.items()}
    input_names: list[str | None] = []
    for position, output in enumerate(outputs):
        if output in names and output not in column_outputs:
            input_names.append(None)
            continue
        columns = [name for name, varies in varying.items() if varies[position]]
        if len(columns) > 1:
            raise UnsupportedModelError(
                f"{type(model).__name__} computes column {output!r} from several columns "
                f"({', '.join(map(str, columns[:3]))}); encode them one by one"
            )
        # A constant output is assigned to the first encoded column.
        input_names.append(str(columns[0] if columns else next(iter(column_outputs))))
    return input_names


def _encode_one_hot(
    model: Any, frame: Frame, i: int, column: ColumnOutputs, outputs: slice
) -> Value | None:
    """Return 0/1 indicators, which are cheaper than a table, or None if a table is needed."""
    table = column.build_table(outputs, np.zeros(column.of_categories.shape[1]))
    count = len(column.categories)
    is_one = table == 1
    is_hot = (is_one | (table == 0)).all() and (is_one.sum(axis=0) == 1).all()
    if table.shape[1] < 2 or not is_hot or (is_one.sum(axis=1) > 1).any():
        return None
    category_of_output = is_one.argmax(axis=0).astype(np.int64)
    codes = _encode_column(model, frame, i, column, needs_unseen=bool(is_one[count + 1].any()))
    num_codes = count if category_of_output.max() < count else count + 2
    indicators = frame.builder.op("one_hot", codes, width=num_codes, dtype="float64")
    if np.array_equal(category_of_output, np.arange(num_codes)):
        return indicators
    return frame.builder.op("select", indicators, indices=category_of_output)


def _probe_column(model: Any, row: pd.DataFrame, name: Any, categories: Array) -> ColumnOutputs:
    is_text = categories.dtype == object
    unseen_category = UNSEEN_CATEGORY if is_text else float(np.abs(categories).max()) + 1.5
    of_categories = _encode_rows(model, row, name, categories)
    unseen = _encode_value(model, row, name, unseen_category)
    missing = _encode_value(model, row, name, None if is_text else np.nan)
    return ColumnOutputs(categories, of_categories, unseen, missing)


def _encode_rows(model: Any, base_row: pd.DataFrame, name: Any, values: Array) -> Array:
    """Return the outputs for copies of `base_row`, one per value of column `name`."""
    rows = base_row.iloc[[0] * len(values)].reset_index(drop=True)
    rows[name] = values
    try:
        outputs: Array = model.transform(rows).to_numpy(np.float64)
        repeated_outputs = model.transform(rows.head(REPEATED_ROWS)).to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"{type(model).__name__} fails on the training categories of {name!r}: {error}"
        ) from None
    if not np.array_equal(outputs[:REPEATED_ROWS], repeated_outputs, equal_nan=True):
        raise UnsupportedModelError(
            f"{type(model).__name__} adds random noise to its outputs; fit it with sigma=None"
        )
    return outputs


REPEATED_ROWS = 64
"""The number of rows that are encoded twice to detect random outputs."""


def _encode_value(model: Any, base_row: pd.DataFrame, name: Any, value: Any) -> Array | None:
    """Return the outputs for `value` in column `name`, or None if the encoder rejects `value`."""
    import pandas as pd

    # The first row has a training category, so that pandas infers the right type.
    rows = base_row.iloc[[0, 0]].reset_index(drop=True)
    rows[name] = pd.Series([base_row[name].iloc[0], value])
    try:
        return np.asarray(model.transform(rows).to_numpy(np.float64)[1])
    except ValueError:  # The option handle_unknown or handle_missing is "error".
        return None


def _find_varying_outputs(column: ColumnOutputs) -> Array:
    values = column.build_table(slice(None), column.of_categories[0])
    is_same = (values == values[:1]) | (np.isnan(values) & np.isnan(values[:1]))
    return np.asarray(~is_same.all(axis=0))


def _encode_column(
    model: Any, frame: Frame, i: int, column: ColumnOutputs, needs_unseen: bool = True
) -> Value:
    """Convert column `i` to row indices of `column.build_table`: k for NULL, k + 1 if unseen.

    A value that the encoder rejects raises an error while scoring. If `needs_unseen` is false, the
    index of an unseen value may be -1.
    """
    op = frame.builder.op
    num_categories = len(column.categories)
    step = type(model).__name__
    x = frame.read_strings(i) if column.categories.dtype == object else frame.read_numbers(i)
    codes = op("encode", x, categories=column.categories, missing=num_categories)
    if column.unseen is None:
        codes = op("require_known", codes, feature=frame.names[i], step=step)
    elif needs_unseen or column.missing is None:
        codes = op("where", op("lt", codes, 0), num_categories + 1, codes)
    if column.missing is None:
        codes = op("where", op("eq", codes, num_categories), -1, codes)
        codes = op("require_known", codes, feature=frame.names[i], step=step)
    return codes


def import_encoder(model: Any, frame: Frame) -> Frame:
    """Encode the columns of a frame like an encoder of the library category_encoders."""
    if not getattr(model, "_dim", None):
        raise make_unfitted_error(model)
    return apply_encoder(model, frame, {name: _read_categories(model, name) for name in model.cols})


def _read_categories(model: Any, name: Any) -> Array:
    mapping = (getattr(model, "ordinal_encoder", None) or model).mapping
    if not isinstance(mapping, Mapping):
        mapping = {column["col"]: column["mapping"] for column in mapping}
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
