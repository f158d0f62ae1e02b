"""The tables of TPC-H, written by tpchgen-cli."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.models import CACHE

TABLES = ("customer", "orders", "lineitem", "supplier", "nation", "region", "part", "partsupp")


def make_tpch(scale: float) -> Mapping[str, Path]:
    """Return the Parquet file of each table at a scale factor; they are written once."""
    folder = CACHE / f"tpch-{scale:g}"
    if not all((folder / f"{name}.parquet").exists() for name in TABLES):
        binary = Path(sys.executable).parent / "tpchgen-cli"
        options = [f"--scale-factor={scale:g}", f"--output-dir={folder}"]
        subprocess.run([str(binary), "parquet", *options], check=True)
    return {name: folder / f"{name}.parquet" for name in TABLES}
