"""What vectors the processor has, for kernels that are written in LLVM's own language."""

from __future__ import annotations

import os

import llvmlite.binding


def has(feature: str) -> bool:
    """Whether numba compiles for a processor with this feature, by LLVM's name for it.

    False where NUMBA_CPU_NAME or NUMBA_CPU_FEATURES ask for another processor than this one.
    """
    if any(os.environ.get(f"NUMBA_{name}") for name in ("CPU_NAME", "CPU_FEATURES")):
        return False
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


VECTOR_BYTES = 64 if has("avx512bw") else 32 if has("avx2") else 16
"""Width of a vector of bytes."""
