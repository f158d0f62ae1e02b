"""Plugins that other programs load: dbt, harlequin, IPython and SQLAlchemy.

Each program finds its plugin through an entry point of the package (`pyproject.toml`) or by name,
and gets a Session where it would have a connection of DuckDB.

Each plugin is a file of its own; dbt has three: `dbt_plugin.py`, `dbt_project.py`, which writes the
macros into a project, and the macros themselves. To add a plugin, write a file and declare its
entry point.
"""
