"""LightGBM models that lleaves compiles, as shared libraries.

lleaves needs an older llvmlite than numba, so that it cannot be imported beside sqlml. It lies in a
folder of its own (`make bench` installs it), compiles in another process, and gcc links the object
file. `load_lleaves` then calls its function as lleaves does.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(sys.prefix) / "lleaves"

COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
import lleaves
lleaves.Model(sys.argv[2]).compile(cache=sys.argv[3])
"""


def load_lleaves(source: Path, classes: int, threads: int, limit: float) -> Callable[[Any], Any]:
    """Return a function that scores a matrix with the LightGBM model in the file `source`.

    Raises:
        ModuleNotFoundError: lleaves is not installed in its folder.
        TimeoutExpired: compiling takes more than `limit` seconds.
        CalledProcessError: lleaves or the linker failed.
    """
    if not (FOLDER / "lleaves").is_dir():
        raise ModuleNotFoundError("lleaves", name="lleaves")
    library = source.with_suffix(".lleaves.so")
    if not library.exists():
        compiled = source.with_suffix(".lleaves.o")
        command = [sys.executable, "-c", COMPILE, str(FOLDER), str(source), str(compiled)]
        subprocess.run(command, check=True, timeout=limit, capture_output=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-shared", "-o", str(unfinished), str(compiled), "-lm"], check=True)
        unfinished.replace(library)
        compiled.unlink()
    root = ctypes.CDLL(str(library)).forest_root
    root.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
    root.restype = None

    def score(x: Any) -> Any:
        numbers = np.ascontiguousarray(x, np.float64)
        out = np.zeros(len(numbers) if classes == 1 else (len(numbers), classes))
        bounds = np.linspace(0, len(numbers), threads + 1).astype(int).tolist()
        parts = list(zip(bounds, bounds[1:], strict=False))
        arguments = numbers.ctypes.data, out.ctypes.data
        if threads == 1:
            root(*arguments, *parts[0])
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda part: root(*arguments, *part), parts))
        return out

    return score
