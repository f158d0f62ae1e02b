"""`Progress`: a bar of the rows that were read, then of the rounds that were made.

It is drawn by tqdm in a terminal or a notebook, and nowhere else; without tqdm there is none.
"""

from __future__ import annotations

from typing import Any

from sqlml.terminal import escape_controls
from sqlml.watched import is_watched

LEAST_SECONDS = 1.0
"""Nothing is drawn before."""


class Progress:
    """One bar after another; `close` removes the last."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begin(self, what: str, total: int | None, unit: str) -> None:
        """Draw a bar for the next piece of work.

        Args:
            total: how many units it has; None if nobody knows.
        """
        self.close()
        make = _tqdm()
        if make is not None:
            self._bar = make(
                desc=what, total=total, unit=unit, unit_scale=True, leave=False, delay=LEAST_SECONDS
            )

    def add(self, units: int, told: str = "") -> None:
        """So many units are done; `told` is shown behind the bar."""
        if self._bar is not None:
            if told:
                self._bar.set_postfix_str(escape_controls(told), refresh=False)
            self._bar.update(units)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tqdm() -> Any:
    """What makes a bar; None where nobody would see it."""
    if not is_watched():
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
