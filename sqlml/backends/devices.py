"""`installed`: whether a library is there, without importing it."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec


@cache
def installed(library: str) -> bool:
    """Whether `library` can be found; not so where its finder fails."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False


# `available`: whether a device is there, asked without importing torch where it cannot be.


def available(device: str) -> bool:
    """Whether torch can compute on `device`: "cpu", or "cuda" (any GPU of NVIDIA).

    Where the driver is not installed or hides all GPUs this takes microseconds; else torch is
    imported and asked.
    """
    if device == "cpu":
        return installed("torch")
    if not device.startswith("cuda") or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if not _driver() or not installed("torch"):
        return False
    import torch  # only here: it takes seconds

    return bool(torch.cuda.is_available())


@cache
def _driver() -> bool:
    """Whether NVIDIA's driver can be loaded; it is not started (a later fork would break it)."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
