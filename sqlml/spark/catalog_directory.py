"""`Directory`: what is where in the directory of a catalog, and what leaves it.

::

    index/00000000000000000007.json    the models after the seventh change
    programs/<hash>.sqlml              a stored Program, as EXPORT MODEL writes it

A change writes the next index, and of two sessions that do so at once one makes the file. Nothing
is written over. The last ten indexes stay, for a session that is reading one, and with them the
Programs that they name; what is older is swept by whoever writes an index.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from sqlml.errors import CatalogError
from sqlml.spark.files import Files

FORMAT = 1
"""Of the index; a later version of sqlml reads earlier ones."""

KEPT = 10
"""Indexes that stay."""


class Directory:
    """The files of one catalog."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._added: dict[str, bytes] = {}
        self.place = files.place

    def newest(self) -> int:
        """The number of the newest index; 0 if there is none."""
        return max(self._numbers(), default=0)

    def index(self, number: int) -> dict[str, Any]:
        """The tables as they were after change `number`: their names, and rows as dicts.

        Raises:
            CatalogError: the index is damaged, of a later version of sqlml, or swept meanwhile.
        """
        place = f"{self.place}/{_index(number)}"
        content = self._files.read(_index(number))
        if content is None:
            raise CatalogError(f"{place} no longer exists; try again")
        try:
            found = dict(json.loads(content))
            version = found.pop("sqlml_catalog")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CatalogError(
                f"the model catalog is damaged: {place} is not an sqlml index; remove the file to "
                "fall back to the one before it"
            ) from None
        if version != FORMAT:
            raise CatalogError(
                f"{place} was written by a later version of sqlml (format {version!r}); update "
                "sqlml"
            )
        return found

    def write_index(self, number: int, tables: dict[str, Any]) -> bool:
        """Write the tables after a change as index `number`; False where another session did so.

        Raises:
            CatalogError: it cannot be written.
        """
        content = json.dumps({"sqlml_catalog": FORMAT, **tables}, indent=1, default=str).encode()
        if not self._files.add(_index(number), content):
            return False
        if self.newest() >= number + KEPT:
            # The others were so much faster that their index of this number has been swept.
            self._files.remove(_index(number))
            return False
        for digest, program in self._added.items():  # another session may have swept it just now
            if self.program_bytes(digest) is None:
                self._files.add(_program(digest), program)
        self._added = {}
        with suppress(CatalogError):  # the change is made; the next one sweeps again
            self._sweep(number, tables)
        return True

    def program(self, digest: str) -> bytes | None:
        """A stored Program; None if it does not exist."""
        return self._files.read(_program(digest))

    def program_bytes(self, digest: str) -> int | None:
        """The bytes that a stored Program takes; None if it does not exist."""
        return self._files.size(_program(digest))

    def program_place(self, digest: str) -> str:
        """The file of a stored Program, as messages name it."""
        return f"{self.place}/{_program(digest)}"

    def add_program(self, digest: str, content: bytes) -> None:
        """Store a Program that the next index names."""
        self._added[digest] = content
        self._files.add(_program(digest), content)

    def _sweep(self, newest: int, tables: dict[str, Any]) -> None:
        numbers = self._numbers()
        old = [number for number in numbers if number <= newest - KEPT]
        gone = {digest for number in old for digest in _named(self.index(number))} - _named(tables)
        if gone:
            for number in set(numbers) - {*old, newest}:
                gone -= _named(self.index(number))
            if self.newest() != newest:
                return  # it may name one of them
        for digest in gone:
            self._files.remove(_program(digest))
        for number in old:
            self._files.remove(_index(number))

    def _numbers(self) -> list[int]:
        return [number for name in self._files.names("index") if (number := _number(name))]


def _named(tables: dict[str, Any]) -> set[str]:
    """The hashes of the Programs that an index names."""
    try:
        rows = [*tables["versions"], *tables.get("small_models", ())]
        return {str(row["program"]) for row in rows}
    except (KeyError, TypeError) as error:
        raise CatalogError(f"not an sqlml index: {error}") from None


def _program(digest: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", digest) is None:  # of a forged index: it may be any path
        raise CatalogError(
            f"the model catalog is damaged: {digest[:80]!r} is not the hash of a model"
        )
    return f"programs/{digest}.sqlml"


def _index(number: int) -> str:
    return f"index/{number:020d}.json"


def _number(name: str) -> int:
    """The number of an index by its file's name; 0 for other files."""
    return int(name[:20]) if re.fullmatch(r"0[0-9]{19}\.json", name) else 0
