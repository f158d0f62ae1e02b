"""Say why the first answer takes seconds, where somebody is watching."""

from __future__ import annotations

import threading
from contextlib import suppress

from sqlml.watched import watched_stream

_TOLD = threading.Event()


def tell(kept: bool) -> None:
    """Write once per process, to a terminal or a notebook, that kernels are being compiled.

    Args:
        kept: whether their machine code will be kept for later processes.
    """
    stream = watched_stream()
    if _TOLD.is_set() or stream is None:
        return
    _TOLD.set()
    text = "compiling kernels, once on this machine"
    if not kept:
        text = (
            "compiling kernels for this process only: no private cache folder is writable; "
            "set NUMBA_CACHE_DIR to one"
        )
    with suppress(OSError, ValueError):  # closed, or nobody reads it any more
        stream.write(f"sqlml: {text}\n")
        stream.flush()
