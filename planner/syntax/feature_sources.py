"""`feature_sources`: what a query computes for some of its columns alone, and where that stands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sqlglot import exp

from sqlml.parsing.tokens import deeply
from sqlml.planner.syntax.lineage import FeatureSource, Lineage, TypeOf
from sqlml.planner.syntax.resolved_query import ColumnsOf
from sqlml.types import fold

Sources = Mapping[str, frozenset[FeatureSource]]
"""The columns of a query, folded -> what they need."""


def feature_sources(sql: str, columns: ColumnsOf, returned: TypeOf) -> Sources:
    """What each column of a DuckDB query needs that is not computed for all of them.

    That are tables that are joined LEFT, so that they take no rows from those before them, and
    calls of functions over lists and texts or that the user has made, in the query itself and in
    the subqueries and CTEs that it reads. A query that cannot be followed has none.
    """
    try:
        return deeply(sql, "duckdb", partial(_sources, sql, columns, returned))
    except Exception:  # sqlglot's optimizer raises what it likes
        return {}


def _sources(sql: str, columns: ColumnsOf, returned: TypeOf) -> Sources:
    lineage = Lineage(sql, columns, returned)
    whole = lineage.whole
    if not isinstance(whole.expression, exp.Select):
        return {}
    items = {fold(item.alias_or_name): item for item in whole.expression.selects}
    return {
        name: lineage.needs(items[name], whole) if name in items else lineage.everything(whole)
        for name in map(fold, columns(sql))
    }
