"""`confusion_matrix`: how many rows of each class are taken for which."""

from __future__ import annotations

from sqlml.planner.evaluation.answer import KNOWN, Answer
from sqlml.planner.evaluation.grouping import Grouping


def confusion_matrix(by: Grouping, classes: int, predicted: str, count: str) -> Answer:
    """A row for each group and class `k`, with columns `c0`, `c1`, ..: rows taken for each class.

    Args:
        classes: how many there are. predicted: what a row is taken for, of `sqlml_scored`.
        count: the type of the numbers.
    """
    numbers = ", ".join(f"({k})" for k in range(classes))
    taken = ", ".join(
        f"CAST(coalesce(sum(CASE WHEN hat = {k} THEN w END), 0) AS {count}) AS c{k}"
        for k in range(classes)
    )
    groups = f"SELECT {by.columns} 0 AS nothing FROM sqlml_scored {by.group_by or 'LIMIT 1'}"
    wanted = f"""
        SELECT {by.of("all_groups")} k
        FROM all_groups CROSS JOIN (VALUES {numbers}) AS all_classes(k)
    """
    pairs = f"""
        SELECT {by.columns} y AS k, {predicted} AS hat, sum(w) AS w
        FROM sqlml_scored WHERE {KNOWN} {by.grouped_by("y", predicted)}
    """
    each = Grouping((*by.keys, "k"))
    answer = f"""
        SELECT {each.of("wanted")} {taken} FROM {each.join("wanted", "pairs", "LEFT JOIN")}
        {each.group_of("wanted")} ORDER BY {by.of("wanted")} wanted.k
    """
    return Answer((("all_groups", groups), ("wanted", wanted), ("pairs", pairs)), answer)


def pairs(by: Grouping, predicted: str, count: str) -> Answer:
    """A row for each group and pair of a class `k` and the class `taken_for` that rows have."""
    answer = f"""
        SELECT {by.columns} y AS k, {predicted} AS taken_for, CAST(sum(w) AS {count}) AS c
        FROM sqlml_scored WHERE {KNOWN} {by.grouped_by("y", predicted)}
        ORDER BY {by.columns} k, taken_for
    """
    return Answer((), answer)
