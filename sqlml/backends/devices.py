"""Check whether libraries and devices are available, without importing slow libraries."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec

from sqlml.errors import BackendError


@cache
def is_installed(library: str) -> bool:
    """Return True if `library` can be imported, or False if it is missing or the search fails."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def is_available(device: str) -> bool:
    """Return True if torch can use `device`; torch is imported only if NVIDIA's driver exists."""
    if device == "cpu":
        return is_installed("torch")
    if not device.startswith("cuda") or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if not _has_driver() or not is_installed("torch"):
        return False
    import torch  # Importing torch is slow.

    return bool(torch.cuda.is_available())


def parse_cuda_number(device: str) -> int | None:
    """Return the number in "cuda:1", or None for "cuda"; raise BackendError for other names."""
    device_type, _, number = device.partition(":")
    if device_type != "cuda" or (number and not number.isdecimal()):
        raise BackendError(f"unknown device {device!r}; devices: auto, cpu, cuda, cuda:0, ...")
    return int(number) if number else None


@cache
def _has_driver() -> bool:
    """Return True if NVIDIA's driver can be loaded; do not start it, which would break forks."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
