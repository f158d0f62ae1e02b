"""Callbacks of the planner: explain a model against rows, and fetch names from a query."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import pairwise
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
    """Run a one-column query, which may call models, and return its values as sorted strings."""
    return tuple(sorted(str(name) for (name,) in _fetch_rows(queries_ref, query)))


def are_disjoint(queries_ref: weakref.ref[Any], query: str) -> bool:
    """Run a query that returns ranges (first, last), and return whether the ranges do not overlap.

    The query may call models. An unknown range, with a NULL, may overlap any other.
    """
    ranges = _fetch_rows(queries_ref, query)
    if any(None in range_of_rows for range_of_rows in ranges):
        return False
    return all(last < first for (_, last), (first, _) in pairwise(sorted(ranges)))


def _fetch_rows(queries_ref: weakref.ref[Any], query: str) -> Sequence[tuple[Any, ...]]:
    """Run a query of the planner, which has only a weak reference to a session's queries.

    So an unused session is freed immediately.
    """
    queries = queries_ref()
    assert queries is not None, "the session outlives its planner"
    rows: Sequence[tuple[Any, ...]] = queries.host.read(queries.runnable(query))
    return rows
