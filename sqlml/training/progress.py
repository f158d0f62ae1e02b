"""Progress bars by tqdm, if it is installed, and the log of a training's rounds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlml.long_work import hide_line, show_line, show_stage, watched_stream
from sqlml.terminal import escape_controls

MIN_SECONDS = 1.0
"""Seconds before a bar is drawn."""


class Progress:
    """A series of progress bars, shown one at a time; `close` removes the current bar."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begin(self, description: str, total: int | None, unit: str) -> None:
        """Draw a bar for the next task of `total` units; `total` is None for an unknown number."""
        self.close()
        show_stage(description)  # This names the work even if no unit is ever counted.
        stream = watched_stream()
        if stream is None:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        make_bar = partial(tqdm, file=stream, unit_scale=True, leave=False, delay=MIN_SECONDS)
        self._bar = make_bar(desc=description, total=total, unit=unit)

    def add(self, units: int, postfix: str = "") -> None:
        """Advance the bar by `units` finished units, and show `postfix` after it."""
        if self._bar is not None:
            hide_line()
            if postfix:
                self._bar.set_postfix_str(escape_controls(postfix), refresh=False)
            self._bar.update(units)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            show_line()


@dataclass(frozen=True, slots=True)
class TrainingRound:
    """One boosting round, or one pass over the rows.

    loss, eval_loss: the losses on the fitted and the held-out rows in the metric of the library, or
    None if the library does not report them. seconds: the time since the previous round, or None if
    the time is unknown.
    """

    iteration: int
    loss: float | None
    eval_loss: float | None
    seconds: float | None


@dataclass(slots=True)
class TrainingLog:
    """The rounds of a training so far, in order.

    progress: the bars that show the rounds. metric: the library's name for the losses. work: what
    the bars say.
    """

    progress: Progress = field(default_factory=Progress)
    metric: str = ""
    rounds: list[TrainingRound] = field(default_factory=list)
    work: str = "fitting"
    _last_time: float = field(default_factory=time.perf_counter)

    def start(self, rounds: int | None) -> None:
        self.progress.begin(self.work, rounds, "round")
        self._last_time = time.perf_counter()

    def add_round(self, loss: float | None, eval_loss: float | None) -> None:
        now = time.perf_counter()
        self.rounds.append(
            TrainingRound(len(self.rounds) + 1, loss, eval_loss, now - self._last_time)
        )
        self._last_time = now
        losses = {"loss": loss, "eval_loss": eval_loss}
        postfix = ", ".join(f"{name} {v:.4g}" for name, v in losses.items() if v is not None)
        self.progress.add(1, postfix)

    def restore(self, metric: str, losses: Iterable[tuple[float | None, float | None]]) -> None:
        """Restore the rounds that another process finished."""
        self.metric = metric
        for loss, eval_loss in losses:
            self.add_past(loss, eval_loss)
        self.progress.add(len(self.rounds), "")
        self._last_time = time.perf_counter()

    def add_past(self, loss: float | None, eval_loss: float | None) -> None:
        """Log a round that the library reports only after the training has ended."""
        self.rounds.append(TrainingRound(len(self.rounds) + 1, loss, eval_loss, None))
