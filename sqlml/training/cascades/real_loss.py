"""`real_loss`: what a small model costs on rows that somebody names, today."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.ir.program import Program
from sqlml.training.cascades.parts import CONFIDENCE, Rows, answers
from sqlml.training.cascades.threshold import most_loss
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class RealLoss:
    """What a small model got wrong on `rows` rows.

    loss: of accuracy, or the share of the best K that are not among them; allowed: what it may be.
    differing: answers that differ from the full model's. agrees: no more is lost than is allowed,
    as far as so few rows can tell.
    """

    rows: int
    loss: float
    allowed: float
    differing: int
    agrees: bool


def loss_of_cascade(program: Program, cascade: Cascade, rows: Rows, labels: Array) -> RealLoss:
    """By how much the accuracy of a model falls with its cascade.

    Args:
        rows: input of the model -> (n,) values.
        labels: (n,) int, the place of each row's true label among the model's.
    """
    small = answers(cascade.small, "label", rows)[:, 0]
    full = answers(program, "label", rows)[:, 0]
    given = np.where(small < 0, full, small)
    lost = int(((full == labels) & (given != labels)).sum())
    won = int(((full != labels) & (given == labels)).sum())
    n, allowed = labels.size, cascade.facts.accuracy_loss
    least = -most_loss(won, lost, n)  # the lower bound: how much is lost for sure
    return RealLoss(n, (lost - won) / n, allowed, int((given != full).sum()), least <= allowed)


def loss_of_filter(program: Program, found: TopKFilter, rows: Rows) -> RealLoss:
    """Which share of a model's best K rows its filter leaves out.

    Args:
        rows: input of the model -> (n,) values.
    """
    facts = found.facts
    full = answers(program, facts.output, rows)[:, facts.column]
    guess = answers(found.small, CONFIDENCE, rows)[:, 0]
    k = min(facts.k, full.size)
    share = facts.ratio * facts.k / facts.rows
    count = max(math.ceil(facts.ratio * facts.k), math.ceil(share * full.size))
    kept = np.argsort(-guess, kind="stable")[:count]
    least = np.partition(full, -k)[-k]  # rows that tie with the k-th are as good
    missed = k - min(k, int((full[kept] >= least).sum()))
    allowed = 1 - facts.precision
    return RealLoss(full.size, missed / k, allowed, missed, k - missed >= facts.precision * k)
