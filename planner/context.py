"""`Context`: what the planner asks of the engine and of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.catalog.model import Model
from sqlml.dialects import DUCKDB, Dialect
from sqlml.planner.parameters import TypeOf
from sqlml.planner.probe import Describe
from sqlml.planner.rows import AskRows
from sqlml.planner.unneeded_joins import UniqueKeys


@dataclass(frozen=True, slots=True)
class Context:
    """What the planner may ask: the engine's binder, the catalog, and the user's functions."""

    describe: Describe
    model: Callable[[str], Model]
    is_user_function: Callable[[str], bool]
    unique_keys: UniqueKeys | None
    settings: Mapping[str, Any]
    rows: AskRows
    column_name: Callable[[str], str | None]
    """How the engine names the column of an expression that nobody named; None: it cannot say."""
    type_of: TypeOf
    dialect: Dialect = DUCKDB
