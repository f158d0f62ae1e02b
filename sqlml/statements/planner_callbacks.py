"""Functions that the planner calls back: models explained against rows, and names in rows."""

from __future__ import annotations

import weakref
from typing import Any

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

    An estimate tries `permutations` pairs of orders of the columns for each row.
    """
    items, quote = "*", dialect.quote_name
    if model.transform is not None:
        names = [feature.name for feature in model.program.features]
        features = model.transform.write_features(names, quote)
        items = ", ".join(f"{sql} AS {quote(name)}" for name, sql in features.items())
    rows = f"SELECT {items} FROM {query} AS sqlml_background LIMIT {MAX_BACKGROUND + 1}"
    gaps = Gaps(blanks=model.origin.may_replace_blanks)
    background = program_inputs(model.program, host.fetch_frame(rows), gaps=gaps)
    program = explain_against_background(model.program, background, permutations)
    programs.keep(program)
    return program


def names_in_rows(queries: weakref.ref[Any], query: str) -> tuple[str, ...]:
    """Return the texts in the rows of a query of one column, sorted; the query may call models.

    The planner holds a session's `queries` weakly, so that an unused session is freed at once.
    """
    session_queries = queries()
    assert session_queries is not None, "it is planning"
    rows = session_queries.host.read(session_queries.runnable(query))
    return tuple(sorted(str(name) for (name,) in rows))
