"""From texts to counts of their tokens: by a vocabulary, or by a hash that needs none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import MissingValueError
from sqlml.ir.analyzer import Analyzer
from sqlml.ir.csr import Csr
from sqlml.ir.murmur import murmur3
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import CODEC, Texts, unpack, well_formed
from sqlml.types import FLOATS, TensorType, dtype_of, matrix

TEXT: frozenset[str] = frozenset({"count_tokens", "hash_tokens"})
"""Operators over the texts themselves, which no look-up in SQL replaces."""

_ANALYZER: Mapping[str, str] = MappingProxyType(
    {
        "analyzer": "str",
        "lowercase": "bool",
        "accents": "str",
        "pattern": "str",
        "stop_words": "array",
        "min_n": "int",
        "max_n": "int",
        "dtype": "str",
        "features": "tuple",
        "step": "str",
    }
)


def analyzer_of(attrs: Attrs) -> Analyzer:
    """The analyzer that an operator's attributes describe.

    Raises:
        ProgramError: they describe none.
    """
    return Analyzer(
        attrs["analyzer"],
        attrs["lowercase"],
        attrs["accents"],
        attrs["pattern"],
        frozenset(attrs["stop_words"].tolist()),
        attrs["min_n"],
        attrs["max_n"],
    )


def check_texts(columns: Sequence[Texts], attrs: Attrs) -> None:
    """Refuse a missing text.

    Raises:
        MissingValueError: names the column.
    """
    for name, texts in zip(attrs["features"], columns, strict=True):
        if texts.missing.any():
            raise MissingValueError(
                f"column {name!r} has NULL, which {attrs['step']} does not take; fill it in SQL "
                "(coalesce(.., '')), or filter such rows"
            )


def _check_analyzer(types: Types, attrs: Attrs) -> None:
    stop_words = array(attrs, "stop_words")
    need(stop_words.ndim == 1 and dtype_of(stop_words) == "string", "stop_words must be strings")
    analyzer_of(attrs)
    for kind in types:
        need(kind.dtype == "string" and kind.rowwise and kind.width == 1, "tokens come of strings")
    features = attrs["features"]
    need(
        len(features) == len(types) and all(isinstance(f, str) for f in features),
        "features names each column of texts",
    )
    need(attrs["dtype"] in FLOATS and attrs["dtype"] != "float16", "counts are float32 or float64")


def _count_tokens_type(types: Types, attrs: Attrs) -> TensorType:
    _check_analyzer(types, attrs)
    words, ends = array(attrs, "words"), array(attrs, "ends")
    need(well_formed(words, ends), "the vocabulary is damaged")
    return matrix(attrs["dtype"], ends.size, sparse=True)


def _hash_tokens_type(types: Types, attrs: Attrs) -> TensorType:
    _check_analyzer(types, attrs)
    need(attrs["width"] >= 1, "hash_tokens makes at least one column")
    return matrix(attrs["dtype"], attrs["width"], sparse=True)


def _count_tokens(args: Sequence[Any], attrs: Attrs) -> Any:
    place = {word: i for i, word in enumerate(unpack(attrs["words"], attrs["ends"]))}

    def look_up(feature: str) -> tuple[int, int] | None:
        column = place.get(feature)
        return None if column is None else (column, 1)

    return _counted(args, attrs, look_up, attrs["ends"].size)


def _hash_tokens(args: Sequence[Any], attrs: Attrs) -> Any:
    width: int = attrs["width"]
    signed: bool = attrs["alternate_sign"]

    def look_up(feature: str) -> tuple[int, int]:
        h = murmur3(feature.encode("utf-8", CODEC))
        return abs(h) % width, -1 if signed and h < 0 else 1

    return _counted(args, attrs, look_up, width)


def _counted(
    args: Sequence[Any],
    attrs: Attrs,
    look_up: Callable[[str], tuple[int, int] | None],
    width: int,
) -> Any:
    """Each row's features as (column, sign), added up and in the order of the columns."""
    analyzer = analyzer_of(attrs)
    columns = [Texts.of(x) for x in args]
    check_texts(columns, attrs)
    indptr, indices, data = [0], [], []
    for i in range(len(columns[0])):
        row: Counter[int] = Counter()
        for texts in columns:
            for feature in analyzer.features(texts.text(i)):
                found = look_up(feature)
                if found is not None:
                    row[found[0]] += found[1]
        for column in sorted(row):
            indices.append(column)
            data.append(row[column])
        indptr.append(len(indices))
    return Csr(
        np.array(data, str(attrs["dtype"])),
        np.array(indices, np.int32),
        np.array(indptr, np.int64),
        width,
    )


OPERATORS: tuple[Op, ...] = (
    Op(
        "count_tokens",
        "model",
        "opaque",
        _count_tokens_type,
        _count_tokens,
        {**_ANALYZER, "words": "array", "ends": "array"},
    ),
    Op(
        "hash_tokens",
        "model",
        "opaque",
        _hash_tokens_type,
        _hash_tokens,
        {**_ANALYZER, "width": "int", "alternate_sign": "bool"},
        arity=(1, None),
    ),
)
