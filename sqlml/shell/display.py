"""`Display`: how results are written; `.mode`, `.headers` and their like replace it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Display:
    """How results are written.

    Attributes:
        mode: a name in `output_modes.MODES`.
        header: whether names of columns are written, in the modes that can leave them out.
        null: what stands for NULL, where the mode has no word of its own for it.
        timer: whether each statement's seconds are told.
        pager: whether a result that a terminal cannot show at once goes to a pager.
    """

    mode: str = "box"
    header: bool = True
    null: str = ""
    timer: bool = False
    pager: bool = True
