"""Processor levels: the sets of features for which kernels are compiled.

The runtime has the machine code of each level of a platform, and uses the best one that the
processor supports. Python code chooses kernels and their data by the features of the same level.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "runtime" / "built" / "sqlml.duckdb_extension"
"""The runtime (`runtime_library.py`)."""

_V1 = frozenset("cmov cx8 fxsr mmx sse sse2".split())
_V3 = _V1 | frozenset(
    "avx avx2 bmi bmi2 cx16 f16c fma lzcnt movbe popcnt sahf sse3 sse4.1 sse4.2 ssse3 xsave".split()
)

LEVELS: Mapping[str, frozenset[str]] = {
    "x86-64-v4": _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
    "x86-64-v3": _V3,
    "x86-64": _V1,
    "armv8-a": frozenset({"fp-armv8", "neon"}),
}
"""Maps the name of a level to LLVM's names of its features, with the best level first."""

_TUNING: Mapping[str, str] = {
    "x86-64-v4": "znver4",
    "x86-64-v3": "znver3",
    "x86-64": "x86-64",
    "armv8-a": "generic",
}
"""Maps a level to LLVM's name of the processor whose times decide the order of instructions.

For the name of the level itself, LLVM unrolls fewer loops: on a Zen 4 processor, XGBoost with 500
trees then takes 86 ns per row instead of 62 ns, and 180 ns instead of 151 ns without AVX-512.
"""

_OTHER_FEATURES = frozenset(
    "adx aes avx512bf16 avx512bitalg avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512vpopcntdq "
    "clzero fsrm gfni mwaitx pclmul sha sse4a vaes vpclmulqdq".split()
)
"""Features of those processors that the levels lack."""


def get_target(level: str) -> tuple[str, str]:
    """Return LLVM's name of a processor, and the features to use of it, for a level."""
    features = [f"+{feature}" for feature in sorted(LEVELS[level])]
    if level.startswith("x86"):
        features += [f"-{feature}" for feature in sorted(_OTHER_FEATURES)]
    return _TUNING[level], ",".join(features)


SETTING = "SQLML_LEVEL"
"""The environment variable that selects a level, for processes that compile for another one."""


def get_level_settings(level: str) -> dict[str, str]:
    """Return the environment variables that make a process compile for `level`.

    numba compiles for the processor that runs it, so its code for another architecture begins as
    code for x86-64, and `runtime/compile_kernels.py` translates it.
    """
    numba_level = level if level.startswith("x86") == (platform.machine() in X86) else _own_base()
    name, features = get_target(numba_level)
    return {SETTING: level, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


X86 = frozenset({"x86_64", "AMD64"})
"""The names of the architecture x86-64 in `platform.machine()`."""


def _own_base() -> str:
    return "x86-64" if platform.machine() in X86 else "armv8-a"


def read_numba_settings() -> dict[str, str]:
    """Return the environment variables that change how numba compiles."""
    names = [n for n in os.environ if n.startswith("NUMBA_") and not n.startswith("NUMBA_CACHE_")]
    return {name: os.environ[name] for name in names}


@cache
def find_level() -> str | None:
    """Return the best supported level, or the one that the environment selects.

    Returns None if numba's settings ask for another processor.
    """
    level = os.environ.get(SETTING)
    if level is not None:
        return level
    if read_numba_settings():
        return None
    if platform.machine() not in X86:
        return _own_base()
    return _detect_level()


def _detect_level() -> str:
    """Return the best level that this x86-64 processor supports."""
    with suppress(OSError, AttributeError):  # The runtime may be missing, or an older one.
        detect = ctypes.CDLL(str(LIBRARY)).sqlml_detect_level
        detect.restype = ctypes.c_char_p
        return str(detect().decode())
    import llvmlite.binding as llvm  # Imported late, since the import takes as long as a query.

    host_features = llvm.get_host_cpu_features()
    return next(name for name, needed in LEVELS.items() if all(map(host_features.get, needed)))


def has_feature(feature: str) -> bool:
    """Return True if kernels may use `feature`, LLVM's name of a feature such as "avx2"."""
    level = find_level()
    return level is not None and feature in LEVELS[level]


VECTOR_BYTES = 64 if has_feature("avx512bw") else 32 if has_feature("avx2") else 16
"""Bytes of a vector, for kernels that are written in LLVM IR."""

LINE_BYTES = 64
"""Bytes of a cache line on almost all processors.

On others, too many lines are prefetched, and arrays may begin in the middle of a line.
"""
