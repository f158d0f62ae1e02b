"""Plugins that other programs load: dbt, harlequin, IPython and SQLAlchemy.

Each program finds a plugin through an entry point of the package (`pyproject.toml`) or by name, and
gets a Session instead of a DuckDB connection.

There is one file per plugin. `sqlml dbt` writes `dbt_macros.sql` into a project. To add a plugin,
write a file and declare an entry point.
"""
