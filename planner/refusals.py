"""Calls whose model may refuse a row, and where the engine must not ask them about rows of its own.

To find out whether a LEFT JOIN may become an inner one, DuckDB evaluates the filters above it for a
row of NULLs that no query asks for, and an error about that row ends the query. It leaves a
volatile function alone, so a call that may be part of such a filter has one.
"""

from __future__ import annotations

from sqlml.ir.ops import OPS
from sqlml.ir.program import Program
from sqlml.planner.syntax.outline import ModelCall
from sqlml.recent import of_programs

_REQUIREMENTS = frozenset({"require", "require_finite", "require_finite_stored", "require_known"})
_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""What CREATE makes of expressions that may stand where the engine takes nothing volatile."""


@of_programs
def refuses_rows(program: Program) -> bool:
    """Whether some row may be an error to the model and not a value."""
    return any(n.op in _REQUIREMENTS or OPS[n.op].group == "opaque" for n in program.nodes)


def guarded(call: ModelCall, created: str) -> bool:
    """Whether a call, in a statement that creates such a thing, is to have a volatile function."""
    return _filters_rows(call, created) and _may_be_volatile(call, created)


def _filters_rows(call: ModelCall, created: str) -> bool:
    """Whether a filter, or a column that one may test, holds the call."""
    return call.clause in _FILTERS or call.nested or created == "VIEW"


def _may_be_volatile(call: ModelCall, created: str) -> bool:
    """Whether the engine takes a volatile function in place of the call.

    It takes none in TRY, in an index, in what a window is ordered or divided by, and in a select
    item whose name another clause or item uses; a subquery in such an item is part of it.
    """
    if call.in_try or created in _STORED:
        return False
    windows = call.block is not None and call.block.windows and call.clause not in _FILTERS
    return not windows and all(item.volatile for item in call.items)
