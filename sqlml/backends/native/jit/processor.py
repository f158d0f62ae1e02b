"""What machine code is compiled for: this processor, or the level that it has of its kind.

A package brings machine code for levels (`shipped_code.py`). On a processor that reaches a level,
kernels use no feature beyond it that Python has to know of, so that machine code for the level and
for the processor both fit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import llvmlite.binding as llvm

_V3 = frozenset(
    "avx avx2 bmi bmi2 cmov cx16 cx8 f16c fma fxsr lzcnt mmx movbe popcnt sahf sse sse2 sse3 "
    "sse4.1 sse4.2 ssse3 xsave".split()
)

LEVELS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "x86-64-v4": _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
        "x86-64-v3": _V3,
    }
)
"""LLVM's names of levels and of their features; the best level first."""


def settings(level: str) -> dict[str, str]:
    """Environment variables by which numba compiles for a level."""
    features = ",".join(f"+{feature}" for feature in sorted(LEVELS[level]))
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": features}


def told() -> dict[str, str]:
    """The environment variables that say how numba compiles."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("NUMBA_") and not name.startswith("NUMBA_CACHE_")
    }


def target() -> tuple[str, str]:
    """The processor to compile for and its features, as LLVM names them."""
    name, features = (os.environ.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES"))
    return (
        name or llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten() if features is None else features,
    )


@cache
def level() -> str | None:
    """The best level that this processor has, or the one that numba is told to compile for.

    None if there is no such level, or numba is told to compile in some other way.
    """
    asked = told()
    if asked:
        return next((name for name in LEVELS if settings(name) == asked), None)
    here = llvm.get_host_cpu_features()
    return next((name for name, own in LEVELS.items() if all(map(here.get, own))), None)


def has(feature: str) -> bool:
    """Whether kernels may use a feature, by LLVM's name for it.

    False where NUMBA_CPU_NAME or NUMBA_CPU_FEATURES ask for no level, but another processor.
    """
    found = level()
    if found is not None:
        return feature in LEVELS[found]
    if any(os.environ.get(f"NUMBA_CPU_{part}") for part in ("NAME", "FEATURES")):
        return False
    return bool(llvm.get_host_cpu_features().get(feature, False))


VECTOR_BYTES = 64 if has("avx512bw") else 32 if has("avx2") else 16
"""Width of a vector of bytes, for kernels that are written in LLVM's own language."""
