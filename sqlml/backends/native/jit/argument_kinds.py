"""Describe the types of kernel arguments without numba.

A process that finds all its kernels on disk never imports numba.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Layout = Literal["A", "C"]


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Arrays of a dtype in native byte order: contiguous (layout "C"), or of any strides ("A")."""

    dtype: np.dtype[Any]
    ndim: int
    layout: Layout
    readonly: bool


Kind = ArrayKind | Literal["count", "flag", "nothing"] | tuple["Kind", ...]
"""The type of an argument; the type of a tuple is a tuple of kinds."""

Signature = tuple[Kind, ...]
"""The kinds of a kernel's arguments."""

# The kinds of a bool, of an int (int64 in the kernel), and of None.
FLAG: Kind = "flag"
COUNT: Kind = "count"
NOTHING: Kind = "nothing"


def reads(dtype: npt.DTypeLike, ndim: int, layout: Layout = "A") -> ArrayKind:
    """Return the kind of an array that the kernel only reads; layout "A" allows any strides."""
    return ArrayKind(np.dtype(dtype), ndim, layout, True)


def writes(dtype: npt.DTypeLike, ndim: int) -> ArrayKind:
    """Return the kind of a contiguous array that the kernel fills."""
    return ArrayKind(np.dtype(dtype), ndim, "C", False)


def to_kinds(*constants: Any) -> Signature:
    """Return the kinds of a kernel's constants. Arrays are contiguous and only read.

    >>> format_kind(to_kinds(np.zeros((2, 1)), (3, True), None))
    "(['C2r', '<f8'], ('count', 'flag'), 'nothing')"
    """
    return tuple(map(_get_kind, constants))


def _get_kind(value: Any) -> Kind:
    if isinstance(value, np.ndarray):
        return reads(value.dtype, value.ndim, "C")
    if isinstance(value, tuple):
        return to_kinds(*value)
    if value is None:
        return NOTHING
    return FLAG if isinstance(value, bool) else COUNT


def format_kind(kind: Kind) -> str:
    """Return `kind` as a string that is the same in every process.

    >>> format_kind((COUNT, reads("f4", 2), writes([("a", "u4")], 1)))
    "('count', ['A2r', '<f4'], ['C1w', [('a', '<u4')]])"
    """
    return repr(_make_kind_literal(kind))


def parse_kind(text: str) -> Kind:
    """Parse a string from `format_kind` into a kind.

    >>> parse_kind("('count', ['A2r', '<f4'])") == (COUNT, reads("f4", 2))
    True
    """
    return _parse_kind_literal(ast.literal_eval(text))


def _make_kind_literal(kind: Kind) -> Any:
    if isinstance(kind, ArrayKind):
        layout = f"{kind.layout}{kind.ndim}{'r' if kind.readonly else 'w'}"
        return [layout, np.lib.format.dtype_to_descr(kind.dtype)]
    return kind if isinstance(kind, str) else tuple(map(_make_kind_literal, kind))


def _parse_kind_literal(literal: Any) -> Kind:
    if isinstance(literal, list):
        (layout, ndim, mode), descr = literal
        return ArrayKind(np.lib.format.descr_to_dtype(descr), int(ndim), layout, mode == "r")
    return tuple(map(_parse_kind_literal, literal)) if isinstance(literal, tuple) else literal


def to_numba_type(kind: Kind) -> Any:
    from numba import from_dtype, types  # Importing numba is slow.

    if isinstance(kind, ArrayKind):
        dtype: Any = from_dtype(kind.dtype)
        return types.Array(dtype, kind.ndim, kind.layout, readonly=kind.readonly)
    if isinstance(kind, tuple):
        make_tuple: Callable[..., Any] = types.Tuple
        return make_tuple([to_numba_type(item) for item in kind])
    return {"count": types.int64, "flag": types.boolean, "nothing": types.none}[kind]


def to_words(kind: Kind, value: Any) -> Iterator[int]:
    """Yield the 64-bit words that pass `value` to a kernel; the caller must keep arrays alive.

    >>> list(to_words("count", 3)), list(to_words(("flag", "nothing"), (True, None)))
    ([3], [1])
    """
    if isinstance(kind, ArrayKind):
        yield value.ctypes.data
        yield from value.shape
        yield from value.strides
    elif isinstance(kind, tuple):
        for item_kind, item in zip(kind, value, strict=True):
            yield from to_words(item_kind, item)
    elif kind != "nothing":
        yield int(value)
