"""Feature extraction: text vectorizers, MultiLabelBinarizer, FeatureHasher and DictVectorizer.

As in `sklearn/feature_extraction/text.py`, tokens are counted. Then the counts become 1 (`binary`)
or log(tf) + 1, are multiplied by idf, and rows are normalized. Missing cells stay 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, MAX_DENSE, Frame, RawColumn, Schema, Sparse, to_python
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.sklearn.estimator_checks import (
    check_array,
    check_estimator,
    choose_dtype,
    make_option_error,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sparse_rows import pack_items
from sqlml.ir.operators.text import MAX_N
from sqlml.ir.utf8_column import pack_words
from sqlml.types import DType

TEXT_COLUMN, LABELS_COLUMN, ITEMS_COLUMN = "text", "labels", "items"
"""The default names of the input columns of vectorizers, MultiLabelBinarizer and FeatureHasher."""


def import_count_vectorizer(model: Any, frame: Frame) -> Frame:
    """Return sparse rows with the count of each word of the vocabulary."""
    _check_vocabulary(model)
    return _make_sparse_frame(frame, _count_tokens(model, frame))


def import_tfidf_vectorizer(model: Any, frame: Frame) -> Frame:
    _check_vocabulary(model, "_tfidf")
    counts = _count_tokens(model, frame)
    weighted = _weight_counts(model._tfidf, frame.builder, counts, frame.names[0])
    return _make_sparse_frame(frame, weighted)


def import_tfidf_transformer(model: Any, frame: Frame) -> Frame:
    """Weight counts by log(tf) + 1 and idf, and normalize rows, as the options say."""
    check_estimator(model)
    if model.use_idf and not hasattr(model, "idf_"):
        raise make_unfitted_error(model)
    counts = check_array(frame, "TfidfTransformer", dtype=choose_dtype(frame), rows="sparse")
    if not counts.type.sparse:
        counts = frame.builder.op("sparsify", counts)
    name = frame.names[0] if frame.names else TEXT_COLUMN
    weighted = _weight_counts(model, frame.builder, counts, name)
    return Frame.from_value(frame.builder, weighted, frame.names, True)


def import_hashing_vectorizer(model: Any, frame: Frame) -> Frame:
    """Return sparse rows; the hash of a token selects a column, to which 1 or -1 is added."""
    check_estimator(model)
    attrs = _build_analyzer_attrs(model, frame) | _build_hash_attrs(model)
    attrs["dtype"] = _require_exact_dtype(model)
    counts = frame.builder.op("hash_tokens", _read_texts(model, frame), **attrs)
    if model.binary:
        counts = frame.builder.op("map_stored", counts, function="one")
    if model.norm is not None:
        counts = frame.builder.op("normalise_stored", counts, norm=_require_norm(model))
    return _make_sparse_frame(frame, counts)


def read_text_schema(model: Any) -> Schema:
    return Schema((TEXT_COLUMN,), 1)


def _build_hash_attrs(model: Any) -> dict[str, Any]:
    return {"width": int(model.n_features), "alternate_sign": bool(model.alternate_sign)}


def _require_exact_dtype(model: Any) -> DType:
    """Return float32 or, also for integers of at least 4 bytes, float64."""
    dtype = np.dtype(model.dtype)
    if dtype == np.float32:
        return "float32"
    if dtype == np.float64 or (dtype.kind in "iu" and dtype.itemsize >= 4):
        return "float64"
    raise UnsupportedModelError(
        f"{type(model).__name__}(dtype={dtype.name}) may wrap or round its counts; use float64"
    )


def _make_sparse_frame(frame: Frame, rows: Value) -> Frame:
    # All columns share one name, because hashes have no names, and there may be a million columns.
    return Frame.from_value(frame.builder, rows, frame.names[:1] * rows.type.width, True)


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
    counts = frame.builder.op("count_tokens", _read_texts(model, frame), **attrs)
    if model.binary:
        counts = frame.builder.op("map_stored", counts, function="one")
    return counts


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
    return frame.read_strings(0)


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
        raise make_option_error(model, "norm")
    return str(model.norm)


def _weight_counts(model: Any, builder: Builder, counts: Value, feature: str) -> Value:
    op = builder.op
    if model.sublinear_tf:
        counts = op("map_stored", counts, function="sublinear")
    if hasattr(model, "idf_"):
        idf = np.asarray(model.idf_)
        if idf.shape != (counts.type.width,):
            raise UnsupportedModelError(
                f"{type(model).__name__} has {idf.size} weights for {counts.type.width} words"
            )
        factors = idf if idf.dtype == np.float32 else idf.astype(np.float64)
        counts = op("scale_stored", counts, factors=factors)
    if model.norm is not None:
        if model.sublinear_tf:  # For a negative count, the logarithm would be NaN.
            counts = op("require_finite_stored", counts, feature=feature, step="TfidfTransformer")
        counts = op("normalise_stored", counts, norm=_require_norm(model))
    return counts


_CONTAINER_BY_INPUT_TYPE: Mapping[str, DType] = {"dict": "map", "pair": "pairs", "string": "list"}


def read_list_schema(model: Any) -> Schema:
    return Schema((LABELS_COLUMN,), 1)


def read_hasher_schema(model: Any) -> Schema:
    return Schema((ITEMS_COLUMN,), ANY_COUNT if model.input_type == "string" else 1)


def import_multi_label_binarizer(model: Any, frame: Frame) -> Frame:
    """Return 0/1 columns that mark the classes in each row's list; unknown labels are ignored."""
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
    indicators = _apply_to_nested("has_items", frame, "list", "MultiLabelBinarizer", **attrs)
    if not model.sparse_output and len(classes) <= MAX_DENSE:
        indicators = frame.builder.op("densify", indicators, fill=0.0)
    names = tuple(str(label) for label in classes)
    return Frame.from_value(frame.builder, indicators, names, bool(model.sparse_output))


def import_feature_hasher(model: Any, frame: Frame) -> Frame:
    """Add the weight of each item (1 for a string) to the column that the hash selects."""
    check_estimator(model)
    container = _CONTAINER_BY_INPUT_TYPE.get(model.input_type)
    if container is None:
        raise make_option_error(model, "input_type")
    is_list_column = frame.width == 1 and isinstance(frame.blocks[0], RawColumn)
    if container == "list" and not is_list_column:
        hashed = _hash_strings(model, frame)
    else:
        hashed = _hash_items(model, frame, container)
    return Frame.from_value(frame.builder, hashed, ("hashed",) * hashed.type.width, True)


def _hash_items(model: Any, frame: Frame, container: DType) -> Value:
    dtype = _require_exact_dtype(model)
    if container != "list" and np.dtype(model.dtype).kind in "iu":
        raise UnsupportedModelError(
            f"FeatureHasher(dtype={np.dtype(model.dtype).name}) rounds the weights; use float64"
        )
    attrs = _build_hash_attrs(model)
    return _apply_to_nested("hash_items", frame, container, "FeatureHasher", dtype=dtype, **attrs)


def _hash_strings(model: Any, frame: Frame) -> Value:
    """Hash the strings in all columns of a row."""
    return frame.builder.op(
        "hash_tokens",
        *[frame.read_strings(i) for i in range(frame.width)],
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


def _apply_to_nested(name: str, frame: Frame, container: DType, step: str, **attrs: Any) -> Value:
    if frame.width != 1:
        raise UnsupportedModelError(
            f"{step} reads one column of lists or maps, not {frame.width}; give it only its own "
            "column, as in ColumnTransformer([('i', step, 'items')])"
        )
    column = frame.read_nested(0, container)
    attrs = {"kind": container, "feature": frame.names[0], "step": step, **attrs}
    return frame.builder.op(name, column, **attrs)


def import_dict_vectorizer(model: Any, frame: Frame) -> Frame:
    """Return a column per numeric key, and a 0/1 column per string that a key had in training.

    The columns are in the order of the vocabulary. A NULL number becomes NaN. If a string is NULL
    or unknown, all columns of the key are 0.
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
    for position, (key, values) in enumerate(keys.items()):
        i = index_by_name.get(key, position)
        if values is None:
            blocks.append(frame.read_numbers(i, dtype))
            column_indices.append(int(model.vocabulary_[key]))
            continue
        strings = np.array([string for string, _ in values], object)
        codes = frame.builder.op("encode", frame.read_strings(i), categories=strings, missing=-1)
        blocks.append(frame.builder.op("one_hot", codes, width=len(values), dtype=dtype))
        column_indices += [column for _, column in values]
    encoded = frame.builder.concat(blocks)
    order = np.argsort(np.array(column_indices, np.int64), kind="stable").astype(np.int64)
    if not np.array_equal(order, np.arange(order.size)):
        encoded = frame.builder.op("select", encoded, indices=order)
    names = [str(n) for n in model.feature_names_]
    has_zeros = model.sparse and None in keys.values()
    sparse: Sparse = "with zeros" if has_zeros else bool(model.sparse)
    return Frame.from_value(frame.builder, encoded, names, sparse)


def read_dict_schema(model: Any) -> Schema:
    check_estimator(model, "feature_names_", "vocabulary_")
    keys = tuple(_read_keys(model))
    return Schema(keys, len(keys))


def _read_keys(model: Any) -> dict[str, list[tuple[str, int]] | None]:
    """Map each numeric key to None, and other keys to pairs of a string and a column.

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
