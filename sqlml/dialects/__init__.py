"""SQL dialects: the differences between the SQL of the engines.

Input: names, literals and operands as text. Output: SQL text for DuckDB (`DUCKDB`), for Spark
(`SPARK`), or for sqlglot to translate to other databases (`portable.Portable`).

Read first: `dialect.py`, in which `Dialect` lists all differences between engines. Types have the
names of DuckDB's types. `type_names.py` parses nested types.

To support another engine, derive a class from `Dialect` and override methods. To write a new
construct, add a method to `Dialect`, unless the SQL is the same for all engines.
"""

from __future__ import annotations

from sqlml.dialects.dialect import Dialect
from sqlml.dialects.duckdb import DUCKDB
from sqlml.dialects.spark import SPARK

__all__ = ["DUCKDB", "SPARK", "Dialect"]
