"""Damaged copies of kernel calls: what a hand-written model file may contain.

`damage_call` changes one to three constants of a call, or the width of its rows. Most changes are
small, since an argument check refuses large ones at once, and the cases that it accepts are the
ones that show what the kernel does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import Call, Rows
from tests.support.guarded_arrays import Array, list_arguments, map_arguments, replace_constants

Rng = np.random.Generator

COUNTS = (0, 1, 2, 3, 7, 8, 9, 16, 63, 64, 255, 256, 65_535, 1 << 20, 1 << 31, 1 << 32, 1 << 40)
"""Numbers that may be special to a kernel, together with their negatives."""

EXTREMES = (-(1 << 63), (1 << 63) - 1, -(1 << 62), 1 << 62, (1 << 63) - 512)

FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e-40, 3e9, 1e30, 1e300)


def damage_call(call: Call, rng: Rng) -> Call:
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        call = _damage_once(call, rng)
    return call


def _damage_once(call: Call, rng: Rng) -> Call:
    items = list_arguments(call.arguments)
    choices = [i for i, item in enumerate(items) if isinstance(item, (Rows, np.ndarray, int))]
    # Large arrays get more changes than single numbers.
    weights = np.array([_weigh(items[i]) for i in choices])
    index = int(rng.choice(choices, p=weights / weights.sum()))
    item = items[index]
    if isinstance(item, Rows):
        return _change_width(call, item, rng)
    if isinstance(item, bool):
        return replace_constants(call, {index: not item})
    if isinstance(item, int):
        return replace_constants(call, {index: _change_integer(item, _collect_sizes(items), rng)})
    others = [a for i, a in enumerate(items) if i != index and _is_similar(a, item)]
    changed = _change_array(item, others, _collect_sizes(items), rng)
    result = {index: changed}
    if item.ndim == 1 and rng.random() < 0.7:  # Two views of the same numbers should stay the same.
        for i, other in enumerate(items):
            if i != index and isinstance(other, np.ndarray) and item.size and _is_view(other, item):
                result[i] = _view_as(changed, other.dtype)
    return replace_constants(call, result)


def _weigh(item: Any) -> float:
    if isinstance(item, np.ndarray):
        return 1.0 + min(3.0, np.log10(1 + item.size))
    return 0.3 if isinstance(item, Rows) else 1.0


def _collect_sizes(items: list[Any]) -> list[int]:
    return [n for item in items if isinstance(item, np.ndarray) for n in (*item.shape, item.size)]


def _is_similar(other: Any, item: Array) -> bool:
    return isinstance(other, np.ndarray) and (other.dtype, other.ndim) == (item.dtype, item.ndim)


def _is_view(other: Array, item: Array) -> bool:
    return other.ndim == 1 and other.nbytes == item.nbytes and other.tobytes() == item.tobytes()


def _view_as(array: Array, dtype: np.dtype[Any]) -> Array:
    content = array.tobytes()
    return np.frombuffer(content[: len(content) // dtype.itemsize * dtype.itemsize], dtype)


def _change_width(call: Call, rows: Rows, rng: Rng) -> Call:
    """Return a call whose rows in the same buffer are wider or narrower."""
    width = max(0, rows.width + int(rng.choice([-1, 1, 1, -rows.width, 17])))

    def change(argument: Any) -> Any:
        if isinstance(argument, Rows) and argument.buffer == rows.buffer:
            return replace(argument, width=width, stride=0, first_column=0)
        return argument

    return replace(call, arguments=map_arguments(call.arguments, change))


def _change_integer(value: int, sizes: list[int], rng: Rng) -> int:
    way = rng.integers(8)
    if way < 3:
        value += int(rng.choice([-2, -1, 1, 2]))
    elif way == 3:
        value = int(rng.choice(COUNTS)) * int(rng.choice([-1, 1]))
    elif way == 4:
        value = int(rng.choice(EXTREMES))
    elif way == 5:
        value = value * 2 if rng.random() < 0.5 else value // 2
    elif way == 6:
        value = int(rng.choice(sizes)) + int(rng.integers(-1, 2))
    else:
        value = int(rng.integers(0, 100))
    return max(-(1 << 63), min((1 << 63) - 1, value))


def _change_array(array: Array, others: list[Array], sizes: list[int], rng: Rng) -> Array:
    way = rng.random()
    if way < 0.72 and array.size:
        return _change_items(array, sizes, rng)
    if way < 0.77 and others:
        return others[int(rng.integers(len(others)))]
    if way < 0.81 and array.size:
        return np.roll(array, int(rng.integers(-3, 4)), axis=int(rng.integers(array.ndim)))
    return _change_shape(array, rng)


def _change_shape(array: Array, rng: Rng) -> Array:
    axis = int(rng.integers(array.ndim))
    length = array.shape[axis]
    way = rng.integers(6)
    if not array.size and length > 1 << 20:
        return array
    if way == 0:
        return array.take(np.arange(max(0, length - int(rng.integers(1, 5)))), axis)
    if way == 1:
        return array.take(np.arange(int(rng.integers(0, length + 1))), axis)
    if way == 2:
        return array.take(np.arange(0), axis)
    if way == 3:
        extra = array.take(rng.integers(0, length, int(rng.integers(1, 5))), axis) if length else ()
        return np.concatenate([array, extra], axis) if length else array
    if way == 4 and array.ndim > 1:  # An array without content may be as long as it likes.
        shape = [0] * array.ndim
        shape[axis] = int(rng.choice([1 << 20, 1 << 40, 1 << 55]))
        return np.empty(shape, array.dtype)
    return np.concatenate([array, array], axis)


def _change_items(array: Array, sizes: list[int], rng: Rng) -> Array:
    """Return a copy with one or a few other items, or with a field of records changed."""
    changed = array.copy()
    flat = changed.reshape(-1)
    if flat.dtype.names is not None:
        flat = flat[flat.dtype.names[int(rng.integers(len(flat.dtype.names)))]]
    count = 1 if rng.random() < 0.7 else int(rng.integers(1, min(flat.size, 20) + 1))
    for index in rng.integers(flat.size, size=count):
        flat[index] = _change_item(flat, int(index), sizes, rng)
    if rng.random() < 0.03:
        flat[:] = flat[int(rng.integers(flat.size))]
    return changed


def _change_item(flat: Array, index: int, sizes: list[int], rng: Rng) -> Any:
    dtype, value = flat.dtype, flat[index]
    way = rng.integers(8)
    if way == 0:
        return np.frombuffer(rng.bytes(dtype.itemsize), dtype)[0]
    if way == 1:
        return flat[int(rng.integers(flat.size))]
    if way == 2:
        return flat[max(0, min(flat.size - 1, index + int(rng.integers(-2, 3))))]
    if dtype.kind == "b":
        return not value
    if dtype.kind == "f":
        if way == 3:
            bits = np.array([value]).view(f"u{dtype.itemsize}")
            return (bits ^ bits.dtype.type(1 << int(rng.integers(8 * dtype.itemsize)))).view(dtype)[
                0
            ]
        with np.errstate(all="ignore"):
            return dtype.type(rng.choice(FLOATS))
    if way == 3:
        number = int(value) ^ (1 << int(rng.integers(8 * dtype.itemsize)))
    elif way == 4:
        number = int(rng.choice(sizes)) + int(rng.integers(-1, 2))
    elif way == 5:
        number = int(rng.choice([*COUNTS, *EXTREMES])) * int(rng.choice([-1, 1]))
    else:
        number = int(value) + int(rng.choice([-2, -1, 1, 2]))
    return np.array([number & ((1 << 64) - 1)], np.uint64).astype(dtype, casting="unsafe")[0]


def make_rows(rows: Rows, count: int, rng: Rng, pool: Array) -> Array:
    """Return rows of numbers of `pool`, ordinary numbers, categories, NaN, and any bits."""
    shape = (count, rows.stride or rows.width)
    x = rng.normal(size=shape)
    if pool.size:
        x = np.where(rng.random(shape) < 0.5, rng.choice(pool, shape), x)
    x = np.where(rng.random(shape) < 0.2, rng.integers(-2, 90, shape), x)
    special = rng.choice([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, 2.0**32, 2.0**63], shape)
    x = np.where(rng.random(shape) < rng.choice([0.0, 0.1]), special, x)
    with np.errstate(all="ignore"):
        x = x.astype(rows.dtype)
    if rng.random() < 0.3 and x.size:
        bits = np.frombuffer(rng.bytes(x.nbytes), x.dtype).reshape(shape)
        x = np.where(rng.random(shape) < 0.1, bits, x)
    return x
