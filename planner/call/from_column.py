"""`Column`: a column that FROM makes for a call, besides its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlml.dialects import Dialect


@dataclass(frozen=True, slots=True)
class Column:
    """A column that FROM makes besides its own.

    name: of the column. sql: its expression. arguments: what must bind for it to be made. type: as
        the dialect spells it.
    """

    name: str
    sql: str
    arguments: str
    type: str

    @staticmethod
    def of_row(packed: str, kind: str) -> Column:
        """The packed numbers of one row, of type `kind`."""
        digest = hashlib.blake2b(packed.encode(), digest_size=12).hexdigest()
        return Column(f"sqlml_row_{digest}", packed, packed, kind)

    def probe(self, dialect: Dialect) -> str:
        """A NULL of the same type, which binds where the function's arguments bind."""
        row = dialect.row(self.arguments)
        return f"CASE WHEN {row} IS NULL THEN CAST(NULL AS {self.type}) END"
