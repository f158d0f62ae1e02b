"""`tree_columns`: what CatBoost's trees read, made of the columns of a table.

Numbers as float32, categories that splits test as codes, and behind them the statistics of
categories (`statistics.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sqlml.importers.catboost.document import CatBoostModel
from sqlml.importers.catboost.hashed_categories import are_whole, texts_of
from sqlml.importers.catboost.split import Split
from sqlml.importers.catboost.statistics import Lookup
from sqlml.importers.categories import coded_columns
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.ir.operators.combinations import Combination, packed
from sqlml.ir.operators.combinations import hashes as hashes_of
from sqlml.ir.operators.hashing import MOST_WHOLE
from sqlml.types import Array

STEP = "CatBoost in a categorical column"
_NONE = np.zeros(0, np.int64)
_FIRST = np.zeros(1, np.int32)


def tree_columns(model: CatBoostModel, frame: Frame) -> Value:
    """The columns that the trees of a model read, (n, F) float32."""
    b = frame.builder
    whole = _whole_columns(model, frame)
    looked_up = sorted({i for lookup in model.lookups for i in lookup.projection.categories})
    hashes = {i: _hashes(frame, i, i in whole) for i in looked_up}

    def codes(frame: Frame, i: int, values: Array) -> Value:
        if i in hashes and not values.size:  # no tree reads it as it is
            return b.cast(hashes[i], "float32")
        texts = texts_of(values.tolist(), model.texts)
        if texts is None:
            own = hashes[i] if i in hashes else _hashes(frame, i, False)
            return b.op("look_up_combinations", own, **packed([_of_hashes(values)]))
        return _codes(frame, i, texts, i in whole)

    untested = {i: _NONE for i in range(frame.width) if i in hashes or frame.makes_strings(i)}
    categorical = {**untested, **model.categorical}
    own = coded_columns(frame, range(frame.width), categorical, codes, "float32")
    if not model.lookups:
        return own
    return b.op("concat", own, _statistics(frame, model.lookups, own, hashes))


def _whole_columns(model: CatBoostModel, frame: Frame) -> frozenset[int]:
    """The categorical columns of which all that is known are whole numbers."""
    known = {i: list(values) for i, values in model.categorical.items()}
    for lookup in model.lookups:
        for i in lookup.projection.categories:
            known.setdefault(i, []).extend(lookup.categories())
    given = {i: map(int, values) for i, values in known.items() if not frame.makes_strings(i)}
    return frozenset(i for i, values in given.items() if are_whole(values, model.texts))


def _of_hashes(hashes: Array) -> Combination:
    """The code of each 32-bit hash, its place; -1 for others."""
    keys = hashes_of(np.where(hashes >> 31, hashes - (1 << 32), hashes)[:, None] * 1.0, _FIRST)
    order = np.argsort(keys)
    values = np.append(order, -1).astype(np.float32).reshape(-1, 1)
    return Combination(_FIRST, keys[order], values)


def _codes(frame: Frame, i: int, texts: tuple[str, ...], whole: bool) -> Value:
    """Column `i` as codes in the order of `texts`; NULL is refused, as CatBoost does."""
    b, count = frame.builder, len(texts)
    if whole:
        numbers = np.array([float(text) for text in texts])
        codes = b.op("encode", frame.numbers(i), categories=numbers, missing=count)
    else:
        strings = np.empty(count, object)
        strings[:] = texts
        codes = b.op("encode", frame.strings(i), categories=strings, missing=count)
    gone = b.op("eq", codes, b.constant(np.array([count], np.int64)))
    nan = b.constant(np.array([np.nan], np.float32))
    x = b.op("where", gone, nan, b.op("cast", codes, dtype="float32"))
    return b.op("require_finite", x, features=(frame.names[i],), allow_nan=False, step=STEP)


def _hashes(frame: Frame, i: int, whole: bool) -> Value:
    """The hashes of column `i`, (n, 1) float64; NULL is refused, as CatBoost does."""
    b, name = frame.builder, frame.names[i]
    check = {"features": (name,), "allow_nan": False, "step": STEP}
    if not whole:
        made = b.op("hash_categories", frame.strings(i))
        return b.op("require_finite", made, **check)
    most = np.array([MOST_WHOLE - 1.0])
    x = b.op("require_finite", frame.numbers(i), low=-most, high=most, **check)
    message = (
        f"column {name!r} has a number that is not whole, which {STEP} does not take; cast it to "
        "BIGINT, if that is what the model was trained on"
    )
    made = b.op("hash_categories", x)
    return b.op("require", made, b.op("eq", made, made), message=message)


def _statistics(
    frame: Frame, lookups: Sequence[Lookup], own: Value, hashes: Mapping[int, Value]
) -> Value:
    """The statistics side by side, (n, S) float32; `own` are the columns that tests read."""
    b = frame.builder
    tests = list(dict.fromkeys(test for one in lookups for test in one.projection.tests))
    by_kind = [
        [t for t in tests if t.code is None and not t.nan_is_true],
        [t for t in tests if t.code is None and t.nan_is_true],
        [t for t in tests if t.code is not None],
    ]
    parts = [*hashes.values()]
    place: dict[int | Split, int] = {i: k for k, i in enumerate(hashes)}
    for kind, some in enumerate(by_kind):
        if not some:
            continue
        x = b.op("select", own, indices=np.array([t.feature for t in some], np.int64))
        if kind == 0:
            passed = b.op("gt", x, _borders(t.border for t in some))
        elif kind == 1:  # which NaN passes
            passed = b.op("not", b.op("le", x, _borders(t.border for t in some)))
        else:
            passed = b.op("eq", x, _borders(t.code or 0 for t in some))
        place |= {test: len(place) + k for k, test in enumerate(some)}
        parts.append(b.op("cast", passed, dtype="float64"))
    given = []
    for one in lookups:
        elements: tuple[int | Split, ...] = (*one.projection.categories, *one.projection.tests)
        columns = np.array([place[element] for element in elements], np.int32)
        given.append(Combination(columns, one.hashes, one.values))
    return b.op("look_up_combinations", b.beside(parts), **packed(given))


def _borders(given: Iterable[float | np.float32]) -> Array:
    return np.array([*given], np.float32)
