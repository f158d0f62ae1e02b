"""Callbacks of the planner: explain a model against rows, and fetch names from a query."""

from __future__ import annotations

import weakref
from typing import Any

from sqlml.catalog.model import Model
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import Dialect
from sqlml.explaining.explained import explain_against_background
from sqlml.host import Host
from sqlml.importers.frame import MissingValueRules
from sqlml.ir.operators.contributions import MAX_BACKGROUND
from sqlml.ir.program import Program
from sqlml.scorer.input_table import read_program_inputs


def explain_by_rows(
    host: Host,
    programs: Programs,
    dialect: Dialect,
    model: Model,
    query: str,
    permutations: int | None,
) -> Program:
    """Build a Program that explains a model by comparison with the rows of a bracketed `query`.

    If contributions are estimated, `permutations` pairs of column orders are tried for each row.
    """
    quote = dialect.quote_name
    select_items = "*"
    if model.transform is not None:
        names = [feature.name for feature in model.program.features]
        features = model.transform.build_feature_sql(names, quote)
        select_items = ", ".join(f"{sql} AS {quote(name)}" for name, sql in features.items())
    source_sql = f"{query} AS sqlml_background LIMIT {MAX_BACKGROUND + 1}"
    rows = host.fetch_frame(f"SELECT {select_items} FROM {source_sql}")
    gaps = MissingValueRules(blanks=model.origin.may_replace_blanks)
    background = read_program_inputs(model.program, rows, gaps=gaps)
    program = explain_against_background(model.program, background, permutations)
    programs.keep(program)
    return program


def fetch_names(queries_ref: weakref.ref[Any], query: str) -> tuple[str, ...]:
    """Run a one-column query, which may call models, and return its values as sorted strings.

    The planner has only a weak reference to a session's queries, so that an unused session is freed
    immediately.
    """
    queries = queries_ref()
    assert queries is not None, "the session outlives its planner"
    rows = queries.host.read(queries.runnable(query))
    return tuple(sorted(str(name) for (name,) in rows))
