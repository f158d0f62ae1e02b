"""`tell`: say why the first answer takes seconds, where somebody is watching."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

from sqlml.watched import is_watched

_TOLD = threading.Event()


def tell(kept: bool) -> None:
    """Write once per process, to a terminal or a notebook, that kernels are being compiled.

    Args:
        kept: whether their machine code will be kept for later processes.
    """
    if _TOLD.is_set() or not is_watched():
        return
    _TOLD.set()
    text = "compiling kernels, once on this machine"
    if not kept:
        text = (
            "compiling kernels for this process only: no private cache folder is writable; "
            "set NUMBA_CACHE_DIR to one"
        )
    with suppress(OSError, ValueError):  # closed, or nobody reads it any more
        sys.stderr.write(f"sqlml: {text}\n")
        sys.stderr.flush()
