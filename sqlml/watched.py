"""`is_watched`: whether a person sees what is drawn on standard error."""

from __future__ import annotations

import sys


def is_watched() -> bool:
    """Whether standard error is a terminal, or a notebook shows it."""
    try:
        return sys.stderr.isatty() or _in_notebook()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
