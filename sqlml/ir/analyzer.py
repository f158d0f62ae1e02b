r"""`Analyzer`: from a text to the tokens and n-grams that a vectoriser counts.

This is scikit-learn's chain (`feature_extraction/text.py`), in its order: lower case, accents,
tokens, stop words, n-grams. `\w`, `\s` and the lower case of a character are Python's own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from sqlml.errors import ProgramError

KINDS = ("word", "char", "char_wb", "whole")
"""Tokens of a pattern, characters, characters within words, or the text itself (no n-grams)."""
ACCENTS = ("", "ascii", "unicode")
MAX_PATTERN = 1000
MAX_N = 1000

RUNS: Mapping[str, int] = MappingProxyType(
    {
        pattern: least
        for least, body in ((1, r"\w+"), (2, r"\w\w+"), (3, r"\w\w\w+"))
        for flag in ("", "(?u)")
        for pattern in (
            flag + body,
            flag + r"\b" + body,
            flag + body + r"\b",
            flag + rf"\b{body}\b",
        )
    }
)
"""Patterns that take whole runs of word characters, and how long a run must be."""

_SPACES = re.compile(r"\s\s+")


@dataclass(frozen=True)
class Analyzer:
    """How a text is split. `pattern` and `stop_words` matter only to kind "word"."""

    kind: str
    lowercase: bool
    accents: str
    pattern: str
    stop_words: frozenset[str]
    min_n: int
    max_n: int

    def __post_init__(self) -> None:
        """Raises ProgramError if a part is invalid."""
        if self.kind not in KINDS or self.accents not in ACCENTS:
            raise ProgramError(
                f"unknown analyzer {self.kind!r}, or unknown accents {self.accents!r}"
            )
        if not 1 <= self.min_n <= self.max_n <= MAX_N:
            raise ProgramError(f"n-grams of {self.min_n} to {self.max_n} (from 1 to {MAX_N})")
        if self.kind == "whole" and self.max_n > 1:
            raise ProgramError("a whole text has no n-grams")
        if self.kind == "word":
            if len(self.pattern) > MAX_PATTERN:
                raise ProgramError(f"a token pattern of {len(self.pattern)} characters")
            try:
                groups = re.compile(self.pattern).groups
            except (re.error, OverflowError, RecursionError) as error:
                raise ProgramError(f"token pattern {self.pattern!r}: {error}") from None
            if groups > 1:
                raise ProgramError(f"token pattern {self.pattern!r} has {groups} groups, not 1")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def features(self, text: str) -> list[str]:
        """The features of one text, each as often as it stands there."""
        text = self.prepared(text)
        if self.kind == "whole":
            return [text]
        if self.kind == "word":
            return _joined(self.tokens(text), " ", self.min_n, self.max_n)
        text = _SPACES.sub(" ", text)
        if self.kind == "char":
            return _joined(list(text), "", self.min_n, self.max_n)
        made: list[str] = []
        for word in text.split():
            made += _within(f" {word} ", self.min_n, self.max_n)
        return made

    def prepared(self, text: str) -> str:
        """Lower case and accents."""
        if self.lowercase:
            text = text.lower()
        if not self.accents or text.isascii():
            return text
        apart = unicodedata.normalize("NFKD", text)
        if self.accents == "ascii":
            return apart.encode("ascii", "ignore").decode("ascii")
        return "".join(c for c in apart if not unicodedata.combining(c))

    def tokens(self, text: str) -> list[str]:
        """The words of a prepared text, without the stop words."""
        found = self._pattern.findall(text)
        return [t for t in found if t not in self.stop_words] if self.stop_words else found


def _joined(units: list[str], space: str, min_n: int, max_n: int) -> list[str]:
    made: list[str] = []
    for n in range(min_n, min(max_n, len(units)) + 1):
        made += [space.join(units[i : i + n]) for i in range(len(units) - n + 1)]
    return made


def _within(word: str, min_n: int, max_n: int) -> list[str]:
    """n-grams of a word padded with spaces; one of at most n characters counts once, and ends the
    loop."""
    made: list[str] = []
    for n in range(min_n, max_n + 1):
        if n >= len(word):
            made.append(word)
            break
        made += [word[i : i + n] for i in range(len(word) - n + 1)]
    return made
