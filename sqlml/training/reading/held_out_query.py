"""`held_out_query`: the rows that a training held out, as a query over the rows of now."""

from __future__ import annotations

from sqlml.catalog.training_facts import TrainingFacts
from sqlml.dialects.duckdb import DUCKDB
from sqlml.host import RowHost
from sqlml.training.options.splits import Split
from sqlml.training.transform.fitted_rows import hashed_columns
from sqlml.types import fold


def held_out_query(host: RowHost, facts: TrainingFacts) -> str | None:
    """The query in brackets; None if all rows were trained on.

    Of a split by time, as many rows are trained on as were then.

    Raises:
        ParseError: the stored query is none.
        duckdb.Error: the engine cannot bind it any more.
    """
    columns = dict(host.describe(facts.query))
    split = Split(**facts.split)
    hashed = hashed_columns(columns)
    group = facts.options.get("group")
    if group is not None:
        hashed = [f"CAST({DUCKDB.quote_name(str(group))} AS VARCHAR)"]
    place = split.place(hashed, facts.seed)
    if place is None or not facts.held_out:
        return None
    wanted = fold(str(facts.options.get("label")))
    label = next((name for name in columns if fold(name) == wanted), None)
    known = "true" if label is None else f"{DUCKDB.quote_name(label)} IS NOT NULL"
    rows = f"(SELECT * FROM (\n{facts.query}\n) AS sqlml_query WHERE {known})"
    if split.method != "seq":
        fitted = split.fitted_sql(place, None)
        return f"(SELECT * FROM {rows} AS sqlml_rows WHERE NOT ({fitted}))"
    last = (
        f"(SELECT {place} FROM {rows} AS sqlml_fitted ORDER BY {place} NULLS LAST "
        f"LIMIT 1 OFFSET {max(facts.rows, 1) - 1})"
    )
    return f"(SELECT * FROM {rows} AS sqlml_rows WHERE NOT ({split.fitted_sql(place, last)}))"
