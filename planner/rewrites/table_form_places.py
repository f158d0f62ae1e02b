"""`WrittenOut`: a statement whose table forms are written out, and where its text comes from."""

from __future__ import annotations

from dataclasses import dataclass

from sqlml.errors import SqlmlError


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text, and where it comes from: of the user's own text the place where it begins.

    What we wrote ourselves comes from one place, the form's.
    """

    text: str
    place: int
    own: bool


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """A statement without table forms, which knows its places in the user's `statement`."""

    statement: str
    pieces: tuple[Piece, ...]

    def added(self, offset: int) -> bool:
        """Whether a place of `sql` is in what we wrote: there a call adds its column to rows."""
        for piece in self.pieces:
            if offset < len(piece.text):
                return not piece.own
            offset -= len(piece.text)
        return False

    @property
    def sql(self) -> str:
        """The text of the statement."""
        return "".join(p.text for p in self.pieces)

    def located(self, error: SqlmlError) -> SqlmlError:
        """The error with its place in the user's text."""
        if error.offset is None or error.sql != self.sql:
            return error
        return error.at(self.statement, self._place(error.offset))

    def _place(self, offset: int) -> int:
        for piece in self.pieces:
            if offset < len(piece.text):
                return piece.place + (offset if piece.own else 0)
            offset -= len(piece.text)
        return len(self.statement)
