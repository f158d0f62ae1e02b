"""What is kept for the next use, and for how long."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import numpy as np

from sqlml.bounded_cache import RecentCache, cache_by_arrays, cache_by_program


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: RecentCache[str, int] = RecentCache(max_bytes=30)
    for key in "abc":
        kept.put(key, ord(key), 10)
    assert kept.get("a") == 97
    kept.put("d", 100, 10)
    assert kept.get("b") is None
    assert [kept.get(key) for key in "acd"] == [97, 99, 100]
    kept.put("a", 1, 25)  # the same key takes more now
    assert kept.get("a") == 1 and kept.get("c") is None and len(kept) == 1


def test_the_last_one_stays_however_large() -> None:
    kept: RecentCache[str, int] = RecentCache(max_bytes=30)
    kept.put("small", 1, 1)
    kept.put("large", 2, 1000)
    assert kept.get("large") == 2 and kept.get("small") is None
    kept.put("other", 3, 1)
    assert kept.get("other") == 3 and kept.get("large") is None


def test_what_is_made_of_an_array_lives_as_long_as_the_array() -> None:
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    a, b = np.arange(3), np.arange(4)
    assert cache_by_arrays("x", [a, b], make) == 1
    assert cache_by_arrays("x", [a, b], make) == 2, "it may be written to"
    a.setflags(write=False)
    b.setflags(write=False)
    assert cache_by_arrays("x", [a, b], make) == 3 == cache_by_arrays("x", [a, b], make)
    assert cache_by_arrays("y", [a, b], make) == 4
    assert cache_by_arrays("x", [b, a], make) == 5
    del a
    gc.collect()
    for _ in range(100):  # one of them may get the old one's place
        other = np.arange(3)
        other.setflags(write=False)
        before = len(made)
        assert cache_by_arrays("x", [other, b], make) == before + 1


@dataclass(frozen=True, eq=False)
class _Program:
    """As much of one as `of_programs` asks for."""

    numbers: tuple[int, ...]
    nbytes = 10


def test_what_is_made_of_a_program_lives_as_long_even_where_it_holds_the_program() -> None:
    calls = []

    @cache_by_program
    def made(program: _Program, times: int) -> tuple[_Program, int]:
        calls.append(times)
        return program, sum(program.numbers) * times

    one, other = _Program((1, 2)), _Program((1, 2))
    assert made(one, 2)[1] == 6 and made(one, 2) is made(one, 2) and made(one, 3)[1] == 9
    assert made(other, 2)[1] == 6 and calls == [2, 3, 2]
    gone = weakref.ref(made(one, 2)[0])
    gc.disable()
    try:
        del one
        assert gone() is None
    finally:
        gc.enable()


def test_what_is_taken_is_kept_no_longer() -> None:
    kept: RecentCache[str, int] = RecentCache(max_bytes=30)
    for key in ("a1", "a2", "b"):
        kept.put(key, len(key), 10)
    assert kept.take(lambda key: key.startswith("a")) == [("a1", 2, 10), ("a2", 2, 10)]
    kept.put("c", 1, 20)
    assert kept.get("b") == 1 and kept.get("a1") is None
