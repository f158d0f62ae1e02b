"""Feature extraction: vectorizers of texts, MultiLabelBinarizer, FeatureHasher and DictVectorizer.

The order of operations is that of `sklearn/feature_extraction/text.py`: counts, then 1 for each
(`binary`), then log(tf) + 1, idf, and the norm of a row, all on stored values only. Rows of the
others contain a list, a map or a list of pairs (`types.NESTED`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import ANY_COUNT, MAX_DENSE, Frame, RawColumn, Schema, Sparse
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn.estimator_checks import check, numbers, stored_dtype
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.sparse_rows import pack_items
from sqlml.ir.operators.text import MAX_N
from sqlml.ir.utf8_column import pack_words
from sqlml.types import DType

COLUMN = "text"
"""Name of the column that a vectorizer reads, unless `inputs` names another."""


def count_vectorizer(model: Any, frame: Frame) -> Frame:
    """Count each word of the vocabulary in a text: (n, words) sparse."""
    _check_vocabulary(model)
    return _sparse(frame, _counts(model, frame))


def tfidf_vectorizer(model: Any, frame: Frame) -> Frame:
    """Apply CountVectorizer and TfidfTransformer."""
    _check_vocabulary(model, "_tfidf")
    value = _counts(model, frame)
    return _sparse(frame, _weight_counts(model._tfidf, frame.builder, value, frame.names[0]))


def tfidf_transformer(model: Any, frame: Frame) -> Frame:
    """Return log(tf) + 1, idf and norm of counts from an earlier step, or of numeric columns."""
    check(model)
    if model.use_idf and not hasattr(model, "idf_"):
        raise explain_unfitted(model)
    value = numbers(frame, "TfidfTransformer", dtype=stored_dtype(frame), rows="sparse")
    if not value.type.sparse:
        value = frame.builder.op("sparsify", value)
    name = frame.names[0] if frame.names else COLUMN
    weighted = _weight_counts(model, frame.builder, value, name)
    return Frame.from_value(frame.builder, weighted, frame.names, True)


def hashing_vectorizer(model: Any, frame: Frame) -> Frame:
    """Count signed tokens in the columns of their hashes: (n, n_features) sparse."""
    check(model)
    dtype = exact_dtype(model)
    value = frame.builder.op(
        "hash_tokens",
        _document(model, frame),
        **_analyzer(model, frame),
        dtype=dtype,
        width=int(model.n_features),
        alternate_sign=bool(model.alternate_sign),
    )
    if model.binary:
        value = frame.builder.op("map_stored", value, function="one")
    if model.norm is not None:
        value = frame.builder.op("normalise_stored", value, norm=_norm(model))
    return _sparse(frame, value)


def one_text(model: Any) -> Schema:
    """Return the schema of one text column."""
    return Schema((COLUMN,), 1)


def whole_text(step: str, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes of an analyzer that uses a text as a whole."""
    return {
        "analyzer": "whole",
        "lowercase": False,
        "accents": "",
        "pattern": "",
        "stop_words": np.array([], object),
        "min_n": 1,
        "max_n": 1,
        "features": features,
        "step": step,
    }


def exact_dtype(model: Any) -> DType:
    """Return the dtype of the counts; integers stay float64, to which the next step converts."""
    dtype = np.dtype(model.dtype)
    if dtype == np.float32:
        return "float32"
    if dtype == np.float64 or (dtype.kind in "iu" and dtype.itemsize >= 4):
        return "float64"
    raise UnsupportedModelError(
        f"{type(model).__name__}(dtype={dtype.name}) may wrap or round its counts; use float64"
    )


def _sparse(frame: Frame, value: Value) -> Frame:
    # One name for all: the tokens of a hash have none, and a million names nobody reads.
    names = frame.names[:1] * value.type.width
    return Frame.from_value(frame.builder, value, names, True)


def _check_vocabulary(model: Any, *attributes: str) -> None:
    if model.vocabulary is not None and not hasattr(model, "vocabulary_"):
        raise UnsupportedModelError(
            f"{type(model).__name__} with a fixed vocabulary has not read it yet; call its fit() "
            "on a few texts first"
        )
    check(model, *attributes, "vocabulary_")


def _counts(model: Any, frame: Frame) -> Value:
    dtype = exact_dtype(model)
    words, ends = pack_words(_vocabulary(model))
    value = frame.builder.op(
        "count_tokens",
        _document(model, frame),
        **_analyzer(model, frame),
        dtype=dtype,
        words=words,
        ends=ends,
    )
    if model.binary:
        value = frame.builder.op("map_stored", value, function="one")
    return value


def _vocabulary(model: Any) -> list[str]:
    """Return the words in the order of their columns."""
    words: list[str | None] = [None] * len(model.vocabulary_)
    for word, column in model.vocabulary_.items():
        if not isinstance(word, str):
            raise UnsupportedModelError(
                f"the vocabulary of {type(model).__name__} holds {word!r}, which is not a string"
            )
        if not 0 <= int(column) < len(words) or words[int(column)] is not None:
            raise UnsupportedModelError(
                f"the vocabulary of {type(model).__name__} does not number its words from 0"
            )
        words[int(column)] = word
    return [w for w in words if w is not None]


def _document(model: Any, frame: Frame) -> Value:
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


def _analyzer(model: Any, frame: Frame) -> dict[str, Any]:
    """Return the attributes that say how texts are split.

    Raises:
        UnsupportedModelError: a Python function of the user's, or an n-gram range without meaning.
    """
    name = type(model).__name__
    for part in ("analyzer", "tokenizer", "preprocessor", "strip_accents"):
        function = getattr(model, part)
        if callable(function) and (part != "tokenizer" or model.analyzer == "word"):
            called = getattr(function, "__name__", repr(function))
            raise UnsupportedModelError(
                f"{name} calls the Python function {called} as its {part}, which cannot run inside "
                "SQL; use a built-in analyzer, token_pattern, lowercase and strip_accents"
            )
    least, most = (int(n) for n in model.ngram_range)
    if not 1 <= least <= most <= MAX_N:
        raise UnsupportedModelError(
            f"{name}(ngram_range={model.ngram_range!r}): n-gram sizes go from 1 to {MAX_N}"
        )
    word = model.analyzer == "word"
    stop_words = sorted(model.get_stop_words() or ()) if word else []
    return {
        "analyzer": str(model.analyzer),
        "lowercase": bool(model.lowercase),
        "accents": model.strip_accents or "",
        "pattern": str(model.token_pattern) if word else "",
        "stop_words": np.array(stop_words, object),
        "min_n": least,
        "max_n": most,
        "features": frame.names[:1],
        "step": name,
    }


def _norm(model: Any) -> str:
    if model.norm not in ("l1", "l2"):
        raise UnsupportedModelError(f"{type(model).__name__}(norm={model.norm!r}) is not covered")
    return str(model.norm)


def _weight_counts(model: Any, builder: Builder, value: Value, feature: str) -> Value:
    """Weight counts like TfidfTransformer."""
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
        if model.sublinear_tf:  # the logarithm of a negative count is NaN, and normalize looks
            value = builder.op(
                "require_finite_stored", value, feature=feature, step="TfidfTransformer"
            )
        value = builder.op("normalise_stored", value, norm=_norm(model))
    return value


LABELS = "labels"
"""Name of the column that MultiLabelBinarizer reads, unless `inputs` names another."""
ITEMS = "items"
"""Name of the column that FeatureHasher reads, unless `inputs` names another."""

_FORM: Mapping[str, DType] = MappingProxyType({"dict": "map", "pair": "pairs", "string": "list"})


def one_list(model: Any) -> Schema:
    """Return the schema of one list column, for MultiLabelBinarizer."""
    return Schema((LABELS,), 1)


def hashed_columns(model: Any) -> Schema:
    """Return one column of maps, pairs or lists, or several string columns, for FeatureHasher."""
    return Schema((ITEMS,), ANY_COUNT if model.input_type == "string" else 1)


def multi_label_binarizer(model: Any, frame: Frame) -> Frame:
    """Return 1 in the column of each class that a row's list contains; ignore other labels.

    Raises:
        UnsupportedModelError: not fitted, no classes, or classes that are not single values.
    """
    check(model, "classes_")
    classes = [c.item() if isinstance(c, np.generic) else c for c in model.classes_]
    if not classes:
        raise UnsupportedModelError("MultiLabelBinarizer was fitted without any label")
    for label in classes:
        if not isinstance(label, str | int | float | None) or label != label:
            raise UnsupportedModelError(
                f"MultiLabelBinarizer knows the label {label!r}, which a SQL list cannot hold; "
                "use strings or numbers"
            )
    words, ends = pack_items(classes)
    value = frame.builder.op(
        "has_items",
        _column(frame, "list", "MultiLabelBinarizer"),
        kind="list",
        dtype="float64",
        feature=frame.names[0],
        step="MultiLabelBinarizer",
        words=words,
        ends=ends,
    )
    if not model.sparse_output and len(classes) <= MAX_DENSE:
        value = frame.builder.op("densify", value, fill=0.0)
    names = tuple(str(label) for label in classes)
    return Frame.from_value(frame.builder, value, names, bool(model.sparse_output))


def feature_hasher(model: Any, frame: Frame) -> Frame:
    """Put the weights of a row's names into the columns of their hashes.

    Raises:
        UnsupportedModelError: a dtype that rounds the weights.
    """
    check(model)
    form = _FORM.get(model.input_type)
    if form is None:
        raise UnsupportedModelError(f"FeatureHasher(input_type={model.input_type!r}) is unknown")
    rows_of_strings = form == "list" and not (
        frame.width == 1 and isinstance(frame.blocks[0], RawColumn)
    )
    value = _hashed_strings(model, frame) if rows_of_strings else _hashed(model, frame, form)
    names = ("hashed",) * value.type.width
    return Frame.from_value(frame.builder, value, names, True)


def _hashed(model: Any, frame: Frame, form: DType) -> Value:
    dtype = exact_dtype(model)
    if form != "list" and np.dtype(model.dtype).kind in "iu":
        raise UnsupportedModelError(
            f"FeatureHasher(dtype={np.dtype(model.dtype).name}) rounds the weights; use float64"
        )
    return frame.builder.op(
        "hash_items",
        _column(frame, form, "FeatureHasher"),
        kind=form,
        dtype=dtype,
        feature=frame.names[0],
        step="FeatureHasher",
        width=int(model.n_features),
        alternate_sign=bool(model.alternate_sign),
    )


def _hashed_strings(model: Any, frame: Frame) -> Value:
    """Return rows of as many strings as there are columns, like a matrix of strings."""
    return frame.builder.op(
        "hash_tokens",
        *[frame.strings(i) for i in range(frame.width)],
        **whole_text("FeatureHasher", frame.names),
        dtype=exact_dtype(model),
        width=int(model.n_features),
        alternate_sign=bool(model.alternate_sign),
    )


def _column(frame: Frame, form: DType, step: str) -> Value:
    if frame.width != 1:
        raise UnsupportedModelError(
            f"{step} reads one column of lists or maps, not {frame.width}; give it only its own "
            "column, as in ColumnTransformer([('i', step, 'items')])"
        )
    return frame.nested(0, form)


def dict_vectorizer(model: Any, frame: Frame) -> Frame:
    """Return a column per number and per known string value, in the vocabulary's order.

    A NULL number is NaN, as None is in the source; a NULL or unknown string has no column.

    Raises:
        UnsupportedModelError: not fitted, a key with both numbers and strings, or a dtype that
            rounds.
    """
    check(model, "feature_names_", "vocabulary_")
    if np.dtype(model.dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise UnsupportedModelError(
            f"DictVectorizer(dtype={np.dtype(model.dtype).name}) rounds numbers; use float64"
        )
    dtype: DType = "float32" if np.dtype(model.dtype) == np.float32 else "float64"
    keys = _keys(model)
    columns = {name: i for i, name in enumerate(frame.names)}
    if frame.width != len(keys):
        raise UnsupportedModelError(
            f"DictVectorizer reads the keys {', '.join(keys)}; give it these columns"
        )
    parts: list[Value] = []
    places: list[int] = []
    builder = frame.builder
    for (key, values), i in zip(keys.items(), range(frame.width), strict=True):
        i = columns.get(key, i)
        if values is None:
            parts.append(frame.numbers(i, dtype))
            places.append(int(model.vocabulary_[key]))
            continue
        words = np.array([value for value, _ in values], object)
        codes = builder.op("encode", frame.strings(i), categories=words, missing=-1)
        parts.append(builder.op("one_hot", codes, width=len(values), dtype=dtype))
        places += [place for _, place in values]
    value = builder.concat(parts)
    order = np.argsort(np.array(places, np.int64), kind="stable").astype(np.int64)
    if not np.array_equal(order, np.arange(order.size)):
        value = builder.op("select", value, indices=order)
    names = [str(n) for n in model.feature_names_]
    sparse: Sparse = bool(model.sparse)
    if sparse and None in keys.values():
        sparse = "with zeros"
    return Frame.from_value(builder, value, names, sparse)


def dict_schema(model: Any) -> Schema:
    """Return the keys of the dicts, in the order of their first columns."""
    check(model, "feature_names_", "vocabulary_")
    keys = tuple(_keys(model))
    return Schema(keys, len(keys))


def _keys(model: Any) -> dict[str, list[tuple[str, int]] | None]:
    """Return key -> None for a number, else its values with their columns.

    A name with the separator is a key and a value; the key ends at the first separator.
    """
    keys: dict[str, list[tuple[str, int]] | None] = {}
    for key, value, place in _split(model):
        if value is None:
            if key in keys:
                raise _mixed(key)
            keys[key] = None
            continue
        values = keys.setdefault(key, [])
        if values is None:
            raise _mixed(key)
        values.append((value, place))
    return keys


def _split(model: Any) -> Iterator[tuple[str, str | None, int]]:
    for name, place in sorted(model.vocabulary_.items(), key=lambda item: item[1]):
        if not isinstance(name, str):
            raise UnsupportedModelError(
                f"DictVectorizer was fitted on the key {name!r}; a column's name is a string"
            )
        key, separator, value = name.partition(model.separator)
        yield key, value if separator else None, int(place)


def _mixed(key: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"DictVectorizer saw numbers and strings under the key {key!r}; a column holds one kind"
    )
