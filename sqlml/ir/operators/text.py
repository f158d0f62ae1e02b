"""Operators that count the tokens of strings, by a vocabulary or by a hash.

`Analyzer` splits a string as scikit-learn does (`sklearn/feature_extraction/text.py`): lower case,
accents, tokens, stop words, n-grams, in this order. `\\w`, `\\s` and lower case are Python's.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sqlml.errors import MissingValueError, ProgramError
from sqlml.ir.csr import Csr
from sqlml.ir.hashes import murmur3
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_matrix
from sqlml.ir.program import Attrs
from sqlml.ir.utf8_column import CODEC, TextColumn, is_well_formed, unpack_words
from sqlml.types import TensorType, matrix

KINDS = ("word", "char", "char_wb", "whole")
"""Kinds of tokens: matches of a pattern, characters, characters within words, the whole text."""
ACCENTS = ("", "ascii", "unicode")
MAX_PATTERN = 1000
MAX_N = 1000

WORD_RUN_PATTERNS: Mapping[str, int] = {
    f"{flag}{begin}{body}{end}": min_length
    for min_length, body in ((1, r"\w+"), (2, r"\w\w+"), (3, r"\w\w\w+"))
    for flag in ("", "(?u)")
    for begin in ("", r"\b")
    for end in ("", r"\b")
}
"""Map each pattern for runs of word characters to the minimum length of a run."""

_SPACES = re.compile(r"\s\s+")


@dataclass(frozen=True)
class Analyzer:
    """The settings for splitting a string; only kind "word" uses `pattern` and `stop_words`."""

    kind: str
    lowercase: bool
    accents: str
    pattern: str
    stop_words: frozenset[str]
    min_n: int
    max_n: int

    def __post_init__(self) -> None:
        require(self.kind in KINDS, f"unknown analyzer {self.kind!r}")
        require(self.accents in ACCENTS, f"unknown accents {self.accents!r}")
        is_range = 1 <= self.min_n <= self.max_n <= MAX_N
        require(is_range, f"invalid n-grams: {self.min_n} to {self.max_n} (of 1 to {MAX_N})")
        require(self.kind != "whole" or self.max_n == 1, "a whole text has no n-grams")
        if self.kind == "word":
            is_short = len(self.pattern) <= MAX_PATTERN
            require(is_short, f"a token pattern has {len(self.pattern)} characters: too long")
            try:
                groups = re.compile(self.pattern).groups
            except (re.error, OverflowError, RecursionError) as error:
                raise ProgramError(f"token pattern {self.pattern!r}: {error}") from None
            require(groups <= 1, f"token pattern {self.pattern!r} has {groups} groups, more than 1")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def extract_features(self, text: str) -> list[str]:
        """Return the features of one string, with duplicates."""
        text = self.normalize(text)
        if self.kind == "whole":
            return [text]
        if self.kind == "word":
            return _join_ngrams(self.tokens(text), " ", self.min_n, self.max_n)
        text = _SPACES.sub(" ", text)
        if self.kind == "char":
            return _join_ngrams(list(text), "", self.min_n, self.max_n)
        words = (f" {word} " for word in text.split())
        return [ngram for word in words for ngram in _split_word(word, self.min_n, self.max_n)]

    def normalize(self, text: str) -> str:
        """Convert `text` to lower case and remove accents, as the settings require."""
        if self.lowercase:
            text = text.lower()
        if not self.accents or text.isascii():
            return text
        decomposed = unicodedata.normalize("NFKD", text)
        if self.accents == "ascii":
            return decomposed.encode("ascii", "ignore").decode("ascii")
        return "".join(c for c in decomposed if not unicodedata.combining(c))

    def tokens(self, text: str) -> list[str]:
        """Return the words of a normalized string, without the stop words."""
        return [token for token in self._pattern.findall(text) if token not in self.stop_words]


def _join_ngrams(units: list[str], separator: str, min_n: int, max_n: int) -> list[str]:
    return [
        separator.join(units[i : i + n])
        for n in range(min_n, min(max_n, len(units)) + 1)
        for i in range(len(units) - n + 1)
    ]


def _split_word(word: str, min_n: int, max_n: int) -> list[str]:
    """Return the n-grams of a padded word; a word of up to `max_n` characters is listed once."""
    ngrams = _join_ngrams(list(word), "", min_n, min(max_n, len(word) - 1))
    return [*ngrams, word] if max_n >= len(word) else ngrams


TEXT_OPERATORS: frozenset[str] = frozenset({"count_tokens", "hash_tokens"})
"""Operators that split strings, which lookups in SQL cannot replace."""

_ANALYZER = (
    "analyzer: str, accents: str, pattern: str, min_n: int, max_n: int, lowercase: bool, "
    "stop_words, features: tuple, dtype: str, step: str"
)


def make_analyzer(attrs: Attrs) -> Analyzer:
    """Build the analyzer described by `attrs`; raise ProgramError if `attrs` are invalid."""
    option_names = ("lowercase", "accents", "pattern", "min_n", "max_n")
    return Analyzer(
        kind=attrs["analyzer"],
        stop_words=frozenset(attrs["stop_words"].tolist()),
        **{name: attrs[name] for name in option_names},
    )


def require_no_missing_texts(columns: Sequence[TextColumn], attrs: Attrs) -> None:
    for name, strings in zip(attrs["features"], columns, strict=True):
        if strings.missing.any():
            raise MissingValueError(
                f"column {name!r} has NULL, which {attrs['step']} does not take; fill it in SQL "
                "(coalesce(..., '')), or filter such rows"
            )


def _check_analyzer(types: Types, attrs: Attrs) -> None:
    array_attribute(attrs, "stop_words", "string", (None,))
    make_analyzer(attrs)
    for x in types:
        require_matrix(x, "string", 1)
    has_names = len(attrs["features"]) == len(types)
    has_names = has_names and all(isinstance(name, str) for name in attrs["features"])
    require(has_names, "features must name each string column")
    require(attrs["dtype"] in ("float32", "float64"), "counts are float32 or float64")


def _count_tokens_type(types: Types, attrs: Attrs) -> TensorType:
    _check_analyzer(types, attrs)
    words, ends = array_attribute(attrs, "words"), array_attribute(attrs, "ends")
    require(is_well_formed(words, ends), "the vocabulary is damaged")
    return matrix(attrs["dtype"], ends.size, sparse=True)


def _hash_tokens_type(types: Types, attrs: Attrs) -> TensorType:
    _check_analyzer(types, attrs)
    require(attrs["width"] >= 1, "hash_tokens needs a width of at least 1")
    return matrix(attrs["dtype"], attrs["width"], sparse=True)


def _count_tokens(args: Sequence[Any], attrs: Attrs) -> Any:
    words = unpack_words(attrs["words"], attrs["ends"])
    column_and_sign_by_word = {word: (column, 1) for column, word in enumerate(words)}
    return _count_features(args, attrs, column_and_sign_by_word.get, len(words))


def _hash_tokens(args: Sequence[Any], attrs: Attrs) -> Any:
    width, is_signed = attrs["width"], attrs["alternate_sign"]

    def look_up(feature: str) -> tuple[int, int]:
        hash_value = murmur3(feature.encode("utf-8", CODEC))
        return abs(hash_value) % width, -1 if is_signed and hash_value < 0 else 1

    return _count_features(args, attrs, look_up, width)


LookUp = Callable[[str], tuple[int, int] | None]


def _count_features(args: Sequence[Any], attrs: Attrs, look_up: LookUp, width: int) -> Any:
    """Return sparse rows with the sums of the signs of the features in each column.

    `look_up` maps a feature to a column and a sign, or to None if the feature is ignored.
    """
    analyzer = make_analyzer(attrs)
    columns = [TextColumn.from_values(x) for x in args]
    require_no_missing_texts(columns, attrs)
    indptr, indices, data = [0], [], []
    for i in range(len(columns[0])):
        sums: Counter[int] = Counter()
        for strings in columns:
            for feature in analyzer.extract_features(strings.text(i)):
                column_and_sign = look_up(feature)
                if column_and_sign is not None:
                    sums[column_and_sign[0]] += column_and_sign[1]
        indices += sorted(sums)
        data += [sums[column] for column in sorted(sums)]
        indptr.append(len(indices))
    counts = np.array(data, str(attrs["dtype"]))
    return Csr(counts, np.array(indices, np.int32), np.array(indptr, np.int64), width)


_HASH = f"{_ANALYZER}, width: int, alternate_sign: bool"

OPERATORS: tuple[Op, ...] = (
    Op("count_tokens", "opaque", _count_tokens_type, _count_tokens, f"{_ANALYZER}, words, ends"),
    Op("hash_tokens", "opaque", _hash_tokens_type, _hash_tokens, _HASH, arity=(1, None)),
)
