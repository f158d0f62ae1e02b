"""Functions that the planner calls back: models explained against rows, and names in rows."""

from __future__ import annotations

import weakref
from typing import Protocol

from sqlml.catalog.model import Model
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import Dialect
from sqlml.explaining.explained import explain_against_background
from sqlml.host import Host
from sqlml.importers.frame import Gaps
from sqlml.ir.operators.contributions import MAX_BACKGROUND
from sqlml.ir.program import Program
from sqlml.scorer.input_table import program_inputs


def explain_by_rows(
    host: Host,
    programs: Programs,
    dialect: Dialect,
    model: Model,
    query: str,
    permutations: int | None,
) -> Program:
    """Return the model's Program that explains against the rows of a query, which is in brackets.

    Args:
        programs: keeps the new Program for as long as it is needed.
        permutations: pairs of orders of the columns that an estimate tries for each row.
    """
    items, transform = "*", model.transform
    if transform is not None:
        names = {column: dialect.quote_name(column) for column in transform.columns}
        items = ", ".join(
            f"{transform.sql(f.name, names)} AS {dialect.quote_name(f.name)}"
            if f.name in transform.expressions
            else dialect.quote_name(f.name)
            for f in model.program.features
        )
    rows = f"SELECT {items} FROM {query} AS sqlml_background LIMIT {MAX_BACKGROUND + 1}"
    gaps = Gaps(blanks=model.origin.may_replace_blanks)
    background = program_inputs(model.program, host.fetch_frame(rows), gaps=gaps)
    program = explain_against_background(model.program, background, permutations)
    programs.keep(program)
    return program


class Queries(Protocol):
    """The queries of a session."""

    @property
    def host(self) -> Host: ...

    def runnable(self, sql: str) -> str: ...


def names_in_rows(queries: weakref.ref[Queries], query: str) -> tuple[str, ...]:
    """Return the texts in the rows of a query of one column, sorted; the query may call models.

    The planner holds `queries` weakly, so that a session without references is freed at once and
    its file is closed.
    """
    session_queries = queries()
    assert session_queries is not None, "it is planning"
    rows = session_queries.host.read(session_queries.runnable(query))
    return tuple(sorted(str(name) for (name,) in rows))
