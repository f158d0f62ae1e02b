"""Draw a bar of the rows that were read, then of the rounds that were fitted.

tqdm draws it in a terminal or a notebook, and nowhere else; without tqdm there is no bar.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlml.long_work import cover_line, stage, uncover_line, watched_stream
from sqlml.terminal import escape_controls

LEAST_SECONDS = 1.0
"""Nothing is drawn before."""


class Progress:
    """Progress bars, one after another; `close` removes the last."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begin(self, what: str, total: int | None, unit: str) -> None:
        """Draw a bar for the next piece of work.

        Args:
            total: how many units it has; None if nobody knows.
        """
        self.close()
        stage(what)  # says it where no unit is ever counted
        make_bar = _find_bar()
        if make_bar is not None:
            self._bar = make_bar(
                desc=what, total=total, unit=unit, unit_scale=True, leave=False, delay=LEAST_SECONDS
            )

    def add(self, units: int, note: str = "") -> None:
        """Count units as done, and show `note` behind the bar."""
        if self._bar is not None:
            cover_line()
            if note:
                self._bar.set_postfix_str(escape_controls(note), refresh=False)
            self._bar.update(units)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            uncover_line()


def _find_bar() -> Any:
    """Return what makes a bar of text; None where nobody would see it."""
    stream = watched_stream()
    if stream is None:
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return partial(tqdm, file=stream)
