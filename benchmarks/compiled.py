"""`compiled`: a Treelite model as a shared library that TL2cgen wrote and gcc compiled.

gcc can take minutes, so a process of its own does it, which is ended after a limit; what came out
lies in the cache, and the seconds it took beside it.

    python -m benchmarks.compiled MODEL LIBRARY
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def compiled(model: Any, key: str, limit: float, cache: Path) -> Path:
    """The compiled library of a model named `key`.

    Raises:
        TimeoutError: the compiler took more than `limit` seconds.
        RuntimeError: it failed; the message has the end of what it said.
    """
    import tl2cgen  # absent, it is to fail here, with its name

    library = cache / f"{key}-tl2cgen-{tl2cgen.__version__}.so"
    late = library.with_suffix(".late")
    if library.exists():
        return library
    if late.exists() and float(late.read_text()) >= limit:
        raise _late(limit)
    cache.mkdir(parents=True, exist_ok=True)
    source = library.with_suffix(".treelite")
    model.serialize(source)
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.compiled", str(source), str(library)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # gcc's own children end with it
        cwd=Path(__file__).parent.parent,
    )
    try:
        said, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        late.write_text(f"{limit}\n")
        raise _late(limit) from None
    finally:
        source.unlink(missing_ok=True)
    if child.returncode or not library.exists():
        raise RuntimeError(f"the C compiler failed: {said.strip()[-200:]}")
    _note(library).write_text(f"{time.perf_counter() - start:.1f}\n")
    return library


def compile_seconds(key: str, cache: Path) -> float | None:
    """How long the compilation of `key` took when it was made."""
    for note in cache.glob(f"{key}-tl2cgen-*.seconds"):
        return float(note.read_text())
    return None


def _late(limit: float) -> TimeoutError:
    return TimeoutError(f"the C compiler took more than {limit:g} s")


def _note(library: Path) -> Path:
    return library.with_suffix(".seconds")


def main() -> None:
    """Read a Treelite checkpoint, write a library."""
    import tl2cgen
    import treelite

    source, library = sys.argv[1:]
    model = treelite.Model.deserialize(source)
    unit_files = {"parallel_comp": 2 * (os.cpu_count() or 1)}
    partial_name = f"{library}.part.so"
    tl2cgen.export_lib(
        model, toolchain="gcc", libpath=partial_name, params=unit_files, nthread=os.cpu_count() or 1
    )
    Path(partial_name).rename(library)


if __name__ == "__main__":
    main()
