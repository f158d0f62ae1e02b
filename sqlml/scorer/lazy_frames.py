"""`fetched`: frames that are plans (dask, polars, Spark) and relations, as the tables they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.scorer.pandas_columns import find
from sqlml.types import Feature


def fetched(X: Any, features: Sequence[Feature], blanks: bool = False) -> Any:
    """Return `X` if it holds its rows, otherwise the fetched rows, of frames only the columns read.

    Args:
        blanks: as `Gaps.blanks`.

    Raises:
        MissingColumnError, AmbiguousColumnError: before anything is computed.
    """
    if hasattr(X, "__dask_graph__"):
        if getattr(X, "ndim", None) == 2 and hasattr(X, "columns"):
            X = X[_read(features, list(X.columns), blanks)]
        return X.compute()
    if hasattr(X, "collect_schema") and hasattr(X, "collect"):  # polars, whose frames lack collect
        return X.select(_read(features, X.collect_schema().names(), blanks)).collect()
    if hasattr(X, "toArrow") and hasattr(X, "select"):  # Spark
        names = _read(features, X.columns, blanks)
        quoted = [name.replace("`", "``") for name in names]
        return X.select(*[f"`{name}`" for name in quoted]).toArrow()
    for method in ("to_arrow_table", "fetch_arrow_table"):
        if hasattr(X, method):
            return getattr(X, method)()
    return X


def _read(features: Sequence[Feature], names: Sequence[Any], blanks: bool) -> list[Any]:
    """Those of a frame's columns that the model reads; any one, which tells how many rows there
    are, where it reads none."""
    wanted = tuple(feature for feature in features if feature.kind != "any")
    places = find(wanted, [str(name) for name in names], blanks)
    return [names[place] for place in sorted(set(places.values()))] or list(names[:1])
