"""`Plans`: how the queries of one session are planned, with the options that SET gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.catalog.lookup import Lookup
from sqlml.planner.choice.settings import with_setting
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_cache import PlanCache
from sqlml.udfs.engine import Engine, context_of


class Plans:
    """The plans of one session's queries, kept while the answers hold that they rest on."""

    def __init__(self, engine: Engine, lookup: Lookup) -> None:
        self._cache = PlanCache(context_of(engine, lookup.model), lookup.stamp)
        self._settings: Mapping[str, str] = {}

    def plan(self, sql: str, parameters: Any = None) -> Plan | None:
        """The plan of one statement, or None when it calls no model."""
        return self._cache.plan(sql, parameters, self._settings)

    def set(self, option: str, value: Any) -> None:
        """Set an option for the session's queries, which overrides those of their models; None
        resets it.

        Raises:
            ConfigError: unknown option or value.
        """
        self._settings = with_setting(self._settings, option, value)
