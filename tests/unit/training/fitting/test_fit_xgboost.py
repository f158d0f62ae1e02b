"""XGBoost's matrix of rows, and a Ctrl-C while it reads them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from xgboost import XGBClassifier

from sqlml.training.fitting.fit_boosters import _build_matrix
from sqlml.training.row_store import BlockMatrix, EstimatorRows
from sqlml.types import Array


@dataclass
class InterruptedBlocks(BlockMatrix):
    """Two blocks of rows; a Ctrl-C arrives before the second one."""

    signals: int

    @property
    def shape(self) -> tuple[int, int]:
        return 200, 2

    @property
    def block_rows(self) -> int:
        return 100

    def rows(self, start: int, stop: int) -> Array:
        return np.arange(2.0 * start, 2.0 * stop).reshape(-1, 2)

    def blocks(self) -> Iterator[Array]:
        yield self.rows(0, 100)
        if self.signals:
            self.signals -= 1
            signal.raise_signal(signal.SIGINT)
        yield self.rows(100, 200)


def test_an_interrupt_while_native_code_reads_rows_is_raised() -> None:
    y = np.arange(200) % 2
    before = signal.getsignal(signal.SIGINT)
    part = EstimatorRows(InterruptedBlocks(1), y, None, None)
    with pytest.raises(KeyboardInterrupt):
        _build_matrix(part, None, XGBClassifier(), None)
    assert signal.getsignal(signal.SIGINT) is before
    matrix = _build_matrix(part, None, XGBClassifier(), None)
    assert matrix.num_row() == 200
