"""The columns that CatBoost's trees read, computed from the columns of a table.

Numbers become float32, and categories that splits test become codes. The statistics of categories
(`features.py`) follow.

A model file may state only the hashes of its categories. Hashes of integers are then found by
trying: categories are integers if all their hashes belong to some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from sqlml.importers.catboost.document import CatBoostModel
from sqlml.importers.catboost.features import Lookup, Split
from sqlml.importers.frame import Frame, encode_columns
from sqlml.ir.builder import Value
from sqlml.ir.hashes import city_hash32
from sqlml.ir.operators.categories import (
    MAX_EXACT_INTEGER,
    Combination,
    hash_combinations,
    pack_combinations,
)
from sqlml.types import Array

STEP = "CatBoost in a categorical column"
_NO_VALUES = np.zeros(0, np.int64)
_FIRST_COLUMN = np.zeros(1, np.int32)


def compute_tree_inputs(model: CatBoostModel, frame: Frame) -> Value:
    """Compute the columns that the trees of a model read, (n, F) float32."""
    b = frame.builder
    integer_columns = _find_integer_columns(model, frame)
    looked_up = sorted({i for lookup in model.lookups for i in lookup.projection.categories})
    hashes = {i: _hash_column(frame, i, i in integer_columns) for i in looked_up}

    def encode(frame: Frame, i: int, values: Array) -> Value:
        if i in hashes and not values.size:  # only statistics read it
            return b.cast(hashes[i], "float32")
        texts = find_texts(values.tolist(), model.texts)
        if texts is None:
            column = hashes[i] if i in hashes else _hash_column(frame, i, False)
            return b.op(
                "look_up_combinations", column, **pack_combinations([_map_hashes_to_codes(values)])
            )
        return _encode_column(frame, i, texts, i in integer_columns)

    untested = {i: _NO_VALUES for i in range(frame.width) if i in hashes or frame.makes_strings(i)}
    categorical = {**untested, **model.categorical}
    columns = encode_columns(frame, range(frame.width), categorical, encode, "float32")
    if not model.lookups:
        return columns
    return b.op("concat", columns, _compute_statistics(frame, model.lookups, columns, hashes))


def _find_integer_columns(model: CatBoostModel, frame: Frame) -> frozenset[int]:
    """Return the categorical columns whose categories in the model are all integers."""
    categories = {i: list(values) for i, values in model.categorical.items()}
    for lookup in model.lookups:
        for i in lookup.projection.categories:
            categories.setdefault(i, []).extend(lookup.find_category_hashes())
    return frozenset(
        i
        for i, hashes in categories.items()
        if not frame.makes_strings(i) and are_integers(map(int, hashes), model.texts)
    )


def _map_hashes_to_codes(hashes: Array) -> Combination:
    """Return a look-up of 32-bit hashes, whose codes are their positions; -1 for others."""
    signed = np.where(hashes >> 31, hashes - (1 << 32), hashes)
    keys = hash_combinations(signed[:, None] * 1.0, _FIRST_COLUMN)
    order = np.argsort(keys)
    values = np.append(order, -1).astype(np.float32).reshape(-1, 1)
    return Combination(_FIRST_COLUMN, keys[order], values)


def _encode_column(frame: Frame, i: int, texts: tuple[str, ...], is_integer: bool) -> Value:
    """Return column `i` as codes in the order of `texts`; NULL is an error, as in CatBoost."""
    b, count = frame.builder, len(texts)
    if is_integer:
        numbers = np.array([float(text) for text in texts])
        codes = b.op("encode", frame.numbers(i), categories=numbers, missing=count)
    else:
        strings = np.empty(count, object)
        strings[:] = texts
        codes = b.op("encode", frame.strings(i), categories=strings, missing=count)
    is_null = b.op("eq", codes, b.constant(np.array([count], np.int64)))
    nan = b.constant(np.array([np.nan], np.float32))
    x = b.op("where", is_null, nan, b.op("cast", codes, dtype="float32"))
    return b.op("require_finite", x, features=(frame.names[i],), allow_nan=False, step=STEP)


def _hash_column(frame: Frame, i: int, is_integer: bool) -> Value:
    """Return the hashes of column `i`, (n, 1) float64; NULL is an error, as in CatBoost."""
    b, name = frame.builder, frame.names[i]
    check = {"features": (name,), "allow_nan": False, "step": STEP}
    if not is_integer:
        return b.op("require_finite", b.op("hash_categories", frame.strings(i)), **check)
    limit = np.array([MAX_EXACT_INTEGER - 1.0])
    x = b.op("require_finite", frame.numbers(i), low=-limit, high=limit, **check)
    message = (
        f"column {name!r} has a number that is not whole, which {STEP} does not take; cast it to "
        "BIGINT, if that is what the model was trained on"
    )
    hashes = b.op("hash_categories", x)
    return b.op("require", hashes, b.op("eq", hashes, hashes), message=message)


def _compute_statistics(
    frame: Frame, lookups: Sequence[Lookup], columns: Value, hashes: Mapping[int, Value]
) -> Value:
    """Return the statistics side by side, (n, S) float32; tests read `columns`."""
    b = frame.builder
    tests = list(dict.fromkeys(test for lookup in lookups for test in lookup.projection.tests))
    groups = {
        "gt": [t for t in tests if t.code is None and not t.nan_is_true],
        "le": [t for t in tests if t.code is None and t.nan_is_true],  # negated, so NaN passes
        "eq": [t for t in tests if t.code is not None],
    }
    blocks = [*hashes.values()]
    position: dict[int | Split, int] = {i: k for k, i in enumerate(hashes)}
    for op, group in groups.items():
        if not group:
            continue
        x = b.op("select", columns, indices=np.array([t.feature for t in group], np.int64))
        limits = [t.border if t.code is None else t.code for t in group]
        passed = b.op(op, x, np.array(limits, np.float32))
        passed = b.op("not", passed) if op == "le" else passed
        position |= {test: len(position) + k for k, test in enumerate(group)}
        blocks.append(b.op("cast", passed, dtype="float64"))
    combinations = []
    for lookup in lookups:
        projection = lookup.projection
        elements: tuple[int | Split, ...] = (*projection.categories, *projection.tests)
        positions = np.array([position[element] for element in elements], np.int32)
        combinations.append(Combination(positions, lookup.hashes, lookup.values))
    return b.op("look_up_combinations", b.concat(blocks), **pack_combinations(combinations))


COMMON_INTEGERS = range(-1000, 65_536)
"""Integers that are always tried as the origin of a hash without text."""

LONG_DIGITS = (5, 6)
"""The lengths of more integers that are tried, if there are MIN_HASHES hashes.

One in 4,000 hashes of other texts is by chance that of such an integer, but not several hashes at
once.
"""

MIN_HASHES = 3


def find_texts(hashes: Iterable[int], texts: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the texts of categories; None if hashes without text are not all of integers."""
    hashes = list(hashes)
    if all(h in texts for h in hashes):
        return tuple(texts[h] for h in hashes)
    common_integers = _hash_common_integers()
    integers = [common_integers.get(h) for h in hashes]
    if None in integers and len(set(hashes)) >= MIN_HASHES:
        long_hashes, long_integers = _hash_long_integers()
        index = np.minimum(np.searchsorted(long_hashes, hashes), long_hashes.size - 1)
        is_long = long_hashes[index] == np.array(hashes)
        integers = [
            int(long_integers[k]) if integer is None and matches else integer
            for integer, k, matches in zip(integers, index.tolist(), is_long.tolist(), strict=True)
        ]
    return tuple(str(n) for n in integers) if None not in integers else None


def are_integers(hashes: Iterable[int], texts: Mapping[int, str]) -> bool:
    """Return whether there are categories and all of them are integers."""
    category_texts = find_texts(hashes, texts)
    return bool(category_texts) and all(map(is_integer_text, category_texts or ()))


def is_integer_text(text: str) -> bool:
    """Return whether a text is CatBoost's text of an integer that float64 represents."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        return False
    return str(int(text)) == text


@lru_cache(maxsize=1)
def _hash_common_integers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in COMMON_INTEGERS}


@lru_cache(maxsize=1)
def _hash_long_integers() -> tuple[Array, Array]:
    """Return the hashes of integers of LONG_DIGITS, int64 ascending, and the integers, int32.

    This is CityHash64 of texts from 4 to 8 bytes (`ir/hashes.py`), for all of them at once.
    """
    multiplier = np.uint64(0x9DDFEA08EB382D69)

    def mix(value: Array) -> Array:
        result: Array = value ^ (value >> np.uint64(47))
        return result

    hashes, numbers = list[Array](), list[Array]()
    for size in LONG_DIGITS:
        integers = np.arange(10 ** (size - 1), 10**size, dtype=np.uint64)
        digits = [integers // np.uint64(10**k) % np.uint64(10) + np.uint64(48) for k in range(size)]
        text = digits[::-1]
        first, last = (
            c[0] | c[1] << np.uint64(8) | c[2] << np.uint64(16) | c[3] << np.uint64(24)
            for c in (text[:4], text[-4:])
        )
        u = np.uint64(size) + (first << np.uint64(3))
        a = mix((u ^ last) * multiplier)
        hash64 = mix((last ^ a) * multiplier) * multiplier
        hashes.append((hash64 & np.uint64(0xFFFFFFFF)).astype(np.int64))
        numbers.append(integers.astype(np.int32))
    all_hashes = np.concatenate(hashes)
    order = np.argsort(all_hashes)
    return all_hashes[order], np.concatenate(numbers)[order]
