"""Checks of the kernels of texts accept sqlml's own calls, and keep tokens inside their buffers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

from sqlml.backends.native.kernel_calls import MEMORY, RESULT, SCRATCH, Call, Rows
from sqlml.backends.native.text.city_hash import call_hash_texts
from sqlml.backends.native.text.count_tokens import CHUNK, make_character_tables
from sqlml.backends.native.text.token_kernels import CODE_POINTS, PAGE_SIZE
from sqlml.ir.operators.text import MAX_N
from sqlml.udfs.duckdb.native.memory_layout import INLINE_BYTES, NULL_LENGTH
from sqlml.udfs.duckdb.native.plan_bytecode import make_find_bounds_call
from tests.support.damaged_calls import Rng, damage_call
from tests.support.exported_calls import (
    find_calls,
    has_rows_where_annotated,
    is_safe,
    load_guarded,
    name_kernel,
    run_damaged,
)
from tests.support.guarded_arrays import (
    SIDES,
    Array,
    GuardedMemory,
    Side,
    guard,
    list_arguments,
    map_arguments,
    replace_constants,
    run_cases,
    set_allocation_side,
    view_memory,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and mmap")

TEXTS = ("late payer again", "naïve friend", "a late friend is a payer", "日本 it's", "", "x y z")
LONG_CATEGORIES = ("a long name of a city", "another long name of a city", "Köln", "Bonn")

INT64, DOUBLE = np.dtype(np.int64), np.dtype(np.float64)
START, STOP = (Rows(SCRATCH + k, INT64, 1, is_flat=True) for k in range(2))
OUT = Rows(RESULT, DOUBLE, 1)


def fit(vectorizer: Any, *steps: Any) -> Any:
    texts = [*TEXTS, *TEXTS, *TEXTS]
    return make_pipeline(vectorizer, *steps).fit(texts, np.arange(len(texts)) % 2)


def fit_categories() -> Any:
    cities = pd.DataFrame({"city": LONG_CATEGORIES * 9})
    encoder = make_column_transformer((OrdinalEncoder(), ["city"]))
    return make_pipeline(encoder, DecisionTreeClassifier()).fit(cities, np.arange(36) % 4 > 1)


@cache
def list_text_sums() -> tuple[Call, ...]:
    """Calls that cut, count, select and weight words, characters, and characters within words."""
    characters = CountVectorizer(analyzer="char", ngram_range=(2, 3), binary=True)
    models = (
        fit(
            TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", stop_words=["is"], ngram_range=(1, 2)),
            LogisticRegression(),
        ),
        fit(
            TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 3), sublinear_tf=True),
            SelectKBest(k=9),
            LogisticRegression(),
        ),
        fit(characters, LogisticRegression()),
        fit(HashingVectorizer(n_features=16, norm="l1"), SelectKBest(k=4), LogisticRegression()),
        fit(HashingVectorizer(n_features=8, analyzer="char_wb"), DecisionTreeClassifier()),
        fit(CountVectorizer(token_pattern=r"(?u)\b\w+\b"), DecisionTreeClassifier()),
    )
    return tuple(find_calls(model, "add_text_sums")[0] for model in models)


SAMPLES: Mapping[str, Callable[[], Sequence[Call]]] = {
    "add_text_sums": list_text_sums,
    "hash_texts": lambda: [call_hash_texts(START, STOP, OUT)],
    "plan_bytecode.look_up": lambda: find_calls(fit_categories(), "plan_bytecode.look_up")[:1],
}
"""Maps the end of a kernel's name to calls of it, as sqlml makes them."""


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_accepted(name: str) -> None:
    for call in SAMPLES[name]():
        assert name_kernel(call).endswith(name)
        assert is_safe(call)
        assert has_rows_where_annotated(call)


# Damage. Most characters of the tables never occur, so those that do are changed more often.

PAGES, LOWER, MARKS = 3, 4, 5
"""The indices of the character tables among the arguments of `add_text_sums`."""


def find_places(characters: Sequence[int]) -> Array:
    """Return the indices of characters in the tables of lower cases and marks."""
    codes = np.array(characters)
    return make_character_tables()[0][codes // PAGE_SIZE] * np.int64(PAGE_SIZE) + codes % PAGE_SIZE


CHARACTERS = (*range(0x20, 0x80), 0xFFFD, 0xEF, 0x65E5)


LOWERED = (0x20, 0x41, 0xE9, 0xFFFF, 0x10000, 0x10FFFF, CODE_POINTS, -1)


def damage_text_call(call: Call, rng: Rng) -> Call:
    """Return a call with other lower cases or marks of common characters, or with other damage."""
    if not name_kernel(call).endswith("add_text_sums") or rng.random() < 0.7:
        return damage_call(call, rng)
    lower, marks = (list_arguments(call.arguments)[k].copy() for k in (LOWER, MARKS))
    characters = rng.choice(CHARACTERS, int(rng.choice([1, 9, 200])))
    changed = find_places(characters)
    if rng.random() < 0.5:
        lowered = rng.choice(LOWERED, 1 if rng.random() < 0.5 else changed.size)
        lower[changed] = lowered - characters
        return replace_constants(call, {LOWER: lower})
    marks[changed] = rng.integers(8, size=changed.size)
    return replace_constants(call, {MARKS: marks})


PIECES = (
    *(b"late", b"payer ", b" ", b"  ", b"a", b"is", b"x y", "naïve".encode(), "日".encode(), b"\t"),
    *(b"\xff", b"\xe6\x97", b"\xf4\x8f\xbf\xbf", b"\xc0\x80", b"\xef\xbf\xbd", "é".encode()),
    *(category.encode() for category in LONG_CATEGORIES),
)


def draw_text(rng: Rng) -> bytes:
    """Return a text of known words, odd characters and damaged bytes, or of one piece again."""
    way = rng.random()
    if way < 0.3:
        return PIECES[int(rng.integers(len(PIECES)))] * int(rng.integers(1, 40))
    if way < 0.4:
        return rng.bytes(int(rng.integers(200)))
    return b"".join(PIECES[int(k)] for k in rng.integers(len(PIECES), size=int(rng.integers(9))))


def run_texts(
    call: Call, texts: Sequence[bytes], side: Side, kernel: Callable[..., Any] | None = None
) -> None:
    """Call a kernel for texts in guarded memory; an access outside ends the process."""
    content = np.frombuffer(b"".join(texts), np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    stop = np.cumsum(sizes)
    with guard(side) as memory:
        bounds = iter((stop - sizes, stop))

        def make_argument(argument: Any) -> Any:
            if argument is MEMORY:
                return memory.place(content, 0)
            if isinstance(argument, np.ndarray):
                return memory.place(argument, 0)
            if not isinstance(argument, Rows):
                return argument
            if argument.dtype == np.uint64:
                return memory.place(make_strings(texts, stop - sizes), 0)
            if argument.is_flat:
                return memory.place(next(bounds), 0)
            return allocate_results(argument, len(texts), memory)

        (kernel or call.kernel)(*map_arguments(call.arguments, make_argument))


def make_strings(texts: Sequence[bytes], starts: Array) -> Array:
    """Return strings as DuckDB has them; the addresses are positions in the joined texts."""
    strings = np.zeros(2 * len(texts), np.uint64)
    for k, text in enumerate(texts):
        if len(text) > INLINE_BYTES:
            strings[2 * k : 2 * k + 2] = len(text), starts[k]
        elif text == b"\xff":
            strings[2 * k] = NULL_LENGTH
        else:
            content = len(text).to_bytes(4, "little") + text.ljust(INLINE_BYTES, b"\0")
            strings[2 * k : 2 * k + 2] = np.frombuffer(content, np.uint64)
    return strings


def allocate_results(rows: Rows, count: int, memory: GuardedMemory) -> Array:
    stride = (rows.stride or rows.width) * rows.dtype.itemsize
    address = memory.allocate(stride * count) + rows.first_column * rows.dtype.itemsize
    strides = (stride, rows.dtype.itemsize)
    return view_memory(address, (count, rows.width), rows.dtype, strides)


def run_damaged_texts(
    samples: Sequence[Call], case: int, guarded: Mapping[Any, Any] | None = None
) -> bool:
    """Damage one of the calls; if its check accepts it, run it. Return whether it was accepted."""
    rng = np.random.default_rng(case)
    call = damage_text_call(samples[int(rng.integers(len(samples)))], rng)
    if not is_safe(call):
        return False
    for side in SIDES:
        set_allocation_side(side, slack=0)
        texts = [draw_text(rng) for _ in range(int(rng.choice([0, 1, 7, 64, 700])))]
        if rng.random() < 0.1:  # The buffers fit the longest text, if it is longer than a chunk.
            text = draw_text(rng)
            texts.append(text * (CHUNK // max(1, len(text)) + 1))
        run_texts(call, texts, side, (guarded or {}).get(call.kernel))
    return True


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_accepted_stays_inside_its_arrays(name: str) -> None:
    samples = SAMPLES[name]()
    for call in samples:
        is_safe(call)  # Compile the check before there are children.
    outcome = run_cases(lambda case: run_damaged_texts(samples, case), range(150))
    assert not outcome.failures, outcome
    assert outcome.accepted > 20


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAMPLES)
def test_buffers_of_tokens_are_not_left_either(name: str) -> None:
    samples = SAMPLES[name]()
    guarded = load_guarded(samples)
    outcome = run_cases(
        lambda case: run_damaged_texts(samples, case, guarded), range(20_000), total_seconds=120
    )
    assert not outcome.failures, outcome


def test_addresses_of_strings_stay_inside_their_arrays() -> None:
    samples = [make_find_bounds_call(0, START, STOP)]
    assert is_safe(samples[0])
    outcome = run_cases(
        lambda case: run_damaged(samples, case, damage=lambda call, rng: call), range(50)
    )
    assert not outcome.failures, outcome


_PIECES = (*(b"a", b"a ", b" ", b"ab  ", b"\xff", b"\xff ", b"\xe6"), "é".encode(), "é ".encode())
LONG_TEXTS = tuple(piece * (CHUNK // len(piece) + 1) for piece in _PIECES)


def lower_all(call: Call, short: int, long: int) -> Call:
    """Return a call that lowers all but spaces, to `short` from one byte and else to `long`."""
    lower = np.full(CODE_POINTS, long, np.int32)
    lower[:0x80] = lower[0xFFFD] = short
    lower[0x20] = 0x20
    # Each page is stored, so that the pages do not share characters.
    pages, _, marks = make_character_tables()
    every_page = np.arange(pages.size, dtype=np.uint16)
    changes = lower - np.arange(CODE_POINTS, dtype=np.int32)
    all_marks = marks.reshape(-1, PAGE_SIZE)[pages].ravel()
    return replace_constants(call, {PAGES: every_page, LOWER: changes, MARKS: all_marks})


@pytest.mark.nightly
@pytest.mark.parametrize("sample", range(6))
def test_tokens_may_be_three_times_as_long_as_texts(sample: int) -> None:
    original = list_text_sums()[sample]
    call = lower_all(original, 0x4E00, 0x20000)
    assert is_safe(call)
    assert not is_safe(lower_all(original, 0x20000, 0x20000))
    guarded = load_guarded([call])[call.kernel]

    def run(case: int) -> bool:
        set_allocation_side("end", slack=0)
        run_texts(call, [LONG_TEXTS[case]], "end", guarded)
        run_texts(call, [b"", *LONG_TEXTS[: case + 1], b"", b"a", b"\xff"], "end", guarded)
        return True

    outcome = run_cases(run, range(len(LONG_TEXTS)))
    assert not outcome.failures, outcome


def put(index: Any, value: Any) -> Callable[[Any], Any]:
    """Return a function that copies an array with another number at an index."""

    def change(array: Any) -> Any:
        changed = array.copy()
        changed[index] = value
        return changed

    return change


KIND, LOWERING, ACCENTS, MIN_LENGTH = range(6, 10)
DROPS, STOP_WORDS, STOP_ENDS, STOP_SLOTS, STOP_HASHES = range(10, 15)
WITHIN_WORDS, MIN, MAX = range(15, 18)
WORDS, ENDS, SLOTS, HASHES, COLUMNS, SIGNED, HASHED = range(18, 25)
OPERATORS, FACTORS, LOGARITHMS, IS_WEIGHTED, WEIGHTS, SUMS = range(25, 31)
"""The indices of the other arguments of `add_text_sums`."""

WORD_MODEL, WITHIN_MODEL, CHARACTER_MODEL, HASH_MODEL, DENSE_HASH_MODEL, DENSE_MODEL = range(6)

HOSTILE: Mapping[str, tuple[int, Mapping[int, Any]]] = {
    "an unknown kind": (WORD_MODEL, {KIND: 3}),
    "a negative kind": (WORD_MODEL, {KIND: -1}),
    "characters as if within words": (CHARACTER_MODEL, {WITHIN_WORDS: True}),
    "characters within words as if not": (WITHIN_MODEL, {WITHIN_WORDS: False}),
    "no lower case": (WORD_MODEL, {LOWER: np.empty(0, np.int32)}),
    "too few lower cases": (WORD_MODEL, {LOWER: lambda a: a[:-1].copy()}),
    "a negative lower case": (WORD_MODEL, {LOWER: put(0x20, -0x21)}),
    "a lower case that is no character": (WORD_MODEL, {LOWER: put(-1, CODE_POINTS)}),
    "a lower case of four bytes": (WORD_MODEL, {LOWER: put(0x41, 0x10000 - 0x41)}),
    "a damaged byte of four bytes": (WORD_MODEL, {LOWER: put(find_places([0xFFFD])[0], 3)}),
    "too few pages": (WORD_MODEL, {PAGES: lambda a: a[:-1].copy()}),
    "a page that is not stored": (WORD_MODEL, {PAGES: put(-1, 9999)}),
    "another first page": (WORD_MODEL, {PAGES: put(0, 1)}),
    "no stored pages": (WORD_MODEL, {LOWER: np.empty(0, np.int32), MARKS: np.empty(0, np.uint8)}),
    "too few marks": (WORD_MODEL, {MARKS: lambda a: a[:-1].copy()}),
    "a space that is none": (WITHIN_MODEL, {MARKS: put(0x20, 0)}),
    "a space that is a word": (WORD_MODEL, {MARKS: put(0x20, 3)}),
    "n-grams of no words": (WORD_MODEL, {MIN: 0}),
    "n-grams of a negative length": (WORD_MODEL, {MIN: -(1 << 63)}),
    "n-grams that are too long": (WORD_MODEL, {MAX: MAX_N + 1}),
    "the longest n-grams": (WORD_MODEL, {MAX: (1 << 63) - 1}),
    "n-grams of no length": (WORD_MODEL, {MIN: 3}),
    "stop words without slots": (WORD_MODEL, {STOP_SLOTS: np.empty(0, np.int32)}),
    "a stop word that is missing": (WORD_MODEL, {STOP_SLOTS: put(0, 9)}),
    "words that end too late": (WORD_MODEL, {ENDS: put(-1, 10_000)}),
    "words that descend": (WORD_MODEL, {ENDS: put(0, 10_000)}),
    "words before the first": (WORD_MODEL, {ENDS: put(0, -1)}),
    "a word that is missing": (WORD_MODEL, {SLOTS: put(0, 10_000)}),
    "slots of which none is empty": (WORD_MODEL, {SLOTS: np.zeros_like}),
    "slots that are no power of two": (WORD_MODEL, {SLOTS: lambda a: a[:-1].copy()}),
    "too few hashes": (WORD_MODEL, {HASHES: lambda a: a[:-1].copy()}),
    "hashes of no columns": (HASH_MODEL, {COLUMNS: 0}),
    "hashes of negative columns": (HASH_MODEL, {COLUMNS: -16}),
    "hashes of too many columns": (HASH_MODEL, {COLUMNS: 17}),
    "hashes of the most columns": (DENSE_HASH_MODEL, {COLUMNS: (1 << 63) - 1}),
    "hashes instead of words": (WORD_MODEL, {HASHED: True, COLUMNS: 1 << 20}),
    "operators of three numbers": (WORD_MODEL, {OPERATORS: lambda a: a[:, :3].copy()}),
    "operators without numbers": (WORD_MODEL, {OPERATORS: np.empty((1 << 40, 0), np.int64)}),
    "factors before the first": (WORD_MODEL, {OPERATORS: put((0, 2), -1)}),
    "factors after the last": (WORD_MODEL, {OPERATORS: put((0, 2), 1)}),
    "factors of the least size": (WORD_MODEL, {OPERATORS: put((0, 3), -(1 << 63))}),
    "too few factors": (WORD_MODEL, {OPERATORS: put((0, 3), 2)}),
    "a scale without factors": (WORD_MODEL, {OPERATORS: put((0, 3), 0)}),
    "a selection of negative columns": (HASH_MODEL, {FACTORS: put(0, -2.0)}),
    "a selection of missing columns": (HASH_MODEL, {FACTORS: put(0, 4.0)}),
    "a selection of no column": (HASH_MODEL, {FACTORS: put(0, np.nan)}),
    "a selection of the last column": (HASH_MODEL, {FACTORS: put(0, np.inf)}),
    "too few weights": (WORD_MODEL, {WEIGHTS: lambda a: a[:-1].copy()}),
    "weights of fewer results": (WORD_MODEL, {WEIGHTS: lambda a: a[:, :0].copy()}),
    "no weights, and too few results": (WORD_MODEL, {IS_WEIGHTED: False}),
    "too few results": (DENSE_MODEL, {SUMS: Rows(RESULT, np.dtype(np.float32), 3)}),
}
"""Maps what is wrong to a model and changed arguments of its call."""


@pytest.mark.parametrize("wrong", HOSTILE)
def test_hostile_sums_of_texts_are_refused(wrong: str) -> None:
    model, changes = HOSTILE[wrong]
    assert not is_safe(change_call(list_text_sums()[model], changes))


def change_call(call: Call, changes: Mapping[int, Any]) -> Call:
    items = list_arguments(call.arguments)
    changed = {k: change(items[k]) if callable(change) else change for k, change in changes.items()}
    return replace_constants(call, changed)


HOSTILE_CODES: Mapping[str, Mapping[int, Any]] = {
    "three integers per string": {0: Rows(SCRATCH, np.dtype(np.uint64), 3, is_flat=True)},
    "no slots": {2: np.empty((0, 2), np.uint64)},
    "slots without numbers": {2: np.empty((1 << 40, 0), np.uint64)},
    "slots that are no power of two": {2: lambda a: a[:-1].copy()},
    "slots of which none is empty": {2: np.zeros_like},
    "too few codes": {3: lambda a: a[:-1].copy()},
    "a long category that is missing": {6: put(0, 2)},
    "long categories that end too late": {5: put(-1, 1000)},
    "no slots of long categories": {6: np.empty(0, np.int32), 7: np.empty(0, np.uint32)},
    "too few codes of long categories": {8: lambda a: a[:-1].copy()},
    "no code of unknown strings": {8: np.empty(1)},
    "no column of results": {9: Rows(RESULT, DOUBLE, 0)},
}
"""Maps what is wrong to changed arguments of `plan_bytecode.look_up`."""


@pytest.mark.parametrize("wrong", HOSTILE_CODES)
def test_hostile_codes_of_strings_are_refused(wrong: str) -> None:
    (call,) = SAMPLES["plan_bytecode.look_up"]()
    assert not is_safe(change_call(call, HOSTILE_CODES[wrong]))


def test_other_rows_of_texts_are_refused() -> None:
    two = Rows(SCRATCH, INT64, 2, is_flat=True)
    (hashes,) = SAMPLES["hash_texts"]()
    bounds = make_find_bounds_call(0, START, STOP)
    for call, changes in (
        (hashes, {1: two}),
        (hashes, {2: two}),
        (hashes, {3: Rows(RESULT, DOUBLE, 0)}),
        (bounds, {0: Rows(SCRATCH, np.dtype(np.uint64), 1, is_flat=True)}),
        (bounds, {1: two}),
        (bounds, {2: two}),
        (list_text_sums()[0], {1: two}),
        (list_text_sums()[0], {2: two}),
    ):
        assert not is_safe(replace_constants(call, changes))
