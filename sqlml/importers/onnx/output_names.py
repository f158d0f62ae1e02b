"""Tell a classifier's outputs apart by their names, as converters to ONNX give them.

The process that asks onnxruntime imports this module, too: it must stay light.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


def is_score(name: str) -> bool:
    """Whether an output of this name holds scores, though it has one number a class."""
    return name.lower().startswith("score")


def columns_of_labels(names: Collection[str], labels: Sequence[Any]) -> list[str]:
    """The outputs that are called as the labels, as skl2onnx calls columns of probabilities.

    They are i1 and i2, or sred and sblue; an empty list if one is missing.
    """
    columns: list[str] = []
    if not 1 < len(labels) <= len(names):
        return columns
    for label in labels:
        texts = (f"i{label}", f"s{label}", f"s{label}.0")  # the last of a float that is whole
        columns += [text for text in texts if text in names][:1]
    return columns if len(columns) == len(labels) else []
