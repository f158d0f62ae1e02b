"""Dialects of SQL: how engines spell what the planner writes."""

from __future__ import annotations

from sqlml.dialects.base import Dialect
from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.spark import SPARK

__all__ = ["DUCKDB", "SPARK", "Dialect"]
