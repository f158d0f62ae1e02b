"""Feature extraction: text vectorizers, MultiLabelBinarizer, FeatureHasher and DictVectorizer.

As in `sklearn/feature_extraction/text.py`, tokens are counted. Then counts become 1 (`binary`) or
log(tf) + 1, are multiplied by idf, and rows are normalized. Cells that are not stored stay 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, MAX_DENSE, Frame, RawColumn, Schema, Sparse, to_python
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn.estimator_checks import (
    check_array,
    check_estimator,
    choose_dtype,
    explain_option,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sparse_rows import pack_items
from sqlml.ir.operators.text import MAX_N
from sqlml.ir.utf8_column import pack_words
from sqlml.types import DType

TEXT_COLUMN, LABELS_COLUMN, ITEMS_COLUMN = "text", "labels", "items"
"""The default names of the input columns of vectorizers, MultiLabelBinarizer and FeatureHasher."""


def count_vectorizer(model: Any, frame: Frame) -> Frame:
    """Count how often a text contains each word of the vocabulary: sparse rows (n, words)."""
    _check_vocabulary(model)
    return _make_sparse_frame(frame, _count_tokens(model, frame))


def tfidf_vectorizer(model: Any, frame: Frame) -> Frame:
    _check_vocabulary(model, "_tfidf")
    value = _count_tokens(model, frame)
    value = _weight_counts(model._tfidf, frame.builder, value, frame.names[0])
    return _make_sparse_frame(frame, value)


def tfidf_transformer(model: Any, frame: Frame) -> Frame:
    """Weight counts by log(tf) + 1 and idf, and normalize rows, as far as the options say so."""
    check_estimator(model)
    if model.use_idf and not hasattr(model, "idf_"):
        raise explain_unfitted(model)
    value = check_array(frame, "TfidfTransformer", dtype=choose_dtype(frame), rows="sparse")
    if not value.type.sparse:
        value = frame.builder.op("sparsify", value)
    name = frame.names[0] if frame.names else TEXT_COLUMN
    weighted = _weight_counts(model, frame.builder, value, name)
    return Frame.from_value(frame.builder, weighted, frame.names, True)


def hashing_vectorizer(model: Any, frame: Frame) -> Frame:
    """Add the sign of each token to the column that the token's hash selects, in sparse rows."""
    check_estimator(model)
    attrs = _build_analyzer_attrs(model, frame) | _build_hash_attrs(model)
    attrs["dtype"] = _require_exact_dtype(model)
    value = frame.builder.op("hash_tokens", _read_texts(model, frame), **attrs)
    if model.binary:
        value = frame.builder.op("map_stored", value, function="one")
    if model.norm is not None:
        value = frame.builder.op("normalise_stored", value, norm=_require_norm(model))
    return _make_sparse_frame(frame, value)


def read_text_schema(model: Any) -> Schema:
    return Schema((TEXT_COLUMN,), 1)


def _build_hash_attrs(model: Any) -> dict[str, Any]:
    return {"width": int(model.n_features), "alternate_sign": bool(model.alternate_sign)}


def _require_exact_dtype(model: Any) -> DType:
    """Return the dtype of the counts: float32 or, also for integers of 4 or 8 bytes, float64."""
    dtype = np.dtype(model.dtype)
    if dtype == np.float32:
        return "float32"
    if dtype == np.float64 or (dtype.kind in "iu" and dtype.itemsize >= 4):
        return "float64"
    raise UnsupportedModelError(
        f"{type(model).__name__}(dtype={dtype.name}) may wrap or round its counts; use float64"
    )


def _make_sparse_frame(frame: Frame, value: Value) -> Frame:
    # All columns share one name, because hashes have no names, and there may be a million columns.
    names = frame.names[:1] * value.type.width
    return Frame.from_value(frame.builder, value, names, True)


def _check_vocabulary(model: Any, *attributes: str) -> None:
    if model.vocabulary is not None and not hasattr(model, "vocabulary_"):
        raise UnsupportedModelError(
            f"{type(model).__name__} with a fixed vocabulary has not read it yet; call its fit() "
            "on a few texts first"
        )
    check_estimator(model, *attributes, "vocabulary_")


def _count_tokens(model: Any, frame: Frame) -> Value:
    dtype = _require_exact_dtype(model)
    words, ends = pack_words(_read_vocabulary(model))
    attrs = {**_build_analyzer_attrs(model, frame), "dtype": dtype, "words": words, "ends": ends}
    value = frame.builder.op("count_tokens", _read_texts(model, frame), **attrs)
    if model.binary:
        value = frame.builder.op("map_stored", value, function="one")
    return value


def _read_vocabulary(model: Any) -> list[str]:
    words: list[str | None] = [None] * len(model.vocabulary_)
    for word, column in model.vocabulary_.items():
        if not isinstance(word, str):
            raise UnsupportedModelError(
                f"the vocabulary of {type(model).__name__} contains {word!r}, which is not a string"
            )
        if not 0 <= int(column) < len(words) or words[int(column)] is not None:
            raise UnsupportedModelError(
                f"the vocabulary of {type(model).__name__} does not number its words from 0"
            )
        words[int(column)] = word
    return [w for w in words if w is not None]


def _read_texts(model: Any, frame: Frame) -> Value:
    name = type(model).__name__
    if frame.width != 1:
        raise UnsupportedModelError(
            f"{name} reads one column of texts, not {frame.width}; give it only its own column, "
            "as in ColumnTransformer([('t', vectorizer, 'text')])"
        )
    if model.input != "content":
        raise UnsupportedModelError(
            f"{name}(input={model.input!r}) reads files; use input='content' on a column of texts"
        )
    return frame.strings(0)


def _build_analyzer_attrs(model: Any, frame: Frame) -> dict[str, Any]:
    step = type(model).__name__
    for option in ("analyzer", "tokenizer", "preprocessor", "strip_accents"):
        function = getattr(model, option)
        if callable(function) and (option != "tokenizer" or model.analyzer == "word"):
            called_name = getattr(function, "__name__", repr(function))
            raise UnsupportedModelError(
                f"{step} calls the Python function {called_name} as its {option}, which cannot "
                "run inside SQL; use the options analyzer, token_pattern and lowercase"
            )
    min_n, max_n = (int(n) for n in model.ngram_range)
    if not 1 <= min_n <= max_n <= MAX_N:
        raise UnsupportedModelError(
            f"{step}(ngram_range={model.ngram_range!r}): n-gram sizes must be from 1 to {MAX_N}"
        )
    splits_words = model.analyzer == "word"
    stop_words = sorted(model.get_stop_words() or ()) if splits_words else []
    return {
        "analyzer": str(model.analyzer),
        "lowercase": bool(model.lowercase),
        "accents": model.strip_accents or "",
        "pattern": str(model.token_pattern) if splits_words else "",
        "stop_words": np.array(stop_words, object),
        "min_n": min_n,
        "max_n": max_n,
        "features": frame.names[:1],
        "step": step,
    }


def _require_norm(model: Any) -> str:
    if model.norm not in ("l1", "l2"):
        raise explain_option(model, "norm")
    return str(model.norm)


def _weight_counts(model: Any, builder: Builder, value: Value, feature: str) -> Value:
    if model.sublinear_tf:
        value = builder.op("map_stored", value, function="sublinear")
    if hasattr(model, "idf_"):
        idf = np.asarray(model.idf_)
        if idf.shape != (value.type.width,):
            raise UnsupportedModelError(
                f"{type(model).__name__} has {idf.size} weights for {value.type.width} words"
            )
        factors = idf if idf.dtype == np.float32 else idf.astype(np.float64)
        value = builder.op("scale_stored", value, factors=factors)
    if model.norm is not None:
        if model.sublinear_tf:  # For a negative count, the logarithm would be NaN.
            value = builder.op(
                "require_finite_stored", value, feature=feature, step="TfidfTransformer"
            )
        value = builder.op("normalise_stored", value, norm=_require_norm(model))
    return value


_CONTAINER_BY_INPUT_TYPE: Mapping[str, DType] = {"dict": "map", "pair": "pairs", "string": "list"}


def read_list_schema(model: Any) -> Schema:
    return Schema((LABELS_COLUMN,), 1)


def read_hasher_schema(model: Any) -> Schema:
    return Schema((ITEMS_COLUMN,), ANY_COUNT if model.input_type == "string" else 1)


def multi_label_binarizer(model: Any, frame: Frame) -> Frame:
    """Return 0/1 columns that mark the classes in each row's list; ignore unknown labels."""
    check_estimator(model, "classes_")
    classes = to_python(model.classes_)
    if not classes:
        raise UnsupportedModelError("MultiLabelBinarizer was fitted without any label")
    for label in classes:
        if not isinstance(label, str | int | float | None) or label != label:
            raise UnsupportedModelError(
                f"MultiLabelBinarizer knows the label {label!r}, which a SQL list cannot hold; "
                "use strings or numbers"
            )
    words, ends = pack_items(classes)
    attrs = {"dtype": "float64", "words": words, "ends": ends}
    value = _apply_to_nested("has_items", frame, "list", "MultiLabelBinarizer", **attrs)
    if not model.sparse_output and len(classes) <= MAX_DENSE:
        value = frame.builder.op("densify", value, fill=0.0)
    names = tuple(str(label) for label in classes)
    return Frame.from_value(frame.builder, value, names, bool(model.sparse_output))


def feature_hasher(model: Any, frame: Frame) -> Frame:
    """Add each item's weight, or 1 for a string, to the column that its hash selects."""
    check_estimator(model)
    container = _CONTAINER_BY_INPUT_TYPE.get(model.input_type)
    if container is None:
        raise explain_option(model, "input_type")
    is_list_column = frame.width == 1 and isinstance(frame.blocks[0], RawColumn)
    if container == "list" and not is_list_column:
        value = _hash_strings(model, frame)
    else:
        value = _hash_items(model, frame, container)
    names = ("hashed",) * value.type.width
    return Frame.from_value(frame.builder, value, names, True)


def _hash_items(model: Any, frame: Frame, container: DType) -> Value:
    dtype = _require_exact_dtype(model)
    if container != "list" and np.dtype(model.dtype).kind in "iu":
        raise UnsupportedModelError(
            f"FeatureHasher(dtype={np.dtype(model.dtype).name}) rounds the weights; use float64"
        )
    attrs = _build_hash_attrs(model)
    return _apply_to_nested("hash_items", frame, container, "FeatureHasher", dtype=dtype, **attrs)


def _hash_strings(model: Any, frame: Frame) -> Value:
    """Hash the strings in all columns of a row, which scikit-learn reads as a matrix of strings."""
    return frame.builder.op(
        "hash_tokens",
        *[frame.strings(i) for i in range(frame.width)],
        analyzer="whole",
        lowercase=False,
        accents="",
        pattern="",
        stop_words=np.array([], object),
        min_n=1,
        max_n=1,
        features=frame.names,
        step="FeatureHasher",
        dtype=_require_exact_dtype(model),
        **_build_hash_attrs(model),
    )


def _apply_to_nested(op: str, frame: Frame, container: DType, step: str, **attrs: Any) -> Value:
    if frame.width != 1:
        raise UnsupportedModelError(
            f"{step} reads one column of lists or maps, not {frame.width}; give it only its own "
            "column, as in ColumnTransformer([('i', step, 'items')])"
        )
    column, feature = frame.nested(0, container), frame.names[0]
    return frame.builder.op(op, column, kind=container, feature=feature, step=step, **attrs)


def dict_vectorizer(model: Any, frame: Frame) -> Frame:
    """Return a column per numeric key, and a 0/1 column per string that a key had in training.

    The columns are in the order of the vocabulary. A NULL number becomes NaN, as None does in
    scikit-learn. If a string is NULL or unknown, all columns of its key are 0.
    """
    check_estimator(model, "feature_names_", "vocabulary_")
    fitted_dtype = np.dtype(model.dtype)
    if fitted_dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnsupportedModelError(
            f"DictVectorizer(dtype={fitted_dtype.name}) rounds numbers; use float64"
        )
    dtype: DType = "float32" if fitted_dtype == np.float32 else "float64"
    keys = _read_keys(model)
    index_by_name = {name: i for i, name in enumerate(frame.names)}
    if frame.width != len(keys):
        raise UnsupportedModelError(
            f"DictVectorizer reads the keys {', '.join(keys)}; give it these columns"
        )
    blocks: list[Value] = []
    column_indices: list[int] = []
    b = frame.builder
    for i, (key, values) in enumerate(keys.items()):
        i = index_by_name.get(key, i)
        if values is None:
            blocks.append(frame.numbers(i, dtype))
            column_indices.append(int(model.vocabulary_[key]))
            continue
        strings = np.array([value for value, _ in values], object)
        codes = b.op("encode", frame.strings(i), categories=strings, missing=-1)
        blocks.append(b.op("one_hot", codes, width=len(values), dtype=dtype))
        column_indices += [position for _, position in values]
    value = b.concat(blocks)
    order = np.argsort(np.array(column_indices, np.int64), kind="stable").astype(np.int64)
    if not np.array_equal(order, np.arange(order.size)):
        value = b.op("select", value, indices=order)
    names = [str(n) for n in model.feature_names_]
    has_zeros = model.sparse and None in keys.values()
    sparse: Sparse = "with zeros" if has_zeros else bool(model.sparse)
    return Frame.from_value(b, value, names, sparse)


def dict_schema(model: Any) -> Schema:
    check_estimator(model, "feature_names_", "vocabulary_")
    keys = tuple(_read_keys(model))
    return Schema(keys, len(keys))


def _read_keys(model: Any) -> dict[str, list[tuple[str, int]] | None]:
    """Map each key to None if it holds numbers, otherwise to pairs of a string and its column.

    A name in the vocabulary is a numeric key, or a key and a string joined by `separator`.
    """
    keys: dict[str, list[tuple[str, int]] | None] = {}
    for name, position in sorted(model.vocabulary_.items(), key=lambda item: item[1]):
        if not isinstance(name, str):
            raise UnsupportedModelError(
                f"DictVectorizer was fitted on the key {name!r}, but column names are strings"
            )
        key, separator, value = name.partition(model.separator)
        if key in keys and (keys[key] is None or not separator):
            raise UnsupportedModelError(
                f"DictVectorizer saw numbers and strings under the key {key!r}; a column holds one "
                "kind"
            )
        if separator:
            values = keys.setdefault(key, [])
            assert values is not None
            values.append((value, int(position)))
        else:
            keys[key] = None
    return keys
