"""Where a person sees what is drawn while work goes on: a terminal, or the output of a cell."""

from __future__ import annotations

import sys
from typing import TextIO


def watched_stream() -> TextIO | None:
    """Return the stream that a person watches; None if nobody does.

    It is standard error in a terminal, and standard output in a notebook, which shows standard
    error as if something had failed.
    """
    try:
        if sys.stderr.isatty():
            return sys.stderr
        return sys.stdout if _in_notebook() else None
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None


def is_watched() -> bool:
    """Return whether a person sees what is drawn."""
    return watched_stream() is not None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
