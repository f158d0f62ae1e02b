"""`Dice`: seeded choices, and the calls that they put into a text."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_MARK = re.compile("«(\\d+)»")
_PARAMETER = re.compile(r"\$(p\d+)\b")


class Dice:
    """What one seed decides.

    A generated text has a mark in place of each model call; `text` writes it out twice, once with
    the call and once with what stands for it on a plain connection.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._calls: list[tuple[str, str]] = []
        self._others: dict[int, str] = {}
        self._names = 0
        self._parameters: dict[str, Any] = {}
        self.parameters_allowed = False
        """Whether a constant may be written as a parameter."""

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def some(self, options: Sequence[T], least: int = 1, most: int | None = None) -> list[T]:
        """Between `least` and `most` of the options, in any order."""
        most = len(options) if most is None else min(most, len(options))
        return self._random.sample(options, self._random.randint(min(least, most), most))

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def name(self, letter: str) -> str:
        """An alias that no other has."""
        self._names += 1
        return f"{letter}{self._names}"

    def parameter(self, value: Any) -> str:
        name = f"p{len(self._parameters)}"
        self._parameters[name] = value
        return f"${name}"

    def call(self, ours: str, twin: str, other: str = "") -> str:
        """Return the mark of a call; both texts may hold marks themselves.

        Args:
            other: another way to write `ours`, if there is one.
        """
        self._calls.append((ours, twin))
        if other:
            self._others[len(self._calls) - 1] = other
        return f"«{len(self._calls) - 1}»"

    def respelled(self, marked: str) -> str:
        """Return the text with some of its calls written in another way; the twins stay."""

        def mark(match: re.Match[str]) -> str:
            other = self._others.get(int(match[1]))
            if other is None or self.chance(0.7):
                return match[0]
            return self.call(other, self._calls[int(match[1])][1])

        return _MARK.sub(mark, marked)

    def text(self, marked: str, side: int) -> str:
        """The text with its calls (side 0), or with what stands for them (1)."""
        while "«" in marked:
            marked = _MARK.sub(lambda mark: self._calls[int(mark[1])][side], marked)
        return marked

    def values(self, text: str) -> dict[str, Any] | None:
        """The parameters that a text names."""
        return {n: self._parameters[n] for n in _PARAMETER.findall(text)} or None
