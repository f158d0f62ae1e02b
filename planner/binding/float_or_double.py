"""`fits_float`: whether a row's numbers may travel as FLOAT, which halves what is handed over."""

from __future__ import annotations

from collections.abc import Mapping

from sqlml.dialects.type_names import NUMBERS
from sqlml.ir.program import Program
from sqlml.planner.binding.column_types import Bound
from sqlml.types import DATETIME

_EXACT = frozenset("TINYINT SMALLINT UTINYINT USMALLINT FLOAT BOOLEAN".split())
"""Types whose every value is exact in float32."""


def fits_float(bounds: Mapping[str, Bound], program: Program) -> bool:
    """Whether all numbers and codes of categories are exact in float32; dates are not.

    Args:
        bounds: what feeds each input of the Program.
    """
    if any(feature.kind == DATETIME for feature in program.features):
        return False
    codes = [n.attrs["categories"].size < 1 << 24 for n in program.nodes if n.op == "encode"]
    numbers = [b.type in _EXACT for b in bounds.values() if NUMBERS.fullmatch(b.type)]
    return all(codes) and all(numbers)
