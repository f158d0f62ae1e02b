"""`Column`: a column that FROM makes for a call, besides its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlml.dialects import Dialect


@dataclass(frozen=True, slots=True)
class Column:
    """A column that FROM makes besides its own.

    name: of the column. sql: its expression. arguments: what must bind for it to be made. type: as
        the dialect spells it. order: what the rows are sorted by before it is made, if anything.
    """

    name: str
    sql: str
    arguments: str
    type: str
    order: str | None = None

    @staticmethod
    def of_row(packed: str, kind: str) -> Column:
        """The packed numbers of one row, of type `kind`."""
        return Column(f"sqlml_row_{_digest(packed)}", packed, packed, kind)

    @staticmethod
    def of_models(sql: str, arguments: str, kind: str, model: str) -> Column:
        """What models make of `arguments`; the expression `model` names that of each row."""
        return Column(f"sqlml_models_{_digest(sql)}", sql, arguments, kind, model)

    def probe(self, dialect: Dialect) -> str:
        """A NULL of the same type, which binds where the function's arguments bind."""
        row = dialect.row(self.arguments)
        return f"CASE WHEN {row} IS NULL THEN CAST(NULL AS {self.type}) END"


def _digest(sql: str) -> str:
    return hashlib.blake2b(sql.encode(), digest_size=12).hexdigest()
