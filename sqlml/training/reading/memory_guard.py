"""`MemoryGuard`: refuses rows that would not fit into memory, before they are read where that is
known."""

from __future__ import annotations

from dataclasses import dataclass

from sqlml.errors import ConfigError
from sqlml.training.options.request import Request

SHARE = 0.8
"""Of the engine's memory_limit that rows may take."""


@dataclass(frozen=True, slots=True)
class MemoryGuard:
    """What rows of an estimator that keeps all of them may take.

    row: bytes of one. limit: the engine's memory_limit in bytes; None: the estimator reads blocks.
    """

    request: Request
    row: int
    limit: float | None

    def check(self, rows: int | None) -> None:
        """Refuse a number of rows, if it is known.

        Raises:
            ConfigError: they take more than the limit allows; what would help.
        """
        if self.limit is None or rows is None or rows * self.row <= SHARE * self.limit:
            return
        others = ""
        if self.request.model_type.startswith("boosted_tree") and self.request.task != "rank":
            others = ", or library = 'xgboost', which reads rows in blocks"
        raise ConfigError(
            f"{self.request.trainer.path.rpartition('.')[2]} keeps all rows in memory: "
            f"{rows:,} of them take {rows * self.row / 2**30:.2f} GiB, and memory_limit is "
            f"{self.limit / 2**30:.2f} GiB; SET memory_limit to more, train on a sample "
            f"(SELECT .. USING SAMPLE 10%){others}"
        )
