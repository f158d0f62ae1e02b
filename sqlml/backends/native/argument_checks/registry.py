"""The argument check of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

CHECKS: Mapping[str, Callable[..., Any]] = {}
"""Maps a kernel, as its module below `sqlml` and its name, to the check of its arguments."""


def find_argument_check(module: str, name: str) -> Callable[..., Any] | None:
    """Return the check of a kernel's arguments, or None if exported models may not call it."""
    return CHECKS.get(f"{module.removeprefix('sqlml.')}.{name}")
