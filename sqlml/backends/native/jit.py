"""`specialise`: numba kernels, compiled for one signature when a model first needs it.

A kernel is compiled for arrays of any layout, once, rather than anew for each layout and each
read-only flag that a caller happens to pass; and only for the dtypes that models have. The
result is kept on disk between processes: beside the source, or where that is read-only in
NUMBA_CACHE_DIR or the user's own cache folder. numba itself looks at the time and size of a
kernel's file alone; machine code of an older sqlml would read arrays of another meaning, so the
content of all kernels' files is part of its name here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt
from numba.core.caching import FunctionCache

from sqlml.types import Array

Type = Any
"""A type of numba."""

Signature = tuple[Type, ...]
"""Types of numba, one for each argument."""

FLAG: Type = numba.types.boolean
"""numba's type of a bool argument."""

COUNT: Type = numba.types.int64
"""numba's type of an int argument."""

NOTHING: Type = numba.types.none
"""numba's type of None: code for something that is absent is not compiled."""


@cache
def _sources() -> str:
    """A digest of the files of all kernels, and of the functions that they call."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _KernelCache(FunctionCache):
    """numba's cache on disk, with `_sources` in the key of each entry."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        numbas: Any = super()
        return (*numbas._index_key(sig, codegen), _sources())


_COMPILED: dict[tuple[Callable[..., Any], Signature], Callable[..., Any]] = {}
_LOCK = threading.Lock()


def reads(dtype: npt.DTypeLike, ndim: int, layout: Literal["A", "C"] = "A") -> Any:
    """numba's type of an argument that is only read: any strides with layout "A"."""
    return numba.types.Array(numba.from_dtype(np.dtype(dtype)), ndim, layout, readonly=True)


def writes(dtype: npt.DTypeLike, ndim: int) -> Any:
    """numba's type of a contiguous argument that the kernel fills."""
    return numba.types.Array(numba.from_dtype(np.dtype(dtype)), ndim, "C")


def array_types(arrays: Sequence[Array]) -> Type:
    """numba's type of a tuple of contiguous arrays that are only read."""
    made: Callable[..., Type] = numba.types.Tuple
    return made([reads(a.dtype, a.ndim, "C") for a in arrays])


def helper(function: Callable[..., Any]) -> Any:
    """A function that kernels call, and nobody else: it becomes part of their machine code."""
    return numba.njit(nogil=True, inline="always")(function)


def specialise(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function` as machine code for `signature`, without the GIL; made once a process.

    Floating-point arithmetic is as written (no fastmath): the order of sums is part of a model.
    """
    key = (function, signature)
    found = _COMPILED.get(key)
    if found is not None:
        return found
    with _LOCK:
        if key not in _COMPILED:
            kept: Any = _KernelCache
            dispatcher: Any = numba.njit(nogil=True, error_model="numpy")(function)
            try:
                dispatcher._cache = kept(function)  # as enable_caching() does
            except RuntimeError:
                pass  # no folder can be written to: compile in each process
            dispatcher.compile(signature)
            dispatcher.disable_compile()
            _COMPILED[key] = dispatcher
        return _COMPILED[key]
