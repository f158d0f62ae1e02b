"""`Route`: the way of rows from the engine to the function that scores, and back.

Machine code that the engine calls by itself takes the columns where they lie. Arrow hands batches
to Python, whose lock one thread holds at a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """How rows reach a function.

    Attributes:
        by_column: machine code takes the columns, an argument each; else they come by Arrow.
        python: why Python is called for each batch all the same; None if it is not.
    """

    by_column: bool
    python: str | None

    @property
    def name(self) -> str:
        """
        >>> [Route(True, None).name, Route(True, "..").name, Route(False, "..").name]
        ['native', 'native with python', 'arrow']
        """
        if not self.by_column:
            return "arrow"
        return "native" if self.python is None else "native with python"

    @property
    def is_for_now(self) -> bool:
        """Whether there soon is a better one, when kernels are compiled."""
        return self.python == COMPILING

    def __str__(self) -> str:
        if not self.by_column:
            return f"Arrow and Python: {self.python}"
        if self.python is None:
            return "native, without Python"
        return f"native, but Python scores the packed rows: {self.python}"


COMPILING = "its kernels are being compiled, once on this machine"
"""A reason that soon goes away."""

ARROW = Route(False, "this engine has no other route")
