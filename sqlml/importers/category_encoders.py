"""Importers of category_encoders, which encode each column by a table of its categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.asked_encoder import encoded
from sqlml.importers.categories import category_array
from sqlml.importers.frame import Frame
from sqlml.importers.unfitted import unfitted
from sqlml.types import Array


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
