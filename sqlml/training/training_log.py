"""`TrainingLog`: what happened in each round of training."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Round:
    """One round of boosting, or one pass over the rows.

    loss, eval_loss: of the rows fitted to and those held out, in the library's own metric; None
    where the library tells none. seconds: since the round before.
    """

    iteration: int
    loss: float | None
    eval_loss: float | None
    seconds: float


@dataclass(slots=True)
class TrainingLog:
    """The rounds so far, in order; `metric` is what the losses are, as the library calls it."""

    metric: str = ""
    rounds: list[Round] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def start(self) -> None:
        """The first round begins."""
        self._last = time.perf_counter()

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """A round has ended."""
        now = time.perf_counter()
        self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, now - self._last))
        self._last = now

    def replace_losses(self, losses: list[float], eval_losses: list[float]) -> None:
        """Enter losses that are known only when all rounds have been made."""
        for n, had in enumerate(self.rounds):
            loss = losses[n] if n < len(losses) else None
            eval_loss = eval_losses[n] if n < len(eval_losses) else None
            self.rounds[n] = Round(had.iteration, loss, eval_loss, had.seconds)
