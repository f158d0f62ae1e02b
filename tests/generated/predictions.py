"""Run a generated script with model calls, and its twin with the libraries' predictions.

``python -m tests.generated.predictions 17`` prints what seed 17 makes and how the two differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

import sqlml
from sqlml.errors import MissingValueError, SqlmlError, StatementError
from tests.e2e.corpus import check_rows
from tests.generated.changes import Step
from tests.generated.dice import Dice
from tests.generated.models import MISSING, make_macros, make_models
from tests.generated.scope import CREATE, FILL
from tests.generated.scripts import script

WRONG = "statistics_propagation"
"""The optimizer of DuckDB behind a fault in `gaps.GAPS`."""

EARLY = (
    "filter_pushdown,join_filter_pushdown,cte_filter_pusher,unused_columns,empty_result_pullup,"
    "expression_rewriter,statistics_propagation"
)
"""Optimizers that drop rows and columns before the place where they are written to be dropped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement gave: an error's kind and text, or columns and rows."""

    error: str = ""
    message: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the two sides part, with all that is needed to see it again."""

    seed: int
    text: str
    twin: str
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what[:800]}\n  sqlml:  {self.text}\n  DuckDB: {self.twin}"


class Pair:
    """A session with models, and a plain connection with predictions."""

    def __init__(self, ours: sqlml.Session, plain: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.folder = folder
        self.ours = ours
        self.plain = plain

    def difference(self, seed: int) -> Difference | None:
        """What seed's script does otherwise on the two sides."""
        dice = Dice(seed)
        steps = script(dice)
        ran: list[tuple[str, str]] = []
        try:
            for step in steps:
                ours, twin = (self._text(dice, step, side) for side in (0, 1))
                ran.append((ours, twin))
                found = outcome(self.ours, ours, dice.values(ours), step.lazily)
                expected = outcome(self.plain, twin, dice.values(twin), step.lazily)
                what = compared(found, expected, step.ordered)
                if what and found.error == "missing value":
                    if self._again(dice, ran, EARLY).error == found.error:
                        return None
                if what and not found.error and not expected.error:
                    if not compared(found, self._again(dice, ran, WRONG), step.ordered):
                        return None
                if what:
                    every, twins = ("; ".join(side) for side in zip(*ran, strict=True))
                    values = dice.values(every)
                    every += f"  -- {values}" if values else ""
                    return Difference(seed, every, twins, what)
        finally:
            if len(steps) > 1:
                self.undo()
        return None

    def _text(self, dice: Dice, step: Step, side: int) -> str:
        return dice.text(step.marked, side).replace("FILE", str(self.folder / str(side)))

    def _again(self, dice: Dice, ran: Sequence[tuple[str, str]], without: str) -> Outcome:
        """What the last of the twins gives without some optimizers.

        Which condition the engine applies first is its own choice, so a strict model may meet a
        NULL that the twin's plan has dropped before.
        """
        self.undo()
        self.plain.execute(f"SET disabled_optimizers = '{without}'")
        given = [outcome(self.plain, twin, dice.values(twin)) for _, twin in ran]
        self.undo()  # an aborted transaction takes no setting
        self.plain.execute("RESET disabled_optimizers")
        return given[-1]

    def undo(self) -> None:
        """Bring both sides back to how they began."""
        for con in (self.ours, self.plain):
            for text in UNDO:
                with suppress(duckdb.Error):
                    con.execute(text)


UNDO = (
    "ROLLBACK",
    FILL,
    "DROP TABLE made",
    "DROP VIEW v",
    "DROP MACRO m",
    "DROP MACRO TABLE m",
    "DEALLOCATE p",
)
"""What brings the tables back, whatever of a script has failed."""


def outcome(con: Any, text: str, parameters: Any = None, lazily: bool = False) -> Outcome:
    try:
        if lazily:
            relation = con.sql(text, params=parameters)
            columns = zip(relation.columns, map(str, relation.types), strict=True)
            return Outcome(columns=tuple(columns), rows=tuple(relation.fetchall()))
        con.execute(text, parameters)
        described = tuple((d[0], str(d[1])) for d in con.description or ())
        return Outcome(columns=described, rows=tuple(con.fetchall()))
    except (duckdb.Error, SqlmlError) as error:
        return Outcome(kind_of(error), f"{type(error).__name__}: {error}")


def kind_of(error: Exception) -> str:
    """A word for what is wrong, the same for an error of sqlml and for DuckDB's."""
    refused = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
    if isinstance(error, (*refused, StatementError)) or "transaction is aborted" in str(error):
        return "refused"  # of an aborted transaction the engine says either
    if isinstance(error, MissingValueError) or MISSING in str(error):
        return "missing value"
    return type(error).__name__


def compared(found: Outcome, expected: Outcome, ordered: bool) -> str:
    """In what they differ; empty where they do not."""
    if found.error != expected.error:
        return f"{found.message or 'rows'} in place of {expected.message or 'rows'}"
    if found.columns != expected.columns:
        return f"columns {found.columns} in place of {expected.columns}"
    try:
        check_rows(list(found.rows), list(expected.rows), ordered)
    except AssertionError as error:
        return f"rows {error}"
    return ""


@contextmanager
def opened() -> Iterator[Pair]:
    """Both sides, with the same tables."""
    with (
        sqlml.connect() as ours,
        duckdb.connect() as plain,
        TemporaryDirectory() as folder,
    ):
        for con in (ours, plain):
            con.execute("SET threads = 1")
            con.execute(CREATE)
            con.execute(FILL)
        make_models(ours)
        make_macros(plain)
        yield Pair(ours, plain, Path(folder))


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[-1])
    with opened() as pair:
        for seed in range(first, last + 1):
            print(pair.difference(seed) or f"seed {seed}: no difference")
