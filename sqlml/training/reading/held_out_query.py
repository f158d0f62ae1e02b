"""`held_out_query`: the rows that a training held out, as a query over the current rows."""

from __future__ import annotations

from sqlml.catalog.training_facts import TrainingFacts
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ArtifactError, ConfigError
from sqlml.host import RowHost
from sqlml.training.options.splits import checked_split
from sqlml.types import fold


def held_out_query(host: RowHost, facts: TrainingFacts) -> str | None:
    """Return the query in brackets; None if all rows were trained on.

    A split by time trains on as many rows as it did then.

    Raises:
        ArtifactError: the stored split is damaged.
        ParseError: the stored query is none.
        duckdb.Error: the engine cannot bind it any more.
    """
    columns = dict(host.describe(facts.query))
    try:
        split = checked_split(**facts.split)
    except (AttributeError, TypeError, ConfigError) as error:
        raise ArtifactError(
            f"the catalog's split of the training is damaged ({error}); train the model again"
        ) from None
    label = facts.label
    names = {fold(name): name for name in columns}
    label = None if label is None else names.get(fold(label))
    group = facts.options.get("group")
    keys = split.keys(columns, label, None if group is None else str(group), facts.seed)
    if not keys or not facts.held_out:
        return None
    known = "true" if label is None else f"{DUCKDB.quote_name(label)} IS NOT NULL"
    rows = f"(SELECT * FROM (\n{facts.query}\n) AS sqlml_query WHERE {known}) AS sqlml_rows"
    last = None
    if split.method == "seq":
        (key,) = keys
        last = (
            f"(SELECT {key} FROM {rows} ORDER BY {key} NULLS LAST "
            f"LIMIT 1 OFFSET {max(facts.rows, 1) - 1})"
        )
    return f"({split.side_sql(rows, keys, last, held_out=True)})"
