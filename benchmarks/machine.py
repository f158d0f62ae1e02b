"""What the numbers of a benchmark depend on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "duckdb",
    "numpy",
    "numba",
    "pyarrow",
    "pandas",
    "scikit-learn",
    "lightgbm",
    "xgboost-cpu",
    "xgboost",
    "catboost",
    "onnxruntime",
    "skl2onnx",
    "onnxmltools",
    "torch",
    "triton",
    "hummingbird-ml",
    "daal",
    "scikit-learn-intelex",
    "treelite",
    "tl2cgen",
    "lleaves",
    "timber-compiler",
    "quickgrove",
    "ydf",
)


def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, cores and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """The versions of the libraries that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
