"""`blamed_place`: where a name that the engine does not know stands in the user's statement."""

from __future__ import annotations

import re

from sqlml.planner.syntax.outline import Outline
from sqlml.types import fold

_BLAMED = re.compile(
    r'with name "?([^"\s]+)"? does not exist|Referenced (?:column|table) "([^"]+)" not found'
    r'|does not have a column named "([^"]+)"|with name `([^`]+)` cannot be resolved'
)
"""The engine's message about an unknown name."""


def blamed_place(outline: Outline, message: str, place: int) -> int:
    """Where in the statement the name in the engine's message stands.

    Of several places, the first after `place`; `place` itself if there is none.
    """
    blamed = _BLAMED.search(message)
    if blamed is None:
        return place
    name = fold(next(g for g in blamed.groups() if g is not None).split(".")[-1])
    found = [start for word, start in outline.words if word == name]
    behind = [start for start in found if start >= place]
    return behind[0] if behind else found[-1] if found else place
