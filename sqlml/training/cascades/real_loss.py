"""The measured loss of a small model on the rows of a query."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.ir.program import Program
from sqlml.training.cascades.last_estimator import CONFIDENCE, Rows, answers
from sqlml.training.cascades.threshold import most_loss
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class RealLoss:
    """Errors of a small model on some rows.

    rows: their number. loss: of accuracy, or the share of the best K rows that are missing.
    allowed: the promised loss. differing: predictions that differ from the full model's. agrees:
    the loss is not significantly larger than promised.
    """

    rows: int
    loss: float
    allowed: float
    differing: int
    agrees: bool


def measure_cascade_loss(program: Program, cascade: Cascade, rows: Rows, labels: Array) -> RealLoss:
    """Measure the decrease of a model's accuracy with its cascade.

    Args:
        rows: input of the model -> (n,) values.
        labels: (n,) int, the index of each row's true label among the model's.
    """
    small = answers(cascade.small, "label", rows)[:, 0]
    full = answers(program, "label", rows)[:, 0]
    combined = np.where(small < 0, full, small)
    lost = int(((full == labels) & (combined != labels)).sum())
    won = int(((full != labels) & (combined == labels)).sum())
    n, allowed = labels.size, cascade.facts.accuracy_loss
    certain_loss = -most_loss(won, lost, n)  # The lower bound of the loss.
    return RealLoss(
        n, (lost - won) / n, allowed, int((combined != full).sum()), certain_loss <= allowed
    )


def measure_filter_loss(program: Program, top_k_filter: TopKFilter, rows: Rows) -> RealLoss:
    """Measure the share of a model's best K rows that its filter leaves out.

    Args:
        rows: input of the model -> (n,) values.
    """
    facts = top_k_filter.facts
    full = answers(program, facts.output, rows)[:, facts.column]
    small_scores = answers(top_k_filter.small, CONFIDENCE, rows)[:, 0]
    k = min(facts.k, full.size)
    share = facts.ratio * facts.k / facts.rows
    count = max(math.ceil(facts.ratio * facts.k), math.ceil(share * full.size))
    remaining = np.argsort(-small_scores, kind="stable")[:count]
    least = np.partition(full, -k)[-k]  # Rows that tie with the k-th are as good.
    missed = k - min(k, int((full[remaining] >= least).sum()))
    allowed = 1 - facts.precision
    return RealLoss(full.size, missed / k, allowed, missed, k - missed >= facts.precision * k)
