"""What is kept for the next use, and for how long."""

from __future__ import annotations

import gc

import numpy as np

from sqlml.recent import Recent, while_alive


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: Recent[str, int] = Recent(most_bytes=30)
    for key in "abc":
        kept.put(key, ord(key), 10)
    assert kept.get("a") == 97
    kept.put("d", 100, 10)
    assert kept.get("b") is None
    assert [kept.get(key) for key in "acd"] == [97, 99, 100]
    kept.put("a", 1, 25)  # the same key takes more now
    assert kept.get("a") == 1 and kept.get("c") is None and len(kept) == 1


def test_the_last_one_stays_however_large() -> None:
    kept: Recent[str, int] = Recent(most_bytes=30)
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
    assert while_alive("x", [a, b], make) == 1
    assert while_alive("x", [a, b], make) == 2, "it may be written to"
    a.setflags(write=False)
    b.setflags(write=False)
    assert while_alive("x", [a, b], make) == 3 == while_alive("x", [a, b], make)
    assert while_alive("y", [a, b], make) == 4
    assert while_alive("x", [b, a], make) == 5
    del a
    gc.collect()
    for _ in range(100):  # one of them may get the old one's place
        other = np.arange(3)
        other.setflags(write=False)
        before = len(made)
        assert while_alive("x", [other, b], make) == before + 1
