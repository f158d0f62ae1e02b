"""Steps that change the columns that they name, and leave the others as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Value


def check_fitted(model: Any, *attributes: str) -> None:
    """Raise UnsupportedModelError unless the object has what `fit` gives it."""
    if not all(hasattr(model, name) for name in attributes):
        raise unfitted(model)


def place(frame: Frame, name: str) -> int:
    """Where a column is.

    Raises:
        UnsupportedModelError: nowhere.
    """
    if name not in frame.names:
        raise UnsupportedModelError(f"column {name!r} is not among those that this step gets")
    return frame.names.index(name)


def changed(
    frame: Frame, chosen: Mapping[str, Any], change: Callable[[Value, Any], Value]
) -> Frame:
    """Columns of numbers, each changed by what stands with its name; others as they are."""
    b = frame.builder
    parts = []
    for i, name in enumerate(frame.names):
        if name in chosen:
            made = change(frame.numbers(i), chosen[name])
            parts.append(Frame.of(b, made, (name,)))
        else:
            parts.append(frame.take([i]))
    return Frame.hstack(b, parts)


def beside(frame: Frame, made: Sequence[tuple[str, Value]], dropped: Collection[str] = ()) -> Frame:
    """The columns but some, and new ones behind them."""
    b = frame.builder
    kept = frame.take([i for i, name in enumerate(frame.names) if name not in dropped])
    return Frame.hstack(b, [kept, *(Frame.of(b, value, (name,)) for name, value in made)])
