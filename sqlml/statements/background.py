"""`explained_by_rows`: a model's Program that explains against the rows of a query."""

from __future__ import annotations

from sqlml.catalog.model import Model
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import Dialect
from sqlml.explaining.explained import explained_against
from sqlml.host import Host
from sqlml.importers.gaps import Gaps
from sqlml.ir.operators.sampled import MOST_BACKGROUND
from sqlml.ir.program import Program
from sqlml.scorer.program_inputs import program_inputs


def explained_by_rows(
    host: Host,
    programs: Programs,
    dialect: Dialect,
    model: Model,
    query: str,
    permutations: int | None,
) -> Program:
    """Run a query, and make the Program; `programs` finds it for as long as it is needed.

    Args:
        query: in brackets.
        permutations: pairs of orders that an estimate tries for each of the rows.

    Raises:
        ConfigError: no rows, or too many, or too many permutations.
        MissingColumnError: the rows lack a column of the model.
        UnsupportedModelError: the model cannot be explained.
    """
    items, transform = "*", model.transform
    if transform is not None:
        names = {column: dialect.quote_name(column) for column in transform.columns}
        items = ", ".join(
            f"{transform.sql(f.name, names)} AS {dialect.quote_name(f.name)}"
            if f.name in transform.made
            else dialect.quote_name(f.name)
            for f in model.program.features
        )
    rows = f"SELECT {items} FROM {query} AS sqlml_background LIMIT {MOST_BACKGROUND + 1}"
    gaps = Gaps(blanks=model.origin.blanks)
    given = program_inputs(model.program, host.fetch_frame(rows), gaps=gaps)
    made = explained_against(model.program, given, permutations)
    programs.keep(made)
    return made
