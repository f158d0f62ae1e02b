"""Which cases bring nothing new, as names in a file: `PLAIN`.

A case is plain where its import runs no line of `sqlml/importers` and makes no kind of operator
that no case before it did: another parameter of the same formula. A case that is not in the file
is thorough.

    python -m tests.contract.estimators.tiers --write
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import sqlml.importers
from sqlml.importers.registry import import_model
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted, quiet
from tests.contract.estimators.table import ALL

FILE = Path(__file__).parent / "plain_cases.txt"
PLAIN = frozenset(FILE.read_text().splitlines())

_IMPORTERS = str(Path(sqlml.importers.__file__).parent)


def plain() -> list[str]:
    """The names of the cases that bring nothing new, in their order."""
    seen: set[object] = set()
    names = []
    for case in ALL:
        found = _brought(case)
        if found <= seen:
            names.append(case.name)
        seen |= found
    return names


def _brought(case: Case) -> set[object]:
    """Lines of importers, and the names of operators."""
    model = Fitted.of(case).model
    lines: set[object] = set()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_IMPORTERS) else None

    sys.settrace(call)
    try:
        with quiet():
            program = import_model(model).program
    finally:
        sys.settrace(None)
    return lines | {node.op for node in program}


if __name__ == "__main__":
    names = plain()
    if "--write" in sys.argv:
        FILE.write_text("".join(f"{name}\n" for name in names))
    print(f"{len(names)} of {len(ALL)} cases are plain")
