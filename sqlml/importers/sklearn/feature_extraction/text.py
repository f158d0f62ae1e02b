"""Vectorizers: from texts to sparse counts and their tf-idf weights.

The order of operations is that of `sklearn/feature_extraction/text.py`: counts, then 1 for each
(`binary`), then log(tf) + 1, idf, and the norm of a row, all only on stored values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Schema
from sqlml.importers.sklearn.checked import numbers, stored_dtype
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.unfitted import unfitted
from sqlml.ir.analyzer import MAX_N
from sqlml.ir.builder import Builder, Value
from sqlml.ir.utf8_column import pack
from sqlml.types import DType

COLUMN = "text"
"""Name of the column that a vectorizer reads, unless `inputs` names another."""


def count_vectorizer(model: Any, frame: Frame) -> Frame:
    """How often each word of the vocabulary stands in a text: (n, words) sparse."""
    _check_vocabulary(model)
    return _sparse(frame, _counts(model, frame))


def tfidf_vectorizer(model: Any, frame: Frame) -> Frame:
    """CountVectorizer and then TfidfTransformer."""
    _check_vocabulary(model, "_tfidf")
    value = _counts(model, frame)
    return _sparse(frame, _weighted(model._tfidf, frame.builder, value, frame.names[0]))


def tfidf_transformer(model: Any, frame: Frame) -> Frame:
    """log(tf) + 1, idf and norm of counts that an earlier step made, or of columns of numbers."""
    check(model)
    if model.use_idf and not hasattr(model, "idf_"):
        raise unfitted(model)
    value = numbers(frame, "TfidfTransformer", dtype=stored_dtype(frame), rows="sparse")
    if not value.type.sparse:
        value = frame.builder.op("sparsify", value)
    name = frame.names[0] if frame.names else COLUMN
    made = _weighted(model, frame.builder, value, name)
    return Frame.of(frame.builder, made, frame.names, True)


def hashing_vectorizer(model: Any, frame: Frame) -> Frame:
    """Tokens counted, with a sign, in the column that their hash says: (n, n_features) sparse."""
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
    """The one column of texts that a vectorizer reads."""
    return Schema((COLUMN,), 1)


def whole_text(step: str, features: tuple[str, ...]) -> dict[str, Any]:
    """The attributes of an analyzer that takes a text as it is."""
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
    """The dtype of the counts; integers are kept in float64, which the next step makes of
    them anyway."""
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
    return Frame.of(frame.builder, value, names, True)


def _check_vocabulary(model: Any, *attributes: str) -> None:
    if model.vocabulary is not None and not hasattr(model, "vocabulary_"):
        raise UnsupportedModelError(
            f"{type(model).__name__} with a fixed vocabulary has not read it yet; call its fit() "
            "on a few texts first"
        )
    check(model, *attributes, "vocabulary_")


def _counts(model: Any, frame: Frame) -> Value:
    dtype = exact_dtype(model)
    words, ends = pack(_vocabulary(model))
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
    """The words by their columns."""
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
    """The attributes that say how texts are cut.

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


def _weighted(model: Any, builder: Builder, value: Value, feature: str) -> Value:
    """What TfidfTransformer does to counts."""
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
