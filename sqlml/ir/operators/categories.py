"""From strings and numbers to the codes of known categories, and to one-hot columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.errors import UnknownCategoryError
from sqlml.ir.operators.elementwise import missing
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import Texts
from sqlml.types import INTEGERS, Array, TensorType, dtype_of, matrix


def _fill_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype == "string" and isinstance(attrs["value"], str), "fill takes strings")
    return types[0]


def _encode_type(types: Types, attrs: Attrs) -> TensorType:
    categories = array(attrs, "categories")
    need(len(types[0].shape) == 2 and types[0].width == 1, "encode takes one column")
    need(
        categories.ndim == 1 and dtype_of(categories) == types[0].dtype,
        f"categories of {categories.dtype} for a column {types[0]!r}",
    )
    if types[0].dtype == "string":
        need(
            "\0" not in "".join(map(str, categories)),
            "a category holds a NUL character, which SQL cannot spell",
        )
    missing = attrs["missing"]
    need(
        isinstance(missing, int) and -1 <= missing <= categories.size,
        "missing must be a code or -1",
    )
    return TensorType("int64", types[0].shape)


def _require_known_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype in INTEGERS, "require_known takes codes")
    return types[0]


def _one_hot_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype in INTEGERS and types[0].width == 1, "one_hot takes one column of codes")
    need(attrs["dtype"] != "string", "one_hot makes numbers")
    need(isinstance(attrs["width"], int) and attrs["width"] >= 0, "width must be an integer")
    return matrix(attrs["dtype"], attrs["width"])


def _plain(x: Array | Texts) -> Array:
    return x.objects() if isinstance(x, Texts) else x


def _fill(args: Sequence[Array], attrs: Attrs) -> Array:
    x = _plain(args[0])
    gone = missing(x)
    if "missing" in attrs:
        return np.where(x == attrs["missing"], attrs["value"], x)
    return np.where(gone, np.array(attrs["value"], object), x)


def _encode(args: Sequence[Array], attrs: Attrs) -> Array:
    x = _plain(args[0])
    categories: Array = attrs["categories"]
    codes = np.full(x.shape, -1, np.int64)
    gone = missing(x) if x.dtype.kind in "fO" else np.zeros(x.shape, bool)
    for code, category in enumerate(categories):
        codes[(x == category) & ~gone] = code
    codes[gone] = attrs["missing"]
    return codes


def _require_known(args: Sequence[Array], attrs: Attrs) -> Array:
    (codes,) = args
    if (codes < 0).any():
        raise unknown_category(str(attrs["feature"]), str(attrs["step"]), "a category")
    return codes


def unknown_category(feature: str, step: str, found: str, query: str = "") -> UnknownCategoryError:
    """The error of `require_known`.

    Args:
        found: what the column has: the value, or "a category".
        query: SQL that finds such values, if `found` does not name them.
    """
    if step == ONNX_GRAPH:
        message = f"{feature!r} in the ONNX graph looks up an entry outside its table"
    elif step == MISSING_INDICATOR:
        message = f"column {feature!r} has NULL, but had none when {step} was fitted"
    elif step == LABEL_BINARIZER:  # it takes labels that it does not know
        message = f"column {feature!r} has NULL, which {step} does not take"
    else:
        link = " that" if found.startswith("a category") else ", which"
        message = f"column {feature!r} has {found}{link} {step} has never seen"
    ways = ["filter such rows"]
    fix = _FIXES.get(EMBEDDING if step.startswith(EMBEDDING) else step)
    if fix is not None:
        ways.append(fix)
    finds = f". To find it: {query}" if query else ""
    return UnknownCategoryError(f"{message}; {', or '.join(ways)}{finds}", feature, step)


EMBEDDING = "the module's embedding"
"""The step of a torch embedding begins so, and goes on with " (0 to 7)"."""
LABEL_BINARIZER = "LabelBinarizer"
MISSING_INDICATOR = "MissingIndicator"
ONNX_GRAPH = "the ONNX graph"
_FIXES: Mapping[str, str] = MappingProxyType(
    {
        "OneHotEncoder": "fit the encoder with handle_unknown='ignore'",
        "OrdinalEncoder": (
            "fit the encoder with handle_unknown='use_encoded_value', unknown_value=-1"
        ),
        "LabelEncoder": "fit it with all labels",
        "StringIndexerModel": "fit it with handleInvalid='keep'",
        "OneHotEncoderModel": "fit it with handleInvalid='keep'",
        "CategoricalNB": "fit it with min_categories=.. above the largest code",
        "XGBoost": (
            "write NULL for such a value, which XGBoost takes (in SQL, the option on_unknown = "
            "'null' does so), or train with it"
        ),
        EMBEDDING: "give the column numbers of that range",
        MISSING_INDICATOR: "fit it with error_on_new=False",
    }
)
"""Step -> what to do other than to filter rows."""


def _one_hot(args: Sequence[Array], attrs: Attrs) -> Array:
    (codes,) = args
    width: int = attrs["width"]
    hot: Array = (codes == np.arange(width)).astype(str(attrs["dtype"]))
    return hot


OPERATORS: tuple[Op, ...] = (
    Op("fill", "model", "injective", _fill_type, _fill, {"value": "str", "missing": "str?"}),
    Op(
        "encode",
        "model",
        "injective",
        _encode_type,
        _encode,
        {"categories": "array", "missing": "int"},
    ),
    Op(
        "require_known",
        "model",
        "injective",
        _require_known_type,
        _require_known,
        {"feature": "str", "step": "str"},
    ),
    Op("one_hot", "model", "injective", _one_hot_type, _one_hot, {"width": "int", "dtype": "str"}),
)
