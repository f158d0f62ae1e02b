"""`TrainingLog`: what happened in each round of training."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlml.training.progress import Progress


@dataclass(frozen=True, slots=True)
class Round:
    """One round of boosting, or one pass over the rows.

    loss, eval_loss: of the rows fitted to and those held out, in the library's own metric; None
    where the library tells none. seconds: since the round before, or None.
    """

    iteration: int
    loss: float | None
    eval_loss: float | None
    seconds: float | None


@dataclass(slots=True)
class TrainingLog:
    """The rounds so far, in order; `metric` is what the losses are, as the library calls it.

    progress: shows them.
    """

    progress: Progress = field(default_factory=Progress)
    metric: str = ""
    rounds: list[Round] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def start(self, rounds: int | None) -> None:
        """The first round begins; there are so many at most, if that is known."""
        self.progress.begin("fitting", rounds, "round")
        self._last = time.perf_counter()

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """A round has ended."""
        now = time.perf_counter()
        self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, now - self._last))
        self._last = now
        told = {"loss": loss, "eval_loss": eval_loss}
        self.progress.add(1, ", ".join(f"{k} {v:.4g}" for k, v in told.items() if v is not None))

    def restore(self, metric: str, losses: Iterable[tuple[float | None, float | None]]) -> None:
        """Rounds had ended in another process."""
        self.metric = metric
        for loss, eval_loss in losses:
            self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, None))
        self.progress.add(len(self.rounds), "")
        self._last = time.perf_counter()

    def past(self, loss: float, eval_loss: float | None) -> None:
        """A round had ended before anybody could tell."""
        self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, None))
