"""The demo's SQL, which lives in files of its own."""

from __future__ import annotations

from importlib.resources import files


def query(name: str) -> str:
    """The text of `sql/demo/<name>.sql`."""
    return (files("sqlml") / "sql" / "demo" / f"{name}.sql").read_text(encoding="utf-8")
