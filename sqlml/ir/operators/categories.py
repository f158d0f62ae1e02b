"""Operators that map strings and numbers to codes of categories, one-hot columns and statistics.

CatBoost's files keep only the hashes of categories. CatBoost also looks up statistics of the target
(CTR) by the combined hash of several columns: L. Prokhorenkova et al., "CatBoost: unbiased boosting
with categorical features", NeurIPS 2018, section 4 and supplementary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sqlml.errors import UnknownCategoryError
from sqlml.ir.hashes import city_hash64
from sqlml.ir.operators.elementwise import find_missing
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import INTEGERS, Array, TensorType, dtype_of, matrix


def _fill_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype == "string" and isinstance(attrs["value"], str), "fill takes strings")
    return types[0]


def _encode_type(types: Types, attrs: Attrs) -> TensorType:
    require(len(types[0].shape) == 2 and types[0].width == 1, "encode takes one column")
    categories = array_attribute(attrs, "categories", types[0].dtype, (None,))
    if types[0].dtype == "string":
        has_nul = "\0" in "".join(map(str, categories))
        require(not has_nul, "a category has a NUL character, which SQL cannot spell")
    require(-1 <= attrs["missing"] <= categories.size, "missing must be a code or -1")
    return TensorType("int64", types[0].shape)


def _require_known_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype in INTEGERS, "require_known takes codes")
    return types[0]


def _one_hot_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype in INTEGERS and types[0].width == 1, "one_hot takes one column of codes")
    require(attrs["dtype"] != "string", "one_hot makes numbers")
    require(attrs["width"] >= 0, "width must not be negative")
    return matrix(attrs["dtype"], attrs["width"])


def _as_array(x: Array | TextColumn) -> Array:
    return x.objects() if isinstance(x, TextColumn) else x


def _fill(args: Sequence[Array], attrs: Attrs) -> Array:
    x = _as_array(args[0])
    if "missing" in attrs:
        return np.where(x == attrs["missing"], attrs["value"], x)
    return np.where(find_missing(x), np.array(attrs["value"], object), x)


def _encode(args: Sequence[Array], attrs: Attrs) -> Array:
    x = _as_array(args[0])
    categories: Array = attrs["categories"]
    codes = np.full(x.shape, -1, np.int64)
    is_missing = find_missing(x) if x.dtype.kind in "fO" else np.zeros(x.shape, bool)
    for code, category in enumerate(categories):
        codes[(x == category) & ~is_missing] = code
    codes[is_missing] = attrs["missing"]
    return codes


def _require_known(args: Sequence[Array], attrs: Attrs) -> Array:
    (codes,) = args
    if (codes < 0).any():
        value_description = "a category"  # All unknown categories have the same code.
        raise make_unknown_category_error(
            str(attrs["feature"]), str(attrs["step"]), value_description
        )
    return codes


def make_unknown_category_error(
    feature: str, step: str, value: str, query: str = ""
) -> UnknownCategoryError:
    """Build the error of estimator `step`, which rejects `value`: a literal or "a category ...".

    If given, an SQL `query` that finds the rejected values ends the message.
    """
    if step == ONNX_GRAPH:
        message = f"{feature!r} in the ONNX graph looks up an entry outside its table"
    elif step == MISSING_INDICATOR:
        message = f"column {feature!r} has NULL, but had no NULL when {step} was fitted"
    elif step == LABEL_BINARIZER:  # LabelBinarizer accepts unknown labels, so this is a NULL.
        message = f"column {feature!r} has NULL, which {step} does not take"
    elif step == PARTITION:
        is_known = not value.startswith("a ")
        key = f"{feature} = {value}" if is_known else f"some values of {feature}"
        message = f"no model was trained for {key}"
    else:
        link = " that" if value.startswith("a ") else ", which"
        message = f"column {feature!r} has {value}{link} {step} has never seen"
    fix = _FIXES.get(EMBEDDING if step.startswith(EMBEDDING) else step)
    message += f"; filter such rows, or {fix}" if fix else "; filter such rows"
    query_hint = f". To find it: {query}" if query else ""
    return UnknownCategoryError(message + query_hint, feature, step)


EMBEDDING = "the module's embedding"
"""Start of a torch embedding's step name, before a range such as " (0 to 7)"."""
LABEL_BINARIZER = "LabelBinarizer"
MISSING_INDICATOR = "MissingIndicator"
ONNX_GRAPH = "the ONNX graph"
PARTITION = "PARTITION BY"
"""Step name of the check that a row belongs to a partition with a model."""
_FIXES: Mapping[str, str] = {
    "OneHotEncoder": "fit the encoder with handle_unknown='ignore'",
    "OrdinalEncoder": "fit the encoder with handle_unknown='use_encoded_value', unknown_value=-1",
    "LabelEncoder": "fit it with all labels",
    "StringIndexerModel": "fit it with handleInvalid='keep'",
    "OneHotEncoderModel": "fit it with handleInvalid='keep'",
    "CategoricalNB": "fit it with min_categories=... above the largest code",
    "XGBoost": (
        "replace such a value with NULL, which XGBoost takes (in SQL, the option on_unknown = "
        "'null' does this), or train with it"
    ),
    EMBEDDING: "use numbers within that range",
    PARTITION: "train the model with unseen_partition = 'fallback' or 'null'",
    MISSING_INDICATOR: "fit it with error_on_new=False",
}
"""Map a step to a fix other than filtering rows."""


def _one_hot(args: Sequence[Array], attrs: Attrs) -> Array:
    is_category: Array = args[0] == np.arange(attrs["width"])
    return is_category.astype(str(attrs["dtype"]))


HASHING_OPERATORS: frozenset[str] = frozenset({"encode_hashed", "hash_categories"})
"""Operators that hash strings, which SQL cannot compute."""

MAX_EXACT_INTEGER = 1 << 53
"""Magnitude up to which float64 represents every integer."""


def _encode_hashed_type(types: Types, attrs: Attrs) -> TensorType:
    hashes = array_attribute(attrs, "hashes", "int64", (None,))
    require(types[0].dtype == "string", "encode_hashed takes strings")
    require(len(types[0].shape) == 2 and types[0].width == 1, "encode_hashed takes one column")
    require(((hashes >= 0) & (hashes < 1 << 32)).all(), "a hash has 32 bits")
    require(-1 <= attrs["missing"] <= hashes.size, "missing must be a code or -1")
    return TensorType("int64", types[0].shape)


def _hash_categories_type(types: Types, attrs: Attrs) -> TensorType:
    require(types[0].dtype in ("string", "float64"), "hash_categories takes strings or float64")
    return matrix("float64", require_matrix(types[0], width=1).width)


def _encode_hashed(args: Sequence[Any], attrs: Attrs) -> Array:
    code_by_hash = {h: code for code, h in enumerate(attrs["hashes"].tolist())}
    hashes = _hash_strings(args[0])
    is_missing = np.isnan(hashes)
    lower_bits = np.where(is_missing, 0, hashes).astype(np.int64) & _LOWER_32_BITS
    codes = np.array([code_by_hash.get(h, -1) for h in lower_bits.tolist()], np.int64)
    return np.where(is_missing, attrs["missing"], codes).reshape(-1, 1)


def _hash_categories(args: Sequence[Any], attrs: Attrs) -> Array:
    """Return signed 32-bit hashes as float64; NaN for missing strings and for fractions."""
    x = args[0]
    has_strings = isinstance(x, TextColumn) or x.dtype == object
    return (_hash_strings(x) if has_strings else _hash_numbers(x[:, 0])).reshape(-1, 1)


def _hash_strings(column: Any) -> Array:
    strings, hash_category = TextColumn.from_values(column), cache(_hash_category)
    utf8 = strings.data.tobytes()
    hashes = np.full(len(strings), np.nan)
    for row in np.flatnonzero(~strings.missing).tolist():
        hashes[row] = hash_category(utf8[strings.start[row] : strings.stop[row]])
    return hashes


def _hash_numbers(x: Array) -> Array:
    is_integer = (np.abs(x) <= MAX_EXACT_INTEGER) & (np.trunc(x) == x)
    integers, inverse = np.unique(x[is_integer].astype(np.int64), return_inverse=True)
    distinct_hashes = np.array([_hash_category(str(n).encode()) for n in integers.tolist()])
    hashes_of_rows = np.full(x.shape, np.nan)
    hashes_of_rows[is_integer] = distinct_hashes[inverse]
    return hashes_of_rows


_LOWER_32_BITS = 0xFFFFFFFF


def _hash_category(category: bytes) -> float:
    lower_bits = city_hash64(category) & _LOWER_32_BITS
    return float(lower_bits - (1 << 32) if lower_bits >> 31 else lower_bits)


MULTIPLIER = 0x4906BA494954CB65
"""Multiplier of CatBoost's hash of several values: each value v changes the hash h of the previous
values to MULTIPLIER * (h + MULTIPLIER * v)."""


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """A lookup table with hashes of the values of several columns as keys.

    `values` (k + 1, outputs) has a row per key, and a last row for unknown combinations.
    """

    columns: Array
    keys: Array
    values: Array


def unpack_combinations(attrs: Attrs) -> Iterator[Combination]:
    """Yield the tables that `pack_combinations` packed."""
    columns, keys, values = attrs["columns"], attrs["keys"], attrs["values"]
    column_start = key_start = value_start = 0
    ends = (attrs[name].tolist() for name in ("column_ends", "key_ends", "widths"))
    for column_end, key_end, width in zip(*ends, strict=True):
        value_end = value_start + (key_end - key_start + 1) * width
        table = values[value_start:value_end].reshape(-1, width)
        yield Combination(columns[column_start:column_end], keys[key_start:key_end], table)
        column_start, key_start, value_start = column_end, key_end, value_end


def pack_combinations(tables: Sequence[Combination]) -> dict[str, Array]:
    """Concatenate `tables`; return the arrays as attributes of `look_up_combinations`."""

    def compute_ends(element_counts: Sequence[int]) -> Array:
        return np.cumsum(element_counts, dtype=np.int64)

    return {
        "columns": np.concatenate([table.columns for table in tables]).astype(np.int32),
        "column_ends": compute_ends([table.columns.size for table in tables]),
        "keys": np.concatenate([table.keys for table in tables]),
        "key_ends": compute_ends([table.keys.size for table in tables]),
        "values": np.concatenate([table.values.ravel() for table in tables]),
        "widths": np.array([table.values.shape[1] for table in tables], np.int64),
    }


def hash_combinations(x: Array, columns: Array) -> Array:
    """Hash each row's values in `columns`; return the 64-bit hashes as int64 (n,)."""
    multiplier = np.uint64(MULTIPLIER)
    hashes = np.zeros(x.shape[0], np.uint64)
    for column in columns:
        values = x[:, column]
        exact_values = np.where(np.abs(values) < MAX_EXACT_INTEGER, values, 0)
        hashes = multiplier * (hashes + multiplier * exact_values.astype(np.int64).view(np.uint64))
    return hashes.view(np.int64)


def _look_up_type(types: Types, attrs: Attrs) -> TensorType:
    x = require_matrix(types[0], "float64")
    columns = array_attribute(attrs, "columns", "int32", (None,))
    keys = array_attribute(attrs, "keys", "int64", (None,))
    values = array_attribute(attrs, "values", shape=(None,))
    require_float(dtype_of(values))
    widths = array_attribute(attrs, "widths", "int64", (None,))
    require(widths.size > 0, "look_up_combinations needs a combination")
    key_ends = array_attribute(attrs, "key_ends", "int64", widths.shape)
    column_ends = array_attribute(attrs, "column_ends", "int64", widths.shape)
    for ends, size in ((column_ends, columns.size), (key_ends, keys.size)):
        is_ascending = (np.diff(ends, prepend=0) >= 0).all()
        require(is_ascending and ends[-1] == size, "ends must ascend to the sizes")
    require(((columns >= 0) & (columns < x.width)).all(), "a column is out of range")
    require((widths > 0).all() and widths.max() <= values.size, "a width is out of range")
    table_sizes = (np.diff(key_ends, prepend=0) + 1).astype(object) * widths.astype(object)
    has_all_values = int(table_sizes.sum()) == values.size
    require(has_all_values, "each output needs one value per key, and one for unknown combinations")
    is_sorted = np.ones(keys.size, bool)
    is_sorted[1:] = keys[1:] > keys[:-1]
    is_sorted[key_ends[key_ends < keys.size]] = True
    require(is_sorted.all(), "keys must ascend")
    return matrix(dtype_of(values), int(widths.sum()))


def _look_up(args: Sequence[Array], attrs: Attrs) -> Array:
    values = []
    for combination in unpack_combinations(attrs):
        row_hashes = hash_combinations(args[0], combination.columns)
        key_index = np.searchsorted(combination.keys, row_hashes)
        is_known = key_index < combination.keys.size
        is_known[is_known] = combination.keys[key_index[is_known]] == row_hashes[is_known]
        values.append(combination.values[np.where(is_known, key_index, combination.keys.size)])
    return np.concatenate(values, axis=1)


_FEATURE = "feature: str, step: str"
_TABLES = "columns, column_ends, keys, key_ends, values, widths"

OPERATORS: tuple[Op, ...] = (
    Op("fill", "injective", _fill_type, _fill, "value: str, missing: str?"),
    Op("encode", "injective", _encode_type, _encode, "categories, missing: int"),
    Op("require_known", "injective", _require_known_type, _require_known, _FEATURE),
    Op("one_hot", "injective", _one_hot_type, _one_hot, "width: int, dtype: str"),
    Op("encode_hashed", "injective", _encode_hashed_type, _encode_hashed, "hashes, missing: int"),
    Op("hash_categories", "injective", _hash_categories_type, _hash_categories),
    Op("look_up_combinations", "opaque", _look_up_type, _look_up, _TABLES),
)
