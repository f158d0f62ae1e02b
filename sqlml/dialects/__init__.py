"""SQL dialects: how each engine spells the SQL that sqlml writes.

In: names, literals and operands as text. Out: SQL text for DuckDB (`DUCKDB`), Spark (`SPARK`), or
for sqlglot to translate to other databases (`portable.Portable`).

Read first: `dialect.py`, whose `Dialect` lists everything that engines spell differently. Types are
written as DuckDB spells them; `type_names.py` takes nested ones apart.

To support another engine, derive a class from `Dialect` and override the methods for SQL that the
engine spells differently. To write a new construct, add a method to `Dialect`, unless all engines
spell it alike.
"""

from __future__ import annotations

from sqlml.dialects.dialect import Dialect
from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.spark import SPARK

__all__ = ["DUCKDB", "SPARK", "Dialect"]
