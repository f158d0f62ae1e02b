"""From strings and numbers to the codes of known categories, and to one-hot columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnknownCategoryError
from sqlml.ir.hashes import city_hash64
from sqlml.ir.operators.elementwise import missing
from sqlml.ir.operators.op import Op, Types, array, floating, need
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


# Categories known only by their hash: CatBoost's files keep nothing else of one.


HASHED: frozenset[str] = frozenset({"encode_hashed", "hash_categories"})
"""Operators that hash texts, which SQL cannot do for them."""

MOST_WHOLE = 1 << 53
"""Up to here float64 holds every integer, so that its text is known."""


def _encode_hashed_type(types: Types, attrs: Attrs) -> TensorType:
    hashes, missing = array(attrs, "hashes"), attrs["missing"]
    need(types[0].dtype == "string", "encode_hashed takes strings")
    need(len(types[0].shape) == 2 and types[0].width == 1, "encode_hashed takes one column")
    need(hashes.dtype == np.int64 and hashes.ndim == 1, "hashes must be int64, one axis")
    need(
        hashes.size == 0 or (hashes.min() >= 0 and hashes.max() < 1 << 32),
        "a hash has 32 bits",
    )
    need(-1 <= missing <= hashes.size, "missing must be a code or -1")
    return TensorType("int64", types[0].shape)


def _hash_categories_type(types: Types, attrs: Attrs) -> TensorType:
    need(types[0].dtype in ("string", "float64"), "hash_categories takes strings or float64")
    need(len(types[0].shape) == 2 and types[0].width == 1, "hash_categories takes one column")
    need(types[0].rowwise, "hash_categories takes rows")
    return TensorType("float64", types[0].shape)


def _encode_hashed(args: Sequence[Any], attrs: Attrs) -> Array:
    code_of = {h: code for code, h in enumerate(attrs["hashes"].tolist())}
    hashes = _hashes_of_texts(args[0])
    gone = np.isnan(hashes)
    low = np.where(gone, 0, hashes).astype(np.int64) & _LOW
    known = np.array([code_of.get(h, -1) for h in low.tolist()], np.int64)
    return np.where(gone, attrs["missing"], known).reshape(-1, 1)


def _hash_categories(args: Sequence[Any], attrs: Attrs) -> Array:
    """The signed 32-bit hash of each category as float64, and NaN for one that is missing.

    The category of a whole number is its decimal text; other numbers count as missing.
    """
    x = args[0]
    texts = isinstance(x, Texts) or x.dtype == object
    return (_hashes_of_texts(x) if texts else _hashes_of_numbers(x[:, 0])).reshape(-1, 1)


def _hashes_of_texts(given: Any) -> Array:
    """float64 (n,): NaN for a text that is missing."""
    texts = Texts.of(given)
    content, seen = texts.data.tobytes(), dict[bytes, float]()
    made = np.full(len(texts), np.nan)
    for row in np.flatnonzero(~texts.missing).tolist():
        category = content[texts.start[row] : texts.stop[row]]
        found = seen.get(category)
        if found is None:
            found = seen[category] = _signed(category)
        made[row] = found
    return made


def _hashes_of_numbers(x: Array) -> Array:
    """float64 (n,): NaN for what is not a whole number."""
    whole = (np.abs(x) <= MOST_WHOLE) & (np.trunc(x) == x)
    distinct, place = np.unique(x[whole].astype(np.int64), return_inverse=True)
    made = np.full(x.shape, np.nan)
    made[whole] = np.array([_signed(str(n).encode()) for n in distinct.tolist()])[place]
    return made


_LOW = 0xFFFFFFFF


def _signed(category: bytes) -> float:
    """The lower 32 bits of a hash, as a signed number."""
    low = city_hash64(category) & _LOW
    return float(low - (1 << 32) if low >> 31 else low)


# Values of combinations of categories: CatBoost's statistics of the target (CTR).
#
# L. Prokhorenkova et al., "CatBoost: unbiased boosting with categorical features", NeurIPS 2018,
# section 4 and its supplementary.


MULTIPLIER = 0x4906BA494954CB65
"""Of the hash of several elements: that of a and then b is MULTIPLIER * (a + MULTIPLIER * b)."""


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """Some columns whose values are looked up together.

    columns: places. keys: int64 (k,), bit patterns of hashes, ascending. values: (k + 1, outputs),
    the last row for a combination that is not there.
    """

    columns: Array
    keys: Array
    values: Array


def combinations(attrs: Attrs) -> Iterator[Combination]:
    """The combinations that the attributes of `look_up_combinations` describe."""
    columns, keys, values = attrs["columns"], attrs["keys"], attrs["values"]
    first_column = first_key = first_value = 0
    for column, key, width in zip(
        attrs["column_ends"].tolist(),
        attrs["key_ends"].tolist(),
        attrs["widths"].tolist(),
        strict=True,
    ):
        last_value = first_value + (key - first_key + 1) * width
        yield Combination(
            columns[first_column:column],
            keys[first_key:key],
            values[first_value:last_value].reshape(-1, width),
        )
        first_column, first_key, first_value = column, key, last_value


def packed(given: Sequence[Combination]) -> dict[str, Array]:
    """The attributes of `look_up_combinations`."""

    def ends(sizes: Sequence[int]) -> Array:
        return np.cumsum(sizes, dtype=np.int64)

    return {
        "columns": np.concatenate([c.columns for c in given]).astype(np.int32),
        "column_ends": ends([c.columns.size for c in given]),
        "keys": np.concatenate([c.keys for c in given]),
        "key_ends": ends([c.keys.size for c in given]),
        "values": np.concatenate([c.values.ravel() for c in given]),
        "widths": np.array([c.values.shape[1] for c in given], np.int64),
    }


def hashes(x: Array, columns: Array) -> Array:
    """int64 (n,): the hash of each row's values in some columns, as a bit pattern.

    A value that is not finite or not below MOST_WHOLE counts as 0; fractions are cut off.
    """
    multiplier = np.uint64(MULTIPLIER)
    made = np.zeros(x.shape[0], np.uint64)
    for column in columns:
        value = x[:, column]
        whole = np.where(np.abs(value) < MOST_WHOLE, value, 0).astype(np.int64).view(np.uint64)
        made = multiplier * (made + multiplier * whole)
    return made.view(np.int64)


def _type(types: Types, attrs: Attrs) -> TensorType:
    x = types[0]
    need(x.dtype == "float64" and x.rowwise, "look_up_combinations takes float64 rows")
    need(len(x.shape) == 2, "look_up_combinations takes (n, k)")
    columns, keys, values = (array(attrs, name) for name in ("columns", "keys", "values"))
    ends = [array(attrs, name) for name in ("column_ends", "key_ends", "widths")]
    column_ends, key_ends, widths = ends
    need(all(e.dtype == np.int64 and e.ndim == 1 for e in ends), "ends must be int64, one axis")
    need(len({e.size for e in ends}) == 1 and widths.size > 0, "as many ends as combinations")
    need(columns.dtype == np.int32 and columns.ndim == 1, "columns must be int32, one axis")
    need(keys.dtype == np.int64 and keys.ndim == 1, "keys must be int64, one axis")
    need(values.ndim == 1, "values must have one axis")
    floating(dtype_of(values))
    for end, size in ((column_ends, columns.size), (key_ends, keys.size)):
        steps = np.diff(end, prepend=0)
        need(bool((steps >= 0).all()) and end[-1] == size, "ends do not fit what they end")
    need(columns.size == 0 or (columns.min() >= 0 and columns.max() < x.width), "no such column")
    need(bool((widths > 0).all()) and int(widths.max()) <= values.size, "a width is out of range")
    sizes = (np.diff(key_ends, prepend=0) + 1).astype(object) * widths.astype(object)
    need(int(sizes.sum()) == values.size, "as many values as keys and one more, for each output")
    ascending = np.ones(keys.size, bool)
    ascending[1:] = keys[1:] > keys[:-1]
    ascending[key_ends[key_ends < keys.size]] = True
    need(bool(ascending.all()), "keys must ascend")
    return matrix(dtype_of(values), int(widths.sum()))


def _look_up(args: Sequence[Array], attrs: Attrs) -> Array:
    """For each combination of columns, the values of the hash of what a row has in them."""
    (x,) = args
    made = []
    for one in combinations(attrs):
        wanted = hashes(x, one.columns)
        place = np.searchsorted(one.keys, wanted)
        known = place < one.keys.size
        known[known] = one.keys[place[known]] == wanted[known]
        made.append(one.values[np.where(known, place, one.keys.size)])
    return np.concatenate(made, axis=1)


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
    Op(
        "encode_hashed",
        "model",
        "injective",
        _encode_hashed_type,
        _encode_hashed,
        {"hashes": "array", "missing": "int"},
    ),
    Op("hash_categories", "model", "injective", _hash_categories_type, _hash_categories),
    Op(
        "look_up_combinations",
        "model",
        "opaque",
        _type,
        _look_up,
        dict.fromkeys(("columns", "column_ends", "keys", "key_ends", "values", "widths"), "array"),
    ),
)
